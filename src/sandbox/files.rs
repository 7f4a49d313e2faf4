//! Single files of the workspace as a model's tools see them: read, written, listed.
//!
//! May import `event`. A program in the container does it, as the code there would: no path of the host is ever
//! opened, and no link leads further than the container. What it says is the guest's word.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::event::{EventSender, Failure};

use super::Sandbox;
use super::definition::{Definition, Mode};
use super::runner;
use super::session::Piece;
use super::transfer::Program;

/// The longest path, in bytes.
const PATH: usize = 1024;
/// What the program may say at most, beyond the text of a file: names, and what JSON adds to a text (bytes).
const WORDS: usize = 2 << 20;
/// Entries of a listing.
const ENTRIES: usize = 200;
/// Bytes in one piece of a file that is written.
const PIECE: usize = 64 << 10;

/// Where and with whom a file is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Desk<'a> {
    /// Whether it is the session of the model's own ([`Run::isolated`](super::Run::isolated)).
    pub isolated: bool,
    /// Is told of a start that takes long.
    pub events: &'a EventSender,
    /// Stops it.
    pub cancel: &'a CancellationToken,
}

/// A part of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Excerpt {
    /// Where it really is, in the container.
    pub path: String,
    /// The size of the whole file in bytes.
    pub bytes: u64,
    /// Whole lines, as long as they fit.
    pub text: String,
    /// Bytes behind them.
    pub rest: u64,
    /// Whether it is no text; then there is none.
    pub binary: bool,
}

/// A file that was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Written {
    /// Where it is, in the container.
    pub path: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Whether it took the place of another.
    pub replaced: bool,
}

/// What is in a folder, and in those below it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Listed {
    /// Which folder, in the container.
    pub path: String,
    /// Those nearest to it first.
    pub entries: Vec<Listing>,
    /// How many more of the last folder there are.
    pub more: u64,
    /// Whether folders were not looked into any more.
    pub deeper: bool,
}

/// One entry of a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Listing {
    /// Relative to the folder that was asked for; bytes that are no UTF-8 are escaped.
    pub name: String,
    /// Its size, when it is a file.
    pub bytes: Option<u64>,
    /// Whether it is a folder.
    pub folder: bool,
    /// Where it leads, when it is a link.
    pub link: Option<String>,
}

fn failed(path: &str, why: impl std::fmt::Display) -> Failure {
    let path: String = path.chars().take(200).collect();
    Failure::new("FileError", format!("{path}: {why}"))
}

/// Whether a path can lead to a file of the workspace or the session at all, by its text alone: nobody need be asked
/// about one that can't.
///
/// # Errors
/// Why not.
pub fn plausible(path: &str) -> Result<(), Failure> {
    if path.len() > PATH {
        return Err(failed(path, "the path is too long"));
    }
    if path.contains('\0') {
        return Err(failed(path, "a path has no NUL in it"));
    }
    let mut names: Vec<&str> = if path.starts_with('/') { Vec::new() } else { vec!["workspace"] };
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    match names.first() {
        Some(&("workspace" | "session")) => Ok(()),
        _ => Err(failed(path, "it is outside /workspace and /session; paths are relative to /workspace")),
    }
}

impl Sandbox {
    /// Reads a file from line `line` (from 1) on, at most `most` bytes of it.
    ///
    /// # Errors
    /// When it is not there, not a file, or outside `/workspace` and `/session`; or it was stopped.
    pub async fn read_file(
        &self,
        path: &str,
        line: u64,
        most: usize,
        desk: Desk<'_>,
    ) -> Result<Excerpt, Failure> {
        let order = json!({ "do": "read", "path": path, "line": line.max(1), "most": most });
        let mut read: Excerpt = self.ordered(path, order, None, most, desk).await?;
        read.text.truncate(read.text.floor_char_boundary(most.saturating_mul(3)));
        Ok(read)
    }

    /// Writes a file, whole or not at all; folders on the way are made.
    ///
    /// # Errors
    /// As for [`Sandbox::read_file`], and when the disk is full.
    pub async fn write_file(&self, path: &str, content: &str, desk: Desk<'_>) -> Result<Written, Failure> {
        let order = json!({ "do": "write", "path": path });
        self.ordered(path, order, Some(content), 0, desk).await
    }

    /// Lists a folder and what is below it.
    ///
    /// # Errors
    /// As for [`Sandbox::read_file`].
    pub async fn list_files(&self, path: &str, desk: Desk<'_>) -> Result<Listed, Failure> {
        let order = json!({ "do": "list", "path": path, "most": ENTRIES });
        let mut listed: Listed = self.ordered(path, order, None, 0, desk).await?;
        listed.entries.truncate(ENTRIES);
        Ok(listed)
    }

    async fn ordered<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        order: Value,
        input: Option<&str>,
        text: usize,
        desk: Desk<'_>,
    ) -> Result<T, Failure> {
        plausible(path)?;
        let definition = self.desk()?;
        let (feed, more) = mpsc::channel(1);
        let argv = runner::files(&order);
        let with_input = input.is_some().then_some(more);
        let program = self.program(&definition, desk.isolated, argv, with_input, (desk.events, desk.cancel));
        let Program { mut pieces, end } = program.await?;
        // In JSON one byte can become twelve: `\ud83d\ude00`.
        let most = WORDS + text.saturating_mul(12);
        let feeding = async move {
            let Some(content) = input else { return };
            for piece in content.as_bytes().chunks(PIECE) {
                if feed.send(Bytes::copy_from_slice(piece)).await.is_err() {
                    return;
                }
            }
        };
        let listening = async move {
            let mut said = Vec::new();
            while let Some(piece) = pieces.recv().await {
                if let Piece::Out(bytes) = piece {
                    if said.len() + bytes.len() > most {
                        break;
                    }
                    said.extend_from_slice(&bytes);
                }
            }
            said
        };
        let (code, said, ()) = tokio::join!(end, listening, feeding);
        let code = code?;
        let told: Value = serde_json::from_slice(&said).unwrap_or(Value::Null);
        if let Some(why) = told["failed"].as_str() {
            return Err(failed(path, why.chars().take(300).collect::<String>()));
        }
        if code != Some(0) {
            return Err(failed(
                path,
                "the program in the container that looks after files ended before its time",
            ));
        }
        serde_json::from_value(told).map_err(|e| failed(path, e))
    }

    /// The container in which files are looked at: the current one, else the first that stays.
    fn desk(&self) -> Result<std::sync::Arc<Definition>, Failure> {
        self.current().or_else(|failure| {
            let stays = |d: &&std::sync::Arc<Definition>| d.mode == Mode::Session && d.refused.is_none();
            self.registry().containers().iter().find(stays).cloned().ok_or(failure)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_can_lead_nowhere_is_told_by_its_text() {
        for path in [
            "a.csv",
            "./a",
            "a/../b",
            "/workspace",
            "/workspace/a",
            "/session/artifacts/x",
            "../session/x",
            "",
            "..a",
            "/../workspace/a",
            "//workspace//a",
        ] {
            assert!(plausible(path).is_ok(), "{path}");
        }
        for path in
            ["/etc/passwd", "../x", "a/../../etc", "/", "..", "/workspace/../etc/x", "/workspaces/x", "a\0b"]
        {
            assert!(plausible(path).is_err(), "{path}");
        }
        assert!(plausible(&"x".repeat(5000)).is_err_and(|failure| failure.evalue.len() < 300));
    }
}
