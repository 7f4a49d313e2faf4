//! Sessions in real containers: what runs inside, what comes out, what ends them.

mod attacks;
mod checkpoint;
mod floods;
mod input;
mod losses;
mod plain;
mod python;
mod shell;
mod stops;
mod streams;
mod transfer;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cellblock::config::SandboxSettings;
use cellblock::event::{self, Ask, AskError, Event, EventSender, Failure, Level, Question, Stream};
use cellblock::sandbox::backend::{Backend, BackendError, Started};
use cellblock::sandbox::checkpoint::Store;
use cellblock::sandbox::definition::{Definition, Plan, PoolSettings};
use cellblock::sandbox::docker::{Docker, Options};
use cellblock::sandbox::packages::Packages;
use cellblock::sandbox::runner::Script;
use cellblock::sandbox::{Registry, Run, RunEnd, Sandbox, Turns, policy};
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::containers::{PATIENCE, docker, labelled, options, sandbox_settings};

/// A sandbox of its own for one test.
pub(crate) struct Bed {
    pub(crate) directory: TempDir,
    pub(crate) sandbox: Sandbox,
    pub(crate) registry: Arc<Registry>,
    label: String,
}

/// Starts the main process as a child of a shell.
struct BehindInit(Docker);

impl Backend for BehindInit {
    fn start(
        &self,
        mut plan: Plan,
        progress: Option<EventSender>,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Result<Started, BackendError>> {
        let shell = ["sh", "-c", "\"$@\"; exit 9", "sh"].map(str::to_owned);
        plan.argv = shell.into_iter().chain(plan.argv).collect();
        self.0.start(plan, progress, cancel)
    }

    fn make(
        &self,
        definition: Arc<Definition>,
        fresh: bool,
        progress: Option<EventSender>,
    ) -> BoxFuture<'_, Result<String, BackendError>> {
        self.0.make(definition, fresh, progress)
    }

    fn derive(
        &self,
        definition: Arc<Definition>,
        base: Option<String>,
        packages: Packages,
        progress: Option<EventSender>,
    ) -> BoxFuture<'_, Result<String, BackendError>> {
        self.0.derive(definition, base, packages, progress)
    }

    fn destroy_all(&self) -> BoxFuture<'_, ()> {
        self.0.destroy_all()
    }
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    pub(crate) fn with(change: impl FnOnce(&mut SandboxSettings)) -> Self {
        Self::build(change, None, false, true)
    }

    /// Another kernel in the same directory, which goes with the first.
    fn beside(first: &Bed) -> Self {
        let mut bed = Self::new();
        bed.use_directory(first.directory.path());
        bed
    }

    fn use_directory(&mut self, directory: &std::path::Path) {
        let docker = Docker::new(options(directory));
        self.label = docker.owner().filter();
        self.sandbox = Sandbox::new(Arc::clone(&self.registry), Arc::new(docker), Turns::unlimited());
    }

    /// Where its checkpoints lie.
    fn store(&self) -> Store {
        Store::new(self.directory.path().join("kept"), 1 << 30)
    }

    /// With the supervisor's `defence` replaced by `instead`.
    pub(crate) fn weakened(defence: &str, instead: &str) -> Self {
        let script = Script::default().weakened(defence, instead);
        assert_ne!(
            format!("{script:?}"),
            format!("{:?}", Script::default()),
            "{defence} is not in the supervisor"
        );
        Self::build(|_| (), Some(script), false, false)
    }

    /// With the supervisor behind another process 1, as an engine's `init` option would put it.
    fn behind_init() -> Self {
        Self::build(|_| (), None, true, false)
    }

    /// The same, in the way that users get it.
    fn behind_init_guarded() -> Self {
        Self::build(|_| (), None, true, true)
    }

    /// With another engine, as `DOCKER_HOST` names it, and its image.
    pub(crate) fn at(host: &str, image: &str) -> Self {
        let mut settings = sandbox_settings();
        settings.image = Some(image.to_owned());
        Self::on(Registry::builtin(&settings), None, false, true, Some(host.to_owned()))
    }

    fn build(
        change: impl FnOnce(&mut SandboxSettings),
        script: Option<Script>,
        init: bool,
        guarded: bool,
    ) -> Self {
        let mut settings = sandbox_settings();
        change(&mut settings);
        Self::on(Registry::builtin(&settings), script, init, guarded, None)
    }

    /// With another definition of the container.
    pub(crate) fn defined(change: impl FnOnce(&mut Definition)) -> Self {
        let mut definition = Definition::python(&sandbox_settings());
        change(&mut definition);
        Self::on(Registry::single(definition), None, false, true, None)
    }

    /// With other settings of how containers are kept.
    pub(crate) fn settled(change: impl FnOnce(&mut PoolSettings)) -> Self {
        let mut registry = Registry::builtin(&sandbox_settings());
        change(&mut registry.settings);
        Self::on(registry, None, false, true, None)
    }

    fn on(
        registry: Registry,
        script: Option<Script>,
        init: bool,
        guarded: bool,
        host: Option<String>,
    ) -> Self {
        let directory = TempDir::new().expect("a directory");
        let registry = Arc::new(registry);
        let docker = Docker::new(Options { host, ..options(directory.path()) });
        let label = docker.owner().filter();
        let backend: Arc<dyn Backend> = if init { Arc::new(BehindInit(docker)) } else { Arc::new(docker) };
        let sandbox = if guarded {
            Sandbox::new(Arc::clone(&registry), backend, Turns::unlimited())
        } else {
            Sandbox::unguarded(Arc::clone(&registry), backend, script.unwrap_or_default())
        };
        let most = registry.containers()[0].limits.checkpoint_size;
        let sandbox = sandbox.with_checkpoints(Store::new(directory.path().join("kept"), most));
        Bed { directory, sandbox, registry, label }
    }

    pub(crate) fn containers(&self) -> Vec<String> {
        labelled(&self.label)
    }

    pub(crate) fn remove_containers(&self) {
        for id in self.containers() {
            // One that is about to go by itself may be gone first.
            docker(&["rm", "-f", &id]);
        }
    }

    pub(crate) async fn python(&self, code: &str) -> Ran {
        self.run(Run::new("python", code), Around::default()).await
    }

    pub(crate) async fn sh(&self, code: &str) -> Ran {
        self.run(Run::new("sh", code), Around::default()).await
    }

    pub(crate) async fn bash(&self, code: &str) -> Ran {
        self.run(Run::new("bash", code), Around::default()).await
    }

    /// Runs, and when `around` has a moment to cancel, cancels then.
    pub(crate) async fn run(&self, run: Run, around: Around) -> Ran {
        let approved = policy::approve(run, &self.registry).expect("a known language");
        let (sender, mut receiver) = event::channel(8);
        let cancel = CancellationToken::new();
        let events = Arc::new(Mutex::new(Vec::new()));
        let reader = tokio::spawn({
            let (events, cancel) = (Arc::clone(&events), cancel.clone());
            async move {
                let mut text = String::new();
                while let Some(event) = receiver.recv().await {
                    if let Event::Stream { text: more, .. } = &event {
                        text.push_str(more);
                    }
                    events.lock().expect("no panic").push(event);
                    if around.cancel_at.is_some_and(|mark| text.contains(mark)) {
                        cancel.cancel();
                    }
                    if around.stall_at.is_some_and(|mark| text.contains(mark)) {
                        tokio::time::sleep(Duration::from_secs(4)).await;
                        text.clear();
                    }
                }
            }
        });
        if let Some(after) = around.cancel_after {
            let cancel = cancel.clone();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                cancel.cancel();
            });
        }
        let begun = Instant::now();
        let running = self.sandbox.run(approved, &sender, around.ask, cancel);
        let end = tokio::time::timeout(PATIENCE, running).await.expect("the run hangs");
        let took = begun.elapsed();
        drop(sender);
        tokio::time::timeout(PATIENCE, reader).await.expect("the reader hangs").expect("no panic");
        let events = std::mem::take(&mut *events.lock().expect("no panic"));
        Ran { end, events, took }
    }
}

