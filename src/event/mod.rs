//! The one vocabulary of what a run can show, in order, and of what it can ask.
//!
//! Imports nothing of ours. Every surface (`jupyter`, `cli`) translates [`Event`] with a `match` that
//! has no `_` arm, so a new variant is a compile error until every surface shows it.

pub mod ask;
pub mod mime;
mod plain;
pub mod terminal;
pub mod words;

use std::time::Duration;

use tokio::sync::mpsc;

pub use ask::{Ask, AskError, Question};
pub use mime::Bundle;
pub use plain::plain;

/// Which of the two output streams a text belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    /// The Jupyter name of the stream (`stdout`, `stderr`).
    pub fn name(self) -> &'static str {
        match self {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// Names one display so that it can be updated in place.
///
/// Guest-chosen names and the host's own live in different name spaces, so code in the sandbox cannot
/// rewrite a model's reply or a notice.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DisplayId(String);

impl DisplayId {
    /// A name chosen by code in the sandbox.
    pub fn guest(name: &str) -> Self {
        DisplayId(format!("guest:{name}"))
    }

    /// A fresh name for a display of the host's own (a reply, a progress line).
    pub fn host() -> Self {
        DisplayId(format!("host:{}", uuid::Uuid::new_v4()))
    }

    /// The name as it goes on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One thing that a run shows, in the order in which it happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Text on one of the two streams: valid UTF-8, characters never split, escape sequences filtered.
    Stream {
        /// Which stream.
        stream: Stream,
        /// The text; not necessarily whole lines.
        text: String,
    },
    /// A rich display (`display_data`).
    Display {
        /// What to show.
        bundle: Bundle,
        /// A name when it may be updated later.
        display_id: Option<DisplayId>,
    },
    /// Replaces every display of that name (`update_display_data`).
    UpdateDisplay {
        /// What to show instead.
        bundle: Bundle,
        /// Which display.
        display_id: DisplayId,
    },
    /// The value of the last expression (`execute_result`).
    Result {
        /// The value's representations.
        bundle: Bundle,
    },
    /// The run failed.
    Error(Failure),
    /// Remove what the cell has shown so far (`clear_output`).
    Clear {
        /// Wait for the next output before clearing.
        wait: bool,
    },
    /// The kernel itself has something to say (container starting, output capped, state lost).
    Notice(Notice),
    /// A part of a model's reply.
    Answer(Answer),
}

/// Why a run failed, in the terms of the Jupyter protocol's `error` message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Failure {
    /// The exception's name, or one of ours (`Timeout`, `ExitCode`, `SandboxError`).
    pub ename: String,
    /// The exception's text: what happened, why, and what to do next.
    pub evalue: String,
    /// Lines for a person, with ANSI colours; never empty when shown.
    pub traceback: Vec<String>,
}

impl Failure {
    /// A failure of the kernel's own: the traceback is the name in red and the text.
    pub fn new(ename: impl Into<String>, evalue: impl Into<String>) -> Self {
        let (ename, evalue) = (ename.into(), evalue.into());
        let traceback = vec![format!("\x1b[0;31m{ename}\x1b[0m: {evalue}")];
        Failure { ename, evalue, traceback }
    }
}

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Progress and other things that are good to know; a drop-in kernel may leave them out.
    Info,
    /// Something the user must see: output capped, state lost, a setting refused.
    Warning,
    /// Why something failed.
    Error,
}

/// What becomes of a line that is updated in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It goes when it is over.
    Passing,
    /// The same, and it only says that time passes: nothing for surfaces that can't update in place.
    Ticking,
    /// Its last state, which stays.
    Settled,
}

/// A remark by the kernel, as plain text (it may quote the guest: surfaces escape it).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// How much it matters.
    pub level: Level,
    /// Notices with the same name replace each other in place; an empty text takes the line away.
    pub progress: Option<DisplayId>,
    /// What becomes of a line with a name.
    pub phase: Phase,
    /// What to tell the user; Markdown is not interpreted.
    pub text: String,
}

