//! Where container paths lie on the host, and links to them.
//!
//! Imports `workspace` and `definition`. A link is relative to the notebook's directory, which is how `JupyterLab`
//! and every other front end resolves it.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::event::terminal::is_invisible;
use crate::sandbox::definition::Place;
use crate::sandbox::spec::WORKSPACE;
use crate::sandbox::workspace::Workspace;

/// The directories that a container shares with the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths(Vec<(String, PathBuf)>);

impl Paths {
    /// Those of a container with this workspace and this folder of its own. What lies outside of the notebook's
    /// directory is not among them: no link leads there.
    pub fn new(workspace: Option<&Workspace>, own: Option<(&Place, &Workspace)>) -> Self {
        let mut pairs = Vec::new();
        if let Some(host) = workspace.and_then(Workspace::relative) {
            pairs.push((WORKSPACE.to_owned(), host.to_owned()));
        }
        if let Some((place, own)) = own
            && let Some(host) = own.relative()
        {
            pairs.push((inside(place).to_owned(), host.to_owned()));
        }
        Paths(pairs)
    }

    /// Where an absolute path in the container lies, from the notebook's directory. `None`: not on the host, or
    /// outside of that directory, or the path is no plain one.
    pub fn host(&self, container: &Path) -> Option<PathBuf> {
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::RootDir);
        if !container.components().all(plain) {
            return None;
        }
        self.0.iter().find_map(|(inside, host)| Some(host.join(container.strip_prefix(inside).ok()?)))
    }
}

/// Where a container sees the folder of its session or run.
pub fn inside(place: &Place) -> &'static str {
    match place {
        Place::Session(_) => "/session",
        Place::Run(_) => "/work",
    }
}

/// The address of a file by its path from the notebook's directory. `None` for names that some decoder on the way
/// could read as something else: with control characters, backslashes, percent signs, or not in UTF-8.
pub fn link(host: &Path) -> Option<String> {
    let text = host.to_str()?;
    if text.is_empty()
        || text.contains(|c: char| c.is_control() || is_invisible(c) || matches!(c, '\\' | '%'))
    {
        return None;
    }
    if !host.components().all(|part| matches!(part, Component::Normal(_))) {
        return None;
    }
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'/') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    Some(out)
}

/// A path for a person: what can't be seen, or turns the direction of reading, is written as an escape.
pub(super) fn visible(path: &Path) -> String {
    let mut out = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || is_invisible(c) {
                out.extend(c.escape_unicode());
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// The middle of a long text left out.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let (head, tail) = (most * 2 / 3, most / 3 - 1);
    let skip = count - tail;
    text.chars().take(head).chain(['…']).chain(text.chars().skip(skip)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_link_is_relative_and_encoded() {
        let link = |text: &str| super::link(Path::new(text));
        assert_eq!(link("sessions/x/artifacts/plot.png").unwrap(), "sessions/x/artifacts/plot.png");
        assert_eq!(link("outputs/1/a b?#&\"<é>.png").unwrap(), "outputs/1/a%20b%3F%23%26%22%3C%C3%A9%3E.png");
        assert_eq!(link("outputs/1/javascript:x").unwrap(), "outputs/1/javascript%3Ax");
        for odd in ["", "/etc/passwd", "../x", "a/../b", "./a", "a\nb", "a\u{202e}b", "a\\b", "%2e%2e/x"] {
            assert_eq!(link(odd), None, "{odd:?}");
        }
        assert_eq!(super::link(Path::new(OsStr::from_bytes(b"a/\xff"))), None);
    }

    #[test]
    fn what_can_not_be_seen_is_shown() {
        assert_eq!(visible(Path::new("a b/é.png")), "a b/é.png");
        assert_eq!(visible(Path::new("a\nb\u{202e}gnp.exe")), "a\\u{a}b\\u{202e}gnp.exe");
        assert_eq!(visible(Path::new(OsStr::from_bytes(b"a\xffb"))), "a\\xffb");
        assert_eq!(shortened("short", 9), "short");
        let long = shortened(&"x".repeat(500), 60);
        assert!(long.chars().count() <= 60 && long.contains('…'));
    }

    #[test]
    fn only_shared_directories_lie_on_the_host() {
        let home = tempfile::TempDir::new().unwrap();
        let make = |name: &str| Workspace::prepare(home.path(), Path::new(name), false).unwrap();
        let (workspace, own) = (make("workspace"), make("sessions/x"));
        let place = Place::Session("x".into());
        let paths = Paths::new(Some(&workspace), Some((&place, &own)));
        let host = |path: &str| paths.host(Path::new(path));
        assert_eq!(host("/workspace/a/b").unwrap(), Path::new("workspace/a/b"));
        assert_eq!(host("/session/artifacts/p.png").unwrap(), Path::new("sessions/x/artifacts/p.png"));
        for elsewhere in ["/tmp/x", "/work/x", "workspace/x", "/workspace/../etc/passwd", "/workspaces/x"] {
            assert_eq!(host(elsewhere), None, "{elsewhere}");
        }
    }
}
