//! Where checkpoints lie on the host: a folder for each, that no container sees.
//!
//! A checkpoint is `meta.json`, which names its archive: a new one is there at once and
//! whole, when `meta.json` is renamed into place. To change the format: another [`VERSION`], and an arm in
//! [`Store::read`].

use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::sandbox::output::size;
use crate::sandbox::session::Inventory;

/// The format of a checkpoint.
const VERSION: u32 = 1;
const META: &str = "meta.json";
/// The largest `meta.json` that is read.
const META_SIZE: u64 = 4 << 20;
/// Checkpoints of one notebook directory.
const MOST: usize = 50;

/// The checkpoints of one notebook directory.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
    most: u64,
}

/// The engine's ids of the images that checkpoints of any notebook's directory were saved from or with; `root` is the
/// folder of all of them.
///
/// # Errors
/// When one can't be read: what it needs is not known then.
pub fn images(root: &Path) -> Result<HashSet<String>, String> {
    let mut ids = HashSet::new();
    for directory in Store::new(root, 0).names().map_err(|e| e.to_string())? {
        let store = Store::new(root.join(directory), 0);
        for name in store.names().map_err(|e| e.to_string())? {
            let folder = store.directory.join(name);
            match store.meta(&folder) {
                Ok(meta) => ids.extend([meta.image].into_iter().chain(meta.root)),
                // One that is being written, or was removed just now.
                Err(StoreError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(format!("{}: {error}", folder.display())),
            }
        }
    }
    Ok(ids)
}

/// What is known of a checkpoint besides its archive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Meta {
    pub(super) version: u32,
    /// The version of this program that wrote it.
    pub(super) cellblock: String,
    /// Which container.
    pub(super) container: String,
    /// The engine's id of the image that it ran.
    pub(super) image: String,
    /// Its root file system as an image, where that was writable.
    pub(super) root: Option<String>,
    /// When, in RFC 3339.
    pub(super) saved: String,
    pub(super) inventory: Inventory,
    /// The name of the archive.
    pub(super) archive: String,
}

/// Why a checkpoint can't be written or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error(
        "{0:?} can't be the name of a checkpoint: letters, digits, `-`, `_` and `.` are, at most 64, a letter or digit first"
    )]
    Name(String),
    #[error("there is no checkpoint {name:?}; {}", listed(there))]
    Missing { name: String, there: Vec<String> },
    #[error("there are {MOST} checkpoints already; remove one with `%checkpoints --delete NAME`")]
    Many,
    #[error(
        "the checkpoints of this notebook's directory take {} of the {} that they may take (sandbox.checkpoint_size): {}; \
         remove one with `%checkpoints --delete NAME`",
        size(*used), size(*most), largest(there)
    )]
    Full { used: u64, most: u64, there: Vec<(String, u64)> },
    #[error("the checkpoint was written by a newer version of this program ({0}); update it")]
    Newer(String),
    #[error("the checkpoint can't be read: {0}; remove it with `%checkpoints --delete NAME`")]
    Broken(String),
    #[error("the folder of checkpoints {path} can't be used: {error}")]
    Io { path: PathBuf, error: io::Error },
}

/// What a name may be.
pub(super) const NAMES: &str =
    "letters, digits, `-`, `_` and `.` are allowed, at most 64, and a letter or digit comes first";

/// Whether a checkpoint or session may be called so.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins = name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
    begins && name.len() <= 64 && name.chars().all(plain)
}

fn listed(there: &[String]) -> String {
    if there.is_empty() {
        "none was saved here yet".to_owned()
    } else {
        format!("there are {}", there.join(", "))
    }
}

/// The largest ones first, by their bytes.
fn largest(there: &[(String, u64)]) -> String {
    let mut there: Vec<_> = there.iter().collect();
    there.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let named = there.iter().take(5).map(|(name, bytes)| format!("{name} {}", size(*bytes)));
    named.collect::<Vec<_>>().join(", ")
}

