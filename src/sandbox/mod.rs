//! Containers that run code: the engine, the supervisor inside, sessions, limits, reaping.
//!
//! May import `event` and `config`. The layers, from the outside in:
//!
//! | module | what |
//! | --- | --- |
//! | `backend` | [`backend::Backend`] and [`backend::Container`]: start, two byte streams, destroy; speaks no protocol |
//! | `docker` | the Docker API behind them; its types never leave it |
//! | `registry` | which containers there are: built-in, the user's, the project's |
//! | `definition` | one of them: what it is made of, what it may do |
//! | `packages` | names of packages to add to an image, checked |
//! | `spec` | what a container is given: mounts, limits, user, defences |
//! | `owner` | whose it is, in labels; whether that kernel lives |
//! | `image` | which image, building or pulling it |
//! | `reaper` | nothing stays when the kernel is killed |
//! | `workspace` | the host directory, opened without following links |
//! | `runner` | the frame protocol and the script that runs inside |
//! | `session` | an actor before a live supervisor |
//! | `output` | cap and coalescing of what a run shows |
//! | `artifacts` | what a run leaves in its folder: noticed, shown, kept or removed |
//! | `disk` | how much a run's folders may grow |
//! | `spill` | the file for what is not shown |
//! | `pictures` | pictures that a run has shown, so that none is shown twice |
//! | `transcript` | what the model may be told of it |
//! | `watch` | what it has shown so far |
//! | `language` | the table of languages |
//! | `policy` | what may run: [`policy::Approved`] |
//! | `files` | single files of the workspace, as a model's tools see them |
//! | `transfer` | files between the host and a container |
//! | `archive` | archives from the guest, which lead nowhere else |
//! | `checkpoint` | what a session holds, kept and brought back |
//! | `pool` | one session for each container in use, spares for ephemeral ones, who has to wait |
//! | `execution_log` | who ran what where, in a file |
//! | `survey` | what runs where, and how to end it |
//! | `turns` | how many blocks run at once, over all kernels |
//! | `who` | who set a limit, in words |
//! | `install` | packages for a session, images made anew |
//! | `facade` | [`Sandbox`]: the one door for the floors below |

pub mod archive;
pub mod artifacts;
pub mod backend;
pub mod checkpoint;
pub mod definition;
mod disk;
mod execution_log;
mod facade;
pub mod files;
pub mod install;
pub mod language;
mod output;
pub mod packages;
mod pictures;
pub mod policy;
mod pool;
pub mod registry;
pub mod runner;
mod session;
pub mod spill;
mod survey;
mod transcript;
pub mod transfer;
mod turns;
mod watch;
mod who;

pub use execution_log::{Entry, ExecutionLog};
pub use facade::Sandbox;
pub(crate) use output::size;
pub use registry::Registry;
pub use session::Inventory;
pub use survey::{Activity, Surveyed};
pub use transcript::Picture;
pub use turns::Turns;
pub use watch::Watch;
pub(crate) use who::By;
pub mod docker;
pub mod image;
pub mod owner;
pub mod reaper;
pub mod spec;
pub mod workspace;

use std::time::Duration;

use crate::event::Failure;
use packages::Packages;
use serde_json::{Map, Value};

/// Texts that become variables of the Python session: data, nothing of them is ever executed.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Texts {
    /// Changes with every change of what is in it: a session takes each version once.
    pub version: u64,
    /// The variables.
    pub values: Vec<NamedText>,
}

/// A text and the name of its variable.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct NamedText {
    /// A Python identifier.
    pub name: String,
    /// What it holds.
    pub text: String,
    /// Whether it takes the place of a variable that the user has assigned.
    pub replace: bool,
}