impl Notice {
    /// A remark that stays.
    pub fn info(text: impl Into<String>) -> Self {
        Notice { level: Level::Info, progress: None, phase: Phase::Settled, text: text.into() }
    }

    /// A warning that stays.
    pub fn warning(text: impl Into<String>) -> Self {
        Notice { level: Level::Warning, progress: None, phase: Phase::Settled, text: text.into() }
    }

    /// One state of a line that is updated in place; the empty text ends it.
    pub fn progress(id: &DisplayId, text: impl Into<String>) -> Self {
        Notice { level: Level::Info, progress: Some(id.clone()), phase: Phase::Passing, text: text.into() }
    }

    /// One state of a line that only says that time passes; the empty text ends it.
    pub fn ticking(id: &DisplayId, text: impl Into<String>) -> Self {
        Notice { phase: Phase::Ticking, ..Notice::progress(id, text) }
    }

    /// The last state of a line, which stays where it is.
    pub fn settled(id: &DisplayId, level: Level, text: impl Into<String>) -> Self {
        Notice { level, phase: Phase::Settled, ..Notice::progress(id, text) }
    }
}

/// A part of a model's reply; replies are Markdown.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The reply begins.
    Start {
        /// Names the reply in the parts that follow.
        id: DisplayId,
        /// The model's full name, `provider/model`.
        model: String,
    },
    /// More text of the reply.
    Text {
        /// Which reply.
        id: DisplayId,
        /// What was added, characters never split.
        delta: String,
    },
    /// The text that was shown last turned out to be another.
    Instead {
        /// Which reply.
        id: DisplayId,
        /// What the text ends with now.
        old: String,
        /// What is to stand there in its place.
        new: String,
        /// What is added where nothing that was shown can be changed.
        added: String,
    },
    /// More of the model's reasoning: shown apart, never executed, never sent back.
    Reasoning {
        /// Which reply.
        id: DisplayId,
        /// What was added.
        delta: String,
    },
    /// The reply is over.
    End {
        /// Which reply.
        id: DisplayId,
        /// Why it ended.
        ending: Ending,
        /// What it cost.
        usage: Usage,
    },
}

/// Why a model's reply ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The model was done.
    Complete,
    /// The user interrupted it; the text so far stays.
    Interrupted,
    /// Cut off: the stream ended without its end, or the server failed in the middle; says which.
    Cut(String),
}

/// What a model's reply cost.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Usage {
    /// Tokens read by the model, when the server said.
    pub input_tokens: Option<u64>,
    /// Of them, tokens that the server had in a cache.
    pub cached_tokens: Option<u64>,
    /// Tokens written by the model, when the server said.
    pub output_tokens: Option<u64>,
    /// Of them, tokens of reasoning.
    pub reasoning_tokens: Option<u64>,
    /// From sending the request to the last byte.
    pub duration: Duration,
    /// From sending the request to the first text.
    pub first_token: Option<Duration>,
}

/// The sending end for a run's events. Bounded: `send` waits while the surface is slow.
#[derive(Debug, Clone)]
pub struct EventSender(mpsc::Sender<Event>);

/// The surface is gone; nobody will see any more events of this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("nobody is listening to this run any more")]
pub struct Closed;

impl EventSender {
    /// Sends one event, waiting for room.
    ///
    /// # Errors
    /// [`Closed`] when the receiving end was dropped.
    pub async fn send(&self, event: Event) -> Result<(), Closed> {
        self.0.send(event).await.map_err(|_| Closed)
    }

    /// Waits for room for one event, so that what is sent can be decided (coalesced) at the last moment.
    ///
    /// # Errors
    /// [`Closed`] when the receiving end was dropped.
    pub async fn reserve(&self) -> Result<mpsc::Permit<'_, Event>, Closed> {
        self.0.reserve().await.map_err(|_| Closed)
    }
}

/// A bounded channel for one run's events; `depth` is how many may wait for the surface.
pub fn channel(depth: usize) -> (EventSender, mpsc::Receiver<Event>) {
    let (tx, rx) = mpsc::channel(depth);
    (EventSender(tx), rx)
}
