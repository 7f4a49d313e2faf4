//! What a container is made of and what it may do, as a user defines it.
//!
//! May import `config`. Definitions come from the [`registry`](super::registry); everything that starts,
//! limits or describes a container reads one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::config::SandboxSettings;

use super::language;
use super::packages::Packages;
use super::spec::Identity;

/// The container that is there without any registry.
pub const PYTHON: &str = "python";
/// The container for other languages than Python.
pub const POLYGLOT: &str = "polyglot";

/// One container that users can name.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Its name: letters, digits, `-`, `_`, `.`; at most 64.
    pub name: String,
    /// What it is for, in a line.
    pub description: String,
    /// Canonical names of the languages that it runs.
    pub languages: Vec<&'static str>,
    /// Phrases that choose it when a cell's prose has one of them.
    pub triggers: Vec<String>,
    /// Whether its container lives as long as the kernel.
    pub mode: Mode,
    /// Where its image comes from.
    pub source: Source,
    /// `SYSTEM.md`: how the model should use it.
    pub guide: Option<String>,
    /// The user's settings with the definition's resources and security in their place.
    pub limits: SandboxSettings,
    /// Whether the root file system is read-only.
    pub read_only: bool,
    /// Whether each block is shown to the user and confirmed before it runs.
    pub confirm: bool,
    /// The user that code runs as.
    pub user: User,
    /// The filter of system calls.
    pub seccomp: Seccomp,
    /// Further directories of the host.
    pub mounts: Vec<Mount>,
    /// Variables, besides the image's own.
    pub environment: Vec<(String, String)>,
    /// Packages to add to the image.
    pub packages: Packages,
    /// How far workspace and session folder together may grow during one run, in bytes.
    pub disk: Option<u64>,
    /// Whether the last state is kept when the kernel ends in order.
    pub keep: bool,
    /// What the definition asked for and was not given, each with the way to allow it. Said at its first use.
    pub withheld: Vec<String>,
    /// Why it can't be used at all as long as that is so (an image that would be built from an untrusted
    /// Dockerfile), and what to do.
    pub refused: Option<String>,
    /// Where it was defined, for a person: `built in`, or the file.
    pub origin: String,
}

/// How long a container lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As long as the kernel: variables, processes and files stay from block to block.
    Session,
    /// One block.
    Ephemeral,
}

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A Dockerfile that this program carries: its name in `image::recipe`.
    Builtin(&'static str),
    /// A name or id that the engine knows or can pull.
    Image(String),
    /// A Dockerfile of the user's.
    Build(Build),
}

/// How an image of the user's own is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// The folder that is sent to the engine.
    pub context: PathBuf,
    /// The Dockerfile, below the context.
    pub dockerfile: PathBuf,
    /// Build arguments.
    pub arguments: Vec<(String, String)>,
    /// The stage to build; `None`: the last.
    pub target: Option<String>,
    /// The hash of what the user trusted: nothing else may be sent to the engine. `None`: whatever is there.
    pub seal: Option<[u8; 32]>,
}

/// The user that code runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// See [`Identity::inside`].
    Auto,
    /// This one.
    Id(Identity),
}

/// The filter of system calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seccomp {
    /// The engine's default profile.
    Default,
    /// A profile from a file (JSON, as the engine takes it).
    Profile(String),
}

/// A directory of the host, seen in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The host's directory: absolute.
    pub host: PathBuf,
    /// Where it is seen: absolute.
    pub path: String,
    /// Whether it can only be read.
    pub read_only: bool,
}

impl Definition {
    /// The container of the `[sandbox]` settings: Python and a shell.
    pub fn python(settings: &SandboxSettings) -> Self {
        Definition {
            name: PYTHON.to_owned(),
            description: "Python with IPython, NumPy, pandas and matplotlib; a shell".to_owned(),
            languages: vec!["python", "sh", "bash"],
            triggers: Vec::new(),
            mode: Mode::Session,
            source: Source::Builtin(PYTHON),
            guide: None,
            limits: settings.clone(),
            read_only: true,
            confirm: false,
            user: User::Auto,
            seccomp: Seccomp::Default,
            mounts: Vec::new(),
            environment: Vec::new(),
            packages: Packages::default(),
            disk: None,
            keep: false,
            withheld: Vec::new(),
            refused: None,
            origin: "built in".to_owned(),
        }
    }

    /// The container for other languages than Python: all those that Debian has packages for.
    pub fn polyglot(settings: &SandboxSettings) -> Self {
        let mut own = Definition::python(settings);
        POLYGLOT.clone_into(&mut own.name);
        "Thirteen languages from Debian's packages: shell, JavaScript, TypeScript, Java, C, C++, Go, Rust, Ruby, R, \
         Perl, PHP, SQL (SQLite); and plain Python"
            .clone_into(&mut own.description);
        own.languages = Definition::all_languages();
        own.source = Source::Builtin(POLYGLOT);
        own.guide = Some(include_str!("../../containers/polyglot/SYSTEM.md").to_owned());
        // These name the Python image.
        (own.limits.image, own.limits.built_image) = (None, None);
        own
    }

    /// Whether it runs the language of that canonical name.
    pub fn runs(&self, language: &str) -> bool {
        self.languages.contains(&language)
    }

    /// Every language that it may name.
    pub fn all_languages() -> Vec<&'static str> {
        language::LANGUAGES.iter().map(|language| language.name).collect()
    }
}

/// The `settings:` of a registry.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolSettings {
    /// Blocks that may run at once, over all kernels of this user; `None`: as many as come.
    pub max_concurrent: Option<usize>,
    /// The container of blocks that name none, when it runs their language.
    pub default: String,
    /// Started containers that wait for the next ephemeral block, for each ephemeral container in use.
    pub warm: usize,
    /// How long a session container may be idle before it is stopped; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// Whether the folder of a session without a name is removed when the kernel ends (artifacts stay).
    pub auto_cleanup: bool,
}

/// What a backend is to start.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Which container.
    pub definition: Arc<Definition>,
    /// Its main process.
    pub argv: Vec<String>,
    /// Another image than the definition's own: with packages added, or restored.
    pub image: Option<String>,
    /// The folder of its own that it sees.
    pub place: Place,
    /// Whether that folder goes when the kernel ends, its artifacts excepted.
    pub temporary: bool,
}

/// The folder that a container sees besides the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// `/session`: `sessions/<name>` beside the notebook, for all containers of a session.
    Session(String),
    /// `/work`: a folder for one ephemeral run, under `outputs` beside the notebook.
    Run(String),
}
