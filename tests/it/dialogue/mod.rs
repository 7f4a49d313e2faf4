//! The notebook is the conversation: what is kept, what comes back, what the model is sent.

mod damage;
mod kernels;
mod magics;
mod running;

use std::path::Path;

use cellblock::chat::{
    Chat, ChatError, HistoryAccess, HistoryQuery, Keeping, Options, Prompt, Reply, ToolCall, ToolResult, Turn,
};
use cellblock::config::Secret;
use cellblock::event::{self, Event};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::chat_server::*;

/// Dialogues of the notebook in that folder.
pub(crate) fn keeping(folder: &Path) -> Keeping {
    Keeping {
        file: Some(folder.join("data/dialogues.sqlite")),
        notebook: Some(folder.join("n.ipynb")),
        directory: folder.to_owned(),
    }
}

fn kernel(server: &Server, folder: &Path) -> Chat {
    chat(&settings(&server.v1())).keeping(&keeping(folder))
}

/// Asks in a cell; what the user was told beside the answer.
async fn ask_in(chat: &Chat, cell: &str, prompt: &str) -> (Result<Reply, ChatError>, Vec<String>) {
    let place = chat.begin(Some(cell), prompt);
    let (events, mut shown) = event::channel(4);
    let collecting = async {
        let mut notices = Vec::new();
        while let Some(event) = shown.recv().await {
            if let Event::Notice(notice) = event {
                notices.push(notice.text);
            }
        }
        notices
    };
    let asking = async {
        let (prompt, options) = (Prompt::text(prompt), Options::default());
        let turn = Turn { place: &place, prompt: &prompt, context: "", tools: &[], options: &options };
        let reply = chat.ask(turn, &events, CancellationToken::new()).await;
        drop(events);
        reply
    };
    tokio::join!(asking, collecting)
}

/// The texts of the messages of the request of that number, without the system prompt.
fn sent(server: &Server, request: usize) -> Vec<String> {
    let messages = server.asked()[request].body["messages"].as_array().cloned().unwrap_or_default();
    messages
        .iter()
        .skip(1)
        .map(|message| message["content"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test]
async fn a_dialogue_comes_back_after_a_restart_and_the_model_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(["1", "2", "3", "4"].map(|text| answer(&[text])).to_vec()).await;
    let first = kernel(&server, folder.path());
    ask_in(&first, "a", "one").await.0.unwrap();
    ask_in(&first, "b", "two").await.0.unwrap();
    first.shutdown().await;

    let second = kernel(&server, folder.path());
    assert_eq!(second.resume().await.unwrap().turns, 2);
    assert_eq!(second.resume().await.unwrap().turns, 0, "nothing comes twice");
    ask_in(&second, "c", "three").await.0.unwrap();
    let texts = sent(&server, 2);
    assert_eq!(texts[..4], ["one", "1", "two", "2"]);
    assert!(texts[4].contains("the sandbox is fresh") && texts[4].ends_with("three"), "{texts:?}");
    // A cell of before that runs again replaces its turn at its place.
    ask_in(&second, "a", "eins").await.0.unwrap();
    assert_eq!(sent(&server, 3), ["eins"]);
    second.shutdown().await;

    let third = kernel(&server, folder.path());
    assert_eq!(third.resume().await.unwrap().turns, 3);
    let context = third.context(None, "", &[], &Options::default());
    let labels: Vec<&str> = context.turns.iter().map(|turn| turn.label.as_str()).collect();
    assert_eq!(labels, ["eins", "two", "three"]);
    assert!(context.turns[1].marks.contains(&"stale") && !context.turns[0].marks.contains(&"stale"));
    assert!(context.sent.contains("--- user ---\neins\n") && !context.sent.contains("\none\n"));
    third.shutdown().await;
}

#[tokio::test]
async fn notebooks_have_their_own_dialogues_and_a_reset_one_stays_away() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["ok"])]).await;
    let first = kernel(&server, folder.path());
    ask_in(&first, "a", "one").await.0.unwrap();
    first.shutdown().await;
    let elsewhere = Keeping { notebook: Some(folder.path().join("other.ipynb")), ..keeping(folder.path()) };
    let other = chat(&settings(&server.v1())).keeping(&elsewhere);
    assert_eq!(other.resume().await, None);
    let second = kernel(&server, folder.path());
    assert_eq!(second.resume().await.unwrap().turns, 1);
    second.reset();
    second.shutdown().await;
    // What the first kernel kept is still there: it was not its dialogue that was reset.
    assert_eq!(kernel(&server, folder.path()).resume().await.unwrap().turns, 1);
}

