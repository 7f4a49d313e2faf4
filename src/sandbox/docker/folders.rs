//! The host's directories that a container sees: the workspace, the folder of its session or run, and those of
//! its definition.
//!
//! All of them are found and opened before the container is created, and looked at again once it runs: the
//! engine mounts by path, and what was checked must be what was mounted.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::{Inner, Ready};
use crate::sandbox::artifacts::{ARTIFACTS, OUTPUTS, PENDING, SESSIONS, inside};
use crate::sandbox::backend::BackendError;
use crate::sandbox::definition::{Definition, Mount, Place};
use crate::sandbox::spec::{HOME, Identity, Spec, WORKSPACE};
use crate::sandbox::workspace::{Workspace, WorkspaceError};

/// The longest name of a session or run, in bytes.
const NAME: usize = 100;

/// What a container sees of the host.
pub(super) struct Folders {
    pub(super) workspace: Option<Arc<Workspace>>,
    pub(super) place: Option<Arc<Workspace>>,
    pub(super) mounts: Vec<Workspace>,
    pub(super) notices: Vec<String>,
}

impl Inner {
    /// Finds, makes and checks every directory, and enters them in `spec`.
    pub(super) async fn folders(
        &self,
        ready: &Ready,
        definition: &Definition,
        place: &Place,
        spec: &mut Spec,
    ) -> Result<Folders, BackendError> {
        let directory = self.options.directory.clone();
        let (wanted, outside) = (definition.limits.workspace.clone(), definition.limits.workspace_outside);
        let target = target(place)?;
        let owner = Identity::current();
        // Only root can give a directory away; a rootless engine's user 0 is the user who runs it. All containers
        // share the workspace: one with a user of its own does not take it from the others.
        let usual = Identity::inside(owner, ready.facts.rootless);
        let give = (owner.uid == 0 && !ready.facts.rootless).then_some(usual);
        let foreign = (spec.user != usual).then(|| {
            format!(
                "The container {} runs as user {}: it may be unable to write in /workspace and its own folder, which \
                 belong to {usual}.",
                definition.name, spec.user
            )
        });
        // File systems over a network can take their time.
        let found = tokio::task::spawn_blocking(move || {
            let workspace = Workspace::prepare(&directory, &wanted, outside).map_err(unusable)?;
            let mut notices = Vec::new();
            if let Some(user) = give {
                match workspace.give_to(user) {
                    Ok(notice) => notices.extend(notice),
                    // Reading may still work; writing will say so itself.
                    Err(error) => notices.push(error.to_string()),
                }
            }
            let place = match own(&directory, &target, give) {
                Ok(place) => Some(place),
                Err(Own::Unwritable(why)) => {
                    notices.push(why);
                    None
                }
                Err(Own::Refused(why)) => return Err(BackendError::Workspace(why)),
            };
            Ok((workspace, place, notices))
        });
        let (workspace, place_found, mut notices) =
            found.await.map_err(|e| BackendError::Workspace(e.to_string()))??;
        notices.extend(foreign);
        let path = workspace.path();
        if workspace.exposes_notebook() {
            notices.push(format!(
                "The workspace {} holds the notebook's directory itself: code in the sandbox can read and change \
                 notebooks, settings and everything else there.",
                path.display()
            ));
        }
        for path in [Some(path), place_found.as_ref().map(Workspace::path)].into_iter().flatten() {
            harmless(ready, path, spec.relabel)?;
        }
        spec.workspace = Some(path.to_owned());
        let inside = inside(place);
        spec.set_variable("CELLBLOCK_ARTIFACTS", format!("{inside}/{ARTIFACTS}"));
        if let Some(found) = &place_found {
            let host = found.path().to_owned();
            spec.place = Some(Mount { host, path: inside.to_owned(), read_only: false });
        } else {
            spec.add_tmpfs(inside, definition.limits.tmpfs);
            spec.add_tmpfs(&format!("{inside}/{ARTIFACTS}"), definition.limits.tmpfs);
        }
        let mounts = self.mounts(ready, definition).await?;
        spec.mounts.clone_from(&definition.mounts);
        let (workspace, place) = (Some(Arc::new(workspace)), place_found.map(Arc::new));
        Ok(Folders { workspace, place, mounts, notices })
    }

    /// Opens the directories that the definition mounts. They were looked at when it was read; what is there now must
    /// be as good.
    async fn mounts(&self, ready: &Ready, definition: &Definition) -> Result<Vec<Workspace>, BackendError> {
        let mut opened = Vec::new();
        for mount in &definition.mounts {
            self.out_of_reach(definition, &mount.host)?;
            harmless(ready, &mount.host, false)?;
            free(definition, mount)?;
            let host = mount.host.clone();
            let found = tokio::task::spawn_blocking(move || Workspace::existing(&host)).await;
            let found = found.map_err(io::Error::other).and_then(|found| found).map_err(|error| {
                BackendError::Workspace(format!(
                    "the container {} mounts {}, which can't be used ({error}): it must be a directory, with no link \
                     on the way to it. Put it back, or change the mount and start the kernel again",
                    definition.name,
                    mount.host.display()
                ))
            })?;
            opened.push(found);
        }
        Ok(opened)
    }
}

