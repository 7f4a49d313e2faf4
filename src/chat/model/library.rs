//! The provider library (`rig-core`): its clients are built here, its streams translated. Its types
//! never leave this folder.
//!
//! The library logs what servers say, which may repeat a key: it runs without a log, and what matters
//! of its errors is reported by us.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rig_core::completion::{CompletionRequest, FinishReason, Message as LibraryMessage};
use rig_core::message::AssistantContent;
use rig_core::operation::Completion;
use rig_core::providers::openai::wire::{Auth, Dialect, OPENAI, by_name};
use rig_core::providers::{anthropic, gemini, ollama, openai};
use rig_core::streaming::{Item, PartKind, StreamEvent, Streamed};
use rig_core::{DynModel, ProviderError};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::{NoSubscriber, with_default};

use super::{Connections, Delta, Endpoint, Finish, ModelError, Request, Tokens, Understands, translate};
use crate::chat::provider::Wire;

/// A model that can be asked.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    inner: DynModel<Completion>,
    understands: Understands,
    /// The server is asked to keep nothing, and to hand its reasoning over, encrypted, to be sent back.
    keeps_nothing: bool,
    connections: Arc<Connections>,
}

/// What an address that speaks OpenAI's newer API ends with.
const RESPONSES: &str = "/responses";

/// Whether an endpoint is asked in OpenAI's newer API (Responses): OpenAI itself, and an address that says so. With any other
/// address `openai` means whatever server has learnt the API that everybody speaks.
fn speaks_responses(endpoint: &Endpoint) -> bool {
    matches!(endpoint.provider.wire, Wire::OpenAi)
        && endpoint.base_url.as_ref().is_none_or(|address| address.ends_with(RESPONSES))
}

/// Whether a model of OpenAI's reasons before it answers; the others refuse to be asked for their reasoning.
fn reasons(model: &str) -> bool {
    let digit_after_o =
        model.strip_prefix('o').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    digit_after_o || model.starts_with("gpt-5") && !model.contains("chat")
}

/// One of the library's clients for an endpoint.
enum Client {
    OpenAi(Box<openai::OpenAI>),
    Anthropic(anthropic::Anthropic),
    Gemini(gemini::Gemini),
    Ollama(ollama::Ollama),
}

/// The dialect of an OpenAI-compatible server; `plain` leaves out request fields beyond the oldest.
fn dialect(wire: Wire, plain: bool) -> Dialect {
    let mut dialect = match wire {
        Wire::Compatible(name) => by_name(name).copied().unwrap_or(OPENAI),
        _ => OPENAI,
    };
    // `[DONE]` says that the reply is complete, with or without a reason before it.
    dialect.quirks.done_without_finish_reason = true;
    if plain {
        dialect.quirks.stream_include_usage = false;
    }
    dialect
}

/// `plain`: only request fields that the simplest compatible server knows.
fn client(endpoint: &Endpoint, plain: bool) -> Result<Client, ModelError> {
    let key = endpoint.key.as_ref().map_or("", |key| key.reveal());
    let http = endpoint.connections.to(endpoint.address(), endpoint.connect_timeout)?;
    Ok(match endpoint.provider.wire {
        Wire::OpenAi | Wire::Compatible(_) => {
            let mut config = openai::OpenAIConfig::with_key(&dialect(endpoint.provider.wire, plain), key)
                .with_auth(Auth::OptionalBearer);
            if let Some(base_url) = &endpoint.base_url {
                config = config.with_base_url(base_url.strip_suffix(RESPONSES).unwrap_or(base_url));
            }
            Client::OpenAi(Box::new(config.connect(http)))
        }
        Wire::Anthropic => {
            let mut config = anthropic::wire::AnthropicConfig::new(key);
            if let Some(base_url) = &endpoint.base_url {
                config = config.with_base_url(base_url);
            }
            Client::Anthropic(config.connect(http))
        }
        Wire::Gemini => {
            let mut config = gemini::GeminiConfig::new(key);
            if let Some(base_url) = &endpoint.base_url {
                config = config.with_base_url(base_url.clone());
            }
            Client::Gemini(config.connect(http))
        }
        Wire::Ollama => Client::Ollama(
            ollama::OllamaConfig::new().with_base_url(endpoint.address()).with_api_key(key).connect(http),
        ),
    })
}

impl Model {
    /// Prepares an endpoint; nothing is sent.
    pub(crate) fn connect(endpoint: &Endpoint, understands: Understands) -> Result<Model, ModelError> {
        let name = endpoint.model.as_str();
        let inner = match client(endpoint, !understands.newer)? {
            Client::OpenAi(client) if speaks_responses(endpoint) => client.completion(name).erase(),
            Client::OpenAi(client) => client.chat(name).erase(),
            Client::Anthropic(client) => {
                let mut model = client.completion(name);
                // The API demands a limit, and the library knows only the limits of models it knows.
                model.wire.default_max_tokens.get_or_insert(8192);
                model.erase()
            }
            Client::Gemini(client) => client.completion(name).erase(),
            Client::Ollama(client) => client.native_completion(name).erase(),
        };
        let keeps_nothing = understands.newer && speaks_responses(endpoint) && reasons(name);
        Ok(Model { inner, understands, keeps_nothing, connections: Arc::clone(&endpoint.connections) })
    }

