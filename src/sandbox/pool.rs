//! One session for each container in use, spares for ephemeral ones, and who has to wait or make room.
//!
//! May import `event` and `config`. A slot is an actor before one container ([`Session`]); a session container's
//! slot lives as long as the kernel, an ephemeral one's for one run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::backend::Backend;
use super::definition::{Definition, Mode, Place};
use super::packages::Packages;
use super::registry::Registry;
use super::runner::Script;
use super::session::{Job, Parts, Session, State};
use super::turns::Turns;
use super::{PythonInfo, policy};

/// Jobs that may wait for one session.
const QUEUE: usize = 64;

/// What the slots are made with.
pub(super) struct Pool {
    registry: Arc<Registry>,
    backend: Arc<dyn Backend>,
    script: Script,
    guarded: bool,
    shutdown: CancellationToken,
    actors: TaskTracker,
    turns: Turns,
    members: Mutex<Members>,
}

struct Members {
    /// The name of the session, which names its folder on the host.
    session: String,
    /// Whether a user gave it that name.
    named: bool,
    sessions: BTreeMap<String, Arc<Slot>>,
    /// Those of the model's own (`agent.isolated`).
    isolated: BTreeMap<String, Arc<Slot>>,
    spares: BTreeMap<String, Vec<Arc<Slot>>>,
    /// The container that `%container` chose.
    chosen: Option<String>,
    /// Images that took the place of definitions' own: with packages added, or restored.
    images: BTreeMap<String, String>,
    /// Packages that were added to them.
    added: BTreeMap<String, Packages>,
}

/// One container's place: an actor, and what can be seen of it from outside.
pub(super) struct Slot {
    pub(super) definition: Arc<Definition>,
    pub(super) jobs: mpsc::Sender<Job>,
    pub(super) state: watch::Receiver<State>,
    pub(super) python: watch::Receiver<Option<PythonInfo>>,
    shutdown: CancellationToken,
    used: Mutex<Instant>,
    busy: AtomicUsize,
}

/// Marks a slot as busy; idle again when this is dropped.
pub(super) struct Busy(Arc<Slot>);

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Slot {
    /// Marks it as busy for as long as the guard lives.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::SeqCst);
        Busy(Arc::clone(self))
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) > 0
    }

    pub(super) fn state(&self) -> State {
        *self.state.borrow()
    }

    pub(super) fn used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends its container for good, in the background.
    pub(super) fn end(&self) {
        self.shutdown.cancel();
    }
}

impl Pool {
    pub(super) fn new(
        registry: Arc<Registry>,
        backend: Arc<dyn Backend>,
        turns: Turns,
        (script, guarded): (Script, bool),
    ) -> Self {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let members = Members {
            session: format!("kernel-{}", id.get(..8).unwrap_or(&id)),
            named: false,
            sessions: BTreeMap::new(),
            isolated: BTreeMap::new(),
            spares: BTreeMap::new(),
            chosen: None,
            images: BTreeMap::new(),
            added: BTreeMap::new(),
        };
        Pool {
            registry,
            backend,
            script,
            guarded,
            shutdown: CancellationToken::new(),
            actors: TaskTracker::new(),
            turns,
            members: Mutex::new(members),
        }
    }

    fn members(&self) -> std::sync::MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// The name of the session.
    pub(super) fn session(&self) -> String {
        self.members().session.clone()
    }

    /// The container that `%container` chose.
    pub(super) fn chosen(&self) -> Option<String> {
        self.members().chosen.clone()
    }

    pub(super) fn choose(&self, name: Option<String>) {
        self.members().chosen = name;
    }

    /// From now on this image runs in place of the definition's own; spares of the old one end.
    pub(super) fn set_image(&self, container: &str, image: Option<String>) {
        let mut members = self.members();
        match image {
            Some(image) => members.images.insert(container.to_owned(), image),
            None => members.images.remove(container),
        };
        members.added.remove(container);
        for spare in members.spares.remove(container).into_iter().flatten() {
            spare.end();
        }
    }

    /// The image that runs in place of the definition's own.
    pub(super) fn image(&self, container: &str) -> Option<String> {
        self.members().images.get(container).cloned()
    }

