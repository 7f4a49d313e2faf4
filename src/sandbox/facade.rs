//! [`Sandbox`]: what the floors below use.
//!
//! May import `event` and `config`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{Mutex, oneshot};
use tokio_util::sync::CancellationToken;

use crate::config::Network;
use crate::event::{Ask, Bundle, Event, EventSender, Failure, Notice};

use super::backend::Backend;
use super::checkpoint::Store;
use super::definition::Definition;
use super::language::{LANGUAGES, Language};
use super::output::size;
use super::policy::{self, Approved, PolicyError};
use super::pool::Pool;
use super::registry::Registry;
use super::runner::Script;
use super::session::{Job, RunJob, State};
use super::turns::{Turn, Turns};
use super::{Completeness, Completions, PythonInfo, Run, RunEnd, Texts};

/// `is_complete` is asked while somebody types.
const IS_COMPLETE: Duration = Duration::from_millis(500);

/// The containers of one kernel, and the queues before them.
///
/// Starts nothing until it is asked to. When it is dropped the containers go too; [`Sandbox::shutdown`]
/// waits for that.
pub struct Sandbox {
    pub(super) registry: Arc<Registry>,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) pool: Pool,
    pub(super) store: Option<Store>,
    /// Containers that were looked after for what the last kernel kept.
    pub(super) brought_back: Mutex<BTreeSet<String>>,
    /// Blocks that wait for their turn.
    pub(super) waiting: AtomicUsize,
}

