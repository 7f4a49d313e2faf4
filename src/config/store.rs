//! What the user trusts: a small file of directories, each with the seal of what lay there on that day.
//!
//! Imports nothing but its siblings. A seal is a hash over all that matters: the project's files and whatever else
//! they name. When anything of it changes, the seal does, and the trust is gone.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};

use super::project::Project;
use super::{Environment, Trust, file};

/// What a project names besides its own two files, each under a name of its own.
pub type Matters = Vec<(String, Vec<u8>)>;

/// One directory that is trusted.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trusted {
    /// The directory, resolved.
    pub directory: String,
    /// The seal of what lay there.
    pub seal: String,
    /// The day, as `2026-11-22`.
    pub since: String,
}

#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    trusted: Vec<Trusted>,
}

/// Why trust can't be looked up or remembered.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// There is nowhere to keep it.
    #[error(
        "there is no place to remember trust: neither HOME nor XDG_CONFIG_HOME is set to an absolute path; set one"
    )]
    NoHome,
    /// The file is not what this program writes.
    #[error("{}: it can't be used: {why}. Remove it, and trust your projects again", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// The file can't be written.
    #[error("{}: it can't be written: {why}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        why: std::io::Error,
    },
    /// The project can't be sealed.
    #[error("it can't be trusted: {0}")]
    NoSeal(String),
}

/// A hash over a project's files and all that they name.
///
/// # Errors
/// When one of the files can't be read.
pub fn seal(project: &Project, matters: &Matters) -> Result<String, TrustError> {
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for (name, file) in [("settings", &project.settings), ("registry", &project.registry)] {
        let Some(file) = file else { continue };
        let text = file
            .text
            .as_ref()
            .map_err(|why| TrustError::NoSeal(format!("{} can't be read: {why}", file.path.display())))?;
        part(name.as_bytes());
        part(file.root.as_os_str().as_encoded_bytes());
        part(text.as_bytes());
    }
    for (name, bytes) in matters {
        part(name.as_bytes());
        part(bytes);
    }
    let mut seal = "sha256:".to_owned();
    for byte in hash.finalize() {
        // Writing to a String does not fail.
        let _ = write!(seal, "{byte:02x}");
    }
    Ok(seal)
}

/// Whether a project is trusted as it is now; what else matters is only asked for when it ever was.
pub fn standing(
    project: &Project,
    environment: &Environment,
    matters: impl FnOnce() -> Result<Matters, String>,
) -> Trust {
    let Some(directory) = &project.directory else { return Trust::Not };
    let trusted = match trusted(environment) {
        Ok(trusted) => trusted,
        Err(TrustError::NoHome) => return Trust::Not,
        Err(why) => return Trust::Unclear { why: why.to_string() },
    };
    let Some(found) = trusted.into_iter().find(|trusted| Path::new(&trusted.directory) == directory) else {
        return Trust::Not;
    };
    let now = matters().map_err(TrustError::NoSeal).and_then(|matters| seal(project, &matters));
    match now {
        Ok(seal) if seal == found.seal => Trust::Given { since: found.since },
        Ok(_) => Trust::Changed { since: found.since },
        Err(why) => Trust::Unclear { why: why.to_string() },
    }
}

/// Everything that is trusted, in the order in which it was.
///
/// # Errors
/// When the file is there and can't be used.
pub fn trusted(environment: &Environment) -> Result<Vec<Trusted>, TrustError> {
    let file = environment.trust_file().ok_or(TrustError::NoHome)?;
    read(&file).map(|document| document.trusted)
}

fn read(file: &Path) -> Result<Document, TrustError> {
    let unreadable = |why: String| TrustError::Unreadable { file: file.to_owned(), why };
    let Some(text) = file::read(file).map_err(unreadable)? else { return Ok(Document::default()) };
    // Whoever else could write it would decide what the user trusts.
    let mode = file.metadata().map_err(|why| unreadable(why.to_string()))?.permissions().mode();
    if mode & 0o022 != 0 {
        return Err(unreadable("other users can write it".to_owned()));
    }
    toml::from_str(&text).map_err(|why| unreadable(why.message().to_owned()))
}

/// Remembers that a directory is trusted as it is.
///
/// # Errors
/// When it can't be written.
pub fn remember(environment: &Environment, trusted: Trusted) -> Result<PathBuf, TrustError> {
    change(environment, |document| {
        document.trusted.retain(|other| other.directory != trusted.directory);
        document.trusted.push(trusted);
        true
    })
    .map(|(file, _)| file)
}

/// Trusts a directory no more; whether it was.
///
/// # Errors
/// When it can't be written.
pub fn forget(environment: &Environment, directory: &str) -> Result<bool, TrustError> {
    let (_, was) = change(environment, |document| {
        let before = document.trusted.len();
        document.trusted.retain(|other| other.directory != directory);
        document.trusted.len() < before
    })?;
    Ok(was)
}

/// Changes the file: one at a time, whole or not at all, for its owner's eyes alone.
fn change(
    environment: &Environment,
    act: impl FnOnce(&mut Document) -> bool,
) -> Result<(PathBuf, bool), TrustError> {
    const HEAD: &str = "# Written by `cellblock trust`. A project whose files have changed since is not trusted any more.\n\n";
    let file = environment.trust_file().ok_or(TrustError::NoHome)?;
    let failed = |why: std::io::Error| TrustError::Write { file: file.clone(), why };
    let dir = file.parent().unwrap_or(&file);
    std::fs::create_dir_all(dir).map_err(failed)?;
    let lock = dir.join("trust.lock");
    let lock =
        File::options().create(true).truncate(false).write(true).mode(0o600).open(lock).map_err(failed)?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|why| failed(why.into()))?;
    let mut document = read(&file)?;
    let changed = act(&mut document);
    if changed {
        let text = toml::to_string(&document).map_err(|why| failed(std::io::Error::other(why)))?;
        let write = || -> std::io::Result<()> {
            // A temporary file is its owner's alone from the beginning.
            let mut temporary = tempfile::NamedTempFile::new_in(dir)?;
            temporary.write_all(format!("{HEAD}{text}").as_bytes())?;
            temporary.as_file().sync_all()?;
            temporary.persist(&file).map_err(|error| error.error)?;
            Ok(())
        };
        write().map_err(failed)?;
    }
    Ok((file, changed))
}
