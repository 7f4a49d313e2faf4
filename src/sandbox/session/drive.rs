//! One run, from the order to its end: frames in, events out, questions, the clock, the ways to stop it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::{
    Ask, AskError, Bundle, DisplayId, Event, EventSender, Notice, Question, Stream, terminal,
};
use crate::sandbox::disk::{Disk, Full};
use crate::sandbox::output::{Outlet, guest_failure};
use crate::sandbox::runner::frame::{Done, Exit, Frame, Incoming, Lost, Order, WorkerNews};
use crate::sandbox::{PythonInfo, spill::Spill};

use super::boot::Live;
use super::feed::Feed;
use super::words::By;

/// How a run that must stop is stopped, step by step, each this long after the stop was asked for.
const STEPS: [(Duration, Step); 4] = [
    (Duration::ZERO, Step::Signal),
    (Duration::from_secs(1), Step::Signal),
    (Duration::from_millis(1600), Step::Kill),
    (Duration::from_millis(1950), Step::Destroy),
];

/// How long the engine may take to say whether it was paused.
const WORD: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Signal,
    Kill,
    Destroy,
}

/// Why a run was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Interrupt,
    Timeout(Duration, By),
    Disk(Full),
    Shutdown,
}

/// How a run ended.
#[derive(Debug)]
pub(super) enum Ending {
    Done(Done),
    Exit(Exit),
    Lost(Lost),
    Fault(String),
    /// The channel ended; says what broke it, when it did not simply close.
    Gone(Option<String>),
    /// Nothing else stopped it.
    Destroyed {
        /// Somebody had paused the container.
        paused: bool,
    },
}

/// A run that is over.
pub(super) struct Driven {
    pub(super) ending: Ending,
    pub(super) stop: Option<Stop>,
    pub(super) duration: Duration,
    /// The Python session was lost beside the run: by a shell block, or just before the run began.
    pub(super) lost_beside: Option<Lost>,
    /// Bytes that it wrote to the two streams.
    pub(super) written: u64,
}

/// What a run is driven with.
pub(super) struct Surroundings<'a> {
    pub(super) timeout: Option<Duration>,
    pub(super) timeout_by: By,
    pub(super) events: &'a EventSender,
    pub(super) ask: Arc<dyn Ask>,
    pub(super) cancel: &'a CancellationToken,
    pub(super) shutdown: &'a CancellationToken,
    pub(super) python: &'a watch::Sender<Option<PythonInfo>>,
}

/// Time spent running: it stands while the user is asked.
struct Clock {
    spent: Duration,
    since: Option<Instant>,
}