/// One more that waits, as long as this lives.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn one_more(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Waiting(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Sandbox {
    /// A sandbox whose containers come from `backend`. Must be called inside a runtime.
    pub fn new(registry: Arc<Registry>, backend: Arc<dyn Backend>, turns: Turns) -> Self {
        Self::build(registry, backend, turns, (Script::default(), true))
    }

    /// With other programs inside, and without insisting on PID 1: for tests of the defences.
    #[doc(hidden)]
    pub fn unguarded(registry: Arc<Registry>, backend: Arc<dyn Backend>, script: Script) -> Self {
        Self::build(registry, backend, Turns::unlimited(), (script, false))
    }

    fn build(
        registry: Arc<Registry>,
        backend: Arc<dyn Backend>,
        turns: Turns,
        inside: (Script, bool),
    ) -> Self {
        let pool = Pool::new(Arc::clone(&registry), Arc::clone(&backend), turns, inside);
        Sandbox {
            registry,
            backend,
            pool,
            store: None,
            brought_back: Mutex::default(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The same, with a place for checkpoints.
    pub fn with_checkpoints(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// Which containers there are.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Starts the default container in the background.
    pub fn warm(&self) {
        self.pool.warm();
    }

    /// Checks a run, and chooses its container: the one it must run in, else the first of those it prefers, the
    /// one chosen by [`Sandbox::choose`], the default and all others that runs its language.
    ///
    /// # Errors
    /// [`PolicyError`] says what is not allowed, and what is.
    pub fn approve(&self, mut run: Run) -> Result<Approved<Run>, PolicyError> {
        run.preferred.extend(self.pool.chosen());
        policy::approve(run, &self.registry)
    }

    /// Prefers a container for all blocks to come; `None`: the default again.
    ///
    /// # Errors
    /// When there is none of that name, or it can't be used.
    pub fn choose(&self, name: Option<&str>) -> Result<(), PolicyError> {
        if let Some(name) = name {
            let definition = self.definition(name)?;
            if let Some(why) = &definition.refused {
                return Err(PolicyError::Refused { container: name.to_owned(), why: why.clone() });
            }
        }
        self.pool.choose(name.map(str::to_owned));
        Ok(())
    }

    /// The container that [`Sandbox::choose`] chose.
    pub fn chosen(&self) -> Option<String> {
        self.pool.chosen()
    }

    /// The container of that name.
    ///
    /// # Errors
    /// When there is none; the error names those there are.
    pub fn definition(&self, name: &str) -> Result<&Arc<Definition>, PolicyError> {
        self.registry.find(name).ok_or_else(|| {
            let known = self.registry.containers().iter().map(|c| c.name.clone()).collect();
            PolicyError::UnknownContainer { name: name.to_owned(), known }
        })
    }

    /// Runs one block. What it shows goes to `events`, a failure last; when `cancel` fires it is stopped
    /// within 2 seconds, keeping what was shown.
    pub async fn run(
        &self,
        run: Approved<Run>,
        events: &EventSender,
        ask: Arc<dyn Ask>,
        cancel: CancellationToken,
    ) -> RunEnd {
        let shown = run.shown;
        // A block that waits is a use of its container: it must not be stopped for being idle meanwhile.
        let waits = self.pool.existing(&run.container().name).map(|slot| slot.busy());
        let turn = match self.turn(events, &cancel).await {
            Ok(turn) => turn,
            Err(failure) => {
                let _ = events.send(Event::Error(failure.clone())).await;
                return RunEnd { failure: Some(failure), shown, ..RunEnd::default() };
            }
        };
        drop(waits);
        let (mut run, language, definition) = run.into_parts();
        let (ephemeral, isolated) = (run.ephemeral, run.isolated);
        if ephemeral || isolated {
            // They are the user's session's.
            run.texts = Texts::default();
        }
        if !ephemeral && !isolated {
            self.bring_back(&definition, events, &cancel).await;
        }
        if let Err(failure) = self.with_packages(&definition, &run.packages, events, &cancel).await {
            let _ = events.send(Event::Error(failure.clone())).await;
            return RunEnd { failure: Some(failure), shown, ..RunEnd::default() };
        }
        let slot =
            if ephemeral { self.pool.fresh(&definition) } else { self.pool.seat(&definition, isolated) };
        let busy = slot.busy();
        // One that lives for a single block takes nobody's place: turns bound how many of them there are.
        if !ephemeral {
            self.pool.make_room(&slot).await;
        }
        let (end, ended) = oneshot::channel();
        let job = RunJob { run, language, events: events.clone(), ask, cancel: cancel.clone(), end };
        let sent = tokio::select! {
            sent = slot.jobs.send(Job::Run(Box::new(job))) => sent.is_ok(),
            () = cancel.cancelled() => false,
        };
        // A job in the queue is not abandoned: the session sees the cancellation when its turn comes, and at
        // once when it is running.
        let ended = if sent { ended.await.ok() } else { None };
        drop((busy, turn));
        if ephemeral {
            slot.end();
            // What was tightened for this block alone is no use to the next.
            if let Some(definition) = self.registry.find(&definition.name) {
                self.pool.refill(definition);
            }
        }
        if let Some((end, mut outlet)) = ended {
            outlet.flush(events, &cancel).await;
            return end;
        }
        let failure = if cancel.is_cancelled() {
            Failure::new("KeyboardInterrupt", "interrupted before the code was run")
        } else {
            Failure::new("SandboxError", "the sandbox was shut down; restart the kernel to run code again")
        };
        let _ = events.send(Event::Error(failure.clone())).await;
        RunEnd { failure: Some(failure), shown, ..RunEnd::default() }
    }

    /// Waits until one more block may run.
    async fn turn(&self, events: &EventSender, cancel: &CancellationToken) -> Result<Turn, Failure> {
        let turns = self.pool.turns();
        let broken = |e: std::io::Error| {
            Failure::new(
                "SandboxError",
                format!("the files that count running blocks (max_concurrent) can't be used: {e}"),
            )
        };
        if let Some(turn) = turns.take().map_err(broken)? {
            return Ok(turn);
        }
        let count = turns.count().unwrap_or_default();
        let blocks = if count == 1 { "block is" } else { "blocks are" };
        let told = format!(
            "{count} {blocks} running already, in this kernel and others (max_concurrent); this one waits for its turn."
        );
        let _ = events.send(Event::Notice(Notice::info(told))).await;
        let _waiting = Waiting::one_more(&self.waiting);
        tokio::select! {
            turn = turns.wait() => turn.map_err(broken),
            () = cancel.cancelled() => {
                Err(Failure::new("KeyboardInterrupt", "interrupted before the code was run"))
            }
        }
    }

    /// Completes at `cursor` (code points) in the live Python session; empty while there is none.
    pub async fn complete(&self, code: &str, cursor: usize) -> Completions {
        let reply = self.request(json!({ "op": "complete", "code": code, "cursor_pos": cursor })).await;
        let length = code.chars().count();
        let position = |name: &str| {
            reply[name].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(cursor).min(length)
        };
        let matches = reply["matches"].as_array().into_iter().flatten();
        Completions {
            matches: matches.filter_map(Value::as_str).map(str::to_owned).collect(),
            start: position("cursor_start").min(position("cursor_end")),
            end: position("cursor_end"),
            metadata: reply["metadata"].as_object().cloned().unwrap_or_default(),
        }
    }

    /// What the live Python session knows of the object at `cursor` (code points).
    pub async fn inspect(&self, code: &str, cursor: usize, detail: u8) -> Option<Bundle> {
        let request = json!({ "op": "inspect", "code": code, "cursor_pos": cursor, "detail_level": detail });
        let reply = self.request(request).await;
        let part =
            |name: &str| -> Map<String, Value> { reply[name].as_object().cloned().unwrap_or_default() };
        (reply["found"] == true).then(|| Bundle::sanitised(part("data"), part("metadata")))
    }

    /// Whether Python code is ready to run; [`Completeness::Unknown`] when the session can't say soon.
    pub async fn is_complete(&self, code: &str) -> Completeness {
        let asked = self.request(json!({ "op": "is_complete", "code": code }));
        let reply = tokio::time::timeout(IS_COMPLETE, asked).await.unwrap_or(Value::Null);
        match reply["status"].as_str() {
            Some("complete") => Completeness::Complete,
            Some("incomplete") => Completeness::Incomplete {
                indent: reply["indent"].as_str().unwrap_or_default().chars().take(200).collect(),
            },
            Some("invalid") => Completeness::Invalid,
            _ => Completeness::Unknown,
        }
    }

    /// What Python the sandbox has, once a session came up; never waits.
    pub fn python(&self) -> Option<PythonInfo> {
        self.pool.python().and_then(|slot| slot.python.borrow().clone())
    }

    /// Fresh sessions in all containers: variables and imports go, and everything that the old ones started.
    pub async fn reset(&self) {
        for slot in self.pool.all() {
            let (done, finished) = oneshot::channel();
            if slot.jobs.send(Job::Reset { done }).await.is_ok() {
                let _ = finished.await;
            }
        }
    }

    /// Ends everything: runs in progress, the containers, whatever this kernel ever started.
    pub async fn shutdown(&self) {
        self.pool.close().await;
        self.backend.destroy_all().await;
    }

    /// The languages that can be run.
    pub fn languages(&self) -> &'static [Language] {
        LANGUAGES
    }

    /// What a model should know of the places where code runs.
    pub fn describe(&self) -> String {
        let mut text = String::from(
            "Code runs in Linux containers. The working directory is /workspace, which the user sees too; \
             everything else is read-only or temporary. Python keeps its variables from cell to cell.",
        );
        text.push_str(
            " A fence chooses a container with `container=NAME`, and `ephemeral` in a fence runs it in a fresh one:",
        );
        for container in self.registry.containers() {
            if container.refused.is_some() {
                let _ = write!(text, "\n- {}: can't be used now.", container.name);
                continue;
            }
            let network = match container.limits.network {
                Network::None => "no network",
                Network::Bridge => "a network",
            };
            let time = container
                .limits
                .timeout
                .map_or_else(String::new, |t| format!(", {} s for a block", t.as_secs()));
            let _ = write!(
                text,
                "\n- {}: {}; languages: {}; {} of memory, {network}{time}.",
                container.name,
                container.description,
                container.languages.join(", "),
                size(container.limits.memory),
            );
            if let Some(guide) = &container.guide {
                let _ = write!(text, "\n  {}", guide.trim().replace('\n', "\n  "));
            }
        }
        text
    }

    async fn request(&self, request: Value) -> Value {
        let Some(slot) = self.pool.python().filter(|slot| slot.state() != State::Cold) else {
            return Value::Null;
        };
        let (reply, answer) = oneshot::channel();
        if slot.jobs.send(Job::Request { request, reply }).await.is_err() {
            return Value::Null;
        }
        answer.await.unwrap_or(Value::Null)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.pool.abandon();
    }
}
