//! Sessions in real containers: what runs inside, what comes out, what ends them.

mod attacks;
mod floods;
mod losses;
mod plain;
mod python;
mod shell;
mod stops;
mod streams;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cellblock::config::{Flavor, SandboxSettings, Settings};
use cellblock::event::{self, Ask, AskError, Event, EventSender, Failure, Level, Question, Stream};
use cellblock::sandbox::backend::{Backend, BackendError, Started};
use cellblock::sandbox::docker::{Docker, Options};
use cellblock::sandbox::reaper::{COMMAND, Program};
use cellblock::sandbox::runner::Script;
use cellblock::sandbox::{Run, RunEnd, Sandbox, image, policy};
use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Only a hang reaches this.
const PATIENCE: Duration = Duration::from_mins(2);

fn there(image: &str) -> bool {
    let inspect = std::process::Command::new("docker").args(["image", "inspect", image]).output();
    inspect.expect("the docker command").status.success()
}

/// A sandbox of its own for one test.
struct Bed {
    directory: TempDir,
    sandbox: Sandbox,
    settings: SandboxSettings,
    label: String,
}

/// Starts the main process as a child of a shell.
struct BehindInit(Docker);

impl Backend for BehindInit {
    fn start(
        &self,
        argv: Vec<String>,
        progress: Option<EventSender>,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Result<Started, BackendError>> {
        let shell = ["sh", "-c", "\"$@\"; exit 9", "sh"].map(str::to_owned);
        self.0.start(shell.into_iter().chain(argv).collect(), progress, cancel)
    }

    fn destroy_all(&self) -> BoxFuture<'_, ()> {
        self.0.destroy_all()
    }
}

impl Bed {
    fn new() -> Self {
        Self::with(|_| ())
    }

    fn with(change: impl FnOnce(&mut SandboxSettings)) -> Self {
        Self::build(change, None, false, true)
    }

    /// With the supervisor's `defence` replaced by `instead`.
    fn weakened(defence: &str, instead: &str) -> Self {
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

    fn build(
        change: impl FnOnce(&mut SandboxSettings),
        script: Option<Script>,
        init: bool,
        guarded: bool,
    ) -> Self {
        let directory = TempDir::new().expect("a directory");
        let mut settings = Settings::builtin(Flavor::Markdown).sandbox;
        let names = [image::default_tag(), "cellblock-python:dev".to_owned()];
        settings.image = names.into_iter().find(|name| there(name)).or(Some(image::default_tag()));
        change(&mut settings);
        let docker = Docker::new(Options {
            settings: settings.clone(),
            directory: directory.path().to_owned(),
            host: None,
            recorded_image: None,
            authorities: None,
            proxies: Vec::new(),
            reaper: Program { path: env!("CARGO_BIN_EXE_cellblock").into(), arguments: vec![COMMAND.into()] },
            temporary: Vec::new(),
        });
        let label = docker.owner().filter();
        let backend: Arc<dyn Backend> = if init { Arc::new(BehindInit(docker)) } else { Arc::new(docker) };
        let sandbox = if guarded {
            Sandbox::new(&settings, backend)
        } else {
            Sandbox::unguarded(&settings, backend, script.unwrap_or_default())
        };
        Bed { directory, sandbox, settings, label }
    }

    fn containers(&self) -> Vec<String> {
        let filter = format!("label={}", self.label);
        let listed = std::process::Command::new("docker").args(["ps", "-aq", "--filter", &filter]).output();
        let listed = listed.expect("the docker command").stdout;
        String::from_utf8_lossy(&listed).lines().map(str::to_owned).collect()
    }

    fn remove_containers(&self) {
        for id in self.containers() {
            let removed = std::process::Command::new("docker").args(["rm", "-f", &id]).output();
            assert!(removed.expect("the docker command").status.success());
        }
    }

    async fn python(&self, code: &str) -> Ran {
        self.run(Run::new("python", code), Plan::default()).await
    }

    async fn sh(&self, code: &str) -> Ran {
        self.run(Run::new("sh", code), Plan::default()).await
    }

    /// Runs, and when `plan` has a moment to cancel, cancels then.
    async fn run(&self, run: Run, plan: Plan) -> Ran {
        let approved = policy::approve(run, &self.settings).expect("a known language");
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
                    if plan.cancel_at.is_some_and(|mark| text.contains(mark)) {
                        cancel.cancel();
                    }
                    if plan.stall_at.is_some_and(|mark| text.contains(mark)) {
                        tokio::time::sleep(Duration::from_secs(4)).await;
                        text.clear();
                    }
                }
            }
        });
        if let Some(after) = plan.cancel_after {
            let cancel = cancel.clone();
            tokio::spawn(async move {
                tokio::time::sleep(after).await;
                cancel.cancel();
            });
        }
        let begun = Instant::now();
        let running = self.sandbox.run(approved, &sender, plan.ask, cancel);
        let end = tokio::time::timeout(PATIENCE, running).await.expect("the run hangs");
        let took = begun.elapsed();
        drop(sender);
        tokio::time::timeout(PATIENCE, reader).await.expect("the reader hangs").expect("no panic");
        let events = std::mem::take(&mut *events.lock().expect("no panic"));
        Ran { end, events, took }
    }
}

/// What happens around a run.
struct Plan {
    ask: Arc<dyn Ask>,
    /// Cancel once this was shown.
    cancel_at: Option<&'static str>,
    cancel_after: Option<Duration>,
    /// Stop reading for a while once this was shown.
    stall_at: Option<&'static str>,
}

impl Default for Plan {
    fn default() -> Self {
        Plan { ask: Arc::new(event::ask::Nobody), cancel_at: None, cancel_after: None, stall_at: None }
    }
}

/// A run that is over, and what it showed.
#[derive(Debug)]
struct Ran {
    end: RunEnd,
    events: Vec<Event>,
    took: Duration,
}

impl Ran {
    fn text(&self, wanted: Stream) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            Event::Stream { stream, text } if *stream == wanted => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    fn out(&self) -> String {
        self.text(Stream::Stdout)
    }

    fn err(&self) -> String {
        self.text(Stream::Stderr)
    }

    /// The text of the only result.
    fn result(&self) -> String {
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

    fn failure(&self) -> &Failure {
        let failure = self.end.failure.as_ref().unwrap_or_else(|| panic!("it succeeded: {self:?}"));
        let shown =
            self.events.iter().filter(|event| matches!(event, Event::Error(e) if e == failure)).count();
        assert_eq!(shown, 1, "the failure is shown once: {self:?}");
        failure
    }

    fn ok(&self) -> &Self {
        assert_eq!(self.end.failure, None, "{self:?}");
        self
    }

    fn warnings(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            Event::Notice(notice) if notice.level == Level::Warning => Some(notice.text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// Gives these answers, one by one.
struct Answers(Mutex<Vec<Result<String, AskError>>>, Mutex<Vec<Question>>);

impl Answers {
    fn new(answers: impl IntoIterator<Item = Result<&'static str, AskError>>) -> Arc<Self> {
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
