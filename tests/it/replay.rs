//! Recorded replies: recorded on the wire, given again without one, found by what was asked, kept whole.

use std::path::{Path, PathBuf};
use std::process::Command;

use cellblock::chat::cost::Catalog;
use cellblock::chat::{Chat, ChatError, Prompt, ProviderEnvironment, Reply, ToolResult};
use cellblock::config::{BudgetSettings, Flavor, ModelSettings, Replay, Secret};
use cellblock::event::{Answer, Ending, Event};
use serde_json::{Value, json};

use crate::cells::Kernel;
use crate::chat_server::*;

fn recording(base_url: &str, mode: Replay, folder: &Path) -> Chat {
    let settings = ModelSettings { replay: mode, ..settings(base_url) };
    chat(&settings).recording(Some(&folder.join("book.ipynb")), folder)
}

/// No server is there, and no key.
fn offline(folder: &Path) -> Chat {
    recording("http://127.0.0.1:1/v1", Replay::Replay, folder)
}

fn sidecar(folder: &Path) -> PathBuf {
    folder.join("book.replies.jsonl")
}

fn lines(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(sidecar(folder)).expect("a recording");
    assert!(text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// What was shown, without what names or times it.
fn shown(events: &[Event]) -> Vec<String> {
    let shown = events.iter().filter_map(|event| match event {
        Event::Answer(Answer::Start { model, .. }) => Some(format!("start {model}")),
        Event::Answer(Answer::Text { delta, .. }) => Some(format!("text {delta}")),
        Event::Answer(Answer::Reasoning { delta, .. }) => Some(format!("reasoning {delta}")),
        Event::Answer(Answer::End { ending, usage, .. }) => {
            Some(format!("end {ending:?} {:?} {:?}", usage.input_tokens, usage.output_tokens))
        }
        Event::Notice(notice) if notice.progress.is_none() => Some(format!("notice {}", notice.text)),
        _ => None,
    });
    shown.collect()
}

/// A turn in which the model calls a tool and goes on; the call came to this.
async fn two_steps(chat: &Chat, result: &str) -> (Vec<Reply>, Vec<String>) {
    let place = chat.begin(Some("c1"), "What is 2 + 2?");
    let prompt = Prompt::text("What is 2 + 2?");
    let (first, mut events) = ask_at(chat, &place, &prompt, &tools(), |_| false).await;
    let first = first.expect("an answer");
    let told = ToolResult {
        id: first.calls[0].id.clone(),
        name: "run_code".to_owned(),
        text: result.to_owned(),
        ..ToolResult::default()
    };
    chat.record_results(&place, vec![told]);
    let (second, more) = ask_at(chat, &place, &prompt, &tools(), |_| false).await;
    events.extend(more);
    (vec![first, second.expect("an answer")], shown(&events))
}

fn scripts() -> Vec<Vec<Step>> {
    let first = vec![
        streaming(),
        send(chunk(&json!({"reasoning_content": "hmm"}), None)),
        text("I com"),
        text("pute."),
        call(0, "call_1", "run_code", ""),
        call(0, "", "", r#"{"code": "2 +"#),
        call(0, "", "", r#" 2"}"#),
        stop("tool_calls"),
        usage(20, 9),
        done(),
    ];
    vec![first, answer(&["It is ", "4."])]
}

#[tokio::test]
async fn a_turn_of_several_steps_is_given_again_piece_by_piece_without_network_or_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::play(scripts()).await;
    let live = recording(&server.v1(), Replay::Record, folder.path());
    let (replies, seen) = two_steps(&live, "4 in 3.1 ms, <A at 0x7f0011223344>").await;
    assert_eq!(server.asked().len(), 2);

    // Another kernel, another time and another address in memory.
    let (again, seen_again) = two_steps(&offline(folder.path()), "4 in 12 ms, <A at 0x7f99aabbccdd>").await;
    assert_eq!(seen, seen_again);
    for (first, second) in replies.iter().zip(&again) {
        assert_eq!((&first.text, &first.calls, &first.model), (&second.text, &second.calls, &second.model));
        assert_eq!(first.usage.output_tokens, second.usage.output_tokens);
        assert_eq!(first.could_call, second.could_call);
        assert_eq!(second.usage.first_token, None, "how long it took says nothing");
    }
    assert_eq!(server.asked().len(), 2, "nobody was asked");
}

#[tokio::test]
async fn recordings_are_found_where_the_notebook_is_not_known() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::play(vec![answer(&["ok"])]).await;
    ask(&recording(&server.v1(), Replay::Record, folder.path()), "hi").await.0.expect("an answer");
    let settings = ModelSettings { replay: Replay::Replay, ..settings("http://127.0.0.1:1/v1") };
    let chat = chat(&settings).recording(None, folder.path());
    assert_eq!(ask(&chat, "hi").await.0.expect("an answer").text, "ok");
}

#[tokio::test]
async fn what_was_never_recorded_fails_and_says_what_changed() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = ask(&offline(folder.path()), "hi").await.0.expect_err("no answer");
    assert!(
        matches!(&error, ChatError::NotRecorded(text) if text.contains("Nothing was recorded")),
        "{error}"
    );
    assert_eq!(error.failure().ename, "NotRecorded");

    let server = Server::play(vec![answer(&["one"]), answer(&["two"])]).await;
    let live = recording(&server.v1(), Replay::Record, folder.path());
    ask(&live, "first").await.0.expect("an answer");
    ask(&live, "Which month sold most?\nPlot it.").await.0.expect("an answer");

    let chat = offline(folder.path());
    ask(&chat, "first").await.0.expect("an answer");
    let changed = ask(&chat, "Which week sold most?\nPlot it.").await.0.expect_err("no answer").to_string();
    for part in ["message 3", "- Which month sold most?", "+ Which week sold most?", "REPLAY=auto"] {
        assert!(changed.contains(part), "{part}: {changed}");
    }
    assert!(!changed.contains("Plot it.\n"), "{changed}");

    let settings = ModelSettings {
        replay: Replay::Replay,
        name: Some("other".to_owned()),
        temperature: Some(0.5),
        system: Some("Answer in French.".to_owned()),
        ..settings("http://127.0.0.1:1/v1")
    };
    let chat = chat_with(&settings, folder.path());
    let changed = ask(&chat, "first").await.0.expect_err("no answer").to_string();
    for part in [
        "openai/m then, openai/other now",
        "temperature: not set then, 0.5 now",
        "the system prompt",
        "+ Answer in French.",
    ] {
        assert!(changed.contains(part), "{part}: {changed}");
    }
    let place = offline(folder.path());
    let at = place.begin(None, "");
    let changed =
        ask_at(&place, &at, &Prompt::text("first"), &tools(), |_| false).await.0.expect_err("no answer");
    assert!(changed.to_string().contains("the tools: there were none then"), "{changed}");
}

fn chat_with(settings: &ModelSettings, folder: &Path) -> Chat {
    Chat::new(settings, ProviderEnvironment::default()).recording(Some(&folder.join("book.ipynb")), folder)
}

#[tokio::test]
async fn auto_asks_only_for_what_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::play(vec![answer(&["one"]), answer(&["two"])]).await;
    for _ in 0..2 {
        let chat = recording(&server.v1(), Replay::Auto, folder.path());
        assert_eq!(ask(&chat, "first").await.0.expect("an answer").text, "one");
    }
    assert_eq!(server.asked().len(), 1);
    let chat = recording(&server.v1(), Replay::Auto, folder.path());
    assert_eq!(ask(&chat, "second").await.0.expect("an answer").text, "two");
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn cut_replies_and_refusals_are_given_again_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let cut = vec![streaming(), text("half "), Step::Pause(50), Step::Reset];
    let refusal = error("400 Bad Request", "", "I will not answer that.");
    let server = Server::play(vec![cut, refusal]).await;
    let live = recording(&server.v1(), Replay::Record, folder.path());
    let first = ask(&live, "one").await.0.expect("a part");
    let second = ask(&live, "two").await.0.expect_err("a refusal");
    let chat = offline(folder.path());
    let again = ask(&chat, "one").await.0.expect("a part");
    assert_eq!((&first.text, &first.ending), (&again.text, &again.ending));
    assert!(matches!(again.ending, Ending::Cut(_)));
    assert_eq!(ask(&chat, "two").await.0.expect_err("a refusal"), second);
}