#[tokio::test]
async fn branches_and_marks_come_back_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["ok"])]).await;
    let first = kernel(&server, folder.path());
    ask_in(&first, "a", "one").await.0.unwrap();
    assert!(first.branch("other"));
    ask_in(&first, "b", "two").await.0.unwrap();
    first.mark(&[1], cellblock::chat::Mark::Pin, true).unwrap();
    first.mark(&[2], cellblock::chat::Mark::Hide, true).unwrap();
    first.shutdown().await;
    let second = kernel(&server, folder.path());
    second.resume().await.unwrap();
    let of = |name: &str, turns, present| (name.to_owned(), turns, present);
    assert_eq!(second.branches(), [of("main", 1, false), of("other", 2, true)]);
    let context = second.context(None, "", &[], &Options::default());
    assert_eq!(context.turns[0].marks, ["pinned", "before the restart"]);
    assert_eq!(context.turns[1].marks, ["hidden", "before the restart"]);
    assert!(!second.branch("main"));
    assert_eq!(second.context(None, "", &[], &Options::default()).turns.len(), 1);
}

#[tokio::test]
async fn calls_and_results_come_back_in_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["Looking."]), answer(&["ok"])]).await;
    let first = kernel(&server, folder.path());
    let place = first.begin(Some("a"), "one");
    let (events, mut shown) = event::channel(64);
    tokio::spawn(async move { while shown.recv().await.is_some() {} });
    let (prompt, options) = (Prompt::text("one"), Options::default());
    let turn = Turn { place: &place, prompt: &prompt, context: "", tools: &[], options: &options };
    first.ask(turn, &events, CancellationToken::new()).await.unwrap();
    let call = ToolCall { id: "1".into(), name: "run_code".into(), arguments: "{}".into() };
    let result =
        ToolResult { text: "the result {x}".into(), id: call.id, name: call.name, ..ToolResult::default() };
    first.record_results(&place, vec![result]);
    first.shutdown().await;
    let second = kernel(&server, folder.path());
    second.resume().await.unwrap();
    ask_in(&second, "b", "two").await.0.unwrap();
    let texts = sent(&server, 1);
    assert_eq!(texts[..2], ["one", "Looking."]);
    assert!(texts[2].contains("the result {x}") && texts[2].ends_with("two"), "{texts:?}");
}

#[tokio::test]
async fn keys_are_not_written_down_and_the_files_are_the_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["You said sk-very-secret-key."]), answer(&["Yes."])]).await;
    let settings = cellblock::config::ModelSettings {
        api_key: Some(Secret::new("sk-very-secret-key")),
        ..settings(&server.v1())
    };
    let chat = Chat::new(&settings, environment(&[("ANTHROPIC_API_KEY", "sk-another-secret")]))
        .keeping(&keeping(folder.path()));
    ask_in(&chat, "a", "print('sk-very-secret-key', 'sk-another-secret')").await.0.unwrap();
    // The list of turns has its first 80 characters, with the beginning of a key at their end.
    ask_in(&chat, "b", &format!("{} sk-very-secret-key", "x".repeat(62))).await.0.unwrap();
    chat.record_line(1, "x = 'sk-very-secret-key'".to_owned(), Some("sk-another-secret".to_owned()));
    chat.shutdown().await;
    let data = folder.path().join("data");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    let mut seen = 0;
    for file in std::fs::read_dir(&data).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        let bytes = std::fs::read(&path).unwrap();
        let holds = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
        assert!(!holds(b"sk-very-s") && !holds(b"sk-another-secret"), "{}", path.display());
        seen += usize::from(holds(b"You said ***"));
    }
    assert!(seen > 0, "what was said is there");
}

#[tokio::test]
async fn history_is_served_over_all_kernels_of_the_notebook() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["ok"])]).await;
    let first = kernel(&server, folder.path());
    for (line, input) in (1..).zip(["x = 1", "print(x)", "x = 1"]) {
        first.record_line(line, input.to_owned(), (line == 2).then(|| "1".to_owned()));
    }
    first.shutdown().await;
    let elsewhere = Keeping { notebook: Some(folder.path().join("other.ipynb")), ..keeping(folder.path()) };
    let other = chat(&settings(&server.v1())).keeping(&elsewhere);
    other.record_line(1, "another notebook's".to_owned(), None);
    other.shutdown().await;
    let second = kernel(&server, folder.path());
    second.record_line(1, "x[0]".to_owned(), None);
    second.record_line(1, "x[0]".to_owned(), Some("one line, told twice".to_owned()));

    let inputs = async |access, most, unique| {
        let found = second.history(HistoryQuery { access, most, unique }).await.unwrap();
        found.into_iter().map(|entry| entry.input).collect::<Vec<_>>()
    };
    assert_eq!(inputs(HistoryAccess::Tail, 3, false).await, ["print(x)", "x = 1", "x[0]"]);
    assert_eq!(inputs(HistoryAccess::Tail, 0, false).await, [""; 0]);
    let search = |pattern: &str| HistoryAccess::Search(pattern.to_owned());
    assert_eq!(inputs(search("x*"), 10, false).await, ["x = 1", "x = 1", "x[0]"]);
    assert_eq!(inputs(search("x*"), 10, true).await, ["x = 1", "x[0]"]);
    assert_eq!(inputs(search("x[*"), 10, true).await, ["x[0]"]);
    let range = |session, start, stop| HistoryAccess::Range { session, start, stop };
    assert_eq!(inputs(range(0, 1, None), 0, false).await, ["x[0]"]);
    assert_eq!(inputs(range(-1, 1, Some(3)), 0, false).await, ["x = 1", "print(x)"]);
    assert_eq!(inputs(range(-1, -1, None), 0, false).await, ["x = 1"]);
    for session in [-2, -3, i64::MIN, i64::MAX] {
        assert_eq!(inputs(range(session, i64::MIN, None), 0, false).await, [""; 0], "{session}");
    }
    let all =
        second.history(HistoryQuery { access: HistoryAccess::Tail, most: 2, unique: false }).await.unwrap();
    assert_eq!(all[1].output.as_deref(), Some("one line, told twice"));
    assert!(all[0].session < all[1].session && (all[0].line, all[1].line) == (3, 1));
}

