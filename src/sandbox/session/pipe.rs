//! A program beside the code: bytes in, bytes out, nothing shown. Files and states travel this way, on any engine.
//!
//! What comes out was written by the guest, whoever's program it is: they share a user.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::{EventSender, Failure};
use crate::sandbox::output::Outlet;
use crate::sandbox::runner::frame::{Frame, Incoming, Order, WorkerNews};

use super::feed::Feed;
use super::{Session, drive};

/// The longest that nothing may move in either direction.
const STANDSTILL: Duration = Duration::from_mins(1);
/// How long a program that was killed may take to end.
const GRACE: Duration = Duration::from_secs(2);

/// A program to run to its end.
pub(in crate::sandbox) struct PipeJob {
    pub(in crate::sandbox) argv: Vec<String>,
    /// What it reads.
    pub(in crate::sandbox) input: Option<mpsc::Receiver<Bytes>>,
    /// What it writes. When nobody takes it any more the program is killed.
    pub(in crate::sandbox) output: mpsc::Sender<Piece>,
    /// Is told of a start that takes long.
    pub(in crate::sandbox) events: EventSender,
    pub(in crate::sandbox) cancel: CancellationToken,
    /// The exit code; `None`: ended by a signal, or because nobody took its output.
    pub(in crate::sandbox) end: oneshot::Sender<Result<Option<i64>, Failure>>,
}

/// A piece of what a program wrote.
#[derive(Debug)]
pub(in crate::sandbox) enum Piece {
    /// To its standard output.
    Out(Bytes),
    /// To its standard error.
    Err(Bytes),
}

/// Two ends of a program's pipes.
pub(super) struct Ends {
    pub(super) input: Option<mpsc::Receiver<Bytes>>,
    pub(super) output: mpsc::Sender<Piece>,
}

impl Session {
    /// Runs one in the container, started when need be.
    pub(super) async fn pipe_job(&mut self, job: PipeJob) {
        let PipeJob { argv, input, output, events, cancel, end } = job;
        let result = match self.wake(&events, &cancel).await {
            Ok(()) => self.pipe(&argv, Ends { input, output }, &cancel).await,
            Err(failure) => Err(failure),
        };
        let _ = end.send(result);
    }

    /// A live session for work that shows nothing of its own.
    pub(super) async fn wake(
        &mut self,
        events: &EventSender,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let limits = &self.definition.limits;
        let mut outlet = Outlet::new(0, limits.output, limits.spill, None);
        let live = self.ensure(events, cancel, &mut outlet).await;
        outlet.flush(events, cancel).await;
        live
    }

    /// Runs a program in the live container to its end.
    pub(super) async fn pipe(
        &mut self,
        argv: &[String],
        ends: Ends,
        cancel: &CancellationToken,
    ) -> Result<Option<i64>, Failure> {
        let Ends { input, output } = ends;
        let gone = || Failure::new("SandboxError", "the sandbox ended meanwhile; try again");
        let Some(live) = self.live.as_mut() else { return Err(gone()) };
        let run = live.number();
        let order = json!({ "argv": argv, "stdin": input.is_some(), "pipe": true });
        let _ = live.order(Order::Process, run, &order).await;
        let mut feed = input.map(Feed::stream);
        let (mut waiting, mut stopped, mut moved) = (None::<Piece>, None::<Stopped>, Instant::now());
        loop {
            let Some(live) = self.live.as_mut() else { return Err(gone()) };
            let alarm = match &stopped {
                Some(stopped) => stopped.since + GRACE,
                None => moved + STANDSTILL,
            };
            tokio::select! {
                biased;
                () = self.shutdown.cancelled() => {
                    return Err(Failure::new("SandboxError", "the kernel is shutting down"));
                }
                () = cancel.cancelled(), if stopped.is_none() => {
                    stopped = Some(Stopped::now(Failure::new("KeyboardInterrupt", "interrupted")));
                    let _ = live.order(Order::Kill, run, &json!({})).await;
                }
                () = tokio::time::sleep_until(alarm) => {
                    if let Some(Stopped { why, .. }) = stopped {
                        // Not even a kill ends it.
                        self.end_live().await;
                        return why.map_or(Ok(None), Err);
                    }
                    let why = format!("nothing moved for {} s, so it was given up", STANDSTILL.as_secs());
                    stopped = Some(Stopped::now(Failure::new("Timeout", why)));
                    let _ = live.order(Order::Kill, run, &json!({})).await;
                }
                permit = output.reserve(), if waiting.is_some() && stopped.is_none() => {
                    moved = Instant::now();
                    if let (Ok(permit), Some(piece)) = (permit, waiting.take()) {
                        permit.send(piece);
                    } else {
                        stopped = Some(Stopped { why: None, since: Instant::now() });
                        let _ = live.order(Order::Kill, run, &json!({})).await;
                    }
                }
                piece = drive::next_piece(&mut feed), if feed.is_some() && stopped.is_none() => {
                    moved = Instant::now();
                    if live.feed(run, &piece).await.is_err() {
                        feed = None;
                    }
                }
                incoming = live.frames.recv(), if waiting.is_none() || stopped.is_some() => {
                    let Some(Ok(Incoming { run: whose, size, frame })) = incoming else {
                        let (name, how) = self.bury(None).await;
                        return Err(Failure::new(name, format!("{how}. {}", self.lost_all())));
                    };
                    let mine = whose == run;
                    match frame {
                        Frame::PipeOut(bytes) if mine => waiting = Some(Piece::Out(bytes)),
                        Frame::PipeErr(bytes) if mine => waiting = Some(Piece::Err(bytes)),
                        Frame::Taken(count) if mine => {
                            moved = Instant::now();
                            if let Some(feed) = &mut feed {
                                feed.taken(count);
                            }
                        }
                        Frame::Exit(exit) if mine => {
                            let why = stopped.map(|stopped| stopped.why);
                            return match why {
                                Some(Some(why)) => Err(why),
                                Some(None) => Ok(None),
                                None => Ok(exit.code),
                            };
                        }
                        Frame::Fault(message) if mine => return Err(Failure::new("SandboxError", message)),
                        Frame::Worker(WorkerNews::Lost(lost)) => self.lose_beside(&lost, "During a copy"),
                        frame => self.keep(Incoming { run: whose, size, frame }),
                    }
                }
            }
        }
    }
}

/// A program that was told to end.
struct Stopped {
    /// What to say; `None`: whoever reads has had enough, and knows why.
    why: Option<Failure>,
    since: Instant,
}

impl Stopped {
    fn now(why: Failure) -> Self {
        Stopped { why: Some(why), since: Instant::now() }
    }
}
