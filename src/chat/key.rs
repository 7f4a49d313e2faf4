//! A key from a command (a password manager, a cloud's login helper).
//!
//! Imports `config` (for [`Secret`]). The command's output is the key and is never shown; what it
//! says on standard error is, when it fails.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::config::Secret;

/// How long the command may take: some of them ask for a fingerprint.
const TIME: Duration = Duration::from_secs(30);
/// The most of its output that is read.
const OUTPUT: u64 = 64 * 1024;
/// The most of its complaints that are shown.
const COMPLAINTS: u64 = 4 * 1024;

/// Ends the command and what it started, however the wait for it ends.
struct Group(Option<rustix::process::Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It fails when all of them have ended already, which is what is wanted.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
    }
}

async fn at_most(stream: Option<impl AsyncRead + Unpin>, limit: u64) -> Vec<u8> {
    let mut read = Vec::new();
    if let Some(mut stream) = stream {
        let _ = (&mut stream).take(limit).read_to_end(&mut read).await;
        // A command that says more must not be stopped by a full pipe.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
    read
}

/// Runs the command with the user's shell rules and takes the first line that it prints.
///
/// The error says what happened and what to do, and never contains what the command printed.
pub(crate) async fn from_command(command: &str) -> Result<Secret, String> {
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| format!("the key command can't be started: {e}"))?;
    let group = Group(child.id().and_then(|id| rustix::process::Pid::from_raw(id.cast_signed())));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let all = async { tokio::join!(at_most(stdout, OUTPUT), at_most(stderr, COMPLAINTS), child.wait()) };
    let Ok((output, complaints, status)) = tokio::time::timeout(TIME, all).await else {
        return Err(format!(
            "the key command (model.api_key_command) did not end within {} seconds; \
             run it in a terminal to see what it waits for",
            TIME.as_secs()
        ));
    };
    drop(group);
    let status = status.map_err(|e| format!("the key command can't be waited for: {e}"))?;
    let complaints = String::from_utf8_lossy(&complaints);
    let complaints = complaints.trim();
    let said = if complaints.is_empty() {
        "it said nothing on standard error".to_owned()
    } else {
        format!("it said: {complaints}")
    };
    if !status.success() {
        return Err(format!("the key command (model.api_key_command) failed with {status}; {said}"));
    }
    let output = String::from_utf8_lossy(&output);
    let key = output.lines().next().unwrap_or_default().trim();
    if key.is_empty() {
        return Err(format!("the key command (model.api_key_command) printed no key; {said}"));
    }
    Ok(Secret::new(key))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_line_is_the_key() {
        let key = from_command("printf ' sk-1 \\nsecond\\n'; echo noise >&2").await.unwrap();
        assert_eq!(key.reveal(), "sk-1");
    }

    #[tokio::test]
    async fn a_failure_shows_its_complaints_and_never_its_output() {
        let error = from_command("echo sk-secret; echo 'vault is locked' >&2; exit 3").await.unwrap_err();
        assert!(error.contains("vault is locked") && error.contains('3'), "{error}");
        assert!(!error.contains("sk-secret"), "{error}");
        let error = from_command("true").await.unwrap_err();
        assert!(error.contains("printed no key"), "{error}");
    }

    #[tokio::test]
    async fn a_command_that_is_given_up_is_ended_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("child");
        let command = format!("sleep 60 & echo $! > '{}'; wait", file.display());
        let child = || std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<u32>().ok());
        let given_up = async {
            while child().is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            key = from_command(&command) => panic!("{key:?}"),
            () = given_up => {}
        }
        // A zombie, until its new parent looks, is as good as gone.
        let stat = format!("/proc/{}/stat", child().unwrap());
        let lives = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z"));
        let end = tokio::time::Instant::now() + Duration::from_secs(20);
        while lives() && tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!lives(), "the command's child goes on");
    }
}
