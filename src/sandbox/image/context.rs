//! What is sent to the engine to build from: a tar archive of a folder, or of files that the binary carries.
//!
//! Imports `workspace`. A folder is walked from a descriptor of its own, without following a link: a link is sent as
//! a link, and nothing that lies outside gets in. Pipes, sockets and devices are left out.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use sha2::{Digest, Sha256};

use super::ignore::Ignore;
use super::{AUTHORITIES_FILE, ImageError, authorities_of};
use crate::sandbox::definition::Build;
use crate::sandbox::workspace::open_unlinked;

/// The most that is sent, in bytes.
const SIZE: u64 = 256 << 20;
/// The most files and folders.
const ENTRIES: usize = 50_000;
/// How deep folders may lie in each other.
const DEPTH: usize = 64;
/// The longest Dockerfile, in bytes.
const DOCKERFILE: u64 = 1 << 20;

/// A folder to build from.
pub(crate) struct Context {
    /// The archive; empty when it was not asked for.
    pub(crate) archive: Vec<u8>,
    /// Of everything in it: names, modes, contents.
    pub(crate) hash: [u8; 32],
    /// How many files and folders were looked at.
    pub(crate) entries: usize,
    /// The Dockerfile's name in it.
    pub(crate) dockerfile: String,
    /// The Dockerfile.
    pub(crate) text: String,
}

/// Reads a folder to build from; `pack`: into an archive, with the certificate authorities added.
pub(crate) fn folder(build: &Build, authorities: Option<&Path>, pack: bool) -> Result<Context, ImageError> {
    let failed = |why: String| ImageError::Context { path: build.context.clone(), why };
    let said = |error: io::Error| failed(error.to_string());
    let dockerfile = build.dockerfile.strip_prefix(&build.context).unwrap_or(&build.dockerfile);
    if dockerfile.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(failed(format!("{} does not lie in it", dockerfile.display())));
    }
    let dockerfile: PathBuf = dockerfile.components().filter(|part| *part != Component::CurDir).collect();
    let root = open_unlinked(&build.context).map_err(said)?;
    let ignore = match text(&root, Path::new(".dockerignore")) {
        Ok(text) => Ignore::parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ignore::default(),
        Err(error) => return Err(failed(format!("its .dockerignore can't be read: {error}"))),
    };
    let text = text(&root, &dockerfile)
        .map_err(|error| failed(format!("its {} can't be read: {error}", dockerfile.display())))?;
    let archive = pack.then(|| tar::Builder::new(Vec::new()));
    let mut walk = Walk { ignore, dockerfile, archive, hash: Sha256::new(), left: SIZE, entries: 0 };
    walk.folder(&root, &mut Vec::new()).map_err(said)?;
    let Walk { dockerfile, mut archive, hash, entries, .. } = walk;
    if let Some(archive) = &mut archive
        && rustix::fs::statat(&root, AUTHORITIES_FILE, AtFlags::SYMLINK_NOFOLLOW).is_err()
    {
        append(archive, Path::new(AUTHORITIES_FILE), authorities_of(authorities)?.as_bytes(), 0o644, 0)
            .map_err(said)?;
    }
    let archive = archive.map_or(Ok(Vec::new()), tar::Builder::into_inner).map_err(said)?;
    let dockerfile = dockerfile.to_string_lossy().into_owned();
    Ok(Context { archive, hash: hash.finalize().into(), entries, dockerfile, text })
}

/// An archive of a few files.
pub(crate) fn files(files: &[(&str, &str)]) -> Result<Vec<u8>, ImageError> {
    let mut archive = tar::Builder::new(Vec::new());
    files
        .iter()
        .try_for_each(|(name, text)| append(&mut archive, Path::new(name), text.as_bytes(), 0o644, 0))
        .and_then(|()| archive.into_inner())
        .map_err(|e| ImageError::Engine(format!("the build context can't be packed: {e}")))
}

fn append(
    archive: &mut tar::Builder<Vec<u8>>,
    path: &Path,
    bytes: &[u8],
    mode: u32,
    modified: u64,
) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(mode);
    header.set_mtime(modified);
    archive.append_data(&mut header, path, bytes)
}