#[tokio::test]
async fn an_interrupted_reply_and_a_bad_key_are_not_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let long = vec![streaming(), text("a"), text("b"), Step::Hang];
    let server = Server::play(vec![long, error("401 Unauthorized", "", "bad key")]).await;
    let live = recording(&server.v1(), Replay::Record, folder.path());
    ask_until(&live, "one", |events| !texts(events).is_empty()).await.0.expect("a part");
    ask(&live, "two").await.0.expect_err("no answer");
    assert!(!sidecar(folder.path()).exists());
}

#[tokio::test]
async fn the_file_is_plain_has_each_text_once_and_no_key() {
    const KEY: &str = "sk-secret-123456";
    let folder = tempfile::tempdir().expect("a folder");
    let echo = vec![streaming(), text("your key is sk-sec"), text("ret-123456!"), stop("stop"), done()];
    let server = Server::play(vec![echo, answer(&["ok"])]).await;
    let settings =
        ModelSettings { replay: Replay::Record, api_key: Some(Secret::new(KEY)), ..settings(&server.v1()) };
    let chat = chat_with(&settings, folder.path());
    ask(&chat, &format!("is {KEY} a key?")).await.0.expect("an answer");
    ask(&chat, "and now?").await.0.expect("an answer");
    let text = std::fs::read_to_string(sidecar(folder.path())).expect("a recording");
    assert!(!text.contains(KEY) && !text.contains("123456"), "{text}");
    assert!(text.contains("is *** a key?") && text.contains("your key is ***!"));
    let lines = lines(folder.path());
    let texts: Vec<&Value> = lines.iter().filter(|line| line.get("text").is_some()).collect();
    assert_eq!(texts.len(), 4, "system, question, answer, question: {text}");
    let reply = lines.iter().find(|line| line.get("reply").is_some()).expect("a reply");
    let fields: Vec<&str> = reply.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(fields, ["reply", "cell", "prompt", "model", "by", "asked", "as_text", "says"]);
}

