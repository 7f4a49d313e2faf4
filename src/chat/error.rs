//! Why there is no answer, in words for the user: what happened, why, what to do next.
//!
//! Imports `event` and `config`. Texts from servers are foreign: bounded, without control characters,
//! and without any key that we know.

use super::conversation::shorten;
use super::environment::ProviderEnvironment;
use super::mask::masked;
use super::model::{Endpoint, ModelError};
use super::provider::{LOCAL, Provider};
use super::refusal::{is_filtered, is_too_long, is_unknown_model};
use super::replay::Take;
use crate::config::Secret;
use crate::event::Failure;

/// The most of a server's own words that is shown.
const WORDS: usize = 2000;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// No model is configured, and none was found.
    #[error("{0}")]
    NoModel(String),
    /// The model's name or address can't be meant.
    #[error("{0}")]
    Name(String),
    /// The key is missing, can't be had or was refused.
    #[error("{0}")]
    Key(String),
    /// The server can't be reached or stopped answering.
    #[error("{0}")]
    Unreachable(String),
    /// The server refused the request.
    #[error("{0}")]
    Refused(String),
    /// The account has no credit left.
    #[error("{0}")]
    Unpaid(String),
    /// The server is too busy, and it was tried often enough.
    #[error("{0}")]
    Busy(String),
    /// The dialogue is longer than the model can read.
    #[error("{0}")]
    TooLong(String),
    /// The server's answer makes no sense.
    #[error("{0}")]
    Garbled(String),
    /// The local model can't be started.
    #[error("{0}")]
    Local(String),
    /// Replies come from a recording, and this one was never recorded.
    #[error("{0}")]
    NotRecorded(String),
}

impl ChatError {
    /// The failure that a cell shows.
    pub fn failure(&self) -> Failure {
        let name = match self {
            ChatError::NoModel(_) => "NoModel",
            ChatError::Name(_) => "ModelNameError",
            ChatError::Key(_) => "ModelKeyError",
            ChatError::Unreachable(_) => "ModelUnreachable",
            ChatError::Refused(_) => "ModelError",
            ChatError::Unpaid(_) => "ModelUnpaid",
            ChatError::Busy(_) => "ModelBusy",
            ChatError::TooLong(_) => "ConversationTooLong",
            ChatError::Garbled(_) => "ModelReplyError",
            ChatError::Local(_) => "LocalModelError",
            ChatError::NotRecorded(_) => "NotRecorded",
        };
        Failure::new(name, self.to_string())
    }

    /// What a recording keeps of it: nothing, unless it is the model's answer to what was asked.
    pub(crate) fn to_record(&self) -> Option<Take> {
        let (kind, text) = match self {
            ChatError::Refused(text) => ("refused", text),
            ChatError::TooLong(text) => ("too_long", text),
            _ => return None,
        };
        Some(Take::Failed { kind: kind.to_owned(), text: text.clone() })
    }

    /// One that was recorded.
    pub(crate) fn recorded(kind: &str, text: String) -> ChatError {
        match kind {
            "too_long" => ChatError::TooLong(text),
            _ => ChatError::Refused(text),
        }
    }
}

/// Makes a server's words fit to be shown: bounded, no control characters, no keys.
pub(crate) fn clean(words: &str, secrets: &[Secret]) -> String {
    let words: String = masked(words, secrets)
        .chars()
        .map(|c| if c == '\n' || !c.is_control() { c } else { ' ' })
        // Marks that reorder or hide text would let a server disguise what it says.
        .filter(|c| !matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'))
        .collect();
    shorten(words.trim(), WORDS)
}

/// What explaining needs to know besides the error.
#[derive(Debug)]
pub(crate) struct Circumstances<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) environment: &'a ProviderEnvironment,
    /// Keys to take out of every text.
    pub(crate) secrets: &'a [Secret],
    /// Names that the server offers, when it was asked.
    pub(crate) offered: &'a [String],
    /// Whether the key came from a command.
    pub(crate) key_command: bool,
}

