//! What a run wrote, opened and looked into: at most so many files, so many bytes, so long.
//!
//! Imports `event`, `workspace` and its neighbours. A file's size is read from the opened descriptor, and its
//! contents are what that descriptor gives: whatever the guest does with the name afterwards is another file.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Map, Value};

use super::heads::{self, Table};
use super::kind::{self, Kind};
use super::paths::{Paths, visible};
use super::watch::{Tree, Written};
use crate::event::Bundle;

/// The most files that are listed; the rest is counted.
pub(super) const LISTED: usize = 50;
/// The most files that are shown themselves.
const PREVIEWS: usize = 12;
/// The largest picture and document that is shown itself, in bytes.
const IMAGE: u64 = 8 << 20;
const DOCUMENT: u64 = 2 << 20;
/// The most bytes of all that is shown.
const TOGETHER: u64 = 24 << 20;

/// A file that a run wrote.
#[derive(Debug)]
pub(crate) struct Artifact {
    /// Its absolute path in the container.
    pub(crate) container: PathBuf,
    /// Where it lies from the notebook's directory; `None`: outside of it.
    pub(crate) host: Option<PathBuf>,
    pub(crate) bytes: u64,
    pub(crate) mime: &'static str,
    pub(crate) preview: Preview,
}

/// How a file is shown besides its link.
#[derive(Debug)]
pub(crate) enum Preview {
    None,
    /// As the front end shows it.
    Rich(Bundle),
    Table(Table),
    /// The beginning of a text, and whether more follows.
    Text(String, bool),
    /// To be read inside of the container.
    Parquet,
}

/// A file that a run wrote, opened.
pub(crate) struct Opened {
    tree: usize,
    path: PathBuf,
    file: File,
    bytes: u64,
}

/// Opens what was written, and counts the rest.
pub(crate) fn open(trees: &[Tree], written: Written) -> (Vec<Opened>, usize) {
    let (mut opened, mut more) = (Vec::new(), written.more);
    for (tree, path) in written.files {
        if opened.len() == LISTED {
            more += 1;
            continue;
        }
        let Some(file) = trees.get(tree).and_then(|tree| tree.mounted.open_below(&path).ok()) else {
            continue;
        };
        let Ok(about) = file.metadata() else { continue };
        opened.push(Opened { tree, path, file, bytes: about.len() });
    }
    (opened, more)
}

/// Looks into files. `inside`: where the container sees the trees' directories; `patience`: how long it may take.
pub(crate) fn look(opened: Vec<Opened>, inside: &[&str], paths: &Paths, patience: Duration) -> Vec<Artifact> {
    let mut budget = Budget { previews: PREVIEWS, bytes: TOGETHER, until: Instant::now() + patience };
    let look = |mut opened: Opened| {
        let container = Path::new(inside.get(opened.tree).copied().unwrap_or("/")).join(&opened.path);
        let host = paths.host(&container);
        let mut head = Vec::with_capacity(4096);
        let _ = opened.file.by_ref().take(4096).read_to_end(&mut head);
        let (mime, kind) = kind::of(&opened.path, &head);
        let preview = preview(&mut opened, kind, mime, &mut budget).unwrap_or(Preview::None);
        Artifact { container, host, bytes: opened.bytes, mime, preview }
    };
    opened.into_iter().map(look).collect()
}

struct Budget {
    previews: usize,
    bytes: u64,
    until: Instant,
}

fn preview(opened: &mut Opened, kind: Kind, mime: &str, budget: &mut Budget) -> Option<Preview> {
    let bytes = opened.bytes;
    if budget.previews == 0 || bytes == 0 || Instant::now() >= budget.until {
        return None;
    }
    let most = match kind {
        Kind::Image => IMAGE,
        Kind::Svg | Kind::Html => DOCUMENT,
        Kind::Table(_) | Kind::Text | Kind::Parquet => u64::MAX,
        Kind::Other => return None,
    };
    let cost = match kind {
        Kind::Image | Kind::Svg | Kind::Html => bytes,
        _ => 0,
    };
    if bytes > most || cost > budget.bytes {
        return None;
    }
    opened.file.rewind().ok()?;
    let mut whole = || {
        let mut data = Vec::new();
        // It may have grown since.
        opened.file.by_ref().take(most).read_to_end(&mut data).ok()?;
        Some(data)
    };
    let name = visible(Path::new(opened.path.file_name()?));
    let preview = match kind {
        Kind::Image => {
            let data = base64::engine::general_purpose::STANDARD.encode(whole()?);
            rich(mime, data, &name)?
        }
        Kind::Svg | Kind::Html => rich(mime, String::from_utf8_lossy(&whole()?).into_owned(), &name)?,
        Kind::Table(delimiter) => Preview::Table(heads::table(&opened.file, delimiter, budget.until)?),
        Kind::Text => {
            let (text, more) = heads::text(&opened.file)?;
            Preview::Text(text, more)
        }
        Kind::Parquet => Preview::Parquet,
        Kind::Other => return None,
    };
    budget.previews -= 1;
    budget.bytes -= cost;
    Some(preview)
}

/// One representation, made fit for a front end like any output; `None` when it is refused.
fn rich(mime: &str, text: String, name: &str) -> Option<Preview> {
    let mut data = Map::new();
    data.insert(mime.to_owned(), Value::String(text));
    data.insert("text/plain".to_owned(), Value::String(format!("[{name}]")));
    let bundle = Bundle::sanitised(data, Map::new());
    bundle.data().contains_key(mime).then_some(Preview::Rich(bundle))
}
