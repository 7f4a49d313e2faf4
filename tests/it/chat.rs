//! The chat on the wire: what is asked, what is shown, what is remembered.

use cellblock::chat::{Chat, Options, Prompt, Ran, Turn};
use cellblock::event::{self, Answer, Ending, Event};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::chat_server::*;

#[tokio::test]
async fn an_answer_streams_with_its_beginning_its_parts_its_end_and_its_usage() {
    let server = Server::play(vec![answer(&["The capital", " is **Paris**."])]).await;
    let mut settings = settings(&server.v1());
    settings.name = Some("Qwen/Qwen3-14B".to_owned());
    settings.temperature = Some(0.5);
    settings.max_tokens = Some(99);
    settings.system = Some("Answer in {French}.".to_owned());
    let (reply, events) = ask(&chat(&settings), "Capital of $France?").await;

    let reply = reply.expect("an answer");
    assert_eq!(reply.text, "The capital is **Paris**.");
    assert_eq!(reply.ending, Ending::Complete);
    assert_eq!(reply.model.as_deref(), Some("openai/Qwen/Qwen3-14B"));
    assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (Some(11), Some(7)));
    assert!(reply.usage.first_token.is_some_and(|first| first <= reply.usage.duration));
    let [Event::Answer(start), middle @ .., Event::Answer(end)] = events.as_slice() else {
        panic!("{events:#?}")
    };
    assert!(matches!(start, Answer::Start { model, .. } if model == "openai/Qwen/Qwen3-14B"));
    assert_eq!(texts(middle), ["The capital", " is **Paris**."]);
    assert!(matches!(end, Answer::End { ending: Ending::Complete, usage, .. } if *usage == reply.usage));

    let asked = server.only();
    assert_eq!(asked.target(), "POST /v1/chat/completions");
    assert_eq!(asked.header("authorization"), None, "no key, no header");
    assert_eq!(asked.body["model"], "Qwen/Qwen3-14B");
    assert_eq!(asked.body["stream"], true);
    assert_eq!(asked.body["stream_options"]["include_usage"], true);
    assert_eq!(asked.body["temperature"], 0.5);
    assert_eq!(asked.body["max_tokens"], 99);
    let messages = asked.body["messages"].as_array().expect("messages");
    assert_eq!(messages.len(), 2);
    let system = messages[0]["content"].as_str().expect("a system prompt");
    assert!(system.contains("Python 3.11 without network.") && system.ends_with("Answer in {French}."));
    assert_eq!(messages[1], json!({"role": "user", "content": "Capital of $France?"}));
}

#[tokio::test]
async fn characters_split_between_packets_arrive_whole() {
    let event = chunk(&json!({"content": "naïve 🦀 text"}), None).into_bytes();
    let mut script = vec![streaming()];
    for byte in &event {
        script.extend([Step::Send(vec![*byte]), Step::Pause(1)]);
    }
    script.extend([stop("stop"), done()]);
    let server = Server::play(vec![script]).await;
    let (reply, events) = ask(&chat(&settings(&server.v1())), "?").await;
    assert_eq!(reply.expect("an answer").text, "naïve 🦀 text");
    assert_eq!(texts(&events).concat(), "naïve 🦀 text");
}

