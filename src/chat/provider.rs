//! The table of providers: what they are called, where they are, which variables hold their keys.
//!
//! Imports nothing of ours. To add a provider that the library speaks, add a row.

/// How a provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// `OpenAI` itself; with another address, Chat Completions.
    OpenAi,
    /// Chat Completions in the library's dialect of that name.
    Compatible(&'static str),
    /// Anthropic's Messages.
    Anthropic,
    /// Gemini's `generateContent`.
    Gemini,
    /// Ollama's own API.
    Ollama,
}

/// One provider.
#[derive(Debug)]
pub(crate) struct Provider {
    /// The part of a model's name before the slash.
    pub(crate) name: &'static str,
    /// How it is spoken to.
    pub(crate) wire: Wire,
    /// Its own address.
    pub(crate) base_url: &'static str,
    /// Environment variables that usually hold its key, the preferred one first.
    pub(crate) key_variables: &'static [&'static str],
    /// Environment variable that usually holds another address for it.
    pub(crate) address_variable: Option<&'static str>,
    /// The model taken when only the key is there.
    pub(crate) default_model: Option<&'static str>,
    /// Beginnings of bare model names that can only mean this provider.
    pub(crate) families: &'static [&'static str],
    /// Whether it answers nobody without a key.
    pub(crate) needs_key: bool,
}

const fn compatible(
    name: &'static str,
    base_url: &'static str,
    key_variables: &'static [&'static str],
    default_model: Option<&'static str>,
    families: &'static [&'static str],
) -> Provider {
    Provider {
        name,
        wire: Wire::Compatible(name),
        base_url,
        key_variables,
        address_variable: None,
        default_model,
        families,
        needs_key: true,
    }
}

/// Every provider, in the order in which keys found in the environment are preferred.
pub(crate) static PROVIDERS: &[Provider] = &[
    Provider {
        name: "openai",
        wire: Wire::OpenAi,
        base_url: "https://api.openai.com/v1",
        key_variables: &["OPENAI_API_KEY"],
        address_variable: Some("OPENAI_BASE_URL"),
        default_model: Some("gpt-5-mini"),
        families: &["gpt-", "chatgpt-", "o1", "o3", "o4"],
        needs_key: true,
    },
    Provider {
        name: "anthropic",
        wire: Wire::Anthropic,
        base_url: "https://api.anthropic.com",
        key_variables: &["ANTHROPIC_API_KEY"],
        address_variable: Some("ANTHROPIC_BASE_URL"),
        default_model: Some("claude-sonnet-4-6"),
        families: &["claude-"],
        needs_key: true,
    },
    Provider {
        name: "gemini",
        wire: Wire::Gemini,
        base_url: "https://generativelanguage.googleapis.com",
        key_variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        address_variable: None,
        default_model: Some("gemini-2.5-flash"),
        families: &["gemini-"],
        needs_key: true,
    },
    compatible(
        "mistral",
        "https://api.mistral.ai",
        &["MISTRAL_API_KEY"],
        Some("mistral-small-latest"),
        &["mistral-", "codestral-", "ministral-"],
    ),
    compatible(
        "deepseek",
        "https://api.deepseek.com",
        &["DEEPSEEK_API_KEY"],
        Some("deepseek-chat"),
        &["deepseek-"],
    ),
    compatible("xai", "https://api.x.ai/v1", &["XAI_API_KEY"], Some("grok-4-0709"), &["grok-"]),
    compatible(
        "groq",
        "https://api.groq.com/openai/v1",
        &["GROQ_API_KEY"],
        Some("llama-3.3-70b-versatile"),
        &[],
    ),
    compatible("openrouter", "https://openrouter.ai/api/v1", &["OPENROUTER_API_KEY"], None, &[]),
    compatible("together", "https://api.together.xyz", &["TOGETHER_API_KEY"], None, &[]),
    compatible(
        "huggingface",
        "https://router.huggingface.co",
        &["HUGGINGFACE_API_KEY", "HF_TOKEN"],
        None,
        &[],
    ),
    compatible("perplexity", "https://api.perplexity.ai", &["PERPLEXITY_API_KEY"], None, &["sonar"]),
    compatible("moonshot", "https://api.moonshot.ai/v1", &["MOONSHOT_API_KEY"], None, &["kimi-"]),
    Provider {
        name: "ollama",
        wire: Wire::Ollama,
        base_url: "http://127.0.0.1:11434",
        key_variables: &["OLLAMA_API_KEY"],
        address_variable: Some("OLLAMA_HOST"),
        default_model: None,
        families: &[],
        needs_key: false,
    },
    Provider {
        name: "llamacpp",
        wire: Wire::Compatible("llamacpp"),
        base_url: "http://127.0.0.1:8080/v1",
        key_variables: &["LLAMACPP_API_KEY"],
        address_variable: Some("LLAMACPP_API_BASE_URL"),
        default_model: None,
        families: &[],
        needs_key: false,
    },
    // The small model on this machine: its address and key come from the server that is started for it.
    Provider {
        name: LOCAL,
        wire: Wire::Compatible("llamacpp"),
        base_url: "http://127.0.0.1",
        key_variables: &[],
        address_variable: None,
        default_model: None,
        families: &[],
        needs_key: false,
    },
];

/// The provider's name of the small model on this machine.
pub(crate) const LOCAL: &str = "local";

/// The provider of that name.
pub(crate) fn by_name(name: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.name == name)
}

/// The one provider whose models begin like that.
pub(crate) fn by_family(model: &str) -> Option<&'static Provider> {
    PROVIDERS.iter().find(|provider| provider.families.iter().any(|family| model.starts_with(family)))
}
