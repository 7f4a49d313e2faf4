//! What a session holds, kept on the host and brought back.
//!
//! May import `event` and `config`. The archive of a state was written by the guest: the host never opens it,
//! only another container of the guest's unpacks it, and loads the variables in it.
//!
//! | module | what |
//! | --- | --- |
//! | `store` | where checkpoints lie on the host |
//! | `carry` | the same from one container into another, without a name |

mod carry;
mod store;

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::event::{Event, EventSender, Failure, Notice};

use super::Sandbox;
use super::definition::{Definition, Mode};
use super::pool::Slot;
use super::session::{Inventory, State, TOO_LARGE, Way};
#[allow(unused_imports, reason = "the next commits use it")]
pub(super) use carry::{Carried, carry_in, carry_out, pack};
use store::StoreError;
pub use store::{Store, images};

/// How long saving the variables may take.
const SAVING: Duration = Duration::from_mins(2);
/// How long the kernel's end may take for the containers that are kept, and saving their variables.
const KEEPING: Duration = Duration::from_secs(10);
const KEEPING_VARIABLES: Duration = Duration::from_secs(5);
/// Names in a sentence.
const NAMED: usize = 12;

/// A checkpoint that was saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// Its name.
    pub name: String,
    /// Of which container.
    pub container: String,
    /// What is in it and what is not.
    pub inventory: Inventory,
    /// Whether the root file system was kept too, as an image.
    pub root: bool,
}

/// A checkpoint that was brought back.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// Its name.
    pub name: String,
    /// Into which container.
    pub container: String,
    /// When it was saved, in RFC 3339.
    pub saved: String,
    /// What was brought back; `lost` has what could not be saved, too.
    pub inventory: Inventory,
}

/// A checkpoint that is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// Its name.
    pub name: String,
    /// Of which container.
    pub container: String,
    /// The engine's id of the image that ran.
    pub image: String,
    /// When it was saved, in RFC 3339.
    pub saved: String,
    /// What is in it and what is not.
    pub inventory: Inventory,
}

/// A time (RFC 3339) as people read it: to the minute, where the user is.
pub fn when(saved: &str) -> String {
    chrono::DateTime::parse_from_rfc3339(saved).map_or_else(
        |_| saved.to_owned(),
        |time| time.with_timezone(&chrono::Local).format("%Y-%m-%d %H:%M").to_string(),
    )
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Failure::new("CheckpointError", error.to_string())
    }
}

impl Inventory {
    /// In words: what is there, and what is not. Plain text: names are the guest's.
    pub fn words(&self) -> String {
        self.told(|name, why| format!("{name} ({why})"))
    }

    /// The same as Markdown, in which nothing of the guest's means anything.
    pub fn markdown(&self) -> String {
        let code = |text: &str| text.replace('`', "'").split_whitespace().collect::<Vec<_>>().join(" ");
        self.told(|name, why| format!("`{}` (`{}`)", code(name), code(why)))
    }

    fn told(&self, one: impl Fn(&str, &str) -> String) -> String {
        let mut text = match self.count {
            0 => "no variables".to_owned(),
            1 => "1 variable".to_owned(),
            count => format!("{count} variables"),
        };
        let _ = write!(text, " and the files in home, /tmp and /session");
        if !self.lost.is_empty() {
            let named: Vec<_> = self.lost.iter().take(NAMED).map(|(name, why)| one(name, why)).collect();
            let more = self.lost.len().saturating_sub(NAMED);
            let _ = write!(text, ". Not kept: {}", named.join(", "));
            if more > 0 {
                let _ = write!(text, " and {more} more");
            }
        }
        text.push('.');
        text
    }
}

impl Sandbox {
    fn store(&self) -> Result<&Store, Failure> {
        let missing = "there is no folder for checkpoints: set HOME or XDG_DATA_HOME and restart the kernel";
        self.store.as_ref().ok_or_else(|| Failure::new("CheckpointError", missing))
    }

    /// The session container that `%container` chose, or the default.
    pub(super) fn current(&self) -> Result<Arc<Definition>, Failure> {
        let name = self.pool.chosen().unwrap_or_else(|| self.registry().settings.default.clone());
        let definition = self.definition(&name).map_err(|e| Failure::new("SandboxError", e.to_string()))?;
        if definition.mode == Mode::Ephemeral {
            return Err(Failure::new(
                "SandboxError",
                format!(
                    "the container {name} is ephemeral and holds nothing; choose another with `%container NAME`"
                ),
            ));
        }
        if let Some(why) = &definition.refused {
            return Err(Failure::new("SandboxError", format!("the container {name} can't be used: {why}")));
        }
        Ok(Arc::clone(definition))
    }