impl Inner {
    /// Refuses a directory that code in a sandbox could replace by a link, or change after it was looked at.
    pub(super) fn out_of_reach(&self, definition: &Definition, path: &Path) -> Result<(), BackendError> {
        let home = &self.options.directory;
        let resolve = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let places = [home.join(&definition.limits.workspace), home.join(SESSIONS), home.join(OUTPUTS)];
        match places.iter().map(|place| resolve(place)).find(|place| path.starts_with(place)) {
            None => Ok(()),
            Some(place) => Err(BackendError::Workspace(format!(
                "the container {} uses {}, which lies in {}: code in a sandbox can change that and put another in its \
                 place. Move it, or set another workspace (sandbox.workspace)",
                definition.name,
                path.display(),
                place.display()
            ))),
        }
    }
}

/// Where a container sees things of its own.
const TAKEN: [&str; 9] =
    [WORKSPACE, "/session", "/work", "/tmp", HOME, "/proc", "/sys", "/dev", "/etc/cellblock"];

/// Refuses a mount over a place that the container needs itself.
fn free(definition: &Definition, mount: &Mount) -> Result<(), BackendError> {
    let path = Path::new(&mount.path);
    let plain = path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    let within = |place: &str| path.starts_with(place) || Path::new(place).starts_with(path);
    if plain && !TAKEN.iter().any(|place| within(place)) {
        return Ok(());
    }
    Err(BackendError::Workspace(format!(
        "the container {} can't have a mount at {}: name an absolute path like /data, apart from {}",
        definition.name,
        mount.path,
        TAKEN.join(", ")
    )))
}

/// Where on the host it lies, below the notebook's directory.
fn target(place: &Place) -> Result<PathBuf, BackendError> {
    let (folder, name) = match place {
        Place::Session(name) => (PathBuf::from(SESSIONS), name),
        Place::Run(id) => (Path::new(OUTPUTS).join(PENDING), id),
    };
    let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > NAME || name.starts_with('.') || !name.chars().all(plain) {
        return Err(BackendError::Workspace(format!(
            "{name:?} can't name a session's folder: take letters, digits, `-`, `_` and `.` (not first), at most {NAME} \
             bytes"
        )));
    }
    Ok(folder.join(name))
}

/// Why there is no folder for a session or run.
enum Own {
    /// The file system does not take it: one in memory will do.
    Unwritable(String),
    /// Somebody has put something else there.
    Refused(String),
}

/// The folder of a session or run, with the one for artifacts in it.
fn own(directory: &Path, target: &Path, give: Option<Identity>) -> Result<Workspace, Own> {
    let fresh = directory.join(target).symlink_metadata().is_err();
    let place = Workspace::prepare(directory, target, false).map_err(|error| match error {
        WorkspaceError::Io { path, source, .. } if unwritable(&source) => Own::Unwritable(format!(
            "{} can't be made ({source}), so the session's folder lies in memory: what is written there is lost with \
             the container.",
            path.display()
        )),
        WorkspaceError::Outside { found, directory, .. } => Own::Refused(format!(
            "{} resolves to {}, which is outside the notebook's directory {}: code in the sandbox would read and \
             change files there. Remove the link",
            target.display(),
            found.display(),
            directory.display()
        )),
        WorkspaceError::Linked { found, .. } => Own::Refused(format!(
            "{} leads over a link to {}: remove the link, the folders of sessions and runs must be real ones",
            target.display(),
            found.display()
        )),
        WorkspaceError::NotADirectory(path) => Own::Refused(format!(
            "{} is not a directory: remove that file, it is in the way of the session's folder",
            path.display()
        )),
        other => Own::Refused(other.to_string()),
    })?;
    // A link for a session's name would give it another folder of the notebook's, or that of another session.
    let usual = directory.join(target);
    let parent = usual.parent().and_then(|parent| parent.canonicalize().ok());
    if place.path().parent() != parent.as_deref() || place.path().file_name() != usual.file_name() {
        return Err(Own::Refused(format!(
            "{} is a link to {}: remove it, a session's folder must be one of its own",
            target.display(),
            place.path().display()
        )));
    }
    let failed = |error: io::Error| {
        Own::Unwritable(format!(
            "{} can't be used ({error}), so the session's folder lies in memory: what is written there is lost with \
             the container.",
            place.path().display()
        ))
    };
    // First what lies in it: once the folder is the guest's, the guest can put another in its place.
    place.adopt(ARTIFACTS, give).map_err(failed)?;
    if let Some(user) = give
        && let Err(error) = place.give_to(user)
        && fresh
    {
        return Err(failed(io::Error::other(error)));
    }
    Ok(place)
}

fn unwritable(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

#[allow(clippy::needless_pass_by_value, reason = "it is mapped over errors")]
fn unusable(error: WorkspaceError) -> BackendError {
    BackendError::Workspace(error.to_string())
}

/// Whether a directory may be mounted at all.
fn harmless(ready: &Ready, path: &Path, relabel: bool) -> Result<(), BackendError> {
    let socket = ready.engine.socket();
    if socket.canonicalize().unwrap_or_else(|_| socket.to_owned()).starts_with(path) {
        return Err(BackendError::Workspace(format!(
            "{} holds the container engine's socket: code in the sandbox could take over this machine. Set another \
             folder (sandbox.workspace)",
            path.display()
        )));
    }
    if relabel && path.to_string_lossy().contains(':') {
        return Err(BackendError::Workspace(format!(
            "{} has a colon in its path, which can't be mounted on a host with SELinux; rename the folder or set \
             another one (sandbox.workspace)",
            path.display()
        )));
    }
    Ok(())
}
