//! Keys go where they belong and nowhere else: not to other hosts, not into errors, events or logs.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::{Arc, Mutex};

use cellblock::chat::{Chat, ChatError, ProviderEnvironment};
use cellblock::config::{ModelSettings, Secret};
use serde_json::json;

use crate::chat_server::*;

const KEY: &str = "sk-NEVER-TO-BE-SEEN-0451";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("the log").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn with_key(settings: ModelSettings, name: &str) -> ModelSettings {
    ModelSettings { name: Some(name.to_owned()), api_key: Some(Secret::new(KEY)), ..settings }
}

/// Everything that can be seen of failing and succeeding requests: errors, events, logs, `Debug`.
#[tokio::test]
async fn a_key_is_in_no_error_event_log_or_debug_output() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::level_filters::LevelFilter::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);

    let echo = format!("your key {KEY} is wrong, see /models?key={KEY}");
    let inside = send(format!("data: {}\n\n", json!({"error": {"message": echo}})));
    let scripts = vec![
        error("401 Unauthorized", "", &echo),
        error("400 Bad Request", "", &echo),
        error("429 Too Many Requests", "retry-after: 900\r\n", &echo),
        vec![head("307 Temporary Redirect", &format!("location: http://example.com/?key={KEY}\r\n"))],
        vec![streaming(), inside],
        vec![head("200 OK", &format!("content-type: text/{KEY}\r\n"))],
        answer(&["fine"]),
    ];
    let rounds = scripts.len();
    let server = Server::play(scripts).await;
    let mut seen = String::new();
    let mut found = 0;
    // One provider sends its key in the URL, one in a header of its own.
    for name in ["openai/m", "gemini/m", "anthropic/m"] {
        for _ in 0..rounds {
            let chat = chat(&with_key(settings(&server.address), name));
            let (reply, events) = ask(&chat, "?").await;
            if let Err(error) = &reply {
                write!(seen, "{error} {:?}", error.failure()).expect("memory");
            }
            let listing = chat.models().await;
            writeln!(seen, "{reply:?} {events:?} {chat:?} {listing:?}").expect("memory");
        }
    }
    for asked in server.asked() {
        found += usize::from(asked.head.contains(KEY));
    }
    assert!(found >= rounds, "the keys were not even sent");
    let log = String::from_utf8_lossy(&log.0.lock().expect("the log")).into_owned();
    assert!(log.len() > 1000, "nothing was logged: the test sees nothing");
    for (what, text) in [("messages", &seen), ("log", &log)] {
        if let Some(at) = text.find(KEY) {
            let from = text.floor_char_boundary(at.saturating_sub(400));
            panic!("the key is in the {what}: {}", &text[from..at + 60]);
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_to_another_host() {
    let other = Server::play(vec![answer(&["stolen"])]).await;
    let location = format!("location: {}/v1/chat/completions\r\n", other.address);
    let server = Server::play(vec![vec![head("308 Permanent Redirect", &location)]]).await;
    let chat = chat(&with_key(settings(&server.v1()), "m"));
    let Err(ChatError::Refused(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains(&other.address) && text.contains("not followed"), "{text}");
    assert!(other.asked().is_empty());
    // Without that rule the other host would have had the prompt.
    let follower = reqwest::Client::builder().no_proxy().build().expect("a client");
    follower.post(server.v1()).body("{}").send().await.expect("an answer");
    assert_eq!(other.asked().len(), 1);
}

#[tokio::test]
async fn a_providers_own_key_is_not_sent_to_a_configured_address() {
    let server = Server::play(vec![answer(&["ok"])]).await;
    let chat = Chat::new(&settings(&server.v1()), environment(&[("OPENAI_API_KEY", KEY)]));
    ask(&chat, "?").await.0.expect("an answer");
    assert_eq!(server.only().header("authorization"), None);
}

#[tokio::test]
async fn switching_models_does_not_move_the_configured_key() {
    let home = Server::play(vec![answer(&["ok"])]).await;
    let llamacpp = Server::play(vec![answer(&["ok"])]).await;
    let variables = [("LLAMACPP_API_BASE_URL", llamacpp.address.as_str())];
    let chat = Chat::new(&with_key(settings(&home.v1()), "m"), environment(&variables));
    chat.switch("llamacpp/x").expect("a name");
    ask(&chat, "?").await.0.expect("an answer");
    assert_eq!(llamacpp.only().header("authorization"), None);
    chat.switch("other/model").expect("a name of the configured server");
    ask(&chat, "?").await.0.expect("an answer");
    let asked = home.only();
    assert_eq!(asked.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(asked.body["model"], "other/model");
}

#[tokio::test]
async fn a_key_command_gives_the_key_once_and_again_after_a_refusal() {
    let dir = tempfile::tempdir().expect("a folder");
    let count = dir.path().join("count");
    let server = Server::play(vec![
        answer(&["ok"]),
        answer(&["ok"]),
        error("401 Unauthorized", "", "expired"),
        answer(&["ok"]),
    ])
    .await;
    let mut settings = settings(&server.v1());
    settings.api_key_command = Some(format!("echo x >> '{}'; echo {KEY}; echo noise", count.display()));
    let chat = chat(&settings);
    for _ in 0..2 {
        ask(&chat, "?").await.0.expect("an answer");
    }
    let runs = || std::fs::read_to_string(&count).expect("the count").lines().count();
    assert_eq!(runs(), 1);
    let Err(ChatError::Key(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains("expired") && text.contains("api_key_command"), "{text}");
    ask(&chat, "?").await.0.expect("an answer");
    assert_eq!(runs(), 2);
    let expected = format!("Bearer {KEY}");
    assert!(server.asked().iter().all(|asked| asked.header("authorization") == Some(&expected)));
}

#[tokio::test]
async fn a_key_command_that_fails_shows_its_complaints_and_asks_nobody() {
    let server = Server::play(vec![answer(&["ok"])]).await;
    let mut settings = settings(&server.v1());
    settings.api_key_command = Some(format!("echo {KEY}; echo 'the vault is locked' >&2; exit 1"));
    let Err(ChatError::Key(text)) = ask(&chat(&settings), "?").await.0 else { panic!("no failure") };
    assert!(text.contains("the vault is locked") && !text.contains(KEY), "{text}");
    assert!(server.asked().is_empty());
}

#[tokio::test]
async fn a_missing_key_names_its_variable_and_asks_nobody() {
    for (name, variable) in [("openai/gpt-5", "OPENAI_API_KEY"), ("claude-sonnet-4-6", "ANTHROPIC_API_KEY")] {
        let settings = ModelSettings { base_url: None, name: Some(name.to_owned()), ..settings("") };
        let chat = Chat::new(&settings, ProviderEnvironment::default());
        let Err(ChatError::Key(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
        assert!(text.contains(variable), "{text}");
    }
}

#[tokio::test]
async fn a_key_that_no_header_can_carry_is_an_error_that_does_not_show_it() {
    let server = Server::play(vec![answer(&["ok"])]).await;
    let mut settings = settings(&server.v1());
    settings.api_key = Some(Secret::new(format!("{KEY}\r\nx-evil: 1")));
    let error = ask(&chat(&settings), "?").await.0.expect_err("no answer").to_string();
    assert!(!error.contains(KEY), "{error}");
    assert!(server.asked().is_empty());
}
