//! What a model's name means: `provider/model`, or a bare name where only one thing can be meant.
//!
//! Imports nothing of ours but the provider table.

use super::error::nearest;
use super::provider::{LOCAL, PROVIDERS, Provider, Wire, by_family, by_name};

/// A name understood.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    /// Who serves it.
    pub(crate) provider: &'static Provider,
    /// The model's name as the server knows it; may contain slashes.
    pub(crate) model: &'a str,
    /// Whether it is served at the configured address.
    pub(crate) at_home: bool,
}

/// Understands a name. `home` is the provider that a configured address belongs to, `known` are full
/// names seen in listings.
///
/// The error says why the name can't be meant, and offers near ones.
pub(crate) fn understand<'a>(
    name: &'a str,
    home: Option<&'static Provider>,
    known: &[String],
) -> Result<Named<'a>, String> {
    let name = name.trim();
    if name.is_empty() {
        return Err("a model's name is missing; it looks like openai/gpt-5 or ollama/qwen3:14b".to_owned());
    }
    if name.len() > 200 || name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("this can't be a model's name: names have no spaces and at most 200 characters; \
                    they look like openai/gpt-5 or ollama/qwen3:14b"
            .to_owned());
    }
    if let Some((prefix, model)) = name.split_once('/')
        && let Some(provider) = by_name(prefix)
    {
        if model.is_empty() {
            return Err(format!("{name} names no model; write {prefix}/ and the model's name"));
        }
        let at_home = home.is_some_and(|home| home.name == provider.name);
        return Ok(Named { provider, model, at_home });
    }
    // A compatible server's models are called anything, slashes included.
    if let Some(home) = home
        && matches!(home.wire, Wire::OpenAi | Wire::Compatible(_))
    {
        return Ok(Named { provider: home, model: name, at_home: true });
    }
    if name.contains('/') {
        return Err(unknown(name, known));
    }
    bare(name, known).ok_or_else(|| unknown(name, known))
}

/// A bare name, without a configured address.
fn bare<'a>(name: &'a str, known: &[String]) -> Option<Named<'a>> {
    let own = |provider, model| Some(Named { provider, model, at_home: false });
    if name == LOCAL {
        return own(by_name(LOCAL)?, name);
    }
    if let Some(provider) = by_name(name) {
        return own(provider, provider.default_model?);
    }
    let mut serving = known.iter().filter_map(|known| {
        let (prefix, model) = known.split_once('/')?;
        (model == name).then(|| by_name(prefix)).flatten()
    });
    if let Some(first) = serving.next() {
        return if serving.next().is_none() { own(first, name) } else { None };
    }
    if let Some(provider) = by_family(name) {
        return own(provider, name);
    }
    // Only Ollama's names have tags.
    if name.contains(':') { own(by_name("ollama")?, name) } else { None }
}

fn unknown(name: &str, known: &[String]) -> String {
    let serving: Vec<&str> = known
        .iter()
        .filter(|full| full.split_once('/').is_some_and(|(_, model)| model == name))
        .map(String::as_str)
        .collect();
    if serving.len() > 1 {
        return format!("{name} can mean {}; write the one that is meant", serving.join(" or "));
    }
    let mut candidates: Vec<String> = known.to_vec();
    for provider in PROVIDERS {
        match name.split_once('/') {
            Some((_, model)) => candidates.push(format!("{}/{model}", provider.name)),
            None => {
                candidates.extend(provider.default_model.map(|m| format!("{}/{m}", provider.name)));
            }
        }
    }
    let near = nearest(name, &candidates);
    let near =
        if near.is_empty() { ".".to_owned() } else { format!("; did you mean {}?", near.join(" or ")) };
    let providers: Vec<&str> = PROVIDERS.iter().map(|provider| provider.name).collect();
    format!(
        "it is not clear which model {name} is{near} Names look like openai/gpt-5, with one of the providers \
         {}; any other server that speaks Chat Completions is reached by its address in \
         CELLBLOCK_MODEL__BASE_URL. %model lists what there is",
        providers.join(", ")
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn means(name: &str, home: Option<&'static Provider>, known: &[&str]) -> Result<String, String> {
        let known: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
        understand(name, home, &known)
            .map(|n| format!("{} {}{}", n.provider.name, n.model, if n.at_home { " home" } else { "" }))
    }

    #[test]
    fn names_with_a_provider_mean_that_provider() {
        assert_eq!(means("openai/gpt-5", None, &[]).unwrap(), "openai gpt-5");
        assert_eq!(means("ollama/qwen3:14b", None, &[]).unwrap(), "ollama qwen3:14b");
        assert_eq!(means("openrouter/meta/llama", None, &[]).unwrap(), "openrouter meta/llama");
    }

    #[test]
    fn bare_names_are_taken_where_only_one_thing_can_be_meant() {
        assert_eq!(means("claude-sonnet-4-6", None, &[]).unwrap(), "anthropic claude-sonnet-4-6");
        assert_eq!(means("qwen3:14b", None, &[]).unwrap(), "ollama qwen3:14b");
        assert_eq!(means("local", None, &[]).unwrap(), "local local");
        assert_eq!(means("anthropic", None, &[]).unwrap(), "anthropic claude-sonnet-4-6");
        assert_eq!(means("phi", None, &["ollama/phi"]).unwrap(), "ollama phi");
        let error = means("phi", None, &["ollama/phi", "groq/phi"]).unwrap_err();
        assert!(error.contains("ollama/phi or groq/phi"), "{error}");
    }

    #[test]
    fn with_an_address_any_name_is_that_servers() {
        let home = by_name("openai");
        assert_eq!(means("Qwen/Qwen3-14B", home, &[]).unwrap(), "openai Qwen/Qwen3-14B home");
        assert_eq!(means("openai/Qwen/Qwen3", home, &[]).unwrap(), "openai Qwen/Qwen3 home");
        assert_eq!(means("gemma", home, &[]).unwrap(), "openai gemma home");
        assert_eq!(means("anthropic/claude-x", home, &[]).unwrap(), "anthropic claude-x");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_near_names() {
        let error = means("opnai/gpt-5", None, &[]).unwrap_err();
        assert!(error.contains("openai/gpt-5"), "{error}");
        for name in ["", " ", "a b", "openai/", "x\u{7}y"] {
            assert!(means(name, None, &[]).is_err(), "{name:?}");
        }
    }
}
