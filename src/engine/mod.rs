//! What a cell means: directives, blocks to run, a model to ask.
//!
//! May import `event`, `config`, `cell`, `sandbox` and `chat`. The surfaces (`jupyter`, `cli`) drive it
//! through [`Interpreter`] alone.
//!
//! | module | what |
//! | --- | --- |
//! | `execute` | [`Engine`]: one cell from its text to its outcome |
//! | `block` | one block: what it asks for, whether it may run, what is said of it |
//! | `asking` | from a cell to a question for the model |
//! | `lasting` | blocks that last: written down while they run |
//! | `agent` | one turn of the dialogue: replies, calls of tools, what came of them |
//! | `spending` | budgets, and the line under a turn that says what it cost |
//! | `confirm` | questions to the user before something happens |
//! | `status` | the quiet line about a block that runs |
//! | `diagnose` | which limit a failure has to do with |
//! | `intent` | which blocks of a cell run |
//! | `fence` | what a fence's attributes ask for |
//! | `magics` | the table of line magics; a new one is a row |
//! | `assist` | completion, inspection, is-it-complete |
//! | `language` | what `kernel_info` says about the language of the cells |

mod agent;
mod asking;
mod assist;
mod block;
mod confirm;
mod diagnose;
mod execute;
mod fence;
mod intent;
mod language;
mod lasting;
mod magics;
mod spending;
mod status;

pub use execute::{Engine, Habits, Parts};

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::event::{Ask, Bundle, EventSender, Failure};

pub use crate::chat::{HistoryAccess, HistoryEntry, HistoryQuery, glob};
pub use crate::sandbox::{Completeness, Completions};

/// One cell to execute, with what its front end said about it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Execute {
    /// The cell's text.
    pub code: String,
    /// The front end's identity of the cell, when it sends one.
    pub cell_id: Option<String>,
    /// Cells that were deleted since the last request.
    pub deleted_cells: Vec<String>,
    /// The execution count that the reply will carry.
    pub count: u32,
    /// As quietly as possible: no result, no history.
    pub silent: bool,
    /// Whether histories take it up.
    pub store_history: bool,
    /// Expressions to evaluate after the code, by name.
    pub user_expressions: Map<String, Value>,
}

/// How a cell ended. Its outputs, an error included, went through the [`EventSender`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// `None`: it succeeded. The same failure was sent as an event.
    pub failure: Option<Failure>,
    /// The protocol's `payload` list.
    pub payload: Vec<Value>,
    /// Values of the user expressions.
    pub user_expressions: Map<String, Value>,
    /// Figures for the reply's metadata.
    pub metadata: Map<String, Value>,
}

/// What `language_info` in a `kernel_info_reply` says.
#[derive(Debug, Clone, PartialEq)]
pub struct LanguageInfo {
    /// The kernel's banner.
    pub banner: String,
    /// The `language_info` object.
    pub language_info: Value,
}

/// What a surface needs: the one interface through which front ends drive the kernel.
///
/// [`Engine`] is the real one; tests of the surfaces script it.
pub trait Interpreter: Send + Sync + 'static {
    /// What language the cells are in; never waits for the sandbox.
    fn info(&self) -> LanguageInfo;

    /// Runs one cell to its end. When `cancel` fires it ends within 2 seconds, keeping what was shown;
    /// dropping the future is not the way to cancel.
    fn execute(
        &self,
        request: Execute,
        events: EventSender,
        ask: Arc<dyn Ask>,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Outcome>;

    /// Completes at `cursor`, counted in code points.
    fn complete<'a>(&'a self, code: &'a str, cursor: usize) -> BoxFuture<'a, Completions>;

    /// Documentation of what is at `cursor`, counted in code points; `None` when there is none.
    fn inspect<'a>(&'a self, code: &'a str, cursor: usize, detail: u8) -> BoxFuture<'a, Option<Bundle>>;

    /// Whether the code is ready to run.
    fn is_complete<'a>(&'a self, code: &'a str) -> BoxFuture<'a, Completeness>;

    /// Keeps a cell that ran for histories: its execution count, its text, the text of its result.
    fn remember(&self, _line: u32, _input: &str, _output: Option<String>) {}

    /// The cells that are asked for, over all kernels of the same notebook, oldest first; `None`: only the surface knows.
    fn history(&self, _query: HistoryQuery) -> BoxFuture<'_, Option<Vec<HistoryEntry>>> {
        Box::pin(async { None })
    }

    /// The end is near, and in order: saves what is to be kept. Takes no time when there is nothing; bounded otherwise.
    fn keep(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Ends everything: nothing remains of containers, processes and streams. Bounded by the caller.
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}
