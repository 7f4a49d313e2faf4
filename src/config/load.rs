//! The layers put together, each value with its origin.

use std::path::{Path, PathBuf};

use super::error::{ConfigError, Refusal};
use super::file::{self, Entry, Written};
use super::keys::{KEYS, Key, nearest, sections};
use super::origin::Origin;
use super::project::{Project, ProjectFile};
use super::record::record_file;
use super::settings::{Flavor, Settings};
use super::value::{Kind, Value};
use super::{Environment, Trust, trust};

/// The section whose walls a trusted project may move.
const SANDBOX: &str = "sandbox";

/// What settings depend on.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// Which kernelspec; some built-in values differ.
    pub flavor: Flavor,
    /// The notebook's directory: a project's file is looked for there and above.
    pub directory: PathBuf,
    /// The variables.
    pub environment: Environment,
    /// What `--set` was given: `section.key=value` each.
    pub flags: Vec<String>,
}

/// The settings and how they came about. Loading never fails: what is wrong is in `errors`.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The effective settings. With `errors` they are not what the user meant (a limit may be missing from
    /// them): then nothing must run with them.
    pub settings: Settings,
    /// What a project's file asked for and was not given.
    pub refusals: Vec<Refusal>,
    /// Every mistake in files, variables and flags.
    pub errors: Vec<ConfigError>,
    /// Where the user's own file is looked for; `None` without a home directory.
    pub user_file: Option<PathBuf>,
    /// The project's file, when there is one.
    pub project_file: Option<PathBuf>,
    /// Parallel to [`KEYS`].
    origins: Vec<Origin>,
}

impl Loaded {
    /// Where the value of a setting (`section.name`) came from.
    pub fn origin(&self, full: &str) -> &Origin {
        KEYS.iter()
            .position(|key| key.full() == full)
            .and_then(|n| self.origins.get(n))
            .unwrap_or(&Origin::Builtin)
    }

    /// Every setting with its effective value, as it would be written, and its origin, in the table's order.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Key, String, &Origin)> {
        KEYS.iter()
            .zip(&self.origins)
            .map(|(key, origin)| (key, key.kind.show(&key.get(&self.settings)), origin))
    }

    /// Everything that is wrong, as one text for a person; `None` when all is well.
    pub fn problem(&self) -> Option<String> {
        let errors: Vec<String> = self.errors.iter().map(ToString::to_string).collect();
        (!errors.is_empty()).then(|| errors.join("\n"))
    }
}

/// A value that some layer gives to a key.
struct Given {
    key: &'static Key,
    value: Value,
    origin: Origin,
}

/// Which file is read, and so whose word it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Recorded,
    User,
    Project,
}

impl Role {
    fn origin(self, file: &Path, line: usize) -> Origin {
        let file = file.to_owned();
        match self {
            Role::Recorded => Origin::Recorded { file, line },
            Role::User => Origin::User { file, line },
            Role::Project => Origin::Project { file, line },
        }
    }
}

/// Reads every layer and puts them together; no project is trusted.
pub fn load(inputs: &Inputs) -> Loaded {
    load_project(inputs, &Project::find(&inputs.directory, &inputs.environment), &Trust::Not)
}

/// The same with a project whose files were read before, and that may be trusted: then its `[sandbox]` is taken as it
/// stands.
pub fn load_project(inputs: &Inputs, files: &Project, trusted: &Trust) -> Loaded {
    let mut reader = Reader { environment: &inputs.environment, errors: Vec::new() };
    let user_file = inputs.environment.user_file();

    let recorded =
        record_file(&inputs.environment).map(|path| reader.file(&path, Role::Recorded)).unwrap_or_default();
    let user = user_file.as_deref().map(|path| reader.user_file(path)).unwrap_or_default();
    let project = files.settings.as_ref().map(|file| reader.project(file)).unwrap_or_default();
    let environment = reader.variables();
    let flags = reader.flags(&inputs.flags);
    let mut errors = reader.errors;

    let builtin = Settings::builtin(inputs.flavor);
    let mut own = builtin.clone();
    for given in recorded.iter().chain(&user).chain(&environment).chain(&flags) {
        given.key.set(&mut own, given.value.clone());
    }
    let mut refusals = Vec::new();
    let project: Vec<Given> = project
        .into_iter()
        .filter(|given| match trust::judge(given.key, &given.value, &own) {
            Ok(()) => true,
            Err(_) if given.key.section == SANDBOX && trusted.given() => true,
            Err(why) => {
                refusals.push(Refusal {
                    origin: given.origin.clone(),
                    key: given.key.full(),
                    value: given.key.kind.show(&given.value),
                    why,
                    user_file: user_file.as_deref().unwrap_or(Path::new("config.toml")).display().to_string(),
                    variable: given.key.variable(),
                    otherwise: match &files.directory {
                        Some(directory) if given.key.section == SANDBOX => trusted.otherwise(directory),
                        _ => String::new(),
                    },
                });
                false
            }
        })
        .collect();

    let mut settings = builtin;
    let mut origins = vec![Origin::Builtin; KEYS.len()];
    for given in recorded.into_iter().chain(user).chain(project).chain(environment).chain(flags) {
        let text = given.key.kind.show(&given.value);
        if !given.key.set(&mut settings, given.value) {
            // The table's rows are tested for this; if one were wrong, its value must not be passed over.
            let why = format!("it takes {}", given.key.kind.accepts());
            errors.push(ConfigError::BadValue {
                origin: given.origin,
                key: given.key.full(),
                value: text,
                why,
            });
            continue;
        }
        if let Some(n) = KEYS.iter().position(|key| std::ptr::eq(key, given.key))
            && let Some(origin) = origins.get_mut(n)
        {
            *origin = given.origin;
        }
    }
    let project_file = files.settings.as_ref().map(|file| file.path.clone());
    let mut loaded = Loaded { settings, refusals, errors, user_file, project_file, origins };
    confine(&mut loaded);
    loaded
}

