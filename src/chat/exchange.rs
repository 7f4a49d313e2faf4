//! One question and its answer: tries, waits, streams, and shows what comes.
//!
//! Imports `event`. The rules: a failure before anything was shown may be retried, one afterwards
//! never; silence has a limit, and so have signs of life without a word; `cancel` drops the stream, which the server sees as a disconnect.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::error::clean;
use super::mask::Mask;
use super::model::{Delta, Endpoint, Finish, Message, Model, ModelError, Request, Understands};
use super::progress::Progress;
use super::refusal::{Refused, refused};
use super::replay::Tape;
use super::retry::{Decision, Patience};
use super::shown::{Shown, Unshown, Whole};
use super::store::Partial;
use super::written::Counts;
use crate::config::Secret;
use crate::event::{Ending, Event, EventSender, Notice};

/// When nothing has come for so long, the user is told what is being waited for.
const PATIENT_FOR: Duration = Duration::from_secs(3);

/// A server that only shows signs of life may do so for so many times the limit on silence.
const ALIVE: u32 = 5;

/// A question to put.
pub(super) struct Exchange<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) request: &'a Request,
    /// What the server takes, as far as that is known.
    pub(super) understands: Understands,
    /// How long the server may say nothing.
    pub(super) silence: Duration,
    pub(super) events: &'a EventSender,
    pub(super) cancel: &'a CancellationToken,
    /// Keys to take out of the server's words.
    pub(super) secrets: &'a [Secret],
    /// Where the reply is kept while it comes.
    pub(super) partial: Option<&'a Partial>,
    /// Takes the reply down, when it is recorded.
    pub(super) tape: Option<&'a Tape>,
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Exchanged {
    pub(super) reply: Whole,
    pub(super) ending: Ending,
}

/// No answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// It failed in a way that trying again does not mend.
    Failed(ModelError),
    /// It was tried often enough; the text says how often, or how long the server wants us to wait.
    GaveUp(ModelError, String),
}

impl NoAnswer {
    /// What went wrong last.
    pub(super) fn error(&self) -> &ModelError {
        let (NoAnswer::Failed(error) | NoAnswer::GaveUp(error, _)) = self;
        error
    }

    /// Whether nothing listened at the address.
    pub(super) fn is_refused_connection(&self) -> bool {
        matches!(self, NoAnswer::Failed(ModelError::Refused))
    }
}

/// How a stream came to its end after something was shown, or in order.
enum Stop {
    Ended(Finish),
    Interrupted,
    Cut(String),
}

