//! Settings and environment in the terms of the parts that need them.

use std::path::Path;

use crate::chat::cost::Catalog;
use crate::chat::{Keeping, ProviderEnvironment};
use crate::config::{
    Environment, Inputs, Loaded, ProjectFiles, Replay, Settings, Status, Trust, load_project, read_file,
    standing,
};
use crate::engine::Habits;
use crate::sandbox::checkpoint::Store;
use crate::sandbox::reaper::Program;
use crate::sandbox::registry::{Draft, Standing};
use crate::sandbox::{ExecutionLog, Registry, Turns, docker};

/// Keys, addresses and folders for models.
pub(crate) fn providers(settings: &Settings, environment: &Environment) -> ProviderEnvironment {
    let mut providers = ProviderEnvironment::read(|name| environment.lookup(name));
    if let Some(dir) = &settings.model.local_dir {
        providers.local_model = Some(dir.clone());
    }
    providers
}

/// What is known of models, the user's own prices included, and what is wrong with those.
pub(crate) fn catalog(environment: &Environment) -> (Catalog, Vec<String>) {
    let catalog = Catalog::default();
    let Some(file) = environment.prices_file() else { return (catalog, Vec::new()) };
    let shown = file.display().to_string();
    match read_file(&file) {
        Ok(None) => (catalog, Vec::new()),
        Ok(Some(text)) => catalog.extended(&text, &shown),
        Err(why) => (catalog, vec![format!("{shown}: this file of prices can't be read: {why}")]),
    }
}

/// Where the checkpoints of notebooks in that directory lie; `None` without a home.
pub(crate) fn checkpoints(settings: &Settings, environment: &Environment, directory: &Path) -> Option<Store> {
    use sha2::{Digest, Sha256};
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;
    let resolved = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let hash = Sha256::digest(resolved.as_os_str().as_bytes());
    let name = hash.iter().take(16).fold(String::new(), |mut name, byte| {
        // Writing to a string can't fail.
        let _ = write!(name, "{byte:02x}");
        name
    });
    let folder = environment.data_dir()?.join("checkpoints").join(name);
    Some(Store::new(folder, settings.sandbox.checkpoint_size))
}

/// Where dialogues are kept, and which notebook's they are.
pub(crate) fn keeping(settings: &Settings, environment: &Environment, directory: &Path) -> Keeping {
    let of_user = || Some(environment.data_dir()?.join("conversations.sqlite"));
    let file = settings.conversation.file.clone().or_else(of_user);
    // A console has a name there that is no file's, and another one each time.
    let notebook = environment.session_name().filter(|path| path.extension().is_some());
    // A server may say it relative to its own directory; kernels start in their notebook's.
    let notebook = notebook.and_then(|path| {
        if path.is_absolute() { Some(path) } else { path.file_name().map(|name| directory.join(name)) }
    });
    Keeping {
        file: file.filter(|_| settings.conversation.persist),
        notebook,
        directory: directory.to_owned(),
    }
}

/// What the container backend needs.
pub(crate) fn docker(
    settings: &Settings,
    environment: &Environment,
    directory: &Path,
) -> std::io::Result<docker::Options> {
    Ok(docker::Options {
        directory: directory.to_owned(),
        host: settings.docker.host.clone(),
        authorities: environment.certificates(),
        proxies: environment.proxies(),
        state: environment.state_dir(),
        reaper: Program::this()?,
        temporary: Vec::new(),
    })
}

/// Settings and containers for a notebook in some directory. Every file of a project was read once: what was judged is
/// what is used.
#[derive(Debug)]
pub(crate) struct Composed {
    /// The project's files.
    pub project: ProjectFiles,
    /// Whether the user trusts them.
    pub trust: Trust,
    /// The settings.
    pub loaded: Loaded,
    /// The containers.
    pub registry: Registry,
}

impl Composed {
    /// Reads everything.
    pub(crate) fn read(inputs: &Inputs) -> Self {
        let project = ProjectFiles::find(&inputs.directory, &inputs.environment);
        let draft = Draft::read(&project, &inputs.environment);
        let trust = standing(&project, &inputs.environment, || draft.matters());
        Self::decide(inputs, project, draft, trust)
    }

