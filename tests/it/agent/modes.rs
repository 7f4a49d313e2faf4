//! Who decides: `ask`, `confirm`, `auto`, and what the user answers.

use std::sync::Arc;

use cellblock::config::{AgentMode, Flavor, Install};
use cellblock::engine::{Execute, Interpreter};
use cellblock::event::{Ask, AskError, Question};
use cellblock::sandbox::definition::Definition;
use cellblock::sandbox::{ExecutionLog, Registry, Turns};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{answered, calling, kernel, ok, python, result, results, warnings, with};
use crate::cells::Kernel;
use crate::chat_server::{Server, answer};
use crate::containers::sandbox_settings;
use crate::session::Answers;

/// A kernel with the settings as they come.
fn standard(server: &Server) -> Kernel {
    with(server, |agent| agent.mode = AgentMode::Standard)
}

fn questions(ask: &Answers) -> Vec<String> {
    ask.1.lock().expect("no panic").iter().map(|question| question.prompt.clone()).collect()
}

#[tokio::test]
async fn nobody_to_ask_means_no_tools_and_a_user_means_a_question() {
    let server = Server::play(vec![answer(&["no tools"]), python("print('ran')"), ok()]).await;
    let kernel = standard(&server);
    assert_eq!(kernel.run("Go.").await.succeeded().answered(), "no tools");
    assert!(server.asked()[0].body.get("tools").is_none());
    let user = Answers::new([Ok("yes")]);
    let ran = answered(&kernel, "Go.", Arc::clone(&user) as Arc<dyn Ask>).await.succeeded();
    assert_eq!(ran.out(), "ran\n");
    assert_eq!(
        questions(&user),
        ["Run the model's python code in the container python? [yes / no / edit / always]: "]
    );
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_no_with_words_reaches_the_model_and_nothing_runs() {
    let server = Server::play(vec![python("print('ran')"), ok(), python("print('ran')"), ok()]).await;
    let kernel = standard(&server);
    let ran = answered(&kernel, "Go.", Answers::new([Ok("no, use the file b.csv")])).await.succeeded();
    assert_eq!(ran.out(), "");
    assert!(result(&server, 1).contains("says: use the file b.csv"), "{}", result(&server, 1));
    let ran = answered(&kernel, "Go.", Answers::new([Err(AskError::EndOfInput)])).await.succeeded();
    assert_eq!(ran.out(), "");
    assert!(result(&server, 3).starts_with("The user refused this call. Don't repeat it"));
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn an_edit_replaces_the_code_and_the_model_is_told_what_ran() {
    let server = Server::play(vec![python("print('the models')"), ok()]).await;
    let kernel = standard(&server);
    let user = Answers::new([Ok("edit"), Ok("for n in [1, 2]:"), Ok("    print(n)"), Ok("")]);
    let ran = answered(&kernel, "Go.", Arc::clone(&user) as Arc<dyn Ask>).await.succeeded();
    assert_eq!(ran.out(), "1\n2\n");
    // Who reads the notebook later sees what really ran.
    let shown = ran.displayed();
    assert!(shown.contains("You changed it") && shown.contains("```python\nfor n in [1, 2]:\n"), "{shown}");
    let told = result(&server, 1);
    assert!(
        told.contains("The user changed the code") && told.contains("for n in [1, 2]:\n    print(n)"),
        "{told}"
    );
    let asked = questions(&user);
    assert!(asked[1].ends_with("Line 1: ") && asked[2] == "Line 2: " && asked[3] == "Line 3: ", "{asked:?}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn always_lasts_for_the_container_until_the_mode_is_set_again() {
    let other = Definition { name: "other".to_owned(), ..Definition::python(&sandbox_settings()) };
    let registry = Registry::builtin(&sandbox_settings()).with(other);
    let elsewhere = json!({ "code": "print('there')", "language": "python", "container": "other" });
    let server = Server::play(vec![
        python("print(1)"),
        python("print(2)"),
        calling("", &[("run_code", elsewhere)]),
        ok(),
        python("print(3)"),
        ok(),
    ])
    .await;
    let kernel = Kernel::of(Flavor::Markdown, Some(&server), registry, Turns::unlimited(), |_| ());
    let user = Answers::new([Ok("always"), Ok("no")]);
    let ran = answered(&kernel, "Go.", Arc::clone(&user) as Arc<dyn Ask>).await.succeeded();
    assert_eq!(ran.out(), "1\n2\n", "the other container is asked about apart");
    assert!(questions(&user)[1].contains("in the container other?"), "{:?}", questions(&user));
    let user = Answers::new([Ok("no")]);
    let ran = answered(&kernel, "%mode confirm\n\nGo.", Arc::clone(&user) as Arc<dyn Ask>).await.succeeded();
    assert_eq!((ran.out().as_str(), questions(&user).len()), ("", 1));
    assert!(ran.displayed().contains("Not carried out: you said no."), "{}", ran.displayed());
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn confirm_without_input_refuses_and_says_so() {
    let server = Server::play(vec![python("print('ran')"), answer(&["I can't."])]).await;
    let kernel = with(&server, |agent| agent.mode = AgentMode::Confirm);
    let ran = kernel.run("Go.").await.succeeded();
    assert_eq!((ran.out().as_str(), ran.answered().ends_with("I can't.")), ("", true));
    assert!(result(&server, 1).contains("nobody can be asked here"));
    let said = warnings(&ran);
    assert!(said.contains("needs your yes (agent.mode is confirm)") && said.contains("%mode auto"), "{said}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_container_that_needs_confirmation_asks_in_every_mode() {
    let mut careful = Definition::python(&sandbox_settings());
    careful.confirm = true;
    let registry = Registry::builtin(&sandbox_settings()).with(careful);
    let server = Server::play(vec![python("print(1)"), ok(), python("print(2)"), ok()]).await;
    let kernel = Kernel::of(Flavor::Markdown, Some(&server), registry, Turns::unlimited(), |parts| {
        parts.habits.agent.mode = AgentMode::Auto;
    });
    let user = Answers::new([Ok("yes")]);
    assert_eq!(answered(&kernel, "Go.", Arc::clone(&user) as Arc<dyn Ask>).await.succeeded().out(), "1\n");
    assert_eq!(questions(&user).len(), 1);
    let ran = kernel.run("Go.").await.succeeded();
    assert!(ran.out().is_empty() && warnings(&ran).contains("needs_confirm"), "{}", warnings(&ran));
    kernel.engine.shutdown().await;
}

/// A user who is asked, and interrupts.
struct Interrupts(CancellationToken);

impl Ask for Interrupts {
    fn available(&self) -> bool {
        true
    }

    fn ask(&self, _: Question) -> BoxFuture<'_, Result<String, AskError>> {
        self.0.cancel();
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn an_interrupt_during_a_question_ends_the_turn_and_each_call_has_a_result() {
    let run = || ("run_code", json!({ "code": "print('ran')", "language": "python" }));
    let server = Server::play(vec![calling("", &[run(), run()]), ok()]).await;
    let kernel = standard(&server);
    let cancel = CancellationToken::new();
    let (events, mut shown) = cellblock::event::channel(64);
    let request = Execute { code: "Go.".into(), ..Execute::default() };
    let user = Arc::new(Interrupts(cancel.clone()));
    let running = kernel.engine.execute(request, events, user, cancel);
    let collecting = async { while shown.recv().await.is_some() {} };
    let (outcome, ()) =
        tokio::time::timeout(crate::containers::PATIENCE, async { tokio::join!(running, collecting) })
            .await
            .expect("it hangs");
    assert_eq!(outcome.failure.expect("a failure").ename, "KeyboardInterrupt");
    answered(&kernel, "And?", Answers::new([])).await.succeeded();
    let told = results(&server, 1);
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(told[0].contains("interrupted") && told[1].starts_with("Not carried out"), "{told:#?}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn files_and_packages_are_confirmed_and_reading_is_not() {
    let server = Server::play(vec![
        calling(
            "",
            &[("list_files", json!({})), ("write_file", json!({ "path": "a.txt", "content": "one" }))],
        ),
        calling("", &[("install_packages", json!({ "packages": ["six"] }))]),
        // Nobody is asked about what can't be.
        calling("", &[("write_file", json!({ "path": "/etc/a.txt", "content": "one" }))]),
        calling("", &[("read_file", json!({ "path": "../secrets.env" }))]),
        ok(),
    ])
    .await;
    let kernel = standard(&server);
    let user = Answers::new([Ok("yes"), Ok("no")]);
    answered(&kernel, "Go.", Arc::clone(&user) as Arc<dyn Ask>).await.succeeded();
    let asked = questions(&user);
    assert!(
        asked[0].starts_with("Let the model write the file \"/workspace/a.txt\" (3 bytes)?"),
        "{asked:?}"
    );
    assert!(asked[0].contains("one") && asked[0].ends_with("[yes / no / edit / always]: "), "{asked:?}");
    assert!(asked[1].starts_with("Let the model install six? [yes / no]"), "{asked:?}");
    assert_eq!(std::fs::read_to_string(kernel.directory.path().join("workspace/a.txt")).unwrap(), "one");
    assert!(result(&server, 2).starts_with("The user refused this call"));
    assert_eq!(asked.len(), 2, "{asked:?}");
    for request in [3, 4] {
        let told = result(&server, request);
        assert!(told.contains("it is outside /workspace and /session"), "{told}");
    }
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn packages_need_consent_in_auto_too_and_never_is_never() {
    let install = || calling("", &[("install_packages", json!({ "packages": ["six"] }))]);
    let server = Server::play(vec![install(), ok()]).await;
    let kernel = kernel(&server);
    kernel.run("Go.").await.succeeded();
    assert!(result(&server, 1).contains("they need a yes"), "{}", result(&server, 1));
    kernel.engine.shutdown().await;

    let server = Server::play(vec![install(), ok()]).await;
    let never = Kernel::with(Flavor::Markdown, Some(&server), |parts| {
        parts.habits.install = Install::Never;
        parts.habits.agent.mode = AgentMode::Auto;
    });
    never.run("Go.").await.succeeded();
    let offered = server.asked()[0].body["tools"].to_string();
    assert!(!offered.contains("install_packages") && result(&server, 1).contains("There is no tool"));
    never.engine.shutdown().await;
}

#[tokio::test]
async fn the_mode_magic_shows_and_sets_and_refuses_other_words() {
    let server = Server::play(vec![ok()]).await;
    let kernel = standard(&server);
    assert!(kernel.run("%mode").await.succeeded().displayed().contains("**ask**"));
    assert!(kernel.run("%mode auto").await.succeeded().displayed().contains("From now on: **auto**"));
    assert!(kernel.run("%mode confirm").await.succeeded().displayed().contains("can't ask"));
    kernel.run("%mode ask\n\nHello").await.succeeded();
    assert!(server.asked()[0].body.get("tools").is_none());
    assert!(kernel.run("%mode default").await.succeeded().displayed().contains("**ask**"));
    assert!(kernel.run("%mode yolo").await.failure().evalue.contains("`confirm`"));
}

#[tokio::test]
async fn every_run_of_the_model_is_in_the_log_under_its_name() {
    let server = Server::play(vec![python("print(1)"), ok()]).await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let kernel = Kernel::with(Flavor::Markdown, Some(&server), |parts| {
        parts.habits.agent.mode = AgentMode::Auto;
        parts.habits.log = Some(ExecutionLog::new(log.clone(), "k".into(), None));
    });
    kernel.run("Go.").await.succeeded();
    kernel.run("```python\n1\n```").await.succeeded();
    let lines = std::fs::read_to_string(&log).unwrap();
    let who: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["who"].to_string())
        .collect();
    assert_eq!(who, ["\"model\"", "\"cell\""]);
    kernel.engine.shutdown().await;
}
