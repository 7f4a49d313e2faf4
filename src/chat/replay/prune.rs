//! What is in a recording, and taking out of it what no cell uses any more.
//!
//! Imports `config`. The notebooks of a recording say which cells there are; without one nothing is
//! taken out.

use std::collections::HashSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::file::{self, Read};
use super::lines::{Line, ReplyLine};
use super::{UNNAMED, asked, changed, is_sidecar, sidecar};
use crate::config::plain;

/// The largest notebook that is read, in bytes.
const NOTEBOOK: u64 = 256 << 20;

/// Why a recording can't be read or pruned: what happened, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// A file can't be read or written.
    #[error("{}: {error}", shown(path))]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A notebook is none.
    #[error("{} can't be read as a notebook ({why}); nothing was taken out of its recording", shown(path))]
    Notebook {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// Nothing is recorded for a notebook.
    #[error(
        "no replies are recorded for {}: neither {} nor {UNNAMED} is beside it; record some with CELLBLOCK_MODEL__REPLAY=record",
        shown(.0), shown(Path::new(sidecar(.0).file_name().unwrap_or_default()))
    )]
    Nothing(PathBuf),
    /// No notebook belongs to a recording.
    #[error(
        "no notebook belongs to {}, so what its cells use can't be told; name the notebook: cellblock replay --prune NOTEBOOK", shown(.0)
    )]
    Orphan(PathBuf),
    /// Its name is not that of a recording.
    #[error(
        "{} is neither a notebook nor a recording (NAME.replies.jsonl or replies.jsonl); it stays as it is", shown(.0)
    )]
    Neither(PathBuf),
}

/// A path for a terminal.
fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

/// One recorded reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Its line in the file.
    pub line: usize,
    /// The first words of the prompt, on one line.
    pub prompt: String,
    /// The model that answered.
    pub model: String,
    /// Whether a cell uses it.
    pub used: bool,
}

/// What was taken out of a recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Replies that stay.
    pub kept: usize,
    /// Replies that no cell uses, or that were recorded anew.
    pub dropped: usize,
    /// Lines that were no recorded replies, nor those of a newer Cellblock.
    pub wrong: usize,
}

/// A recording, and the cells of its notebooks.
struct Sidecar {
    path: PathBuf,
    cells: HashSet<String>,
}

impl Sidecar {
    /// Of a notebook, or of a recording's file.
    fn of(path: &Path) -> Result<Sidecar, SidecarError> {
        if path.extension().is_some_and(|ending| ending == "ipynb") {
            let (own, cells) = (sidecar(path), cells(path)?);
            if own.exists() {
                return Ok(Sidecar { path: own, cells });
            }
            // What nbclient or papermill ran is recorded there, with all other notebooks of the folder.
            let shared = path.with_file_name(UNNAMED);
            return if shared.exists() {
                Sidecar::of(&shared)
            } else {
                Err(SidecarError::Nothing(path.to_owned()))
            };
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !is_sidecar(&name) {
            return Err(SidecarError::Neither(path.to_owned()));
        }
        let folder = path.parent().unwrap_or(Path::new(""));
        let notebooks = if name == UNNAMED {
            notebooks(folder)
        } else {
            let stem = name.strip_suffix(".replies.jsonl").unwrap_or_default();
            vec![folder.join(format!("{stem}.ipynb"))]
        };
        let mut all = HashSet::new();
        let mut any = false;
        for notebook in notebooks.iter().filter(|notebook| notebook.exists()) {
            any = true;
            all.extend(cells(notebook)?);
        }
        if !any {
            return Err(SidecarError::Orphan(path.to_owned()));
        }
        Ok(Sidecar { path: path.to_owned(), cells: all })
    }

    fn failed(&self, error: std::io::Error) -> SidecarError {
        SidecarError::File { path: self.path.clone(), error }
    }

    fn uses(&self, reply: &ReplyLine) -> bool {
        self.cells.contains(&reply.cell)
    }
}

/// The recordings in a folder.
pub fn sidecars(folder: &Path) -> Vec<PathBuf> {
    listed(folder, is_sidecar)
}

fn notebooks(folder: &Path) -> Vec<PathBuf> {
    listed(folder, |name| Path::new(name).extension().is_some_and(|ending| ending == "ipynb"))
}

fn listed(folder: &Path, wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let at = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = std::fs::read_dir(at).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name()).filter(|name| name.to_str().is_some_and(&wanted));
    let mut paths: Vec<PathBuf> = names.map(|name| folder.join(name)).collect();
    paths.sort();
    paths
}

