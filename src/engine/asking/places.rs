//! Where a mentioned file is, and whether it may go to a model unasked.
//!
//! Whoever wrote the notebook chooses the path, and code in the sandbox chooses what lies in the workspace; what is
//! attached leaves this machine. So unasked a mention reaches only plain files in the workspace and in the notebook's
//! directory: no link is followed, nothing hidden, no settings, nothing that looks like a key. The rest is touched only
//! after the user has seen its real path and said yes. Links that code in the sandbox may have made are never followed.

use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::sandbox::archive::{self, Spot};
use crate::sandbox::artifacts::{OUTPUTS, SESSIONS};
use crate::sandbox::workspace::{Workspace, open_regular};

/// The directories that a mention can reach unasked.
#[derive(Debug, Clone)]
pub(in crate::engine) struct Places {
    /// The notebook's directory.
    pub(super) directory: PathBuf,
    /// The workspace, from that directory.
    pub(super) workspace: PathBuf,
    /// Whether the user lets it lie elsewhere.
    pub(super) outside: bool,
}

/// What a path leads to.
#[derive(Debug)]
pub(in crate::engine) enum Found {
    /// A file that may be read.
    File(File),
    /// A file that may be read once the user agrees: its real path.
    Ask(PathBuf),
    /// Something that is not attached; why, to be put behind its name.
    Refused(String),
    /// Nothing of that name.
    Nothing,
}

/// Where the sandbox sees the workspace.
const INSIDE: &str = "/workspace";

impl Places {
    /// Looks for a path as it was written.
    pub(in crate::engine) fn find(&self, written: &str) -> Found {
        let Ok(home) = self.directory.canonicalize() else { return Found::Nothing };
        let workspace = Workspace::find(&self.directory, &self.workspace, self.outside);
        let path = Path::new(written);
        if let Ok(inside) = path.strip_prefix(INSIDE) {
            let Some(workspace) = &workspace else { return Found::Nothing };
            return plain(inside).map_or(Found::Nothing, |path| below(workspace, &path, true));
        }
        let Some(path) = plain(path) else { return elsewhere(&home.join(path)) };
        if let Some(workspace) = &workspace {
            match below(workspace, &path, true) {
                Found::Nothing => {}
                found => return found,
            }
        }
        let Ok(notebooks) = Workspace::existing(&home) else { return Found::Nothing };
        let whole = home.join(&path);
        let guests = workspace.as_ref().is_some_and(|workspace| whole.starts_with(workspace.path()))
            || [SESSIONS, OUTPUTS].iter().any(|folder| path.starts_with(folder));
        below(&notebooks, &path, guests)
    }

    /// A file whose name is nearly the one that was written, in the same folder.
    pub(super) fn near(&self, written: &str) -> Option<String> {
        let path = plain(Path::new(written))?;
        let workspace = Workspace::find(&self.directory, &self.workspace, self.outside);
        let notebooks = self.directory.canonicalize().ok().and_then(|home| Workspace::existing(&home).ok());
        let beside = near(&path, workspace.iter().chain(&notebooks));
        if beside.is_some() || path.extension().is_none() {
            return beside;
        }
        // The file may lie at the top, and the folder be a slip.
        near(Path::new(path.file_name()?), workspace.iter().chain(&notebooks))
    }

    /// Opens a file that the user has agreed to: the path that was shown, over no link.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(real: &Path) -> io::Result<File> {
        let spot = Spot::find(real, Some(Path::new("/")))?;
        let name = spot.name.ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
        open_regular(&spot.folder, Path::new(&name))
    }
}

/// A relative path of nothing but names.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut names = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    (!names.as_os_str().is_empty()).then_some(names)
}

/// A plain path below a directory. `guests`: what lies there may have been made by code in the sandbox.
fn below(directory: &Workspace, path: &Path, guests: bool) -> Found {
    let whole = directory.path().join(path);
    let private = path.components().any(|part| is_private(part.as_os_str().as_encoded_bytes()));
    if !private {
        match directory.open_below(path) {
            Ok(file) => return Found::File(file),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Found::Refused("it can't be read: permission denied".to_owned());
            }
            Err(_) => {}
        }
    }
    let Ok(real) = whole.canonicalize() else { return Found::Nothing };
    if real.is_dir() {
        return Found::Refused("it is a folder; name a file in it".to_owned());
    }
    match (real == whole, guests) {
        (false, true) => Found::Refused(
            "it is behind a link, which code in the sandbox may have made; name the file itself".to_owned(),
        ),
        (true, true) if !private => {
            Found::Refused("it is no regular file, or on another file system".to_owned())
        }
        // Also what the notebook's directory holds on another file system.
        _ => elsewhere(&real),
    }
}

