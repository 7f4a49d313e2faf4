//! Files between the host and a container: `%upload`, `%download`, `cellblock cp`.
//!
//! May import `event` and `config`. A program in the container packs or unpacks, so that any engine will do and
//! memory file systems are reached; what it sends is hostile, whoever wrote the program. The host's side keeps to
//! [`archive`]'s rules. `local` is this machine's side, `pipes` what connects the two.

mod local;
mod pipes;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::event::{DisplayId, Event, EventSender, Failure, Notice};

use super::Sandbox;
use super::archive::{self, ArchiveError, Limits, Packing, Rules};
use super::definition::Definition;
use super::docker::Engine;
use super::output::size;
use super::runner;
use super::session::{Job, Piece, PipeJob};
use local::{Target, measure, room, target};
use pipes::{Sink, Source, Words};

/// Files in one transfer.
const MOST_FILES: u64 = 200_000;
/// Pieces on their way.
const DEPTH: usize = 8;
/// How often progress is shown.
const PACE: Duration = Duration::from_millis(250);
/// Cells of a bar.
const BAR: u64 = 20;

/// What a transfer is done with.
#[derive(Debug, Clone, Copy)]
pub struct Transfer<'a> {
    /// Is shown the progress.
    pub events: &'a EventSender,
    /// Stops it.
    pub cancel: &'a CancellationToken,
    /// The host's directory that must not be left, and in which no link is followed.
    pub within: Option<&'a Path>,
    /// Whether the user has seen the path and said yes. Otherwise nothing hidden and no settings go over, and what
    /// comes replaces nothing but data.
    pub confirmed: bool,
}

/// What went over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Transferred {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was left out, and why; the first few. Fit for a terminal.
    pub skipped: Vec<String>,
    /// How many more were.
    pub more: u64,
}

/// How far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) done: u64,
    /// As far as it is known; when the container says it, only good for a bar.
    pub(crate) total: Option<u64>,
}

impl Progress {
    /// A bar and figures, for one line.
    pub(crate) fn line(self, what: &str) -> String {
        let Some(total) = self.total.filter(|total| *total > 0) else {
            return format!("{what} {}", size(self.done));
        };
        let done = self.done.min(total);
        let full = done.saturating_mul(BAR) / total;
        let bar: String = (0..BAR).map(|cell| if cell < full { '█' } else { '░' }).collect();
        format!("{what} {bar} {} of {}", size(done), size(total))
    }
}

/// A program running in a container.
pub(super) struct Program {
    pub(super) pieces: mpsc::Receiver<Piece>,
    /// Its exit code; `None` when it was ended, or nobody took what it wrote.
    pub(super) end: BoxFuture<'static, Result<Option<i64>, Failure>>,
}

fn failed(text: impl Into<String>) -> Failure {
    Failure::new("TransferError", text)
}

impl Sandbox {
    /// Copies files and folders of the host (patterns with `*`, `?` and `[...]` too) into the current container.
    /// `to` is a folder that exists, or the new name of a single source; relative to `/workspace`.
    ///
    /// # Errors
    /// When a source is not there or outside `within`, the container can't be started, or it was stopped. What
    /// was copied before stays.
    pub async fn upload(
        &self,
        from: &[PathBuf],
        to: &str,
        around: &Transfer<'_>,
    ) -> Result<Transferred, Failure> {
        let within = around.within.map(Path::to_owned);
        let packing = measure(from.to_vec(), within, !around.confirmed).await?;
        let (progress, seen) = watch::channel(Progress::default());
        let (input, more) = mpsc::channel(DEPTH);
        let program = self.current_program(&send_order(&packing, to), Some(more), around).await?;
        show(send(packing, program, input, progress), seen, "Uploading", around.events).await
    }

    /// Copies a file or folder of the current container (a pattern too) to the host. `to` is a folder that exists,
    /// or the new name of a single one; `from` is relative to `/workspace`.
    ///
    /// # Errors
    /// When there is nothing of that name, the host's side is outside `within`, the archive is damaged, or it was
    /// stopped. What was copied before stays.
    pub async fn download(
        &self,
        from: &str,
        to: &Path,
        around: &Transfer<'_>,
    ) -> Result<Transferred, Failure> {
        let target = target(to, around.within)?;
        let (progress, seen) = watch::channel(Progress::default());
        let program = self.current_program(&fetch_order(from), None, around).await?;
        let rules = Rules { top: Some(asked_for(from)), hidden: around.confirmed, replace: around.confirmed };
        show(fetch(target, rules, program, progress), seen, "Downloading", around.events).await
    }

