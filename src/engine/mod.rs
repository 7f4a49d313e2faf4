//! What a cell means: directives, blocks to run, a model to ask.
//!
//! May import `event`, `config`, `cell`, `sandbox` and `chat`. The surfaces (`jupyter`, `cli`) drive it
//! through [`Interpreter`] alone.
//!
//! | module | what |
//! | --- | --- |
//! | `execute` | [`Engine`]: one cell from its text to its outcome |
//! | `magics` | the table of line magics; a new one is a row |
//! | `assist` | completion, inspection, is-it-complete |
//! | `language` | what `kernel_info` says about the language of the cells |

mod assist;
mod execute;
mod language;
mod magics;

pub use execute::{Engine, Parts};

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::event::{Ask, Bundle, EventSender, Failure};

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

    /// Ends everything: nothing remains of containers, processes and streams. Bounded by the caller.
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}