impl Exchange<'_> {
    /// Asks until there is an answer, or no hope of one.
    pub(super) async fn run(&mut self, progress: &mut Progress<'_>) -> Result<Exchanged, NoAnswer> {
        let began = Instant::now();
        let mut patience = Patience::default();
        loop {
            let error = match self.attempt(progress).await {
                Ok(exchanged) => {
                    self.understands.calls |= exchanged.reply.called;
                    progress.clear().await;
                    return Ok(exchanged);
                }
                Err(error) => error,
            };
            progress.clear().await;
            if self.learn(&error).await {
                continue;
            }
            if !error.is_transient() {
                return Err(NoAnswer::Failed(error));
            }
            let asked = match &error {
                ModelError::Status { retry_after, .. } => *retry_after,
                _ => None,
            };
            let wait = match patience.failed(began.elapsed(), asked, fastrand::f64()) {
                Decision::Wait(wait) => wait,
                Decision::TriesUsed => {
                    let why = format!("it was tried {} times; try again later", patience.failures());
                    return Err(NoAnswer::GaveUp(error, why));
                }
                Decision::TooLong(wait) if asked.is_some() => {
                    let why = format!(
                        "it asks to wait {} s, which is too long to wait here; try again then",
                        wait.as_secs_f64().ceil()
                    );
                    return Err(NoAnswer::GaveUp(error, why));
                }
                Decision::TooLong(_) => {
                    let why =
                        format!("it was tried {} times within 30 s; try again later", patience.failures());
                    return Err(NoAnswer::GaveUp(error, why));
                }
            };
            progress.say(self.waiting(&error, wait, patience.failures() + 1)).await;
            let interrupted = tokio::select! {
                biased;
                () = self.cancel.cancelled() => true,
                () = tokio::time::sleep(wait) => false,
            };
            if interrupted {
                progress.clear().await;
                let ending = Ending::Interrupted;
                return Ok(Exchanged { reply: self.shown(began).end(&ending).await, ending });
            }
        }
    }

    /// Whether the refusal was of something that the request can do without: then the next one does.
    async fn learn(&mut self, error: &ModelError) -> bool {
        let has_images = self.request.messages.iter().any(Message::has_images);
        match refused(error) {
            Some(Refused::Fields) if self.understands.newer => self.understands.newer = false,
            Some(Refused::Tools) if self.understands.tools && !self.request.tools.is_empty() => {
                self.understands.tools = false;
            }
            Some(Refused::Images) if self.understands.images && has_images => {
                self.understands.images = false;
                let text = format!(
                    "{} does not take images, so it is asked without them; it said: {}",
                    self.endpoint.full_name,
                    clean(error.words(), self.secrets)
                );
                // When nobody listens, the answer's events will say so.
                let _ = self.events.send(Event::Notice(Notice::warning(text))).await;
            }
            _ => return false,
        }
        true
    }

    fn waiting(&self, error: &ModelError, wait: Duration, next: u32) -> String {
        let what = match error {
            ModelError::Status { status: 429, .. } => "is busy (status 429)".to_owned(),
            ModelError::Status { status, .. } => format!("failed (status {status})"),
            other => format!("failed ({})", clean(&other.to_string(), self.secrets)),
        };
        format!(
            "{} {what}; trying again in {:.1} s (try {next} of {})",
            self.endpoint.full_name,
            wait.as_secs_f64(),
            Patience::tries()
        )
    }

    fn shown(&self, began: Instant) -> Shown<'_> {
        let model = &self.endpoint.full_name;
        let counts = Counts::of(self.endpoint, self.understands);
        let mut shown = Shown::new(self.events, model, self.request, counts, began);
        shown.partial = self.partial;
        shown
    }

    /// One try. An error means that nothing was shown.
    async fn attempt(&self, progress: &mut Progress<'_>) -> Result<Exchanged, ModelError> {
        let mut shown = self.shown(Instant::now());
        if let Some(tape) = self.tape {
            tape.rewind();
        }
        let stop = self.stream(&mut shown, progress).await?;
        let ending = match stop {
            Stop::Interrupted => Ending::Interrupted,
            Stop::Cut(why) => Ending::Cut(why),
            Stop::Ended(finish) => {
                // A reply of nothing is a reply: it begins and ends.
                let closed = shown.start().await.is_err();
                if closed {
                    Ending::Interrupted
                } else {
                    ending(finish, self.request.max_tokens, self.secrets)
                }
            }
        };
        Ok(Exchanged { reply: shown.end(&ending).await, ending })
    }

    async fn stream(&self, shown: &mut Shown<'_>, progress: &mut Progress<'_>) -> Result<Stop, ModelError> {
        let model = Model::connect(self.endpoint, self.understands)?;
        let mut generation = model.stream(self.request)?;
        let wordless = self.silence.saturating_mul(ALIVE);
        let mut word = Instant::now();
        let mut mask = Mask::new(self.secrets);
        loop {
            let pause = if !shown.has_begun() && !progress.is_showing() { PATIENT_FOR } else { self.silence };
            let limit = self.silence.saturating_sub(generation.heard_since(word).elapsed());
            let limit = limit.min(wordless.saturating_sub(word.elapsed())).min(pause);
            let next = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Ok(Stop::Interrupted),
                next = tokio::time::timeout(limit, generation.next()) => next,
            };
            let error = match next {
                Ok(Some(Ok(delta))) => {
                    word = Instant::now();
                    progress.clear().await;
                    match self.pass(shown, mask.pass(delta)).await {
                        None => continue,
                        Some(stop) => return Ok(stop),
                    }
                }
                Ok(Some(Err(error))) => error,
                Ok(None) => ModelError::Truncated,
                Err(_) if word.elapsed() >= wordless => ModelError::Wordless(wordless),
                Err(_) if generation.heard_since(word).elapsed() < self.silence => {
                    if !shown.has_begun() && !progress.is_showing() {
                        progress.say(format!("waiting for {} to begin", self.endpoint.full_name)).await;
                    }
                    continue;
                }
                Err(_) => ModelError::Silent(self.silence),
            };
            if !shown.has_begun() {
                return Err(error);
            }
            if let Some(stop) = self.pass(shown, mask.rest()).await {
                return Ok(stop);
            }
            return Ok(Stop::Cut(cut(&error, self.secrets)));
        }
    }

    /// Records and shows parts of the reply; `Some` when one was the last.
    async fn pass(&self, shown: &mut Shown<'_>, deltas: Vec<Delta>) -> Option<Stop> {
        for delta in deltas {
            if let Some(tape) = self.tape {
                tape.take(&delta);
            }
            if let Some(stop) = self.take(shown, delta).await {
                return Some(stop);
            }
        }
        None
    }

    /// Shows one part of the reply; `Some` when it was the last.
    async fn take(&self, shown: &mut Shown<'_>, delta: Delta) -> Option<Stop> {
        if let Delta::End { finish, tokens } = delta {
            shown.count(tokens);
            return Some(Stop::Ended(finish));
        }
        let taken = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Some(Stop::Interrupted),
            taken = shown.take(delta) => taken,
        };
        match taken {
            Ok(()) => None,
            Err(Unshown::Closed) => Some(Stop::Interrupted),
            Err(Unshown::TooMany(why)) => Some(Stop::Cut(why.to_string())),
        }
    }
}

/// Why a reply that had begun went no further, and what to do.
fn cut(error: &ModelError, secrets: &[Secret]) -> String {
    let what = match error {
        ModelError::Closed => "the server closed the connection in the middle of its reply".to_owned(),
        other => clean(&other.to_string(), secrets),
    };
    let remedy = match error {
        ModelError::Silent(_) | ModelError::Wordless(_) => {
            "run the cell again, or allow more time with the setting model.silence_timeout"
        }
        _ => "run the cell again for a whole reply",
    };
    format!("{}; what has come is kept; {remedy}", what.trim_end_matches('.'))
}

/// What a model's reason to stop means.
pub(super) fn ending(finish: Finish, max_tokens: Option<u64>, secrets: &[Secret]) -> Ending {
    match finish {
        Finish::Stop => Ending::Complete,
        Finish::Length => Ending::Cut(match max_tokens {
            Some(limit) => format!("the reply reached the limit of {limit} tokens (model.max_tokens)"),
            None => "the reply reached the server's limit of tokens; \
                         a higher one can be asked for with model.max_tokens"
                .to_owned(),
        }),
        Finish::Filtered => Ending::Cut("the provider's content filter stopped the reply".to_owned()),
        // Ways of saying "done" that servers have been seen to use.
        Finish::Other(reason)
            if matches!(reason.as_str(), "" | "eos" | "eos_token" | "end_turn" | "stop_sequence") =>
        {
            Ending::Complete
        }
        Finish::Other(reason) => {
            Ending::Cut(format!("the server ended the reply with the reason {}", clean(&reason, secrets)))
        }
    }
}
