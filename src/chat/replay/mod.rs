//! Recorded replies: what models said, found again by what they were asked.
//!
//! Imports `config`. A recording is a file of JSON lines beside the notebook, plain and made to be looked at in a
//! difference: the texts of requests once each, and the replies, piece by piece, with what each was asked. It holds no key and
//! no time. It may come from a stranger: it is read with bounds, and what is wrong in it is named by line.
//!
//! | module | what |
//! | --- | --- |
//! | `asked` | a request in a form that can be compared: what it is found again by |
//! | `normal` | what differs from run to run in the output of code |
//! | `lines` | the lines of the file |
//! | `file` | reading, appending, rewriting it, with others at the same time |
//! | `changed` | what is different in a request that was never recorded |
//! | `play` | taking a reply down, and giving it again |
//! | `prune` | what no cell uses any more |

mod asked;
mod changed;
mod file;
mod lines;
mod normal;
mod play;
mod prune;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::config::{Replay, plain};

pub(super) use asked::Asked;
pub(super) use lines::{ReplyLine, Take};
pub(super) use play::{Tape, play};
pub use prune::{Pruned, Recorded, SidecarError, list, prune, sidecars};

use file::Read;
use lines::Line;

/// The file of a kernel that does not know its notebook.
const UNNAMED: &str = "replies.jsonl";
/// What the file of a notebook ends with.
const ENDING: &str = "replies.jsonl";
/// The most recordings of one folder that are looked through.
const FILES: usize = 64;

/// Whether a recording can have that name.
fn is_sidecar(name: &str) -> bool {
    name == UNNAMED || name.strip_suffix(ENDING).is_some_and(|stem| stem.len() > 1 && stem.ends_with('.'))
}

/// The recording of a notebook.
pub fn sidecar(notebook: &Path) -> PathBuf {
    notebook.with_extension(ENDING)
}

/// The recordings that one kernel works with.
#[derive(Debug)]
pub(super) struct Recordings {
    pub(super) mode: Replay,
    /// Where replies are recorded.
    file: PathBuf,
    /// Where they are looked for, too.
    others: Others,
    known: Mutex<Option<Known>>,
}

/// Where replies are looked for beside the own file.
#[derive(Debug)]
enum Others {
    /// A setting names the file.
    None,
    /// The notebook may have run where its name was not known.
    Unnamed(PathBuf),
    /// The notebook's name is not known here: any recording of the folder may be its.
    All(PathBuf),
}

/// What is in the files.
#[derive(Debug, Default)]
struct Known {
    /// By key; the last one counts.
    replies: HashMap<String, ReplyLine>,
    /// Keys in the order in which they were recorded.
    order: Vec<String>,
    texts: HashMap<String, String>,
    /// What the user should be told of the files.
    remarks: Vec<String>,
}

impl Known {
    fn add(&mut self, line: Line) {
        match line {
            Line::Text(text) => {
                self.texts.insert(text.text, text.is);
            }
            Line::Reply(reply) => {
                self.order.push(reply.reply.clone());
                self.replies.insert(reply.reply.clone(), *reply);
            }
        }
    }
}

impl Recordings {
    /// In this file, or without one in that of the notebook, or in the kernel's folder.
    pub(super) fn new(mode: Replay, file: Option<&Path>, notebook: Option<&Path>, folder: &Path) -> Self {
        let is_notebook = |path: &&Path| path.extension().is_some_and(|ending| ending == "ipynb");
        let notebook = notebook.filter(is_notebook).map(|path| folder.join(path));
        let own = file.map(|file| folder.join(file));
        let others = match (&own, &notebook) {
            (Some(_), _) => Others::None,
            (None, Some(notebook)) => Others::Unnamed(notebook.with_file_name(UNNAMED)),
            (None, None) => Others::All(folder.to_owned()),
        };
        let file = own.or_else(|| notebook.as_deref().map(sidecar)).unwrap_or_else(|| folder.join(UNNAMED));
        Recordings { mode, file, others, known: Mutex::new(None) }
    }

    /// The file as the user would look for it.
    pub(super) fn name(&self) -> String {
        plain(&self.file.file_name().unwrap_or_default().to_string_lossy())
    }

    /// The files that replies are taken from; the first counts most.
    fn files(&self) -> Vec<PathBuf> {
        let mut files = match &self.others {
            Others::None => Vec::new(),
            Others::Unnamed(file) => vec![file.clone()],
            Others::All(folder) => {
                let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                let names = entries.map(|entry| entry.file_name());
                let names = names.filter(|name| name.to_str().is_some_and(is_sidecar));
                let mut files: Vec<_> = names.take(FILES).map(|name| folder.join(name)).collect();
                files.sort();
                files.reverse();
                files
            }
        };
        files.retain(|file| *file != self.file);
        files.insert(0, self.file.clone());
        files
    }

    /// Works on what is in the files, which are read with the first use. Waits for a disk.
    fn with<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get_or_insert_with(|| {
            let mut known = Known::default();
            let mut left = file::SIZE;
            let mut found = Vec::new();
            for path in self.files() {
                match file::read(&path, left) {
                    Ok(Read { lines, wrong, size }) => {
                        left = left.saturating_sub(size);
                        known.remarks.extend(file::remark(&path, &wrong));
                        found.push(lines);
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => {
                        let path = plain(&path.to_string_lossy());
                        known.remarks.push(format!("{path} can't be read: {error}"));
                    }
                }
            }
            // The last line to a question counts.
            found.into_iter().rev().flatten().for_each(|(_, line)| known.add(line));
            known
        });
        work(known)
    }

    /// What the user should be told of the files, once.
    pub(super) fn remarks(&self) -> Vec<String> {
        self.with(|known| std::mem::take(&mut known.remarks))
    }

    /// How much dialogue went to a model when it was recorded, in bytes.
    pub(super) fn window(&self, model: &str) -> Option<usize> {
        self.with(|known| {
            let mut last = known.order.iter().rev().filter_map(|key| known.replies.get(key));
            last.find(|reply| reply.model == model).and_then(|reply| reply.window)
        })
    }

    /// The reply to that.
    pub(super) fn find(&self, asked: &Asked) -> Option<ReplyLine> {
        self.with(|known| known.replies.get(&asked.key).cloned())
    }

    /// Why there is no reply to that, in words for the user.
    pub(super) fn missing(&self, asked: &Asked) -> String {
        let changed = self.with(|known| {
            let replies = known.order.iter().filter_map(|key| known.replies.get(key));
            changed::explain(asked, replies, &known.texts)
        });
        format!(
            "{} has no reply to this, and with model.replay = \"replay\" no model is asked. {changed}\n\
             Run the notebook with CELLBLOCK_MODEL__REPLAY=auto, where there is a model, to record what is missing.",
            self.name()
        )
    }

    /// Keeps a reply. Waits for a disk.
    ///
    /// # Errors
    /// What keeps it from being written; it is known all the same.
    pub(super) fn keep(&self, asked: &Asked, reply: ReplyLine) -> std::io::Result<()> {
        let written = self.with(|known| {
            let mut written = String::new();
            for part in &asked.parts {
                if known.texts.insert(part.digest.clone(), part.kept()).is_none() {
                    lines::write(&Line::Text(part.line()), &mut written);
                }
            }
            let line = Line::Reply(Box::new(reply));
            lines::write(&line, &mut written);
            known.add(line);
            written
        });
        file::append(&self.file, &written)
    }
}
