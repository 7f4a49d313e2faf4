//! The settings, section by section, and their built-in values.
//!
//! Imports nothing but [`Secret`]. A field added here needs its row in the table of keys (`keys`).

use std::path::PathBuf;
use std::time::Duration;

use super::Secret;

/// Every effective setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// `[model]`: which language model answers prose, and how it is reached.
    pub model: ModelSettings,
    /// `[agent]`: what the model may do by itself.
    pub agent: AgentSettings,
    /// `[budget]`: what models may cost.
    pub budget: BudgetSettings,
    /// `[conversation]`: where dialogues are kept.
    pub conversation: ConversationSettings,
    /// `[sandbox]`: the container that runs code, and its limits.
    pub sandbox: SandboxSettings,
    /// `[display]`: how things are shown.
    pub display: DisplaySettings,
    /// `[docker]`: where the container engine listens.
    pub docker: DockerSettings,
    /// `[log]`: what is written to standard error.
    pub log: LogSettings,
}

/// `[model]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelSettings {
    /// `provider/model` or a bare model name; `None`: found by looking (environment keys, Ollama, the local model).
    pub name: Option<String>,
    /// Base URL of an OpenAI-compatible server, up to and without `/chat/completions`.
    pub base_url: Option<String>,
    /// The key for that server or provider; only ever from the environment.
    pub api_key: Option<Secret>,
    /// A command whose first line of output is the key.
    pub api_key_command: Option<String>,
    /// Sampling temperature; the server's default when `None`.
    pub temperature: Option<f64>,
    /// The most tokens of one reply; the server's default when `None`.
    pub max_tokens: Option<u64>,
    /// Text added to the system prompt.
    pub system: Option<String>,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long a stream may be silent (also before the first token).
    pub silence_timeout: Duration,
    /// Whether the local small model may be started when nothing else is configured.
    pub local: bool,
    /// The directory that holds the local small model; `None`: `cellblock/local-model` in the user's data
    /// directory.
    pub local_dir: Option<PathBuf>,
    /// Whether replies are recorded, or taken from a recording.
    pub replay: Replay,
    /// The file of the recording; `None`: beside the notebook.
    pub replay_file: Option<PathBuf>,
}

/// `[agent]`.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentSettings {
    /// Whether the model may call tools.
    pub mode: AgentMode,
    /// The most replies of the model in one turn.
    pub steps: u64,
    /// Whether the model works in a session of its own, instead of the user's.
    pub isolated: bool,
    /// The most bytes of a tool's output that the model is told.
    pub output: u64,
    /// Whether code in a prompt runs only when the words around it ask for it.
    pub intent: bool,
}

/// `[budget]`; `None`: no limit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BudgetSettings {
    /// The most tokens, read and written, of one turn.
    pub turn_tokens: Option<u64>,
    /// The most tokens, read and written, of one kernel.
    pub tokens: Option<u64>,
    /// The most that one turn may cost, in US dollars, where prices are known.
    pub turn_cost: Option<f64>,
    /// The most that one kernel may cost, in US dollars, where prices are known.
    pub cost: Option<f64>,
    /// The most replies of the model in one kernel.
    pub steps: Option<u64>,
}

/// `[conversation]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationSettings {
    /// Whether dialogues are kept on disk.
    pub persist: bool,
    /// The database; `None`: `cellblock/conversations.sqlite` in the user's data directory.
    pub file: Option<PathBuf>,
}

/// `[sandbox]`.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxSettings {
    /// The image to run; `None`: the one that `cellblock build` recorded, or the built-in Dockerfile's.
    pub image: Option<String>,
    /// The image that `cellblock build` recorded. It may be out of date or gone: then it does not count.
    pub built_image: Option<String>,
    /// The base image that the built-in Dockerfile is built `FROM`; `None`: the Dockerfile's default.
    pub base_image: Option<String>,
    /// The host directory mounted at `/workspace`, relative to the kernel's working directory.
    pub workspace: PathBuf,
    /// Whether the workspace may lie (or resolve, through links) outside the notebook's directory.
    pub workspace_outside: bool,
    /// Whether files written below `/workspace` are shown after a run, as those in `artifacts` are.
    pub workspace_artifacts: bool,
    /// Memory, and memory plus swap, in bytes.
    pub memory: u64,
    /// CPUs' worth of time.
    pub cpus: f64,
    /// The most processes and threads.
    pub pids: i64,
    /// The longest that one block may run; `None`: no limit.
    pub timeout: Option<Duration>,
    /// Network of the container.
    pub network: Network,
    /// Bytes of output that one cell may show; the rest goes to a file in the workspace.
    pub output: u64,
    /// The largest file that output may spill to, in bytes.
    pub spill: u64,
    /// Size of each tmpfs (`/tmp`, home), in bytes.
    pub tmpfs: u64,
    /// The checkpoints of one notebook directory together, in bytes.
    pub checkpoint_size: u64,
    /// The largest single file code may write, in bytes.
    pub file_size: u64,
    /// The most open files per process.
    pub open_files: i64,
    /// The engine's runtime (`runc`, `runsc`); `None`: the engine's default.
    pub runtime: Option<String>,
    /// Whether to start the container as soon as the kernel starts.
    pub warm: bool,
    /// Whether a notebook may add packages to its containers' images.
    pub install: Install,
}

