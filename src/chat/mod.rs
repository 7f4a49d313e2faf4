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
//! | `ask` | from a question to the reply that the dialogue keeps |
//! | `exchange`, `retry` | one request and its answer on the wire; patience |
//! | `shown`, `think`, `written`, `forming` | a reply on the page; inline reasoning; calls written as text; calls while they form |
//! | `turn` | what a question and its answer are made of |
//! | `conversation`, `prompt` | the dialogue by cells; what the model is told about itself |
//! | `dialogue`, `running`, `store` | recording, showing and changing it; code that still runs; dialogues and history on disk |
//! | `small` | how the small local model is asked to work |
//! | `listing`, `find` | which models there are, and which one is meant |
//! | `local` | the small model on this machine, one server per user |
//! | `pictures` | what of pictures a model is sent |
//! | `mask` | keys out of what servers say |
//! | `replay` | recorded replies |
//! | `cost` | prices, what was spent, budgets; which models see pictures |
//! | `refusal` | what servers mean when they refuse |
//! | `progress`, `error` | what is being waited for; why there is no answer, in words |

mod ask;
mod conversation;
pub mod cost;
mod dialogue;
mod environment;
mod error;
mod exchange;
mod find;
mod forming;
mod key;
mod listing;
mod local;
mod mask;
mod model;
mod name;
mod pictures;
mod progress;
mod prompt;
mod provider;
mod refusal;
pub mod replay;
mod retry;
mod running;
mod shown;
mod small;
mod store;
mod think;
mod turn;
mod written;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::{BudgetSettings, ModelSettings, Replay, Secret};
use crate::event::{Ending, Usage};

pub use conversation::{Place, Ran};
pub use dialogue::{Context, ContextTurn, Mark, Resumption};
pub use environment::ProviderEnvironment;
pub use error::ChatError;
pub use listing::{ListedModel, Listing};
pub use running::Running;
pub use store::{Access as HistoryAccess, HistoryEntry, HistoryQuery, Keeping, glob};
pub use turn::{Attachment, CodeArguments, Content, Image, Options, Prompt, Tool, ToolCall, ToolResult};
pub use written::Told;

use conversation::Conversation;
use cost::{Catalog, Ledger};
use find::Choice;
use model::{Connections, Understands};
use replay::Recordings;

/// A question to the model, or, after [`Chat::record_results`], the same question once more with what came of the
/// model's calls.
#[derive(Debug, Clone, Copy)]
pub struct Turn<'a> {
    /// Where it stands in the dialogue: of [`Chat::begin`], the same for everything in one execution.
    pub place: &'a Place,
    /// What the user asks.
    pub prompt: &'a Prompt,
    /// What the model should know about the sandbox, in whole sentences.
    pub context: &'a str,
    /// What the model may call; none: it can only talk.
    pub tools: &'a [Tool],
    /// How this question differs from the settings.
    pub options: &'a Options,
}

/// An answer. What it showed went through the [`EventSender`](crate::event::EventSender).
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The text without reasoning; partial unless the ending is [`Ending::Complete`].
    pub text: String,
    /// The calls that the model wants made, in the order of their arrival; none unless the ending is
    /// [`Ending::Complete`].
    pub calls: Vec<ToolCall>,
    /// Tokens and times.
    pub usage: Usage,
    /// Why it ended. [`Ending::Interrupted`] may come with no text, and then nothing was shown.
    pub ending: Ending,
    /// The model's full name, when it was known by then.
    pub model: Option<String>,
    /// Whether tools were offered, which some servers refuse: then the model was asked without them.
    pub could_call: bool,
    /// It came out of a recording: no model was asked, and nothing was spent.
    pub recorded: bool,
    /// Fences marked `run` in the text are calls, except those that quote this; `None`: all are text.
    pub marked: Option<Told>,
}

/// Talks to models, for one kernel.
#[derive(Debug)]
pub struct Chat {
    inner: Inner,
    ledger: Ledger,
    store: Option<Arc<store::Store>>,
    recordings: Option<Arc<Recordings>>,
    /// What stands before the name of a magic where this kernel's cells are read.
    sigil: &'static str,
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
    /// The full name of the model that the user switched to.
    switched: Option<String>,
    /// Full names seen in listings.
    known: Vec<String>,
    /// The key that the command gave.
    commanded: Option<Secret>,
    /// What servers take of a request, by address and model, where something was refused.
    understands: HashMap<(String, String), Understands>,
    /// How much dialogue they take, in bytes, where one refused more.
    windows: HashMap<(String, String), usize>,
    /// The model's window, once it is known, in bytes.
    window: Option<usize>,
    /// The text of the last request, in bytes; 0: it carried pictures.
    sent: usize,
    /// Bytes of text that make a token, as the last server counted.
    density: Option<f64>,
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
            ledger: Ledger::new(Arc::default(), &BudgetSettings::default()),
            store: None,
            recordings: None,
            sigil: "%",
        }
        .recording(None, Path::new(""))
    }

    /// With recorded replies as the settings want them, of this notebook or, where it is not known, in this folder.
    #[must_use]
    pub fn recording(self, notebook: Option<&Path>, folder: &Path) -> Chat {
        let ModelSettings { replay, replay_file, .. } = &self.inner.settings;
        let recordings = (*replay != Replay::Off)
            .then(|| Arc::new(Recordings::new(*replay, replay_file.as_deref(), notebook, folder)));
        Chat { recordings, ..self }
    }

    /// With what the user knows of models, and what they may cost.
    #[must_use]
    pub fn with_costs(self, catalog: Catalog, budget: &BudgetSettings) -> Chat {
        Chat { ledger: Ledger::new(Arc::new(catalog), budget), ..self }
    }

    /// With magics spelt as this kernel's cells have them, for what the user is told.
    #[must_use]
    pub fn spelling(self, sigil: &'static str) -> Chat {
        Chat { sigil, ..self }
    }

    /// The user's own limit on a reply's tokens.
    pub fn max_tokens(&self) -> Option<u64> {
        self.inner.settings.max_tokens
    }

    /// What was spent, and what may be.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
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
        let mut state = self.inner.state();
        state.switched = Some(choice.full_name());
        state.chosen = Some(choice);
        drop(state);
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

    /// Lets go of the local model's server, which ends with its last kernel, and waits for the disk.
    pub async fn shutdown(&self) {
        tokio::join!(self.inner.local.release(), self.settle());
    }
}
