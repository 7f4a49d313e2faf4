//! One cell, from its text to its outcome.
//!
//! The order is always the same: what the kernel has to say, the magics at the head, the blocks of code that
//! are to run, until one fails, and then, when there is prose, the model with the code and what came of it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use super::block::{self, Given, Task};
use super::fence::Wishes;
use super::intent;
use super::{
    Completeness, Completions, Execute, HistoryEntry, HistoryQuery, Interpreter, LanguageInfo, Outcome,
    agent, asking, assist, language, magics,
};
use crate::cell::{self, Block, Dialect, Vocabulary};
use crate::chat::{Chat, Place, Prompt, Ran};
use crate::config::{AgentSettings, Flavor, Install, Status};
use crate::event::{Ask, Bundle, Event, EventSender, Failure, Notice, words};
use crate::sandbox::{ExecutionLog, Sandbox, Watch};

/// The kernel's engine: one sandbox, one conversation.
pub struct Engine {
    pub(super) flavor: Flavor,
    pub(super) sandbox: Sandbox,
    pub(super) chat: Chat,
    pub(super) words: Vocabulary,
    pub(super) habits: Habits,
    /// What questions to come are asked with.
    pub(super) asking: asking::State,
    /// What the settings refused or warned of; said with the first cell.
    warnings: Mutex<Vec<String>>,
    /// Settings that can't be used at all: every cell fails with this until they are mended.
    broken: Option<String>,
    /// What was said or decided once for all cells to come.
    memory: Mutex<Memory>,
    /// What was decided about the model's calls.
    agent: Mutex<agent::Memory>,
    /// Which blocks of a cell run.
    pub(super) intent: intent::Memory,
}

/// What was said or decided once for all cells to come; containers by name.
#[derive(Debug, Default)]
struct Memory {
    /// Containers whose first use has been.
    used: BTreeSet<String>,
    /// Containers in which everything runs without another confirmation.
    always: BTreeSet<String>,
    /// Packages that the user has agreed to, each with its container.
    packages: BTreeSet<String>,
}

/// What the engine is built from.
pub struct Parts {
    /// Which kernelspec runs.
    pub flavor: Flavor,
    /// Where code runs.
    pub sandbox: Sandbox,
    /// Who answers prose.
    pub chat: Chat,
    /// To be said with the first cell.
    pub warnings: Vec<String>,
    /// Settings that can't be used: what is wrong with them.
    pub broken: Option<String>,
    /// How it behaves.
    pub habits: Habits,
}

/// How an engine behaves, where users may choose.
#[derive(Debug, Clone)]
pub struct Habits {
    /// How much is said about each block.
    pub status: Status,
    /// What the model may do.
    pub agent: AgentSettings,
    /// Whether the model comments the outcome of cells without prose.
    pub explain: bool,
    /// Whether packages may be added.
    pub install: Install,
    /// Whether the notebook's directory is trusted.
    pub trusted: bool,
    /// The notebook's directory, which magics about files stay in.
    pub directory: PathBuf,
    /// Whether a line under each of the model's turns says what it cost.
    pub footer: bool,
    /// Where runs are recorded.
    pub log: Option<ExecutionLog>,
}

/// What the model is asked about a cell without prose.
const EXPLAIN: &str = "Explain in a few sentences what this code did and what its output means. If it failed, say \
                       why and how to mend it.";

/// What a cell is run with.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) events: &'a EventSender,
    pub(super) ask: &'a Arc<dyn Ask>,
    pub(super) cancel: &'a CancellationToken,
    /// The front end's identity of the cell, when it sends one.
    pub(super) cell: Option<&'a str>,
}

impl Engine {
    /// Puts an engine together; starts nothing.
    pub fn new(parts: Parts) -> Self {
        let words = parts
            .sandbox
            .languages()
            .iter()
            .fold(Vocabulary::new(), |words, language| {
                words.language(language.name, language.aliases.iter().copied())
            })
            .magics(magics::MAGICS.iter().map(|magic| magic.name));
        let dialect = dialect(parts.flavor);
        Engine {
            flavor: parts.flavor,
            sandbox: parts.sandbox,
            chat: parts.chat.spelling(dialect.sigil()),
            words,
            habits: parts.habits,
            asking: asking::State::default(),
            warnings: Mutex::new(parts.warnings),
            broken: parts.broken,
            memory: Mutex::default(),
            agent: Mutex::default(),
            intent: intent::Memory::default(),
        }
    }

    pub(super) fn agent_memory(&self) -> MutexGuard<'_, agent::Memory> {
        self.agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the first use of a container.
    pub(super) fn first_use(&self, container: &str) -> bool {
        self.memory().used.insert(container.to_owned())
    }