/// A workspace that a project named stays below the notebook's directory even for a user who allows
/// workspaces outside: the project may have brought a link of that name. A trusted project says itself that its
/// workspace may lie outside.
fn confine(loaded: &mut Loaded) {
    let named = loaded.origin("sandbox.workspace").clone();
    let allowed = matches!(loaded.origin("sandbox.workspace_outside"), Origin::Project { .. });
    if matches!(named, Origin::Project { .. }) && loaded.settings.sandbox.workspace_outside && !allowed {
        loaded.settings.sandbox.workspace_outside = false;
        if let Some(n) = KEYS.iter().position(|key| key.full() == "sandbox.workspace_outside")
            && let Some(origin) = loaded.origins.get_mut(n)
        {
            *origin = named;
        }
    }
}

/// Reads the sources, gathering what is wrong with them.
struct Reader<'a> {
    environment: &'a Environment,
    errors: Vec<ConfigError>,
}

impl Reader<'_> {
    /// The user's file. One that was named and is missing is a mistake; `/dev/null` means none.
    fn user_file(&mut self, path: &Path) -> Vec<Given> {
        if path == Path::new("/dev/null") {
            return Vec::new();
        }
        if self.environment.text("CELLBLOCK_CONFIG").is_some() && path.symlink_metadata().is_err() {
            let why = "CELLBLOCK_CONFIG names it, but it does not exist".to_owned();
            self.errors.push(ConfigError::Unreadable { file: path.to_owned(), why });
        }
        self.file(path, Role::User)
    }

    fn file(&mut self, path: &Path, role: Role) -> Vec<Given> {
        match file::read(path) {
            Ok(Some(text)) => self.text(&text, path, role),
            Ok(None) => Vec::new(),
            Err(why) => self.unreadable(path, why),
        }
    }

    /// What was read of a project before.
    fn project(&mut self, file: &ProjectFile) -> Vec<Given> {
        match &file.text {
            Ok(text) => self.text(text, &file.path, Role::Project),
            Err(why) => self.unreadable(&file.path, why.clone()),
        }
    }

    fn unreadable(&mut self, path: &Path, why: String) -> Vec<Given> {
        self.errors.push(ConfigError::Unreadable { file: path.to_owned(), why });
        Vec::new()
    }

    fn text(&mut self, text: &str, path: &Path, role: Role) -> Vec<Given> {
        let parsed = file::parse(text);
        for (line, why) in parsed.syntax {
            self.errors.push(ConfigError::Syntax { origin: role.origin(path, line), why });
        }
        parsed
            .entries
            .into_iter()
            .filter_map(|entry| {
                let origin = role.origin(path, entry.line);
                self.entry(entry, origin).map_err(|error| self.errors.push(error)).ok().flatten()
            })
            .collect()
    }

    fn entry(&self, entry: Entry, origin: Origin) -> Result<Option<Given>, ConfigError> {
        let Some(section) = entry.section else {
            let key = entry.key.unwrap_or_default();
            let full: Vec<String> = KEYS.iter().map(Key::full).collect();
            let nearest = KEYS
                .iter()
                .find(|known| known.name == key)
                .map(|known| format!("{} below [{}]", known.name, known.section))
                .or_else(|| nearest(&key, full.iter().map(String::as_str)));
            return Err(ConfigError::UnknownKey { origin, key, nearest });
        };
        let known = sections();
        if !known.contains(&section.as_str()) {
            // Said once, at the header, not again for every key below it.
            return match entry.key {
                Some(_) => Ok(None),
                None => Err(ConfigError::UnknownSection {
                    origin,
                    nearest: nearest(&section, known.iter().copied()).map(|name| format!("[{name}]")),
                    sections: known.into_iter().map(|name| format!("[{name}]")).collect(),
                    section,
                }),
            };
        }
        let Some(name) = entry.key else { return Ok(None) };
        let key = find(&section, &name, &origin)?;
        let bad = |value: String, why: String| ConfigError::BadValue {
            origin: origin.clone(),
            key: key.full(),
            value,
            why,
        };
        if key.kind == Kind::Secret {
            return Err(ConfigError::SecretInTheOpen { origin, key: key.full(), variable: key.variable() });
        }
        let text = match entry.value {
            Written::Quoted(text) => text,
            Written::Bare(text) if takes_bare(key.kind, &text) => text,
            Written::Bare(text) => {
                let why = format!("it takes {}, in quotes", key.kind.accepts());
                return Err(bad(text, why));
            }
            Written::Nothing => return Ok(None),
            Written::Other(what) => {
                let why = format!("it takes {}", key.kind.accepts());
                return Err(bad(what.to_owned(), why));
            }
        };
        match key.kind.parse(&text, self.environment) {
            Ok(value) => Ok(Some(Given { key, value, origin })),
            Err(why) => Err(bad(key.kind.quoted(&text), why)),
        }
    }

    /// Every `CELLBLOCK_<SECTION>__<KEY>`, and the other variables that some keys listen to.
    fn variables(&mut self) -> Vec<Given> {
        let mut given = Vec::new();
        for key in KEYS {
            let alias = key.aliases.iter().find(|alias| self.environment.text(alias).is_some());
            for variable in alias.into_iter().map(|alias| (*alias).to_owned()).chain([key.variable()]) {
                // An empty variable is one that is not set: compose files and CI can't leave one out.
                if let Some(text) = self.environment.text(&variable) {
                    let origin = Origin::Environment(variable.clone());
                    given.extend(self.value(key, text, origin));
                }
            }
        }
        for (name, value) in self.environment.iter() {
            let Some(rest) = name.strip_prefix("CELLBLOCK_") else { continue };
            let ours = KEYS.iter().find(|key| key.variable() == name);
            if let Some(key) = ours.filter(|_| value.to_str().is_none()) {
                self.errors.push(ConfigError::BadValue {
                    origin: Origin::Environment(name.to_owned()),
                    key: name.to_owned(),
                    value: key.kind.quoted(&value.to_string_lossy()),
                    why: "it is not Unicode text".to_owned(),
                });
            } else if ours.is_none() && (rest.contains("__") || misspelt(name)) {
                let variables: Vec<String> = KEYS.iter().map(Key::variable).collect();
                self.errors.push(ConfigError::UnknownKey {
                    origin: Origin::Environment(name.to_owned()),
                    key: name.to_owned(),
                    nearest: nearest(name, variables.iter().map(String::as_str)),
                });
            }
        }
        given
    }

    fn flags(&mut self, flags: &[String]) -> Vec<Given> {
        let mut given = Vec::new();
        for flag in flags {
            let (full, text) = flag.split_once('=').unwrap_or((flag, ""));
            let (section, name) = full.trim().split_once('.').unwrap_or((full.trim(), ""));
            // The value of a key that must not be here is not repeated in messages either.
            let origin = Origin::Flag(format!("--set {}", full.trim()));
            match find(section, name, &origin) {
                Err(error) => self.errors.push(error),
                Ok(key) if key.kind == Kind::Secret => self.errors.push(ConfigError::SecretInTheOpen {
                    origin,
                    key: key.full(),
                    variable: key.variable(),
                }),
                Ok(key) => given.extend(self.value(key, text, origin)),
            }
        }
        given
    }

    fn value(&mut self, key: &'static Key, text: &str, origin: Origin) -> Option<Given> {
        match key.kind.parse(text, self.environment) {
            Ok(value) => Some(Given { key, value, origin }),
            Err(why) => {
                let value = key.kind.quoted(text);
                self.errors.push(ConfigError::BadValue { origin, key: key.full(), value, why });
                None
            }
        }
    }
}