    async fn current_program(
        &self,
        order: &Value,
        input: Option<mpsc::Receiver<Bytes>>,
        around: &Transfer<'_>,
    ) -> Result<Program, Failure> {
        let definition = self.current()?;
        let argv = runner::transfer(order);
        self.program(&definition, false, argv, input, (around.events, around.cancel)).await
    }

    /// Starts a program of ours in a session container, which is started when need be.
    pub(super) async fn program(
        &self,
        definition: &Arc<Definition>,
        isolated: bool,
        argv: Vec<String>,
        input: Option<mpsc::Receiver<Bytes>>,
        (events, cancel): (&EventSender, &CancellationToken),
    ) -> Result<Program, Failure> {
        let slot = self.pool.seat(definition, isolated);
        let busy = slot.busy();
        self.pool.make_room(&slot).await;
        let (output, pieces) = mpsc::channel(DEPTH);
        let (end, ended) = oneshot::channel();
        let job = PipeJob { argv, input, output, events: events.clone(), cancel: cancel.clone(), end };
        let over = || Failure::new("SandboxError", "the sandbox was shut down; restart the kernel");
        slot.jobs.send(Job::Pipe(job)).await.map_err(|_| over())?;
        let end = Box::pin(async move {
            let ended = ended.await;
            drop(busy);
            ended.map_err(|_| over())?
        });
        Ok(Program { pieces, end })
    }
}

/// Copies into a container of whichever kernel. The path here is the user's own, links and all.
pub(crate) async fn copy_in(
    engine: &Engine,
    container: &str,
    from: &Path,
    to: &str,
    progress: watch::Sender<Progress>,
    cancel: CancellationToken,
) -> Result<Transferred, Failure> {
    let packing = measure(vec![from.to_owned()], None, false).await?;
    let (input, more) = mpsc::channel(DEPTH);
    let argv = runner::transfer(&send_order(&packing, to));
    let program = engine.exec(container, argv, Some(more), cancel).await;
    send(packing, program.map_err(|e| failed(e.to_string()))?, input, progress).await
}

/// Copies out of a container of whichever kernel.
pub(crate) async fn copy_out(
    engine: &Engine,
    container: &str,
    from: &str,
    to: &Path,
    progress: watch::Sender<Progress>,
    cancel: CancellationToken,
) -> Result<Transferred, Failure> {
    let target = target(to, None)?;
    let argv = runner::transfer(&fetch_order(from));
    let program = engine.exec(container, argv, None, cancel).await;
    // Whoever types the command wants that file or folder, and no hook or key beside it.
    let rules = Rules { top: Some(asked_for(from)), hidden: false, replace: true };
    fetch(target, rules, program.map_err(|e| failed(e.to_string()))?, progress).await
}

/// What the archive's top entries may be called: the last part of the path or pattern.
fn asked_for(from: &str) -> String {
    let last = Path::new(from).file_name().map(|name| name.to_string_lossy().into_owned());
    // The folder as a whole (`/workspace/`, `.`): whatever it is called there.
    last.unwrap_or_else(|| "*".to_owned())
}

/// Shows the progress of some work, no more often than is good for a front end. A surface that is slow never holds
/// the work up.
async fn show<T>(
    work: impl Future<Output = T>,
    mut seen: watch::Receiver<Progress>,
    what: &str,
    events: &EventSender,
) -> T {
    let (id, mut shown) = (DisplayId::host(), false);
    let showing = async {
        loop {
            tokio::time::sleep(PACE).await;
            if seen.changed().await.is_err() {
                return std::future::pending::<()>().await;
            }
            let text = seen.borrow_and_update().line(what);
            shown = true;
            let _ = events.send(Event::Notice(Notice::progress(&id, text))).await;
        }
    };
    let done = tokio::select! {
        biased;
        done = work => Some(done),
        () = showing => None,
    };
    if shown {
        let _ = events.send(Event::Notice(Notice::progress(&id, ""))).await;
    }
    match done {
        Some(done) => done,
        None => std::future::pending().await,
    }
}

