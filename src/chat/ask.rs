//! A question to the model, from the dialogue to the reply that it keeps.
//!
//! Imports this folder, `event` and `config`.

use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::error::Circumstances;
use super::exchange::{Exchange, Exchanged, NoAnswer};
use super::find::BUDGET;
use super::model::{Endpoint, Message, ModelError, Request, Understands};
use super::pictures;
use super::progress::Progress;
use super::refusal::{is_unknown_model, stated_window};
use super::replay::{Asked, Recordings, ReplyLine, Take, Tape, play};
use super::shown::Shown;
use super::store::Partial;
use super::written::{Counts, Told};
use super::{Chat, ChatError, Reply, Turn, dialogue, prompt, small};
use crate::config::{Replay, Secret};
use crate::event::{Ending, Event, EventSender, Notice, Usage};

/// A question that may have been answered before.
struct Question<'a> {
    turn: Turn<'a>,
    events: &'a EventSender,
    cancel: &'a CancellationToken,
    partial: Option<&'a Partial>,
}

impl Chat {
    /// Asks the model and shows its answer as it comes.
    ///
    /// When `cancel` fires the request is dropped and what was shown stays, as [`Ending::Interrupted`].
    ///
    /// # Errors
    /// Nothing was shown of an answer; the error says why and what to do.
    pub async fn ask(
        &self,
        turn: Turn<'_>,
        events: &EventSender,
        cancel: CancellationToken,
    ) -> Result<Reply, ChatError> {
        let reply = self.reply(turn, events, cancel).await;
        self.unanswered(turn.place, &reply);
        reply
    }

    async fn reply(
        &self,
        turn: Turn<'_>,
        events: &EventSender,
        cancel: CancellationToken,
    ) -> Result<Reply, ChatError> {
        let Turn { place, prompt, .. } = turn;
        let partial = self.asked(place, prompt);
        let recordings = self.recordings.as_deref();
        if let Some(recordings) = recordings.filter(|recordings| recordings.mode != Replay::Record) {
            let question = Question { turn, events, cancel: &cancel, partial: partial.as_ref() };
            if let Some(reply) = self.again(recordings, question).await? {
                return Ok(reply);
            }
        }
        let tape = recordings.map(|_| Tape::default());
        let mut progress = Progress::new(events);
        let (mut anew, mut shrunk) = (false, false);
        let (endpoint, exchanged, understands, counts, told) = loop {
            let endpoint = tokio::select! {
                biased;
                () = cancel.cancelled() => None,
                endpoint = self.inner.endpoint(turn.options.model.as_deref(), &mut progress) => Some(endpoint),
            };
            progress.clear().await;
            let Some(endpoint) = endpoint.transpose()? else { return Ok(self.not_even_asked()) };
            let whose = (endpoint.address().to_owned(), endpoint.model.clone());
            let stated = self.inner.state().windows.get(&whose).copied();
            let window = stated.map_or(endpoint.budget, |stated| stated.min(endpoint.budget));
            let request = self.request(window, turn, events).await;
            let secrets = self.inner.secrets();
            let asked = recordings.map(|_| self.to_compare(&request, turn, &secrets));
            let request = self.fitting(request, turn, &endpoint);
            let mut exchange = Exchange {
                endpoint: &endpoint,
                request: &request,
                understands: self.inner.state().understands.get(&whose).copied().unwrap_or_default(),
                silence: self.inner.settings.silence_timeout,
                events,
                cancel: &cancel,
                secrets: &secrets,
                partial: partial.as_ref(),
                tape: tape.as_ref(),
            };
            let answered = exchange.run(&mut progress).await;
            let understands = exchange.understands;
            // What the reply itself taught is for the next one, but a native call in it makes fences text at once.
            let counts = Counts::of(&endpoint, understands);
            if understands != Understands::default() {
                self.inner.state().understands.insert(whose.clone(), understands);
            }
            match answered {
                Ok(exchanged) => {
                    if let (Some(asked), Some(tape)) = (&asked, &tape)
                        && let Some(says) = tape.reply(&exchanged.ending, &secrets)
                    {
                        let taken = (understands, counts);
                        self.keep(asked, &endpoint.full_name, window, taken, says, events).await;
                    }
                    let told =
                        if counts == Counts::Tagged { Told::of(&request.messages) } else { Told::default() };
                    break (endpoint, exchanged, understands, counts, told);
                }
                Err(failed) => {
                    let smaller = stated_window(failed.error(), request.max_tokens);
                    if let Some(smaller) = smaller.filter(|smaller| *smaller < window && !shrunk) {
                        shrunk = true;
                        self.inner.state().windows.insert(whose, smaller);
                        continue;
                    }
                    if endpoint.is_local() {
                        // Its server is in doubt: it is looked for, or started, anew.
                        self.inner.local.release().await;
                        if !std::mem::replace(&mut anew, true) && failed.is_refused_connection() {
                            continue;
                        }
                    }
                    let error = self.explain(&endpoint, &secrets, failed).await;
                    if let (Some(asked), Some(failed)) = (&asked, error.to_record()) {
                        let taken = (understands, counts);
                        self.keep(asked, &endpoint.full_name, window, taken, vec![failed], events).await;
                    }
                    return Err(error);
                }
            }
        };
        let marked = (counts == Counts::Tagged).then_some(told);
        let asked = (understands.tools && !endpoint.is_local(), marked);
        Ok(self.over(turn, exchanged, endpoint.full_name, asked, events).await)
    }