    /// With what was read, and that trust.
    pub(crate) fn decide(inputs: &Inputs, project: ProjectFiles, draft: Draft, trust: Trust) -> Self {
        let loaded = load_project(inputs, &project, &trust);
        let standing = Standing { flavor: inputs.flavor, settings: &loaded.settings, trust: &trust };
        let registry = Registry::load(draft, standing);
        Composed { project, trust, loaded, registry }
    }

    /// Everything that is wrong, as one text for a person; `None` when all is well.
    pub(crate) fn problem(&self) -> Option<String> {
        let problems = [self.loaded.problem(), self.registry.problem()];
        problems.into_iter().flatten().reduce(|a, b| format!("{a}\n{b}"))
    }

    /// What the user should be told, and may pass over.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let refusals = self.loaded.refusals.iter().map(ToString::to_string);
        refusals.chain(self.registry.warnings.iter().cloned()).collect()
    }
}

/// Who may run when, over all kernels of this user.
pub(crate) fn turns(registry: &Registry, environment: &Environment) -> Turns {
    match (registry.settings.max_concurrent, environment.turns_dir()) {
        (Some(count), Some(directory)) => Turns::new(directory, count),
        _ => Turns::unlimited(),
    }
}

/// How the engine behaves.
pub(crate) fn habits(
    settings: &Settings,
    environment: &Environment,
    directory: &Path,
    connection_file: &Path,
) -> Habits {
    let file = settings.log.executions_file.clone();
    let file = file.or_else(|| Some(environment.state_dir()?.join("executions.jsonl")));
    let kernel = connection_file.file_stem().unwrap_or_default().to_string_lossy();
    let kernel = kernel.trim_start_matches("kernel-").to_owned();
    let notebook = environment.session_name().map(|path| path.to_string_lossy().into_owned());
    let log = file.filter(|_| settings.log.executions).map(|file| ExecutionLog::new(file, kernel, notebook));
    // Durations differ from run to run, and a replayed notebook is to be the same each time.
    let replays = settings.model.replay == Replay::Replay && settings.display.status == Status::Normal;
    Habits {
        status: if replays { Status::Quiet } else { settings.display.status },
        agent: settings.agent.clone(),
        explain: settings.display.explain,
        install: settings.sandbox.install,
        trusted: false,
        directory: directory.to_owned(),
        footer: settings.display.footer,
        log,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_replayed_notebook_has_no_lines_that_differ_from_run_to_run() {
        let status = |replay, status| {
            let mut settings = Settings::builtin(crate::config::Flavor::Markdown);
            settings.model.replay = replay;
            settings.display.status = status;
            habits(&settings, &Environment::default(), Path::new("/"), Path::new("c.json")).status
        };
        assert_eq!(status(Replay::Replay, Status::Normal), Status::Quiet);
        assert_eq!(status(Replay::Replay, Status::Verbose), Status::Verbose);
        assert_eq!(status(Replay::Auto, Status::Normal), Status::Normal);
    }

    #[test]
    fn prices_are_the_users_alone_and_their_mistakes_name_file_and_line() {
        let config = tempfile::tempdir().unwrap();
        let environment: Environment = [("XDG_CONFIG_HOME", config.path())].into_iter().collect();
        assert_eq!(catalog(&environment), (Catalog::default(), Vec::new()));
        let file = config.path().join("cellblock/prices.toml");
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "[openai]\nmine = { input = 1, output = 2 }\nother = { input = 1 }\n").unwrap();
        let (known, mistakes) = catalog(&environment);
        assert!(known.price("openai/mine").is_some() && known.price("openai/other").is_none());
        let expected = format!("{}:3: openai.\"other\" needs input and output", file.display());
        assert_eq!(mistakes, [expected]);
        std::fs::write(&file, b"\xff").unwrap();
        assert!(catalog(&environment).1[0].contains("can't be read: it is not UTF-8 text"));
    }
}