impl Circumstances<'_> {
    /// The error in words.
    pub(crate) fn explain(&self, error: &ModelError) -> ChatError {
        let name = &self.endpoint.full_name;
        let address = self.endpoint.address();
        match error {
            ModelError::Refused => ChatError::Unreachable(format!(
                "{name} can't be asked: nothing listens at {address} (connection refused); {}",
                self.start_remedy()
            )),
            ModelError::Unreachable(cause) => {
                let remedy = if cause.contains("certificate") {
                    "check the address; when its certificate is by your organisation's own authority, name that \
                     authority's file in SSL_CERT_FILE"
                } else {
                    "check the address, the network and, behind a proxy, HTTPS_PROXY"
                };
                ChatError::Unreachable(format!(
                    "{name} can't be asked: no connection to {address}: {}; {remedy}",
                    clean(cause, self.secrets)
                ))
            }
            ModelError::Lost(cause) => ChatError::Unreachable(format!(
                "the connection to {address} was lost before {name} answered: {}; run the cell again",
                clean(cause, self.secrets)
            )),
            ModelError::Silent(time) => ChatError::Unreachable(format!(
                "{name} at {address} said nothing for {} s, so the request was given up; run the cell again, \
                 or allow more time with the setting model.silence_timeout",
                time.as_secs_f64()
            )),
            ModelError::Wordless(time) => ChatError::Unreachable(format!(
                "{name} at {address} showed no more than signs of life for {} s, so the request was given up; it may be \
                 overloaded: run the cell again later, or allow more time with the setting model.silence_timeout (a \
                 fifth of that)",
                time.as_secs_f64()
            )),
            ModelError::Closed => ChatError::Unreachable(format!(
                "{address} closed the connection before {name} had said anything; run the cell again, and look into \
                 the server's log if it stays so"
            )),
            ModelError::Unpaid { status, text } => {
                let text = clean(text, self.secrets);
                let said = if text.is_empty() { String::new() } else { format!(" and said: {text}") };
                ChatError::Unpaid(format!(
                    "{address} does not answer for {name}, because the account has no credit left (status \
                     {status}){said}\nAdd credit or raise the account's limit with the provider, use another key, or \
                     choose another model with %model"
                ))
            }
            ModelError::Truncated => ChatError::Garbled(format!(
                "{address} ended its answer before {name} had said anything; run the cell again, \
                 and look into the server's log if it stays so"
            )),
            ModelError::InStream(text) => ChatError::Refused(format!(
                "{name} at {address} reported an error: {}",
                clean(text, self.secrets)
            )),
            ModelError::Garbled(what) => ChatError::Garbled(format!(
                "the answer from {address} can't be understood: {}; check that the address is that of a \
                 model server (for a compatible server base_url usually ends in /v1)",
                clean(what, self.secrets)
            )),
            ModelError::Setup(what) => {
                ChatError::Refused(format!("{name} can't be asked: {}", clean(what, self.secrets)))
            }
            ModelError::Status { status, text, location, .. } => {
                self.refusal(*status, text, location.as_deref())
            }
        }
    }

    fn start_remedy(&self) -> &'static str {
        match self.endpoint.provider.name {
            "ollama" => "start Ollama (ollama serve), or choose another model with %model",
            LOCAL => "the local model's server has ended; run the cell again to start it anew",
            _ => "start the server, correct CELLBLOCK_MODEL__BASE_URL, or choose another model with %model",
        }
    }

    fn refusal(&self, status: u16, text: &str, location: Option<&str>) -> ChatError {
        let name = &self.endpoint.full_name;
        let address = self.endpoint.address();
        let text = clean(text, self.secrets);
        let said = if text.is_empty() { String::new() } else { format!(" and said: {text}") };
        let error = ModelError::Status { status, text: text.clone(), retry_after: None, location: None };
        match status {
            300..=399 => {
                let location = clean(location.unwrap_or("nowhere"), self.secrets);
                ChatError::Refused(format!(
                    "{address} redirects to {location} (status {status}); redirects are not followed, so that \
                     no key goes to another host: set the address that is meant as CELLBLOCK_MODEL__BASE_URL"
                ))
            }
            401 | 403 => ChatError::Key(format!(
                "{address} refused the key for {name} (status {status}){said}\n{}",
                self.key_remedy()
            )),
            _ if is_too_long(status, &text) => ChatError::TooLong(format!(
                "the conversation is longer than {name} can read (status {status}){said}\n\
                 Take turns out of it with %hide, forget it with %reset, shorten the prompt, or choose a model with a \
                 larger window with %model"
            )),
            _ if is_filtered(&text) => ChatError::Refused(format!(
                "the content filter of {address} refused the prompt for {name} (status {status}){said}\n\
                 Say it in other words, take what it may object to out of the dialogue with %hide, or choose another model \
                 with %model"
            )),
            _ if is_unknown_model(&error) => ChatError::Name(format!(
                "{address} does not know the model {} (status {status}){said}\n{}",
                self.endpoint.model,
                nearest_remedy(&self.endpoint.model, self.offered)
            )),
            404 | 405 => ChatError::Refused(format!(
                "{address} has nothing to chat with there (status {status}){said}\n\
                 Check the address: for a compatible server base_url usually ends in /v1"
            )),
            _ => {
                ChatError::Refused(format!("{name} at {address} refused the request (status {status}){said}"))
            }
        }
    }

    /// How to give the endpoint a key.
    pub(crate) fn key_remedy(&self) -> String {
        let provider = self.endpoint.provider;
        if self.key_command {
            return "Check what the setting model.api_key_command prints".to_owned();
        }
        key_remedy(provider, self.environment, self.endpoint.base_url.is_some(), self.endpoint.key.is_some())
    }

    /// Tried often enough.
    pub(crate) fn gave_up(&self, error: &ModelError, why: &str) -> ChatError {
        let (name, address) = (&self.endpoint.full_name, self.endpoint.address());
        match error {
            ModelError::Status { status, text, .. } => {
                let text = clean(text, self.secrets);
                let said = if text.is_empty() { String::new() } else { format!("; it said: {text}") };
                ChatError::Busy(format!(
                    "{name} at {address} can't answer now (status {status}); {why}{said}"
                ))
            }
            other => match self.explain(other) {
                ChatError::Unreachable(text) => ChatError::Unreachable(format!("{text}; {why}")),
                ChatError::Garbled(text) => ChatError::Garbled(format!("{text}; {why}")),
                other => other,
            },
        }
    }
}

