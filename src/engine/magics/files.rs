//! Magics that copy between the notebook's directory and a container, and keep what a session holds.
//!
//! The notebook may be hostile: what lies outside its directory, what is hidden and what settings are made of is
//! touched only after the user has seen the real path and said yes.

use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

use super::{cell, show, usage};
use crate::engine::confirm;
use crate::engine::execute::{Engine, Surroundings};
use crate::event::Failure;
use crate::sandbox::checkpoint::when;
use crate::sandbox::transfer::{Transfer, Transferred};
use crate::sandbox::{archive, size};

pub(super) async fn upload(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    let (from, to) =
        two(argument).ok_or_else(|| usage(engine, "upload", "takes a path here, and a place there"))?;
    let place = Checked::new(&engine.habits.directory, &from);
    agreed(&place, "read", around).await?;
    let transfer = place.transfer(around);
    let to = to.unwrap_or_else(|| ".".to_owned());
    let done = engine.sandbox.upload(std::slice::from_ref(&place.path), &to, &transfer).await?;
    show(around, &words(&done, if to == "." { "/workspace" } else { &to })).await;
    Ok(())
}

pub(super) async fn download(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    let (from, to) =
        two(argument).ok_or_else(|| usage(engine, "download", "takes a path there, and a place here"))?;
    let to = to.unwrap_or_else(|| ".".to_owned());
    let directory = &engine.habits.directory;
    let mut place = Checked::new(directory, &to);
    // What arrives in a folder keeps its name, which can be one that is not to be touched.
    let last = Path::new(&from)
        .file_name()
        .map_or_else(|| "*".to_owned(), |name| name.to_string_lossy().into_owned());
    place.harmless |= place.path == place.directory;
    place.harmless &= is_harmless(Path::new(&last)) && !last.contains(['*', '?', '[']);
    let what = if is_harmless(Path::new(&last)) {
        "write"
    } else {
        "write hidden files or settings, or whatever fits a pattern, to"
    };
    agreed(&place, what, around).await?;
    let transfer = place.transfer(around);
    let done = engine.sandbox.download(&from, &place.path, &transfer).await?;
    show(around, &words(&done, &place.path.display().to_string())).await;
    Ok(())
}

pub(super) async fn checkpoint(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    if argument.is_empty() {
        return Err(usage(engine, "checkpoint", "needs a name, such as `before-training`"));
    }
    let name = super::name(argument).map_err(|why| usage(engine, "checkpoint", &why))?;
    let saved = engine.sandbox.checkpoint(name, around.events, around.cancel).await?;
    let root = if saved.root { " The root file system is kept as an image." } else { "" };
    let text = format!(
        "Saved `{}` of the container `{}`: {}{root}",
        cell(&saved.name),
        cell(&saved.container),
        saved.inventory.markdown()
    );
    show(around, &text).await;
    Ok(())
}

pub(super) async fn restore(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    if argument.is_empty() {
        return Err(usage(
            engine,
            "restore",
            "needs the name of a checkpoint; the checkpoints magic lists them",
        ));
    }
    let name = super::name(argument).map_err(|why| usage(engine, "restore", &why))?;
    let back = engine.sandbox.restore(name, around.events, around.cancel).await?;
    let text = format!(
        "Brought back `{}` (of {}) in the container `{}`: {}",
        cell(&back.name),
        cell(&when(&back.saved)),
        cell(&back.container),
        back.inventory.markdown()
    );
    show(around, &text).await;
    Ok(())
}

pub(super) async fn checkpoints(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    if let Some(name) = argument.strip_prefix("--delete ").or_else(|| argument.strip_prefix("--remove ")) {
        let name = super::name(name.trim()).map_err(|why| usage(engine, "checkpoints --delete", &why))?;
        let text = if engine.sandbox.delete_checkpoint(name)? {
            format!("Removed the checkpoint `{}`.", cell(name))
        } else {
            format!("There is no checkpoint `{}`.", cell(name))
        };
        show(around, &text).await;
        return Ok(());
    }
    if !argument.is_empty() {
        return Err(usage(engine, "checkpoints", "takes nothing behind it, or `--delete NAME`"));
    }
    let all = engine.sandbox.checkpoints()?;
    if all.is_empty() {
        let sigil = engine.dialect().sigil();
        show(around, &format!("There are no checkpoints. `{sigil}checkpoint NAME` makes one.")).await;
        return Ok(());
    }
    let mut lines =
        vec!["| checkpoint | container | saved | what is in it |\n| --- | --- | --- | --- |".to_owned()];
    lines.extend(all.iter().map(|kept| {
        format!(
            "| `{}` | `{}` | {} | {} |",
            cell(&kept.name),
            cell(&kept.container),
            cell(&when(&kept.saved)),
            kept.inventory.markdown().replace('|', "\\|")
        )
    }));
    show(around, &lines.join("\n")).await;
    Ok(())
}

