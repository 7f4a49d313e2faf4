//! Paths that a registry names: where they really lead, and whether they may be handed out at all.
//!
//! May import `config`. A path is resolved once, links included, and from then on only the resolved one is used.
//! What is read is opened without following links, so that nothing put there in between is read instead.

use std::io::Read;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use crate::config::Environment;

/// Places of the system that no container sees.
const SYSTEM: &[(&str, &str)] = &[
    ("/proc", "the host's processes"),
    ("/sys", "the host's kernel"),
    ("/dev", "the host's devices"),
    ("/run", "the sockets of the host's services, the container engine's among them"),
    ("/var/run", "the sockets of the host's services, the container engine's among them"),
    ("/var/lib/docker", "the container engine's own files"),
    ("/var/lib/containerd", "the container engine's own files"),
    ("/var/lib/containers", "the container engine's own files"),
];
/// Where removable media are: the one place below `/run` that is a user's.
const MEDIA: &str = "/run/media";
/// Places of a user's home that no container sees.
const HOME: &[(&str, &str)] = &[
    (".ssh", "keys"),
    (".gnupg", "keys"),
    (".aws", "keys"),
    (".azure", "keys"),
    (".kube", "keys"),
    (".docker", "keys"),
    (".netrc", "passwords"),
    (".git-credentials", "passwords"),
    (".password-store", "passwords"),
    (".config/gcloud", "keys"),
    (".config/gh", "keys"),
    (".local/share/keyrings", "passwords"),
    (".local/share/docker", "the container engine's own files"),
    (".local/share/containers", "the container engine's own files"),
];

/// What paths of one registry are measured by.
#[derive(Debug)]
pub(super) struct Ground {
    /// The registry's folder, from which relative paths start.
    folder: PathBuf,
    /// The project, which a project's paths should not leave; `None` for the user's own registry.
    project: Option<PathBuf>,
    home: Option<PathBuf>,
    forbidden: Vec<(PathBuf, String)>,
}

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Absolute, without links.
    pub path: PathBuf,
    /// Whether it lies where the registry may reach by itself.
    pub inside: bool,
}

impl Ground {
    /// `folder` is the registry's own, resolved.
    pub(super) fn new(folder: &Path, project: Option<&Path>, environment: &Environment) -> Self {
        let mut forbidden: Vec<(PathBuf, String)> = Vec::new();
        let mut forbid = |path: PathBuf, what: &str| {
            let resolved = resolved(&path);
            if resolved != path {
                forbidden.push((resolved, what.to_owned()));
            }
            forbidden.push((path, what.to_owned()));
        };
        for (path, what) in SYSTEM {
            forbid(PathBuf::from(path), what);
        }
        let home = environment.home();
        for (name, what) in home.iter().flat_map(|_| HOME) {
            forbid(home.as_deref().unwrap_or(Path::new("/")).join(name), what);
        }
        let ours = "what you trust and how you set Cellblock up";
        for path in environment.config_dir().into_iter().chain(environment.user_file()) {
            forbid(path, ours);
        }
        if let Some(path) = environment.jupyter_data_dir() {
            forbid(path, "Jupyter's keys and kernels");
        }
        for path in environment.runtime_dir().into_iter().chain(environment.jupyter_runtime_dir()) {
            forbid(path, "the sockets of your session");
        }
        let (folder, project) = (folder.to_owned(), project.map(Path::to_owned));
        Ground { folder, project, home, forbidden }
    }

    /// No container sees the folder of the engine's socket either.
    pub(super) fn forbid_engine(&mut self, host: Option<&str>) {
        let path = host.map(|host| Path::new(host.strip_prefix("unix://").unwrap_or(host)));
        if let Some(path) = path.filter(|path| path.is_absolute()) {
            let what = "the container engine's socket".to_owned();
            self.forbidden.push((resolved(path), what.clone()));
            self.forbidden.push((path.to_owned(), what));
        }
    }

    /// Where a folder to mount is.
    ///
    /// # Errors
    /// When nothing is there, or no container may see it.
    pub(super) fn mount(&self, written: &str) -> Result<Found, String> {
        let found = self.find(written)?;
        self.allow(&found.path)?;
        if found.path.is_dir() { Ok(found) } else { Err(format!("{} is not a folder", found.path.display())) }
    }

