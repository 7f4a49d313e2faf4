//! How a run ended, in words: what happened, why, what was lost, what to do next.

use crate::event::{Failure, terminal};
use crate::sandbox::backend::Obituary;
use crate::sandbox::disk::Full;
use crate::sandbox::output::{guest_failure, size};
use crate::sandbox::runner::frame::{Done, Exit, Lost};

use super::drive::Stop;
pub(super) use crate::sandbox::who::By;

const AFRESH: &str = "Its variables and imports are lost; the next cell starts a fresh one.";

/// The memory limit: bytes, and who set it.
pub(super) type Memory = (u64, By);

/// What a run that was stopped is said to have ended with; `None`: it was not stopped.
pub(super) fn stopped(stop: Stop) -> (&'static str, String) {
    match stop {
        Stop::Interrupt => ("KeyboardInterrupt", "the code was interrupted".into()),
        Stop::Timeout(limit, by) => (
            "Timeout",
            format!(
                "timed out after {} s and was stopped; {}",
                trimmed(limit.as_secs_f64()),
                by.sets("timeout")
            ),
        ),
        Stop::Disk(full) => ("DiskFull", full_text(&full, "The run was stopped")),
        Stop::Shutdown => ("SandboxError", "the kernel is shutting down".into()),
    }
}

/// What a run is said to have ended with that wrote too much and was over before it could be stopped.
pub(super) fn full(full: &Full) -> String {
    full_text(full, "The run was over by then")
}

fn full_text(full: &Full, how: &str) -> String {
    const REMEDY: &str = "Remove what is not needed, write what need not last to /tmp, or raise `disk`";
    let limit = size(full.limit);
    if full.deep {
        return format!(
            "disk full: directories in /workspace or the session's folder lie too deep in one another to be counted, and              this container may write {limit} in one run (disk). {how}. Remove them, or set no `disk`"
        );
    }
    let grew = [("/workspace", full.workspace), ("the session's folder", full.own)];
    let grew: Vec<_> = grew
        .iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(what, bytes)| format!("{what} by {}", size(*bytes)))
        .collect();
    format!(
        "disk full: this container may write {limit} in one run (disk), and in this one grew {}. {how}. {REMEDY}",
        grew.join(" and ")
    )
}

fn trimmed(seconds: f64) -> String {
    let text = format!("{seconds:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The failure of a Python run that reached its end; `held` is the error it showed last, `lasting` whether the session
/// outlives the run.
pub(super) fn done(done: &Done, stop: Option<Stop>, held: Option<Failure>, lasting: bool) -> Option<Failure> {
    if let Some(stop @ (Stop::Timeout(..) | Stop::Disk(_))) = stop {
        let (name, what) = stopped(stop);
        let mut failure =
            Failure::new(name, if lasting { format!("{what}. Python's variables are kept.") } else { what });
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
pub(super) fn exit(exit: &Exit, stop: Option<Stop>, (memory, by): Memory) -> Option<Failure> {
    if let Some(stop) = stop {
        let (name, what) = stopped(stop);
        return Some(Failure::new(name, what));
    }
    let subject = if exit.stage == "compile" { "the compiler" } else { "the code" };
    let limit = size(memory);
    if exit.oom {
        let what = format!(
            "{subject} used more memory than the sandbox has ({limit}) and was killed; {}",
            by.sets("memory")
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

/// The failure of a run that lost the Python session; `lasting`: one that was to outlive the run.
pub(super) fn lost(lost: &Lost, stop: Option<Stop>, memory: Memory, lasting: bool) -> Failure {
    if let Some(stop) = stop {
        let (name, what) = stopped(stop);
        let kept = if lost.ready { AFRESH } else { "The next cell starts a fresh one." };
        let kept = if lasting { kept } else { "" };
        return Failure::new(name, format!("{what}. Python did not react and was killed. {kept}").trim_end());
    }
    let (name, how) = how_lost(lost, memory);
    Failure::new(name, if lasting { format!("{how}. {AFRESH}") } else { how })
}

/// How the Python session was lost.
pub(super) fn how_lost(lost: &Lost, (memory, by): Memory) -> (&'static str, String) {
    if lost.oom {
        let limit = size(memory);
        let how = format!(
            "the Python session used more memory than the sandbox has ({limit}) and was killed; {}",
            by.sets("memory")
        );
        return ("OutOfMemory", how);
    }
    let how = match (lost.broken, lost.code, lost.signal) {
        (true, ..) => {
            "the code wrote into the Python session's own channel, so the session was ended".to_owned()
        }
        (_, Some(code), _) if !lost.ready => {
            let why = lost.why.as_deref().map_or_else(|| format!("exit code {code}"), terminal::filtered);
            format!("the Python session did not start: {why}")
        }
        (_, Some(code), _) => format!("the code ended the Python session with exit code {code}"),
        (_, _, Some(signal)) => format!("the Python session was ended by {}", signal_name(signal)),
        _ => "the Python session ended".to_owned(),
    };
    ("SessionLost", how)
}

/// How a container ended that should not have.
pub(super) fn gone(obituary: &Obituary, broken: Option<&str>, by: By) -> (&'static str, String) {
    if let Some(broken) = broken {
        return ("SandboxError", format!("the sandbox's channel can't be followed any more ({broken})"));
    }
    match obituary {
        Obituary::OutOfMemory(limit) => (
            "OutOfMemory",
            format!(
                "the sandbox used more memory than it has ({}) and was ended; {}",
                size(*limit),
                by.sets("memory")
            ),
        ),
        // A runtime may take the whole container with the process that used too much, before the engine knows why.
        Obituary::Exited(137) => (
            "SandboxError",
            "the sandbox's main process was killed (SIGKILL), maybe for using more memory than sandbox.memory allows"
                .into(),
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
