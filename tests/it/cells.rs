//! Whole cells through the engine: a real container, a scripted model server.

use std::sync::Arc;

use cellblock::chat::{Chat, ProviderEnvironment};
use cellblock::config::{Flavor, Install, Settings, Status};
use cellblock::engine::{Completeness, Engine, Execute, Habits, Interpreter, Outcome, Parts};
use cellblock::event::{self, Answer, Ask, Event, Failure, Stream, ask::Nobody};
use cellblock::sandbox::checkpoint::Store;
use cellblock::sandbox::docker::Docker;
use cellblock::sandbox::{Registry, Sandbox, Turns};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::chat_server::{Server, Step, answer, settings, streaming, text};
use crate::containers::{PATIENCE, options, sandbox_settings};

/// A kernel's engine for one test.
pub(crate) struct Kernel {
    pub(crate) engine: Engine,
    pub(crate) directory: TempDir,
    /// The label of its containers.
    pub(crate) label: String,
}

impl Kernel {
    pub(crate) fn new(flavor: Flavor, server: Option<&Server>) -> Self {
        Self::with(flavor, server, |_| ())
    }

    pub(crate) fn with(flavor: Flavor, server: Option<&Server>, change: impl FnOnce(&mut Parts)) -> Self {
        Self::of(flavor, server, Registry::builtin(&sandbox_settings()), Turns::unlimited(), change)
    }

    /// With other containers.
    pub(crate) fn of(
        flavor: Flavor,
        server: Option<&Server>,
        registry: Registry,
        turns: Turns,
        change: impl FnOnce(&mut Parts),
    ) -> Self {
        let directory = TempDir::new().unwrap();
        let docker = Docker::new(options(directory.path()));
        let label = docker.owner().filter();
        // Nothing listens on port 1: without a server every question is refused at once.
        let address = server.map_or_else(|| "http://127.0.0.1:1/v1".to_owned(), Server::v1);
        let mut parts = Parts {
            flavor,
            sandbox: Sandbox::new(Arc::new(registry), Arc::new(docker), turns)
                .with_checkpoints(Store::new(directory.path().join(".kept"), 1 << 30)),
            chat: Chat::new(&settings(&address), ProviderEnvironment::default()),
            warnings: Vec::new(),
            broken: None,
            habits: Habits {
                status: Status::Normal,
                agent: Settings::builtin(flavor).agent,
                explain: false,
                install: Install::Ask,
                trusted: false,
                directory: directory.path().to_owned(),
                footer: false,
                log: None,
            },
        };
        change(&mut parts);
        Kernel { engine: Engine::new(parts), directory, label }
    }

    pub(crate) async fn run(&self, code: &str) -> Ran {
        self.execute(Execute { code: code.to_owned(), count: 1, store_history: true, ..Execute::default() })
            .await
    }

    /// As the cell of that number.
    pub(crate) async fn numbered(&self, count: u32, code: &str) -> Ran {
        let request = Execute { code: code.to_owned(), count, store_history: true, ..Execute::default() };
        self.execute(request).await
    }

    pub(crate) async fn cell(&self, id: &str, code: &str) -> Ran {
        let (code, cell_id) = (code.to_owned(), Some(id.to_owned()));
        self.execute(Execute { code, cell_id, count: 1, store_history: true, ..Execute::default() }).await
    }

    pub(crate) async fn execute(&self, request: Execute) -> Ran {
        self.until(request, |_| false).await
    }

    /// Interrupts once `stop` says so of what was shown last.
    pub(crate) async fn until(&self, request: Execute, stop: impl Fn(&Event) -> bool) -> Ran {
        self.drive(request, Arc::new(Nobody), stop).await
    }

    /// With a user who answers.
    pub(crate) async fn answered(&self, code: &str, ask: Arc<dyn Ask>) -> Ran {
        let request = Execute { code: code.to_owned(), count: 1, store_history: true, ..Execute::default() };
        self.drive(request, ask, |_| false).await
    }

    pub(crate) async fn drive(
        &self,
        request: Execute,
        ask: Arc<dyn Ask>,
        stop: impl Fn(&Event) -> bool,
    ) -> Ran {
        let (sender, mut shown) = event::channel(4);
        let cancel = CancellationToken::new();
        let running = self.engine.execute(request, sender, ask, cancel.clone());
        let collecting = async {
            let mut all = Vec::new();
            while let Some(event) = shown.recv().await {
                if stop(&event) {
                    cancel.cancel();
                }
                all.push(event);
            }
            all
        };
        let both = async { tokio::join!(running, collecting) };
        let (outcome, events) = tokio::time::timeout(PATIENCE, both).await.expect("the cell hangs");
        Ran { outcome, events }
    }
}

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) outcome: Outcome,
    pub(crate) events: Vec<Event>,
}