    /// Packages that were added to the image that runs now.
    pub(super) fn added(&self, container: &str) -> Packages {
        self.members().added.get(container).cloned().unwrap_or_default()
    }

    /// These were added, to those that were there.
    pub(super) fn note_added(&self, container: &str, packages: &Packages) {
        self.members().added.entry(container.to_owned()).or_default().join(packages);
    }

    /// The slot of a session container, made when it is missing. It starts nothing by itself.
    pub(super) fn slot(&self, definition: &Arc<Definition>) -> Arc<Slot> {
        self.seat(definition, false)
    }

    /// The same; `isolated`: the model's own, beside the user's.
    pub(super) fn seat(&self, definition: &Arc<Definition>, isolated: bool) -> Arc<Slot> {
        let mut members = self.members();
        let slots = if isolated { &members.isolated } else { &members.sessions };
        if let Some(slot) = slots.get(&definition.name) {
            return Arc::clone(slot);
        }
        let place = Place::Session(members.session.clone());
        let image = members.images.get(&definition.name).cloned();
        let temporary = self.registry.settings.auto_cleanup && !members.named;
        let slot = self.spawn(definition, place, temporary, image, State::Cold);
        let slots = if isolated { &mut members.isolated } else { &mut members.sessions };
        slots.insert(definition.name.clone(), Arc::clone(&slot));
        slot
    }

    /// The slot of a session container, when there is one.
    pub(super) fn existing(&self, name: &str) -> Option<Arc<Slot>> {
        self.members().sessions.get(name).cloned()
    }

    /// The slots of that session container: the user's and the model's own.
    pub(super) fn of(&self, name: &str) -> Vec<Arc<Slot>> {
        let members = self.members();
        [members.sessions.get(name), members.isolated.get(name)].into_iter().flatten().cloned().collect()
    }

    /// The slots of the user's session containers.
    pub(super) fn mine(&self) -> Vec<Arc<Slot>> {
        self.members().sessions.values().cloned().collect()
    }

    /// Every session container's slot, the model's own too.
    pub(super) fn all(&self) -> Vec<Arc<Slot>> {
        let members = self.members();
        members.sessions.values().chain(members.isolated.values()).cloned().collect()
    }

    /// A container for one ephemeral run: a spare, when one fits.
    pub(super) fn fresh(&self, definition: &Arc<Definition>) -> Arc<Slot> {
        let mut members = self.members();
        let image = members.images.get(&definition.name).cloned();
        let spares = members.spares.entry(definition.name.clone()).or_default();
        discard_dead(spares);
        // A spare has the definition's own limits.
        match spares.iter().position(|slot| *slot.definition == **definition) {
            Some(at) => spares.remove(at),
            None => self.spawn(definition, run_place(), true, image, State::Cold),
        }
    }

    /// Sees to it that as many spares wait as the settings say.
    pub(super) fn refill(&self, definition: &Arc<Definition>) {
        let mut members = self.members();
        let image = members.images.get(&definition.name).cloned();
        let spares = members.spares.entry(definition.name.clone()).or_default();
        discard_dead(spares);
        while spares.len() < self.registry.settings.warm && !self.shutdown.is_cancelled() {
            // It is as good as starting, so that a cold one is one whose container did not start or is gone.
            let spare = self.spawn(definition, run_place(), true, image.clone(), State::Starting);
            let _ = spare.jobs.try_send(Job::Warm);
            spares.push(spare);
        }
    }

    /// Starts what the first cell will most likely want.
    pub(super) fn warm(&self) {
        let Some(definition) = self.registry.find(&self.registry.settings.default) else { return };
        if definition.refused.is_some() {
            return;
        }
        match definition.mode {
            Mode::Ephemeral => self.refill(definition),
            Mode::Session => {
                if self.slot(definition).jobs.try_send(Job::Warm).is_err() {
                    tracing::debug!("the session is busy or over: nothing to warm");
                }
            }
        }
    }