    /// Where something to read or to build from is. What lies in the registry's own folder is meant for that, also
    /// where the folder is among the user's settings.
    ///
    /// # Errors
    /// When nothing is there, or it is not to be read.
    pub(super) fn source(&self, written: &str) -> Result<Found, String> {
        let found = self.find(written)?;
        if !found.path.starts_with(&self.folder) {
            self.allow(&found.path)?;
        }
        Ok(found)
    }

    /// The text of a file beside the registry's own. A project's registry, which may be a stranger's, gets nothing that is
    /// hidden in the project (`.git`, `.env`): what it names is read before anybody trusts it.
    ///
    /// # Errors
    /// When it is not there, not to be read, or no text of at most `most` bytes. Nothing of its text is in the error.
    pub(super) fn text(&self, written: &str, most: u64) -> Result<(Found, String), String> {
        let found = self.source(written)?;
        if self.project.as_ref().is_some_and(|project| exposes(&found.path, project)) {
            return Err("what is hidden in a project is not read for its containers".to_owned());
        }
        let text = read(&found.path, most)?;
        Ok((found, text))
    }

    fn find(&self, written: &str) -> Result<Found, String> {
        let path = match (written.strip_prefix("~/"), &self.home) {
            (Some(rest), Some(home)) => home.join(rest),
            (Some(_), None) => return Err("it begins with ~/ but HOME is not set".to_owned()),
            (None, _) => self.folder.join(written),
        };
        let path = path.canonicalize().map_err(|why| match why.kind() {
            std::io::ErrorKind::NotFound => format!("{} does not exist", path.display()),
            _ => format!("{} can't be found: {why}", path.display()),
        })?;
        if path.to_str().is_none_or(|text| text.contains(char::is_control)) {
            return Err("its real name is not plain Unicode text".to_owned());
        }
        let inside = self.project.as_ref().is_none_or(|project| path.starts_with(project));
        Ok(Found { path, inside })
    }

    /// Whether anybody may have that folder or file.
    pub(super) fn allow(&self, path: &Path) -> Result<(), String> {
        if path == Path::new("/") {
            return Err("the whole file system is never given to a container".to_owned());
        }
        if path.starts_with(MEDIA) && path != Path::new(MEDIA) {
            return Ok(());
        }
        let within = |place: &Path| path.starts_with(place) || place.starts_with(path);
        match self.forbidden.iter().find(|(place, _)| within(place)) {
            Some((place, what)) if path.starts_with(place) => {
                Err(format!("{} is never given to a container: there are {what}", path.display()))
            }
            Some((place, what)) => Err(format!(
                "{} is never given to a container: it holds {} ({what}); name a folder further down",
                path.display(),
                place.display()
            )),
            None => Ok(()),
        }
    }
}

/// Whether a path in a project is the project itself, with its notebooks and secrets, or hidden in it (`.git`).
pub(super) fn exposes(path: &Path, root: &Path) -> bool {
    let Ok(below) = path.strip_prefix(root) else { return false };
    let hidden = |part: Component<'_>| part.as_os_str().as_encoded_bytes().starts_with(b".");
    below.as_os_str().is_empty() || below.components().any(hidden)
}

/// A path without links, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let Ok(found) = above.canonicalize() {
            return path.strip_prefix(above).map_or(found.clone(), |rest| {
                if rest.as_os_str().is_empty() { found } else { found.join(rest) }
            });
        }
    }
    path.to_owned()
}

/// The text of a regular file of at most `most` bytes, at a path without links.
///
/// # Errors
/// What is wrong with it.
fn read(path: &Path, most: u64) -> Result<String, String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let file = open(path, flags).map_err(|why| format!("it can't be opened: {why}"))?;
    let file = std::fs::File::from(file);
    if !file.metadata().map_err(|why| why.to_string())?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|why| format!("it can't be read: {why}"))?;
    if bytes.len() as u64 > most {
        return Err(format!("it is larger than {most} bytes"));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// Opens what lies at a path that has no links, and nothing else.
fn open(path: &Path, flags: OFlags) -> rustix::io::Result<std::os::fd::OwnedFd> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // Linux before 5.6, or a seccomp profile that does not know the call.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
            other => return other,
        }
    }
    rustix::fs::openat(CWD, path, flags, Mode::empty())
}
