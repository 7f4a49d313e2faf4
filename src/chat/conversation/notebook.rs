//! The notebook's file: which cells it has, in which order. Imports nothing of ours.
//!
//! The file is anybody's: it may be huge, broken, a link, or gone, and then nothing is known.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags};
use serde::Deserialize;

use super::entry::print;

/// The largest file that is read, in bytes.
const LARGEST: u64 = 16 << 20;
/// The most cells that are looked at.
const CELLS: usize = 100_000;

/// A cell as the file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    /// Its place among the cells.
    pub(super) at: usize,
    /// A fingerprint of its text.
    pub(super) print: i64,
}

/// A file's size and when it was changed.
type Seen = (u64, SystemTime);

/// What the file said when it was read last.
#[derive(Debug, Default)]
pub(super) struct Notebook {
    path: Option<PathBuf>,
    seen: Option<Seen>,
    cells: HashMap<String, Written>,
}

#[derive(Deserialize)]
struct File {
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
struct Cell {
    id: Option<String>,
    #[serde(default)]
    source: Source,
}

#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Source {
    Whole(String),
    Lines(Vec<String>),
    #[default]
    Missing,
}

impl Notebook {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Notebook { path, ..Notebook::default() }
    }

    /// What to look at, for whoever may wait for a disk; `None`: there is no file.
    pub(super) fn look(&self) -> Option<Look> {
        Some(Look { path: self.path.clone()?, seen: self.seen })
    }

    /// Takes over what was seen; whether it is news.
    pub(super) fn learn(&mut self, news: News) -> bool {
        match news {
            News::Same => false,
            News::Nothing(seen) => {
                self.seen = seen;
                let knew = !self.cells.is_empty();
                self.cells.clear();
                knew
            }
            News::Cells(seen, cells) => {
                (self.seen, self.cells) = (Some(seen), cells);
                true
            }
        }
    }

    /// Reads the file if it has changed; whether it has.
    #[cfg(test)]
    pub(super) fn refresh(&mut self) -> bool {
        let news = self.look().map_or(News::Same, Look::read);
        self.learn(news)
    }

    /// Where a cell stands, if the file says so.
    pub(super) fn find(&self, cell: Option<&str>) -> Option<Written> {
        self.cells.get(cell?).copied()
    }

    /// When the file was written, in milliseconds since 1970.
    pub(super) fn written(&self) -> Option<i64> {
        let (_, changed) = self.seen?;
        let since = changed.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_millis()).ok()
    }
}

/// A look at the file, away from the dialogue.
#[derive(Debug)]
pub(crate) struct Look {
    path: PathBuf,
    seen: Option<Seen>,
}

/// What a look brought.
#[derive(Debug)]
pub(crate) enum News {
    /// The file is as it was.
    Same,
    /// It is gone, or nothing that can be read; it is looked into again when it has changed.
    Nothing(Option<Seen>),
    /// Its cells.
    Cells(Seen, HashMap<String, Written>),
}

impl Look {
    /// Reads the file, at most [`LARGEST`] bytes of it and only when its size or its time has changed.
    pub(crate) fn read(self) -> News {
        let Some(file) = open(&self.path) else { return News::Nothing(None) };
        let Ok(metadata) = file.metadata() else { return News::Nothing(None) };
        let Ok(changed) = metadata.modified() else { return News::Nothing(None) };
        let seen = (metadata.len(), changed);
        if self.seen == Some(seen) {
            return News::Same;
        }
        if !metadata.is_file() || metadata.len() > LARGEST {
            return News::Nothing(Some(seen));
        }
        let mut bytes = Vec::new();
        // It may grow while it is read.
        if file.take(LARGEST).read_to_end(&mut bytes).is_err() {
            return News::Nothing(None);
        }
        let Ok(read) = serde_json::from_slice::<File>(&bytes) else { return News::Nothing(Some(seen)) };
        let mut cells = HashMap::new();
        for (at, cell) in read.cells.into_iter().take(CELLS).enumerate() {
            let Some(id) = cell.id else { continue };
            let text = match cell.source {
                Source::Whole(text) => text,
                Source::Lines(lines) => lines.concat(),
                Source::Missing => continue,
            };
            // Of two cells with one identity, which no tool writes, the first counts.
            cells.entry(id).or_insert(Written { at, print: print(&text) });
        }
        News::Cells(seen, cells)
    }
}

