//! One question and its answer: tries, waits, streams, and shows what comes.
//!
//! Imports `event`. The rules: a failure before anything was shown may be retried, one afterwards
//! never; silence has a limit; `cancel` drops the stream, which the server sees as a disconnect.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::error::{clean, is_unknown_field};
use super::model::{Delta, Endpoint, Finish, Model, ModelError, Request};
use super::progress::Progress;
use super::retry::{Decision, Patience};
use super::think::{Piece, Splitter};
use crate::config::Secret;
use crate::event::{Answer, Closed, DisplayId, Ending, Event, EventSender, Usage};

/// When nothing has come for so long, the user is told what is being waited for.
const PATIENT_FOR: Duration = Duration::from_secs(3);

/// A question to put.
pub(super) struct Exchange<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) request: &'a Request,
    /// Only request fields that the simplest compatible server knows.
    pub(super) plain: bool,
    /// How long the server may say nothing.
    pub(super) silence: Duration,
    pub(super) events: &'a EventSender,
    pub(super) cancel: &'a CancellationToken,
    /// Keys to take out of the server's words.
    pub(super) secrets: &'a [Secret],
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Exchanged {
    pub(super) text: String,
    pub(super) ending: Ending,
    pub(super) usage: Usage,
    /// Whether the server turned out to know only the oldest fields.
    pub(super) plain: bool,
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

/// What has been shown of the reply.
struct Shown<'a> {
    exchange: &'a Exchange<'a>,
    began: Instant,
    id: Option<DisplayId>,
    splitter: Splitter,
    text: String,
    usage: Usage,
}

impl Shown<'_> {
    async fn start(&mut self) -> Result<DisplayId, Closed> {
        if let Some(id) = &self.id {
            return Ok(id.clone());
        }
        let id = DisplayId::host();
        self.id = Some(id.clone());
        self.usage.first_token = Some(self.began.elapsed());
        let model = self.exchange.endpoint.full_name.clone();
        self.exchange.events.send(Event::Answer(Answer::Start { id: id.clone(), model })).await?;
        Ok(id)
    }

    async fn show(&mut self, piece: Piece) -> Result<(), Closed> {
        let id = self.start().await?;
        let answer = match piece {
            Piece::Text(delta) => {
                self.text.push_str(&delta);
                Answer::Text { id, delta }
            }
            Piece::Reasoning(delta) => Answer::Reasoning { id, delta },
        };
        self.exchange.events.send(Event::Answer(answer)).await
    }

    async fn end(mut self, ending: Ending) -> Exchanged {
        // White space held back as the possible beginning of a tag belongs to the reply.
        let closed = match self.splitter.finish() {
            Some(piece) => self.show(piece).await.is_err(),
            None => false,
        };
        self.usage.duration = self.began.elapsed();
        if let (false, Some(id)) = (closed, self.id.clone()) {
            let end = Answer::End { id, ending: ending.clone(), usage: self.usage.clone() };
            // Nobody listens any more: the reply is kept all the same.
            let _ = self.exchange.events.send(Event::Answer(end)).await;
        }
        Exchanged { text: self.text, ending, usage: self.usage, plain: self.exchange.plain }
    }
}

impl Exchange<'_> {
    /// Asks until there is an answer, or no hope of one.
    pub(super) async fn run(&mut self, progress: &mut Progress<'_>) -> Result<Exchanged, NoAnswer> {
        let began = Instant::now();
        let mut patience = Patience::default();
        loop {
            let error = match self.attempt(progress).await {
                Ok(exchanged) => {
                    progress.clear().await;
                    return Ok(exchanged);
                }
                Err(error) => error,
            };
            progress.clear().await;
            if is_unknown_field(&error) && !self.plain {
                self.plain = true;
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
                return Ok(self.shown(began).end(Ending::Interrupted).await);
            }
        }
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
        Shown {
            exchange: self,
            began,
            id: None,
            splitter: Splitter::default(),
            text: String::new(),
            usage: Usage::default(),
        }
    }

    /// One try. An error means that nothing was shown.
    async fn attempt(&self, progress: &mut Progress<'_>) -> Result<Exchanged, ModelError> {
        let mut shown = self.shown(Instant::now());
        let stop = self.stream(&mut shown, progress).await?;
        let ending = match stop {
            Stop::Interrupted => Ending::Interrupted,
            Stop::Cut(why) => Ending::Cut(why),
            Stop::Ended(finish) => {
                // A reply of nothing is a reply: it begins and ends.
                let closed = shown.start().await.is_err();
                if closed { Ending::Interrupted } else { self.ending(finish) }
            }
        };
        Ok(shown.end(ending).await)
    }

    fn ending(&self, finish: Finish) -> Ending {
        match finish {
            Finish::Stop => Ending::Complete,
            Finish::Length => Ending::Cut(match self.request.max_tokens {
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
            Finish::Other(reason) => Ending::Cut(format!(
                "the server ended the reply with the reason {}",
                clean(&reason, self.secrets)
            )),
        }
    }

    async fn stream(&self, shown: &mut Shown<'_>, progress: &mut Progress<'_>) -> Result<Stop, ModelError> {
        let model = Model::connect(self.endpoint, self.plain)?;
        let mut generation = model.stream(self.request)?;
        let mut silent_since = Instant::now();
        loop {
            let pause = if shown.id.is_none() && !progress.is_showing() { PATIENT_FOR } else { self.silence };
            let limit = self.silence.saturating_sub(silent_since.elapsed()).min(pause);
            let next = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Ok(Stop::Interrupted),
                next = tokio::time::timeout(limit, generation.next()) => next,
            };
            let error = match next {
                Ok(Some(Ok(delta))) => {
                    silent_since = Instant::now();
                    progress.clear().await;
                    match self.take(shown, delta).await {
                        None => continue,
                        Some(stop) => return Ok(stop),
                    }
                }
                Ok(Some(Err(error))) => error,
                Ok(None) => ModelError::Truncated,
                Err(_) if silent_since.elapsed() < self.silence => {
                    progress.say(format!("waiting for {} to begin", self.endpoint.full_name)).await;
                    continue;
                }
                Err(_) => ModelError::Silent(self.silence),
            };
            if shown.id.is_none() {
                return Err(error);
            }
            return Ok(Stop::Cut(clean(&error.to_string(), self.secrets)));
        }
    }

    /// Shows one part of the reply; `Some` when it was the last.
    async fn take(&self, shown: &mut Shown<'_>, delta: Delta) -> Option<Stop> {
        let pieces = match delta {
            Delta::Text(text) => shown.splitter.push(&text),
            Delta::Reasoning(text) => vec![Piece::Reasoning(text)],
            Delta::ToolCall { name, arguments } => {
                // No tool was offered. What the model wanted is shown rather than lost.
                vec![Piece::Text(format!(
                    "\n\n```json\n{{\"name\": {name:?}, \"arguments\": {arguments}}}\n```\n"
                ))]
            }
            Delta::End { finish, input_tokens, output_tokens } => {
                shown.usage.input_tokens = input_tokens;
                shown.usage.output_tokens = output_tokens;
                return Some(Stop::Ended(finish));
            }
        };
        for piece in pieces {
            let sent = tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Some(Stop::Interrupted),
                sent = shown.show(piece) => sent,
            };
            if sent.is_err() {
                return Some(Stop::Interrupted);
            }
        }
        None
    }
}
