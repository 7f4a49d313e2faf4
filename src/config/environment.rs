//! The process's environment, read once and handed on as plain data.
//!
//! Imports nothing of ours. No other module reads variables, the working directory or the
//! path of the executable; what one of them needs is a method here.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The variables of the process, and what they mean. Their values may be keys: `Debug` shows names only.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
}

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

    /// A variable that is set, not empty, and Unicode; for those that take a lookup (the table of providers
    /// names its own variables).
    pub fn lookup(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
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

    /// Where what must outlive a kernel, and is no setting, is kept: `$XDG_STATE_HOME/cellblock`, else
    /// `~/.local/state/cellblock`.
    pub fn state_dir(&self) -> Option<PathBuf> {
        self.absolute("XDG_STATE_HOME")
            .or_else(|| Some(self.home()?.join(".local/state")))
            .map(|dir| dir.join("cellblock"))
    }

    /// The directory of this login's sockets: `XDG_RUNTIME_DIR`.
    pub fn runtime_dir(&self) -> Option<PathBuf> {
        self.absolute("XDG_RUNTIME_DIR")
    }

    /// Where Jupyter keeps connection files, when it is told: `JUPYTER_RUNTIME_DIR`.
    pub fn jupyter_runtime_dir(&self) -> Option<PathBuf> {
        self.absolute("JUPYTER_RUNTIME_DIR")
    }

    /// Where running blocks of all kernels of a user are counted.
    pub fn turns_dir(&self) -> Option<PathBuf> {
        let of_login = self.runtime_dir().map(|dir| dir.join("cellblock"));
        of_login.or_else(|| self.state_dir()).map(|dir| dir.join("turns"))
    }

    /// Where what we keep for the user lies: `$XDG_DATA_HOME/cellblock`, else `~/.local/share/cellblock`.
    pub fn data_dir(&self) -> Option<PathBuf> {
        self.xdg_data_home().map(|dir| dir.join("cellblock"))
    }

    fn xdg_data_home(&self) -> Option<PathBuf> {
        self.absolute("XDG_DATA_HOME").or_else(|| Some(self.home()?.join(".local/share")))
    }

    /// The user's settings file: `CELLBLOCK_CONFIG`, else `config.toml` in [`Environment::config_dir`].
    pub fn user_file(&self) -> Option<PathBuf> {
        self.path("CELLBLOCK_CONFIG").or_else(|| Some(self.config_dir()?.join("config.toml")))
    }

    /// The user's own prices of models: `prices.toml` in [`Environment::config_dir`].
    pub fn prices_file(&self) -> Option<PathBuf> {
        Some(self.config_dir()?.join("prices.toml"))
    }

    /// The user's own registry of containers: `containers/registry.yaml` in [`Environment::config_dir`].
    pub fn user_registry(&self) -> Option<PathBuf> {
        Some(self.config_dir()?.join("containers/registry.yaml"))
    }

    /// What the user trusts: `trust.toml` in [`Environment::config_dir`].
    pub(crate) fn trust_file(&self) -> Option<PathBuf> {
        Some(self.config_dir()?.join("trust.toml"))
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
    pub fn parent_pid(&self) -> Option<i32> {
        self.text("JPY_PARENT_PID")?.trim().parse().ok().filter(|pid| *pid > 0)
    }

    /// A file of certificate authorities to trust for requests (`SSL_CERT_FILE`).
    pub fn certificates(&self) -> Option<PathBuf> {
        self.path("SSL_CERT_FILE")
    }

    /// The proxy variables that are set, by name; for builds, which take them as they are.
    pub fn proxies(&self) -> Vec<(String, String)> {
        const NAMES: [&str; 8] = [
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "no_proxy",
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
        ];
        NAMES.iter().filter_map(|name| Some(((*name).to_owned(), self.lookup(name)?))).collect()
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
    fn values_are_never_shown() {
        let environment: Environment = [("OPENAI_API_KEY", "sk-hidden"), ("EMPTY", "")].into_iter().collect();
        assert_eq!(environment.lookup("OPENAI_API_KEY").unwrap(), "sk-hidden");
        assert_eq!(environment.lookup("EMPTY"), None);
        assert!(!format!("{environment:?}").contains("sk-hidden"));
    }
}
