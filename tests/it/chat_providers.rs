//! Providers on the wire, finding a model when none is named, listing and switching.

use std::time::{Duration, Instant};

use cellblock::chat::{Chat, ChatError};
use cellblock::config::{ModelSettings, Secret};
use cellblock::event::Ending;
use serde_json::{Value, json};

use crate::chat_server::*;

/// No model is named anywhere, and the environment is this.
fn unnamed(variables: &[(&str, &str)]) -> Chat {
    let settings = ModelSettings { name: None, base_url: None, ..settings("") };
    Chat::new(&settings, environment(variables))
}

/// An address at which nothing listens.
fn nowhere() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    format!("http://{}", listener.local_addr().expect("its address"))
}

fn named(event: &str, data: &Value) -> Step {
    send(format!("event: {event}\ndata: {data}\n\n"))
}

#[tokio::test]
async fn anthropic_is_spoken_to_in_its_own_way() {
    let script = vec![
        streaming(),
        named(
            "message_start",
            &json!({"type": "message_start", "message": {"id": "m1", "type": "message", "role": "assistant",
                "model": "claude-x", "content": [], "stop_reason": null, "stop_sequence": null,
                "usage": {"input_tokens": 12, "output_tokens": 1}}}),
        ),
        named(
            "content_block_start",
            &json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
        named(
            "content_block_delta",
            &json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Paris."}}),
        ),
        named("content_block_stop", &json!({"type": "content_block_stop", "index": 0})),
        named(
            "message_delta",
            &json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null},
                "usage": {"output_tokens": 5}}),
        ),
        named("message_stop", &json!({"type": "message_stop"})),
    ];
    let server = Server::play(vec![script]).await;
    let variables = [("ANTHROPIC_API_KEY", "sk-ant"), ("ANTHROPIC_BASE_URL", server.address.as_str())];
    let chat = unnamed(&variables);
    chat.switch("claude-x").expect("a name");
    let reply = ask(&chat, "?").await.0.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.ending), ("Paris.", Ending::Complete));
    assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (Some(12), Some(5)));
    assert_eq!(reply.model.as_deref(), Some("anthropic/claude-x"));
    let asked = server.only();
    assert_eq!(asked.target(), "POST /v1/messages");
    assert_eq!(asked.header("x-api-key"), Some("sk-ant"));
    assert!(asked.body["system"].to_string().contains("Cellblock"), "{}", asked.body);
}

#[tokio::test]
async fn gemini_is_spoken_to_in_its_own_way() {
    let part = |text: &str, finish: Option<&str>| {
        let data = json!({
            "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": finish, "index": 0}],
            "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11},
            "modelVersion": "gemini-x",
        });
        send(format!("data: {data}\r\n\r\n"))
    };
    let server = Server::play(vec![vec![streaming(), part("Pa", None), part("ris.", Some("STOP"))]]).await;
    let mut settings = settings(&server.address);
    settings.name = Some("gemini/gemini-x".to_owned());
    settings.api_key = Some(Secret::new("AIza"));
    let reply = ask(&chat(&settings), "?").await.0.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.ending), ("Paris.", Ending::Complete));
    assert_eq!(reply.usage.input_tokens, Some(9));
    assert!(server.only().target().starts_with("POST /v1beta/models/gemini-x:streamGenerateContent"));
}

#[tokio::test]
async fn ollama_is_found_when_nothing_is_configured_and_spoken_to_in_its_own_way() {
    let tags = json!({"models": [
        {"name": "nomic-embed-text:latest", "model": "nomic-embed-text:latest"},
        {"name": "qwen3:14b", "model": "qwen3:14b"},
    ]});
    let line = |text: &str, done: bool| {
        let mut line = json!({"model": "qwen3:14b", "created_at": "2026-01-01T00:00:00Z",
            "message": {"role": "assistant", "content": text}, "done": done});
        if done {
            line["done_reason"] = "stop".into();
            line["prompt_eval_count"] = 21.into();
            line["eval_count"] = 3.into();
        }
        send(format!("{line}\n"))
    };
    let script = vec![
        head("200 OK", "content-type: application/x-ndjson\r\n"),
        line("Pa", false),
        line("ris.", false),
        line("", true),
    ];
    let server = Server::play(vec![json("200 OK", "", &tags), script.clone(), script]).await;
    let chat = unnamed(&[("OLLAMA_HOST", server.address.strip_prefix("http://").expect("an address"))]);
    let reply = ask(&chat, "?").await.0.expect("an answer");
    assert_eq!((reply.text.as_str(), reply.ending), ("Paris.", Ending::Complete));
    assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (Some(21), Some(3)));
    assert_eq!(reply.model.as_deref(), Some("ollama/qwen3:14b"));
    ask(&chat, "again").await.0.expect("an answer");
    let targets: Vec<String> = server.asked().iter().map(|asked| asked.target().to_owned()).collect();
    assert_eq!(targets, ["GET /api/tags", "POST /api/chat", "POST /api/chat"], "it is looked for once");
    assert_eq!(chat.current().as_deref(), Some("ollama/qwen3:14b"));
}

#[tokio::test]
async fn a_key_in_the_environment_comes_before_ollama() {
    let openai = Server::play(vec![answer(&["ok"])]).await;
    let ollama = Server::play(vec![answer(&["no"])]).await;
    let base_url = openai.v1();
    let chat = unnamed(&[
        ("OPENAI_API_KEY", "sk-env"),
        ("OPENAI_BASE_URL", base_url.as_str()),
        ("OLLAMA_HOST", ollama.address.as_str()),
    ]);
    ask(&chat, "?").await.0.expect("an answer");
    let asked = openai.only();
    assert_eq!(asked.target(), "POST /v1/chat/completions", "another address speaks Chat Completions");
    assert_eq!(asked.header("authorization"), Some("Bearer sk-env"));
    assert!(ollama.asked().is_empty());
}

