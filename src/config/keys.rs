//! The one table of settings. Files, `CELLBLOCK_<SECTION>__<KEY>` variables, `--set`, `cellblock config`,
//! the trust rules and `docs/configuration.md` all come from it.
//!
//! To add a setting: a field in `settings` and a row here.

use super::settings::{AgentMode, Install, Network, Replay, Settings, Status, Updates};
use super::value::{Field, Kind, Value};

/// What a project's file, which may come with a hostile notebook, may do with a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Project {
    /// Anything.
    Free,
    /// Nothing: it is the user's.
    Never,
    /// Lower it, or set a limit where there is none.
    Lower,
    /// Set it to this value, which is the safe one.
    Only(&'static str),
    /// Name a directory below the notebook's.
    Below,
    /// Choose the model, as long as the user's key and prompts go where they would go anyway.
    SameServer,
}

/// One setting.
#[derive(Debug)]
pub struct Key {
    /// Its section in a settings file.
    pub section: &'static str,
    /// Its name in the section.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// What a project's file may do with it.
    pub project: Project,
    /// Other variables that set it, when the one of ours does not; the first one wins.
    pub aliases: &'static [&'static str],
    /// What it does, as Markdown on one line.
    pub help: &'static str,
    read: fn(&Settings) -> Value,
    write: fn(&mut Settings, Value) -> bool,
}

impl Key {
    /// Its full name, `section.name`.
    pub fn full(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The variable that sets it.
    pub fn variable(&self) -> String {
        format!("CELLBLOCK_{}__{}", self.section.to_ascii_uppercase(), self.name.to_ascii_uppercase())
    }

    /// Its value in these settings.
    pub fn get(&self, settings: &Settings) -> Value {
        (self.read)(settings)
    }

    /// Sets it; whether the value is of the field's type, which [`Kind::parse`] sees to.
    pub(crate) fn set(&self, settings: &mut Settings, value: Value) -> bool {
        (self.write)(settings, value)
    }

    /// The key of that name.
    pub fn find(section: &str, name: &str) -> Option<&'static Key> {
        KEYS.iter().find(|key| key.section == section && key.name == name)
    }
}

/// The names of the sections, in order.
pub(crate) fn sections() -> Vec<&'static str> {
    let mut sections: Vec<_> = KEYS.iter().map(|key| key.section).collect();
    sections.dedup();
    sections
}

/// Of these names the one most like what was written, when it is like it at all.
pub(crate) fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    names
        .into_iter()
        .map(|name| {
            (strsim::normalized_damerau_levenshtein(&written.to_lowercase(), &name.to_lowercase()), name)
        })
        .filter(|(likeness, _)| *likeness >= 0.5)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name.to_owned())
}

const MIB: u64 = 1 << 20;
const TIME: Kind = Kind::Time { none: false };
/// The largest count that the engine's signed 64-bit numbers hold.
const MOST: u64 = i64::MAX as u64;

/// One row: `section.name`, its kind, what a project may do, what it does, other variables.
macro_rules! key {
    ($section:ident . $name:ident, $kind:expr, $project:expr, $help:expr $(, $alias:literal)*) => {
        Key {
            section: stringify!($section),
            name: stringify!($name),
            kind: $kind,
            project: $project,
            aliases: &[$($alias),*],
            help: $help,
            read: |settings| settings.$section.$name.to_value(),
            write: |settings, value| match Field::from_value(value) {
                Some(value) => {
                    settings.$section.$name = value;
                    true
                }
                None => false,
            },
        }
    };
}

