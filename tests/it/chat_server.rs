//! A server of ours for the chat's tests: it plays scripts byte by byte, so that it can be wrong in
//! every way a real one can, and records what it was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cellblock::chat::{
    Chat, ChatError, CodeArguments, Options, Place, Prompt, ProviderEnvironment, Reply, Tool, Turn,
};
use cellblock::config::{Flavor, ModelSettings, Settings};
use cellblock::event::{self, Answer, Event};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// What one connection does after it has read its request.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Writes these bytes.
    Send(Vec<u8>),
    /// Waits.
    Pause(u64),
    /// Says nothing more until the client goes away.
    Hang,
    /// Breaks the connection (RST) instead of closing it.
    Reset,
}

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Request line and headers.
    pub(crate) head: String,
    /// The body, `Null` when it is not JSON.
    pub(crate) body: Value,
}

impl Asked {
    /// `POST /v1/chat/completions`
    pub(crate) fn target(&self) -> &str {
        self.head.lines().next().and_then(|line| line.strip_suffix(" HTTP/1.1")).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// A running server.
pub(crate) struct Server {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    gone: watch::Receiver<usize>,
}

impl Server {
    /// The nth connection plays the nth script; later ones play the last again.
    pub(crate) async fn play(scripts: Vec<Vec<Step>>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("http://{}", listener.local_addr().expect("its address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (went, gone) = watch::channel(0);
        let went = Arc::new(went);
        let record = Arc::clone(&asked);
        tokio::spawn(async move {
            let mut number = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let script = scripts.get(number).or(scripts.last()).cloned().unwrap_or_default();
                number += 1;
                let (record, went) = (Arc::clone(&record), Arc::clone(&went));
                tokio::spawn(async move {
                    perform(stream, script, &record).await;
                    went.send_modify(|count| *count += 1);
                });
            }
        });
        Server { address, asked, gone }
    }

    /// The base URL that settings name.
    pub(crate) fn v1(&self) -> String {
        format!("{}/v1", self.address)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("the record").clone()
    }

    /// The only request there was.
    pub(crate) fn only(&self) -> Asked {
        let asked = self.asked();
        assert_eq!(asked.len(), 1, "{asked:#?}");
        asked[0].clone()
    }

    /// Waits until so many connections have ended.
    pub(crate) async fn ended(&mut self, connections: usize) {
        let ended = self.gone.wait_for(|count| *count >= connections);
        tokio::time::timeout(Duration::from_secs(20), ended).await.expect("disconnect").expect("server");
    }
}

async fn perform(mut stream: TcpStream, script: Vec<Step>, record: &Mutex<Vec<Asked>>) {
    let Some(asked) = read(&mut stream).await else { return };
    record.lock().expect("the record").push(asked);
    let _ = stream.set_nodelay(true);
    for step in script {
        match step {
            Step::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return;
                }
            }
            Step::Pause(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Step::Hang => {
                let mut byte = [0];
                while matches!(stream.read(&mut byte).await, Ok(n) if n > 0) {}
                return;
            }
            Step::Reset => {
                let _ = stream.set_zero_linger();
                return;
            }
        }
    }
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut asked = Asked { head, body: Value::Null };
    let length: usize = asked.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
    while bytes.len() < end + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            break;
        }
    }
    asked.body = serde_json::from_slice(&bytes[end + 4..]).unwrap_or(Value::Null);
    Some(asked)
}