impl Ran {
    pub(crate) fn out(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            Event::Stream { stream: Stream::Stdout, text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    pub(crate) fn answered(&self) -> String {
        let deltas = self.events.iter().filter_map(|event| match event {
            Event::Answer(Answer::Text { delta, .. }) => Some(delta.as_str()),
            _ => None,
        });
        deltas.collect()
    }

    pub(crate) fn displayed(&self) -> String {
        let bundles = self.events.iter().filter_map(|event| match event {
            Event::Display { bundle, .. } => bundle.data()["text/plain"].as_str(),
            _ => None,
        });
        bundles.collect()
    }

    pub(crate) fn failure(&self) -> &Failure {
        let failure = self.outcome.failure.as_ref().expect("a failure");
        assert!(
            self.events.iter().any(|event| matches!(event, Event::Error(shown) if shown == failure)),
            "{self:?}"
        );
        failure
    }

    /// What the kernel itself remarked.
    pub(crate) fn remarks(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            Event::Notice(notice) => Some(notice.text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn succeeded(self) -> Self {
        assert_eq!(self.outcome.failure, None, "{self:?}");
        self
    }
}

/// What the model was sent, as one text.
fn sent(body: &Value) -> String {
    let messages = body["messages"].as_array().expect("messages");
    let contents: Vec<_> = messages.iter().filter_map(|message| message["content"].as_str()).collect();
    contents.join("\n")
}

#[tokio::test]
async fn blocks_run_in_order_in_one_session_and_the_first_failure_ends_the_cell() {
    let kernel = Kernel::new(Flavor::Markdown, None);
    let ran = kernel
        .run("```python\nx = 20\nprint('one')\n```\n\n```sh\necho two\n```\n\n~~~python\nx + 1\n~~~")
        .await;
    let ran = ran.succeeded();
    assert_eq!(ran.out(), "one\ntwo\n");
    assert!(
        ran.events
            .iter()
            .any(|e| matches!(e, Event::Result { bundle } if bundle.data()["text/plain"] == "21"))
    );
    assert_eq!(ran.outcome.metadata["cellblock_runs"].as_array().map(Vec::len), Some(3));

    let ran = kernel.run("```sh\necho before; exit 3\n```\n\n```python\nprint('never')\n```").await;
    assert_eq!(ran.out(), "before\n");
    assert!(ran.failure().evalue.contains('3'), "{ran:?}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn the_model_sees_the_prose_the_code_and_what_came_of_it() {
    let server = Server::play(vec![answer(&["It is 6."]), answer(&["You asked about six."])]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    let ran = kernel.cell("a", "What does this print?\n\n```python\nprint(2 * 3)\n```").await.succeeded();
    assert_eq!((ran.out().as_str(), ran.answered().as_str()), ("6\n", "It is 6."));
    assert_eq!(ran.outcome.metadata["cellblock_model"], "openai/m");
    let first = sent(&server.asked()[0].body);
    assert!(first.contains("What does this print?") && first.contains("print(2 * 3)"), "{first}");
    assert!(
        first.contains("/workspace") && first.contains("no network"),
        "the sandbox is described: {first}"
    );

    kernel.cell("b", "And what did I ask before?").await.succeeded();
    let second = sent(&server.asked()[1].body);
    assert!(second.contains("What does this print?") && second.contains("It is 6."), "{second}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn running_a_cell_again_replaces_its_turn_and_a_deleted_cell_leaves_the_dialogue() {
    let server = Server::play(vec![answer(&["ok"]); 4]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    kernel.cell("a", "The first wording.").await.succeeded();
    kernel.cell("a", "The second wording.").await.succeeded();
    kernel.cell("b", "A question below.").await.succeeded();
    let asked = sent(&server.asked()[2].body);
    assert!(asked.contains("second wording") && !asked.contains("first wording"), "{asked}");
    let request = Execute {
        code: "Another.".to_owned(),
        cell_id: Some("c".to_owned()),
        deleted_cells: vec!["a".to_owned()],
        ..Execute::default()
    };
    kernel.execute(request).await.succeeded();
    let asked = sent(&server.asked()[3].body);
    assert!(!asked.contains("wording") && asked.contains("A question below."), "{asked}");
}

#[tokio::test]
async fn a_cell_that_holds_magics_alone_now_has_no_turn_any_more() {
    let server = Server::play(vec![answer(&["ok"]); 3]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    kernel.cell("a", "My wording.").await.succeeded();
    kernel.cell("b", "Another wording.").await.succeeded();
    let context = kernel.cell("a", "%context").await.succeeded().displayed();
    assert!(context.contains("Another wording") && !context.contains("My wording"), "{context}");
    kernel.cell("b", "").await.succeeded();
    kernel.cell("c", "A question.").await.succeeded();
    let asked = sent(&server.asked()[2].body);
    assert!(!asked.contains("wording"), "{asked}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn code_runs_without_any_model_and_only_the_prose_fails() {
    let kernel = Kernel::new(Flavor::Markdown, None);
    kernel.run("```python\nprint(1)\n```").await.succeeded();
    let ran = kernel.run("Run it and explain.\n\n```python\nprint(2)\n```").await;
    assert_eq!(ran.out(), "2\n");
    let failure = ran.failure();
    assert!(failure.evalue.contains("127.0.0.1:1"), "the address is named: {failure:?}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn the_model_is_told_of_a_failure_and_the_cell_stays_failed() {
    let server = Server::play(vec![answer(&["You divided by zero."])]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    let ran = kernel.run("Why does this fail?\n\n```python\n1 / 0\n```").await;
    assert_eq!(ran.failure().ename, "ZeroDivisionError");
    assert_eq!(ran.answered(), "You divided by zero.");
    assert!(sent(&server.only().body).contains("ZeroDivisionError"));
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_said_to_be_cut() {
    let server = Server::play(vec![answer(&["ok"])]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    let ran = kernel.run(&"long ".repeat(40_000)).await.succeeded();
    assert!(!ran.remarks().contains("left out"), "{}", ran.remarks());
    let ran = kernel.run(&"long! ".repeat(50_000)).await.succeeded();
    let remarks = ran.remarks();
    for part in ["299,999 bytes", "200,000 of one at most", "99,999 in its middle", "file of the workspace"] {
        assert!(remarks.contains(part), "{remarks}");
    }
}

#[tokio::test]
async fn an_interrupt_ends_a_reply_and_keeps_what_it_said() {
    let server = Server::play(vec![vec![streaming(), text("The beginning"), Step::Pause(600_000)]]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    let request = Execute { code: "Tell me a long story.".to_owned(), ..Execute::default() };
    let ran = kernel.until(request, |event| matches!(event, Event::Answer(Answer::Text { .. }))).await;
    assert_eq!(ran.answered(), "The beginning");
    assert_eq!(ran.failure().ename, "KeyboardInterrupt");
}

#[tokio::test]
async fn an_interrupt_in_the_code_means_that_the_model_is_not_asked() {
    let server = Server::play(vec![answer(&["never"])]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    let code = "Run it.\n\n```python\nimport time\nprint('on', flush=True)\ntime.sleep(600)\n```";
    let request = Execute { code: code.to_owned(), ..Execute::default() };
    let ran = kernel.until(request, |event| matches!(event, Event::Stream { .. })).await;
    assert_eq!(ran.failure().ename, "KeyboardInterrupt");
    assert_eq!((ran.answered().as_str(), server.asked().len()), ("", 0));
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn what_can_not_be_read_fails_with_the_reason_and_runs_nothing() {
    let kernel = Kernel::new(Flavor::Markdown, None);
    let ran = kernel.run("```python\nprint(1)\n```\n\n```sh\necho open").await;
    assert!(ran.out().is_empty() && ran.failure().evalue.contains("never closed"), "{ran:?}");
    let ran = kernel.run("%modell x").await;
    assert!(ran.failure().evalue.contains("did you mean %model?"), "{ran:?}");
    let ran = kernel.run("```python timeout=soon\nprint(1)\n```").await;
    assert!(ran.out().is_empty() && ran.failure().evalue.contains("timeout=soon"), "{ran:?}");
    let ran = kernel.run("%reset everything").await;
    assert!(ran.failure().evalue.contains("`code` or `chat`"), "{ran:?}");
}

#[tokio::test]
async fn magics_list_switch_and_reset() {
    let server = Server::play(vec![answer(&["ok"])]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    assert!(kernel.run("%help").await.succeeded().displayed().contains("%reset"));
    assert!(kernel.run("%help model").await.succeeded().displayed().contains("provider/model"));
    assert!(kernel.run("%help sh").await.succeeded().displayed().contains("`%%sh`"));
    kernel.run("%model openai/other\n\nHello").await.succeeded();
    assert_eq!(server.only().body["model"], "other");

    kernel.run("```python\nkept = 1\n```").await.succeeded();
    kernel.run("%reset code").await.succeeded();
    let ran = kernel.run("```python\nkept\n```").await;
    assert_eq!(ran.failure().ename, "NameError");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn settings_that_are_wrong_fail_every_cell_and_refusals_are_said_once() {
    let kernel =
        Kernel::with(Flavor::Markdown, None, |parts| parts.broken = Some("memroy: memory?".to_owned()));
    for _ in 0..2 {
        assert_eq!(kernel.run("```python\n1\n```").await.failure().evalue, "memroy: memory?");
    }
    let kernel =
        Kernel::with(Flavor::Markdown, None, |parts| parts.warnings = vec!["refused: network".to_owned()]);
    let notices = |ran: &Ran| {
        ran.events.iter().filter(|e| matches!(e, Event::Notice(n) if n.text == "refused: network")).count()
    };
    assert_eq!(notices(&kernel.run("%help").await), 1);
    assert_eq!(notices(&kernel.run("%help").await), 0);
}

#[tokio::test]
async fn the_python_kernel_takes_cells_as_python_and_chat_under_its_magic() {
    let server = Server::play(vec![answer(&["Hi."])]).await;
    let kernel = Kernel::new(Flavor::Python, Some(&server));
    let ran = kernel.run("print('a')\n!echo from the shell\n%time 1 + 1").await.succeeded();
    assert!(ran.out().starts_with("a\nfrom the shell\n") && ran.out().contains("Wall time"), "{ran:?}");
    assert_eq!(kernel.run("%%chat\nHello?").await.succeeded().answered(), "Hi.");
    assert!(kernel.run("%cb help").await.succeeded().displayed().contains("%cb reset"));
    let ran = kernel.run("%model").await;
    let hint = |e: &Event| matches!(e, Event::Notice(notice) if notice.text.contains("`%cb model`"));
    assert!(ran.failure().ename == "UsageError" && ran.events.iter().any(hint), "{ran:?}");
    assert!(!kernel.run("%nosuch").await.events.iter().any(hint));
    let found = kernel.engine.complete("%c", 2).await.matches;
    assert!(found.contains(&"%cb".to_owned()) && found.contains(&"%cd".to_owned()), "{found:?}");
    assert_eq!(kernel.engine.info().language_info["name"], "python");
    assert_ne!(kernel.engine.info().language_info["version"], "3", "the sandbox said which it has");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn expressions_are_evaluated_with_code_and_without() {
    let kernel = Kernel::new(Flavor::Python, None);
    let asked = |code: &str| Execute {
        code: code.to_owned(),
        user_expressions: json!({"sum": "2 + x"}).as_object().cloned().unwrap_or_default(),
        ..Execute::default()
    };
    let value = |ran: &Ran| ran.outcome.user_expressions["sum"]["data"]["text/plain"].clone();
    assert_eq!(value(&kernel.execute(asked("x = 3")).await.succeeded()), "5");
    assert_eq!(value(&kernel.execute(asked("")).await.succeeded()), "5");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn completion_counts_code_points_and_knows_code_magics_and_languages() {
    let kernel = Kernel::new(Flavor::Markdown, None);
    kernel.run("```python\n'warm'\n```").await.succeeded();
    let code = "𝒳é\n\n```python\n'é𝒳'.upp\n```";
    let cursor = code.chars().position(|c| c == 'u').map_or(0, |_| code.chars().count() - "\n```".len());
    let found = kernel.engine.complete(code, cursor).await;
    assert!(found.matches.iter().any(|m| m.contains("upper")), "{found:?}");
    assert_eq!(found.end, cursor);
    assert_eq!(kernel.engine.complete("%model", 6).await.matches, ["model"]);
    assert_eq!(kernel.engine.complete("%reset c", 8).await.matches, ["code", "chat"]);
    assert!(kernel.engine.complete("```py", 5).await.matches.contains(&"python".to_owned()));
    assert!(kernel.engine.inspect("%model", 3, 0).await.is_some());
    assert!(kernel.engine.inspect("%%sh", 3, 0).await.is_some());
    let about = kernel.engine.inspect("```python\nlen\n```", 12, 0).await.expect("documentation");
    assert!(about.data()["text/plain"].as_str().is_some_and(|t| t.contains("number of items")), "{about:?}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_cell_is_complete_when_its_fences_are_closed() {
    let kernel = Kernel::new(Flavor::Markdown, None);
    assert_eq!(kernel.engine.is_complete("prose").await, Completeness::Complete);
    let open = kernel.engine.is_complete("```python\nx").await;
    assert!(matches!(open, Completeness::Incomplete { .. }), "{open:?}");
    assert_eq!(kernel.engine.is_complete("```python\nx\n```").await, Completeness::Complete);
}
