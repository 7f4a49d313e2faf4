//! What can be wrong with settings, and what a project's file was not allowed to set.

use std::path::PathBuf;

use super::Origin;
use super::origin::plain;

/// A mistake in the settings: where, what, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A settings file exists but can't be read.
    #[error("{}: this settings file can't be read: {why}. Make it a readable regular file, or remove it", plain(&file.to_string_lossy()))]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// A settings file is not TOML.
    #[error("{origin}: this line is not valid TOML: {}", plain(why))]
    Syntax {
        /// Where.
        origin: Origin,
        /// What the parser says.
        why: String,
    },
    /// There is no such section.
    #[error("{origin}: there is no section [{}]; {}", plain(section), suggestion(nearest.as_deref(), "the sections are", sections))]
    UnknownSection {
        /// Where.
        origin: Origin,
        /// What was written.
        section: String,
        /// The most similar name.
        nearest: Option<String>,
        /// The names there are.
        sections: Vec<String>,
    },
    /// There is no such setting.
    #[error("{origin}: there is no setting {}; {}", plain(key), suggestion(nearest.as_deref(), "`cellblock config` lists them", &[]))]
    UnknownKey {
        /// Where.
        origin: Origin,
        /// What was written.
        key: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// The value does not fit.
    #[error("{origin}: {key} = {} is not valid: {why}", plain(value))]
    BadValue {
        /// Where.
        origin: Origin,
        /// The setting's full name.
        key: String,
        /// What was written.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// A key or token where others may read it.
    #[error(
        "{origin}: {key} must not be written here: files are copied and committed, and command lines are seen by \
         other users. Put the key in {variable} or in the provider's own variable (OPENAI_API_KEY, \
         ANTHROPIC_API_KEY, GEMINI_API_KEY, ...), or name a command that prints it in model.api_key_command; and \
         if this file was ever shared, replace the key"
    )]
    SecretInTheOpen {
        /// Where.
        origin: Origin,
        /// The setting's full name.
        key: String,
        /// The variable to use.
        variable: String,
    },
}

fn suggestion(nearest: Option<&str>, otherwise: &str, names: &[String]) -> String {
    match nearest {
        Some(nearest) => format!("did you mean {nearest}?"),
        None if names.is_empty() => otherwise.to_owned(),
        None => format!("{otherwise} {}", names.join(", ")),
    }
}

/// A setting of a project's file that was not honoured, because the file may have come with a hostile notebook.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{origin}: {key} = {} was ignored: {why}. If you want it, put it in your own settings ({user_file}) or set \
     {variable}{otherwise}",
    plain(value)
)]
pub struct Refusal {
    /// Where it was asked for.
    pub origin: Origin,
    /// The setting's full name.
    pub key: String,
    /// The value that was asked for, as it would be written.
    pub value: String,
    /// Why it was refused.
    pub why: String,
    /// The user's own settings file, where it would be honoured.
    pub user_file: String,
    /// The variable that would set it.
    pub variable: String,
    /// Another way, when there is one: the end of a sentence.
    pub otherwise: String,
}