    /// Whether the user wants no more questions about a container's runs.
    pub(super) fn always(&self, container: &str) -> bool {
        self.memory().always.contains(container)
    }

    /// Whether the user has agreed to these packages before.
    pub(super) fn agreed(&self, packages: &str) -> bool {
        self.memory().packages.contains(packages)
    }

    pub(super) fn remember_agreed(&self, packages: String) {
        self.memory().packages.insert(packages);
    }

    pub(super) fn remember_always(&self, container: &str) {
        self.memory().always.insert(container.to_owned());
    }

    /// How this kernelspec's cells are read.
    pub(super) fn dialect(&self) -> Dialect {
        dialect(self.flavor)
    }

    async fn run_cell(&self, request: &Execute, around: Surroundings<'_>) -> Outcome {
        self.chat.forget(&request.deleted_cells);
        if let Some(broken) = &self.broken {
            return self.fail(around.events, Failure::new("SettingsError", broken)).await;
        }
        let warnings = std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner));
        for warning in warnings {
            send(around.events, Event::Notice(Notice::warning(warning))).await;
        }
        let ours = magics::packages::rewritten(&request.code, self.dialect().sigil());
        let code = ours.as_deref().unwrap_or(&request.code);
        let cell = match cell::parse(code, self.dialect(), &self.words) {
            Ok(cell) => cell,
            Err(error) => {
                return self.fail(around.events, Failure::new("CellError", error.to_string())).await;
            }
        };
        if !request.silent {
            self.asking.begins(request.count, &request.code);
        }
        // A cell that was emptied, or holds magics alone now, has nothing to put in its turn's place.
        let vacant = !request.silent && !cell.has_prose() && cell.blocks().next().is_none();
        if let Some(id) = request.cell_id.as_deref().filter(|_| vacant) {
            self.chat.vacate(id);
        }
        for directive in &cell.directives {
            if let Err(failure) = magics::run(self, directive, around).await {
                return self.fail(around.events, failure).await;
            }
        }
        let options = match self.options(&cell) {
            Ok(options) => options,
            Err(failure) => return self.fail(around.events, failure).await,
        };
        let intended = self.intended(&cell);
        let tasks = match self.tasks(&cell, |block| intended.runs(block)) {
            Ok(tasks) => tasks,
            Err(failure) => return self.fail(around.events, failure).await,
        };
        for unknown in block::unknown_words(code, &tasks) {
            send(around.events, Event::Notice(Notice::warning(unknown))).await;
        }
        let mut outcome = Outcome::default();
        outcome.metadata.extend(intended.metadata().map(|said| ("cellblock_intent".to_owned(), said)));
        if let Some(text) = intended.notice().filter(|_| !request.silent) {
            send(around.events, Event::Notice(Notice::info(text))).await;
        }
        // What a front end runs behind the user's back is no turn of the dialogue.
        let place = if request.silent {
            self.chat.begin_passing()
        } else {
            self.chat.begin(request.cell_id.as_deref(), &request.code)
        };
        self.run_blocks(request, &tasks, &place, around, &mut outcome).await;
        let interrupted = outcome.failure.is_some() && around.cancel.is_cancelled();
        let explain =
            tasks.iter().any(|task| task.wishes.explain) || (self.habits.explain && !tasks.is_empty());
        if !interrupted && cell.has_prose() {
            let failure = match self.question(&cell, options, around).await {
                Ok(question) => {
                    if let Some(text) = too_long(&question.prompt) {
                        send(around.events, Event::Notice(Notice::warning(text))).await;
                    }
                    self.converse(&question, request, &place, around, &mut outcome).await
                }
                Err(failure) => Some(failure),
            };
            if let Some(failure) = failure {
                send(around.events, Event::Error(failure.clone())).await;
                outcome.failure.get_or_insert(failure);
            }
        } else if !interrupted && explain && !request.silent {
            // A remark that nobody can make is no failure of the code.
            let question = asking::about(EXPLAIN);
            if let Some(failure) = self.converse(&question, request, &place, around, &mut outcome).await {
                let text = format!("The model can't explain this: {}", failure.evalue);
                send(around.events, Event::Notice(Notice::warning(text))).await;
            }
        }
        self.chat.pass(&place);
        outcome
    }

    /// Runs the blocks in order and stops at the first that fails.
    async fn run_blocks(
        &self,
        request: &Execute,
        tasks: &[Task<'_>],
        place: &Place,
        around: Surroundings<'_>,
        outcome: &mut Outcome,
    ) {
        // The cap on output is the cell's, not each block's.
        let mut shown = 0;
        let expressions_of = tasks.iter().rposition(|task| task.block.language == "python");
        for (index, task) in tasks.iter().enumerate() {
            let expressions =
                if expressions_of == Some(index) { request.user_expressions.clone() } else { Map::new() };
            let watch = Watch::default();
            let given = Given { expressions, shown, watch: Some(watch.clone()) };
            let run = self.run_block(request, task, given, around, outcome);
            let code = (task.block.language.as_str(), task.block.source.as_str());
            let Some(end) = self.kept(place, code, &watch, run).await else { return };
            shown = end.shown;
            let failed = end.failure.is_some();
            if !request.silent {
                let (language, source) = (task.block.language.clone(), task.block.source.clone());
                let images = block::pictures(&end);
                self.chat
                    .record_run(place, Ran { language, source, outcome: end.transcript, failed, images });
            }
            if failed {
                return;
            }
        }
        // Front ends may ask for expressions alone, with no code at all.
        if expressions_of.is_none() && !request.user_expressions.is_empty() {
            let block =
                &Block { language: "python".into(), source: String::new(), line: 1, attributes: Vec::new() };
            let quiet = Execute { silent: true, store_history: false, ..request.clone() };
            let task = Task { block, wishes: Wishes::default(), preferred: Vec::new() };
            let given = Given { expressions: request.user_expressions.clone(), shown, watch: None };
            self.run_block(&quiet, &task, given, around, outcome).await;
        }
    }

    /// What there is to say about where dialogues are kept.
    async fn say_remarks(&self, around: Surroundings<'_>) {
        for remark in self.chat.remarks() {
            send(around.events, Event::Notice(Notice::warning(remark))).await;
        }
    }

    pub(super) async fn fail(&self, events: &EventSender, failure: Failure) -> Outcome {
        send(events, Event::Error(failure.clone())).await;
        Outcome { failure: Some(failure), ..Outcome::default() }
    }
}

