//! One cell, from its text to its outcome.
//!
//! The order is always the same: what the kernel has to say, the magics at the head, the blocks of code until
//! one fails, and then, when there is prose, the model with the code and what came of it.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    Completeness, Completions, Execute, Interpreter, LanguageInfo, Outcome, assist, language, magics,
};
use crate::cell::{self, Block, Cell, Dialect, Vocabulary};
use crate::chat::{Chat, Place, Ran, Turn};
use crate::config::{Flavor, SandboxSettings};
use crate::event::{Ask, Bundle, Ending, Event, EventSender, Failure, Notice};
use crate::sandbox::{Run, RunEnd, Sandbox, policy};

/// The kernel's engine: one sandbox, one conversation.
pub struct Engine {
    pub(super) flavor: Flavor,
    pub(super) sandbox: Sandbox,
    pub(super) chat: Chat,
    pub(super) words: Vocabulary,
    limits: SandboxSettings,
    /// What the settings refused or warned of; said with the first cell.
    warnings: Mutex<Vec<String>>,
    /// Settings that can't be used at all: every cell fails with this until they are mended.
    broken: Option<String>,
}

/// What the engine is built from.
pub struct Parts {
    /// Which kernelspec runs.
    pub flavor: Flavor,
    /// Where code runs.
    pub sandbox: Sandbox,
    /// Who answers prose.
    pub chat: Chat,
    /// The limits that blocks may tighten.
    pub limits: SandboxSettings,
    /// To be said with the first cell.
    pub warnings: Vec<String>,
    /// Settings that can't be used: what is wrong with them.
    pub broken: Option<String>,
}