#[tokio::test]
async fn inline_reasoning_is_shown_apart_and_not_remembered() {
    let first = ["<th", "ink>let me", " see</thi", "nk>\n\nIt is ", "4."];
    let server = Server::play(vec![answer(&first), answer(&["5."])]).await;
    let chat = chat(&settings(&server.v1()));
    let (reply, events) = ask(&chat, "2+2?").await;
    assert_eq!(reply.expect("an answer").text, "It is 4.");
    let reasoning: String = events
        .iter()
        .filter_map(|event| match event {
            Event::Answer(Answer::Reasoning { delta, .. }) => Some(delta.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reasoning, "let me see");
    ask(&chat, "2+3?").await.0.expect("an answer");
    assert_eq!(server.asked()[1].body["messages"][2]["content"], "It is 4.");
}

#[tokio::test]
async fn reasoning_sent_apart_by_the_server_is_shown_apart() {
    let thought = send(chunk(&json!({"reasoning_content": "hmm"}), None));
    let server = Server::play(vec![vec![streaming(), thought, text("yes"), stop("stop"), done()]]).await;
    let (reply, events) = ask(&chat(&settings(&server.v1())), "?").await;
    assert_eq!(reply.expect("an answer").text, "yes");
    assert!(
        events.iter().any(|e| matches!(e, Event::Answer(Answer::Reasoning { delta, .. }) if delta == "hmm"))
    );
}

#[tokio::test]
async fn the_dialogue_follows_the_cells_with_their_code_and_its_outcome() {
    let server = Server::play(vec![answer(&["one"]), answer(&["two"]), answer(&["three"])]).await;
    let chat = chat(&settings(&server.v1()));
    let (events, mut shown) = event::channel(64);
    tokio::spawn(async move { while shown.recv().await.is_some() {} });
    let put = async |cell: &str, ran: Option<&str>, prompt: &str| {
        let place = chat.begin(Some(cell), "");
        if let Some(source) = ran {
            let (language, outcome) = ("python".to_owned(), "NameError: {x}".to_owned());
            chat.record_run(
                &place,
                Ran { language, source: source.to_owned(), outcome, failed: true, images: Vec::new() },
            );
        }
        let (prompt, options) = (Prompt::text(prompt), Options::default());
        let turn = Turn { place: &place, prompt: &prompt, context: "", tools: &[], options: &options };
        chat.ask(turn, &events, CancellationToken::new()).await.expect("an answer")
    };
    put("a", None, "first").await;
    put("b", Some("print(x)"), "why?").await;
    put("a", None, "first, again").await;

    let asked = server.asked();
    let second = asked[1].body["messages"].as_array().expect("messages");
    assert_eq!(
        second[1..3],
        [json!({"role": "user", "content": "first"}), json!({"role": "assistant", "content": "one"})]
    );
    let question = second[3]["content"].as_str().expect("the question");
    assert!(question.contains("```python\nprint(x)\n```") && question.contains("NameError: {x}"));
    assert!(question.ends_with("why?"));
    // Cell `a` stands before `b`: when it runs again, nothing that came later is before it.
    assert_eq!(asked[2].body["messages"].as_array().expect("messages").len(), 2);
}

#[tokio::test]
async fn an_interrupt_ends_the_stream_and_keeps_what_was_shown() {
    let script = vec![streaming(), text("as far as "), text("here"), Step::Hang];
    let mut server = Server::play(vec![script, answer(&["ok"])]).await;
    let chat = chat(&settings(&server.v1()));
    let (reply, events) = ask_until(&chat, "go", |events| texts(events).len() == 2).await;
    let reply = reply.expect("a part of an answer");
    assert_eq!((reply.text.as_str(), reply.ending), ("as far as here", Ending::Interrupted));
    assert!(matches!(events.last(), Some(Event::Answer(Answer::End { ending: Ending::Interrupted, .. }))));
    server.ended(1).await;
    // The model knows what the user saw of it.
    ask(&chat, "on").await.0.expect("an answer");
    let before = server.asked()[1].body["messages"][2]["content"].to_string();
    assert!(before.contains("as far as here") && before.contains("interrupted"), "{before}");
}

#[tokio::test]
async fn an_interrupt_before_the_first_byte_ends_the_request() {
    let mut server = Server::play(vec![vec![Step::Hang]]).await;
    let chat = chat(&settings(&server.v1()));
    // The line "waiting for ... to begin" appears after some seconds and is what fires the interrupt.
    let (reply, events) = ask_until(&chat, "go", |events| !events.is_empty()).await;
    let reply = reply.expect("an interruption is no failure");
    assert_eq!((reply.text.as_str(), reply.ending), ("", Ending::Interrupted));
    let lines = progress(&events);
    assert!(lines[0].contains("waiting for openai/m"), "{lines:?}");
    assert_eq!(lines.last(), Some(&""), "the line is taken away");
    server.ended(1).await;
}

#[tokio::test]
async fn a_surface_that_went_away_ends_the_stream() {
    let mut script = vec![streaming()];
    script.extend(std::iter::repeat_n(text("x"), 50));
    script.push(Step::Hang);
    let mut server = Server::play(vec![script]).await;
    let chat = chat(&settings(&server.v1()));
    let (events, shown) = event::channel(1);
    drop(shown);
    let place = chat.begin(None, "");
    let (prompt, options) = (Prompt::text("?"), Options::default());
    let turn = Turn { place: &place, prompt: &prompt, context: "", tools: &[], options: &options };
    let reply = chat.ask(turn, &events, CancellationToken::new()).await.expect("an end");
    assert_eq!(reply.ending, Ending::Interrupted);
    server.ended(1).await;
}

#[tokio::test]
async fn ways_to_finish_are_told_apart() {
    let whole = |reason: &str| vec![streaming(), text("so far"), stop(reason), done()];
    let scripts = vec![
        whole("length"),
        whole("content_filter"),
        whole("abort"),
        whole("eos"),
        vec![streaming(), text("so far"), done()],
        vec![streaming(), text("so far"), stop("stop")],
    ];
    let server = Server::play(scripts).await;
    let chat = chat(&settings(&server.v1()));
    let mut endings = Vec::new();
    for _ in 0..6 {
        let reply = ask(&chat, "?").await.0.expect("an answer");
        assert_eq!(reply.text, "so far");
        endings.push(reply.ending);
    }
    let cut = |at: usize, word: &str| matches!(&endings[at], Ending::Cut(why) if why.contains(word));
    assert!(cut(0, "max_tokens") && cut(1, "filter") && cut(2, "abort"), "{endings:?}");
    assert_eq!(endings[3..], [Ending::Complete, Ending::Complete, Ending::Complete]);
}

#[tokio::test]
async fn a_server_that_knows_only_old_fields_is_asked_again_without_the_new_ones() {
    let refusal = error("400 Bad Request", "", "Unrecognized request argument supplied: stream_options");
    let server = Server::play(vec![refusal, answer(&["ok"]), answer(&["ok"])]).await;
    let chat = chat(&settings(&server.v1()));
    ask(&chat, "?").await.0.expect("an answer");
    ask(&chat, "?").await.0.expect("an answer");
    let asked = server.asked();
    assert_eq!(asked.len(), 3, "the second question knows already");
    assert!(asked[0].body.get("stream_options").is_some());
    assert!(asked[1..].iter().all(|asked| asked.body.get("stream_options").is_none()));
}

#[tokio::test]
async fn a_document_instead_of_a_stream_is_an_answer_too() {
    let document = json!({
        "id": "c1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "all\nat once"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
    });
    let server = Server::play(vec![json("200 OK", "", &document)]).await;
    let reply = ask(&chat(&settings(&server.v1())), "?").await.0.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.usage.output_tokens), ("all\nat once", Some(4)));
}