#[tokio::test]
async fn what_is_wrong_in_the_file_is_named_by_line_and_costs_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::play(vec![answer(&["ok"])]).await;
    ask(&recording(&server.v1(), Replay::Record, folder.path()), "hi").await.0.expect("an answer");
    let good = std::fs::read(sidecar(folder.path())).expect("a recording");
    let first = good.split(|byte| *byte == b'\n').count();
    let mut bad = good.clone();
    bad.extend(b"{\"reply\": 7}\n\xff\xfe\n[[[[\n{}\n");
    bad.extend(std::iter::repeat_n(b'x', (16 << 20) + 5));
    bad.push(b'\n');
    bad.extend(&good);
    bad.extend(b"{\"reply\":\"half a li");
    std::fs::write(sidecar(folder.path()), bad).expect("written");
    let (reply, events) = ask(&offline(folder.path()), "hi").await;
    assert_eq!(reply.expect("an answer").text, "ok");
    let notice = shown(&events).into_iter().find(|line| line.starts_with("notice")).expect("a remark");
    for part in
        ["book.replies.jsonl", &format!("line {first}:"), &format!("line {}:", first + 1), "and 3 more"]
    {
        assert!(notice.contains(part), "{part}: {notice}");
    }
    // The next writer ends the half line.
    ask(&recording(&server.v1(), Replay::Record, folder.path()), "hi").await.0.expect("an answer");
    let text = std::fs::read(sidecar(folder.path())).expect("a recording");
    assert!(text.windows(12).any(|part| part == b"half a li\n{\""), "the line was not ended");
}

#[tokio::test]
async fn a_link_is_not_written_through() {
    let folder = tempfile::tempdir().expect("a folder");
    let precious = folder.path().join("precious.txt");
    std::fs::write(&precious, "mine").expect("written");
    std::os::unix::fs::symlink(&precious, sidecar(folder.path())).expect("a link");
    let server = Server::play(vec![answer(&["ok"])]).await;
    let (reply, events) = ask(&recording(&server.v1(), Replay::Record, folder.path()), "hi").await;
    assert_eq!(reply.expect("an answer").text, "ok");
    assert!(shown(&events).iter().any(|line| line.contains("could not be recorded")), "{events:?}");
    assert_eq!(std::fs::read_to_string(&precious).expect("the file"), "mine");
}

