//! Is the workspace one that the sandbox may mount, and can be written? Changes nothing.

use std::path::{Path, PathBuf};

use rustix::fs::Access;

use super::Surroundings;
use super::report::Report;

pub(super) fn check(around: &Surroundings) -> Report {
    let settings = &around.loaded.settings.sandbox;
    let wanted = around.directory.join(&settings.workspace);
    let Some(existing) = existing(&wanted) else {
        return Report::problem(
            format!("{}: no directory on the way to it exists", wanted.display()),
            "set sandbox.workspace to another directory",
        );
    };
    let real = match existing.canonicalize() {
        Ok(real) => real,
        Err(why) => {
            return Report::problem(
                format!("{} can't be followed: {why}", existing.display()),
                "mend or remove the link, or set sandbox.workspace to another directory",
            );
        }
    };
    let inside = around.directory.canonicalize().is_ok_and(|directory| real.starts_with(directory));
    if !inside && !settings.workspace_outside {
        return Report::problem(
            format!("{} lies outside the notebook's directory, at {}", wanted.display(), real.display()),
            "move it inside, or allow it in your own settings: sandbox.workspace_outside = true",
        );
    }
    if !real.is_dir() {
        return Report::problem(
            format!("{} is not a directory", real.display()),
            "move it away, or set sandbox.workspace to another directory",
        );
    }
    if rustix::fs::access(&real, Access::WRITE_OK | Access::EXEC_OK).is_err() {
        return Report::problem(
            format!("{} can't be written", real.display()),
            "give yourself permission, or set sandbox.workspace to another directory",
        );
    }
    if existing == wanted {
        Report::good(format!("{} can be written", wanted.display()))
    } else {
        Report::good(format!("{} will be made when it is first needed", wanted.display()))
    }
}

/// The path itself, or the nearest above it that exists; a dangling link exists.
fn existing(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|above| above.symlink_metadata().is_ok()).map(Path::to_owned)
}