/// Every setting, section by section.
pub static KEYS: &[Key] = &[
    key!(
        model.name,
        Kind::Text,
        Project::SameServer,
        "The model that answers prose, as `provider/model` (`openai/gpt-5`, `anthropic/claude-sonnet-4-5`, \
         `gemini/gemini-2.5-pro`, `ollama/qwen3:14b`) or bare where that is unambiguous. Without it: the provider \
         whose key is in the environment, else a local Ollama, else the local small model."
    ),
    key!(
        model.base_url,
        Kind::Url,
        Project::Never,
        "Base URL of an OpenAI-compatible server (vLLM, llama.cpp, LM Studio, LiteLLM), up to and without \
         `/chat/completions`."
    ),
    key!(
        model.api_key,
        Kind::Secret,
        Project::Never,
        "The key for that server or provider. Only from the environment: this variable or the provider's own \
         (`OPENAI_API_KEY`, ...); an error in any file."
    ),
    key!(
        model.api_key_command,
        Kind::Text,
        Project::Never,
        "A command whose first line of output is the key (`pass show openai`)."
    ),
    key!(
        model.temperature,
        Kind::Number { min: 0.0, max: 2.0 },
        Project::Free,
        "Sampling temperature. Without it: the server's default."
    ),
    key!(
        model.max_tokens,
        Kind::Count { min: 1, max: MOST },
        Project::Lower,
        "The most tokens of one reply. Without it: the server's default."
    ),
    key!(model.system, Kind::Text, Project::Free, "Text added to the system prompt."),
    key!(
        model.connect_timeout,
        TIME,
        Project::Free,
        "How long to wait for a connection to the model's server."
    ),
    key!(
        model.silence_timeout,
        TIME,
        Project::Free,
        "How long a reply may be silent before it counts as cut off, also before its first token. A server that only keeps the connection alive meanwhile (comments in its stream) is given five times as long."
    ),
    key!(
        model.local,
        Kind::Flag,
        Project::Only("false"),
        "Whether the local small model may be started when nothing else is configured."
    ),
    key!(
        model.local_dir,
        Kind::Path,
        Project::Never,
        "Directory of the local small model. Without it: `cellblock/local-model` in the user's data directory."
    ),
    key!(
        model.replay,
        Kind::Choice(Replay::NAMES),
        Project::Only("off"),
        "Recorded replies: `record` keeps each reply in a file beside the notebook, `replay` takes them from it and \
         never touches the network, `auto` takes what is there and records the rest."
    ),
    key!(
        model.replay_file,
        Kind::Path,
        Project::Never,
        "The file of recorded replies. Without it: `NOTEBOOK.replies.jsonl` beside the notebook."
    ),
    key!(
        agent.mode,
        Kind::Choice(AgentMode::NAMES),
        Project::Only("ask"),
        "What the model may do: `ask` (it only answers), `confirm` (each call of a tool is shown and confirmed), `auto` \
         (its calls run), or `default`: `confirm` where the front end takes input, else `ask`."
    ),
    key!(
        agent.steps,
        Kind::Count { min: 1, max: 1000 },
        Project::Lower,
        "The most replies of the model in one turn."
    ),
    key!(
        agent.isolated,
        Kind::Flag,
        Project::Only("true"),
        "Whether the model works in a session of its own, instead of the one that your cells share."
    ),
    key!(
        agent.output,
        Kind::Size { min: 1 << 10 },
        Project::Lower,
        "How much of a tool's output the model is told; head and tail are kept."
    ),
    key!(
        agent.intent,
        Kind::Flag,
        Project::Free,
        "Whether code in a prompt runs only when the words around it ask for that; `false`: it always runs."
    ),
    key!(
        budget.turn_tokens,
        Kind::Count { min: 1, max: MOST },
        Project::Lower,
        "The most tokens, read and written, of one turn. Without it: no limit."
    ),
    key!(
        budget.tokens,
        Kind::Count { min: 1, max: MOST },
        Project::Lower,
        "The most tokens, read and written, of one kernel. Without it: no limit."
    ),
    key!(
        budget.turn_cost,
        Kind::Number { min: 0.0, max: 1e6 },
        Project::Lower,
        "The most that one turn may cost, in US dollars, where the model's price is known. Without it: no limit."
    ),
    key!(
        budget.cost,
        Kind::Number { min: 0.0, max: 1e6 },
        Project::Lower,
        "The most that one kernel may cost, in US dollars, where the model's price is known. Without it: no limit."
    ),
    key!(
        budget.steps,
        Kind::Count { min: 1, max: MOST },
        Project::Lower,
        "The most replies of the model in one kernel. Without it: no limit."
    ),
    key!(
        conversation.persist,
        Kind::Flag,
        Project::Only("false"),
        "Whether dialogues are kept on disk, so that `%resume` brings them back and history lasts."
    ),
    key!(
        conversation.file,
        Kind::Path,
        Project::Never,
        "The database of dialogues. Without it: `cellblock/conversations.sqlite` in the user's data directory."
    ),
    key!(
        sandbox.image,
        Kind::Text,
        Project::Never,
        "The image that runs code. Without it: `sandbox.built_image`, or the one of the built-in Dockerfile, which is \
         built when it is missing."
    ),
    key!(
        sandbox.built_image,
        Kind::Text,
        Project::Never,
        "The image that `cellblock build` made; recorded by it, and passed over when the engine no longer has it."
    ),
    key!(
        sandbox.base_image,
        Kind::Text,
        Project::Never,
        "The image that ours is built from. Without it: the Dockerfile's own choice."
    ),
    key!(
        sandbox.workspace,
        Kind::Path,
        Project::Below,
        "Directory mounted at `/workspace`, relative to the kernel's working directory (the notebook's); created \
         when missing."
    ),
    key!(
        sandbox.workspace_outside,
        Kind::Flag,
        Project::Only("false"),
        "Whether the workspace may lie outside the notebook's directory, also through links."
    ),
    key!(
        sandbox.workspace_artifacts,
        Kind::Flag,
        Project::Free,
        "Whether files that code writes below `/workspace` are shown after it, as those in `/session/artifacts` are."
    ),
    key!(sandbox.memory, Kind::Size { min: 32 * MIB }, Project::Lower, "Memory, swap included."),
    key!(sandbox.cpus, Kind::Number { min: 0.01, max: 4096.0 }, Project::Lower, "CPUs' worth of time."),
    key!(
        sandbox.pids,
        Kind::Count { min: 16, max: 4_194_304 },
        Project::Lower,
        "The most processes and threads."
    ),
    key!(
        sandbox.timeout,
        Kind::Time { none: true },
        Project::Lower,
        "The longest that one block may run; waiting for input does not count."
    ),
    key!(
        sandbox.network,
        Kind::Choice(Network::NAMES),
        Project::Only("none"),
        "`none`: loopback only. `bridge`: the engine's network, and through it the internet."
    ),
    key!(
        sandbox.output,
        Kind::Size { min: 1 << 10 },
        Project::Lower,
        "How much output one cell may show; the rest goes to a file in the workspace."
    ),
    key!(sandbox.spill, Kind::Size { min: 0 }, Project::Lower, "The largest file that output may spill to."),
    key!(
        sandbox.tmpfs,
        Kind::Size { min: MIB },
        Project::Lower,
        "Size of each of `/tmp` and the home directory."
    ),
    key!(
        sandbox.checkpoint_size,
        Kind::Size { min: MIB },
        Project::Lower,
        "How much the checkpoints (`%checkpoint`, `keep`) of one notebook directory may take on the host together."
    ),
    key!(
        sandbox.file_size,
        Kind::Size { min: MIB },
        Project::Lower,
        "The largest single file code may write."
    ),
    key!(
        sandbox.open_files,
        Kind::Count { min: 64, max: 1_048_576 },
        Project::Lower,
        "The most open files per process."
    ),
    key!(
        sandbox.runtime,
        Kind::Text,
        Project::Never,
        "The engine's runtime, such as `runsc` (gVisor). Without it: the engine's default."
    ),
    key!(
        sandbox.warm,
        Kind::Flag,
        Project::Free,
        "Whether the container starts together with the kernel, so that the first cell does not wait."
    ),
    key!(
        sandbox.install,
        Kind::Choice(Install::NAMES),
        Project::Only("never"),
        "Whether `%pip`, `%apt`, `%npm` and `packages=` in a fence may add packages: `ask` at the front end (not where \
         the project is trusted), `always`, or `never`."
    ),
    key!(
        display.updates,
        Kind::Choice(Updates::NAMES),
        Project::Free,
        "How a growing reply is shown: `always` in place, `never` (as plain stream text), or `auto`: in place \
         unless the front end can't."
    ),
    key!(
        display.status,
        Kind::Choice(Status::NAMES),
        Project::Free,
        "What is said about each block in the Markdown kernel: `quiet` (nothing but errors), `normal` (a line about \
         those that take longer than a second), `verbose` (about every one, with its image). With \
         `model.replay = replay`, `normal` is `quiet`: durations differ from run to run."
    ),
    key!(
        display.explain,
        Kind::Flag,
        Project::Only("false"),
        "Whether the model comments the outcome of cells without prose, as `explain` in a fence has it do."
    ),
    key!(
        display.footer,
        Kind::Flag,
        Project::Free,
        "Whether a line under each of the model's turns says which model it was, its tokens, cost and speed."
    ),
    key!(
        docker.host,
        Kind::Text,
        Project::Never,
        "Address of the container engine, such as `unix:///run/user/1000/docker.sock`. Without it: the engine's \
         usual socket.",
        "DOCKER_HOST"
    ),
    key!(
        log.filter,
        Kind::Filter,
        Project::Never,
        "What is logged to standard error, which Jupyter shows in its terminal.",
        "CELLBLOCK_LOG",
        "RUST_LOG"
    ),
    key!(
        log.executions,
        Kind::Flag,
        Project::Never,
        "Whether each run is recorded: when, which notebook, container, image and limits, the code's SHA-256 (never \
         the code), how it ended. One line of JSON each; a file of 10 MB is put aside, five are kept."
    ),
    key!(
        log.executions_file,
        Kind::Path,
        Project::Never,
        "The file of that record. Without it: `cellblock/executions.jsonl` in `$XDG_STATE_HOME` or `~/.local/state`."
    ),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::config::{Environment, Flavor};

    #[test]
    fn every_value_goes_through_its_field_unchanged() {
        let environment = Environment::default();
        for key in KEYS {
            let text = match key.kind {
                Kind::Text | Kind::Secret | Kind::Path => "x",
                Kind::Url => "http://x",
                Kind::Flag => "true",
                Kind::Count { .. } | Kind::Number { .. } => "64",
                Kind::Size { .. } => "64m",
                Kind::Time { .. } => "7s",
                Kind::Choice(names) => names.last().unwrap(),
                Kind::Filter => "debug",
            };
            let mut settings = Settings::builtin(Flavor::Markdown);
            let text = if key.kind == (Kind::Number { min: 0.0, max: 2.0 }) { "1.5" } else { text };
            let value = key.kind.parse(text, &environment).unwrap();
            assert!(key.set(&mut settings, value.clone()), "{}", key.full());
            assert_eq!(key.get(&settings), value, "{}", key.full());
        }
    }

    #[test]
    fn every_builtin_value_is_one_that_a_user_could_write() {
        let environment = Environment::default();
        for flavor in [Flavor::Markdown, Flavor::Python] {
            let settings = Settings::builtin(flavor);
            for key in KEYS {
                let value = key.get(&settings);
                if value != Value::Unset {
                    assert_eq!(
                        key.kind.parse(&key.kind.show(&value), &environment),
                        Ok(value),
                        "{}",
                        key.full()
                    );
                }
            }
        }
    }

    #[test]
    fn sections_are_not_scattered_and_names_are_unique() {
        let sections = sections();
        assert_eq!(
            sections,
            ["model", "agent", "budget", "conversation", "sandbox", "display", "docker", "log"]
        );
        for (n, key) in KEYS.iter().enumerate() {
            assert!(!KEYS[..n].iter().any(|other| other.full() == key.full()), "{} twice", key.full());
        }
    }
}
