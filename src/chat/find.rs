//! Which model is meant, where it is and with which key: from the settings, the environment, or by
//! looking around.
//!
//! Imports nothing of ours but this folder's. **Where keys go**: a key of the settings (or of the key command) goes
//! to the configured provider at the configured address; a provider's key found in the environment
//! goes to that provider's own address (or the one given beside it in the environment), and to no
//! other. Switching to another model never moves a key to another host.

use std::sync::Arc;

use futures_util::future::join_all;

use super::error::{ChatError, clean, key_remedy};
use super::listing::{LISTING_TIME, ListedModel, Listing, is_chat_model, ollama_address, ollama_models};
use super::model::{Endpoint, Model, check_base_url};
use super::name::understand;
use super::progress::Progress;
use super::provider::{LOCAL, PROVIDERS, Provider, by_name};
use super::{Inner, key};

/// Characters of dialogue for a model of which nothing is known (some 60,000 tokens).
pub(super) const BUDGET: usize = 240_000;

/// A model that is meant.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub(super) provider: &'static Provider,
    pub(super) model: String,
    /// Whether it is served at the address in the settings.
    pub(super) at_home: bool,
}

impl Choice {
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.provider.name, self.model)
    }
}

impl Inner {
    /// The provider that the address and the key of the settings belong to.
    fn home(&self) -> Option<&'static Provider> {
        let named = self.settings.name.as_deref().and_then(|name| {
            let prefix = name.trim().split_once('/').and_then(|(prefix, _)| by_name(prefix));
            prefix.or_else(|| match &self.settings.base_url {
                // With an address, a name without a provider is one of a compatible server.
                Some(_) => None,
                None => understand(name, None, &[]).ok().map(|named| named.provider),
            })
        });
        named.or_else(|| self.settings.base_url.is_some().then(|| by_name("openai")).flatten())
    }

    pub(super) fn understand(&self, name: &str) -> Result<Choice, ChatError> {
        let home = self.settings.base_url.is_some().then(|| self.home()).flatten();
        let known = self.known_names();
        let named = understand(name, home, &known).map_err(ChatError::Name)?;
        let choice =
            Choice { provider: named.provider, model: named.model.to_owned(), at_home: named.at_home };
        Ok(choice)
    }

    /// The full name of the model as it is configured, without looking anywhere; empty: it is found by looking.
    pub(super) fn configured(&self, wanted: Option<&str>) -> String {
        let full =
            |name: &str| self.understand(name).map_or_else(|_| name.trim().to_owned(), |c| c.full_name());
        wanted
            .map(full)
            .or_else(|| self.state().switched.clone())
            .or_else(|| self.settings.name.as_deref().map(full))
            .unwrap_or_default()
    }

    /// Looks around where no model is named and none was found yet.
    pub(super) async fn settle(&self, wanted: Option<&str>) -> Result<(), ChatError> {
        if self.configured(wanted).is_empty() && self.state().chosen.is_none() {
            let choice = self.look_around().await?;
            self.state().chosen = Some(choice);
        }
        Ok(())
    }

    /// Who is asked for the `wanted` model, or without one for that in use: name and address, as far as they are known
    /// without looking. All models of this machine are one, since nothing leaves it.
    pub(super) fn identity(&self, wanted: Option<&str>) -> String {
        let name = self.configured(wanted);
        let choice = if name.is_empty() { self.state().chosen.clone() } else { self.understand(&name).ok() };
        let name = choice.as_ref().map_or(name, Choice::full_name);
        if choice.as_ref().is_some_and(|choice| choice.provider.name == LOCAL) {
            return LOCAL.to_owned();
        }
        let at_home = choice.as_ref().is_none_or(|choice| choice.at_home);
        let address = match (&self.settings.base_url, &choice) {
            (Some(url), _) if at_home => Some(url),
            (_, Some(choice)) => self.environment.address(choice.provider),
            _ => None,
        };
        match address {
            Some(address) => format!("{name} at {}", clean(address, &self.secrets())),
            None => name,
        }
    }

    /// The model in use, or for one question the `wanted` one, with everything that asking it needs.
    pub(super) async fn endpoint(
        &self,
        wanted: Option<&str>,
        progress: &mut Progress<'_>,
    ) -> Result<Endpoint, ChatError> {
        let wanted = wanted.map(|name| self.understand(name)).transpose()?;
        let once = wanted.is_some();
        let chosen = wanted.or_else(|| self.state().chosen.clone());
        let choice = match (chosen, &self.settings.name) {
            (Some(choice), _) => choice,
            (None, Some(name)) => self.understand(name)?,
            (None, None) => self.look_around().await?,
        };
        if choice.provider.name == LOCAL {
            let server = self.local.server(progress).await.map_err(ChatError::Local)?;
            if !once {
                self.state().chosen = Some(choice.clone());
            }
            return Ok(Endpoint {
                provider: choice.provider,
                full_name: format!("{LOCAL}/{}", server.name),
                model: server.name,
                base_url: Some(server.url),
                key: Some(server.token),
                connect_timeout: self.settings.connect_timeout,
                budget: server.budget,
                connections: Arc::clone(&self.connections),
            });
        }
        let endpoint = self.reach(&choice).await?;
        if !once {
            self.state().chosen = Some(choice);
        }
        Ok(endpoint)
    }

    /// The address and the key of a choice.
    async fn reach(&self, choice: &Choice) -> Result<Endpoint, ChatError> {
        let provider = choice.provider;
        let base_url = match (&self.settings.base_url, choice.at_home) {
            (Some(url), true) => Some(url),
            _ => self.environment.address(provider),
        };
        let base_url = base_url.map(|url| check_base_url(url)).transpose().map_err(ChatError::Name)?;
        let configured = self.has_configured_key(choice);
        let key = match (&self.settings.api_key, &self.settings.api_key_command) {
            (Some(key), _) if configured => Some(key.clone()),
            (None, Some(command)) if configured => {
                let known = self.state().commanded.clone();
                if known.is_some() {
                    known
                } else {
                    let key = key::from_command(command).await.map_err(ChatError::Key)?;
                    self.state().commanded = Some(key.clone());
                    Some(key)
                }
            }
            _ if choice.at_home && self.settings.base_url.is_some() => None,
            _ => self.environment.key(provider).cloned(),
        };
        if key.is_none() && provider.needs_key && base_url.is_none() {
            let remedy = key_remedy(provider, &self.environment, false, false);
            return Err(ChatError::Key(format!(
                "{} can't be asked without a key. {remedy}",
                choice.full_name()
            )));
        }
        Ok(Endpoint {
            provider,
            model: choice.model.clone(),
            full_name: choice.full_name(),
            base_url,
            key,
            connect_timeout: self.settings.connect_timeout,
            budget: BUDGET,
            connections: Arc::clone(&self.connections),
        })
    }

    /// Whether the key of the settings is meant for this choice.
    fn has_configured_key(&self, choice: &Choice) -> bool {
        let same = self.home().is_some_and(|home| home.name == choice.provider.name);
        same && (choice.at_home || self.settings.base_url.is_none())
    }

    pub(super) fn uses_key_command(&self, endpoint: &Endpoint) -> bool {
        self.settings.api_key.is_none()
            && self.settings.api_key_command.is_some()
            && self.home().is_some_and(|home| home.name == endpoint.provider.name)
    }

    /// No model is named: the configured server's first, else what a key in the environment opens,
    /// else Ollama, else the local model.
    async fn look_around(&self) -> Result<Choice, ChatError> {
        let here = |provider, model| Choice { provider, model, at_home: false };
        if let (Some(url), Some(provider)) = (&self.settings.base_url, self.home()) {
            let unnamed = Choice { provider, model: String::new(), at_home: true };
            let endpoint = self.reach(&unnamed).await?;
            let listed = Model::list(&endpoint, LISTING_TIME).await;
            let first = listed.as_ref().ok().and_then(|names| names.iter().find(|name| is_chat_model(name)));
            if let Some(model) = first {
                return Ok(Choice { model: model.clone(), ..unnamed });
            }
            let why = listed.err().map_or_else(|| "it lists none".to_owned(), |error| error.to_string());
            return Err(ChatError::NoModel(format!(
                "no model is named, and {} does not tell which it has ({}); \
                 set CELLBLOCK_MODEL__NAME, or check CELLBLOCK_MODEL__BASE_URL",
                clean(url, &self.secrets()),
                clean(&why, &self.secrets())
            )));
        }
        let keyed = self.environment.keyed().find_map(|p| Some(here(p, p.default_model?.to_owned())));
        if let Some(choice) = keyed {
            return Ok(choice);
        }
        let address = ollama_address(&self.environment);
        let ollama = ollama_models(&address).await;
        if let (Ok(models), Some(provider)) = (&ollama, by_name("ollama"))
            && let Some(model) = models.first()
        {
            return Ok(here(provider, model.clone()));
        }
        if self.settings.local
            && self.local.is_installed()
            && let Some(provider) = by_name(LOCAL)
        {
            return Ok(here(provider, LOCAL.to_owned()));
        }
        Err(ChatError::NoModel(self.nothing_found(&address, ollama.is_ok())))
    }

    fn nothing_found(&self, address: &str, ollama: bool) -> String {
        let ollama = if ollama {
            format!("Ollama at {address} has no model yet: ollama pull qwen3")
        } else {
            format!("there is no Ollama at {address}")
        };
        let unbound = if self.settings.api_key.is_some() || self.settings.api_key_command.is_some() {
            "\nA key is configured, but not what it is for: set CELLBLOCK_MODEL__NAME (or _BASE_URL) beside it."
        } else {
            ""
        };
        let local = match self.local.folder() {
            Some(folder) if self.settings.local => {
                format!("no small model is installed in {}", folder.display())
            }
            _ => "the local small model is switched off".to_owned(),
        };
        format!(
            "no language model is configured, and none was found: no provider's key is in the environment, \
             {ollama}, and {local}. Code cells work all the same.\nDo one of these, then restart the kernel:\n\
             - a hosted model: set OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY before Jupyter is started\n\
             - any compatible server (vLLM, llama.cpp, LM Studio, LiteLLM): set CELLBLOCK_MODEL__BASE_URL, \
             for example http://127.0.0.1:8080/v1\n\
             - Ollama: start it and pull a model{unbound}"
        )
    }

    /// The names that an endpoint's server offers; empty when it does not say.
    pub(super) async fn offered(&self, endpoint: &Endpoint) -> Vec<String> {
        let listed = Model::list(endpoint, LISTING_TIME).await.unwrap_or_default();
        listed.into_iter().filter(|name| is_chat_model(name)).collect()
    }

    /// Asks every server that could be meant, at the same time.
    pub(super) async fn list(&self) -> Listing {
        let mut homes: Vec<Choice> = Vec::new();
        let home = self.home();
        if let Some(provider) = home.filter(|home| home.name != LOCAL) {
            let at_home = self.settings.base_url.is_some();
            homes.push(Choice { provider, model: String::new(), at_home });
        }
        for provider in self.environment.keyed() {
            if home.is_none_or(|home| home.name != provider.name || self.settings.base_url.is_some()) {
                homes.push(Choice { provider, model: String::new(), at_home: false });
            }
        }
        let asked = homes.iter().map(|choice| async {
            let address = self
                .settings
                .base_url
                .as_deref()
                .filter(|_| choice.at_home)
                .or(self.environment.address(choice.provider).map(String::as_str))
                .unwrap_or(choice.provider.base_url);
            let listed = async {
                let mut endpoint = self.reach(choice).await.map_err(|error| error.to_string())?;
                // The connection of the dialogue stays where it is.
                endpoint.connections = Arc::default();
                Model::list(&endpoint, LISTING_TIME).await.map_err(|error| error.to_string())
            };
            let listed = tokio::time::timeout(LISTING_TIME, listed)
                .await
                .unwrap_or_else(|_| Err("no answer within 2 s".to_owned()));
            (choice.provider, address.to_owned(), listed)
        });
        let ollama = ollama_address(&self.environment);
        let (answers, tags) = tokio::join!(join_all(asked), ollama_models(&ollama));
        let mut listing = Listing { current: self.current_name(), ..Listing::default() };
        let secrets = self.secrets();
        for (provider, address, listed) in answers {
            match listed {
                Ok(names) => {
                    let names = names.iter().filter(|name| is_chat_model(name));
                    listing.models.extend(names.map(|name| ListedModel {
                        name: format!("{}/{}", provider.name, name.trim_start_matches("models/")),
                        source: address.clone(),
                        listed: true,
                        current: false,
                    }));
                }
                Err(why) => listing.problems.push(format!("{address}: {}", clean(&why, &secrets))),
            }
        }
        // No Ollama on this machine is no problem, unless it was asked for.
        for name in tags.unwrap_or_default() {
            let name = format!("ollama/{name}");
            listing.models.push(ListedModel { name, source: ollama.clone(), listed: true, current: false });
        }
        if self.settings.local
            && let Some(name) = self.local.name()
        {
            let name = format!("{LOCAL}/{name}");
            listing.models.push(ListedModel {
                name,
                source: "this machine".to_owned(),
                listed: true,
                current: false,
            });
        }
        let mut seen = std::collections::HashSet::new();
        listing.models.retain(|model| seen.insert(model.name.clone()));
        self.state().known = listing.models.iter().map(|model| model.name.clone()).collect();
        if let Some(current) = &listing.current
            && !listing.models.iter().any(|model| model.name == *current)
        {
            let source = self.origin().to_owned();
            listing
                .models
                .insert(0, ListedModel { name: current.clone(), source, listed: false, current: false });
        }
        for model in &mut listing.models {
            model.current = Some(&model.name) == listing.current.as_ref();
        }
        listing
    }

    /// Where the model in use comes from, when no server lists it.
    fn origin(&self) -> &'static str {
        if self.state().switched.is_some() {
            "chosen in this kernel"
        } else if self.settings.name.is_some() {
            "configured (`model.name`)"
        } else {
            "found by looking around"
        }
    }

    /// The full name of the model in use or configured.
    pub(super) fn current_name(&self) -> Option<String> {
        let chosen = self.state().chosen.clone();
        let choice = match (chosen, &self.settings.name) {
            (Some(choice), _) => choice,
            (None, Some(name)) => self.understand(name).ok()?,
            (None, None) => return None,
        };
        if choice.provider.name == LOCAL {
            return Some(format!("{LOCAL}/{}", self.local.name().unwrap_or(choice.model)));
        }
        Some(choice.full_name())
    }

    pub(super) fn known_names(&self) -> Vec<String> {
        let (mut names, chosen) = {
            let state = self.state();
            (state.known.clone(), state.chosen.clone())
        };
        names.extend(chosen.map(|choice| choice.full_name()));
        names.extend(self.settings.name.clone());
        for provider in PROVIDERS {
            let usable = self.environment.key(provider).is_some();
            names.extend(
                provider.default_model.filter(|_| usable).map(|model| format!("{}/{model}", provider.name)),
            );
        }
        if self.settings.local
            && let Some(name) = self.local.name()
        {
            names.push(format!("{LOCAL}/{name}"));
        }
        names.sort();
        names.dedup();
        names
    }
}
