//! How a run ended, in words: what happened, why, what was lost, what to do next.

use crate::event::Failure;
use crate::sandbox::backend::Obituary;
use crate::sandbox::output::{guest_failure, size};
use crate::sandbox::runner::frame::{Done, Exit, Lost};

use super::drive::Stop;

const AFRESH: &str = "Its variables and imports are lost; the next cell starts a fresh one.";

/// What a run that was stopped is said to have ended with; `None`: it was not stopped.
pub(super) fn stopped(stop: Stop) -> (&'static str, String) {
    match stop {
        Stop::Interrupt => ("KeyboardInterrupt", "the code was interrupted".into()),
        Stop::Timeout(limit) => (
            "Timeout",
            format!(
                "timed out after {} s and was stopped; sandbox.timeout sets the limit",
                trimmed(limit.as_secs_f64())
            ),
        ),
        Stop::Shutdown => ("SandboxError", "the kernel is shutting down".into()),
    }
}

fn trimmed(seconds: f64) -> String {
    let text = format!("{seconds:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The failure of a Python run that reached its end; `held` is the error it showed last.
pub(super) fn done(done: &Done, stop: Option<Stop>, held: Option<Failure>) -> Option<Failure> {
    if let Some(stop @ Stop::Timeout(_)) = stop {
        let (name, what) = stopped(stop);
        let mut failure = Failure::new(name, format!("{what}. Python's variables are kept."));
        if let Some(held) = held {
            failure.traceback.splice(0..0, held.traceback);
        }
        return Some(failure);
    }
    if done.status != "error" {
        return None;
    }
    let told = || done.error.as_ref().map(|e| guest_failure(&e.ename, &e.evalue, &e.traceback));
    let mut failure = held.or_else(told).unwrap_or_else(|| {
        let what =
            stop.map_or_else(|| "the code failed and did not say why".to_owned(), |stop| stopped(stop).1);
        Failure::new(stop.map_or("Error", |stop| stopped(stop).0), what)
    });
    if failure.ename.is_empty() {
        failure.ename = "Error".into();
    }
    Some(failure)
}

/// The failure of a process that ended.
pub(super) fn exit(exit: &Exit, stop: Option<Stop>, memory: u64) -> Option<Failure> {
    if let Some(stop) = stop {
        let (name, what) = stopped(stop);
        return Some(Failure::new(name, what));
    }
    let subject = if exit.stage == "compile" { "the compiler" } else { "the code" };
    let limit = size(memory);
    if exit.oom {
        let what = format!(
            "{subject} used more memory than the sandbox has ({limit}) and was killed; sandbox.memory sets the limit"
        );
        return Some(Failure::new("OutOfMemory", what));
    }
    // A shell reports a child's death by signal n as 128 + n.
    let (code, signal) = match (exit.code, exit.signal) {
        (Some(0), _) => return None,
        (Some(code @ 129..=192), _) => (code, Some(code - 128)),
        (Some(code), _) => (code, None),
        (None, signal) => (128 + signal.unwrap_or(0), signal),
    };
    let why = match signal {
        Some(9) => format!(": killed (SIGKILL), maybe for using more memory than {limit}"),
        Some(signal) => format!(": ended by {}", signal_name(signal)),
        None => String::new(),
    };
    Some(Failure::new("ExitCode", format!("{subject} ended with exit code {code}{why}")))
}

/// The failure of a run that lost the Python session.
pub(super) fn lost(lost: &Lost, stop: Option<Stop>, memory: u64) -> Failure {
    if let Some(stop) = stop {
        let (name, what) = stopped(stop);
        let kept = if lost.ready { AFRESH } else { "The next cell starts a fresh one." };
        return Failure::new(name, format!("{what}. Python did not react and was killed. {kept}"));
    }
    let (name, how) = how_lost(lost, memory);
    Failure::new(name, format!("{how}. {AFRESH}"))
}

/// How the Python session was lost.
pub(super) fn how_lost(lost: &Lost, memory: u64) -> (&'static str, String) {
    if lost.oom {
        let limit = size(memory);
        let how = format!(
            "the Python session used more memory than the sandbox has ({limit}) and was killed; sandbox.memory sets the \
             limit"
        );
        return ("OutOfMemory", how);
    }
    let how = match (lost.broken, lost.code, lost.signal) {
        (true, ..) => {
            "the code wrote into the Python session's own channel, so the session was ended".to_owned()
        }
        (_, Some(code), _) if !lost.ready => format!("the Python session did not start: exit code {code}"),
        (_, Some(code), _) => format!("the code ended the Python session with exit code {code}"),
        (_, _, Some(signal)) => format!("the Python session was ended by {}", signal_name(signal)),
        _ => "the Python session ended".to_owned(),
    };
    ("SessionLost", how)
}

/// How a container ended that should not have.
pub(super) fn gone(obituary: &Obituary, broken: Option<&str>) -> (&'static str, String) {
    if let Some(broken) = broken {
        return ("SandboxError", format!("the sandbox's channel can't be followed any more ({broken})"));
    }
    match obituary {
        Obituary::OutOfMemory(limit) => (
            "OutOfMemory",
            format!(
                "the sandbox used more memory than it has ({}) and was ended; sandbox.memory sets the limit",
                size(*limit)
            ),
        ),
        Obituary::Exited(code) => ("SandboxError", format!("the sandbox ended by itself (exit code {code})")),
        Obituary::Removed => ("SandboxError", "the sandbox was removed or killed from outside".into()),
        Obituary::EngineGone(why) => ("SandboxError", format!("the container engine does not answer: {why}")),
    }
}

fn signal_name(signal: i64) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT (interrupted)",
        3 => "SIGQUIT",
        4 => "SIGILL (illegal instruction)",
        6 => "SIGABRT (aborted)",
        7 => "SIGBUS (bad memory access)",
        8 => "SIGFPE (arithmetic error)",
        9 => "SIGKILL",
        11 => "SIGSEGV (segmentation fault)",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU (CPU time)",
        25 => "SIGXFSZ (file size limit)",
        31 => "SIGSYS (a forbidden system call)",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}
