//! The model at work: whole cells through the engine, a scripted model server, real containers.

mod budget;
mod files;
mod hostile;
mod modes;
mod turns;

use std::sync::Arc;

use cellblock::config::{AgentMode, AgentSettings, Flavor};
use cellblock::event::{Answer, Ask, Event, Level};
use serde_json::{Value, json};

use crate::cells::{Kernel, Ran};
use crate::chat_server::{Server, Step, answer, call, done, stop, streaming, text};

/// A kernel whose model is this server, in the mode `auto`.
fn kernel(server: &Server) -> Kernel {
    with(server, |_| ())
}

fn with(server: &Server, change: impl FnOnce(&mut AgentSettings)) -> Kernel {
    Kernel::with(Flavor::Markdown, Some(server), |parts| {
        parts.habits.agent.mode = AgentMode::Auto;
        change(&mut parts.habits.agent);
    })
}

/// A reply with these calls, each a tool and its arguments, after some words.
fn calling(words: &str, calls: &[(&str, Value)]) -> Vec<Step> {
    let mut steps = vec![streaming()];
    if !words.is_empty() {
        steps.push(text(words));
    }
    for (index, (name, arguments)) in (0_u64..).zip(calls) {
        steps.push(call(index, &format!("call-{index}"), name, &arguments.to_string()));
    }
    steps.extend([stop("tool_calls"), done()]);
    steps
}

/// A reply that runs this Python.
fn python(code: &str) -> Vec<Step> {
    calling("", &[("run_code", json!({ "code": code, "language": "python" }))])
}

/// The results that the model was sent with its nth request, in order.
fn results(server: &Server, request: usize) -> Vec<String> {
    let asked = server.asked();
    let messages = asked.get(request).map(|asked| asked.body["messages"].clone()).unwrap_or_default();
    let all: Vec<&Value> = messages.as_array().into_iter().flatten().collect();
    let last_call = all.iter().rposition(|message| message["role"] == "assistant").unwrap_or(0);
    let tools = all.iter().skip(last_call).filter(|message| message["role"] == "tool");
    tools.map(|message| content(message)).collect()
}

/// A message's text, however it is wrapped.
fn content(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

/// The only result that the model was sent with its nth request.
fn result(server: &Server, request: usize) -> String {
    let results = results(server, request);
    assert_eq!(results.len(), 1, "{results:#?}");
    results[0].clone()
}

/// What was shown, in order: `say:`, `out:`, `err:`, `note:`; pieces of one kind joined.
fn shown(ran: &Ran) -> Vec<(&'static str, String)> {
    let mut all: Vec<(&'static str, String)> = Vec::new();
    for event in &ran.events {
        let (kind, text) = match event {
            Event::Answer(Answer::Text { delta, .. }) => ("say", delta.clone()),
            Event::Stream { stream, text } => {
                (if stream.name() == "stdout" { "out" } else { "err" }, text.clone())
            }
            // Where the tests run as root, that is remarked on once.
            Event::Notice(notice) if notice.text.contains("runs as root") => continue,
            Event::Notice(notice) if notice.level != Level::Info => ("note", notice.text.clone()),
            Event::Error(failure) => ("error", failure.ename.clone()),
            Event::Display { .. } => ("display", String::new()),
            Event::Clear { .. } => ("clear", String::new()),
            _ => continue,
        };
        match all.last_mut() {
            Some((last, so_far)) if *last == kind => so_far.push_str(&text),
            _ => all.push((kind, text)),
        }
    }
    all
}

fn warnings(ran: &Ran) -> String {
    let notes = shown(ran).into_iter().filter(|(kind, _)| *kind == "note");
    notes.map(|(_, text)| text + "\n").collect()
}

/// Runs a cell with a user who answers.
async fn answered(kernel: &Kernel, code: &str, ask: Arc<dyn Ask>) -> Ran {
    kernel.answered(code, ask).await
}

fn ok() -> Vec<Step> {
    answer(&["ok"])
}
