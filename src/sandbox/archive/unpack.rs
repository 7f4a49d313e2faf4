//! An archive into a folder of the host.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};

use super::host::enter;
use super::pattern::{is_data, is_private, matches};
use super::read::{Entry, Kind, Reader};
use super::{ArchiveError, Limits, Report};

const PIECE: usize = 128 << 10;
/// Folders in folders.
const DEPTH: usize = 100;
/// The permissions that files and folders may have: no setuid and no sticky bit, and nobody else writes.
const FILE_MODE: u32 = 0o755;

/// How many folders are given their own permissions and times, and how long their names may be together.
const FOLDERS: usize = 20_000;
const FOLDER_NAMES: usize = 8 << 20;

/// Folders whose permissions and times come last: a folder may be closed to writing.
#[derive(Default)]
struct Folders {
    made: Vec<(Vec<Vec<u8>>, u32, f64)>,
    size: usize,
}

impl Folders {
    fn add(&mut self, names: &[Vec<u8>], entry: &Entry) {
        self.size += names.iter().map(Vec::len).sum::<usize>();
        if self.made.len() < FOLDERS && self.size < FOLDER_NAMES {
            self.made.push((names.to_vec(), entry.mode, entry.modified));
        }
    }

    fn finish(self, root: &OwnedFd) {
        for (names, mode, modified) in self.made.into_iter().rev() {
            let mut folder = root.try_clone();
            for name in &names {
                folder = folder.and_then(|folder| enter(&folder, path(name), false));
            }
            if let Ok(folder) = folder {
                let _ = rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode & FILE_MODE | 0o700));
                let _ = File::from(folder).set_modified(time(modified));
            }
        }
    }
}

/// What of an archive is taken.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The pattern that the names at the top must fit: what was asked for. `None`: any.
    pub top: Option<String>,
    /// Whether hidden names and settings are taken.
    pub hidden: bool,
    /// Whether any file that is there may be replaced; else only data.
    pub replace: bool,
}

impl Rules {
    fn judge(&self, names: &[Vec<u8>], renamed: bool) -> Result<(), &'static str> {
        let Some(first) = names.first().filter(|_| !renamed) else { return self.below(names, 1) };
        if let Some(top) = &self.top {
            let name = String::from_utf8_lossy(first);
            let unasked = name.starts_with('.') && !top.starts_with('.');
            if unasked || !(*name == **top || matches(top, &name)) {
                return Err("it was not asked for");
            }
        }
        self.below(names, 0)
    }

    fn below(&self, names: &[Vec<u8>], from: usize) -> Result<(), &'static str> {
        if !self.hidden && names.iter().skip(from).any(|name| is_private(name)) {
            return Err("it is hidden or a part of settings");
        }
        Ok(())
    }
}

/// Unpacks what comes from `source` into `folder`. With `rename` the archive's only top entry gets that name.
/// `moved` is told of bytes as they are written.
///
/// # Errors
/// When the archive is damaged, holds more than `limits`, or the system refuses to write; what was unpacked
/// before stays. What is refused is no error: the report lists it.
pub fn unpack(
    source: impl Read,
    folder: &OwnedFd,
    rename: Option<&OsStr>,
    rules: &Rules,
    limits: Limits,
    moved: &mut dyn FnMut(u64),
) -> Result<Report, ArchiveError> {
    let mut reader = Reader::new(source);
    let mut work = Unpacking {
        root: folder,
        rules,
        report: Report::default(),
        folders: Folders::default(),
        left: limits.bytes,
        buffer: vec![0; PIECE],
        moved,
    };
    let (mut entries, mut top) = (0, None);
    let outcome = loop {
        let entry = match reader.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        };
        entries += 1;
        if entries > limits.entries {
            break Err(ArchiveError::TooMuch(format!("{} files", limits.entries)));
        }
        let mut names = match plain(&entry.name) {
            Ok(names) => names,
            Err(why) => {
                work.report.refuse(&entry.name, why);
                continue;
            }
        };
        if let Err(why) = rules.judge(&names, rename.is_some()) {
            work.report.refuse(&entry.name, why);
            continue;
        }
        if let (Some(rename), Some(first)) = (rename, names.first_mut()) {
            if top.get_or_insert_with(|| first.clone()) != first {
                break Err(ArchiveError::Several);
            }
            *first = rename.as_bytes().to_vec();
        }
        match work.take(&mut reader, &entry, &names) {
            Ok(()) => {}
            Err(Trouble::Refused(why)) => work.report.refuse(&entry.name, &why),
            Err(Trouble::Over(e)) => break Err(e),
        }
    };
    work.folders.finish(folder);
    outcome.map(|()| work.report)
}

struct Unpacking<'a> {
    root: &'a OwnedFd,
    rules: &'a Rules,
    report: Report,
    folders: Folders,
    left: u64,
    buffer: Vec<u8>,
    moved: &'a mut dyn FnMut(u64),
}

enum Trouble {
    /// This entry is left out.
    Refused(String),
    /// So is everything after it.
    Over(ArchiveError),
}

