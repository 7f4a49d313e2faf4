//! What the engine says about this kernel's containers while they live: out of memory, killed, ended.
//!
//! One stream of events for the whole kernel, opened before its first container is created. Asking afterwards
//! is too late: a container that ended is removed (auto-remove), and with it what could be asked.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::models::EventMessage;
use bollard::query_parameters::EventsOptionsBuilder;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::engine::Engine;
use crate::sandbox::owner::Owner;

/// How long to wait before the stream is opened again after the engine closed it.
const REOPEN: Duration = Duration::from_millis(500);

/// How far back the first look goes.
const PAST: Duration = Duration::from_hours(1);

/// What is known of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// How often the memory limit was hit and something was killed.
    pub(super) out_of_memory: u64,
    /// The exit code of its main process.
    pub(super) exit: Option<i64>,
    /// Somebody sent it a signal through the engine, or removed it.
    pub(super) killed: bool,
    /// The engine forgot it.
    pub(super) gone: bool,
}

type Fates = HashMap<String, Fate>;

/// The open stream; dropping the last clone closes it.
#[derive(Clone)]
pub(super) struct Watch {
    fates: watch::Sender<Fates>,
    _stop: Arc<DropGuard>,
}

impl Watch {
    /// Listens from now on.
    pub(super) fn open(engine: &Engine, owner: &Owner) -> Self {
        let (fates, _) = watch::channel(Fates::new());
        let stop = CancellationToken::new();
        let task = listen(engine.clone(), owner.filter(), fates.clone());
        let stopped = stop.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(task).await });
        Watch { fates, _stop: Arc::new(stop.drop_guard()) }
    }

    /// What is known of a container once `enough` says so, or after `patience`.
    pub(super) async fn fate(&self, id: &str, patience: Duration, enough: impl Fn(&Fate) -> bool) -> Fate {
        let mut changes = self.fates.subscribe();
        let known = changes.wait_for(|fates| fates.get(id).is_some_and(&enough));
        let _ = tokio::time::timeout(patience, known).await;
        self.fates.borrow().get(id).cloned().unwrap_or_default()
    }

    /// Forgets a container that was destroyed.
    pub(super) fn forget(&self, id: &str) {
        self.fates.send_if_modified(|fates| fates.remove(id).is_some());
    }
}

/// Reads events for ever. The time of the last one is where the stream goes on when it has to be opened again,
/// so that nothing is lost in between as long as the engine remembers.
async fn listen(engine: Engine, label: String, fates: watch::Sender<Fates>) {
    // The engine's clock may differ from ours. Far enough back: the label is new, it has no past.
    let begin = SystemTime::now().checked_sub(PAST).and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let mut since = begin.and_then(|past| i64::try_from(past.as_nanos()).ok()).unwrap_or_default();
    let mut last = i64::MIN;
    loop {
        let filters = HashMap::from([("type", vec!["container"]), ("label", vec![label.as_str()])]);
        let from = format!("{}.{:09}", since / 1_000_000_000, since % 1_000_000_000);
        let options = EventsOptionsBuilder::new().since(&from).filters(&filters).build();
        let mut events = std::pin::pin!(engine.client.events(Some(options)));
        while let Some(Ok(event)) = events.next().await {
            let time = event.time_nano.unwrap_or_default();
            if time > last {
                (last, since) = (time, time);
                note(&fates, event);
            }
        }
        tokio::time::sleep(REOPEN).await;
    }
}

fn note(fates: &watch::Sender<Fates>, event: EventMessage) {
    let (Some(action), Some(actor)) = (event.action, event.actor) else { return };
    let Some(id) = actor.id else { return };
    let code = actor.attributes.and_then(|a| a.get("exitCode")?.parse().ok());
    fates.send_if_modified(|fates| match action.as_str() {
        "oom" => {
            fates.entry(id).or_default().out_of_memory += 1;
            true
        }
        "kill" => {
            fates.entry(id).or_default().killed = true;
            true
        }
        "die" | "died" => {
            fates.entry(id).or_default().exit = Some(code.unwrap_or(-1));
            true
        }
        "destroy" | "remove" => {
            fates.entry(id).or_default().gone = true;
            true
        }
        _ => false,
    });
}
