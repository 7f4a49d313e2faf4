//! The lines of a recording. Imports `model`.
//!
//! Fields keep their order, so that differences stay small; one that is not known is passed over.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chat::model::{Delta, Finish, Tokens};
use crate::chat::turn::ToolCall;
use crate::chat::written::Counts;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Line {
    /// A text of a request.
    Text(TextLine),
    /// A reply.
    Reply(Box<ReplyLine>),
}

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    System,
    Tools,
    User,
    Assistant,
    Results,
}

impl Kind {
    /// For the user.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::System => "the system prompt",
            Kind::Tools => "the tools",
            Kind::User => "what the user says, code and outputs included",
            Kind::Assistant => "what the model said",
            Kind::Results => "what came of calls",
        }
    }
}

/// A text of a request, once for all of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TextLine {
    /// Its digest.
    pub(super) text: String,
    pub(super) of: Kind,
    /// The text, shortened where it is long.
    pub(super) is: String,
}

/// A reply and what it was to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReplyLine {
    /// What it is found by.
    pub(super) reply: String,
    /// Names the source of the cell that asked.
    pub(super) cell: String,
    /// The first words of the prompt.
    #[serde(default)]
    pub(super) prompt: String,
    /// The model as it was configured; empty when it was found by looking.
    #[serde(default)]
    pub(super) model: String,
    /// The model that answered.
    pub(crate) by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) temperature: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<u64>,
    /// How much dialogue the model takes, in bytes, where that is not the usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) window: Option<usize>,
    /// The digests of system prompt, tools and messages, in their order.
    #[serde(default)]
    pub(super) asked: Vec<(Kind, String)>,
    /// Whether the server took tools.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub(crate) could_call: bool,
    /// Which calls written as text counted.
    #[serde(default)]
    pub(crate) as_text: Counts,
    /// The reply, piece by piece.
    pub(crate) says: Vec<Take>,
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

/// A piece of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Take {
    Text(String),
    Reasoning(String),
    CallStart {
        part: u64,
        name: String,
    },
    CallArguments {
        part: u64,
        json: String,
    },
    Call {
        part: u64,
        call: ToolCall,
    },
    /// It ended; `""`: in order.
    End {
        finish: String,
        tokens: Tokens,
    },
    /// It was cut off, with this reason.
    Cut(String),
    /// There was no reply: the kind of error, and its words.
    Failed {
        kind: String,
        text: String,
    },
}

impl Take {
    pub(super) fn of(delta: &Delta) -> Take {
        match delta.clone() {
            Delta::Text(text) => Take::Text(text),
            Delta::Reasoning(text) => Take::Reasoning(text),
            Delta::CallStart { part, name } => Take::CallStart { part, name },
            Delta::CallArguments { part, json } => Take::CallArguments { part, json },
            Delta::Call { part, call } => Take::Call { part, call },
            Delta::End { finish, tokens } => {
                let finish = match finish {
                    Finish::Stop => String::new(),
                    Finish::Length => "length".to_owned(),
                    Finish::Filtered => "filtered".to_owned(),
                    Finish::Other(reason) => format!("other {reason}"),
                };
                Take::End { finish, tokens }
            }
        }
    }

    /// The part of a reply that it is; a cut and a failure are none.
    pub(super) fn delta(&self) -> Option<Delta> {
        Some(match self.clone() {
            Take::Text(text) => Delta::Text(text),
            Take::Reasoning(text) => Delta::Reasoning(text),
            Take::CallStart { part, name } => Delta::CallStart { part, name },
            Take::CallArguments { part, json } => Delta::CallArguments { part, json },
            Take::Call { part, call } => Delta::Call { part, call },
            Take::End { finish, tokens } => {
                let finish = match finish.as_str() {
                    "" => Finish::Stop,
                    "length" => Finish::Length,
                    "filtered" => Finish::Filtered,
                    other => Finish::Other(other.strip_prefix("other ").unwrap_or(other).to_owned()),
                };
                Delta::End { finish, tokens }
            }
            Take::Cut(_) | Take::Failed { .. } => return None,
        })
    }
}

/// A line that is none of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) why: String,
    /// It is a JSON object, so it may be the line of a newer Cellblock.
    pub(super) is_object: bool,
}

/// Reads a line.
pub(super) fn read(line: &[u8]) -> Result<Line, Wrong> {
    let value: Value = serde_json::from_slice(line)
        .map_err(|error| Wrong { why: format!("not JSON: {error}"), is_object: false })?;
    let is_object = value.is_object();
    let read = if value.get("reply").is_some() {
        serde_json::from_value(value).map_err(|error| error.to_string()).and_then(|reply: ReplyLine| {
            if is_plain(&reply.by) { Ok(Line::Reply(Box::new(reply))) } else { Err(BY.to_owned()) }
        })
    } else if value.get("text").is_some() {
        serde_json::from_value(value).map(Line::Text).map_err(|error| error.to_string())
    } else {
        Err("neither a reply nor a text".to_owned())
    };
    read.map_err(|why| Wrong { why, is_object })
}

const BY: &str = "`by` is no model's name: one plain line of at most 200 characters";

/// Whether that can be shown as a model's name.
fn is_plain(by: &str) -> bool {
    let plain = |c: char| matches!(c, '\'' | '"' | '\\') || c.escape_debug().len() == 1;
    by.chars().count() <= 200 && by.chars().all(plain)
}

/// Adds a line with its end.
pub(super) fn write(line: &Line, to: &mut String) {
    let json = match line {
        Line::Text(text) => serde_json::to_string(text),
        Line::Reply(reply) => serde_json::to_string(reply),
    };
    // Strings, numbers and lists can always be written.
    if let Ok(json) = json {
        to.push_str(&json);
        to.push('\n');
    }
}