impl From<rustix::io::Errno> for Trouble {
    fn from(e: rustix::io::Errno) -> Self {
        std::io::Error::from(e).into()
    }
}

impl From<std::io::Error> for Trouble {
    fn from(e: std::io::Error) -> Self {
        match e.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Trouble::Over(e.into()),
            _ => Trouble::Refused(match e.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
                Some(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
                    "a link or a file is where a folder should be".to_owned()
                }
                _ => e.to_string(),
            }),
        }
    }
}

impl From<ArchiveError> for Trouble {
    fn from(e: ArchiveError) -> Self {
        Trouble::Over(e)
    }
}

fn refused(why: &str) -> Trouble {
    Trouble::Refused(why.to_owned())
}

impl Unpacking<'_> {
    fn take<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        entry: &Entry,
        names: &[Vec<u8>],
    ) -> Result<(), Trouble> {
        if let Kind::Other(what) = entry.kind {
            return Err(refused(what));
        }
        let Some((name, parents)) = names.split_last() else {
            return Ok(()); // the folder itself
        };
        let mut parent = self.root.try_clone()?;
        for step in parents {
            parent = enter(&parent, path(step), true)?;
        }
        let there = match rustix::fs::statat(&parent, path(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Some(FileType::from_raw_mode(found.st_mode)),
            Err(rustix::io::Errno::NOENT) => None,
            Err(e) => return Err(e.into()),
        };
        match (entry.kind, there) {
            (Kind::Folder, None) => {
                enter(&parent, path(name), true)?;
                self.folders.add(names, entry);
                Ok(())
            }
            (Kind::Folder, Some(FileType::Directory)) => Ok(()),
            (Kind::File, Some(FileType::RegularFile)) if !self.rules.replace && !is_data(name) => {
                Err(refused("a file of that name is there: remove it first, or give another name"))
            }
            (Kind::File, None | Some(FileType::RegularFile)) => self.file(reader, entry, &parent, name),
            (Kind::Link, None) => {
                stays(&entry.target, parents.len())?;
                Ok(rustix::fs::symlinkat(path(&entry.target), &parent, path(name))?)
            }
            (_, Some(FileType::Directory)) => Err(refused("a folder of that name is there")),
            (_, Some(FileType::RegularFile)) => Err(refused("a file of that name is there")),
            (_, Some(FileType::Symlink)) => Err(refused("a link of that name is there")),
            _ => Err(refused("something of that name is there that is no file")),
        }
    }

    /// Written beside its place first: what was there stays until the new one is whole.
    fn file<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        entry: &Entry,
        parent: &OwnedFd,
        name: &[u8],
    ) -> Result<(), Trouble> {
        if entry.size > self.left {
            return Err(Trouble::Over(ArchiveError::TooMuch("there is room for".to_owned())));
        }
        let beside = format!(".cellblock-{}", uuid::Uuid::new_v4().simple());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(parent, beside.as_str(), flags, Mode::from_raw_mode(0o600))?;
        let mut file = File::from(made);
        let mut written = || -> Result<(), Trouble> {
            loop {
                let count = reader.data(&mut self.buffer)?;
                if count == 0 {
                    break;
                }
                file.write_all(&self.buffer[..count])?;
                self.left -= count as u64;
                self.report.bytes += count as u64;
                (self.moved)(count as u64);
            }
            rustix::fs::fchmod(&file, Mode::from_raw_mode(entry.mode & FILE_MODE | 0o400))?;
            let _ = file.set_modified(time(entry.modified));
            // Over whatever is there by now: a link is replaced, never followed.
            Ok(rustix::fs::renameat(parent, beside.as_str(), parent, path(name))?)
        };
        let outcome = written();
        if outcome.is_err() {
            let _ = rustix::fs::unlinkat(parent, beside.as_str(), AtFlags::empty());
        }
        outcome?;
        self.report.files += 1;
        Ok(())
    }
}

fn path(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

fn time(seconds: f64) -> SystemTime {
    let since = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default();
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The names of a path that leads down and nowhere else.
fn plain(name: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    if name.first() == Some(&b'/') {
        return Err("an absolute name");
    }
    if name.iter().any(|byte| *byte < b' ' || *byte == 0x7f) {
        return Err("a name with control characters");
    }
    let parts = || name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    if parts().any(|part| part == b"..") {
        return Err("a name that leads upwards");
    }
    if parts().count() > DEPTH {
        return Err("too many folders in folders");
    }
    Ok(parts().map(<[u8]>::to_vec).collect())
}

/// Whether a link in a folder `depth` below the root leads to something below the root, whatever other links there
/// are: upwards first, over real folders, then down.
fn stays(target: &[u8], depth: usize) -> Result<(), Trouble> {
    if target.is_empty() || target.first() == Some(&b'/') || target.contains(&0) {
        return Err(refused("a link that leads out"));
    }
    let mut parts = target.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let up = parts.by_ref().take_while(|part| *part == b"..").count();
    // `take_while` took the first name as well, which is no harm; below it nothing may lead upwards again.
    if up > depth || parts.any(|part| part == b"..") {
        return Err(refused("a link that leads out"));
    }
    Ok(())
}