/// A response's head; the body ends with the connection.
pub(crate) fn head(status: &str, headers: &str) -> Step {
    Step::Send(format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n").into_bytes())
}

pub(crate) fn streaming() -> Step {
    head("200 OK", "content-type: text/event-stream\r\n")
}

pub(crate) fn send(text: impl Into<String>) -> Step {
    Step::Send(text.into().into_bytes())
}

/// A whole response of JSON.
pub(crate) fn json(status: &str, headers: &str, body: &Value) -> Vec<Step> {
    vec![head(status, &format!("content-type: application/json\r\n{headers}")), send(body.to_string())]
}

pub(crate) fn error(status: &str, headers: &str, message: &str) -> Vec<Step> {
    json(status, headers, &serde_json::json!({"error": {"message": message, "type": "test"}}))
}

/// One event of a Chat Completions stream.
pub(crate) fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let chunk = serde_json::json!({
        "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    });
    format!("data: {chunk}\n\n")
}

pub(crate) fn text(text: &str) -> Step {
    send(chunk(&serde_json::json!({"content": text}), None))
}

pub(crate) fn stop(reason: &str) -> Step {
    send(chunk(&serde_json::json!({}), Some(reason)))
}

pub(crate) fn usage(input: u64, output: u64) -> Step {
    let chunk = serde_json::json!({
        "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [],
        "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output},
    });
    send(format!("data: {chunk}\n\n"))
}

pub(crate) fn done() -> Step {
    send("data: [DONE]\n\n")
}

/// A list of models with these names.
pub(crate) fn models(names: &[&str]) -> Vec<Step> {
    let one = |id: &&str| serde_json::json!({"id": id, "object": "model", "created": 1, "owned_by": "x"});
    let data: Vec<Value> = names.iter().map(one).collect();
    json("200 OK", "", &serde_json::json!({"object": "list", "data": data}))
}

/// A whole good answer.
pub(crate) fn answer(words: &[&str]) -> Vec<Step> {
    let mut steps = vec![streaming()];
    steps.extend(words.iter().map(|word| text(word)));
    steps.extend([stop("stop"), usage(11, 7), done()]);
    steps
}

/// Settings for a server at this address.
pub(crate) fn settings(base_url: &str) -> ModelSettings {
    ModelSettings {
        name: Some("m".to_owned()),
        base_url: Some(base_url.to_owned()),
        local: false,
        ..Settings::builtin(Flavor::Markdown).model
    }
}

/// An environment with these variables.
pub(crate) fn environment(variables: &[(&str, &str)]) -> ProviderEnvironment {
    ProviderEnvironment::read(|name| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

pub(crate) fn chat(settings: &ModelSettings) -> Chat {
    Chat::new(settings, ProviderEnvironment::default())
}

/// Asks and collects what is shown. `cancel` is fired when `until` says so of the events so far.
pub(crate) async fn ask_until(
    chat: &Chat,
    prompt: &str,
    until: impl Fn(&[Event]) -> bool,
) -> (Result<Reply, ChatError>, Vec<Event>) {
    let place = chat.begin(None, "");
    ask_at(chat, &place, &Prompt::text(prompt), &[], until).await
}

/// The same for any question, at a place of the dialogue, with tools.
pub(crate) async fn ask_at(
    chat: &Chat,
    place: &Place,
    prompt: &Prompt,
    tools: &[Tool],
    until: impl Fn(&[Event]) -> bool,
) -> (Result<Reply, ChatError>, Vec<Event>) {
    let (events, mut shown) = event::channel(4);
    let cancel = CancellationToken::new();
    let collecting = async {
        let mut all = Vec::new();
        while let Some(event) = shown.recv().await {
            all.push(event);
            if until(&all) {
                cancel.cancel();
            }
        }
        all
    };
    let asking = async {
        let options = Options::default();
        let context = "Python 3.11 without network.";
        let turn = Turn { place, prompt, context, tools, options: &options };
        let reply = chat.ask(turn, &events, cancel.clone()).await;
        drop(events);
        reply
    };
    let both = async { tokio::join!(asking, collecting) };
    tokio::time::timeout(Duration::from_mins(5), both).await.expect("an end")
}

/// The tools that the tests offer.
pub(crate) fn tools() -> Vec<Tool> {
    let schema = |names: &[&str]| {
        let members = names.iter().map(|name| ((*name).to_owned(), serde_json::json!({"type": "string"})));
        let members: serde_json::Map<String, Value> = members.collect();
        serde_json::json!({"type": "object", "properties": members, "required": [names[0]]})
    };
    let code = CodeArguments { code: "code", language: "language", default: "python" };
    let run = Tool {
        name: "run_code",
        description: "Runs code in the sandbox.".to_owned(),
        parameters: schema(&["code", "language"]),
        code: Some(code),
    };
    let read = Tool {
        name: "read_file",
        description: "Reads a file.".to_owned(),
        parameters: schema(&["path"]),
        code: None,
    };
    vec![run, read]
}

/// One piece of a tool call in a Chat Completions stream.
pub(crate) fn call(index: u64, id: &str, name: &str, arguments: &str) -> Step {
    let mut call =
        serde_json::json!({"index": index, "type": "function", "function": {"arguments": arguments}});
    if !id.is_empty() {
        call["id"] = id.into();
        call["function"]["name"] = name.into();
    }
    send(chunk(&serde_json::json!({"tool_calls": [call]}), None))
}

pub(crate) async fn ask(chat: &Chat, prompt: &str) -> (Result<Reply, ChatError>, Vec<Event>) {
    ask_until(chat, prompt, |_| false).await
}

/// The texts of the answer, as they were shown.
pub(crate) fn texts(events: &[Event]) -> Vec<&str> {
    let texts = events.iter().filter_map(|event| match event {
        Event::Answer(Answer::Text { delta, .. }) => Some(delta.as_str()),
        _ => None,
    });
    texts.collect()
}

/// The answers as they stand in the end, where what was shown can be replaced.
pub(crate) fn page(events: &[Event]) -> String {
    events.iter().fold(String::new(), |page, event| match event {
        Event::Answer(Answer::Text { delta, .. }) => page + delta,
        Event::Answer(Answer::Instead { old, new, .. }) => {
            format!("{}{new}", page.strip_suffix(old.as_str()).expect("it stands there"))
        }
        _ => page,
    })
}

/// The lines of progress, as they were shown; the empty one takes the line away.
pub(crate) fn progress(events: &[Event]) -> Vec<&str> {
    let lines = events.iter().filter_map(|event| match event {
        Event::Notice(notice) if notice.progress.is_some() => Some(notice.text.as_str()),
        _ => None,
    });
    lines.collect()
}
