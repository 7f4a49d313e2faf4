//! The chat when its server fails: retries, refusals, cut streams, silence, wrong answers.

use std::time::{Duration, Instant};

use cellblock::chat::{Attachment, ChatError, Content, Image, Keeping, Prompt};
use cellblock::config::ModelSettings;
use cellblock::event::{Answer, Ending, Event};

use crate::chat_server::*;

fn shows_no_answer(events: &[Event]) -> bool {
    !events.iter().any(|event| matches!(event, Event::Answer(_)))
}

#[tokio::test]
async fn a_busy_server_is_tried_again_after_the_time_it_asks_for_and_the_wait_is_visible() {
    let busy = error("429 Too Many Requests", "retry-after: 1\r\n", "slow down");
    let past = error("503 Service Unavailable", "retry-after: Fri, 06 Nov 2020 08:49:37 GMT\r\n", "");
    let server = Server::play(vec![busy, past, answer(&["ok"])]).await;
    let began = Instant::now();
    let (reply, events) = ask(&chat(&settings(&server.v1())), "?").await;
    assert_eq!(reply.expect("an answer").text, "ok");
    assert!(began.elapsed() >= Duration::from_secs(1), "the server's wish was not honoured");
    assert_eq!(server.asked().len(), 3);
    let lines = progress(&events);
    assert!(lines[0].contains("429") && lines[0].contains("try 2 of 4"), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("503") && line.contains("try 3 of 4")), "{lines:?}");
    assert_eq!(lines.last(), Some(&""), "the line is taken away");
}

#[tokio::test]
async fn a_server_that_asks_for_too_long_a_wait_is_not_waited_for() {
    let server =
        Server::play(vec![error("429 Too Many Requests", "retry-after: 3600\r\n", "quota used up")]).await;
    let (reply, events) = ask(&chat(&settings(&server.v1())), "?").await;
    let Err(ChatError::Busy(text)) = reply else { panic!("{reply:?}") };
    assert!(text.contains("3600 s") && text.contains("quota used up"), "{text}");
    assert_eq!(server.asked().len(), 1);
    assert!(shows_no_answer(&events));
}

#[tokio::test]
async fn a_server_that_keeps_failing_is_tried_four_times() {
    let server = Server::play(vec![error("502 Bad Gateway", "", "upstream is down")]).await;
    let (reply, _) = ask(&chat(&settings(&server.v1())), "?").await;
    let Err(ChatError::Busy(text)) = reply else { panic!("{reply:?}") };
    assert!(text.contains("4 times") && text.contains("upstream is down"), "{text}");
    assert_eq!(server.asked().len(), 4);
}

#[tokio::test]
async fn a_connection_broken_before_the_first_byte_is_tried_again() {
    let server = Server::play(vec![vec![Step::Reset], vec![streaming(), Step::Reset], answer(&["ok"])]).await;
    let (reply, _) = ask(&chat(&settings(&server.v1())), "?").await;
    assert_eq!(reply.expect("an answer").text, "ok");
}

#[tokio::test]
async fn a_wait_can_be_interrupted() {
    let server = Server::play(vec![error("429 Too Many Requests", "retry-after: 20\r\n", "")]).await;
    let began = Instant::now();
    let chat = chat(&settings(&server.v1()));
    let (reply, events) = ask_until(&chat, "?", |events| !events.is_empty()).await;
    assert_eq!(reply.expect("no failure").ending, Ending::Interrupted);
    assert!(began.elapsed() < Duration::from_secs(15), "the wait went on");
    assert_eq!(server.asked().len(), 1);
    assert_eq!(progress(&events).last(), Some(&""));
}

#[tokio::test]
async fn nothing_is_tried_again_after_text_was_shown() {
    for end in [vec![Step::Reset], vec![]] {
        let mut script = vec![streaming(), text("half an "), text("answer"), Step::Pause(100)];
        script.extend(end);
        let server = Server::play(vec![script]).await;
        let (reply, events) = ask(&chat(&settings(&server.v1())), "?").await;
        let reply = reply.expect("a part of an answer");
        assert_eq!(reply.text, "half an answer");
        assert!(matches!(&reply.ending, Ending::Cut(why) if !why.is_empty()), "{:?}", reply.ending);
        assert!(matches!(events.last(), Some(Event::Answer(Answer::End { ending: Ending::Cut(_), .. }))));
        assert_eq!(server.asked().len(), 1);
    }
}