#[tokio::test]
async fn with_nothing_to_be_found_the_error_says_exactly_what_to_do() {
    let chat = unnamed(&[("OLLAMA_HOST", nowhere().as_str())]);
    let (reply, events) = ask(&chat, "?").await;
    let Err(ChatError::NoModel(text)) = reply else { panic!("{reply:?}") };
    for part in ["OPENAI_API_KEY", "CELLBLOCK_MODEL__BASE_URL", "Ollama", "Code cells work"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    assert!(events.is_empty());
    assert_eq!(chat.current(), None);
}

#[tokio::test]
async fn an_address_alone_is_enough_when_its_server_lists_its_models() {
    let server = Server::play(vec![models(&["text-embedding-x", "org/chat-model"]), answer(&["ok"])]).await;
    let settings = ModelSettings { name: None, ..settings(&server.v1()) };
    let reply = ask(&chat(&settings), "?").await.0.expect("an answer");
    assert_eq!(reply.model.as_deref(), Some("openai/org/chat-model"));
    assert_eq!(server.asked()[1].body["model"], "org/chat-model");
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_before_anything_is_sent() {
    for address in ["localhost:8080", "http://user:password@h/v1", "file:///etc/passwd"] {
        let Err(ChatError::Name(text)) = ask(&chat(&settings(address)), "?").await.0 else {
            panic!("{address} was taken")
        };
        assert!(text.contains("base_url") && !text.contains("user:password"), "{text}");
    }
}

#[tokio::test]
async fn the_listing_shows_every_source_marks_the_current_model_and_is_bounded_in_time() {
    let home = Server::play(vec![models(&["m", "qwen", "whisper-1"])]).await;
    let ollama = Server::play(vec![json("200 OK", "", &json!({"models": [{"name": "phi4:latest"}]}))]).await;
    let slow = Server::play(vec![vec![Step::Hang]]).await;
    let variables = [
        ("OLLAMA_HOST", ollama.address.as_str()),
        ("ANTHROPIC_API_KEY", "sk-ant"),
        ("ANTHROPIC_BASE_URL", slow.address.as_str()),
    ];
    let chat = Chat::new(&settings(&home.v1()), environment(&variables));
    let began = Instant::now();
    let listing = chat.models().await;
    assert!(began.elapsed() < Duration::from_secs(20), "the slow server was waited for");
    let names: Vec<&str> = listing.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["openai/m", "openai/qwen", "ollama/phi4:latest"]);
    let current: Vec<&str> =
        listing.models.iter().filter(|model| model.current).map(|model| model.name.as_str()).collect();
    assert_eq!(current, ["openai/m"]);
    assert_eq!(listing.current.as_deref(), Some("openai/m"));
    assert_eq!(listing.problems.len(), 1, "{:?}", listing.problems);
    assert!(listing.problems[0].contains(&slow.address));
    assert!(chat.known_names().contains(&"ollama/phi4:latest".to_owned()), "completion learns from listings");
}

#[tokio::test]
async fn switching_takes_names_that_can_be_meant_and_offers_near_ones_otherwise() {
    let chat = unnamed(&[]);
    let Err(ChatError::Name(text)) = chat.switch("antropic/claude-sonnet-4-6") else { panic!("taken") };
    assert!(text.contains("anthropic/claude-sonnet-4-6"), "{text}");
    assert_eq!(chat.current(), None);
    chat.switch("ollama/qwen3:14b").expect("a name");
    assert_eq!(chat.current().as_deref(), Some("ollama/qwen3:14b"));
    assert!(chat.known_names().contains(&"ollama/qwen3:14b".to_owned()));
}

#[tokio::test]
async fn an_ollama_that_is_not_running_is_named_with_its_remedy() {
    let address = nowhere();
    let chat = unnamed(&[("OLLAMA_HOST", address.as_str())]);
    chat.switch("ollama/qwen3").expect("a name");
    let Err(ChatError::Unreachable(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains(&address) && text.contains("ollama serve"), "{text}");
}

#[tokio::test]
async fn a_model_that_no_server_lists_says_where_it_comes_from() {
    let source = async |chat: &Chat| {
        let listing = chat.models().await;
        let current = listing.models.iter().find(|model| model.current).expect("the one in use");
        (current.name.clone(), current.source.clone())
    };
    let none = nowhere();
    let home = Server::play(vec![models(&["other"])]).await;
    let chat = Chat::new(&settings(&home.v1()), environment(&[("OLLAMA_HOST", none.as_str())]));
    assert_eq!(source(&chat).await, ("openai/m".to_owned(), "configured (`model.name`)".to_owned()));
    chat.switch("openai/z").expect("a name");
    assert_eq!(source(&chat).await, ("openai/z".to_owned(), "chosen in this kernel".to_owned()));

    let keyed = Server::play(vec![answer(&["ok"]), models(&["other"])]).await;
    let base_url = keyed.v1();
    let chat = unnamed(&[
        ("OPENAI_API_KEY", "sk-env"),
        ("OPENAI_BASE_URL", base_url.as_str()),
        ("OLLAMA_HOST", none.as_str()),
    ]);
    ask(&chat, "?").await.0.expect("an answer");
    assert_eq!(source(&chat).await.1, "found by looking around");
}