#[tokio::test]
async fn kernels_that_record_at_the_same_time_leave_whole_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::play(vec![answer(&["ok ", &"long ".repeat(4000)])]).await;
    let kernels: Vec<Chat> = (0..8).map(|_| recording(&server.v1(), Replay::Record, folder.path())).collect();
    let prompts: Vec<String> = (0..8).map(|n| format!("question {n}")).collect();
    let asks = kernels.iter().zip(&prompts).map(|(chat, prompt)| ask(chat, prompt));
    for (reply, _) in futures_util::future::join_all(asks).await {
        reply.expect("an answer");
    }
    assert_eq!(lines(folder.path()).iter().filter(|line| line.get("reply").is_some()).count(), 8);
    for prompt in &prompts {
        ask(&offline(folder.path()), prompt).await.0.expect("an answer");
    }
}

fn cellblock(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_cellblock"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("CELLBLOCK_CONFIG")
        .output()
        .expect("the program");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[tokio::test]
async fn prune_takes_out_what_no_cell_uses_and_list_shows_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::play(vec![answer(&["ok"])]).await;
    let live = recording(&server.v1(), Replay::Record, folder.path());
    for source in ["keep me", "drop me", "keep me"] {
        live.reset();
        let place = live.begin(Some(source), source);
        ask_at(&live, &place, &Prompt::text(source), &[], |_| false).await.0.expect("an answer");
    }
    let book = |cells: &[&str]| {
        let cells: Vec<Value> =
            cells.iter().map(|source| json!({"cell_type": "code", "source": [source, "\n"]})).collect();
        json!({"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}).to_string()
    };
    let (fine, said) = cellblock(folder.path(), &["replay", "--prune"]);
    assert!(!fine && said.contains("no notebook belongs"), "{said}");
    std::fs::write(folder.path().join("book.ipynb"), "{").expect("written");
    let before = std::fs::read(sidecar(folder.path())).expect("a recording");
    let (fine, said) = cellblock(folder.path(), &["replay", "--prune", "book.ipynb"]);
    assert!(!fine && said.contains("nothing was taken out"), "{said}");
    assert_eq!(std::fs::read(sidecar(folder.path())).expect("a recording"), before);

    std::fs::write(folder.path().join("book.ipynb"), book(&["keep me", "print(1)"])).expect("written");
    let (fine, said) = cellblock(folder.path(), &["replay"]);
    assert!(
        fine && said.contains("unused  openai/m  drop me") && said.contains("used    openai/m  keep me"),
        "{said}"
    );
    let (fine, said) = cellblock(folder.path(), &["replay", "--prune", "book.ipynb"]);
    assert!(fine && said.contains("1 replies stay, 2 were taken out"), "{said}");
    let text = std::fs::read_to_string(sidecar(folder.path())).expect("a recording");
    assert!(text.contains("keep me") && !text.contains("drop me"), "{text}");

    // A kernel that did not know its notebook recorded for all of the folder.
    std::fs::write(folder.path().join("other.ipynb"), book(&["print(2)"])).expect("written");
    let (fine, said) = cellblock(folder.path(), &["replay", "--prune", "other.ipynb"]);
    assert!(!fine && said.contains("neither other.replies.jsonl nor replies.jsonl is beside it"), "{said}");
    std::fs::copy(sidecar(folder.path()), folder.path().join("replies.jsonl")).expect("copied");
    let (fine, said) = cellblock(folder.path(), &["replay", "--prune", "other.ipynb"]);
    assert!(fine && said.contains("1 replies stay, 0 were taken out"), "another notebook uses it: {said}");
    std::fs::remove_file(folder.path().join("replies.jsonl")).expect("removed");
    let chat = offline(folder.path());
    let place = chat.begin(None, "keep me");
    ask_at(&chat, &place, &Prompt::text("keep me"), &[], |_| false).await.0.expect("an answer");
}

/// A kernel that records into, or replays from, `replies.jsonl` in that folder.
fn kernel(base_url: &str, mode: Replay, folder: &Path, budget: &BudgetSettings) -> Kernel {
    let settings = ModelSettings { replay: mode, ..settings(base_url) };
    Kernel::with(Flavor::Markdown, None, |parts| {
        parts.chat = Chat::new(&settings, ProviderEnvironment::default())
            .with_costs(Catalog::default(), budget)
            .recording(None, folder);
        parts.habits.footer = true;
    })
}

#[tokio::test]
async fn a_recorded_reply_says_so_and_is_not_charged() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::play(vec![answer(&["ok"])]).await;
    let live = kernel(&server.v1(), Replay::Record, folder.path(), &BudgetSettings::default());
    let ran = live.run("Hello?").await.succeeded();
    assert!(!ran.remarks().contains("recorded"), "{}", ran.remarks());

    let file = folder.path().join("replies.jsonl");
    let text = std::fs::read_to_string(&file).expect("a recording");
    let dear = text.replace("\"input\":11", "\"input\":18446744073709551615");
    assert_ne!(text, dear, "{text}");
    std::fs::write(&file, dear).expect("written");
    let budget = BudgetSettings { tokens: Some(1), steps: Some(1), ..BudgetSettings::default() };
    let again = kernel("http://127.0.0.1:1/v1", Replay::Replay, folder.path(), &budget);
    let ran = again.run("Hello?").await.succeeded();
    assert!(ran.remarks().starts_with("openai/m · recorded"), "{}", ran.remarks());
    assert!(!ran.remarks().contains("18,446"), "{}", ran.remarks());
    let figures = &ran.outcome.metadata["cellblock_usage"];
    assert_eq!((&figures["recorded"], &figures["replies"]), (&json!(1), &json!(1)));
    assert_eq!(figures["input_tokens"], 0);
    // A budget of one reply is not used up.
    assert_eq!(again.run("And now?").await.failure().ename, "NotRecorded");
}

#[tokio::test]
async fn a_name_that_is_no_plain_line_makes_the_line_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::play(vec![answer(&["ok"])]).await;
    ask(&recording(&server.v1(), Replay::Record, folder.path()), "hi").await.0.expect("an answer");
    let text = std::fs::read_to_string(sidecar(folder.path())).expect("a recording");
    for by in ["openai/m\\nnothing was spent".to_owned(), "\\u202e".to_owned(), "x".repeat(201)] {
        let changed = text.replace("\"by\":\"openai/m\"", &format!("\"by\":\"{by}\""));
        assert_ne!(text, changed);
        std::fs::write(sidecar(folder.path()), changed).expect("written");
        let (reply, events) = ask(&offline(folder.path()), "hi").await;
        reply.expect_err("no answer");
        assert!(shown(&events).iter().any(|line| line.contains("`by` is no model's name")), "{events:?}");
    }
}

