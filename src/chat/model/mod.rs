//! One language model behind one address: asked once, it streams deltas.
//!
//! The provider library is known only below this folder: `library` builds its clients and translates
//! its streams, `http` is the transport we give it, `error` says what a failure was. Everything else
//! in `chat` speaks [`Endpoint`], [`Request`], [`Delta`] and [`ModelError`].
//!
//! Imports `config` (for [`Secret`]). To add a provider that the library speaks, add a row to
//! [`provider::PROVIDERS`](super::provider::PROVIDERS); only a new wire format touches `library`.

mod error;
mod http;
mod library;

use std::sync::Arc;
use std::time::Duration;

use super::provider::Provider;
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
    /// The address as the user would recognise it.
    pub(crate) fn address(&self) -> &str {
        self.base_url.as_deref().unwrap_or(self.provider.base_url)
    }
}

/// Who said a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The user, or the notebook on the user's behalf.
    User,
    /// The model.
    Assistant,
}

/// One message of the dialogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Who said it.
    pub(crate) role: Role,
    /// Never empty.
    pub(crate) text: String,
}

/// What a model is asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// The system prompt.
    pub(crate) system: String,
    /// The dialogue; the last message is the user's.
    pub(crate) messages: Vec<Message>,
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
    /// The model wants a tool called.
    ToolCall {
        /// Which tool.
        name: String,
        /// Its arguments.
        arguments: serde_json::Value,
    },
    /// The reply is over; the last delta of a stream that ended in order.
    End {
        /// Why the model stopped.
        finish: Finish,
        /// Tokens read, when the server said.
        input_tokens: Option<u64>,
        /// Tokens written, when the server said.
        output_tokens: Option<u64>,
    },
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