#[tokio::test]
async fn an_error_in_the_middle_of_a_stream_is_shown_in_the_servers_words() {
    let broken = send("data: {\"error\":{\"message\":\"the GPU caught fire\",\"code\":500}}\n\n");
    let server =
        Server::play(vec![vec![streaming(), text("half"), broken.clone()], vec![streaming(), broken]]).await;
    let chat = chat(&settings(&server.v1()));
    let reply = ask(&chat, "?").await.0.expect("a part of an answer");
    assert!(
        matches!(&reply.ending, Ending::Cut(why) if why.contains("GPU caught fire")),
        "{:?}",
        reply.ending
    );
    let Err(ChatError::Refused(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains("GPU caught fire"), "{text}");
}

#[tokio::test]
async fn a_refused_connection_fails_at_once_with_the_address_and_the_remedy() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}/v1", listener.local_addr().expect("its address"));
    drop(listener);
    let (reply, events) = ask(&chat(&settings(&address)), "?").await;
    let Err(ChatError::Unreachable(text)) = reply else { panic!("{reply:?}") };
    assert!(
        text.contains(&address) && text.contains("refused") && text.contains("CELLBLOCK_MODEL__BASE_URL")
    );
    assert!(events.is_empty(), "it was tried again: {events:?}");
}

#[tokio::test]
async fn a_refused_key_shows_the_servers_words_without_the_key_and_the_remedy() {
    let server =
        Server::play(vec![error("401 Unauthorized", "", "Incorrect API key provided: sk-mine-123.")]).await;
    let mut settings = settings(&server.v1());
    settings.api_key = Some(cellblock::config::Secret::new("sk-mine-123"));
    let (reply, _) = ask(&chat(&settings), "?").await;
    let Err(ChatError::Key(text)) = reply else { panic!("{reply:?}") };
    assert!(text.contains("Incorrect API key provided: ***."), "{text}");
    assert!(text.contains("CELLBLOCK_MODEL__API_KEY"), "{text}");
    assert_eq!(server.only().header("authorization"), Some("Bearer sk-mine-123"));
}

#[tokio::test]
async fn an_unknown_model_is_answered_with_the_nearest_names() {
    let unknown = error("404 Not Found", "", "The model `qwen3-41b` does not exist");
    let list = serde_json::json!({"object": "list", "data": [
        {"id": "qwen3-14b", "object": "model", "created": 1, "owned_by": "x"},
        {"id": "phi-4", "object": "model", "created": 1, "owned_by": "x"},
    ]});
    let server = Server::play(vec![unknown, json("200 OK", "", &list)]).await;
    let mut settings = settings(&server.v1());
    settings.name = Some("qwen3-41b".to_owned());
    let (reply, _) = ask(&chat(&settings), "?").await;
    let Err(ChatError::Name(text)) = reply else { panic!("{reply:?}") };
    assert!(text.contains("does not exist") && text.contains("Did you mean qwen3-14b"), "{text}");
    assert_eq!(server.asked()[1].target(), "GET /v1/models");
}

