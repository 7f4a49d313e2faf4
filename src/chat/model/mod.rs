//! One language model behind one address: asked once, it streams deltas.
//!
//! The provider library is known only below this folder: `library` builds its clients and translates
//! its streams, `translate` the dialogue, `turns` keeps what providers want back, `http` is the transport
//! we give it, `error` says what a failure was. Everything else in `chat` speaks [`Endpoint`], [`Request`], [`Delta`] and [`ModelError`].
//!
//! Imports `config` (for [`Secret`]). To add a provider that the library speaks, add a row to
//! [`provider::PROVIDERS`](super::provider::PROVIDERS); only a new wire format touches `library`.

mod error;
mod http;
mod library;
mod translate;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::provider::{LOCAL, Provider};
use super::turn::{Image, Tool, ToolCall, ToolResult};
use crate::config::Secret;

pub(crate) use error::{ModelError, RetryAfter};
pub(crate) use http::{Connections, check_base_url, get_json};
pub(crate) use library::Model;

/// A model and how it is reached.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// Who serves it.
    pub(crate) provider: &'static Provider,
    /// The model's name as the server knows it.
    pub(crate) model: String,
    /// The full name shown to the user, `provider/model`.
    pub(crate) full_name: String,
    /// Where requests go instead of the provider's own address.
    pub(crate) base_url: Option<String>,
    /// Sent to that address and to no other.
    pub(crate) key: Option<Secret>,
    /// How long a connection may take.
    pub(crate) connect_timeout: Duration,
    /// The most characters of dialogue that are worth sending.
    pub(crate) budget: usize,
    /// Where connections are kept between questions.
    pub(crate) connections: Arc<Connections>,
}

impl Endpoint {
    /// Whether it is the small model on this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.provider.name == LOCAL
    }

    /// The address as the user would recognise it.
    pub(crate) fn address(&self) -> &str {
        self.base_url.as_deref().unwrap_or(self.provider.base_url)
    }
}

/// One message of the dialogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// The user, or the notebook on the user's behalf. The text is never empty.
    User {
        /// What is said.
        text: String,
        /// Pictures that go with it.
        images: Vec<Image>,
    },
    /// The model: text, calls, or both.
    Assistant {
        /// What it said.
        text: String,
        /// What it called. The next message holds the results, one for each.
        calls: Vec<ToolCall>,
    },
    /// What came of the calls of the message before.
    Results(Vec<ToolResult>),
}

impl Message {
    /// Words of the user.
    pub(crate) fn user(text: impl Into<String>) -> Self {
        Message::User { text: text.into(), images: Vec::new() }
    }

    /// Whether pictures go with it.
    pub(crate) fn has_images(&self) -> bool {
        match self {
            Message::User { images, .. } => !images.is_empty(),
            Message::Assistant { .. } => false,
            Message::Results(results) => results.iter().any(|result| !result.images.is_empty()),
        }
    }

    /// Words of the model.
    #[cfg(test)]
    pub(crate) fn assistant(text: impl Into<String>) -> Self {
        Message::Assistant { text: text.into(), calls: Vec::new() }
    }
}

/// What a model is asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// The system prompt.
    pub(crate) system: String,
    /// The dialogue; the last message is the user's, or holds results.
    pub(crate) messages: Vec<Message>,
    /// What the model may call.
    pub(crate) tools: Vec<Tool>,
    /// Sampling temperature; the server's default when `None`.
    pub(crate) temperature: Option<f64>,
    /// The most tokens of the reply; the server's default when `None`.
    pub(crate) max_tokens: Option<u64>,
}

/// A part of the reply, as it arrives.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Delta {
    /// More text.
    Text(String),
    /// More reasoning, sent apart from the text by the server.
    Reasoning(String),
    /// A call begins to form. `part` names it among the parts of this reply.
    CallStart {
        /// Which call.
        part: u64,
        /// Which tool.
        name: String,
    },
    /// A call's arguments grew: a piece of JSON.
    CallArguments {
        /// Which call.
        part: u64,
        /// What was added.
        json: String,
    },
    /// A call is whole. It may come without its beginning.
    Call {
        /// Which call.
        part: u64,
        /// The call.
        call: ToolCall,
    },
    /// The reply is over; the last delta of a stream that ended in order.
    End {
        /// Why the model stopped.
        finish: Finish,
        /// What the server counted.
        tokens: Tokens,
    },
}

/// What a server takes of a request, learnt from its refusals, and how its model calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is learnt by itself")]
pub(crate) struct Understands {
    /// Request fields beyond those that the simplest compatible server knows.
    pub(crate) newer: bool,
    /// Tools.
    pub(crate) tools: bool,
    /// Images.
    pub(crate) images: bool,
    /// The model has called a tool as the protocol has it: what looks like a call in its text is a quotation.
    pub(crate) calls: bool,
}

impl Default for Understands {
    fn default() -> Self {
        Understands { newer: true, tools: true, images: true, calls: false }
    }
}

/// Tokens, as far as the server said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tokens {
    /// Read by the model, those from a cache included.
    pub(crate) input: Option<u64>,
    /// Of them, read from a cache.
    pub(crate) cached: Option<u64>,
    /// Written by the model, reasoning included.
    pub(crate) output: Option<u64>,
    /// Of them, reasoning.
    pub(crate) reasoning: Option<u64>,
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finish {
    /// It was done.
    Stop,
    /// It reached the limit of tokens.
    Length,
    /// The provider's filter stopped it.
    Filtered,
    /// The server gave a reason of its own.
    Other(String),
}