    /// The reply is there: the dialogue keeps it.
    async fn over(
        &self,
        turn: Turn<'_>,
        exchanged: Exchanged,
        model: String,
        (could_call, marked): (bool, Option<Told>),
        events: &EventSender,
    ) -> Reply {
        self.answered(turn.place, turn.prompt, &exchanged);
        let Exchanged { reply, ending } = exchanged;
        let said_nothing = reply.text.trim().is_empty() && reply.calls.is_empty();
        if said_nothing && ending == Ending::Complete {
            let text = format!("{model} answered without any text.");
            let _ = events.send(Event::Notice(Notice::warning(text))).await;
        }
        Reply {
            text: reply.text,
            calls: reply.calls,
            usage: reply.usage,
            ending,
            model: Some(model),
            could_call: !turn.tools.is_empty() && could_call,
            recorded: false,
            marked: marked.filter(|_| !turn.tools.is_empty()),
        }
    }

    /// What is asked, in a form that recordings are compared by.
    fn to_compare(&self, request: &Request, turn: Turn<'_>, secrets: &[Secret]) -> Asked {
        let model = self.inner.configured(turn.options.model.as_deref());
        Asked::new(request, &model, turn.place.source(), secrets)
    }

    /// The recorded reply, when there is one. No model is looked for, no server asked, no key needed.
    async fn again(
        &self,
        recordings: &Recordings,
        question: Question<'_>,
    ) -> Result<Option<Reply>, ChatError> {
        let Question { turn, events, cancel, partial } = question;
        let model = self.inner.configured(turn.options.model.as_deref());
        let window = recordings.window(&model).unwrap_or(BUDGET);
        for remark in recordings.remarks() {
            let _ = events.send(Event::Notice(Notice::warning(remark))).await;
        }
        let request = self.request(window, turn, events).await;
        let asked = self.to_compare(&request, turn, &self.inner.secrets());
        let Some(recorded) = recordings.find(&asked) else {
            return match recordings.mode {
                Replay::Replay => Err(ChatError::NotRecorded(recordings.missing(&asked))),
                _ => Ok(None),
            };
        };
        let mut shown = Shown::new(events, &recorded.by, &request, recorded.as_text, Instant::now());
        shown.partial = partial;
        shown.again = true;
        let exchanged = play(&recorded, shown, cancel).await?;
        let marked = (recorded.as_text == Counts::Tagged).then(|| Told::of(&request.messages));
        let (by, asked) = (recorded.by.clone(), (recorded.could_call, marked));
        let reply = self.over(turn, exchanged, by, asked, events).await;
        Ok(Some(Reply { recorded: true, ..reply }))
    }