/// A checkpoint being written. Nothing remains of it unless it is finished.
pub(super) struct Draft {
    folder: PathBuf,
    archive: String,
    finished: bool,
    /// How many bytes it may have: what the others leave.
    pub(super) room: u64,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.finished {
            let _ = std::fs::remove_file(self.folder.join(&self.archive));
            // Only when nothing else is in it.
            let _ = std::fs::remove_dir(&self.folder);
        }
    }
}

impl Store {
    /// Checkpoints in `directory`, created when it is needed; together they may have `most` bytes.
    pub fn new(directory: impl Into<PathBuf>, most: u64) -> Self {
        Store { directory: directory.into(), most }
    }

    fn folder(&self, name: &str) -> Result<PathBuf, StoreError> {
        if !is_name(name) {
            return Err(StoreError::Name(name.chars().take(80).collect()));
        }
        Ok(self.directory.join(name))
    }

    fn io(&self, error: io::Error) -> StoreError {
        StoreError::Io { path: self.directory.clone(), error }
    }

    /// Begins one, in place of another of that name.
    pub(super) fn begin(&self, name: &str) -> Result<(Draft, File), StoreError> {
        let folder = self.folder(name)?;
        if !folder.exists() && self.names()?.len() >= MOST {
            return Err(StoreError::Many);
        }
        let others = self.others(name)?;
        let used: u64 = others.iter().map(|(_, bytes)| bytes).sum();
        if used >= self.most {
            return Err(StoreError::Full { used, most: self.most, there: others });
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|e| self.io(e))?;
        let archive = format!("state-{}.tar", uuid::Uuid::new_v4().simple());
        let file = create(&folder.join(&archive)).map_err(|e| self.io(e))?;
        Ok((Draft { folder, archive, finished: false, room: self.most - used }, file))
    }

    /// The checkpoints of other names, with their bytes on the disk.
    fn others(&self, name: &str) -> Result<Vec<(String, u64)>, StoreError> {
        let bytes = |name: &String| {
            let entries = std::fs::read_dir(self.directory.join(name)).into_iter().flatten().flatten();
            entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
        };
        let names = self.names()?.into_iter().filter(|other| other != name);
        Ok(names.map(|name| (name.clone(), bytes(&name))).collect())
    }

    /// Why one that did not fit had so little room; `None` when it had all.
    pub(super) fn crowded(&self, name: &str) -> Option<String> {
        let there = self.others(name).ok()?;
        let used = there.iter().map(|(_, bytes)| bytes).sum();
        (used > 0).then(|| StoreError::Full { used, most: self.most, there }.to_string())
    }