#[tokio::test]
async fn nothing_is_added_to_a_file_that_is_no_recording() {
    let server = Server::play(vec![answer(&["ok"])]).await;
    for before in ["{\"cells\": [], \"nbformat\": 4}\n", "[model]\n", "{\n \"reply\": 1}", "\n"] {
        let folder = tempfile::tempdir().expect("a folder");
        let precious = folder.path().join("n.ipynb");
        std::fs::write(&precious, before).expect("written");
        let settings = ModelSettings {
            replay: Replay::Record,
            replay_file: Some(precious.clone()),
            ..settings(&server.v1())
        };
        let (reply, events) = ask(&chat(&settings).recording(None, folder.path()), "hi").await;
        assert_eq!(reply.expect("an answer").text, "ok");
        assert!(shown(&events).iter().any(|line| line.contains("does not begin with a recorded reply")));
        assert_eq!(std::fs::read_to_string(&precious).expect("the file"), before);
    }
    // An empty one is begun.
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(sidecar(folder.path()), "").expect("written");
    ask(&recording(&server.v1(), Replay::Record, folder.path()), "hi").await.0.expect("an answer");
    assert_eq!(lines(folder.path()).len(), 3);
}

#[tokio::test]
async fn prune_leaves_alone_what_is_no_recording_and_what_a_newer_cellblock_wrote() {
    let folder = tempfile::tempdir().expect("a folder");
    let book = json!({"cells": [{"cell_type": "code", "source": "hi"}]}).to_string();
    for name in [".ipynb", "book.ipynb"] {
        std::fs::write(folder.path().join(name), &book).expect("written");
    }
    for (name, why) in [
        ("data.csv", "neither a notebook nor a recording"),
        (".replies.jsonl", "neither a notebook nor a recording"),
        ("bookreplies.jsonl", "neither a notebook nor a recording"),
        ("book.replies.jsonl", "no line of it is a recorded reply"),
        ("replies.jsonl", "no line of it is a recorded reply"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, "a,b\n1,2\n").expect("written");
        let (fine, said) = cellblock(folder.path(), &["replay", "--prune", name]);
        assert!(!fine && said.contains(why), "{name}: {said}");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), "a,b\n1,2\n", "{name}");
        std::fs::remove_file(path).expect("removed");
    }

    let server = Server::play(vec![answer(&["ok"])]).await;
    let live = recording(&server.v1(), Replay::Record, folder.path());
    let place = live.begin(Some("c"), "hi");
    ask_at(&live, &place, &Prompt::text("hi"), &[], |_| false).await.0.expect("an answer");
    let good = std::fs::read_to_string(sidecar(folder.path())).expect("a recording");
    let newer = "{ \"tomorrow\": [1,  2] }\n{\"reply\": {\"of\": \"another form\"}}\n";
    let known = good.replace("\"by\":", "\"colour\":\"red\",\"by\":");
    std::fs::write(sidecar(folder.path()), format!("{known}{newer}half a li")).expect("written");
    let (fine, said) = cellblock(folder.path(), &["replay", "--prune", "book.replies.jsonl"]);
    assert!(fine && said.contains("1 replies stay, 0 were taken out, 1 lines"), "{said}");
    let text = std::fs::read_to_string(sidecar(folder.path())).expect("a recording");
    assert_eq!(text, format!("{known}{newer}"));
}

