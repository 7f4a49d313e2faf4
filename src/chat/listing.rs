//! Which models there are: what `%model` shows, and what is taken when nothing is configured.
//!
//! Imports nothing of ours but this folder's.

use std::time::Duration;

use super::environment::ProviderEnvironment;
use super::model::{ModelError, get_json};
use super::provider::by_name;

/// How long a listing may take, all servers together.
pub(super) const LISTING_TIME: Duration = Duration::from_secs(2);
/// How long Ollama on this machine may take to answer: it is there, or it isn't.
const PROBE_TIME: Duration = Duration::from_secs(1);

/// Every model that can be switched to, as far as the servers answered in time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The full name of the model that is in use; `None`: none is, and none was found.
    pub current: Option<String>,
    /// The models, those of the configured server first.
    pub models: Vec<ListedModel>,
    /// Servers that did not answer, and why.
    pub problems: Vec<String>,
}

/// A model in the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// The full name, as `%model` takes it.
    pub name: String,
    /// Where it comes from (`http://127.0.0.1:8080/v1`, `this machine`), in words when nobody lists it.
    pub source: String,
    /// Whether a server, or this machine, says that it has it.
    pub listed: bool,
    /// Whether it is the one in use.
    pub current: bool,
}

/// Whether a model can be talked to, judged by its name: the big providers list everything they have.
pub(super) fn is_chat_model(name: &str) -> bool {
    const OTHERS: &[&str] = &[
        "embed",
        "tts",
        "whisper",
        "dall-e",
        "moderation",
        "transcribe",
        "image",
        "audio",
        "realtime",
        "rerank",
        "babbage",
        "davinci",
        "sora",
        "veo-",
        "imagen",
    ];
    let name = name.to_lowercase();
    !OTHERS.iter().any(|other| name.contains(other))
}

/// The address at which Ollama should be.
pub(super) fn ollama_address(environment: &ProviderEnvironment) -> String {
    by_name("ollama")
        .and_then(|ollama| Some(environment.address(ollama)?.clone()))
        .unwrap_or_else(|| "http://127.0.0.1:11434".to_owned())
}

/// The models that Ollama has, by its own names.
pub(super) async fn ollama_models(address: &str) -> Result<Vec<String>, ModelError> {
    let tags = get_json(&format!("{address}/api/tags"), None, PROBE_TIME).await?;
    let models = tags.get("models").and_then(serde_json::Value::as_array);
    let models = models.ok_or_else(|| ModelError::Garbled("no list of models in the answer".to_owned()))?;
    Ok(models
        .iter()
        .filter_map(|model| model.get("name").and_then(serde_json::Value::as_str))
        .filter(|name| is_chat_model(name) && !name.chars().any(char::is_whitespace))
        .map(str::to_owned)
        .collect())
}
