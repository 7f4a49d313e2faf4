//! What a session holds, out of its container and into another: the files in memory, and the variables.
//!
//! The host keeps the archive and never opens it: the guest wrote it, and only a container unpacks it.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::event::{EventSender, Failure, terminal};
use crate::sandbox::backend::BackendError;
use crate::sandbox::definition::Place;
use crate::sandbox::output::size;
use crate::sandbox::runner;
use crate::sandbox::spec::HOME;

use super::Session;
use super::pipe::{Ends, Piece};

/// What the folders are called in which variables lie on their way.
const FOLDER: &str = ".cellblock-state-";
const PIECE: usize = 128 << 10;
/// Files in a state.
const MOST_FILES: u64 = 200_000;
/// The largest variable, in bytes.
const MOST_EACH: u64 = 1 << 30;
/// How many names and remarks of the guest's are kept, and how long each may be.
const NAMES: usize = 500;
const NAME: usize = 200;

/// What a failure is called when a state has more bytes than it may.
pub(in crate::sandbox) const TOO_LARGE: &str = "StateTooLarge";

/// What a session holds is to be written to `into`, or brought back from `from`.
pub(in crate::sandbox) struct PackJob {
    /// The file.
    pub(in crate::sandbox) file: File,
    /// Which way.
    pub(in crate::sandbox) way: Way,
    pub(in crate::sandbox) events: EventSender,
    pub(in crate::sandbox) cancel: CancellationToken,
    pub(in crate::sandbox) done: oneshot::Sender<Result<Packed, Failure>>,
}

/// A state that went one way.
#[derive(Debug)]
pub(in crate::sandbox) struct Packed {
    pub(in crate::sandbox) inventory: Inventory,
    /// The engine's id of the image that the container runs.
    pub(in crate::sandbox) image: String,
    /// The image that its root file system was kept as, where it is writable.
    pub(in crate::sandbox) root: Option<Result<String, BackendError>>,
}

/// Which way a state goes.
#[derive(Debug, Clone, Copy)]
pub(in crate::sandbox) enum Way {
    /// Out of the container.
    Pack {
        /// Whether `/session` goes too; a container on the same folder has it already.
        session: bool,
        /// Whether a writable root is kept as an image.
        root: bool,
        /// The most bytes.
        most: u64,
        /// How long saving the variables may take.
        patience: Duration,
    },
    /// Into the container, which is started when need be.
    Unpack,
}

/// What was kept and what was not. The guest says so.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Inventory {
    /// Names of variables, imports included; the first few hundred.
    pub kept: Vec<String>,
    /// How many there are.
    pub count: u64,
    /// What could not be kept, and why.
    pub lost: Vec<(String, String)>,
    /// Bytes of the archive.
    pub bytes: u64,
    /// Whether there was a Python session to ask.
    pub python: bool,
}

impl Inventory {
    /// From the session's own words, bounded and made fit for a person.
    fn read(reply: &Value) -> Self {
        let fit = |value: &Value| -> Option<String> {
            let text = terminal::filtered(value.as_str()?);
            Some(text.chars().filter(|c| !c.is_control()).take(NAME).collect())
        };
        let mut lost: Vec<_> = Vec::new();
        if let Some(error) = fit(&reply["error"]) {
            lost.push(("Python's variables".to_owned(), error));
        }
        let names = |name: &str| reply[name].as_array().map(Vec::as_slice).unwrap_or_default();
        lost.extend(names("lost").iter().filter_map(|l| Some((fit(&l[0])?, fit(&l[1])?))).take(NAMES));
        Inventory {
            kept: names("kept").iter().filter_map(fit).take(NAMES).collect(),
            count: reply["count"].as_u64().unwrap_or_default(),
            lost,
            bytes: 0,
            python: reply["kept"].is_array(),
        }
    }
}

impl Session {
    pub(super) async fn pack_job(&mut self, job: PackJob) {
        let PackJob { mut file, way, events, cancel, done } = job;
        let result = match way {
            Way::Pack { session, most, patience, .. } => {
                if self.live.is_none() && self.starting.is_none() {
                    let _ = done.send(Err(Failure::new(
                        "SandboxError",
                        format!(
                            "the container {} is not running: there is nothing to keep",
                            self.definition.name
                        ),
                    )));
                    return;
                }
                match self.wake(&events, &cancel).await {
                    Ok(()) => self.pack(&mut file, session, most, patience, &cancel).await,
                    Err(failure) => Err(failure),
                }
            }
            Way::Unpack => match self.wake(&events, &cancel).await {
                Ok(()) => self.unpack(file, &cancel).await,
                Err(failure) => Err(failure),
            },
        };
        let result = match result {
            Ok(inventory) => {
                let root = match (way, self.container()) {
                    (Way::Pack { root: true, .. }, Some(container)) if !self.definition.read_only => {
                        Some(container.commit().await)
                    }
                    _ => None,
                };
                let image = self.live.as_ref().map(|live| live.image.clone()).unwrap_or_default();
                Ok(Packed { inventory, image, root })
            }
            Err(failure) => Err(failure),
        };
        let _ = done.send(result);
    }

    /// Where things lie in the container, by their name in the archive.
    fn roots(&self, session: bool) -> Vec<(&'static str, &'static str)> {
        let mut roots = vec![("home", HOME), ("tmp", "/tmp")];
        if session && self.has_session_folder() {
            roots.push(("session", "/session"));
        }
        roots
    }

    fn has_session_folder(&self) -> bool {
        matches!(self.place, Place::Session(_)) && self.live.as_ref().is_some_and(|live| live.place.is_some())
    }