#[test]
fn pipes_and_links_are_not_waited_for_and_names_do_not_reach_the_terminal_as_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = Command::new("mkfifo").arg(folder.path().join("f.ipynb")).status().expect("mkfifo");
    assert!(made.success());
    std::os::unix::fs::symlink("f.ipynb", folder.path().join("g.ipynb")).expect("a link");
    for (name, why) in [("f.ipynb", "not a regular file"), ("g.ipynb", "g.ipynb")] {
        let (fine, said) = cellblock(folder.path(), &["replay", "--list", name]);
        assert!(!fine && said.contains(why), "{said}");
    }
    let odd = "a\u{1b}[31mb";
    std::fs::write(folder.path().join(format!("{odd}.ipynb")), "{\"cells\": []}").expect("written");
    std::fs::write(folder.path().join(format!("{odd}.replies.jsonl")), "what\n").expect("written");
    for what in ["--list", "--prune"] {
        let (_, said) = cellblock(folder.path(), &["replay", what]);
        assert!(said.contains("[31mb.replies.jsonl") && !said.contains('\u{1b}'), "{said:?}");
    }
}

#[tokio::test]
async fn only_recordings_that_may_be_the_notebooks_are_read_and_not_more_than_fits() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::play(vec![answer(&["ok"])]).await;
    ask(&recording(&server.v1(), Replay::Record, folder.path()), "hi").await.0.expect("an answer");
    // Whole, it would fit; with the notebook's own it does not.
    let large = std::fs::File::create(folder.path().join("replies.jsonl")).expect("a file");
    large.set_len(256 << 20).expect("its length");
    let (reply, events) = ask(&offline(folder.path()), "hi").await;
    assert_eq!(reply.expect("an answer").text, "ok");
    assert!(shown(&events).iter().any(|line| line.contains("more than 256 MiB")), "{events:?}");

    std::fs::remove_file(folder.path().join("replies.jsonl")).expect("removed");
    std::fs::rename(sidecar(folder.path()), folder.path().join("zz.replies.jsonl")).expect("renamed");
    ask(&offline(folder.path()), "hi").await.0.expect_err("another notebook's");
}