    /// Asks. Nothing is sent until the stream is polled; dropping it cancels the request.
    pub(crate) fn stream(&self, request: &Request) -> Result<Generation, ModelError> {
        let mut asked = CompletionRequest::new("");
        asked.chat_history = translate::history(request, self.understands, &self.connections.turns);
        if self.understands.tools {
            asked.tools = translate::tools(request);
        }
        asked.temperature = request.temperature;
        asked.max_tokens = request.max_tokens;
        asked.accept_unknown_finish_reasons = true;
        if self.keeps_nothing {
            asked.additional_params = Some(serde_json::json!({ "store": false }));
        }
        let stream = with_default(NoSubscriber::new(), || {
            self.inner.stream(asked).map_err(|error| ModelError::from_library(&error, false))
        })?;
        Ok(Generation { stream: Some(stream), begun: false, connections: Arc::clone(&self.connections) })
    }

    /// The names of the models that an endpoint's server offers.
    pub(crate) async fn list(endpoint: &Endpoint, timeout: Duration) -> Result<Vec<String>, ModelError> {
        let client = client(endpoint, true)?;
        let listed = async {
            match client {
                Client::OpenAi(client) => client.list_models().await,
                Client::Anthropic(client) => client.list_models().await,
                Client::Gemini(client) => client.list_models().await,
                Client::Ollama(client) => client.list_models().await,
            }
        };
        match tokio::time::timeout(timeout, listed.with_subscriber(NoSubscriber::new())).await {
            Ok(Ok(list)) => Ok(list.data.into_iter().map(|model| model.id).collect()),
            Ok(Err(error)) => Err(ModelError::from_library(&error, false)),
            Err(_) => Err(ModelError::Silent(timeout)),
        }
    }
}

/// A reply as it arrives.
pub(crate) struct Generation {
    stream: Option<Streamed<Completion>>,
    begun: bool,
    connections: Arc<Connections>,
}

impl Generation {
    /// When the server last showed a sign of life, at the earliest `word`: any byte is one, whatever it means.
    pub(crate) fn heard_since(&self, word: Instant) -> Instant {
        self.connections.heard.last().map_or(word, |heard| heard.max(word))
    }

    /// The next part; `None` after the end or an error. Dropping the `Generation` cancels the request.
    pub(crate) async fn next(&mut self) -> Option<Result<Delta, ModelError>> {
        self.advance().with_subscriber(NoSubscriber::new()).await
    }

    async fn advance(&mut self) -> Option<Result<Delta, ModelError>> {
        loop {
            let item = match self.stream.as_mut()?.next().await {
                Some(Ok(Item::Event(event))) => event,
                Some(Ok(Item::Unknown(_))) => continue,
                Some(Err(error)) => return Some(Err(self.failed(&error))),
                None => return Some(self.end().await),
            };
            self.begun = true;
            match item {
                StreamEvent::Text { text, .. } if !text.is_empty() => return Some(Ok(Delta::Text(text))),
                StreamEvent::Reasoning { text, .. } if !text.is_empty() => {
                    return Some(Ok(Delta::Reasoning(text)));
                }
                StreamEvent::Start { part, kind: PartKind::ToolCall, name: Some(name) } => {
                    return Some(Ok(Delta::CallStart { part: part.index() as u64, name: name.into() }));
                }
                StreamEvent::Arguments { part, json } if !json.is_empty() => {
                    return Some(Ok(Delta::CallArguments { part: part.index() as u64, json }));
                }
                StreamEvent::End { part, content: AssistantContent::ToolCall(call) } => {
                    let call = translate::call(&call);
                    return Some(Ok(Delta::Call { part: part.index() as u64, call }));
                }
                StreamEvent::Text { .. }
                | StreamEvent::Reasoning { .. }
                | StreamEvent::Start { .. }
                | StreamEvent::Arguments { .. }
                | StreamEvent::End { .. } => {}
            }
        }
    }

    fn failed(&mut self, error: &ProviderError) -> ModelError {
        self.stream = None;
        ModelError::from_library(error, self.begun)
    }

    async fn end(&mut self) -> Result<Delta, ModelError> {
        let Some(stream) = self.stream.take() else { return Err(ModelError::Truncated) };
        let response = stream.finish().await.map_err(|error| self.failed(&error))?;
        if let Some(error) = &response.error {
            return Err(ModelError::InStream(error.clone()));
        }
        if let Some(LibraryMessage::Assistant(reply)) = response.message() {
            self.connections.turns.keep(&reply);
        }
        let finish = match response.finish_reason() {
            None | Some(FinishReason::Stop | FinishReason::ToolCalls) => Finish::Stop,
            Some(FinishReason::Length) => Finish::Length,
            Some(FinishReason::ContentFilter) => Finish::Filtered,
            Some(FinishReason::Other(reason)) => Finish::Other(reason),
            // The library may learn more reasons.
            Some(other) => Finish::Other(format!("{other:?}")),
        };
        Ok(Delta::End {
            finish,
            tokens: Tokens {
                input: response.usage.input_tokens,
                cached: response.usage.cached_input_tokens,
                output: response.usage.output_tokens,
                reasoning: response.usage.reasoning_tokens,
            },
        })
    }
}
