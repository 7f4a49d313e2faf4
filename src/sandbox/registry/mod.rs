//! Which containers there are: built-in ones, the user's, the project's.
//!
//! May import `config`.
//!
//! | module | what |
//! | --- | --- |
//! | `yaml` | text to a tree in which every key knows its line; bounded |
//! | `fields` | tables of the tree read key by key, mistakes gathered |
//! | `written` | one container as it is written |
//! | `image` | where its image comes from, and what is put into it |
//! | `settings` | `settings:`, and its layers |
//! | `paths` | where paths really lead, and which are never handed out |
//! | `seal` | what trust is bound to |
//! | `layer` | what a project may do by itself, and what waits for trust |
//!
//! A registry is read in two steps, because trust depends on what it names: [`Draft::read`] reads everything
//! once, [`Registry::load`] decides with what was read.

mod fields;
mod image;
mod layer;
mod paths;
mod seal;
mod settings;
mod written;
mod yaml;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::config::{
    Environment, Flavor, Matters, ProjectFile, ProjectFiles, SandboxSettings, Settings, Trust, nearest, plain,
};

use super::definition::{Definition, PYTHON, PoolSettings};
use fields::{At, Mistakes, Table};
use layer::Gate;
use paths::Ground;
use written::Written;

/// How long a session container of the Markdown kernel may be idle. In a drop-in Python kernel variables never
/// vanish unasked.
const IDLE: Duration = Duration::from_mins(30);
/// How many containers one file may define.
const MOST: usize = 500;

/// Every container that a cell may name, and how they are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Registry {
    /// The containers, in the order in which one is looked for that runs a language.
    containers: Vec<Arc<Definition>>,
    /// How they are kept.
    pub settings: PoolSettings,
    /// What the user should be told with the first cell.
    pub warnings: Vec<String>,
    /// Mistakes in the files: as long as there are any, nothing runs.
    pub errors: Vec<String>,
    /// What the project's file asks for that needs trust, each in a line, whether it has it or not.
    pub asks: Vec<String>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// What a decision about a registry depends on.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// Which kernelspec; some built-in values differ.
    pub flavor: Flavor,
    /// The effective settings: what a container does not say, and what a project's may not exceed.
    pub settings: &'a Settings,
    /// Whether the project is trusted.
    pub trust: &'a Trust,
}

/// Registries as they are written, with all that they name read and resolved; nothing decided.
#[derive(Debug)]
pub struct Draft {
    /// What trust is about.
    directory: PathBuf,
    project: Option<Reading>,
    user: Option<Reading>,
}

/// One file.
#[derive(Debug)]
struct Reading {
    file: PathBuf,
    /// The project that it speaks for, or the file's own folder.
    root: PathBuf,
    ground: Ground,
    containers: Vec<Written>,
    settings: settings::Written,
    mistakes: Mistakes,
}

impl Draft {
    /// Reads the project's registry and the user's.
    pub fn read(project: &ProjectFiles, environment: &Environment) -> Self {
        let own = environment.user_registry().and_then(ProjectFile::registry);
        Draft {
            directory: project.directory.clone().unwrap_or_default(),
            project: project.registry.as_ref().map(|file| Reading::new(file, true, environment)),
            user: own.map(|file| Reading::new(&file, false, environment)),
        }
    }

    /// What matters of all that the project's registry names, for the seal of trust.
    ///
    /// # Errors
    /// When it is too much to look at, or can't be read.
    pub fn matters(&self) -> Result<Matters, String> {
        self.project.as_ref().map_or(Ok(Matters::new()), |reading| seal::matters(&reading.containers))
    }
}

impl Reading {
    fn new(file: &ProjectFile, project: bool, environment: &Environment) -> Self {
        let path = file.path.canonicalize().unwrap_or_else(|_| file.path.clone());
        let folder = path.parent().unwrap_or(Path::new("/"));
        let mut reading = Reading {
            file: file.path.clone(),
            root: file.root.clone(),
            ground: Ground::new(folder, project.then_some(file.root.as_path()), environment),
            containers: Vec::new(),
            settings: settings::Written::default(),
            mistakes: Mistakes::new(&file.path),
        };
        let text = match &file.text {
            Ok(_) if project && !path.starts_with(&file.root) => {
                Err("it is a link that leads out of the project".to_owned())
            }
            other => other.clone(),
        };
        match text {
            Ok(text) => reading.take(&text, environment),
            Err(why) => reading.mistakes.line(1, &format!("this registry can't be read: {why}")),
        }
        reading
    }

    fn take(&mut self, text: &str, environment: &Environment) {
        let mistakes = &mut self.mistakes;
        let root = match yaml::parse(text) {
            Ok(root) => root,
            Err(flaw) => return mistakes.line(flaw.line, &flaw.why),
        };
        let root = At { line: root.line, key: String::new(), value: &root };
        let Some(table) = Table::new(&root, &["containers", "settings"], mistakes) else { return };
        if let Some(at) = table.get("settings") {
            self.settings = settings::read(&at, mistakes);
        }
        let Some(at) = table.get("containers") else { return };
        let Some(table) = Table::open(&at, mistakes) else { return };
        if table.iter().count() > MOST {
            return mistakes.at(&at, format!("there are more than {MOST} containers"));
        }
        for (name, at) in table.iter() {
            self.containers.extend(written::container(name, &at, &self.ground, environment, mistakes));
        }
    }
}