/// What the container is asked for an upload.
fn send_order(packing: &Packing, to: &str) -> Value {
    json!({ "unpack": to, "single": packing.tops() == 1 })
}

/// What the container is asked for a download.
fn fetch_order(from: &str) -> Value {
    // What the runner keeps in /tmp is none of the user's.
    let except = json!(["/tmp/cell-????????", "/tmp/.cellblock-*", "/session/.cellblock*"]);
    json!({ "pack": [[from, null]], "most": MOST_FILES, "except": except })
}

/// Packs and sends; the program in the container unpacks.
async fn send(
    packing: Packing,
    program: Program,
    input: mpsc::Sender<Bytes>,
    progress: watch::Sender<Progress>,
) -> Result<Transferred, Failure> {
    let Program { mut pieces, end } = program;
    let total = packing.bytes;
    let work = tokio::task::spawn_blocking(move || {
        let mut done = 0;
        let mut moved = |count| {
            done += count;
            progress.send_replace(Progress { done, total: Some(total) });
        };
        archive::pack(&packing, Sink::new(input), &mut moved)
    });
    let mut words = Words::default();
    let listening = async {
        while let Some(piece) = pieces.recv().await {
            if let Piece::Err(bytes) = piece {
                words.take(&bytes);
            }
        }
    };
    let (packed, code, ()) = tokio::join!(work, end, listening);
    let code = code?;
    words.told()?;
    let report = packed.map_err(|e| failed(e.to_string()))?.map_err(|e| match e {
        ArchiveError::Io(e) if e.kind() == io::ErrorKind::BrokenPipe => {
            failed("the program in the container that unpacks ended before its time")
        }
        e => failed(format!("the files can't be read to their end: {e}")),
    })?;
    if code != Some(0) {
        return Err(failed("the program in the container that unpacks ended before its time"));
    }
    Ok(words.with(report))
}

/// Takes what the program in the container packs, and unpacks it.
async fn fetch(
    target: Target,
    rules: Rules,
    program: Program,
    progress: watch::Sender<Progress>,
) -> Result<Transferred, Failure> {
    let Program { mut pieces, end } = program;
    let (archive, more) = mpsc::channel(DEPTH);
    let moving = progress.clone();
    let work = tokio::task::spawn_blocking(move || {
        let Target { spot, into } = target;
        let (folder, rename) = if into { (spot.into_folder()?, None) } else { (spot.folder, spot.name) };
        let limits = Limits { entries: MOST_FILES, bytes: room(&folder) };
        let mut moved = |count| moving.send_modify(|progress| progress.done += count);
        let source = Source::new(more);
        archive::unpack(source, &folder, rename.as_deref(), &rules, limits, &mut moved)
    });
    let mut words = Words::default();
    let passing = async {
        while let Some(piece) = pieces.recv().await {
            match piece {
                // Nobody takes it: the archive is over, or more than is allowed.
                Piece::Out(bytes) => {
                    if archive.send(bytes).await.is_err() {
                        break;
                    }
                }
                Piece::Err(bytes) => {
                    words.take(&bytes);
                    let total = words.total;
                    progress.send_if_modified(|p| std::mem::replace(&mut p.total, total) != total);
                }
            }
        }
        drop((archive, pieces, progress));
    };
    let (unpacked, code, ()) = tokio::join!(work, end, passing);
    // Why it was stopped, or what the program said, explains a broken archive better than the break.
    code?;
    words.told()?;
    let unpacked = unpacked.map_err(|e| failed(e.to_string()))?;
    let report = unpacked.map_err(|e| failed(format!("{e}; what came before is there")))?;
    Ok(words.with(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_bar_where_the_whole_is_known() {
        assert_eq!(Progress { done: 2048, total: None }.line("Down"), "Down 2 kB");
        let line = Progress { done: 9 << 20, total: Some(6 << 20) }.line("Down");
        assert!(line.contains("██") && !line.contains('░') && line.ends_with("6 MB of 6 MB"), "{line}");
    }
}