    /// The session container that a block of Python would run in now, when there is one.
    pub(super) fn python(&self) -> Option<Arc<Slot>> {
        let run =
            super::Run { preferred: self.chosen().into_iter().collect(), ..super::Run::new("python", "") };
        let approved = policy::approve(run, &self.registry).ok()?;
        self.existing(&approved.container().name)
    }

    /// Stops idle containers, oldest first, until one more may start.
    pub(super) async fn make_room(&self, wanted: &Arc<Slot>) {
        let Some(most) = self.turns.count() else { return };
        if wanted.state() != State::Cold {
            return;
        }
        let mut others: Vec<_> = self.all();
        others.retain(|slot| !Arc::ptr_eq(slot, wanted) && slot.state() != State::Cold);
        others.sort_by_key(|slot| slot.used());
        let excess = (others.len() + 1).saturating_sub(most);
        for slot in others.into_iter().filter(|slot| !slot.is_busy()).take(excess) {
            let why = format!(
                "was stopped to make room for the container {} (at most {most} are kept, max_concurrent)",
                wanted.definition.name
            );
            let (done, stopped) = oneshot::channel();
            if slot.jobs.send(Job::Stop { why: Some(why), done }).await.is_ok() {
                let _ = stopped.await;
            }
        }
    }

    /// How many spares wait for each container.
    pub(super) fn spares(&self, name: &str) -> usize {
        let members = self.members();
        let spares = members.spares.get(name).into_iter().flatten();
        spares.filter(|spare| spare.state() != State::Cold).count()
    }

    /// Ends the spares of a container.
    pub(super) fn drop_spares(&self, name: &str) {
        for spare in self.members().spares.remove(name).into_iter().flatten() {
            spare.end();
        }
    }

    /// Another session: its containers start afresh, in the folder of that name.
    pub(super) fn enter(&self, session: &str) {
        let mut members = self.members();
        session.clone_into(&mut members.session);
        members.named = true;
        let isolated = std::mem::take(&mut members.isolated);
        for slot in std::mem::take(&mut members.sessions).into_values().chain(isolated.into_values()) {
            slot.end();
        }
    }

    /// A container of that name starts afresh at its next use.
    pub(super) fn renew(&self, container: &str) {
        let mut members = self.members();
        for slot in
            [members.sessions.remove(container), members.isolated.remove(container)].into_iter().flatten()
        {
            slot.end();
        }
    }

    /// Ends every slot, and waits until they have ended.
    pub(super) async fn close(&self) {
        self.shutdown.cancel();
        self.actors.close();
        self.actors.wait().await;
    }

    /// Ends every slot in the background.
    pub(super) fn abandon(&self) {
        self.shutdown.cancel();
    }

    fn spawn(
        &self,
        definition: &Arc<Definition>,
        place: Place,
        temporary: bool,
        image: Option<String>,
        begins: State,
    ) -> Arc<Slot> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (state_told, state) = watch::channel(begins);
        let (python_told, python) = watch::channel(None);
        let shutdown = self.shutdown.child_token();
        let session = Session::new(Parts {
            backend: Arc::clone(&self.backend),
            definition: Arc::clone(definition),
            place,
            temporary,
            image,
            // A spare that nobody wanted for so long is not needed either.
            idle: self.registry.settings.idle_timeout,
            script: self.script.clone(),
            guarded: self.guarded,
            shutdown: shutdown.clone(),
            state: state_told,
            python: python_told,
        });
        self.actors.spawn(session.serve(queue));
        let (used, busy) = (Mutex::new(Instant::now()), AtomicUsize::new(0));
        Arc::new(Slot { definition: Arc::clone(definition), jobs, state, python, shutdown, used, busy })
    }
}

/// Ends the spares whose container did not start, was removed or stopped.
fn discard_dead(spares: &mut Vec<Arc<Slot>>) {
    spares.retain(|spare| {
        let lives = spare.state() != State::Cold;
        if !lives {
            spare.end();
        }
        lives
    });
}

fn run_place() -> Place {
    let now = chrono::Local::now().format("%Y%m%d-%H%M%S");
    let id = uuid::Uuid::new_v4().simple().to_string();
    Place::Run(format!("{now}-{}", id.get(..6).unwrap_or(&id)))
}