/// How to give a provider a key.
pub(crate) fn key_remedy(
    provider: &Provider,
    environment: &ProviderEnvironment,
    other_address: bool,
    has_key: bool,
) -> String {
    let check = if has_key { "Check the key" } else { "No key was sent; set one" };
    match provider.key_variables.first() {
        Some(variable) if !other_address => {
            let variable = environment.key_variable(provider).unwrap_or(variable);
            format!(
                "{check} in the environment variable {variable} (or CELLBLOCK_MODEL__API_KEY beside \
                 CELLBLOCK_MODEL__NAME={}/...), before Jupyter is started",
                provider.name
            )
        }
        _ => format!(
            "{check} in CELLBLOCK_MODEL__API_KEY or with the setting model.api_key_command; keys of known \
             providers ({}) are never sent to another address",
            provider.key_variables.first().unwrap_or(&"OPENAI_API_KEY")
        ),
    }
}

/// The names nearest to the one that is unknown.
pub(crate) fn nearest<'a>(name: &str, names: &'a [String]) -> Vec<&'a str> {
    let wanted = name.to_lowercase();
    let mut scored: Vec<(f64, &str)> = names
        .iter()
        .map(|known| {
            let lower = known.to_lowercase();
            let tail = lower.rsplit('/').next().unwrap_or_default();
            let likeness = strsim::jaro_winkler(&wanted, &lower).max(strsim::jaro_winkler(&wanted, tail));
            let within = lower.contains(&wanted) || wanted.contains(tail);
            (if within { likeness.max(0.9) } else { likeness }, known.as_str())
        })
        .filter(|(likeness, _)| *likeness > 0.7)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.dedup_by_key(|(_, known)| *known);
    scored.into_iter().take(3).map(|(_, known)| known).collect()
}

fn nearest_remedy(name: &str, offered: &[String]) -> String {
    if offered.iter().any(|known| known == name) {
        return format!(
            "It lists {name} all the same and yet refuses it: the account may have no access to it, or the server can't \
             load it (its log says why); choose another with %model"
        );
    }
    let near = nearest(name, offered);
    if !near.is_empty() {
        return format!("Did you mean {}? %model lists what there is", near.join(" or "));
    }
    match offered {
        [] => "%model lists what there is".to_owned(),
        some => {
            let some: Vec<&str> = some.iter().take(5).map(String::as_str).collect();
            format!("It offers {}; %model lists what there is", some.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_words_are_bounded_and_lose_keys_and_control_characters() {
        let secrets = [Secret::new("sk-12345"), Secret::new("x")];
        let words = clean("bad\x1b[2J key sk-12345 \u{202e}xx", &secrets);
        assert_eq!(words, "bad [2J key *** xx");
        assert!(clean(&"y".repeat(100_000), &[]).len() < 2100);
    }

    #[test]
    fn nearest_names_are_found_across_case_and_prefixes() {
        let names: Vec<String> = ["gpt-5", "gpt-5-mini", "Qwen/Qwen3-14B", "tts-1"].map(str::to_owned).into();
        assert_eq!(nearest("gtp-5", &names).first(), Some(&"gpt-5"));
        assert_eq!(nearest("qwen3-14b", &names).first(), Some(&"Qwen/Qwen3-14B"));
        assert!(nearest("zzzzzz", &names).is_empty());
    }
}