    /// Records what was said.
    async fn keep(
        &self,
        asked: &Asked,
        by: &str,
        window: usize,
        (understands, counts): (Understands, Counts),
        says: Vec<Take>,
        events: &EventSender,
    ) {
        let Some(recordings) = self.recordings.clone() else { return };
        let window = (window != BUDGET).then_some(window);
        let line = ReplyLine::new(asked, by, window, (understands.tools, counts), says);
        let (asked, name) = (asked.clone(), recordings.name());
        // Writing waits for a disk.
        let kept = tokio::task::spawn_blocking(move || recordings.keep(&asked, line)).await;
        if let Ok(Err(error)) = kept {
            let text = format!("the reply could not be recorded in {name}: {error}");
            let _ = events.send(Event::Notice(Notice::warning(text))).await;
        }
    }

    fn not_even_asked(&self) -> Reply {
        Reply {
            text: String::new(),
            calls: Vec::new(),
            usage: Usage::default(),
            ending: Ending::Interrupted,
            model: self.current(),
            could_call: false,
            recorded: false,
            marked: None,
        }
    }

    async fn request(&self, budget: usize, turn: Turn<'_>, events: &EventSender) -> Request {
        let Turn { place, prompt, context, tools, options } = turn;
        self.look().await;
        let whom = self.inner.identity(options.model.as_deref());
        let dialogue = {
            let mut state = self.inner.state();
            state.window = Some(budget);
            state.conversation.to(whom).dialogue(place, prompt, budget)
        };
        let left_out = dialogue.newly_left_out.map(|turns| {
            let sigil = self.sigil;
            format!(
                "The conversation is long: {turns} of its oldest turns are no longer sent to the model. {sigil}pin keeps \
                 one, {sigil}context lists them, {sigil}reset begins anew."
            )
        });
        if let Some(text) = dialogue::withheld(&dialogue.newly_withheld) {
            let _ = events.send(Event::Notice(Notice::warning(text))).await;
        }
        for text in left_out.into_iter().chain(dialogue::stale(&dialogue.newly_stale, self.sigil)) {
            // When nobody listens, the answer's events will say so.
            let _ = events.send(Event::Notice(Notice::info(text))).await;
        }
        Request {
            system: prompt::system(
                context,
                options.system.as_deref().or(self.inner.settings.system.as_deref()),
                tools,
            ),
            messages: dialogue.messages,
            tools: tools.to_vec(),
            temperature: options.temperature.or(self.inner.settings.temperature),
            max_tokens: options.max_tokens.or(self.inner.settings.max_tokens),
        }
    }

    /// The request as this model is sent it.
    fn fitting(&self, mut request: Request, turn: Turn<'_>, endpoint: &Endpoint) -> Request {
        if endpoint.is_local() {
            let addition = turn.options.system.as_deref().or(self.inner.settings.system.as_deref());
            request = small::fitting(request, addition);
        }
        let sees = self.ledger.catalog().sees(&endpoint.full_name);
        request.messages = pictures::for_model(request.messages, sees);
        let pictures = request.messages.iter().any(Message::has_images);
        self.inner.state().sent = if pictures { 0 } else { dialogue::size(&request) };
        request
    }

    async fn explain(&self, endpoint: &Endpoint, secrets: &[Secret], failed: NoAnswer) -> ChatError {
        let error = failed.error();
        if matches!(error, ModelError::Status { status: 401 | 403, .. }) {
            // The command may give a fresh one.
            self.inner.state().commanded = None;
        }
        let offered = if is_unknown_model(error) { self.inner.offered(endpoint).await } else { Vec::new() };
        let circumstances = Circumstances {
            endpoint,
            environment: &self.inner.environment,
            secrets,
            offered: &offered,
            key_command: self.inner.uses_key_command(endpoint),
        };
        match &failed {
            NoAnswer::Failed(error) => circumstances.explain(error),
            NoAnswer::GaveUp(error, why) => circumstances.gave_up(error, why),
        }
    }
}