    /// Puts it in place; the one before goes.
    pub(super) fn finish(&self, mut draft: Draft, mut meta: Meta) -> Result<PathBuf, StoreError> {
        meta.archive.clone_from(&draft.archive);
        let text = serde_json::to_vec_pretty(&meta).map_err(|e| StoreError::Broken(e.to_string()))?;
        let put = || -> io::Result<()> {
            File::open(draft.folder.join(&draft.archive))?.sync_all()?;
            let beside = draft.folder.join(format!("{}.meta", draft.archive));
            let mut file = create(&beside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            std::fs::rename(beside, draft.folder.join(META))
        };
        put().map_err(|e| self.io(e))?;
        draft.finished = true;
        for entry in std::fs::read_dir(&draft.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name != META && name != *draft.archive {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(draft.folder.clone())
    }

    /// One, with its archive.
    pub(super) fn read(&self, name: &str) -> Result<(Meta, File), StoreError> {
        let folder = self.folder(name)?;
        let meta = match self.meta(&folder) {
            Err(StoreError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                let there = self.list()?.into_iter().map(|(name, _)| name).collect();
                return Err(StoreError::Missing { name: name.to_owned(), there });
            }
            meta => meta?,
        };
        let archive = Path::new(&meta.archive).file_name().unwrap_or_default();
        let file = File::open(folder.join(archive)).map_err(|e| StoreError::Broken(e.to_string()))?;
        Ok((meta, file))
    }

    fn meta(&self, folder: &Path) -> Result<Meta, StoreError> {
        use std::io::Read;
        #[derive(Deserialize)]
        struct Which {
            version: u32,
            cellblock: String,
        }
        let file = File::open(folder.join(META)).map_err(|e| self.io(e))?;
        let mut text = Vec::new();
        file.take(META_SIZE).read_to_end(&mut text).map_err(|e| self.io(e))?;
        let broken = |e: serde_json::Error| StoreError::Broken(e.to_string());
        let which: Which = serde_json::from_slice(&text).map_err(broken)?;
        match which.version {
            VERSION => serde_json::from_slice(&text).map_err(broken),
            _ => Err(StoreError::Newer(which.cellblock)),
        }
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        let entries = match std::fs::read_dir(&self.directory) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| self.io(e))?,
        };
        let mut names: Vec<_> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// All that can be read, by name.
    pub(super) fn list(&self) -> Result<Vec<(String, Meta)>, StoreError> {
        let names = self.names()?.into_iter();
        Ok(names
            .filter_map(|name| Some((name.clone(), self.meta(&self.folder(&name).ok()?).ok()?)))
            .collect())
    }

    /// Removes one; whether there was one.
    pub(super) fn delete(&self, name: &str) -> Result<bool, StoreError> {
        match std::fs::remove_dir_all(self.folder(name)?) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(self.io(e)),
        }
    }

    /// What a checkpoint is written with.
    pub(super) fn describe(
        container: String,
        image: String,
        root: Option<String>,
        inventory: Inventory,
    ) -> Meta {
        Meta {
            version: VERSION,
            cellblock: env!("CARGO_PKG_VERSION").to_owned(),
            container,
            image,
            root,
            saved: chrono::Local::now().to_rfc3339(),
            inventory,
            archive: String::new(),
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn meta(image: &str) -> Meta {
        Store::describe("python".into(), image.into(), None, Inventory::default())
    }

    fn save(store: &Store, name: &str, text: &str) -> PathBuf {
        let (draft, mut file) = store.begin(name).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        store.finish(draft, meta(text)).unwrap()
    }

    #[test]
    fn a_checkpoint_is_replaced_whole_and_an_unfinished_one_leaves_the_old() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path().join("a/b"), 1 << 20);
        assert!(store.list().unwrap().is_empty());
        save(&store, "one", "first");
        let folder = save(&store, "one", "second");
        drop(store.begin("one").unwrap());
        let (meta, mut file) = store.read("one").unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((meta.image.as_str(), text.as_str()), ("second", "second"));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        drop(store.begin("never").unwrap());
        assert!(!directory.path().join("a/b/never").exists());
        assert!(store.delete("one").unwrap() && !store.delete("one").unwrap());
    }

    #[test]
    fn all_of_them_together_have_a_limit_and_the_largest_are_named_when_it_is_reached() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path(), 10_000);
        save(&store, "large", &"x".repeat(2000));
        let (draft, _) = store.begin("small").unwrap();
        assert!((5000..6000).contains(&draft.room), "{}", draft.room);
        drop(draft);
        assert_eq!(store.begin("large").unwrap().0.room, 10_000, "what it replaces does not count");
        save(&store, "small", &"x".repeat(3000));
        let told = store.begin("more").map(drop).unwrap_err().to_string();
        assert!(told.contains("large") && told.contains(": small ") && told.contains("--delete"), "{told}");
        assert!(store.begin("small").is_ok());
    }

    #[test]
    fn names_stay_in_the_folder_and_missing_ones_are_told_with_those_that_are_there() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(directory.path(), 1 << 20);
        for name in ["", ".", "..", "../x", "a/b", "-x", ".x", "a b", "é", &"x".repeat(65)] {
            assert!(matches!(store.begin(name), Err(StoreError::Name(_))), "{name}");
            assert!(store.delete(name).is_err() && store.read(name).is_err(), "{name}");
        }
        save(&store, "there", "x");
        let told = store.read("gone").unwrap_err().to_string();
        assert!(told.contains("gone") && told.contains("there"), "{told}");
        std::fs::write(directory.path().join("there/meta.json"), r#"{"version": 9, "cellblock": "7.0"}"#)
            .unwrap();
        assert!(store.read("there").unwrap_err().to_string().contains("7.0"));
    }
}