/// What a container's network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// Loopback only.
    None,
    /// The engine's bridge network.
    Bridge,
}

/// `[display]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DisplaySettings {
    /// Whether replies are shown as displays that update in place.
    pub updates: Updates,
    /// How much is said about each block that runs.
    pub status: Status,
    /// Whether the model comments the outcome of cells without prose.
    pub explain: bool,
    /// Whether a line under each of the model's turns says what it cost.
    pub footer: bool,
}

/// `[docker]`.
#[derive(Debug, Clone, PartialEq)]
pub struct DockerSettings {
    /// Address of the engine (`unix:///run/user/1000/docker.sock`); `None`: the engine's usual socket.
    pub host: Option<String>,
}

/// `[log]`.
#[derive(Debug, Clone, PartialEq)]
pub struct LogSettings {
    /// What is logged, as a `tracing` filter (`warn`, `cellblock=debug`).
    pub filter: String,
    /// Whether each run is recorded in a file: who ran what where, never the code.
    pub executions: bool,
    /// That file; `None`: `cellblock/executions.jsonl` in the user's state directory.
    pub executions_file: Option<PathBuf>,
}

/// How a reply is shown while it grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updates {
    /// In place, unless the front end looks like one that can't (no `cellId` and `allow_stdin`).
    Auto,
    /// Always in place.
    Always,
    /// Never: as `stream` text.
    Never,
}

/// How much is said about each block that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Nothing but errors.
    Quiet,
    /// A line about each block that took longer than a second.
    Normal,
    /// A line about every block, with the image.
    Verbose,
}

/// Whether a notebook may add packages to its containers' images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Install {
    /// After a yes at the front end, or where the project is trusted.
    Ask,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Where replies come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replay {
    /// From the model.
    Off,
    /// From the model; they are recorded.
    Record,
    /// From the recording alone; the network is never touched.
    Replay,
    /// From the recording, and where it has none from the model, which is recorded.
    Auto,
}

/// What the model may do by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentMode {
    /// `Confirm` where questions can be answered, `Ask` elsewhere.
    Standard,
    /// It answers and calls nothing.
    Ask,
    /// Each call is shown and confirmed.
    Confirm,
    /// Its calls run.
    Auto,
}

/// Which of the two kernelspecs is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    /// `cellblock`: cells are Markdown.
    Markdown,
    /// `cellblock-python`: an unfenced cell is Python in the sandbox.
    Python,
}

impl Settings {
    /// The built-in settings.
    pub fn builtin(flavor: Flavor) -> Self {
        const MIB: u64 = 1 << 20;
        Settings {
            model: ModelSettings {
                name: None,
                base_url: None,
                api_key: None,
                api_key_command: None,
                temperature: None,
                max_tokens: None,
                system: None,
                connect_timeout: Duration::from_secs(10),
                silence_timeout: Duration::from_mins(2),
                local: true,
                local_dir: None,
                replay: Replay::Off,
                replay_file: None,
            },
            agent: AgentSettings {
                mode: AgentMode::Standard,
                steps: 20,
                isolated: false,
                output: 16 << 10,
                intent: true,
            },
            budget: BudgetSettings::default(),
            conversation: ConversationSettings { persist: true, file: None },
            sandbox: SandboxSettings {
                image: None,
                built_image: None,
                base_image: None,
                workspace: PathBuf::from("workspace"),
                workspace_outside: false,
                workspace_artifacts: false,
                memory: 1024 * MIB,
                cpus: 2.0,
                pids: 256,
                timeout: match flavor {
                    Flavor::Markdown => Some(Duration::from_mins(1)),
                    Flavor::Python => None,
                },
                network: Network::None,
                output: 16 * MIB,
                spill: 256 * MIB,
                tmpfs: 256 * MIB,
                checkpoint_size: 2048 * MIB,
                file_size: 1024 * MIB,
                open_files: 1024,
                runtime: None,
                warm: true,
                install: Install::Ask,
            },
            display: DisplaySettings {
                updates: Updates::Auto,
                status: Status::Normal,
                explain: false,
                footer: true,
            },
            docker: DockerSettings { host: None },
            log: LogSettings { filter: "warn".to_owned(), executions: true, executions_file: None },
        }
    }
}
