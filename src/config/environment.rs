//! The process's environment, read once and handed on as plain data.
//!
//! Imports nothing of ours but [`Secret`]. No other module reads variables, the working directory or the
//! path of the executable; what one of them needs is a method here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Secret;

/// The variables of the process, and what they mean. Their values may be keys: `Debug` shows names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
}

/// Proxies for requests, as the usual variables name them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Proxies {
    /// `HTTP_PROXY` or `http_proxy`.
    pub http: Option<String>,
    /// `HTTPS_PROXY` or `https_proxy`.
    pub https: Option<String>,
    /// `ALL_PROXY` or `all_proxy`.
    pub all: Option<String>,
    /// `NO_PROXY` or `no_proxy`: hosts that are reached directly.
    pub none: Option<String>,
}

/// Where each provider's key is looked for, by the provider's name in `provider/model`; the first variable wins.
const PROVIDER_KEYS: &[(&str, &[&str])] = &[
    ("openai", &["OPENAI_API_KEY"]),
    ("anthropic", &["ANTHROPIC_API_KEY"]),
    ("gemini", &["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
    ("openrouter", &["OPENROUTER_API_KEY"]),
    ("mistral", &["MISTRAL_API_KEY"]),
    ("groq", &["GROQ_API_KEY"]),
    ("deepseek", &["DEEPSEEK_API_KEY"]),
    ("xai", &["XAI_API_KEY"]),
    ("cohere", &["COHERE_API_KEY"]),
    ("together", &["TOGETHER_API_KEY"]),
    ("perplexity", &["PERPLEXITY_API_KEY"]),
    ("huggingface", &["HF_TOKEN", "HUGGINGFACE_API_KEY"]),
];

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

impl<N: Into<String>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Environment { variables: variables.into_iter().map(|(n, v)| (n.into(), v.into())).collect() }
    }
}