impl Clock {
    fn spent(&self) -> Duration {
        self.spent + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn pause(&mut self) {
        self.spent = self.spent();
        self.since = None;
    }

    fn go_on(&mut self) {
        self.since.get_or_insert_with(Instant::now);
    }
}

struct Stopping {
    why: Stop,
    since: Instant,
    step: usize,
}

type Asking = BoxFuture<'static, (u64, Result<String, AskError>)>;

struct Drive<'a, 'b> {
    live: &'a mut Live,
    run: u32,
    around: &'a Surroundings<'b>,
    outlet: &'a mut Outlet,
    clock: Clock,
    stopping: Option<Stopping>,
    asking: Option<Asking>,
    closed: bool,
    feed: Option<Feed>,
    disk: Option<&'a mut Disk>,
    lost_beside: Option<Lost>,
    written: u64,
}

/// Drives run number `run`, which has been ordered, to its end; `feed` is what its process reads, `disk` what it may write.
pub(super) async fn drive(
    live: &mut Live,
    run: u32,
    (feed, disk): (Option<Feed>, Option<&mut Disk>),
    around: &Surroundings<'_>,
    outlet: &mut Outlet,
) -> Driven {
    let clock = Clock { spent: Duration::ZERO, since: Some(Instant::now()) };
    let mut drive = Drive {
        live,
        run,
        around,
        outlet,
        clock,
        stopping: None,
        asking: None,
        closed: false,
        feed,
        disk,
        lost_beside: None,
        written: 0,
    };
    let ending = drive.until_it_ends().await;
    Driven {
        ending,
        stop: drive.stopping.map(|s| s.why),
        duration: drive.clock.spent(),
        lost_beside: drive.lost_beside,
        written: drive.written,
    }
}

impl Drive<'_, '_> {
    async fn until_it_ends(&mut self) -> Ending {
        loop {
            let timer = self.timer();
            let around = self.around;
            let behind = self.outlet.busy_spill().is_some();
            let show = !self.closed && self.outlet.has_events();
            // Timers and signals come first, so that a flood can't hold them up.
            tokio::select! {
                biased;
                () = around.shutdown.cancelled() => {
                    self.stopping = Some(Stopping { why: Stop::Shutdown, since: Instant::now(), step: STEPS.len() });
                    self.live.container.destroy().await;
                    return Ending::Destroyed { paused: false };
                }
                () = around.cancel.cancelled(), if self.stopping.is_none() => self.stop(Stop::Interrupt),
                () = at(timer), if timer.is_some() => {
                    if let Some(ending) = self.on_timer().await {
                        return ending;
                    }
                }
                full = overfull(&mut self.disk), if self.stopping.is_none() => self.stop(Stop::Disk(full)),
                (seq, answer) = answer(&mut self.asking), if self.asking.is_some() => {
                    self.asking = None;
                    self.clock.go_on();
                    self.reply(seq, answer).await;
                }
                permit = around.events.reserve(), if show => match permit {
                    Ok(permit) => if let Some(event) = self.outlet.next() {
                        permit.send(event);
                    },
                    Err(_) => self.closed = true,
                },
                () = catch_up(self.outlet.busy_spill()), if behind => {}
                piece = next_piece(&mut self.feed), if self.feed.is_some() && self.stopping.is_none() => {
                    if let Err(e) = self.live.feed(self.run, &piece).await {
                        tracing::debug!(error = %e, "the supervisor takes no input");
                    }
                }
                incoming = self.live.frames.recv(), if !behind => {
                    let ending = match incoming {
                        Some(Ok(incoming)) => self.frame(incoming).await,
                        Some(Err(e)) => Some(Ending::Gone(Some(e.to_string()))),
                        None => Some(Ending::Gone(None)),
                    };
                    if let Some(ending) = ending {
                        return ending;
                    }
                }
            }
            if self.closed {
                self.outlet.discard();
            }
        }
    }

    /// When something has to be done though nothing happens.
    fn timer(&self) -> Option<Instant> {
        match (&self.stopping, self.around.timeout, self.clock.since) {
            (Some(stopping), ..) => STEPS.get(stopping.step).map(|(after, _)| stopping.since + *after),
            (None, Some(limit), Some(since)) => Some(since + limit.saturating_sub(self.clock.spent)),
            _ => None,
        }
    }

    fn stop(&mut self, why: Stop) {
        self.stopping = Some(Stopping { why, since: Instant::now(), step: 0 });
        self.asking = None;
        self.clock.go_on();
        self.outlet.stopping();
    }

    async fn on_timer(&mut self) -> Option<Ending> {
        let Some(stopping) = &mut self.stopping else {
            self.stop(Stop::Timeout(self.around.timeout.unwrap_or_default(), self.around.timeout_by));
            return None;
        };
        let (_, step) = STEPS.get(stopping.step)?;
        stopping.step += 1;
        let sent = match step {
            Step::Signal => self.live.order(Order::Signal, self.run, &json!({ "signal": 2 })).await,
            Step::Kill => self.live.order(Order::Kill, self.run, &json!({})).await,
            Step::Destroy => {
                let container = &self.live.container;
                let paused = tokio::time::timeout(WORD, container.paused()).await.unwrap_or(false);
                container.destroy().await;
                return Some(Ending::Destroyed { paused });
            }
        };
        if let Err(e) = sent {
            tracing::debug!(error = %e, "the supervisor takes no orders");
        }
        None
    }

    async fn reply(&mut self, seq: u64, answer: Result<String, AskError>) {
        let reply = match answer {
            Ok(value) => json!({ "seq": seq, "value": value }),
            Err(AskError::EndOfInput) => json!({ "seq": seq, "error": "eof" }),
            Err(AskError::Interrupted) => json!({ "seq": seq, "error": "interrupted" }),
            Err(AskError::Unavailable) => json!({ "seq": seq, "error": "unavailable" }),
        };
        if let Err(e) = self.live.order(Order::InputReply, self.run, &reply).await {
            tracing::debug!(error = %e, "the supervisor takes no answers");
        }
    }