#[tokio::test]
async fn the_user_is_told_once_when_stale_turns_are_sent() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["ok"])]).await;
    let chat = kernel(&server, folder.path());
    ask_in(&chat, "a", "one").await.0.unwrap();
    ask_in(&chat, "b", "two").await.0.unwrap();
    ask_in(&chat, "a", "eins").await.0.unwrap();
    let (_, told) = ask_in(&chat, "c", "three").await;
    assert!(told.iter().any(|text| text.starts_with("Turn 2 was answered before")), "{told:?}");
    let (_, told) = ask_in(&chat, "d", "four").await;
    assert!(told.is_empty(), "{told:?}");
    chat.forget(&["b".to_owned()]);
    ask_in(&chat, "e", "five").await.0.unwrap();
    assert_eq!(sent(&server, 5), ["eins", "ok", "three", "ok", "four", "ok", "five"]);
}

#[tokio::test]
async fn a_question_that_failed_stays_and_is_not_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![error("400 Bad Request", "", "no"), answer(&["ok"])]).await;
    let first = kernel(&server, folder.path());
    ask_in(&first, "a", "one").await.0.unwrap_err();
    first.shutdown().await;
    let second = kernel(&server, folder.path());
    assert_eq!(second.resume().await.unwrap().turns, 1);
    ask_in(&second, "b", "two").await.0.unwrap();
    assert_eq!(sent(&server, server.asked().len() - 1), ["two"]);
    let context = second.context(None, "", &[], &Options::default());
    let turn = &context.turns[0];
    assert_eq!((turn.label.as_str(), turn.sent), ("one", false));
    assert!(turn.marks.contains(&"not answered, not sent") && !turn.marks.contains(&"no room"), "{turn:?}");
    assert_eq!(server.asked().last().unwrap().body["messages"][0]["role"], Value::from("system"));
}

#[tokio::test]
async fn a_database_that_others_could_read_is_taken_from_them() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["ok"])]).await;
    let first = kernel(&server, folder.path());
    ask_in(&first, "a", "one").await.0.unwrap();
    // While the first kernel has it open, its log lies beside it.
    while !folder.path().join("data/dialogues.sqlite-wal").exists() {
        tokio::task::yield_now().await;
    }
    let files = || std::fs::read_dir(folder.path().join("data")).unwrap().map(|file| file.unwrap().path());
    for file in files() {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    let second = kernel(&server, folder.path());
    ask_in(&second, "b", "two").await.0.unwrap();
    second.shutdown().await;
    assert!(files().count() >= 3, "{:?}", files().collect::<Vec<_>>());
    for file in files() {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    first.shutdown().await;
}

#[tokio::test]
async fn the_dialogue_follows_the_notebooks_file_when_cells_run_out_of_order_and_are_moved() {
    let folder = tempfile::tempdir().unwrap();
    let write = |order: &[&str]| {
        let cells: Vec<_> =
            order.iter().map(|id| serde_json::json!({"id": id, "source": [format!("ask {id}")]})).collect();
        let text = serde_json::json!({"cells": cells, "nbformat": 4}).to_string();
        std::fs::write(folder.path().join("n.ipynb"), text).unwrap();
    };
    write(&["a", "b", "c"]);
    let server = Server::play(["1", "2", "3", "4"].map(|text| answer(&[text])).to_vec()).await;
    let chat = kernel(&server, folder.path());
    ask_in(&chat, "c", "ask c").await.0.unwrap();
    ask_in(&chat, "a", "ask a").await.0.unwrap();
    ask_in(&chat, "b", "ask b").await.0.unwrap();
    assert_eq!(sent(&server, 1), ["ask a"], "what stands below is not sent");
    assert_eq!(sent(&server, 2), ["ask a", "2", "ask b"]);
    write(&["c", "b", "a", "d"]);
    ask_in(&chat, "d", "ask d").await.0.unwrap();
    assert_eq!(sent(&server, 3), ["ask c", "1", "ask b", "3", "ask a", "2", "ask d"]);
}
