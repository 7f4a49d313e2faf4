//! Containers that run code: the engine, the supervisor inside, sessions, limits, reaping.
//!
//! May import `event` and `config`. The layers, from the outside in:
//!
//! | module | what |
//! | --- | --- |
//! | `backend` | [`backend::Backend`] and [`backend::Container`]: start, two byte streams, destroy; speaks no protocol |
//! | `docker` | the Docker API behind them; its types never leave it |
//! | `spec` | what a container is given: mounts, limits, user, defences |
//! | `owner` | whose it is, in labels; whether that kernel lives |
//! | `image` | which image, building or pulling it |
//! | `reaper` | nothing stays when the kernel is killed |
//! | `workspace` | the host directory, opened without following links |
//! | `runner` | the frame protocol and the script that runs inside |
//! | `session` | an actor before a live supervisor |
//! | `output` | cap and coalescing of what a run shows |
//! | `spill` | the file for what is not shown |
//! | `transcript` | what the model may be told of it |
//! | `language` | the table of languages |
//! | `policy` | what may run: [`policy::Approved`] |
//! | `facade` | [`Sandbox`]: the one door for the floors below |

pub mod backend;
mod facade;
pub mod language;
mod output;
pub mod policy;
pub mod runner;
mod session;
pub mod spill;
mod transcript;

pub use facade::Sandbox;
pub mod docker;
pub mod image;
pub mod owner;
pub mod reaper;
pub mod spec;
pub mod workspace;

use std::time::Duration;

use crate::event::Failure;
use serde_json::{Map, Value};

/// One block of code to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Canonical language name (`python`, `sh`).
    pub language: String,
    /// The code.
    pub source: String,
    /// The cell's execution count, for `In [n]` in tracebacks.
    pub count: u32,
    /// Line of the cell in which the code begins, from 1 (tracebacks count from the code's own line 1).
    pub line: usize,
    /// The longest it may run; `None`: the setting. Can tighten the setting, never widen it.
    pub timeout: Option<Duration>,
    /// Neither results nor history (`silent`).
    pub silent: bool,
    /// Whether the Python session's own history (`In`, `Out`, `_`) takes it up.
    pub store_history: bool,
    /// Expressions to evaluate after the code (Python only).
    pub user_expressions: Map<String, Value>,
    /// Bytes that earlier blocks of the same cell have shown ([`RunEnd::shown`]): the cap is the cell's.
    pub shown: u64,
}

impl Run {
    /// A run with nothing special about it.
    pub fn new(language: impl Into<String>, source: impl Into<String>) -> Self {
        Run {
            language: language.into(),
            source: source.into(),
            count: 1,
            line: 1,
            timeout: None,
            silent: false,
            store_history: true,
            user_expressions: Map::new(),
            shown: 0,
        }
    }
}

/// How a block ended. What it showed went through the [`EventSender`](crate::event::EventSender), its error
/// included.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunEnd {
    /// `None`: it succeeded. The failure was sent as an event, once: the last one, unless Python showed something
    /// after it (figures drawn at a cell's end).
    pub failure: Option<Failure>,
    /// Exit code of a process (`sh`); `None` for Python.
    pub exit_code: Option<i64>,
    /// How long it ran, waiting for input not counted.
    pub duration: Duration,
    /// The protocol's `payload` list (`set_next_input`, `page`).
    pub payload: Vec<Value>,
    /// Values of the user expressions.
    pub user_expressions: Map<String, Value>,
    /// What the model may be told of the output: head and tail of both streams and text results.
    pub transcript: String,
    /// Bytes that the cell has shown so far, this block included.
    pub shown: u64,
}

/// Completions, in the terms of `complete_reply`; positions count Unicode code points.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Completions {
    /// The texts that may replace `start..end`.
    pub matches: Vec<String>,
    /// Where the replaced text begins, in code points.
    pub start: usize,
    /// Where it ends, in code points.
    pub end: usize,
    /// The protocol's metadata (`_jupyter_types_experimental`).
    pub metadata: Map<String, Value>,
}

/// Whether code is ready to run (`is_complete_reply`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completeness {
    /// Ready.
    Complete,
    /// More lines are expected, indented like this.
    Incomplete {
        /// The indentation to offer.
        indent: String,
    },
    /// Never valid.
    Invalid,
    /// Can't tell now.
    Unknown,
}

/// What Python the sandbox has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonInfo {
    /// `3.11.2`.
    pub version: String,
    /// `IPython`'s version, when the image has it.
    pub ipython: Option<String>,
}