    async fn frame(&mut self, incoming: Incoming) -> Option<Ending> {
        let mine = incoming.run == self.run;
        match incoming.frame {
            Frame::Done(done) if mine => return Some(Ending::Done(done)),
            Frame::Exit(exit) if mine => return Some(Ending::Exit(exit)),
            Frame::Fault(message) if mine => return Some(Ending::Fault(message)),
            Frame::Worker(WorkerNews::Lost(lost)) if mine => return Some(Ending::Lost(lost)),
            Frame::Worker(WorkerNews::Lost(lost)) => self.lost_beside = Some(lost),
            Frame::Input(input) => {
                if !mine || self.stopping.is_some() || self.asking.is_some() {
                    self.reply(input.seq, Err(AskError::Interrupted)).await;
                } else if !self.around.ask.available() {
                    self.reply(input.seq, Err(AskError::Unavailable)).await;
                } else {
                    self.clock.pause();
                    let question =
                        Question { prompt: terminal::filtered(&input.prompt), password: input.password };
                    let (ask, seq) = (Arc::clone(&self.around.ask), input.seq);
                    self.asking = Some(Box::pin(async move { (seq, ask.ask(question).await) }));
                }
            }
            Frame::Worker(WorkerNews::Ready { python, ipython }) => tell(self.around.python, python, ipython),
            Frame::Taken(count) => {
                if let Some(feed) = self.feed.as_mut().filter(|_| mine) {
                    feed.taken(count);
                }
            }
            frame => {
                if let Frame::Stdout(bytes) | Frame::Stderr(bytes) = &frame {
                    self.written += bytes.len() as u64;
                }
                show(self.outlet, frame, incoming.size);
            }
        }
        None
    }
}

async fn overfull(disk: &mut Option<&mut Disk>) -> Full {
    match disk {
        Some(disk) => disk.full().await,
        None => std::future::pending().await,
    }
}

pub(super) async fn next_piece(feed: &mut Option<Feed>) -> bytes::Bytes {
    match feed {
        Some(feed) => feed.next().await,
        None => std::future::pending().await,
    }
}

/// What the session in the container said of itself; its word is the guest's, so it is bounded.
pub(super) fn tell(python: &watch::Sender<Option<PythonInfo>>, version: String, ipython: Option<String>) {
    let sane = |v: &String| v.len() < 40 && v.chars().all(|c| c.is_ascii_graphic());
    if sane(&version) && !version.is_empty() {
        python.send_replace(Some(PythonInfo { version, ipython: ipython.filter(sane) }));
    }
}

/// Whether [`show`] has something to show of it by itself.
pub(super) fn shows(frame: &Frame) -> bool {
    match frame {
        Frame::Stdout(bytes) | Frame::Stderr(bytes) => !bytes.is_empty(),
        Frame::Display(_) | Frame::Result(_) | Frame::Error(_) | Frame::Unreadable(_) => true,
        _ => false,
    }
}

/// Puts what a frame shows before the surface.
pub(super) fn show(outlet: &mut Outlet, frame: Frame, size: usize) {
    match frame {
        Frame::Stdout(bytes) => outlet.bytes(Stream::Stdout, &bytes),
        Frame::Stderr(bytes) => outlet.bytes(Stream::Stderr, &bytes),
        Frame::Display(display) => {
            let bundle = Bundle::sanitised(display.bundle.data, display.bundle.metadata);
            let id = display.display_id.as_deref().map(DisplayId::guest);
            outlet.display(bundle, id, display.update, size);
        }
        Frame::Result(result) => {
            outlet.rich(Event::Result { bundle: Bundle::sanitised(result.data, result.metadata) }, size);
        }
        Frame::Error(e) => outlet.error(guest_failure(&e.ename, &e.evalue, &e.traceback)),
        Frame::Clear { wait } => {
            outlet.rich(Event::Clear { wait }, size);
        }
        Frame::Unreadable(what) => {
            let text = format!("The code showed something that was left out: {what}");
            outlet.rich(Event::Notice(Notice::warning(text)), size);
        }
        // Ends and news of other runs, inventions: nothing to see.
        Frame::Hello(_)
        | Frame::Exit(_)
        | Frame::Worker(_)
        | Frame::Fault(_)
        | Frame::Taken(_)
        | Frame::PipeOut(_)
        | Frame::PipeErr(_)
        | Frame::Input(_)
        | Frame::Done(_)
        | Frame::Reply(_) => {}
    }
}

pub(super) async fn at(timer: Option<Instant>) {
    if let Some(timer) = timer {
        tokio::time::sleep_until(timer).await;
    }
}

async fn answer(asking: &mut Option<Asking>) -> (u64, Result<String, AskError>) {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

async fn catch_up(spill: Option<&mut Spill>) {
    if let Some(spill) = spill {
        spill.catch_up().await;
    }
}