/// The key of that name, or the error that names the nearest.
fn find(section: &str, name: &str, origin: &Origin) -> Result<&'static Key, ConfigError> {
    Key::find(section, name).ok_or_else(|| {
        // A flag may lack its section, as in `--set cpus=1`.
        let (full, name) = match name {
            "" => (section.to_owned(), section),
            name => (format!("{section}.{name}"), name),
        };
        let names: Vec<String> = KEYS.iter().map(Key::full).collect();
        // A key of the same section is more likely meant than one of another.
        let same = names.iter().map(String::as_str).filter(|n| n.split('.').next() == Some(section));
        let nearest = KEYS
            .iter()
            .find(|key| key.name == name)
            .map(Key::full)
            .or_else(|| nearest(&full, same))
            .or_else(|| nearest(&full, names.iter().map(String::as_str)));
        ConfigError::UnknownKey { origin: origin.clone(), key: full, nearest }
    })
}

/// Whether a value without quotes can be meant for this kind.
fn takes_bare(kind: Kind, text: &str) -> bool {
    let flag = matches!(text, "true" | "false");
    match kind {
        Kind::Flag => flag,
        Kind::Count { .. } | Kind::Number { .. } | Kind::Size { .. } | Kind::Time { .. } => !flag,
        _ => false,
    }
}

/// `CELLBLOCK_SANDBOX_MEMORY`: one underscore too few, which would otherwise be passed over in silence.
fn misspelt(name: &str) -> bool {
    let squeeze = |name: &str| name.replace('_', "");
    KEYS.iter().any(|key| squeeze(&key.variable()) == squeeze(name))
}
