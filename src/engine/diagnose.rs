//! Why a block failed, when the words it left point at a limit of its container. Pure.
//!
//! The words are the guest's: a hint says what is likely, and changes nothing. To add one: a row in [`hint`].

use crate::config::{Network, SandboxSettings};
use crate::event::Failure;
use crate::sandbox::size;

/// How much of a transcript's end is looked at.
const TAIL: usize = 8 << 10;

/// What a limit of the container has to do with a failure; `None` when nothing points at one.
///
/// `processes` says who set the limit of processes.
pub(super) fn hint(transcript: &str, limits: &SandboxSettings, processes: &str) -> Option<String> {
    let tail = &transcript[transcript.ceil_char_boundary(transcript.len().saturating_sub(TAIL))..];
    let has = |words: &[&str]| words.iter().any(|word| tail.contains(word));
    let no_network = limits.network == Network::None;
    if has(&[
        "Resource temporarily unavailable",
        "can't start new thread",
        "annot fork",
        "fork: retry",
        "EAGAIN",
    ]) {
        return Some(format!(
            "The process limit: the container may have {} processes and threads; {processes}.",
            limits.pids
        ));
    }
    if has(&["No space left on device", "ENOSPC"]) {
        return Some(format!(
            "The disk is full: /tmp and the home directory hold {} each (sandbox.tmpfs); larger files belong in \
             /workspace or /session.",
            size(limits.tmpfs)
        ));
    }
    if has(&["File too large", "File size limit exceeded", "SIGXFSZ", "EFBIG"]) {
        return Some(format!("A file may have {} at most (sandbox.file_size).", size(limits.file_size)));
    }
    if has(&["Too many open files", "EMFILE"]) {
        return Some(format!("A process may have {} files open (sandbox.open_files).", limits.open_files));
    }
    if no_network
        && has(&[
            "Temporary failure in name resolution",
            "Name or service not known",
            "Could not resolve host",
            "nodename nor servname",
            "Network is unreachable",
            "No route to host",
            "getaddrinfo",
        ])
    {
        return Some(
            "The network was refused: this container has none (network_mode: none). Packages are added with %pip, \
             %apt and %npm."
                .to_owned(),
        );
    }
    if has(&["Read-only file system", "EROFS"]) {
        return Some(
            "The container's own files can't be changed; write to /workspace, /session or /tmp.".to_owned(),
        );
    }
    None
}

/// A failure's cause in a few words, for the status line.
pub(super) fn cause(
    failure: &Failure,
    limits: &SandboxSettings,
    timeout: Option<std::time::Duration>,
) -> String {
    match failure.ename.as_str() {
        "OutOfMemory" => format!("out of memory at {}", size(limits.memory)),
        "Timeout" => timeout.map_or_else(
            || "timeout".to_owned(),
            |limit| format!("timeout after {} s", super::status::trimmed(limit.as_secs_f64())),
        ),
        "KeyboardInterrupt" => "interrupted".to_owned(),
        "SessionLost" => "the Python session was lost".to_owned(),
        "SandboxError" => "the sandbox failed".to_owned(),
        // The exit code stands beside it.
        "ExitCode" => String::new(),
        "DiskFull" => "disk full".to_owned(),
        // An exception's name, as the guest gave it.
        name => name.chars().filter(|c| !c.is_control()).take(60).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flavor, Settings};

    #[test]
    fn the_words_of_each_limit_are_known_and_others_are_left_alone() {
        let limits = Settings::builtin(Flavor::Markdown).sandbox;
        for (words, said) in [
            ("RuntimeError: can't start new thread", "256 processes and threads; who."),
            ("sh: 1: Cannot fork", "256 processes"),
            ("BlockingIOError: [Errno 11] Resource temporarily unavailable", "256 processes"),
            ("OSError: [Errno 28] No space left on device", "256 MB each"),
            ("OSError: [Errno 27] File too large", "1.0 GB"),
            ("OSError: [Errno 24] Too many open files: 'x'", "1024 files"),
            ("socket.gaierror: [Errno -3] Temporary failure in name resolution", "network was refused"),
            ("curl: (6) Could not resolve host: example.org", "network was refused"),
            ("OSError: [Errno 101] Network is unreachable", "network was refused"),
            ("touch: cannot touch '/usr/x': Read-only file system", "/workspace"),
        ] {
            assert!(hint(words, &limits, "who").is_some_and(|hint| hint.contains(said)), "{words}");
        }
        assert_eq!(hint("ValueError: no", &limits, "who"), None);
        let open = SandboxSettings { network: Network::Bridge, ..limits };
        assert_eq!(hint("Temporary failure in name resolution", &open, "who"), None);
    }
}