/// What the user is told of a prompt that is not sent whole.
fn too_long(prompt: &Prompt) -> Option<String> {
    let sent = prompt.cut_to()?;
    let figure = |bytes: usize| words::thousands(bytes as u64);
    Some(format!(
        "The prompt has {} bytes, and the model is sent {} of one at most: the {} in its middle are left out. Put the long \
         part into a file of the workspace, where code can read all of it, and mention the file (@name).",
        figure(prompt.text.len()),
        figure(sent),
        figure(prompt.text.len() - sent),
    ))
}

/// How a kernelspec's cells are read.
fn dialect(flavor: Flavor) -> Dialect {
    match flavor {
        Flavor::Markdown => Dialect::Markdown,
        Flavor::Python => Dialect::Python,
    }
}

/// Sends an event; a surface that is gone sees nothing more, and the run itself goes on to its end.
pub(super) async fn send(events: &EventSender, event: Event) {
    if events.send(event).await.is_err() {
        tracing::debug!("the surface is gone: an event was not shown");
    }
}

impl Interpreter for Engine {
    fn info(&self) -> LanguageInfo {
        language::info(self.flavor, self.sandbox.python().as_ref())
    }

    fn execute(
        &self,
        request: Execute,
        events: EventSender,
        ask: Arc<dyn Ask>,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Outcome> {
        Box::pin(async move {
            let cell = request.cell_id.as_deref();
            let around = Surroundings { events: &events, ask: &ask, cancel: &cancel, cell };
            self.say_remarks(around).await;
            let outcome = self.run_cell(&request, around).await;
            self.say_remarks(around).await;
            outcome
        })
    }

    fn complete<'a>(&'a self, code: &'a str, cursor: usize) -> BoxFuture<'a, Completions> {
        Box::pin(assist::complete(self, code, cursor))
    }

    fn inspect<'a>(&'a self, code: &'a str, cursor: usize, detail: u8) -> BoxFuture<'a, Option<Bundle>> {
        Box::pin(assist::inspect(self, code, cursor, detail))
    }

    fn is_complete<'a>(&'a self, code: &'a str) -> BoxFuture<'a, Completeness> {
        Box::pin(assist::is_complete(self, code))
    }

    fn remember(&self, line: u32, input: &str, output: Option<String>) {
        self.chat.record_line(line, input.to_owned(), output);
    }

    fn history(&self, query: HistoryQuery) -> BoxFuture<'_, Option<Vec<HistoryEntry>>> {
        Box::pin(self.chat.history(query))
    }

    fn keep(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.sandbox.keep_last())
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            tokio::join!(self.sandbox.shutdown(), self.chat.shutdown());
        })
    }
}