impl Registry {
    /// What there is without any file.
    pub fn builtin(settings: &SandboxSettings) -> Self {
        Registry {
            containers: vec![
                Arc::new(Definition::python(settings)),
                Arc::new(Definition::polyglot(settings)),
            ],
            settings: PoolSettings {
                max_concurrent: None,
                default: PYTHON.to_owned(),
                warm: 1,
                idle_timeout: None,
                auto_cleanup: true,
            },
            warnings: Vec::new(),
            errors: Vec::new(),
            asks: Vec::new(),
            files: Vec::new(),
        }
    }

    /// One container and no other: for tests of what a definition can say.
    #[doc(hidden)]
    pub fn single(definition: Definition) -> Self {
        let settings = definition.limits.clone();
        Registry { containers: vec![Arc::new(definition)], ..Self::builtin(&settings) }
    }

    /// What there is with the files of a draft: project, user, built-in; later ones win by name, so that nothing
    /// that came with a notebook takes the place of what the user knows.
    pub fn load(draft: Draft, standing: Standing<'_>) -> Self {
        let own = standing.settings;
        let mut registry = Registry::builtin(&own.sandbox);
        if standing.flavor == Flavor::Markdown {
            registry.settings.idle_timeout = Some(IDLE);
        }
        let Draft { directory, project, user } = draft;
        let file = project.as_ref().map(|reading| reading.file.clone()).unwrap_or_default();
        let mut gate = Gate {
            file: &file,
            directory: &directory,
            trust: standing.trust,
            asks: Vec::new(),
            withheld: Vec::new(),
        };
        if let Some(reading) = &project {
            settings::project(&reading.settings, &mut registry.settings, &mut gate);
            registry.warnings.append(&mut gate.withheld);
        }
        if let Some(reading) = &user {
            settings::user(&reading.settings, &mut registry.settings);
            for written in &reading.containers {
                registry.add(layer::user(written, own, &reading.file));
            }
        }
        if let Some(reading) = &project {
            for written in &reading.containers {
                registry.add(layer::project(written, own, &reading.root, &mut gate));
            }
        }
        registry.asks = gate.asks;
        for reading in [project, user].into_iter().flatten() {
            registry.finish(reading, own);
        }
        registry
    }

    /// Adds a container, unless there is one of that name.
    fn add(&mut self, definition: Definition) {
        match self.find(&definition.name) {
            Some(there) => self.warnings.push(format!(
                "{}: the container {} is not used: one of that name is {}; choose another name",
                plain(&definition.origin),
                definition.name,
                match there.origin.as_str() {
                    "built in" => "built in".to_owned(),
                    origin => format!("defined at {}", plain(origin)),
                }
            )),
            None => self.containers.push(Arc::new(definition)),
        }
    }

    /// What can only be told when everything is there.
    fn finish(&mut self, mut reading: Reading, own: &Settings) {
        let mistakes = &mut reading.mistakes;
        reading.ground.forbid_engine(own.docker.host.as_deref());
        for mount in reading.containers.iter().flat_map(|container| &container.mounts) {
            if let Err(why) = reading.ground.allow(&mount.value.host.path) {
                mistakes.value(mount, &mount.value.written, why);
            }
        }
        if let Some(at) = &reading.settings.default
            && self.find(&at.value).is_none()
            // One that is there but wrong is told of already.
            && !mistakes.mentions(&format!("containers.{}", at.value))
        {
            let names = self.containers.iter().map(|container| container.name.as_str());
            let why = match nearest(&at.value, names.clone()) {
                Some(name) => format!("there is no such container; did you mean {name}?"),
                None => {
                    format!("there is no such container; there are {}", names.collect::<Vec<_>>().join(", "))
                }
            };
            mistakes.value(at, &at.value, why);
        }
        self.errors.extend(reading.mistakes.into_told());
        self.files.push(reading.file);
    }

    /// Everything that is wrong, as one text for a person; `None` when all is well.
    pub fn problem(&self) -> Option<String> {
        (!self.errors.is_empty()).then(|| self.errors.join("\n"))
    }

    /// The containers, in the order in which one is looked for that runs a language.
    pub fn containers(&self) -> &[Arc<Definition>] {
        &self.containers
    }

    /// The container of that name.
    pub fn find(&self, name: &str) -> Option<&Arc<Definition>> {
        self.containers.iter().find(|container| container.name == name)
    }
}

impl Registry {
    /// These containers and one more, which replaces one of the same name.
    #[must_use]
    pub fn with(mut self, definition: Definition) -> Self {
        let definition = Arc::new(definition);
        match self.containers.iter_mut().find(|container| container.name == definition.name) {
            Some(container) => *container = definition,
            None => self.containers.push(definition),
        }
        self
    }
}