    /// Goes to the session of that name: containers start afresh at their next use, and `/session` is the folder
    /// `sessions/NAME` beside the notebook. Returns what the user should know.
    ///
    /// # Errors
    /// When it can't be a name.
    pub async fn enter(&self, name: &str) -> Result<Option<String>, Failure> {
        if !store::is_name(name) {
            let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
            return Err(Failure::new(
                "SessionError",
                format!("{shown:?} can't be the name of a session: {}", store::NAMES),
            ));
        }
        if self.pool.session() == name {
            return Ok(None);
        }
        self.pool.enter(name);
        Ok(match self.backend.others(name).await {
            0 => None,
            count => Some(format!(
                "{count} container{} of another kernel use{} the session {name} now: files in /session are shared, \
                 variables are not.",
                if count == 1 { "" } else { "s" },
                if count == 1 { "s" } else { "" },
            )),
        })
    }

    /// Saves what the current container's session holds: files in memory and in `/session`, Python's variables,
    /// the image, and the root file system where it is writable.
    ///
    /// # Errors
    /// When nothing runs, the state is larger than allowed, or the host's disk refuses.
    pub async fn checkpoint(
        &self,
        name: &str,
        events: &EventSender,
        cancel: &CancellationToken,
    ) -> Result<Saved, Failure> {
        let definition = self.current()?;
        let slot = self.pool.slot(&definition);
        let _busy = slot.busy();
        self.save(name, &slot, SAVING, events, cancel).await
    }

    async fn save(
        &self,
        name: &str,
        slot: &Slot,
        patience: Duration,
        events: &EventSender,
        cancel: &CancellationToken,
    ) -> Result<Saved, Failure> {
        let store = self.store()?;
        let (draft, file) = store.begin(name)?;
        let way = Way::Pack { session: true, root: true, most: draft.room, patience };
        let packed = match pack(slot, file, way, events, cancel).await {
            Err(mut failure) if failure.ename == TOO_LARGE => {
                if let Some(others) = store.crowded(name) {
                    failure.evalue = format!("{}. Also: {others}", failure.evalue);
                }
                return Err(failure);
            }
            packed => packed?,
        };
        let root = match packed.root {
            Some(Ok(image)) => Some(image),
            Some(Err(e)) => {
                let text = format!("The container's root file system could not be kept: {e}");
                let _ = events.send(Event::Notice(Notice::warning(text))).await;
                None
            }
            None => None,
        };
        let container = slot.definition.name.clone();
        let inventory = packed.inventory;
        let meta = Store::describe(container.clone(), packed.image, root.clone(), inventory.clone());
        store.finish(draft, meta)?;
        Ok(Saved { name: name.to_owned(), container, inventory, root: root.is_some() })
    }

    /// Brings a checkpoint back into a fresh container of the image that it was saved from.
    ///
    /// # Errors
    /// When there is none of that name, its container or image is gone, or it can't be unpacked.
    pub async fn restore(
        &self,
        name: &str,
        events: &EventSender,
        cancel: &CancellationToken,
    ) -> Result<Restored, Failure> {
        let (meta, file) = self.store()?.read(name)?;
        let definition = self.definition(&meta.container).map_err(|e| {
            Failure::new("CheckpointError", format!("the checkpoint {name} can't be brought back: {e}"))
        })?;
        if let Some(why) = &definition.refused {
            return Err(Failure::new(
                "CheckpointError",
                format!("the container {} can't be used: {why}", meta.container),
            ));
        }
        let before = self.pool.image(&meta.container);
        let image = meta.root.as_ref().unwrap_or(&meta.image);
        if !image.is_empty() {
            self.pool.set_image(&meta.container, Some(image.clone()));
        }
        self.pool.renew(&meta.container);
        let slot = self.pool.slot(definition);
        let busy = slot.busy();
        self.pool.make_room(&slot).await;
        let result = pack(&slot, file, Way::Unpack, events, cancel).await;
        drop(busy);
        let mut inventory = match result {
            Ok(packed) => packed.inventory,
            Err(failure) => {
                // A container that is half full is worse than a fresh one.
                self.pool.set_image(&meta.container, before);
                self.pool.renew(&meta.container);
                let why = failure.evalue;
                return Err(Failure::new(
                    failure.ename,
                    format!(
                        "the checkpoint {name} was not brought back, and the next cell starts a fresh sandbox: {why} (it \
                         was saved from the image {image})"
                    ),
                ));
            }
        };
        inventory.lost.splice(0..0, meta.inventory.lost);
        Ok(Restored { name: name.to_owned(), container: meta.container, saved: meta.saved, inventory })
    }

