//! The files of a project: found, and read once, so that what is judged is what is used.
//!
//! Imports nothing but its siblings.

use std::path::{Path, PathBuf};

use super::{Environment, file};

/// The name of a project's settings file.
const SETTINGS: &str = "cellblock.toml";
/// The registry of a project's containers.
const REGISTRY: &str = "containers/registry.yaml";

/// What lies beside a notebook, or above it, and wants to have a say.
#[derive(Debug, Clone, Default)]
pub struct Project {
    /// What trust is about: the folder of the innermost of its files, resolved; `None` when there is no file.
    pub directory: Option<PathBuf>,
    /// Its `cellblock.toml`.
    pub settings: Option<ProjectFile>,
    /// Its `containers/registry.yaml`.
    pub registry: Option<ProjectFile>,
}

/// One file of a project.
#[derive(Debug, Clone)]
pub struct ProjectFile {
    /// Where it is, as it was found.
    pub path: PathBuf,
    /// The folder that it speaks for, resolved: no path of it leads further without trust.
    pub root: PathBuf,
    /// What it says, or why it can't be read.
    pub text: Result<String, String>,
}

impl Project {
    /// The nearest files in a directory or above it. A `cellblock.toml` that the user named as their own is none.
    pub fn find(directory: &Path, environment: &Environment) -> Self {
        let settings = file::find_above(directory, SETTINGS)
            .filter(|found| !environment.user_file().is_some_and(|user| same(&user, found)));
        let own = environment.user_registry();
        let registry = file::find_above(directory, REGISTRY)
            .filter(|found| !own.as_deref().is_some_and(|own| same(own, found)));
        let settings = settings.and_then(|path| ProjectFile::read(path, 1));
        let registry = registry.and_then(ProjectFile::registry);
        let roots = settings.iter().chain(&registry).map(|file| file.root.clone());
        let directory = roots.max_by_key(|root| root.components().count());
        Project { directory, settings, registry }
    }
}

impl ProjectFile {
    /// The registry of containers at that path, when there is one.
    pub fn registry(path: PathBuf) -> Option<Self> {
        path.symlink_metadata().is_ok().then(|| Self::read(path, 2)).flatten()
    }

    /// A file that lies `depth` levels below what it speaks for; `None` when it has just gone.
    fn read(path: PathBuf, depth: usize) -> Option<Self> {
        let above = path.ancestors().nth(depth).unwrap_or(Path::new("/"));
        let root = above.canonicalize().unwrap_or_else(|_| above.to_owned());
        let text = match file::read(&path) {
            Ok(Some(text)) => Ok(text),
            Ok(None) if path.symlink_metadata().is_err() => return None,
            Ok(None) => Err("it is a link to nowhere".to_owned()),
            Err(why) => Err(why),
        };
        Some(ProjectFile { path, root, text })
    }
}

fn same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
