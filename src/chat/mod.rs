//! Models, the conversation and the prompts.
//!
//! May import `event` and `config`. [`Chat`] is the front door: cheap to make (no network, no TLS, no
//! thread before the first question), it finds the model, asks it and keeps the dialogue.
//!
//! | module | what |
//! | --- | --- |
//! | `provider` | the table of providers; a new one that the library speaks is a row there |
//! | `name` | what a model's name means |
//! | `environment` | keys and addresses found outside the settings, as plain data |
//! | `key` | a key from a command |
//! | `model` | one model behind one address; the only place that knows the provider library |
//! | `exchange`, `retry`, `think` | one question and its answer; patience; inline reasoning |
//! | `conversation`, `prompt` | the dialogue by cells; what the model is told about itself |
//! | `listing`, `find` | which models there are, and which one is meant |
//! | `local` | the small model on this machine, one server per user |
//! | `progress`, `error` | what is being waited for; why there is no answer, in words |

mod conversation;
mod environment;
mod error;
mod exchange;
mod find;
mod key;
mod listing;
mod local;
mod model;
mod name;
mod progress;
mod prompt;
mod provider;
mod retry;
mod think;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::config::{ModelSettings, Secret};
use crate::event::{Ending, Event, EventSender, Notice, Usage};

pub use conversation::{Place, Ran};
pub use environment::ProviderEnvironment;
pub use error::ChatError;
pub use listing::{ListedModel, Listing};

use conversation::Conversation;
use error::{Circumstances, is_unknown_model};
use exchange::{Exchange, NoAnswer};
use find::Choice;
use model::{Connections, Endpoint, Request};
use progress::Progress;

/// A question to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn<'a> {
    /// Where it stands in the dialogue: of [`Chat::begin`], the same for everything in one execution.
    pub place: &'a Place,
    /// What the user wrote, Markdown as it is.
    pub prompt: &'a str,
    /// What the model should know about the sandbox, in whole sentences.
    pub context: &'a str,
}

/// An answer. What it showed went through the [`EventSender`].
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The text without reasoning; partial unless the ending is [`Ending::Complete`].
    pub text: String,
    /// Tokens and times.
    pub usage: Usage,
    /// Why it ended. [`Ending::Interrupted`] may come with no text, and then nothing was shown.
    pub ending: Ending,
    /// The model's full name, when it was known by then.
    pub model: Option<String>,
}

/// Talks to models, for one kernel.
#[derive(Debug)]
pub struct Chat {
    inner: Inner,
}

#[derive(Debug)]
struct Inner {
    settings: ModelSettings,
    environment: ProviderEnvironment,
    local: local::LocalModel,
    connections: Arc<Connections>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    conversation: Conversation,
    /// The model in use, once it is known.
    chosen: Option<Choice>,
    /// Full names seen in listings.
    known: Vec<String>,
    /// The key that the command gave.
    commanded: Option<Secret>,
    /// Addresses of servers that know only the oldest request fields.
    plain: Vec<String>,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // The state is consistent between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every key we know, to take out of texts.
    fn secrets(&self) -> Vec<Secret> {
        let mut secrets: Vec<Secret> = self.environment.secrets().cloned().collect();
        secrets.extend(self.settings.api_key.clone());
        secrets.extend(self.state().commanded.clone());
        secrets
    }
}

impl Chat {
    /// Remembers what is configured; nothing else happens before the first question.
    pub fn new(settings: &ModelSettings, environment: ProviderEnvironment) -> Chat {
        let folder = settings.local_dir.clone().or_else(|| environment.local_model.clone());
        let local = local::LocalModel::new(folder, environment.runtime_dir.clone());
        Chat {
            inner: Inner {
                settings: settings.clone(),
                environment,
                local,
                connections: Arc::default(),
                state: Mutex::default(),
            },
        }
    }

    /// A new execution of a cell begins: everything recorded or asked with the returned place belongs
    /// to one turn, which replaces the cell's earlier one once there is something in it.
    pub fn begin(&self, cell: Option<&str>) -> Place {
        self.inner.state().conversation.begin(cell)
    }