/// One block of code to run.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "they are what a request says, each by itself")]
pub struct Run {
    /// Canonical language name (`python`, `sh`).
    pub language: String,
    /// The container that it must run in.
    pub container: Option<String>,
    /// Containers that are preferred when they run the language, the first one most.
    pub preferred: Vec<String>,
    /// Whether it wants a container of its own, for itself alone.
    pub ephemeral: bool,
    /// Limits that it sets itself. They can tighten the container's, never widen them.
    pub tighter: Tighter,
    /// Packages that it needs.
    pub packages: Packages,
    /// What a process reads from its standard input; `None`: nothing, at once.
    pub stdin: Option<String>,
    /// The code.
    pub source: String,
    /// The cell's execution count, for `In [n]` in tracebacks.
    pub count: u32,
    /// Line of the cell in which the code begins, from 1 (tracebacks count from the code's own line 1).
    pub line: usize,
    /// Neither results nor history (`silent`).
    pub silent: bool,
    /// Whether the Python session's own history (`In`, `Out`, `_`) takes it up.
    pub store_history: bool,
    /// Expressions to evaluate after the code (Python only).
    pub user_expressions: Map<String, Value>,
    /// Texts to put into the Python session before the code.
    pub texts: Texts,
    /// Bytes that earlier blocks of the same cell have shown ([`RunEnd::shown`]): the cap is the cell's.
    pub shown: u64,
    /// Whether it runs in the session of the model's own instead of the user's: other variables and processes,
    /// the same `/workspace` and `/session`.
    pub isolated: bool,
    /// Whether a model wrote it. What it leaves behind in the session (a thread, a function of its own in the place of
    /// `input`) can ask questions in later runs, which are marked from then on.
    pub of_model: bool,
    /// Who looks at its output while it runs.
    pub watch: Option<Watch>,
}

impl Run {
    /// A run with nothing special about it.
    pub fn new(language: impl Into<String>, source: impl Into<String>) -> Self {
        Run {
            language: language.into(),
            container: None,
            preferred: Vec::new(),
            ephemeral: false,
            tighter: Tighter::default(),
            packages: Packages::default(),
            stdin: None,
            source: source.into(),
            count: 1,
            line: 1,
            silent: false,
            store_history: true,
            user_expressions: Map::new(),
            texts: Texts::default(),
            shown: 0,
            isolated: false,
            of_model: false,
            watch: None,
        }
    }
}

/// Limits that a block sets itself; `None`: the container's.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tighter {
    /// The longest it may run.
    pub timeout: Option<Duration>,
    /// Bytes of output that its cell may show.
    pub output: Option<u64>,
    /// Memory in bytes: only in an ephemeral container.
    pub memory: Option<u64>,
    /// CPUs' worth of time: only in an ephemeral container.
    pub cpus: Option<f64>,
    /// Processes and threads: only in an ephemeral container.
    pub pids: Option<i64>,
}

/// How a block ended. What it showed went through the [`EventSender`](crate::event::EventSender), its error
/// included.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunEnd {
    /// `None`: it succeeded. The failure was sent as an event, once: the last one, unless Python showed something
    /// after it (figures drawn at a cell's end).
    pub failure: Option<Failure>,
    /// Which container ran it; empty when none did.
    pub container: String,
    /// The engine's id of that container; `None` when none ran, or the engine has no such ids.
    pub container_id: Option<String>,
    /// The engine's id of the image that ran.
    pub image: String,
    /// Exit code of a process (`sh`), also of one that was stopped; `None` for Python, whose code has none.
    pub exit_code: Option<i64>,
    /// The most memory that its processes used, in bytes, where it is known.
    pub peak_memory: Option<u64>,
    /// Bytes that it wrote to the two streams.
    pub written: u64,
    /// How long it ran, waiting for input not counted.
    pub duration: Duration,
    /// The protocol's `payload` list (`set_next_input`, `page`).
    pub payload: Vec<Value>,
    /// Values of the user expressions.
    pub user_expressions: Map<String, Value>,
    /// What the model may be told of the output: head and tail of both streams and text results.
    pub transcript: String,
    /// The first pictures that it showed.
    pub pictures: Vec<Picture>,
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