/// The digests of a notebook's cells.
fn cells(path: &Path) -> Result<HashSet<String>, SidecarError> {
    let file = file::open(path).map_err(|error| SidecarError::File { path: path.to_owned(), error })?;
    let mut text = Vec::new();
    let wrong = |why: String| SidecarError::Notebook { path: path.to_owned(), why };
    file.take(NOTEBOOK).read_to_end(&mut text).map_err(|error| wrong(error.to_string()))?;
    let notebook: Value = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    let cells =
        notebook.get("cells").and_then(Value::as_array).ok_or_else(|| wrong("it has no cells".to_owned()))?;
    let source = |cell: &Value| match cell.get("source") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(lines)) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    };
    Ok(cells.iter().map(|cell| asked::cell(&source(cell))).collect())
}

/// What is recorded for a notebook, or in a recording's file; and what is wrong with it.
///
/// # Errors
/// When a file can't be read.
pub fn list(path: &Path) -> Result<(Vec<Recorded>, Option<String>), SidecarError> {
    let sidecar = Sidecar::of(path)?;
    let Read { lines, wrong, .. } =
        file::read(&sidecar.path, file::SIZE).map_err(|error| sidecar.failed(error))?;
    let replies = lines.iter().filter_map(|(number, line)| match line {
        Line::Reply(reply) => Some(Recorded {
            line: *number,
            prompt: changed::bounded(&reply.prompt),
            model: changed::bounded(&reply.by),
            used: sidecar.uses(reply),
        }),
        Line::Text(_) => None,
    });
    Ok((replies.collect(), file::remark(&sidecar.path, &wrong)))
}

/// Takes out of a recording what no cell uses, what was recorded anew, and what is no JSON object. Lines of a newer Cellblock
/// stay.
///
/// # Errors
/// When a file can't be read or written; then nothing has changed.
pub fn prune(path: &Path) -> Result<Pruned, SidecarError> {
    let sidecar = Sidecar::of(path)?;
    let pruned = file::rewrite(&sidecar.path, |Read { lines, wrong, .. }| {
        let mut stay: HashSet<usize> =
            wrong.iter().filter(|(_, wrong)| wrong.is_object).map(|(number, _)| *number).collect();
        let mut pruned = Pruned { wrong: wrong.len() - stay.len(), ..Pruned::default() };
        let mut last: HashSet<String> = HashSet::new();
        let mut texts: HashSet<String> = HashSet::new();
        // From the end, for the last reply to the same counts.
        let mut kept: Vec<bool> = lines
            .iter()
            .rev()
            .map(|(_, line)| {
                let Line::Reply(reply) = line else { return false };
                let keep = sidecar.uses(reply) && last.insert(reply.reply.clone());
                if keep {
                    texts.extend(reply.asked.iter().map(|(_, digest)| digest.clone()));
                    pruned.kept += 1;
                } else {
                    pruned.dropped += 1;
                }
                keep
            })
            .collect();
        kept.reverse();
        for ((number, line), keep) in lines.iter().zip(kept) {
            let needed = match line {
                Line::Text(text) => texts.remove(&text.text),
                Line::Reply(_) => keep,
            };
            if needed {
                stay.insert(*number);
            }
        }
        (stay, pruned)
    });
    pruned.map_err(|error| sidecar.failed(error))
}