/// A path of the host's that a notebook names.
struct Checked {
    /// The real path, when the user has to agree to it.
    path: PathBuf,
    /// The directory in which it is, when it may be used unasked.
    directory: PathBuf,
    harmless: bool,
}

impl Checked {
    fn new(directory: &Path, written: &str) -> Self {
        let joined = directory.join(written);
        let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
        let inside = Path::new(written).is_relative() && is_harmless(Path::new(written));
        let plain = directory.join(Path::new(written).components().collect::<PathBuf>());
        // What is not there yet is in its folder; the copy itself follows no link within the directory.
        let real = real(&joined);
        let harmless =
            inside && real == plain.components().filter(|c| *c != Component::CurDir).collect::<PathBuf>();
        Checked { path: if harmless { joined } else { real }, directory, harmless }
    }

    /// The path that was shown is the one that is opened: no link on it is followed, whatever was put there while
    /// the user read.
    fn transfer<'a>(&'a self, around: Surroundings<'a>) -> Transfer<'a> {
        let within = if self.harmless { self.directory.as_path() } else { Path::new("/") };
        Transfer {
            events: around.events,
            cancel: around.cancel,
            within: Some(within),
            confirmed: !self.harmless,
        }
    }
}

/// Where a path leads, through links, as far as it is there.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => real(parent).join(name),
        _ => path.to_owned(),
    }
}

/// A path below the directory that is neither hidden nor made of settings.
fn is_harmless(path: &Path) -> bool {
    let mut some = false;
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => {
                if archive::is_private(name.as_encoded_bytes()) {
                    return false;
                }
                some = true;
            }
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    some
}

async fn agreed(place: &Checked, does: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    if place.harmless {
        return Ok(());
    }
    let what = format!("This notebook wants to {does} {}", place.path.display());
    let why = "that is outside the notebook's directory, hidden, behind a link, or a part of its settings, so it needs a yes";
    confirm::plain(around.ask.as_ref(), &what, "", why).await
}

/// One or two words, quoted where they have spaces.
fn two(argument: &str) -> Option<(String, Option<String>)> {
    let mut words = Vec::new();
    let mut rest = argument.trim();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '"' | '\'' => rest.get(1..)?.split_once(first)?,
            _ => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    let pair = (words.next()?, words.next());
    words.next().is_none().then_some(pair)
}

fn words(done: &Transferred, place: &str) -> String {
    let files = if done.files == 1 { "1 file".to_owned() } else { format!("{} files", done.files) };
    let mut text = format!("Copied {files} ({}) to `{}`.", size(done.bytes), cell(place));
    for skipped in &done.skipped {
        let _ = write!(text, "\n- left out: `{}`", cell(&skipped.replace('`', "'")));
    }
    if done.more > 0 {
        let _ = write!(text, "\n- and {} more", done.more);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn paths_outside_hidden_or_through_links_need_a_yes() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        std::fs::create_dir_all(root.join("data/deep")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        std::os::unix::fs::symlink("data", root.join("inner")).unwrap();
        for (path, harmless) in [
            ("data", true),
            ("./data/deep", true),
            ("data/new.csv", true),
            ("*.csv", true),
            ("new/er/file", true),
            (".", false),
            ("..", false),
            ("data/../../x", false),
            ("/etc/passwd", false),
            (".git/config", false),
            ("data/.env", false),
            ("cellblock.toml", false),
            ("containers/registry.yaml", false),
            ("link/passwd", false),
            ("inner/x", false),
        ] {
            assert_eq!(Checked::new(root, path).harmless, harmless, "{path}");
        }
        assert_eq!(
            Checked::new(root, "link/passwd").path,
            Path::new("/etc/passwd"),
            "the real path is shown"
        );
    }

    #[test]
    fn one_or_two_words_with_quotes() {
        assert_eq!(two("a b"), Some(("a".into(), Some("b".into()))));
        assert_eq!(two("'a b' \"c\""), Some(("a b".into(), Some("c".into()))));
        assert_eq!(two("a"), Some(("a".into(), None)));
        for bad in ["", "a b c", "'a"] {
            assert_eq!(two(bad), None, "{bad}");
        }
    }
}
