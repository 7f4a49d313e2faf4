//! What a project's file is allowed to set.
//!
//! A `cellblock.toml` may come with a notebook from a stranger, and opening the notebook must not be enough
//! to send the user's key or prompts elsewhere, to read or write files beside the notebook's, or to take a
//! wall of the sandbox down. So a project may make things tighter than the user's own settings, and choose
//! what is harmless; the rest is refused, with the reason. The rule of each setting is in the table of keys.

use std::path::{Component, Path};

use super::Settings;
use super::keys::{Key, Project};
use super::origin::plain;
use super::value::Value;

/// Whether the user trusts a project as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Trust {
    /// No.
    #[default]
    Not,
    /// Yes, since that day.
    Given {
        /// `2026-11-22`.
        since: String,
    },
    /// It was trusted on that day, as it was then.
    Changed {
        /// `2026-11-22`.
        since: String,
    },
    /// It was trusted, and it can't be told whether it is still the same.
    Unclear {
        /// Why.
        why: String,
    },
}

impl std::fmt::Display for Trust {
    /// As the end of "the project is ...".
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Trust::Not => f.write_str("not trusted"),
            Trust::Given { since } => write!(f, "trusted, since {}", plain(since)),
            Trust::Changed { since } => {
                write!(f, "not trusted any more: it has changed since you trusted it on {}", plain(since))
            }
            Trust::Unclear { why } => write!(f, "not trusted: {}", plain(why)),
        }
    }
}

impl Trust {
    /// Whether it is trusted.
    pub fn given(&self) -> bool {
        matches!(self, Trust::Given { .. })
    }

    /// How to allow what a project's settings ask for, as the end of a sentence.
    pub(crate) fn otherwise(&self, directory: &Path) -> String {
        let command = format!("`cellblock trust {}`", plain(&directory.to_string_lossy()));
        match self {
            Trust::Not | Trust::Given { .. } => format!("; or trust the whole project: {command}"),
            Trust::Changed { since } => format!(
                "; the project has changed since you trusted it on {}: {command} trusts it as it is now",
                plain(since)
            ),
            Trust::Unclear { why } => {
                format!("; whether the project is still what you trusted can't be told: {}", plain(why))
            }
        }
    }

    /// What to do to have what a project in that directory asks for, as a sentence.
    pub fn remedy(&self, directory: &Path) -> String {
        let command = format!("`cellblock trust {}`", plain(&directory.to_string_lossy()));
        match self {
            Trust::Not | Trust::Given { .. } => {
                format!("Read what the project brings, then allow it with {command}")
            }
            Trust::Changed { since } => format!(
                "The project has changed since you trusted it on {}: look at what changed, then allow it again with \
                 {command}",
                plain(since)
            ),
            Trust::Unclear { why } => {
                format!(
                    "You trusted the project, but whether it is still the same can't be told: {}",
                    plain(why)
                )
            }
        }
    }
}

/// Whether a project may set this; why not otherwise. `own` are the settings that the user would have
/// without the project's file.
pub(crate) fn judge(key: &Key, proposed: &Value, own: &Settings) -> Result<(), String> {
    let current = key.get(own);
    if *proposed == current {
        return Ok(());
    }
    let stays = format!("it stays at {}", key.kind.show(&current));
    match key.project {
        Project::Free => Ok(()),
        Project::Never => Err(format!("a project's file may not set it; {stays}")),
        Project::Lower if at_most(proposed, &current) => Ok(()),
        Project::Lower => Err(format!("a project's file may tighten this limit but not widen it; {stays}")),
        Project::Only(safe) if key.kind.show(proposed) == safe => Ok(()),
        Project::Only(safe) => {
            Err(format!("a project's file may only set it to {safe}, which is the safe side; {stays}"))
        }
        Project::Below => below(proposed).map_err(|why| format!("{why}; {stays}")),
        Project::SameServer => same_server(proposed, own),
    }
}

/// Whether a limit is at least as tight as another; unset is no limit.
fn at_most(proposed: &Value, current: &Value) -> bool {
    match (proposed, current) {
        (_, Value::Unset) => true,
        (Value::Count(proposed), Value::Count(current)) => proposed <= current,
        (Value::Number(proposed), Value::Number(current)) => proposed <= current,
        (Value::Time(proposed), Value::Time(current)) => proposed <= current,
        _ => false,
    }
}

/// A directory below the notebook's, by its name alone; links are judged when the workspace is opened.
///
/// The notebook's directory itself is refused, and so are hidden directories: code in the sandbox could
/// then write `.git/hooks` or the notebook and its settings, or read `.env` and `.ssh`.
fn below(proposed: &Value) -> Result<(), String> {
    let Value::Text(path) = proposed else { return Err("it is not a path".to_owned()) };
    let mut deep = false;
    for component in Path::new(path).components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) if !name.as_encoded_bytes().starts_with(b".") => deep = true,
            Component::Normal(_) => {
                return Err("a project's file may not hand a hidden directory to the sandbox".to_owned());
            }
            _ => return Err("a project's file may only name a directory below the notebook's".to_owned()),
        }
    }
    if !deep {
        return Err("a project's file may not hand the notebook's own directory to the sandbox".to_owned());
    }
    Ok(())
}

/// Whether a project's choice of model leaves the user's key and prompts where they go anyway.
///
/// Without any choice of the user's, a provider of the project's choosing gets only the key that the user
/// made for that provider. As soon as the user has named a model, an address or a key, prompts and key have a
/// destination, and only the model's name behind it may change.
fn same_server(proposed: &Value, own: &Settings) -> Result<(), String> {
    // A base URL is where `openai/` models are served, and every name without a provider means one of them.
    const AT_BASE_URL: &str = "openai";
    let Value::Text(proposed) = proposed else { return Err("it is not text".to_owned()) };
    let model = &own.model;
    let provider = |name: &str| name.split_once('/').map(|(provider, _)| provider.to_owned());
    let destination = match (&model.name, &model.base_url) {
        (None, None) if model.api_key.is_none() && model.api_key_command.is_none() => return Ok(()),
        (None, None) => None,
        (None, Some(_)) => Some(AT_BASE_URL.to_owned()),
        (Some(name), None) => provider(name),
        (Some(name), Some(_)) => provider(name).or_else(|| Some(AT_BASE_URL.to_owned())),
    };
    match (destination, provider(proposed)) {
        (Some(ours), Some(theirs)) if ours == theirs => Ok(()),
        (Some(ours), None) if ours == AT_BASE_URL && model.base_url.is_some() => Ok(()),
        (Some(ours), _) => Err(format!(
            "your settings send prompts and key to {ours}, and a project's file may only choose another model \
             there ({ours}/...)"
        )),
        (None, _) => Err("your settings name a model or a key without saying whose it is, and a project's file \
                          could send them somewhere else; write model.name as provider/model in your settings \
                          to allow other models of that provider"
            .to_owned()),
    }
}
