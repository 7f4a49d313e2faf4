//! A program beside the main process of a running container, for whoever is not the kernel that started it.
//!
//! Never with a terminal: the decoder would guess from the first byte whether output carries headers.

use std::time::Duration;

use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::engine::Engine;
use crate::event::Failure;
use crate::sandbox::backend::BackendError;
use crate::sandbox::owner::{
    LABEL, LABEL_CONTAINER, LABEL_DIRECTORY, LABEL_KERNEL, LABEL_SESSION, is_orphan,
};
use crate::sandbox::session::Piece;
use crate::sandbox::transfer::Program;

/// The longest that a program may be silent.
const SILENCE: Duration = Duration::from_mins(1);
/// Pieces of output on their way.
const DEPTH: usize = 8;

/// The group of nobody, on most systems.
const NOGROUP: u32 = 65534;

/// A container of a kernel that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    /// The engine's id of it.
    pub(crate) id: String,
    /// The kernel's UUID.
    pub(crate) kernel: String,
    /// The name of its definition.
    pub(crate) container: String,
    /// The name of its session; empty for a container that runs one block.
    pub(crate) session: String,
    /// The notebook's directory.
    pub(crate) directory: String,
}

impl Engine {
    /// The containers of kernels that run, in a fixed order.
    pub(crate) async fn running(&self) -> Result<Vec<Running>, BackendError> {
        let found = self.find(&format!("{LABEL}=1")).await?.into_iter();
        let mut running: Vec<_> = found
            .filter(|container| !is_orphan(&container.labels))
            .map(|container| {
                let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
                Running {
                    kernel: label(LABEL_KERNEL),
                    container: label(LABEL_CONTAINER),
                    session: label(LABEL_SESSION),
                    directory: label(LABEL_DIRECTORY),
                    id: container.id,
                }
            })
            .collect();
        running.sort_by(|a, b| (&a.directory, &a.container, &a.id).cmp(&(&b.directory, &b.container, &b.id)));
        Ok(running)
    }

    /// Starts a program as the container's own user, with [another group](apart). It can't be signalled: when it is to
    /// end, its pipes do.
    pub(in crate::sandbox) async fn exec(
        &self,
        container: &str,
        argv: Vec<String>,
        input: Option<mpsc::Receiver<Bytes>>,
        cancel: CancellationToken,
    ) -> Result<Program, BackendError> {
        let doing = "running a program in the container";
        let inspected = self.client.inspect_container(container, None).await;
        let user = inspected.map_err(|e| self.explain(&e, doing))?.config.and_then(|config| config.user);
        let options = CreateExecOptions {
            user: user.as_deref().and_then(apart),
            attach_stdin: Some(input.is_some()),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(false),
            cmd: Some(argv),
            ..CreateExecOptions::default()
        };
        let made = self.client.create_exec(container, options).await.map_err(|e| self.explain(&e, doing))?;
        let started = self.client.start_exec(&made.id, None).await.map_err(|e| self.explain(&e, doing))?;
        let StartExecResults::Attached { mut output, input: mut theirs } = started else {
            return Err(BackendError::Engine("the container engine did not connect the program".to_owned()));
        };
        if let Some(mut more) = input {
            tokio::spawn(async move {
                while let Some(bytes) = more.recv().await {
                    if theirs.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                let _ = theirs.shutdown().await;
                // Dropping it would end the output as well.
                std::future::pending::<()>().await;
            });
        }
        let (sender, pieces) = mpsc::channel(DEPTH);
        let engine = self.clone();
        let end = Box::pin(async move {
            loop {
                let next = tokio::select! {
                    next = tokio::time::timeout(SILENCE, output.next()) => next,
                    () = cancel.cancelled() => return Err(Failure::new("KeyboardInterrupt", "interrupted")),
                };
                let Ok(next) = next else {
                    let why = format!("nothing moved for {} s, so it was given up", SILENCE.as_secs());
                    return Err(Failure::new("Timeout", why));
                };
                let piece = match next {
                    None => break,
                    Some(Ok(LogOutput::StdOut { message })) => Piece::Out(message),
                    Some(Ok(LogOutput::StdErr { message })) => Piece::Err(message),
                    Some(Ok(_)) => continue,
                    Some(Err(e)) => {
                        return Err(Failure::new("SandboxError", engine.explain(&e, doing).to_string()));
                    }
                };
                if sender.send(piece).await.is_err() {
                    return Ok(None);
                }
            }
            drop(sender);
            let state = engine.client.inspect_exec(&made.id).await;
            Ok(state.ok().and_then(|state| state.exit_code))
        });
        Ok(Program { pieces, end })
    }
}

/// The user `uid:gid` with another group; `None`: it is not in that form.
///
/// What an engine starts beside the main process is under no filter of ours, so the code in the container must not get
/// hold of it. The kernel lets nobody trace a process of another group (ptrace(2), "Ptrace access mode checking").
fn apart(user: &str) -> Option<String> {
    let (uid, gid) = user.split_once(':')?;
    let (uid, gid): (u32, u32) = (uid.parse().ok()?, gid.parse().ok()?);
    Some(format!("{uid}:{}", if gid == NOGROUP { NOGROUP - 1 } else { NOGROUP }))
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn the_user_stays_and_the_group_is_always_another() {
        assert_eq!(apart("1000:1000").as_deref(), Some("1000:65534"));
        assert_eq!(apart("1000:65534").as_deref(), Some("1000:65533"));
        assert_eq!([apart("cell"), apart(""), apart("1000:users"), apart("1000")], [None, None, None, None]);
    }
}
