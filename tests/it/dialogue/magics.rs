//! The magics of the dialogue, through the engine.

use cellblock::chat::{Chat, ProviderEnvironment};
use cellblock::config::Flavor;
use cellblock::engine::Interpreter;

use super::{keeping, sent};
use crate::cells::{Kernel, Ran};
use crate::chat_server::*;

fn kernel(server: &Server, folder: &std::path::Path) -> Kernel {
    let chat = Chat::new(&settings(&server.v1()), ProviderEnvironment::default()).keeping(&keeping(folder));
    Kernel::with(Flavor::Markdown, Some(server), |parts| parts.chat = chat)
}

async fn run(kernel: &Kernel, code: &str) -> String {
    let ran: Ran = kernel.run(code).await.succeeded();
    ran.displayed()
}

#[tokio::test]
async fn what_would_be_sent_is_shown_and_changed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["<b>one</b> | `two`"]), answer(&["ok"])]).await;
    let kernel = kernel(&server, folder.path());
    assert!(run(&kernel, "%context").await.contains("Nothing has been said yet"));
    run(&kernel, "First | `question` <img src=x>").await;
    run(&kernel, "Second question").await;
    let shown = run(&kernel, "%context").await;
    for part in ["2 of 2 turns", "branch `main`", "| 1 | `First \\| 'question'", "about", "--- system ---"] {
        assert!(shown.contains(part), "{part} not in {shown}");
    }
    assert!(shown.contains("--- user ---\nSecond question"), "{shown}");

    assert!(run(&kernel, "%hide 1").await.contains("is kept from the model"));
    assert!(run(&kernel, "%context").await.contains("hidden"));
    run(&kernel, "Third question").await;
    assert_eq!(sent(&server, 2), ["Second question", "ok", "Third question"]);
    assert!(run(&kernel, "%hide 1").await.contains("is kept from the model"), "as often as it runs");
    assert!(run(&kernel, "%hide off 1").await.contains("is sent again"));
    assert!(kernel.run("%hide 1-9").await.failure().evalue.contains("nothing was changed"));
    assert!(!run(&kernel, "%context").await.contains("hidden"));
    assert!(run(&kernel, "%pin 1-2").await.contains("however full"));
    for wrong in
        ["%hide", "%hide 0", "%hide 99", "%pin x", "%pin 1-99999", "%branch", "%branch a/b", "%undo 2"]
    {
        assert_eq!(kernel.run(wrong).await.failure().ename, "UsageError", "{wrong}");
    }

    assert!(run(&kernel, "%undo").await.contains("Third question"));
    assert!(run(&kernel, "%branch other").await.contains("new branch `other`"));
    run(&kernel, "Only in the other").await;
    let listed = run(&kernel, "%branches").await;
    assert!(
        listed.contains("| `main` | 2 |") && listed.contains("| `other` | 3 (the present one)"),
        "{listed}"
    );
    assert!(run(&kernel, "%branch main").await.contains("goes on in the branch `main`"));
    assert!(!run(&kernel, "%context").await.contains("Only in the other"));
    run(&kernel, "%reset chat").await;
    assert!(run(&kernel, "%context").await.contains("Nothing has been said yet"));
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn there_may_be_nothing_to_bring_back() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["ok"])]).await;
    let kept = kernel(&server, folder.path());
    assert!(run(&kept, "%resume").await.contains("There is no earlier dialogue"));
    assert!(run(&kept, "%undo").await.contains("no turn to take back"));
    kept.engine.shutdown().await;
    let without = Kernel::new(Flavor::Markdown, Some(&server));
    assert!(run(&without, "%resume").await.contains("conversation.persist"));
    without.engine.shutdown().await;
}
