//! Where a setting's value came from. Imports nothing of ours.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from, precisely enough to go there and change it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Builtin,
    /// Recorded by `cellblock build`.
    Recorded {
        /// The file of records.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
    },
    /// The user's own file.
    User {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
    },
    /// The project's `cellblock.toml`.
    Project {
        /// The file.
        file: PathBuf,
        /// Line, from 1.
        line: usize,
    },
    /// An environment variable of this name.
    Environment(String),
    /// A flag on the command line, as it would be written.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Builtin => f.write_str("built-in"),
            Origin::Recorded { file, line }
            | Origin::User { file, line }
            | Origin::Project { file, line } => {
                write!(f, "{}:{line}", plain(&file.to_string_lossy()))
            }
            Origin::Environment(variable) => write!(f, "{}", plain(variable)),
            Origin::Flag(flag) => write!(f, "{}", plain(flag)),
        }
    }
}

/// Text of unknown making, fit to be shown on one line of a terminal: no control characters, not endless.
///
/// Names and values in a project's file are chosen by whoever wrote it; an escape sequence among them must
/// not reach the user's terminal.
pub(crate) fn plain(text: &str) -> String {
    const MOST: usize = 300;
    let mut shown: String = text
        .chars()
        .take(MOST)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}