/// Where the system shows what processes, this kernel too, have in their memory and environment.
const OF_THE_SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A file that needs a yes, if it is there.
fn elsewhere(path: &Path) -> Found {
    match path.canonicalize() {
        Ok(real) if real.is_file() && OF_THE_SYSTEM.iter().any(|folder| real.starts_with(folder)) => {
            Found::Refused("it is no file on a disk, but something of the system's".to_owned())
        }
        Ok(real) if real.is_file() => Found::Ask(real),
        Ok(real) if real.is_dir() => Found::Refused("it is a folder; name a file in it".to_owned()),
        Ok(_) => Found::Refused("it is no regular file".to_owned()),
        Err(_) => Found::Nothing,
    }
}

/// Names that nothing touches unasked: hidden ones, settings, and what usually holds keys.
pub(in crate::engine) fn is_private(name: &[u8]) -> bool {
    const PARTS: [&str; 6] = ["secret", "credential", "password", "passwd", "private_key", "api_key"];
    const ENDINGS: [&str; 10] =
        [".pem", ".key", ".p12", ".pfx", ".jks", ".keystore", ".kdbx", ".asc", ".gpg", ".ppk"];
    const BEGINNINGS: [&str; 4] = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"];
    let lower = String::from_utf8_lossy(name).to_lowercase();
    // A module of that name is code.
    let code = [".py", ".ipynb", ".rs", ".js", ".ts", ".md"].iter().any(|ending| lower.ends_with(ending));
    archive::is_private(name)
        || lower == "kubeconfig"
        || ENDINGS.iter().any(|ending| lower.ends_with(ending))
        || BEGINNINGS.iter().any(|beginning| lower.starts_with(beginning))
        || (!code && PARTS.iter().any(|part| lower.contains(part)))
}