    /// A block of code ran: the model will be told with the next question.
    pub fn record_run(&self, place: &Place, ran: Ran) {
        self.inner.state().conversation.ran(place, ran);
    }

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
        let Turn { place, prompt, context } = turn;
        let mut progress = Progress::new(events);
        let mut anew = false;
        let (endpoint, exchanged) = loop {
            let endpoint = tokio::select! {
                biased;
                () = cancel.cancelled() => None,
                endpoint = self.inner.endpoint(&mut progress) => Some(endpoint),
            };
            progress.clear().await;
            let Some(endpoint) = endpoint.transpose()? else { return Ok(self.not_even_asked()) };
            let request = self.request(&endpoint, place, prompt, context, events).await;
            let secrets = self.inner.secrets();
            let mut exchange = Exchange {
                endpoint: &endpoint,
                request: &request,
                plain: self.inner.state().plain.iter().any(|address| address == endpoint.address()),
                silence: self.inner.settings.silence_timeout,
                events,
                cancel: &cancel,
                secrets: &secrets,
            };
            match exchange.run(&mut progress).await {
                Ok(exchanged) => break (endpoint, exchanged),
                Err(failed) => {
                    if endpoint.provider.name == provider::LOCAL {
                        // Its server is in doubt: it is looked for, or started, anew.
                        self.inner.local.release().await;
                        if !std::mem::replace(&mut anew, true) && failed.is_refused_connection() {
                            continue;
                        }
                    }
                    return Err(self.explain(&endpoint, &secrets, failed).await);
                }
            }
        };
        {
            let mut state = self.inner.state();
            if exchanged.plain && !state.plain.iter().any(|address| address == endpoint.address()) {
                state.plain.push(endpoint.address().to_owned());
            }
            if !exchanged.text.trim().is_empty() {
                let mark = match exchanged.ending {
                    Ending::Complete => "",
                    Ending::Interrupted => "\n\n[The user interrupted this reply here.]",
                    Ending::Cut(_) => "\n\n[This reply was cut off here.]",
                };
                state.conversation.answered(place, prompt, &format!("{}{mark}", exchanged.text));
            }
        }
        if exchanged.text.trim().is_empty() && exchanged.ending == Ending::Complete {
            let text = format!("{} answered without any text.", endpoint.full_name);
            let _ = events.send(Event::Notice(Notice::warning(text))).await;
        }
        Ok(Reply {
            text: exchanged.text,
            usage: exchanged.usage,
            ending: exchanged.ending,
            model: Some(endpoint.full_name),
        })
    }

    fn not_even_asked(&self) -> Reply {
        Reply {
            text: String::new(),
            usage: Usage::default(),
            ending: Ending::Interrupted,
            model: self.current(),
        }
    }

    async fn request(
        &self,
        endpoint: &Endpoint,
        place: &Place,
        prompt: &str,
        context: &str,
        events: &EventSender,
    ) -> Request {
        let dialogue = self.inner.state().conversation.dialogue(place, prompt, endpoint.budget);
        if let Some(turns) = dialogue.newly_left_out {
            let text = format!(
                "The conversation is long: its first {turns} turns are no longer sent to the model. \
                 %reset begins a new one."
            );
            // When nobody listens, the answer's events will say so.
            let _ = events.send(Event::Notice(Notice::info(text))).await;
        }
        Request {
            system: prompt::system(context, self.inner.settings.system.as_deref()),
            messages: dialogue.messages,
            temperature: self.inner.settings.temperature,
            max_tokens: self.inner.settings.max_tokens,
        }
    }

    async fn explain(&self, endpoint: &Endpoint, secrets: &[Secret], failed: NoAnswer) -> ChatError {
        let (NoAnswer::Failed(error) | NoAnswer::GaveUp(error, _)) = &failed;
        if matches!(error, model::ModelError::Status { status: 401 | 403, .. }) {
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

    /// Cells that no longer exist take their turns with them.
    pub fn forget(&self, cells: &[String]) {
        self.inner.state().conversation.forget(cells);
    }

    /// Forgets the whole conversation; the choice of model stays.
    pub fn reset(&self) {
        self.inner.state().conversation.reset();
    }

    /// Every model that can be switched to, as far as servers answer within two seconds.
    pub async fn models(&self) -> Listing {
        self.inner.list().await
    }

    /// Switches to another model. Nothing is asked of its server before the next question.
    ///
    /// # Errors
    /// [`ChatError::Name`] when the name can't be meant; it offers near ones.
    pub fn switch(&self, name: &str) -> Result<(), ChatError> {
        let choice = self.inner.understand(name)?;
        self.inner.state().chosen = Some(choice);
        Ok(())
    }

    /// The full name of the model in use or configured; `None`: it will be looked for at the first
    /// question.
    pub fn current(&self) -> Option<String> {
        self.inner.current_name().or_else(|| self.inner.settings.name.clone())
    }

    /// Names for completion, without waiting: what is configured and what listings have shown.
    pub fn known_names(&self) -> Vec<String> {
        self.inner.known_names()
    }

    /// Lets go of the local model's server, which ends with its last kernel.
    pub async fn shutdown(&self) {
        self.inner.local.release().await;
    }
}
