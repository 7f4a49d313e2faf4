//! Files of the host into an archive. Links are packed as links, never followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use super::host::{Spot, enter};
use super::pattern::is_private;
use super::{ArchiveError, Report};

/// Folders in folders.
const DEPTH: usize = 100;

/// What is to be packed, measured.
#[derive(Debug, Default)]
pub struct Packing {
    tops: Vec<Spot>,
    /// Bytes of files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Whether what is hidden or settings below the tops stays here.
    pub guarded: bool,
}

impl Packing {
    /// How many there are at the top.
    pub fn tops(&self) -> usize {
        self.tops.len()
    }

    /// Adds a file or a folder with all in it; at most `most` files.
    ///
    /// # Errors
    /// When there is nothing, or there are too many.
    pub fn add(&mut self, spot: Spot, most: u64) -> io::Result<()> {
        let mut visit = |_: &Path, found: &Found<'_>| {
            if let Found::File(stat) = found {
                self.files += 1;
                self.bytes += u64::try_from(stat.st_size).unwrap_or_default();
            }
            if self.files > most {
                return Err(io::Error::other(format!("there are more than {most} files")));
            }
            Ok(())
        };
        walk(&spot, self.guarded, &mut visit)?;
        self.tops.push(spot);
        Ok(())
    }
}

/// Packs everything into `into`. `moved` is told of bytes as they are read.
///
/// # Errors
/// When a file can't be read to its end, or nobody takes the archive.
pub fn pack(packing: &Packing, into: impl Write, moved: &mut dyn FnMut(u64)) -> Result<Report, ArchiveError> {
    let mut builder = tar::Builder::new(into);
    let mut report = Report::default();
    for top in &packing.tops {
        walk(top, packing.guarded, &mut |name, found| put(&mut builder, name, found, &mut report, moved))?;
    }
    builder.into_inner()?.flush()?;
    Ok(report)
}

enum Found<'a> {
    Folder(&'a Stat),
    File(&'a Stat),
    /// In this folder, by this name; says why it can't be packed.
    Left(&'a str),
    /// The open file, where one is packed.
    Open(&'a Stat, File),
    /// Where the link leads.
    To(&'a Stat, OsString),
}

fn put(
    builder: &mut tar::Builder<impl Write>,
    name: &Path,
    found: &Found<'_>,
    report: &mut Report,
    moved: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let header = |stat: &Stat, kind: tar::EntryType| {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(stat.st_mode & 0o777);
        header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or_default());
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        header
    };
    match found {
        Found::Folder(stat) => {
            builder.append_data(&mut header(stat, tar::EntryType::Directory), name, io::empty())
        }
        Found::To(stat, target) => {
            builder.append_link(&mut header(stat, tar::EntryType::Symlink), name, Path::new(target))
        }
        Found::Open(stat, file) => {
            let mut header = header(stat, tar::EntryType::Regular);
            let size = u64::try_from(stat.st_size).unwrap_or_default();
            header.set_size(size);
            builder.append_data(&mut header, name, Exactly { file, left: size, moved })?;
            report.files += 1;
            report.bytes += size;
            Ok(())
        }
        Found::Left(why) => {
            report.refuse(name.as_os_str().as_bytes(), why);
            Ok(())
        }
        Found::File(_) => Ok(()),
    }
}

/// A file as long as its header says, whatever becomes of it meanwhile.
struct Exactly<'a> {
    file: &'a File,
    left: u64,
    moved: &'a mut dyn FnMut(u64),
}

impl Read for Exactly<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let mut count = self.file.read(&mut into[..room])?;
        if count == 0 && room > 0 {
            into[..room].fill(0);
            count = room;
        }
        self.left -= count as u64;
        (self.moved)(count as u64);
        Ok(count)
    }
}

type Visit<'a> = dyn FnMut(&Path, &Found<'_>) -> io::Result<()> + 'a;

/// Visits the spot and everything below it.
fn walk(spot: &Spot, guarded: bool, visit: &mut Visit<'_>) -> io::Result<()> {
    match &spot.name {
        Some(name) => one(&spot.folder, name, Path::new(name), (0, guarded), visit),
        None => folder(&spot.folder, Path::new("files"), (0, guarded), visit),
    }
}

fn one(
    parent: &OwnedFd,
    name: &OsStr,
    shown: &Path,
    (depth, guarded): (usize, bool),
    visit: &mut Visit<'_>,
) -> io::Result<()> {
    if guarded && is_private(name.as_bytes()) {
        return visit(shown, &Found::Left("it is hidden or a part of settings"));
    }
    let stat = match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(e) if depth == 0 => return Err(e.into()),
        Err(e) => return visit(shown, &Found::Left(&io::Error::from(e).to_string())),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory if depth >= DEPTH => visit(shown, &Found::Left("too many folders in folders")),
        FileType::Directory => match enter(parent, name.as_ref(), false) {
            Ok(inside) => {
                visit(shown, &Found::Folder(&stat))?;
                folder(&inside, shown, (depth + 1, guarded), visit)
            }
            Err(e) => visit(shown, &Found::Left(&e.to_string())),
        },
        FileType::RegularFile => {
            visit(shown, &Found::File(&stat))?;
            // Never a FIFO that was put in its place: that would wait for ever.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(parent, name, flags, Mode::empty());
            let opened = opened.and_then(|file| Ok((rustix::fs::fstat(&file)?, file)));
            match opened {
                Ok((stat, file)) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                    visit(shown, &Found::Open(&stat, File::from(file)))
                }
                Ok(_) => visit(shown, &Found::Left("it was replaced by something that is no file")),
                Err(e) => visit(shown, &Found::Left(&io::Error::from(e).to_string())),
            }
        }
        FileType::Symlink => match rustix::fs::readlinkat(parent, name, Vec::new()) {
            Ok(target) => {
                let target = OsStr::from_bytes(target.as_bytes()).to_owned();
                visit(shown, &Found::To(&stat, target))
            }
            Err(e) => visit(shown, &Found::Left(&io::Error::from(e).to_string())),
        },
        _ => visit(shown, &Found::Left("neither a file, a folder nor a link")),
    }
}

fn folder(inside: &OwnedFd, shown: &Path, level: (usize, bool), visit: &mut Visit<'_>) -> io::Result<()> {
    let mut names: Vec<OsString> = Vec::new();
    for entry in Dir::read_from(inside)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    names.sort();
    for name in names {
        one(inside, &name, &shown.join(&name), level, visit)?;
    }
    Ok(())
}