/// A file whose name is nearly that one, in the same folder.
fn near<'a>(path: &Path, directories: impl Iterator<Item = &'a Workspace>) -> Option<String> {
    const LOOKED_AT: usize = 2000;
    const ALIKE: f64 = 0.7;
    let wanted = path.file_name()?.to_string_lossy().to_lowercase();
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut best: Option<(f64, String)> = None;
    for directory in directories {
        let Ok(open) = directory.directory_below(folder) else { continue };
        let Ok(entries) = rustix::fs::Dir::read_from(&open) else { continue };
        for entry in entries.take(LOOKED_AT).flatten() {
            let name = entry.file_name().to_bytes();
            if is_private(name) {
                continue;
            }
            let Ok(name) = std::str::from_utf8(name) else { continue };
            let alike = strsim::normalized_damerau_levenshtein(&wanted, &name.to_lowercase());
            if alike >= ALIKE && best.as_ref().is_none_or(|(most, _)| alike > *most) {
                best = Some((alike, folder.join(name).to_string_lossy().into_owned()));
            }
        }
    }
    best.map(|(_, name)| name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    fn places(root: &Path) -> Places {
        Places { directory: root.to_owned(), workspace: "workspace".into(), outside: false }
    }

    fn says(found: Found) -> String {
        match found {
            Found::File(mut file) => {
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                format!("file {text}")
            }
            Found::Ask(path) => format!("ask {}", path.display()),
            Found::Refused(why) => format!("refused {why}"),
            Found::Nothing => "nothing ".to_owned(),
        }
    }

    #[test]
    fn only_plain_files_of_the_workspace_and_the_notebooks_directory_are_read_unasked() {
        let outer = tempfile::tempdir().unwrap();
        let outer = outer.path().canonicalize().unwrap();
        let root = outer.join("notebooks");
        std::fs::create_dir_all(root.join("workspace/sub")).unwrap();
        std::fs::create_dir_all(root.join("sessions/s/artifacts")).unwrap();
        std::fs::create_dir(root.join(".hidden")).unwrap();
        for (name, text) in [
            ("notebooks/workspace/a.csv", "workspace"),
            ("notebooks/workspace/sub/b.txt", "sub"),
            ("notebooks/workspace/.env", "KEY"),
            ("notebooks/a.csv", "beside"),
            ("notebooks/beside.txt", "beside"),
            ("notebooks/.env", "KEY"),
            ("notebooks/.hidden/x", "x"),
            ("notebooks/cellblock.toml", "x"),
            ("notebooks/server.pem", "x"),
            ("notebooks/secrets.yaml", "x"),
            ("notebooks/secrets.py", "code"),
            ("outside.txt", "secret"),
        ] {
            std::fs::write(outer.join(name), text).unwrap();
        }
        symlink(outer.join("outside.txt"), root.join("link.txt")).unwrap();
        symlink(outer.join("outside.txt"), root.join("workspace/planted.txt")).unwrap();
        symlink(&outer, root.join("workspace/up")).unwrap();
        symlink("a.csv", root.join("workspace/latest.csv")).unwrap();
        symlink(outer.join("outside.txt"), root.join("sessions/s/artifacts/p.txt")).unwrap();
        let outside = format!("ask {}/outside.txt", outer.display());
        let planted =
            "refused it is behind a link, which code in the sandbox may have made; name the file itself";
        let beside = |name: &str| format!("ask {}/{name}", root.display());
        for (written, expected) in [
            ("a.csv", "file workspace".to_owned()),
            ("./a.csv", "file workspace".to_owned()),
            ("/workspace/a.csv", "file workspace".to_owned()),
            ("sub/b.txt", "file sub".to_owned()),
            ("workspace/a.csv", "file workspace".to_owned()),
            ("beside.txt", "file beside".to_owned()),
            ("secrets.py", "file code".to_owned()),
            ("b.txt", "nothing ".to_owned()),
            ("a.cvs", "nothing ".to_owned()),
            ("sub/b.tx", "nothing ".to_owned()),
            ("sub", "refused it is a folder; name a file in it".to_owned()),
            (".", "refused it is a folder; name a file in it".to_owned()),
            ("../outside.txt", outside.clone()),
            ("sub/../../outside.txt", "nothing ".to_owned()),
            ("/workspace/../outside.txt", "nothing ".to_owned()),
            ("link.txt", outside.clone()),
            ("planted.txt", planted.to_owned()),
            ("latest.csv", planted.to_owned()),
            ("up/outside.txt", planted.to_owned()),
            ("workspace/planted.txt", planted.to_owned()),
            ("sessions/s/artifacts/p.txt", planted.to_owned()),
            (".env", format!("ask {}/workspace/.env", root.display())),
            (".hidden/x", beside(".hidden/x")),
            ("cellblock.toml", beside("cellblock.toml")),
            ("server.pem", beside("server.pem")),
            ("secrets.yaml", beside("secrets.yaml")),
            ("nul\0byte", "nothing ".to_owned()),
        ] {
            assert_eq!(says(places(&root).find(written)), expected, "{written:?}");
        }
        for (written, near) in [
            ("a.cvs", Some("a.csv")),
            ("sub/b.tx", Some("sub/b.txt")),
            ("data/a.csv", Some("a.csv")),
            ("data/zzz.zzz", None),
            ("zzz.zzz", None),
            (".enw", None),
            ("../outside.tx", None),
        ] {
            assert_eq!(places(&root).near(written).as_deref(), near, "{written}");
        }
        let absolute = outer.join("outside.txt");
        assert_eq!(says(places(&root).find(absolute.to_str().unwrap())), outside);
        assert!(says(places(&root).find("/dev/zero")).starts_with("refused it is no regular file"));
        assert!(
            says(places(&root).find("/proc/self/environ")).starts_with("refused it is no file on a disk")
        );
        let mut text = String::new();
        Places::open(&absolute).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "secret");
        assert!(
            Places::open(&root.join("link.txt")).is_err(),
            "the path that was shown is the one that is opened"
        );
    }

    #[test]
    fn a_workspace_that_leads_out_is_none() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().canonicalize().unwrap().join("notebooks");
        std::fs::create_dir_all(&root).unwrap();
        std::fs::create_dir(outer.path().join("elsewhere")).unwrap();
        std::fs::write(outer.path().join("elsewhere/x.txt"), "x").unwrap();
        symlink("../elsewhere", root.join("workspace")).unwrap();
        assert_eq!(says(places(&root).find("x.txt")), "nothing ");
        assert_eq!(says(places(&root).find("/workspace/x.txt")), "nothing ");
    }
}