#[tokio::test]
async fn a_wrong_address_is_named_as_such() {
    let page = vec![head("404 Not Found", "content-type: text/html\r\n"), send("<html>nginx</html>")];
    let fine = vec![head("200 OK", "content-type: text/html\r\n"), send("<html>Welcome</html>")];
    let server = Server::play(vec![page, fine]).await;
    let chat = chat(&settings(&server.address));
    let Err(ChatError::Refused(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains("/v1") && text.contains("404"), "{text}");
    let Err(ChatError::Garbled(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains("text/html") && text.contains("/v1"), "{text}");
}

#[tokio::test]
async fn a_conversation_that_is_too_long_says_how_to_go_on() {
    let refusal = error("400 Bad Request", "", "This model's maximum context length is 4096 tokens.");
    let server = Server::play(vec![refusal]).await;
    let (reply, _) = ask(&chat(&settings(&server.v1())), "?").await;
    let Err(ChatError::TooLong(text)) = reply else { panic!("{reply:?}") };
    for part in ["4096", "%hide", "%reset", "larger window"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(server.asked().len(), 2, "it was tried once with a smaller window");
}

#[tokio::test]
async fn silence_has_a_limit_before_and_after_the_first_text() {
    let mut server =
        Server::play(vec![vec![Step::Hang], vec![streaming(), text("and then"), Step::Hang]]).await;
    let mut settings = settings(&server.v1());
    settings.silence_timeout = Duration::from_millis(300);
    let chat = chat(&settings);
    let Err(ChatError::Unreachable(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains("0.3 s") && text.contains("silence_timeout"), "{text}");
    let reply = ask(&chat, "?").await.0.expect("a part of an answer");
    assert_eq!(reply.text, "and then");
    assert!(
        matches!(&reply.ending, Ending::Cut(why) if why.contains("nothing arrived for 0.3 s; what has come is kept")
            && why.contains("model.silence_timeout")),
        "{:?}",
        reply.ending
    );
    server.ended(2).await;
}

/// A comment, as servers send them to keep a stream alive.
fn pings(count: usize) -> Vec<Step> {
    (0..count).flat_map(|_| [send(": ping\n\n"), Step::Pause(100)]).collect()
}

#[tokio::test]
async fn a_comment_that_keeps_the_stream_alive_is_no_silence() {
    let mut script = vec![streaming()];
    script.extend(pings(10));
    script.push(text("at "));
    script.extend(pings(10));
    script.extend([text("last"), stop("stop"), done()]);
    let server = Server::play(vec![script]).await;
    let settings = ModelSettings { silence_timeout: Duration::from_millis(400), ..settings(&server.v1()) };
    let reply = ask(&chat(&settings), "?").await.0.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.ending), ("at last", Ending::Complete));
}

#[tokio::test]
async fn a_server_that_only_keeps_its_stream_alive_is_given_up_all_the_same() {
    let mut never = vec![streaming()];
    never.extend(pings(100));
    let mut half = vec![streaming(), text("half")];
    half.extend(pings(100));
    let server = Server::play(vec![never, half]).await;
    let settings = ModelSettings { silence_timeout: Duration::from_millis(400), ..settings(&server.v1()) };
    let chat = chat(&settings);
    let Err(ChatError::Unreachable(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains("signs of life for 2 s") && text.contains("model.silence_timeout"), "{text}");
    let reply = ask(&chat, "?").await.0.expect("a part of an answer");
    assert_eq!(reply.text, "half");
    let Ending::Cut(why) = &reply.ending else { panic!("{:?}", reply.ending) };
    assert!(
        why.contains("for 2 s nothing arrived but signs of life") && why.contains("silence_timeout"),
        "{why}"
    );
}

#[tokio::test]
async fn a_connection_that_is_closed_in_a_reply_is_said_in_plain_words() {
    let chunked = head("200 OK", "content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n");
    let half = chunk(&serde_json::json!({"content": "half"}), None);
    let sized = send(format!("{:x}\r\n{half}\r\n", half.len()));
    for end in [vec![], vec![Step::Reset], vec![send("ff\r\ndata")]] {
        let mut script = vec![chunked.clone(), sized.clone(), Step::Pause(100)];
        script.extend(end);
        let server = Server::play(vec![script]).await;
        let reply = ask(&chat(&settings(&server.v1())), "?").await.0.expect("a part of an answer");
        assert_eq!(reply.text, "half");
        assert_eq!(
            reply.ending,
            Ending::Cut(
                "the server closed the connection in the middle of its reply; what has come is kept; run the cell \
                 again for a whole reply"
                    .to_owned()
            )
        );
    }
}

#[tokio::test]
async fn an_account_without_credit_is_not_asked_again_and_is_named() {
    let body = serde_json::json!({"error": {
        "message": "You exceeded your current quota.", "type": "insufficient_quota", "code": "insufficient_quota",
    }});
    let server = Server::play(vec![json("429 Too Many Requests", "", &body)]).await;
    let Err(ChatError::Unpaid(text)) = ask(&chat(&settings(&server.v1())), "?").await.0 else {
        panic!("no failure")
    };
    for part in ["no credit left", "exceeded your current quota", "Add credit", "%model"] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(server.asked().len(), 1);
}

#[tokio::test]
async fn a_model_that_is_listed_and_refused_is_not_offered_again() {
    let unknown = error("404 Not Found", "", "model 'phi-4' not found");
    let server = Server::play(vec![unknown, models(&["phi-4", "phi-4-mini"])]).await;
    let settings = ModelSettings { name: Some("phi-4".to_owned()), ..settings(&server.v1()) };
    let Err(ChatError::Name(text)) = ask(&chat(&settings), "?").await.0 else { panic!("no failure") };
    assert!(text.contains("lists phi-4 all the same and yet refuses it"), "{text}");
    assert!(!text.contains("Did you mean"), "{text}");
}

#[tokio::test]
async fn endless_lines_and_endless_error_bodies_are_bounded() {
    let mut line = vec![streaming(), send("data: ")];
    line.extend(std::iter::repeat_n(Step::Send(vec![b'x'; 1 << 20]), 64));
    let mut body = vec![head("400 Bad Request", "")];
    body.extend(std::iter::repeat_n(Step::Send(vec![b'y'; 1 << 20]), 64));
    let server = Server::play(vec![line, body]).await;
    let chat = chat(&settings(&server.v1()));
    let Err(ChatError::Garbled(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains("MiB"), "{text}");
    let Err(ChatError::Refused(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.len() < 4000, "{} bytes are shown", text.len());
}

#[tokio::test]
async fn garbage_in_a_stream_is_an_error_and_not_a_crash() {
    let scripts = vec![
        vec![streaming(), send("data: {\"choices\": [{\"delta\"\n\n")],
        vec![streaming(), Step::Send(b"data: \xff\xfe\x00{}\n\n".to_vec())],
        vec![send("not even HTTP\r\n\r\n")],
    ];
    let server = Server::play(scripts).await;
    let chat = chat(&settings(&server.v1()));
    for _ in 0..3 {
        let (reply, events) = ask(&chat, "?").await;
        let error = reply.expect_err("no answer").to_string();
        assert!(error.contains(&server.address), "{error}");
        assert!(shows_no_answer(&events));
    }
}

#[tokio::test]
async fn a_window_that_the_server_states_is_kept_from_then_on() {
    let refusal = error(
        "400 Bad Request",
        "",
        "the request exceeds the available context size (8,192 tokens), try increasing it",
    );
    let whole = answer(&["ok"]);
    let server = Server::play(vec![whole.clone(), refusal, whole]).await;
    let chat = chat(&settings(&server.v1()));
    ask(&chat, &"long ".repeat(6000)).await.0.expect("an answer");
    let (reply, events) = ask(&chat, "short").await;
    assert_eq!(reply.expect("an answer").text, "ok");
    assert!(
        events.iter().any(|e| matches!(e, Event::Notice(n) if n.text.contains("no longer sent"))),
        "{events:?}"
    );
    ask(&chat, "again").await.0.expect("an answer");
    let sizes: Vec<bool> = server.asked().iter().map(|asked| asked.body.to_string().len() > 30_000).collect();
    assert_eq!(sizes, [true, true, false, false]);
}

#[tokio::test]
async fn a_prompt_that_a_content_filter_refuses_says_how_to_go_on() {
    let words = "The response was filtered due to the prompt triggering the content management policy.";
    let server = Server::play(vec![error("400 Bad Request", "", words)]).await;
    let Err(ChatError::Refused(text)) = ask(&chat(&settings(&server.v1())), "?").await.0 else {
        panic!("no failure")
    };
    assert!(text.contains("content filter") && text.contains("other words"), "{text}");
}

#[tokio::test]
async fn a_connection_that_is_never_made_has_a_limit() {
    // The handshake gets no answer.
    let server = Server::play(vec![vec![Step::Hang]]).await;
    let mut settings = settings(&server.v1().replace("http:", "https:"));
    settings.connect_timeout = Duration::from_millis(300);
    let Err(ChatError::Unreachable(text)) = ask(&chat(&settings), "?").await.0 else { panic!("no failure") };
    assert!(text.contains("no connection") && text.contains("https://127.0.0.1"), "{text}");
}

#[tokio::test]
async fn a_model_that_refuses_pictures_is_asked_without_them_and_it_is_said() {
    let refusal =
        error("500 Internal Server Error", "", "image input is not supported - hint: provide the mmproj");
    let server = Server::play(vec![refusal, answer(&["blind"]), answer(&["still"])]).await;
    let settings = ModelSettings { name: Some("gpt-4o".to_owned()), ..settings(&server.v1()) };
    let chat = chat(&settings);
    let image = Image {
        media_type: "image/png".to_owned(),
        base64:
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
                .to_owned(),
    };
    let attachment =
        Attachment { name: "@plot.png".to_owned(), content: Content::Image(image), agreed: None };
    let prompt = Prompt { text: "What is on it?".to_owned(), attachments: vec![attachment] };
    let place = chat.begin(None, "");
    let (reply, events) = ask_at(&chat, &place, &prompt, &[], |_| false).await;
    assert_eq!(reply.expect("an answer").text, "blind");
    assert!(
        events.iter().any(|e| matches!(e, Event::Notice(n) if n.text.contains("does not take images"))),
        "{events:?}"
    );
    ask(&chat, "and now?").await.0.expect("an answer");
    let asked = server.asked();
    assert_eq!(asked.len(), 3, "the second question knows already");
    assert!(asked[0].body.to_string().contains("data:image/png;base64,iVBOR"));
    assert!(asked[1..].iter().all(|asked| !asked.body.to_string().contains("iVBOR")));
    assert!(asked[1].body.to_string().contains("can't be shown to you"));
}

/// Everything that a failure can bring repeats the key; nothing that we show, log or write does.
#[tokio::test]
async fn no_key_appears_anywhere_however_servers_fail() {
    const KEY: &str = "sk-needle-0123456789";
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer({
            let log = log.clone();
            move || log.clone()
        })
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let folder = tempfile::tempdir().expect("a folder");
    let words = format!("Incorrect key {KEY}.");
    let in_stream = format!("data: {{\"error\":{{\"message\":\"{words}\"}}}}\n\n");
    let server = Server::play(vec![
        error("401 Unauthorized", "", &words),
        error("400 Bad Request", "", &words),
        vec![head("302 Found", &format!("location: https://x.example/?key={KEY}\r\n"))],
        error("429 Too Many Requests", "retry-after: 3600\r\n", &words),
        vec![streaming(), text("half"), send(in_stream.clone())],
        vec![streaming(), send(in_stream)],
        vec![head("200 OK", &format!("content-type: text/{KEY}\r\n")), send("x")],
        vec![streaming(), text("so far"), stop(KEY), done()],
        answer(&["ok"]),
    ])
    .await;
    let settings = ModelSettings {
        api_key: Some(cellblock::config::Secret::new(KEY)),
        replay: cellblock::config::Replay::Record,
        ..settings(&server.v1())
    };
    let keeping = Keeping {
        file: Some(folder.path().join("talk.sqlite")),
        notebook: None,
        directory: folder.path().to_owned(),
    };
    let chat = chat(&settings).recording(None, folder.path()).keeping(&keeping);
    for n in 0..9 {
        let (reply, events) = ask(&chat, &format!("question {n}, with {KEY} in it")).await;
        let said = format!("{reply:?} {events:?}");
        assert!(!said.contains(KEY), "{n}: {said}");
    }
    assert_eq!(server.asked().len(), 9);
    chat.shutdown().await;
    assert!(!log.text().contains(KEY), "the log has it");
    let mut files = 0;
    for entry in std::fs::read_dir(folder.path()).expect("the folder") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).expect("a file");
        files += 1;
        assert!(!bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes()), "{}", path.display());
    }
    assert!(files >= 2, "a recording and a store");
}

/// A log that is kept.
#[derive(Debug, Clone, Default)]
struct Log(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("the log")).into_owned()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("the log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
