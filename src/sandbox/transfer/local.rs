//! This machine's side of a transfer: what a name stands for, where a download goes, how much room there is.

use std::io;
use std::path::{Path, PathBuf};

use super::{MOST_FILES, failed};
use crate::event::Failure;
use crate::sandbox::archive::{self, Packing, Spot};

/// Our own folders beside a notebook.
const OURS: [&str; 3] = ["workspace", "sessions", "outputs"];

/// Finds and measures what is to be sent.
pub(super) async fn measure(
    from: Vec<PathBuf>,
    within: Option<PathBuf>,
    guarded: bool,
) -> Result<Packing, Failure> {
    let work = move || {
        let mut packing = Packing::default();
        packing.guarded = guarded;
        for pattern in from {
            let paths = expand(&pattern, within.as_deref());
            if paths.is_empty() {
                return Err(failed(format!("nothing on this machine is called {}", pattern.display())));
            }
            for path in paths {
                let bad =
                    |e: io::Error| failed(format!("{} can't be read: {}", path.display(), followed(&e)));
                let spot = Spot::find(&path, within.as_deref()).map_err(bad)?;
                packing.add(spot, MOST_FILES).map_err(bad)?;
            }
        }
        Ok(packing)
    };
    tokio::task::spawn_blocking(work).await.map_err(|e| failed(e.to_string()))?
}

/// An error with what a refused link means.
fn followed(e: &io::Error) -> String {
    match e.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
            "a part of the path is a link, which is not followed here; name what it leads to".to_owned()
        }
        _ => e.to_string(),
    }
}

/// The paths that a pattern stands for; one that is there as it stands is taken so.
fn expand(pattern: &Path, within: Option<&Path>) -> Vec<PathBuf> {
    let based = within.map_or_else(|| pattern.to_owned(), |within| within.join(pattern));
    if based.symlink_metadata().is_ok() {
        return vec![pattern.to_owned()];
    }
    let mut found = vec![PathBuf::new()];
    for part in based.components() {
        let text = part.as_os_str().to_string_lossy();
        if !text.contains(['*', '?', '[']) {
            for path in &mut found {
                path.push(part);
            }
            continue;
        }
        let mut next = Vec::new();
        for folder in found {
            let here = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
            for entry in std::fs::read_dir(here).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let plain = name.to_string_lossy();
                let hidden = plain.starts_with('.') && !text.starts_with('.');
                if !hidden && archive::matches(&text, &plain) {
                    next.push(folder.join(&name));
                }
            }
        }
        next.sort();
        found = next;
    }
    // `*` in the notebook's directory does not mean the folders that containers see or have left there.
    let ours = |path: &Path| within.is_some_and(|within| OURS.iter().any(|name| path == within.join(name)));
    found.retain(|path| path.symlink_metadata().is_ok() && !ours(path));
    found
}

/// Where a download goes.
pub(super) struct Target {
    pub(super) spot: Spot,
    /// Whether it goes into that folder; else the spot's name is the new one.
    pub(super) into: bool,
}

/// Finds where a download goes.
pub(super) fn target(to: &Path, within: Option<&Path>) -> Result<Target, Failure> {
    let bad = |e: io::Error| failed(format!("{} can't be written to: {}", to.display(), followed(&e)));
    let spot = Spot::find(to, within).map_err(bad)?;
    let slash = to.as_os_str().to_string_lossy().ends_with('/');
    let there = spot.kind().map_err(bad)?;
    if there == Some(rustix::fs::FileType::Symlink) {
        let why = "is a link, which is not followed here; name what it leads to";
        return Err(failed(format!("{} {why}", to.display())));
    }
    Ok(Target { spot, into: slash || there == Some(rustix::fs::FileType::Directory) })
}

/// Bytes that may be written to the file system of a folder: a tenth of what is free stays so.
pub(super) fn room(folder: &std::os::fd::OwnedFd) -> u64 {
    rustix::fs::fstatvfs(folder).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize) / 10 * 9)
}