/// Neither a link is followed nor a pipe waited for.
fn open(path: &std::path::Path) -> Option<std::fs::File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok().map(std::fs::File::from)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn read(path: &Path) -> Notebook {
        let mut notebook = Notebook::new(Some(path.to_owned()));
        notebook.refresh();
        notebook
    }

    #[test]
    fn cells_are_found_with_their_place_and_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n.ipynb");
        let cells = r#"{"cells": [
            {"id": "a", "source": ["x = 1\n", "y"], "outputs": [{"deep": [[[1]]]}]},
            {"source": "no identity"},
            {"id": "b", "source": "why?", "cell_type": "code"}
        ], "metadata": {}}"#;
        fs::write(&path, cells).unwrap();
        let mut notebook = read(&path);
        assert_eq!(notebook.find(Some("a")), Some(Written { at: 0, print: print("x = 1\ny") }));
        assert_eq!(notebook.find(Some("b")), Some(Written { at: 2, print: print("why?") }));
        assert_eq!((notebook.find(Some("c")), notebook.find(None)), (None, None));
        assert!(!notebook.refresh(), "nothing has changed");
        fs::remove_file(&path).unwrap();
        assert!(notebook.refresh(), "it is gone");
        assert_eq!(notebook.find(Some("a")), None);
    }

    #[test]
    fn a_file_is_read_again_only_when_its_size_or_its_time_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n.ipynb");
        let before = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let write = |text: &str, time: SystemTime| {
            fs::write(&path, text).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        };
        let (one, two) =
            (r#"{"cells": [{"id": "a", "source": "1"}]}"#, r#"{"cells": [{"id": "a", "source": "2"}]}"#);
        write(one, before);
        let mut notebook = read(&path);
        let print_of = |notebook: &Notebook| notebook.find(Some("a")).map(|cell| cell.print);
        write(two, before);
        assert!(!notebook.refresh() && print_of(&notebook) == Some(print("1")), "it was not read");
        let later = before + std::time::Duration::from_secs(1);
        write(two, later);
        assert!(notebook.refresh() && print_of(&notebook) == Some(print("2")));
        // A broken one neither, which was read at each cell.
        write(&"x".repeat(two.len()), before);
        assert!(notebook.refresh() && print_of(&notebook).is_none());
        write(two, before);
        assert!(!notebook.refresh() && print_of(&notebook).is_none());
    }

    #[test]
    fn what_is_no_notebook_says_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("n.ipynb");
        let good = r#"{"cells": [{"id": "a", "source": "x"}]}"#;
        let deep = format!("{{\"cells\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        for bad in ["", "{", "[]", r#"{"cells": 5}"#, r#"{"cells": [{"id": 7}]}"#, "\u{0}", deep.as_str()] {
            fs::write(&path, bad).unwrap();
            assert_eq!(read(&path).find(Some("a")), None, "{}", &bad[..bad.len().min(40)]);
        }
        assert_eq!(read(folder.path()).find(Some("a")), None);
        fs::File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
        assert_eq!(read(&path).find(Some("a")), None);
        fs::remove_file(&path).unwrap();
        #[cfg(target_os = "linux")]
        {
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
            assert_eq!(read(&path).find(Some("a")), None);
            fs::remove_file(&path).unwrap();
        }
        let real = folder.path().join("real.ipynb");
        fs::write(&real, good).unwrap();
        std::os::unix::fs::symlink(&real, &path).unwrap();
        assert_eq!(read(&path).find(Some("a")), None);
        assert!(read(&real).find(Some("a")).is_some());
    }
}
