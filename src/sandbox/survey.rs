//! What runs where, and how to end it: the sandbox as `%containers` and `%status` show it.
//!
//! May import `event` and `config`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Sandbox;
use super::backend::Usage;
use super::definition::Definition;
use super::policy::PolicyError;
use super::pool::Slot;
use super::session::{Job, Look, State};

/// One container of the registry, and how it is.
#[derive(Debug, Clone)]
pub struct Surveyed {
    /// What it is.
    pub definition: Arc<Definition>,
    /// What it does.
    pub activity: Activity,
    /// The engine's id of the image that runs.
    pub image: Option<String>,
    /// For how long it has been running.
    pub up: Option<Duration>,
    /// How long ago a block last ran in it.
    pub idle: Option<Duration>,
    /// What it uses now, where the engine says.
    pub usage: Option<Usage>,
    /// Started containers that wait for an ephemeral block.
    pub spares: usize,
    /// Whether `%container` chose it.
    pub chosen: bool,
}

/// What a container does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Activity {
    /// Nobody has used it.
    Cold,
    /// It starts.
    Starting,
    /// A block runs in it.
    Running,
    /// It waits for the next block.
    Idle,
    /// It was stopped: why, and what was lost, in a sentence or two.
    Stopped(String),
}

impl Sandbox {
    /// Every container of the registry, in its order.
    pub async fn containers(&self) -> Vec<Surveyed> {
        let chosen = self.pool.chosen();
        let mut all = Vec::new();
        for definition in self.registry.containers() {
            let slot = self.pool.existing(&definition.name);
            let look = match &slot {
                Some(slot) => look(slot).await,
                None => Look::default(),
            };
            let activity = match slot.as_ref().map(|slot| (slot.state(), slot.is_busy())) {
                Some((State::Starting, _)) => Activity::Starting,
                Some((State::Live, true)) => Activity::Running,
                Some((State::Live, false)) => Activity::Idle,
                None | Some((State::Cold, _)) => look.stopped.map_or(Activity::Cold, Activity::Stopped),
            };
            let live = matches!(activity, Activity::Idle | Activity::Running);
            all.push(Surveyed {
                definition: Arc::clone(definition),
                activity,
                image: look.image,
                up: look.up,
                idle: slot.filter(|_| live).map(|slot| slot.used().elapsed()),
                usage: look.usage,
                spares: self.pool.spares(&definition.name),
                chosen: chosen.as_ref() == Some(&definition.name),
            });
        }
        all
    }

    /// Whether a session container is starting; never waits.
    pub fn is_starting(&self, name: &str) -> bool {
        self.pool.existing(name).is_some_and(|slot| slot.state() == State::Starting)
    }

    /// Whether a block of this kernel waits for its turn.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(std::sync::atomic::Ordering::Relaxed) > 0
    }

    /// The name of the session, which names its folder beside the notebook: `sessions/NAME`.
    pub fn session(&self) -> String {
        self.pool.session()
    }

    /// Ends a container, or all of them, with everything that runs in it; the next use starts it afresh, and at
    /// once when `again`. The names of those that were running.
    ///
    /// # Errors
    /// When there is no container of that name.
    pub async fn end(&self, name: Option<&str>, again: bool) -> Result<Vec<String>, PolicyError> {
        let slots = match name {
            Some(name) => self.pool.of(&self.definition(name)?.name),
            None => self.pool.all(),
        };
        for definition in self.registry.containers().iter().filter(|d| name.is_none_or(|name| d.name == name))
        {
            self.pool.drop_spares(&definition.name);
        }
        let mut ended = Vec::new();
        for slot in slots {
            let lived = slot.state() != State::Cold;
            let (done, stopped) = oneshot::channel();
            if slot.jobs.send(Job::Stop { why: None, done }).await.is_ok() && stopped.await.is_ok() && lived {
                if !ended.contains(&slot.definition.name) {
                    ended.push(slot.definition.name.clone());
                }
                if again {
                    let _ = slot.jobs.try_send(Job::Warm);
                }
            }
        }
        Ok(ended)
    }
}

/// How a slot's container is; nothing is known while a block runs in it.
async fn look(slot: &Slot) -> Look {
    let (reply, answer) = oneshot::channel();
    if slot.is_busy() || slot.jobs.try_send(Job::Look { reply }).is_err() {
        return Look::default();
    }
    answer.await.unwrap_or_default()
}