/// A small text in a folder. Its last name may be no link, and neither may any folder on the way.
fn text(root: &OwnedFd, path: &Path) -> io::Result<String> {
    let mut at = root.try_clone()?;
    for name in path.parent().into_iter().flat_map(Path::components) {
        at = enter(&at, name.as_os_str())?;
    }
    let file = open(&at, path.file_name().unwrap_or_default())?;
    let mut text = String::new();
    file.take(DOCKERFILE).read_to_string(&mut text)?;
    Ok(text)
}

fn enter(at: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

fn open(at: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(at, name, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

struct Walk {
    ignore: Ignore,
    dockerfile: PathBuf,
    archive: Option<tar::Builder<Vec<u8>>>,
    hash: Sha256,
    left: u64,
    entries: usize,
}

impl Walk {
    fn folder(&mut self, at: &OwnedFd, above: &mut Vec<String>) -> io::Result<()> {
        if above.len() >= DEPTH {
            return Err(io::Error::other(format!("folders lie more than {DEPTH} deep in each other")));
        }
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(at)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.entries += 1;
                if self.entries > ENTRIES {
                    return Err(io::Error::other(format!(
                        "more than {ENTRIES} files and folders lie in it; name those that the Dockerfile does not need \
                         in a .dockerignore"
                    )));
                }
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        // In the same order everywhere, or the hash would change.
        names.sort();
        for name in names {
            above.push(name.to_string_lossy().into_owned());
            let done = self.entry(at, &name, above);
            above.pop();
            done?;
        }
        Ok(())
    }

    fn entry(&mut self, at: &OwnedFd, name: &OsStr, names: &mut Vec<String>) -> io::Result<()> {
        let path: PathBuf = names.iter().collect();
        let parts: Vec<&str> = names.iter().map(String::as_str).collect();
        // The engine reads the Dockerfile from the archive, whatever the rules say.
        let excluded = self.ignore.excludes(&parts) && path != self.dockerfile;
        let holds_dockerfile = self.dockerfile.starts_with(&path);
        let stat = rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            if excluded && !self.ignore.takes_back() && !holds_dockerfile {
                return Ok(());
            }
            if !excluded {
                self.note(b'd', &path, &stat, b"");
                if let Some(archive) = &mut self.archive {
                    let mut header = header(&stat, tar::EntryType::Directory);
                    archive.append_data(&mut header, &path, io::empty())?;
                }
            }
            return self.folder(&enter(at, name)?, names);
        }
        if excluded {
            return Ok(());
        }
        if kind == FileType::Symlink {
            let target = rustix::fs::readlinkat(at, name, Vec::new())?;
            self.note(b'l', &path, &stat, target.to_bytes());
            if let Some(archive) = &mut self.archive {
                let mut header = header(&stat, tar::EntryType::Symlink);
                archive.append_link(&mut header, &path, OsStr::from_bytes(target.to_bytes()))?;
            }
        } else if kind == FileType::RegularFile {
            let mut bytes = Vec::new();
            open(at, name)?.take(self.left + 1).read_to_end(&mut bytes)?;
            self.left = self.left.checked_sub(bytes.len() as u64).ok_or_else(|| {
                io::Error::other(format!(
                    "it holds more than {} MB; name what the Dockerfile does not need in a .dockerignore",
                    SIZE >> 20
                ))
            })?;
            self.note(b'f', &path, &stat, &bytes);
            if let Some(archive) = &mut self.archive {
                let modified = u64::try_from(stat.st_mtime).unwrap_or_default();
                append(archive, &path, &bytes, stat.st_mode & 0o777, modified)?;
            }
        }
        Ok(())
    }

    /// Times are not part of what a folder is: a fresh copy of the same files has others.
    fn note(&mut self, kind: u8, path: &Path, stat: &Stat, bytes: &[u8]) {
        let path = path.as_os_str().as_bytes();
        self.hash.update([kind]);
        for part in [path, &(stat.st_mode & 0o777).to_le_bytes(), bytes] {
            self.hash.update((part.len() as u64).to_le_bytes());
            self.hash.update(part);
        }
    }
}

fn header(stat: &Stat, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(0);
    header.set_mode(stat.st_mode & 0o777);
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or_default());
    header
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn build(context: &Path, dockerfile: &str) -> Build {
        let context = context.canonicalize().unwrap();
        Build { context, dockerfile: dockerfile.into(), arguments: Vec::new(), target: None, seal: None }
    }

    /// What is in the archive, with the contents of files and the targets of links.
    fn sent(context: &Path, dockerfile: &str) -> BTreeMap<String, String> {
        let context = folder(&build(context, dockerfile), None, true).unwrap();
        let mut archive = tar::Archive::new(context.archive.as_slice());
        let entry = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let name = entry.path().unwrap().to_string_lossy().into_owned();
            let link = entry.link_name().unwrap().map(|link| format!("-> {}", link.display()));
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (name, link.unwrap_or(text))
        };
        archive.entries().unwrap().map(entry).filter(|(name, _)| name != AUTHORITIES_FILE).collect()
    }

    #[test]
    fn links_stay_links_and_nothing_from_outside_gets_in() {
        let (dir, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(foreign.path().join("secret"), "host").unwrap();
        fs::write(dir.path().join("Dockerfile"), "FROM x").unwrap();
        symlink(foreign.path().join("secret"), dir.path().join("file")).unwrap();
        symlink(foreign.path(), dir.path().join("folder")).unwrap();
        std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        let sent = sent(dir.path(), "Dockerfile");
        assert_eq!(sent.keys().collect::<Vec<_>>(), ["Dockerfile", "file", "folder"]);
        assert!(sent["file"].starts_with("-> ") && sent["folder"].starts_with("-> "), "{sent:?}");
    }

    #[test]
    fn a_link_for_the_dockerfile_the_folder_or_the_rules_is_refused() {
        let (dir, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(foreign.path().join("Dockerfile"), "FROM x").unwrap();
        symlink(foreign.path().join("Dockerfile"), dir.path().join("Dockerfile")).unwrap();
        symlink(foreign.path(), dir.path().join("sub")).unwrap();
        for name in ["Dockerfile", "sub/Dockerfile", "../Dockerfile", "/etc/passwd", "missing"] {
            assert!(folder(&build(dir.path(), name), None, true).is_err(), "{name}");
        }
        let linked = Build { context: dir.path().join("sub"), ..build(dir.path(), "Dockerfile") };
        assert!(folder(&linked, None, true).is_err());
        fs::remove_file(dir.path().join("Dockerfile")).unwrap();
        fs::write(dir.path().join("Dockerfile"), "FROM x").unwrap();
        assert!(folder(&build(dir.path(), "Dockerfile"), None, true).is_ok());
        symlink("/etc/passwd", dir.path().join(".dockerignore")).unwrap();
        assert!(folder(&build(dir.path(), "Dockerfile"), None, true).is_err());
    }

    #[test]
    fn what_is_ignored_is_not_sent_but_the_dockerfile_always() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sub/deep")).unwrap();
        for name in ["sub/Dockerfile", "sub/deep/keep", "sub/deep/drop", ".env"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        fs::write(dir.path().join(".dockerignore"), "*\n!sub/deep/keep\n").unwrap();
        let sent = sent(dir.path(), "sub/Dockerfile");
        assert_eq!(sent.keys().collect::<Vec<_>>(), ["sub/Dockerfile", "sub/deep/keep"]);
    }

    #[test]
    fn the_hash_changes_with_what_is_sent_and_with_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Dockerfile"), "FROM x").unwrap();
        fs::write(dir.path().join(".dockerignore"), "ignored").unwrap();
        let hash = || folder(&build(dir.path(), "Dockerfile"), None, false).unwrap().hash;
        let first = hash();
        let file = File::options().write(true).open(dir.path().join("Dockerfile")).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        fs::write(dir.path().join("ignored"), "x").unwrap();
        assert_eq!(hash(), first);
        fs::write(dir.path().join("more"), "x").unwrap();
        let second = hash();
        assert_ne!(second, first);
        fs::write(dir.path().join("more"), "y").unwrap();
        assert_ne!(hash(), second);
    }
}