    /// A folder for the variables: on the host's disk where there is one, for memory may be short.
    fn folder(&self) -> String {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let base = if self.has_session_folder() { "/session" } else { "/tmp" };
        format!("{base}/{FOLDER}{}", id.get(..8).unwrap_or(&id))
    }

    /// Removes that folder.
    async fn remove(&mut self, folder: &str) {
        if self.live.is_some() {
            let (output, _nobody) = mpsc::channel(1);
            let argv = runner::transfer(&json!({ "remove": folder }));
            let _ = self.pipe(&argv, Ends { input: None, output }, &CancellationToken::new()).await;
        }
    }

    async fn pack(
        &mut self,
        file: &mut File,
        session: bool,
        most: u64,
        patience: Duration,
        cancel: &CancellationToken,
    ) -> Result<Inventory, Failure> {
        let folder = self.folder();
        let request = json!({
            "op": "save", "path": format!("{folder}/variables"), "each": MOST_EACH.min(most), "most": most,
        });
        let saving = [patience, patience + Duration::from_secs(2)];
        let mut inventory = Inventory::read(&self.request_within(&request, saving, cancel).await);
        if cancel.is_cancelled() {
            return Err(Failure::new("KeyboardInterrupt", "interrupted"));
        }
        let mut paths: Vec<_> =
            self.roots(session).into_iter().map(|(name, path)| json!([path, name])).collect();
        paths.push(json!([folder, "state"]));
        // Our own.
        let except = json!(["/tmp/cell-????????", "/tmp/.cellblock-state-*", "/session/.cellblock*"]);
        let order = json!({ "pack": paths, "most": MOST_FILES, "except": except });
        let (output, pieces) = mpsc::channel(4);
        let ends = Ends { input: None, output };
        let argv = runner::transfer(&order);
        let packing = self.pipe(&argv, ends, cancel);
        let writing = write(file, pieces, most, &mut inventory);
        let (code, wrote) = tokio::join!(packing, writing);
        self.remove(&folder).await;
        wrote?;
        match code? {
            Some(0) => Ok(inventory),
            _ => Err(Failure::new("SandboxError", "the files in the container could not be packed")),
        }
    }

    async fn unpack(&mut self, file: File, cancel: &CancellationToken) -> Result<Inventory, Failure> {
        let mut roots: serde_json::Map<_, _> =
            self.roots(true).into_iter().map(|(name, path)| (name.to_owned(), json!(path))).collect();
        let folder = self.folder();
        roots.insert("state".into(), json!(folder));
        let (input, more) = mpsc::channel(4);
        let (output, mut pieces) = mpsc::channel(4);
        let reading = tokio::spawn(read(file, input));
        let mut inventory = Inventory::default();
        let argv = runner::transfer(&json!({ "roots": roots }));
        let (code, ()) = tokio::join!(self.pipe(&argv, Ends { input: Some(more), output }, cancel), async {
            while let Some(piece) = pieces.recv().await {
                if let Piece::Err(bytes) = piece {
                    remark(&mut inventory, &bytes);
                }
            }
        });
        let read = reading.await.unwrap_or_else(|e| Err(std::io::Error::other(e)));
        read.map_err(|e| Failure::new("SandboxError", format!("the saved state can't be read: {e}")))?;
        if code? != Some(0) {
            return Err(Failure::new(
                "SandboxError",
                "the saved files could not be unpacked in the container",
            ));
        }
        self.used = true;
        let request = json!({ "op": "load", "path": format!("{folder}/variables") });
        let patience = [Duration::from_mins(5), Duration::from_secs(302)];
        let found = Inventory::read(&self.request_within(&request, patience, cancel).await);
        self.remove(&folder).await;
        inventory.lost.splice(0..0, found.lost);
        Ok(Inventory { kept: found.kept, count: found.count, python: found.python, ..inventory })
    }
}

/// Takes an archive, up to `most` bytes; with more it ends, and so does the program that packs.
async fn write(
    file: &mut File,
    mut pieces: mpsc::Receiver<Piece>,
    most: u64,
    inventory: &mut Inventory,
) -> Result<(), Failure> {
    let broken = |e: std::io::Error| Failure::new("SandboxError", format!("the state can't be written: {e}"));
    while let Some(piece) = pieces.recv().await {
        match piece {
            Piece::Out(bytes) => {
                inventory.bytes += bytes.len() as u64;
                if inventory.bytes > most {
                    return Err(Failure::new(
                        TOO_LARGE,
                        format!(
                            "the session holds more than the {} that there is room for (sandbox.checkpoint_size): \
                             remove files from {HOME}, /tmp and /session, or large variables",
                            size(most)
                        ),
                    ));
                }
                file.write_all(&bytes).await.map_err(broken)?;
            }
            Piece::Err(bytes) => remark(inventory, &bytes),
        }
    }
    file.flush().await.map_err(broken)
}

/// What the program in the container had to leave out.
fn remark(inventory: &mut Inventory, bytes: &Bytes) {
    for line in bytes.split(|byte| *byte == b'\n').take(NAMES) {
        let said: Value = serde_json::from_slice(line).unwrap_or_default();
        let more = Inventory::read(&json!({ "lost": [said["skipped"]] })).lost;
        let room = NAMES.saturating_sub(inventory.lost.len());
        inventory.lost.extend(more.into_iter().take(room));
    }
}

async fn read(mut file: File, input: mpsc::Sender<Bytes>) -> std::io::Result<()> {
    loop {
        let mut piece = bytes::BytesMut::with_capacity(PIECE);
        if file.read_buf(&mut piece).await? == 0 || input.send(piece.freeze()).await.is_err() {
            return Ok(());
        }
    }
}
