//! A request in a form that can be compared: what a recorded reply is found again by.
//!
//! Imports `model` and `turn`. Names of calls, and what differs from run to run in the output of code, do not count.

use std::fmt::Write;

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

use super::lines::{Kind, TextLine};
use super::normal;
use crate::chat::conversation::shorten;
use crate::chat::mask::masked;
use crate::chat::model::{Message, Request};
use crate::chat::turn::Image;
use crate::config::Secret;

/// The most of one text that is kept to be compared, in bytes.
const TEXT: usize = 32 << 10;

/// A part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(super) kind: Kind,
    pub(super) digest: String,
    pub(super) text: String,
}

impl Part {
    fn new(kind: Kind, text: String) -> Self {
        Part { kind, digest: digest(&[&text]), text }
    }

    /// The text as it is kept.
    pub(super) fn kept(&self) -> String {
        shorten(&self.text, TEXT)
    }

    pub(super) fn line(&self) -> TextLine {
        TextLine { text: self.digest.clone(), of: self.kind, is: self.kept() }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Asked {
    /// What a reply is found by.
    pub(super) key: String,
    /// Names the cell's source.
    pub(super) cell: String,
    /// The model as it is configured; empty when it was found by looking.
    pub(super) model: String,
    pub(super) temperature: Option<f64>,
    pub(super) max_tokens: Option<u64>,
    /// System prompt, tools, messages.
    pub(super) parts: Vec<Part>,
}

impl Asked {
    /// What `request` asks of the model of that name, for a cell of that source. Known keys are taken out.
    pub(crate) fn new(request: &Request, model: &str, source: &str, secrets: &[Secret]) -> Asked {
        Asked::at(request, model, source, secrets, Utc::now())
    }

    fn at(request: &Request, model: &str, source: &str, secrets: &[Secret], now: DateTime<Utc>) -> Asked {
        let mut parts = vec![Part::new(Kind::System, masked(&request.system, secrets))];
        if !request.tools.is_empty() {
            let mut text = String::new();
            for tool in &request.tools {
                let parameters = serde_json::to_string_pretty(&tool.parameters).unwrap_or_default();
                let _ = writeln!(text, "{}: {}\n{parameters}", tool.name, tool.description);
            }
            parts.push(Part::new(Kind::Tools, masked(&text, secrets)));
        }
        for message in &request.messages {
            let (kind, text) = match message {
                Message::User { text, images } => {
                    (Kind::User, normal::said(text, now) + &images.iter().map(picture).collect::<String>())
                }
                Message::Assistant { text, calls } => {
                    let mut text = text.clone();
                    for call in calls {
                        let _ = write!(text, "\n[calls {} with {}]", call.name, call.arguments);
                    }
                    (Kind::Assistant, text)
                }
                Message::Results(results) => {
                    let mut text = String::new();
                    // Pictures of code that a model ran are output: other versions of a library draw other pixels.
                    for result in results {
                        let failed = if result.failed { ", failed" } else { "" };
                        let told = normal::outcome(&result.text, now);
                        let _ = writeln!(text, "[{}{failed}]\n{told}", result.name);
                    }
                    (Kind::Results, text)
                }
            };
            parts.push(Part::new(kind, masked(&text, secrets)));
        }
        let (temperature, max_tokens) = (request.temperature, request.max_tokens);
        let parameters = format!("{temperature:?} {max_tokens:?}");
        let mut all = vec!["1", model, &parameters];
        all.extend(parts.iter().map(|part| part.digest.as_str()));
        Asked {
            key: digest(&all),
            cell: cell(source),
            model: model.to_owned(),
            temperature,
            max_tokens,
            parts,
        }
    }

    /// The first words of what the user said last.
    pub(super) fn prompt(&self) -> String {
        let last = self.parts.iter().rev().find(|part| part.kind == Kind::User);
        let line = last.and_then(|part| part.text.lines().rev().find(|line| !line.trim().is_empty()));
        line.unwrap_or_default().trim().chars().take(80).collect()
    }
}

fn picture(image: &Image) -> String {
    format!("\n[{} {}]", image.media_type, digest(&[&image.base64]))
}

/// Names a cell's source; what stands at its end does not count.
pub(super) fn cell(source: &str) -> String {
    digest(&[source.replace("\r\n", "\n").trim_end()])
}

/// 16 hexadecimal digits.
fn digest(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().iter().take(8).fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::turn::{ToolCall, ToolResult};

    fn request(id: &str, result: &str) -> Request {
        let call = ToolCall { id: id.into(), name: "run_code".into(), arguments: "{}".into() };
        let result = ToolResult {
            id: id.into(),
            name: "run_code".into(),
            text: result.into(),
            ..ToolResult::default()
        };
        let messages = vec![
            Message::user("go"),
            Message::Assistant { text: "I look.".into(), calls: vec![call] },
            Message::Results(vec![result]),
        ];
        Request { system: "s".into(), messages, ..Request::default() }
    }

    fn key(request: &Request, model: &str) -> String {
        Asked::new(request, model, "", &[]).key
    }

    #[test]
    fn what_differs_from_run_to_run_does_not_count_and_the_rest_does() {
        let one = request("call_1", "<Foo object at 0x7f00aa10b2c0> in 12.5 ms");
        let other = request("call_2", "<Foo object at 0x7f11bb20c3d0> in 9 ms");
        assert_eq!(key(&one, "m"), key(&other, "m"));
        assert_ne!(key(&one, "m"), key(&one, "n"));
        assert_ne!(key(&one, "m"), key(&request("call_1", "2"), "m"));
        let warm = Request { temperature: Some(0.5), ..one.clone() };
        assert_ne!(key(&one, "m"), key(&warm, "m"));
        let mut asked = one.clone();
        asked.messages[0] = Message::user("go, in 12 ms");
        let mut again = one;
        again.messages[0] = Message::user("go, in 13 ms");
        assert_ne!(key(&asked, "m"), key(&again, "m"), "the user's own words count as they are");
    }

    #[test]
    fn keys_are_taken_out() {
        let secret = [Secret::new("sk-12345")];
        let asked = Asked::new(&request("c", "it is sk-12345"), "m", "x\n", &secret);
        assert!(!format!("{asked:?}").contains("sk-12345"));
        assert_eq!(asked.cell, cell("x"));
    }
}
