//! The file of a recording: read with bounds, appended to in whole lines, replaced as a whole. Imports `config`.
//!
//! Writers lock the file, which a killed one gives back. A line that a killed writer left half is ended by the next one,
//! and passed over by readers.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags};

use super::lines::{self, Line, Wrong};
use crate::config::plain;

/// The most that is read of all files together, and the longest line, in bytes.
pub(super) const SIZE: u64 = 256 << 20;
const LINE: u64 = 16 << 20;
/// The most wrong lines that are named.
const NAMED: usize = 3;

/// What a file holds.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Line numbers, from 1, and lines.
    pub(super) lines: Vec<(usize, Line)>,
    /// Lines that are none, and why.
    pub(super) wrong: Vec<(usize, Wrong)>,
    /// Bytes.
    pub(super) size: u64,
}

/// What is wrong with a file, for the user.
pub(super) fn remark(path: &Path, wrong: &[(usize, Wrong)]) -> Option<String> {
    let file = plain(&path.file_name().unwrap_or_default().to_string_lossy());
    let named: Vec<String> =
        wrong.iter().take(NAMED).map(|(line, wrong)| format!("line {line}: {}", wrong.why)).collect();
    let more = wrong.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    (!wrong.is_empty()).then(|| {
        format!(
            "{file} has lines that are no recorded replies and are passed over: {}{more}. \
             `cellblock replay --prune` takes out those that are no JSON objects.",
            named.join("; ")
        )
    })
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    // A link could lead anywhere, and opening a pipe would wait for ever.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()).mode(0o644);
    options
}

fn invalid(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn is_file(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() { Ok(()) } else { Err(invalid("it is not a regular file")) }
}

/// Opens a regular file for reading; follows no link, waits for no pipe.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = options().read(true).open(path)?;
    is_file(&file)?;
    Ok(file)
}

/// Reads a whole file of at most so many bytes.
pub(super) fn read(path: &Path, most: u64) -> io::Result<Read> {
    let file = open(path)?;
    let size = file.metadata()?.len();
    if size > most {
        return Err(invalid(format!(
            "with it there would be more than {} MiB of recordings; `cellblock replay --prune` makes them smaller",
            SIZE >> 20
        )));
    }
    let mut read = Read { size, ..Read::default() };
    each_line(BufReader::new(file.take(most)), |number, line| {
        match line.map(lines::read) {
            Some(Ok(line)) => read.lines.push((number, line)),
            Some(Err(wrong)) => read.wrong.push((number, wrong)),
            None => {
                let why = format!("longer than {} MiB", LINE >> 20);
                read.wrong.push((number, Wrong { why, is_object: false }));
            }
        }
        Ok(())
    })?;
    Ok(read)
}

/// Each line that is not blank, with its number; `None`: it is too long.
fn each_line(
    mut reader: impl BufRead,
    mut work: impl FnMut(usize, Option<&[u8]>) -> io::Result<()>,
) -> io::Result<()> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if reader.by_ref().take(LINE).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.last() != Some(&b'\n') && line.len() as u64 == LINE {
            work(number, None)?;
            skip_line(&mut reader)?;
        } else if !line.trim_ascii().is_empty() {
            work(number, Some(&line))?;
        }
    }
    Ok(())
}

fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        let (length, ended) = match buffer.iter().position(|b| *b == b'\n') {
            Some(at) => (at + 1, true),
            None => (buffer.len(), buffer.is_empty()),
        };
        reader.consume(length);
        if ended {
            return Ok(());
        }
    }
}

/// Opens a file for writing at its end, and keeps others from it.
fn locked(path: &Path) -> io::Result<File> {
    loop {
        let file = options().read(true).append(true).create(true).open(path)?;
        is_file(&file)?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        // It may have been replaced while the lock was waited for.
        let (held, there) = (file.metadata()?, std::fs::symlink_metadata(path));
        if there.is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())) {
            return Ok(file);
        }
    }
}

/// Adds whole lines to a recording, or begins one. What begins otherwise is something else, and stays as it is.
pub(super) fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut file = locked(path)?;
    let mut text = text.to_owned();
    if file.seek(SeekFrom::End(0))? > 0 {
        file.rewind()?;
        let mut first = Vec::new();
        BufReader::new(&file).take(LINE).read_until(b'\n', &mut first)?;
        if lines::read(&first).is_err() {
            return Err(invalid(
                "the file does not begin with a recorded reply, so nothing is added to it; move it away, or name another (model.replay_file)",
            ));
        }
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            text.insert(0, '\n');
        }
    }
    file.write_all(text.as_bytes())
}

/// Keeps of a recording the lines whose numbers `choose` gives, to the letter, all at once. A file without any line of a
/// recording is something else, and stays as it is.
pub(super) fn rewrite<T>(path: &Path, choose: impl FnOnce(&Read) -> (HashSet<usize>, T)) -> io::Result<T> {
    // Nothing is made where nothing is.
    std::fs::symlink_metadata(path)?;
    let mut lock = locked(path)?;
    let read = read(path, SIZE)?;
    if read.lines.is_empty() && !read.wrong.is_empty() {
        return Err(invalid("no line of it is a recorded reply; it stays as it is"));
    }
    let (kept, result) = choose(&read);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder)?;
    lock.rewind()?;
    each_line(BufReader::new(&lock), |number, line| match line.filter(|_| kept.contains(&number)) {
        Some(line) => {
            new.write_all(line)?;
            if line.ends_with(b"\n") { Ok(()) } else { new.write_all(b"\n") }
        }
        None => Ok(()),
    })?;
    new.as_file().set_permissions(lock.metadata()?.permissions())?;
    new.as_file().sync_all()?;
    new.persist(path).map_err(|error| error.error)?;
    Ok(result)
}
