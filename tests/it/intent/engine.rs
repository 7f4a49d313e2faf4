//! Intent through the engine: what runs, what the model reads, what is said and kept of it.

use cellblock::config::Flavor;
use cellblock::engine::{Execute, Interpreter};
use serde_json::json;

use crate::cells::Kernel;
use crate::chat_server::{Server, answer};

const CODE: &str = "```python\nprint('it ran')\n```";

#[tokio::test]
async fn code_that_is_only_asked_about_stays_for_the_model_and_the_cell_says_so() {
    let server = Server::play(vec![answer(&["It prints."])]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    let ran = kernel.run(&format!("Explain this code, line by line.\n\n{CODE}")).await.succeeded();
    assert_eq!((ran.out().as_str(), ran.answered().as_str()), ("", "It prints."));
    let said = ran.remarks();
    assert!(said.contains("The code was not run") && said.contains("behind the fence's language"), "{said}");
    let decision = &ran.outcome.metadata["cellblock_intent"];
    assert_eq!((&decision["run"], &decision["words"]), (&json!(false), &json!("Explain")), "{decision}");
    assert!(!ran.outcome.metadata.contains_key("cellblock_runs"));
    let asked = server.only().body.to_string();
    assert!(asked.contains("it ran") && asked.contains("line by line"), "the model reads the code: {asked}");
    let why = kernel.run("%why").await.succeeded().displayed();
    assert!(why.contains("was not run") && why.contains("Explain"), "{why}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_fence_a_command_and_the_magic_win_over_the_words() {
    let server = Server::play(vec![answer(&["ok"]); 6]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    let marked = "Explain.\n\n```python run\nprint('marked')\n```\n\n```python\nprint('plain')\n```";
    assert_eq!(kernel.run(marked).await.succeeded().out(), "marked\n");
    let ran = kernel.run("Run it.\n\n```python norun\nprint('never')\n```").await.succeeded();
    assert!(ran.out().is_empty() && ran.remarks().contains("its fence says `norun`"), "{ran:?}");
    let ran = kernel.run("!echo command\nExplain what that does.").await.succeeded();
    assert_eq!((ran.out().as_str(), ran.remarks().contains("not run")), ("command\n", false));

    let ran = kernel.run(&format!("%intent off\n\nExplain.\n\n{CODE}")).await.succeeded();
    assert_eq!(ran.out(), "it ran\n");
    assert!(kernel.run("%why").await.succeeded().displayed().contains("`%intent` is off"));
    let ran = kernel.run(&format!("%intent on\n\nExplain.\n\n{CODE}")).await.succeeded();
    assert_eq!(ran.out(), "");
    assert!(kernel.run("%intent maybe").await.failure().evalue.contains("`on` or `off`"));
    kernel.engine.shutdown().await;

    let kernel = Kernel::with(Flavor::Markdown, Some(&server), |parts| parts.habits.agent.intent = false);
    assert!(kernel.run("%why").await.succeeded().displayed().contains("No cell with code"));
    assert_eq!(kernel.run(&format!("Explain.\n\n{CODE}")).await.succeeded().out(), "it ran\n");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn code_alone_runs_and_a_block_that_stays_is_not_judged() {
    let server = Server::play(vec![answer(&["ok"]); 2]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    let ran = kernel.run(CODE).await.succeeded();
    assert!(ran.out() == "it ran\n" && !ran.outcome.metadata.contains_key("cellblock_intent"), "{ran:?}");
    // What it asks for can't be had, which only matters when it runs.
    kernel.run("Explain.\n\n```python timeout=soon\n1\n```").await.succeeded();
    let silent = Execute { code: format!("Explain.\n\n{CODE}"), silent: true, ..Execute::default() };
    assert_eq!(kernel.execute(silent).await.succeeded().remarks(), "");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn an_outcome_that_is_asked_for_is_brought_and_the_decision_is_kept() {
    let server = Server::play(vec![answer(&["ok"])]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    let ran = kernel.run(&format!("What does this print?\n\n{CODE}")).await.succeeded();
    assert_eq!(ran.out(), "it ran\n");
    let decision = &ran.outcome.metadata["cellblock_intent"];
    assert_eq!((&decision["run"], &decision["reason"]), (&json!(true), &json!("outcome")), "{decision}");
    let why = kernel.run("%why").await.succeeded().displayed();
    assert!(why.contains("The code ran, because") && why.contains("What does this print"), "{why}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_fence_that_says_norun_is_the_reason_that_is_given() {
    let server = Server::play(vec![answer(&["ok"]); 3]).await;
    let kernel = Kernel::new(Flavor::Markdown, Some(&server));
    assert_eq!(kernel.run(&format!("Run it.\n\n{CODE}")).await.succeeded().out(), "it ran\n");
    let ran = kernel.run("```python norun\nprint('never')\n```").await.succeeded();
    let decision = &ran.outcome.metadata["cellblock_intent"];
    assert_eq!((&decision["run"], &decision["reason"]), (&json!(false), &json!("norun")), "{decision}");
    assert!(ran.out().is_empty() && ran.remarks().contains("The code was not run"), "{}", ran.remarks());
    let why = kernel.run("%why").await.succeeded().displayed();
    assert!(why.contains("The code did not run, because its fence says `norun`"), "{why}");

    let ran = kernel.run("```python run norun\nprint('never')\n```").await.succeeded();
    assert!(ran.out().is_empty() && ran.remarks().contains("`norun` wins"), "{}", ran.remarks());
    let why = kernel.run("%why").await.succeeded().displayed();
    assert!(why.contains("both `run` and `norun`"), "{why}");
    kernel.engine.shutdown().await;
}
