//! Steps and budgets: where a turn ends that the model would not end.

use cellblock::chat::cost::Catalog;
use cellblock::config::{AgentMode, BudgetSettings, Flavor};
use cellblock::engine::Interpreter;
use serde_json::json;

use super::{kernel, ok, python, results, warnings, with};
use crate::cells::Kernel;
use crate::chat_server::{Server, Step, call, chat, done, settings, stop, streaming, usage};

/// A reply that runs this Python, and what it took.
fn costing(code: &str, tokens: u64) -> Vec<Step> {
    let arguments = json!({ "code": code, "language": "python" }).to_string();
    vec![streaming(), call(0, "c", "run_code", &arguments), stop("tool_calls"), usage(tokens, 10), done()]
}

#[tokio::test]
async fn a_turn_has_so_many_replies_and_the_last_calls_are_not_carried_out() {
    let replies: Vec<_> = (0..10).map(|n| python(&format!("print({n})"))).collect();
    let server = Server::play(replies).await;
    let kernel = with(&server, |agent| agent.steps = 3);
    let ran = kernel.run("Go.").await.succeeded();
    assert_eq!(ran.out(), "0\n1\n");
    assert_eq!(server.asked().len(), 3);
    assert!(
        warnings(&ran).contains("after 3 replies in this turn") && warnings(&ran).contains("agent.steps")
    );
    kernel.run("Go on.").await;
    let told = results(&server, 3);
    assert!(told.len() == 1 && told[0].starts_with("Not carried out"), "{told:#?}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_budget_that_is_used_up_ends_the_turn_with_a_notice() {
    let server = Server::play(vec![costing("print(1)", 600), costing("print(2)", 600), ok()]).await;
    let kernel = Kernel::with(Flavor::Markdown, Some(&server), |parts| {
        parts.habits.agent.mode = AgentMode::Auto;
        let budget = BudgetSettings { turn_tokens: Some(1000), ..BudgetSettings::default() };
        parts.chat = chat(&settings(&server.v1())).with_costs(Catalog::default(), &budget);
    });
    let ran = kernel.run("Go.").await.succeeded();
    assert_eq!((ran.out().as_str(), server.asked().len()), ("1\n2\n", 2));
    assert!(warnings(&ran).contains("budget.turn_tokens"), "{}", warnings(&ran));
    assert_eq!(ran.outcome.metadata["cellblock_agent"]["end"], "stopped");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn what_a_turn_used_is_counted_over_all_its_replies() {
    let server = Server::play(vec![costing("print(1)", 600), costing("print(2)", 700), ok()]).await;
    let kernel = kernel(&server);
    let ran = kernel.run("Go.").await.succeeded();
    let figures = ran.outcome.metadata["cellblock_usage"].to_string();
    assert!(figures.contains("1311"), "600 + 700 + 11: {figures}");
    kernel.engine.shutdown().await;
}