/// What a cell is run with.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) events: &'a EventSender,
    pub(super) ask: &'a Arc<dyn Ask>,
    pub(super) cancel: &'a CancellationToken,
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
        Engine {
            flavor: parts.flavor,
            sandbox: parts.sandbox,
            chat: parts.chat,
            words,
            limits: parts.limits,
            warnings: Mutex::new(parts.warnings),
            broken: parts.broken,
        }
    }

    /// How this kernelspec's cells are read.
    pub(super) fn dialect(&self) -> Dialect {
        match self.flavor {
            Flavor::Markdown => Dialect::Markdown,
            Flavor::Python => Dialect::Python,
        }
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
        let cell = match cell::parse(&request.code, self.dialect(), &self.words) {
            Ok(cell) => cell,
            Err(error) => {
                return self.fail(around.events, Failure::new("CellError", error.to_string())).await;
            }
        };
        for directive in &cell.directives {
            if let Err(failure) = magics::run(self, directive, around).await {
                return self.fail(around.events, failure).await;
            }
        }
        let mut outcome = Outcome::default();
        let place = self.chat.begin(request.cell_id.as_deref());
        self.run_blocks(request, &cell, &place, around, &mut outcome).await;
        let interrupted = outcome.failure.is_some() && around.cancel.is_cancelled();
        if cell.has_prose() && !interrupted {
            self.ask_model(&cell, &place, around, &mut outcome).await;
        }
        outcome
    }

    /// Runs the blocks in order and stops at the first that fails.
    async fn run_blocks(
        &self,
        request: &Execute,
        cell: &Cell,
        place: &Place,
        around: Surroundings<'_>,
        outcome: &mut Outcome,
    ) {
        let blocks: Vec<&Block> = cell.blocks().collect();
        // The cap on output is the cell's, not each block's.
        let mut shown = 0;
        let expressions_of = blocks.iter().rposition(|block| block.language == "python");
        for (index, block) in blocks.iter().enumerate() {
            let wanted =
                if expressions_of == Some(index) { request.user_expressions.clone() } else { Map::new() };
            let Some(end) = self.run_block(request, block, (wanted, shown), around, outcome).await else {
                return;
            };
            shown = end.shown;
            let failed = end.failure.is_some();
            if !request.silent {
                let (language, source) = (block.language.clone(), block.source.clone());
                self.chat.record_run(place, Ran { language, source, outcome: end.transcript, failed });
            }
            if failed {
                return;
            }
        }
        // Front ends may ask for expressions alone, with no code at all.
        if expressions_of.is_none() && !request.user_expressions.is_empty() {
            let empty =
                Block { language: "python".into(), source: String::new(), line: 1, attributes: Vec::new() };
            let quiet = Execute { silent: true, store_history: false, ..request.clone() };
            self.run_block(&quiet, &empty, (request.user_expressions.clone(), shown), around, outcome).await;
        }
    }

    /// Runs one block and takes its end into the cell's outcome; `None` when it was not allowed to start.
    async fn run_block(
        &self,
        request: &Execute,
        block: &Block,
        (user_expressions, shown): (Map<String, Value>, u64),
        around: Surroundings<'_>,
        outcome: &mut Outcome,
    ) -> Option<RunEnd> {
        let run = Run {
            count: request.count,
            line: block.line,
            silent: request.silent,
            store_history: request.store_history,
            user_expressions,
            shown,
            ..Run::new(&block.language, &block.source)
        };
        let approved = block_timeout(block).and_then(|timeout| {
            policy::approve(Run { timeout, ..run }, &self.limits).map_err(|e| e.to_string())
        });
        let approved = match approved {
            Ok(approved) => approved,
            Err(refusal) => {
                *outcome = self.fail(around.events, Failure::new("Refused", refusal)).await;
                return None;
            }
        };
        let end =
            self.sandbox.run(approved, around.events, Arc::clone(around.ask), around.cancel.clone()).await;
        outcome.failure.clone_from(&end.failure);
        outcome.payload.extend(end.payload.iter().cloned());
        outcome.user_expressions.extend(end.user_expressions.clone());
        let figures = json!({
            "language": block.language,
            "duration_ms": u64::try_from(end.duration.as_millis()).unwrap_or(u64::MAX),
            "exit_code": end.exit_code,
        });
        if let Value::Array(runs) = outcome.metadata.entry("cellblock_runs").or_insert_with(|| json!([])) {
            runs.push(figures);
        }
        Some(end)
    }

    /// Asks the model, which sees the whole cell and what its code did. A failure of the code stays the cell's.
    async fn ask_model(&self, cell: &Cell, place: &Place, around: Surroundings<'_>, outcome: &mut Outcome) {
        let context = self.sandbox.describe();
        let turn = Turn { place, prompt: &cell.prompt, context: &context };
        let failure = match self.chat.ask(turn, around.events, around.cancel.clone()).await {
            Ok(reply) => {
                if let Some(model) = reply.model {
                    outcome.metadata.insert("cellblock_model".into(), Value::String(model));
                }
                match reply.ending {
                    Ending::Complete => return,
                    Ending::Interrupted if reply.text.is_empty() => {
                        Failure::new("KeyboardInterrupt", "the model was interrupted before it said anything")
                    }
                    Ending::Interrupted => Failure::new(
                        "KeyboardInterrupt",
                        "the reply was interrupted; what the model had said stays",
                    ),
                    Ending::Cut(why) => Failure::new("ReplyCut", why),
                }
            }
            Err(error) => error.failure(),
        };
        send(around.events, Event::Error(failure.clone())).await;
        outcome.failure.get_or_insert(failure);
    }

    async fn fail(&self, events: &EventSender, failure: Failure) -> Outcome {
        send(events, Event::Error(failure.clone())).await;
        Outcome { failure: Some(failure), ..Outcome::default() }
    }
}

/// Sends an event; a surface that is gone sees nothing more, and the run itself goes on to its end.
pub(super) async fn send(events: &EventSender, event: Event) {
    if events.send(event).await.is_err() {
        tracing::debug!("the surface is gone: an event was not shown");
    }
}

/// The fence's own `timeout=SECONDS`.
fn block_timeout(block: &Block) -> Result<Option<std::time::Duration>, String> {
    let Some(text) = block.value("timeout") else {
        if block.has("timeout") {
            let line = block.line;
            return Err(format!(
                "the fence above line {line}: timeout needs a value in seconds, as timeout=10"
            ));
        }
        return Ok(None);
    };
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds.is_finite() => {
            std::time::Duration::try_from_secs_f64(seconds)
                .map(Some)
                .map_err(|e| format!("timeout={text}: {e}"))
        }
        _ => Err(format!(
            "the fence above line {}: timeout={text} is not a number of seconds above 0",
            block.line
        )),
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
            let around = Surroundings { events: &events, ask: &ask, cancel: &cancel };
            self.run_cell(&request, around).await
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

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            tokio::join!(self.sandbox.shutdown(), self.chat.shutdown());
        })
    }
}
