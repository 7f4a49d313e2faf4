//! The table of keys as documentation. `docs/configuration.md` holds this text; a test keeps them equal.

use std::fmt::Write;

use super::keys::{KEYS, Key, Project, sections};
use super::settings::{Flavor, Settings};
use super::value::{Kind, Value};

/// Every setting, section by section, as Markdown.
pub fn reference() -> String {
    let mut text = String::new();
    for section in sections() {
        let _ = writeln!(text, "### `[{section}]`\n");
        for key in KEYS.iter().filter(|key| key.section == section) {
            entry(&mut text, key);
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn entry(text: &mut String, key: &Key) {
    let mut variables = format!("`{}`", key.variable());
    for alias in key.aliases {
        let _ = write!(variables, ", else `{alias}`");
    }
    // Writing to a String does not fail.
    let _ = writeln!(text, "#### `{}`\n", key.full());
    let _ = writeln!(text, "{}\n", key.help);
    let _ = writeln!(text, "| | |\n| --- | --- |");
    let _ = writeln!(text, "| Value | {} |", key.kind.accepts());
    let _ = writeln!(text, "| Default | {} |", default(key));
    let _ = writeln!(text, "| Variable | {variables} |");
    let _ = writeln!(text, "| From a project's file | {} |\n", project(key));
}

fn default(key: &Key) -> String {
    let of = |flavor| match key.get(&Settings::builtin(flavor)) {
        Value::Unset if !matches!(key.kind, Kind::Time { .. }) => "not set".to_owned(),
        value => format!("`{}`", key.kind.show(&value)),
    };
    let (markdown, python) = (of(Flavor::Markdown), of(Flavor::Python));
    if markdown == python { markdown } else { format!("{markdown}; {python} in Python (sandboxed)") }
}

fn project(key: &Key) -> String {
    match key.project {
        _ if key.kind == Kind::Secret => "an error, as in any file".to_owned(),
        Project::Free => "yes".to_owned(),
        Project::Never => "no".to_owned(),
        Project::Lower => "only lower than yours".to_owned(),
        Project::Only(safe) => format!("only `{safe}`"),
        Project::Below => "only a directory below the notebook's, and none that is hidden".to_owned(),
        Project::SameServer => "only another model of the provider that your own settings use".to_owned(),
    }
}