/// What happens around a run.
pub(crate) struct Around {
    pub(crate) ask: Arc<dyn Ask>,
    /// Cancel once this was shown.
    pub(crate) cancel_at: Option<&'static str>,
    pub(crate) cancel_after: Option<Duration>,
    /// Stop reading for a while once this was shown.
    pub(crate) stall_at: Option<&'static str>,
}

impl Default for Around {
    fn default() -> Self {
        Around { ask: Arc::new(event::ask::Nobody), cancel_at: None, cancel_after: None, stall_at: None }
    }
}

/// A run that is over, and what it showed.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) end: RunEnd,
    pub(crate) events: Vec<Event>,
    pub(crate) took: Duration,
}

impl Ran {
    pub(crate) fn text(&self, wanted: Stream) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            Event::Stream { stream, text } if *stream == wanted => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    pub(crate) fn out(&self) -> String {
        self.text(Stream::Stdout)
    }

    pub(crate) fn err(&self) -> String {
        self.text(Stream::Stderr)
    }

    /// The text of the only result.
    pub(crate) fn result(&self) -> String {
        let results: Vec<_> = self
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Result { bundle } => Some(bundle.data()["text/plain"].as_str().unwrap_or_default()),
                _ => None,
            })
            .collect();
        assert_eq!(results.len(), 1, "{self:?}");
        results[0].to_owned()
    }

    pub(crate) fn failure(&self) -> &Failure {
        let failure = self.end.failure.as_ref().unwrap_or_else(|| panic!("it succeeded: {self:?}"));
        let shown =
            self.events.iter().filter(|event| matches!(event, Event::Error(e) if e == failure)).count();
        assert_eq!(shown, 1, "the failure is shown once: {self:?}");
        failure
    }

    pub(crate) fn ok(&self) -> &Self {
        assert_eq!(self.end.failure, None, "{self:?}");
        self
    }

    pub(crate) fn warnings(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            Event::Notice(notice) if notice.level == Level::Warning => Some(notice.text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// Gives these answers, one by one.
pub(crate) struct Answers(Mutex<Vec<Result<String, AskError>>>, pub(crate) Mutex<Vec<Question>>);

impl Answers {
    pub(crate) fn new(answers: impl IntoIterator<Item = Result<&'static str, AskError>>) -> Arc<Self> {
        let mut answers: Vec<_> = answers.into_iter().map(|a| a.map(str::to_owned)).collect();
        answers.reverse();
        Arc::new(Answers(Mutex::new(answers), Mutex::default()))
    }
}

impl Ask for Answers {
    fn available(&self) -> bool {
        true
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<String, AskError>> {
        self.1.lock().expect("no panic").push(question);
        match self.0.lock().expect("no panic").pop() {
            Some(answer) => Box::pin(async { answer }),
            None => Box::pin(std::future::pending()),
        }
    }
}