impl Environment {
    /// The environment of this process. Names that are not Unicode can't be ours and are left out.
    pub fn of_process() -> Self {
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value))).collect()
    }

    /// The working directory of this process.
    pub fn working_directory() -> std::io::Result<PathBuf> {
        std::env::current_dir()
    }

    /// The path of this executable.
    pub fn executable() -> std::io::Result<PathBuf> {
        std::env::current_exe()
    }

    /// Every variable, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &OsString)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// A variable that is set, not empty, and Unicode.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.variables.get(name).and_then(|value| value.to_str()).filter(|value| !value.is_empty())
    }

    /// A variable that holds an absolute path; relative ones are ignored, as the XDG rules say.
    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.path(name).filter(|path| path.is_absolute())
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        self.variables.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// `HOME`.
    pub fn home(&self) -> Option<PathBuf> {
        self.absolute("HOME")
    }

    /// Where the user's settings lie: `$XDG_CONFIG_HOME/cellblock`, else `~/.config/cellblock`.
    pub fn config_dir(&self) -> Option<PathBuf> {
        self.absolute("XDG_CONFIG_HOME")
            .or_else(|| Some(self.home()?.join(".config")))
            .map(|dir| dir.join("cellblock"))
    }

    /// Where the user's data lie: `$XDG_DATA_HOME/cellblock`, else `~/.local/share/cellblock`.
    pub fn data_dir(&self) -> Option<PathBuf> {
        self.xdg_data_home().map(|dir| dir.join("cellblock"))
    }

    /// Where things that can be made again lie: `$XDG_CACHE_HOME/cellblock`, else `~/.cache/cellblock`.
    pub fn cache_dir(&self) -> Option<PathBuf> {
        self.absolute("XDG_CACHE_HOME")
            .or_else(|| Some(self.home()?.join(".cache")))
            .map(|dir| dir.join("cellblock"))
    }

    /// `XDG_RUNTIME_DIR`: for sockets and locks of this login.
    pub fn runtime_dir(&self) -> Option<PathBuf> {
        self.absolute("XDG_RUNTIME_DIR")
    }

    fn xdg_data_home(&self) -> Option<PathBuf> {
        self.absolute("XDG_DATA_HOME").or_else(|| Some(self.home()?.join(".local/share")))
    }

    /// The user's settings file: `CELLBLOCK_CONFIG`, else `config.toml` in [`Environment::config_dir`].
    pub fn user_file(&self) -> Option<PathBuf> {
        self.path("CELLBLOCK_CONFIG").or_else(|| Some(self.config_dir()?.join("config.toml")))
    }

    /// Jupyter's data directory of this user: `JUPYTER_DATA_DIR`, else the platform's.
    pub fn jupyter_data_dir(&self) -> Option<PathBuf> {
        self.path("JUPYTER_DATA_DIR").or_else(|| {
            if cfg!(target_os = "macos") {
                Some(self.home()?.join("Library/Jupyter"))
            } else {
                Some(self.xdg_data_home()?.join("jupyter"))
            }
        })
    }

    /// Further directories that Jupyter searches first: `JUPYTER_PATH`.
    pub fn jupyter_path(&self) -> Vec<PathBuf> {
        self.variables.get("JUPYTER_PATH").map(|p| std::env::split_paths(p).collect()).unwrap_or_default()
    }

    /// The active virtual environment: `VIRTUAL_ENV`, else `CONDA_PREFIX`.
    pub fn active_prefix(&self) -> Option<PathBuf> {
        self.absolute("VIRTUAL_ENV").or_else(|| self.absolute("CONDA_PREFIX"))
    }

    /// The first executable file of that name in `PATH`.
    pub fn find_program(&self, name: &str) -> Option<PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        let executable =
            |path: &Path| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
        std::env::split_paths(self.variables.get("PATH")?)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join(name))
            .find(|path| executable(path))
    }

    /// The notebook's path, as Jupyter's server sets it (`JPY_SESSION_NAME`); also says that there is a server.
    pub fn session_name(&self) -> Option<PathBuf> {
        self.path("JPY_SESSION_NAME")
    }

    /// The process that started the kernel (`JPY_PARENT_PID`); when it is gone, the kernel ends.
    pub fn parent_pid(&self) -> Option<u32> {
        self.text("JPY_PARENT_PID")?.trim().parse().ok()
    }

    /// The key of a provider (`openai`, `anthropic`, ...), from the provider's own variable.
    pub fn provider_key(&self, provider: &str) -> Option<Secret> {
        let (_, variables) = PROVIDER_KEYS.iter().find(|(name, _)| *name == provider)?;
        variables.iter().find_map(|variable| self.text(variable)).map(|key| Secret::new(key.trim()))
    }

    /// The variables in which a provider's key is looked for.
    pub fn provider_variables(provider: &str) -> &'static [&'static str] {
        PROVIDER_KEYS.iter().find(|(name, _)| *name == provider).map_or(&[], |(_, variables)| variables)
    }

    /// Every provider whose key is set, with the key, in order of preference.
    pub fn provider_keys(&self) -> Vec<(&'static str, Secret)> {
        PROVIDER_KEYS.iter().filter_map(|(name, _)| Some((*name, self.provider_key(name)?))).collect()
    }

    /// Where Ollama listens (`OLLAMA_HOST`), as the user wrote it: perhaps without a scheme or a port.
    pub fn ollama_host(&self) -> Option<String> {
        self.text("OLLAMA_HOST").map(|host| host.trim().to_owned())
    }

    /// A file of certificate authorities to trust for requests (`SSL_CERT_FILE`).
    pub fn certificates(&self) -> Option<PathBuf> {
        self.path("SSL_CERT_FILE")
    }

    /// Proxies for requests.
    pub fn proxies(&self) -> Proxies {
        // Lower case first: that is what curl and Python's requests do.
        let either =
            |lower: &str, upper: &str| self.text(lower).or_else(|| self.text(upper)).map(str::to_owned);
        Proxies {
            http: either("http_proxy", "HTTP_PROXY"),
            https: either("https_proxy", "HTTPS_PROXY"),
            all: either("all_proxy", "ALL_PROXY"),
            none: either("no_proxy", "NO_PROXY"),
        }
    }

    /// Whether colours are unwelcome even on a terminal (`NO_COLOR`, or `TERM` is `dumb`).
    pub fn plain_terminal(&self) -> bool {
        self.text("NO_COLOR").is_some() || self.text("TERM") == Some("dumb")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn relative_xdg_directories_are_ignored() {
        let environment: Environment =
            [("HOME", "/home/u"), ("XDG_CONFIG_HOME", "relative")].into_iter().collect();
        assert_eq!(environment.config_dir().unwrap(), Path::new("/home/u/.config/cellblock"));
        assert_eq!(environment.user_file().unwrap(), Path::new("/home/u/.config/cellblock/config.toml"));
    }

    #[test]
    fn keys_are_found_by_provider_and_never_shown() {
        let environment: Environment =
            [("GOOGLE_API_KEY", "sk-hidden"), ("OPENAI_API_KEY", "")].into_iter().collect();
        assert_eq!(environment.provider_key("openai"), None);
        assert_eq!(environment.provider_keys().len(), 1);
        assert_eq!(environment.provider_key("gemini").unwrap().reveal(), "sk-hidden");
        assert!(!format!("{environment:?}").contains("sk-hidden"));
    }
}
