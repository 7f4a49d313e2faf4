//! [`Sandbox`]: what the floors below use.
//!
//! May import `event` and `config`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{Network, SandboxSettings};
use crate::event::{Ask, Bundle, EventSender, Failure};

use super::backend::Backend;
use super::language::{LANGUAGES, Language};
use super::output::size;
use super::policy::Approved;
use super::runner::Script;
use super::session::{Job, Parts, RunJob, Session, State};
use super::{Completeness, Completions, PythonInfo, Run, RunEnd};

/// Jobs that may wait for the session.
const QUEUE: usize = 64;
/// `is_complete` is asked while somebody types.
const IS_COMPLETE: Duration = Duration::from_millis(500);

/// One container with a live Python session, and the queue before it.
///
/// Starts nothing until it is asked to. When it is dropped the container goes too; [`Sandbox::shutdown`]
/// waits for that.
pub struct Sandbox {
    jobs: mpsc::Sender<Job>,
    settings: SandboxSettings,
    backend: Arc<dyn Backend>,
    shutdown: CancellationToken,
    actor: TaskTracker,
    state: watch::Receiver<State>,
    python: watch::Receiver<Option<PythonInfo>>,
}

impl Sandbox {
    /// A sandbox whose containers come from `backend`. Must be called inside a runtime.
    pub fn new(settings: &SandboxSettings, backend: Arc<dyn Backend>) -> Self {
        Self::build(settings, backend, Script::default(), true)
    }

    /// With other programs inside, and without insisting on PID 1: for tests of the defences.
    #[doc(hidden)]
    pub fn unguarded(settings: &SandboxSettings, backend: Arc<dyn Backend>, script: Script) -> Self {
        Self::build(settings, backend, script, false)
    }

    fn build(settings: &SandboxSettings, backend: Arc<dyn Backend>, script: Script, guarded: bool) -> Self {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let (state_told, state) = watch::channel(State::Cold);
        let (python_told, python) = watch::channel(None);
        let shutdown = CancellationToken::new();
        let session = Session::new(Parts {
            backend: Arc::clone(&backend),
            settings: settings.clone(),
            script,
            guarded,
            shutdown: shutdown.clone(),
            state: state_told,
            python: python_told,
        });
        let actor = TaskTracker::new();
        actor.spawn(session.serve(queue));
        actor.close();
        Sandbox { jobs, settings: settings.clone(), backend, shutdown, actor, state, python }
    }

    /// Starts the container in the background.
    pub fn warm(&self) {
        if self.jobs.try_send(Job::Warm).is_err() {
            tracing::debug!("the session is busy or over: nothing to warm");
        }
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
        let (run, language) = run.into_parts();
        let (end, ended) = oneshot::channel();
        let shown = run.shown;
        let job = RunJob { run, language, events: events.clone(), ask, cancel: cancel.clone(), end };
        let sent = tokio::select! {
            sent = self.jobs.send(Job::Run(Box::new(job))) => sent.is_ok(),
            () = cancel.cancelled() => false,
        };
        // A job in the queue is not abandoned: the session sees the cancellation when its turn comes, and at
        // once when it is running.
        if sent && let Ok((end, mut outlet)) = ended.await {
            outlet.flush(events, &cancel).await;
            return end;
        }
        let failure = if cancel.is_cancelled() {
            Failure::new("KeyboardInterrupt", "interrupted before the code was run")
        } else {
            Failure::new("SandboxError", "the sandbox was shut down; restart the kernel to run code again")
        };
        let _ = events.send(crate::event::Event::Error(failure.clone())).await;
        RunEnd { failure: Some(failure), shown, ..RunEnd::default() }
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
        self.python.borrow().clone()
    }

    /// A fresh Python session: variables and imports go, and everything that the old one started.
    pub async fn reset(&self) {
        let (done, finished) = oneshot::channel();
        if self.jobs.send(Job::Reset { done }).await.is_ok() {
            let _ = finished.await;
        }
    }

    /// Ends everything: a run in progress, the container, whatever this kernel ever started.
    pub async fn shutdown(&self) {
        self.shutdown.cancel();
        self.actor.wait().await;
        self.backend.destroy_all().await;
    }

    /// The languages that can be run.
    pub fn languages(&self) -> &'static [Language] {
        LANGUAGES
    }

    /// What a model should know of the place where code runs.
    pub fn describe(&self) -> String {
        let python = match self.python() {
            Some(PythonInfo { version, ipython: Some(ipython) }) => {
                format!("Python {version} with IPython {ipython}")
            }
            Some(PythonInfo { version, .. }) => format!("Python {version}"),
            None => "Python 3".into(),
        };
        let network = match self.settings.network {
            Network::None => "There is no network.",
            Network::Bridge => "There is a network.",
        };
        let time = self
            .settings
            .timeout
            .map_or_else(String::new, |t| format!(" A block may run {} s.", t.as_secs()));
        let languages: Vec<_> = LANGUAGES.iter().map(|l| l.name).collect();
        format!(
            "Code runs in a Linux container ({python}; languages: {}) with {} of memory. {network} The working directory \
             is /workspace, which the user sees too; everything else is read-only or temporary. Python keeps its \
             variables from cell to cell.{time}",
            languages.join(", "),
            size(self.settings.memory),
        )
    }

    async fn request(&self, request: Value) -> Value {
        if *self.state.borrow() == State::Cold {
            return Value::Null;
        }
        let (reply, answer) = oneshot::channel();
        if self.jobs.send(Job::Request { request, reply }).await.is_err() {
            return Value::Null;
        }
        answer.await.unwrap_or(Value::Null)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