    /// The checkpoints of this notebook's directory, by name.
    ///
    /// # Errors
    /// When their folder can't be read.
    pub fn checkpoints(&self) -> Result<Vec<Kept>, Failure> {
        let list = self.store()?.list()?.into_iter();
        Ok(list
            .map(|(name, meta)| Kept {
                name,
                container: meta.container,
                image: meta.image,
                saved: meta.saved,
                inventory: meta.inventory,
            })
            .collect())
    }

    /// Removes a checkpoint; whether there was one.
    ///
    /// # Errors
    /// When it can't be removed.
    pub fn delete_checkpoint(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.store()?.delete(name)?)
    }

    /// The checkpoint in which a container's last state is kept.
    fn last(&self, container: &str) -> String {
        match self.registry().containers().iter().filter(|c| c.keep).count() {
            0 | 1 => "last".to_owned(),
            _ => format!("last-{container}"),
        }
    }

    /// The kernel ends in order: saves the state of the containers that are to be kept (`keep`), within 10 s.
    pub async fn keep_last(&self) {
        let slots = self.pool.mine().into_iter();
        let kept: Vec<_> = slots.filter(|slot| slot.definition.keep && slot.state() == State::Live).collect();
        if kept.is_empty() || self.store.is_none() {
            return;
        }
        let (events, mut nobody) = crate::event::channel(8);
        let cancel = CancellationToken::new();
        let saving = async {
            for slot in &kept {
                let name = self.last(&slot.definition.name);
                match self.save(&name, slot, KEEPING_VARIABLES, &events, &cancel).await {
                    Ok(_) => tracing::info!(checkpoint = %name, "kept the last state"),
                    Err(e) => {
                        tracing::warn!(checkpoint = %name, error = %e.evalue, "the last state is not kept");
                    }
                }
            }
        };
        tokio::select! {
            () = saving => {}
            () = async { while nobody.recv().await.is_some() {} } => {}
            () = tokio::time::sleep(KEEPING) => {
                tracing::warn!("the last state is not kept: it took more than {} s", KEEPING.as_secs());
            }
        }
    }

    /// Before a container's first use in this kernel: brings back what the last one kept, and says so.
    pub(super) async fn bring_back(
        &self,
        definition: &Arc<Definition>,
        events: &EventSender,
        cancel: &CancellationToken,
    ) {
        if !definition.keep || self.pool.existing(&definition.name).is_some_and(|s| s.state() == State::Live)
        {
            return;
        }
        let mut brought = self.brought_back.lock().await;
        if !brought.insert(definition.name.clone()) {
            return;
        }
        let name = self.last(&definition.name);
        let there = self.store.as_ref().is_some_and(|store| {
            store
                .list()
                .is_ok_and(|list| list.iter().any(|(n, m)| *n == name && m.container == definition.name))
        });
        if !there {
            return;
        }
        let notice = match self.restore(&name, events, cancel).await {
            Ok(restored) => Notice::info(format!(
                "Brought back what the last kernel here kept in the container {} (`keep`, saved {}): {}",
                definition.name,
                when(&restored.saved),
                restored.inventory.words()
            )),
            Err(failure) => Notice::warning(format!(
                "What the last kernel here kept is not brought back: {}",
                failure.evalue
            )),
        };
        let _ = events.send(Event::Notice(notice)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_guest_mean_nothing_in_markdown() {
        let lost = vec![("`x`\n\n# [a](http://b)".to_owned(), "<b>`".to_owned())];
        let inventory = Inventory { lost, ..Inventory::default() };
        assert!(inventory.markdown().ends_with("Not kept: `'x' # [a](http://b)` (`<b>'`)."), "{inventory:?}");
    }
}
