//! The engine's errors in words: what happened, why, and what to do next.

use std::error::Error as _;
use std::io;

use bollard::errors::Error;

use crate::sandbox::backend::BackendError;

/// Puts an error of the API into words. `doing` completes "while ...": `creating the container`.
pub(super) fn explain(error: &Error, address: &str, doing: &str) -> BackendError {
    BackendError::Engine(match error {
        Error::SocketNotFoundError(_) => absent(address, "there is no such socket"),
        Error::RequestTimeoutError => format!(
            "the container engine at {address} did not answer in time while {doing}: it may be overloaded or stuck \
             (`docker ps` shows whether it answers); restart it, then run the cell again"
        ),
        Error::DockerResponseServerError { message, .. } => refused(message, doing),
        Error::DockerStreamError { error } => refused(error, doing),
        other => match io_kind(other) {
            Some(io::ErrorKind::PermissionDenied) => format!(
                "no permission to use the container engine at {address}: add your user to the group that owns the \
                 socket (`sudo usermod -aG docker $USER`, then log in again; members of that group are as good as \
                 root), or set up the rootless engine"
            ),
            Some(io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                absent(address, "nothing answers there")
            }
            _ => format!(
                "the connection to the container engine at {address} broke while {doing}: {}; see whether it runs \
                 (`cellblock doctor`), then run the cell again",
                chain(other)
            ),
        },
    })
}

/// No engine at all.
pub(super) fn absent(address: &str, why: &str) -> String {
    format!(
        "no container engine answers at {address} ({why}): start it (`sudo systemctl start docker`), install one \
         (Docker Engine or Podman; on Debian `sudo apt install docker.io`), or set DOCKER_HOST=unix://... to its \
         socket; `cellblock doctor` checks it"
    )
}

/// What the engine says when it refuses, with the remedy where one is known.
fn refused(message: &str, doing: &str) -> String {
    let message = message.trim();
    let remedy = if message.contains("no space left on device") {
        "the disk is full: make room (`docker system df` shows what the engine holds)"
    } else if message.contains("unknown or invalid runtime") || message.contains("Unknown runtime") {
        "the engine does not know that runtime: install it there, or change `sandbox.runtime`"
    } else if message.contains("executable file not found") || message.contains("no such file or directory") {
        "the image has no `python3` on its PATH: take an image with Python 3.8 or later (sandbox.image), or build \
         the usual one with `cellblock build`"
    } else if message.contains("rlimit") {
        "the engine may not raise that limit: lower `sandbox.open_files`"
    } else if message.contains("Minimum memory limit") {
        "raise `sandbox.memory`"
    } else {
        "`cellblock doctor` checks the engine"
    };
    format!("the container engine refused while {doing}: {message}. What to do: {remedy}")
}

/// The system's error at the root of a transport error.
fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    if let Error::IOError { err } = error {
        return Some(err.kind());
    }
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        cause = error.source();
    }
    None
}

/// An error with its causes; hyper's own text says little.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

/// The status of a refusal.
pub(super) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_names_its_remedy() {
        for (message, remedy) in [
            ("write /var/lib/docker/tmp/x: no space left on device", "docker system df"),
            ("unknown or invalid runtime name: runsc", "sandbox.runtime"),
            ("exec: \"python3\": executable file not found in $PATH: unknown", "cellblock build"),
            ("something never heard of", "cellblock doctor"),
        ] {
            let error = Error::DockerResponseServerError { status_code: 500, message: message.into() };
            let said = explain(&error, "unix:///x", "starting the container").to_string();
            assert!(said.contains(message) && said.contains(remedy), "{said}");
        }
    }

    #[test]
    fn a_socket_without_permission_names_the_group() {
        let err = io::Error::from(io::ErrorKind::PermissionDenied);
        let said = explain(&Error::IOError { err }, "unix:///x", "looking for it").to_string();
        assert!(said.contains("usermod -aG docker"), "{said}");
    }
}