#[tokio::test]
async fn a_stream_without_a_content_type_is_read() {
    let mut script = answer(&["ok"]);
    script[0] = head("200 OK", "");
    let server = Server::play(vec![script]).await;
    assert_eq!(ask(&chat(&settings(&server.v1())), "?").await.0.expect("an answer").text, "ok");
}

#[tokio::test]
async fn an_empty_answer_is_said_to_be_empty() {
    let server = Server::play(vec![answer(&[])]).await;
    let (reply, events) = ask(&chat(&settings(&server.v1())), "?").await;
    assert_eq!(reply.expect("an answer").ending, Ending::Complete);
    assert!(
        events.iter().any(|e| matches!(e, Event::Notice(n) if n.text.contains("without any text"))),
        "{events:?}"
    );
}

#[tokio::test]
async fn old_turns_are_left_out_with_a_notice() {
    let long = "x".repeat(100_000);
    let server = Server::play(vec![answer(&["ok"])]).await;
    let chat = chat(&settings(&server.v1()));
    let mut notices = Vec::new();
    for _ in 0..4 {
        let (reply, events) = ask(&chat, &long).await;
        reply.expect("an answer");
        notices.extend(events.into_iter().filter_map(|event| match event {
            Event::Notice(notice) => Some(notice.text),
            _ => None,
        }));
    }
    assert!(
        notices.iter().any(|text| text.contains("no longer sent") && text.contains("%reset")),
        "{notices:?}"
    );
    let sent = server.asked()[3].body.to_string().len();
    assert!(sent < 300_000, "{sent} bytes were sent");
}

#[test]
fn a_chat_that_was_never_asked_needs_no_runtime() {
    let chat: Chat = chat(&settings("http://127.0.0.1:9/v1"));
    assert_eq!(chat.current().as_deref(), Some("openai/m"));
    chat.reset();
    assert!(chat.known_names().contains(&"m".to_owned()));
}
