//! What the surroundings offer: keys and addresses of providers, folders for the local model. Plain
//! data; the composition root fills it through `config`, the only reader of the environment.
//!
//! Imports `config` (for [`Secret`]).

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::provider::{LOCAL, PROVIDERS, Provider};
use crate::config::Secret;

/// Keys, addresses and folders found outside the settings.
#[derive(Debug, Clone, Default)]
pub struct ProviderEnvironment {
    /// Keys by provider, with the variable that held each.
    keys: BTreeMap<&'static str, (&'static str, Secret)>,
    /// Addresses by provider.
    addresses: BTreeMap<&'static str, String>,
    /// The folder of the local small model (`model.gguf`, `model.json`, `venv`); it need not exist.
    pub local_model: Option<PathBuf>,
    /// A private folder of this user's that does not outlive the login (`XDG_RUNTIME_DIR`).
    pub runtime_dir: Option<PathBuf>,
}

impl ProviderEnvironment {
    /// Looks up every variable that providers usually use. `lookup` returns a variable's value.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let lookup = |name: &str| lookup(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let mut found = ProviderEnvironment::default();
        for provider in PROVIDERS {
            let key = provider.key_variables.iter().find_map(|name| Some((*name, lookup(name)?)));
            if let Some((variable, key)) = key {
                found.keys.insert(provider.name, (variable, Secret::new(key)));
            }
            if let Some(address) = provider.address_variable.and_then(&lookup) {
                let address = if provider.name == "ollama" { ollama_address(&address) } else { address };
                found.addresses.insert(provider.name, address);
            }
        }
        let data = lookup("XDG_DATA_HOME")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .or_else(|| Some(PathBuf::from(lookup("HOME")?).join(".local/share")));
        found.local_model = data.map(|data| data.join("cellblock/local-model"));
        found.runtime_dir = lookup("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        found
    }

    /// The key for a provider's own address.
    pub(crate) fn key(&self, provider: &Provider) -> Option<&Secret> {
        self.keys.get(provider.name).map(|(_, key)| key)
    }

    /// The variable that holds a provider's key.
    pub(crate) fn key_variable(&self, provider: &Provider) -> Option<&'static str> {
        self.keys.get(provider.name).map(|(variable, _)| *variable)
    }

    /// Another address for a provider, given in the environment like its key.
    pub(crate) fn address(&self, provider: &Provider) -> Option<&String> {
        self.addresses.get(provider.name)
    }

    /// The providers that a key in the environment makes usable, the preferred one first.
    pub(crate) fn keyed(&self) -> impl Iterator<Item = &'static Provider> {
        PROVIDERS
            .iter()
            .filter(|provider| provider.needs_key && provider.name != LOCAL && self.key(provider).is_some())
    }

    /// Every key, for taking them out of texts.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.keys.values().map(|(_, key)| key)
    }
}

/// `OLLAMA_HOST` is what the server listens on: it may lack the scheme or the port, and "every
/// address" means this machine to a client.
fn ollama_address(value: &str) -> String {
    let (scheme, rest) = value.split_once("://").unwrap_or(("http", value));
    let rest = rest.trim_end_matches('/');
    let (host, port) = match rest.rsplit_once(':') {
        Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) && !host.ends_with(':') => {
            (host, port)
        }
        _ => (rest, if scheme == "https" { "443" } else { "11434" }),
    };
    let host = match host {
        "" | "0.0.0.0" | "[::]" | "::" => "127.0.0.1",
        host => host,
    };
    format!("{scheme}://{host}:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ollamas_listening_address_becomes_one_to_connect_to() {
        for (value, expected) in [
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:8000", "http://127.0.0.1:8000"),
            (":8000", "http://127.0.0.1:8000"),
            ("box", "http://box:11434"),
            ("http://box:1/", "http://box:1"),
            ("https://box", "https://box:443"),
            ("[::1]:5", "http://[::1]:5"),
        ] {
            assert_eq!(ollama_address(value), expected);
        }
    }

    #[test]
    fn debug_output_of_the_environment_shows_no_key() {
        let found = ProviderEnvironment::read(|name| {
            (name == "OPENAI_API_KEY").then(|| " sk-very-secret\n".to_owned())
        });
        assert_eq!(found.keyed().map(|p| p.name).collect::<Vec<_>>(), ["openai"]);
        assert!(!format!("{found:?}").contains("very-secret"));
    }
}
