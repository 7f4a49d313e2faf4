//! Tables of the tree, read key by key; every mistake is gathered with its file, line and key.
//!
//! May import `config`.

use std::path::{Path, PathBuf};

use crate::config::{Environment, Kind, Value as Setting, nearest, plain};

use super::yaml::{Entry, Node, Value};

/// Mistakes in one file.
#[derive(Debug)]
pub(super) struct Mistakes {
    file: PathBuf,
    told: Vec<String>,
}

/// Something with the line on which it was written and its whole name (`containers.x.security.user`).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct At<T> {
    /// Line, from 1.
    pub line: usize,
    /// The whole name of its key.
    pub key: String,
    /// What was written.
    pub value: T,
}

impl<T> At<T> {
    /// The same place, with another value.
    pub(super) fn with<U>(&self, value: U) -> At<U> {
        At { line: self.line, key: self.key.clone(), value }
    }
}

impl Mistakes {
    pub(super) fn new(file: &Path) -> Self {
        Mistakes { file: file.to_owned(), told: Vec::new() }
    }

    /// Where something stands, for a person.
    pub(super) fn place(&self, line: usize) -> String {
        format!("{}:{line}", plain(&self.file.to_string_lossy()))
    }

    /// A mistake on a line that has no key.
    pub(super) fn line(&mut self, line: usize, why: &str) {
        self.told.push(format!("{}: {}", self.place(line), plain(why)));
    }

    /// A mistake at a key.
    pub(super) fn at<T>(&mut self, at: &At<T>, why: impl AsRef<str>) {
        self.told.push(format!("{}: {}: {}", self.place(at.line), plain(&at.key), long(why.as_ref())));
    }

    /// A value that does not fit.
    pub(super) fn value<T>(&mut self, at: &At<T>, written: &str, why: impl AsRef<str>) {
        let said = format!(
            "{}: {} = {} is not valid: {}",
            self.place(at.line),
            plain(&at.key),
            plain(written),
            long(why.as_ref())
        );
        self.told.push(said);
    }

    /// Whether there is a mistake at a key.
    pub(super) fn mentions(&self, key: &str) -> bool {
        self.told
            .iter()
            .any(|told| told.contains(&format!(": {key}:")) || told.contains(&format!(": {key}.")))
    }

    pub(super) fn into_told(self) -> Vec<String> {
        self.told
    }
}

/// Messages name paths, which may be longer than what one value may show.
fn long(text: &str) -> String {
    text.chars().take(2000).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// A table of keys.
pub(super) struct Table<'a> {
    at: At<()>,
    entries: &'a [Entry],
}

impl<'a> Table<'a> {
    /// The table that a node is; `None`, with a mistake, when it is something else or has unknown keys.
    /// Nothing at all is an empty table.
    pub(super) fn new(node: &'a At<&'a Node>, known: &[&str], mistakes: &mut Mistakes) -> Option<Self> {
        let table = Self::open(node, mistakes)?;
        let section = if node.key.is_empty() { String::new() } else { format!("{}.", node.key) };
        for entry in table.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let why = match nearest(&entry.key, known.iter().copied()) {
                Some(name) => format!("there is no such key; did you mean {name}?"),
                None => format!("there is no such key; the keys here are {}", known.join(", ")),
            };
            let at = At { line: entry.line, key: format!("{section}{}", entry.key), value: () };
            mistakes.at(&at, why);
        }
        Some(table)
    }

    /// A table whose keys the user chooses.
    pub(super) fn open(node: &'a At<&'a Node>, mistakes: &mut Mistakes) -> Option<Self> {
        let entries: &[Entry] = match &node.value.value {
            Value::Map(entries) => entries,
            Value::Nothing => &[],
            _ => {
                mistakes.at(node, format!("it takes a table of keys, not {}", node.value.what()));
                return None;
            }
        };
        Some(Table { at: node.with(()), entries })
    }

    /// Every key with its value.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'a str, At<&'a Node>)> {
        self.entries.iter().map(|entry| (entry.key.as_str(), self.of(entry)))
    }

    /// The value of one key, when it is there.
    pub(super) fn get(&self, name: &str) -> Option<At<&'a Node>> {
        self.entries.iter().find(|entry| entry.key == name).map(|entry| self.of(entry))
    }

    fn of(&self, entry: &'a Entry) -> At<&'a Node> {
        let parent = &self.at.key;
        let key = if parent.is_empty() { entry.key.clone() } else { format!("{parent}.{}", entry.key) };
        At { line: entry.line, key, value: &entry.node }
    }
}

/// A single value as text, whether in quotes or not.
pub(super) fn text(at: &At<&Node>, mistakes: &mut Mistakes) -> Option<At<String>> {
    match &at.value.value {
        Value::Bare(text) | Value::Quoted(text) if text.contains('\0') => {
            mistakes.at(at, "it contains a NUL character");
            None
        }
        Value::Bare(text) | Value::Quoted(text) if !text.trim().is_empty() => Some(at.with(text.clone())),
        Value::Bare(_) | Value::Quoted(_) | Value::Nothing => {
            mistakes.at(at, "it is empty");
            None
        }
        Value::List(_) | Value::Map(_) => {
            mistakes.at(at, format!("it takes a single value, not {}", at.value.what()));
            None
        }
    }
}

/// A single line of at most `most` characters.
pub(super) fn line(at: &At<&Node>, most: usize, mistakes: &mut Mistakes) -> Option<At<String>> {
    let found = text(at, mistakes)?;
    if found.value.chars().count() > most || found.value.trim().chars().any(char::is_control) {
        mistakes.at(at, format!("it takes one line of at most {most} characters"));
        return None;
    }
    Some(At { value: found.value.trim().to_owned(), ..found })
}

/// A value in the units that settings have.
pub(super) fn setting(
    at: &At<&Node>,
    kind: Kind,
    environment: &Environment,
    mistakes: &mut Mistakes,
) -> Option<At<Setting>> {
    if kind == Kind::Flag && matches!(at.value.value, Value::Quoted(_)) {
        mistakes.at(at, "it takes `true` or `false`, without quotes");
        return None;
    }
    let found = text(at, mistakes)?;
    match kind.parse(&found.value, environment) {
        Ok(value) => Some(at.with(value)),
        Err(why) => {
            mistakes.value(at, &found.value, why);
            None
        }
    }
}

/// `true` or `false`.
pub(super) fn flag(at: &At<&Node>, mistakes: &mut Mistakes) -> Option<At<bool>> {
    match setting(at, Kind::Flag, &Environment::default(), mistakes)?.value {
        Setting::Flag(flag) => Some(at.with(flag)),
        _ => None,
    }
}

/// A list of at most `most` things, each read by `each`.
pub(super) fn list<T>(
    at: &At<&Node>,
    most: usize,
    mistakes: &mut Mistakes,
    mut each: impl FnMut(&At<&Node>, &mut Mistakes) -> Option<T>,
) -> Vec<T> {
    let items = match &at.value.value {
        Value::List(items) => items,
        Value::Nothing => return Vec::new(),
        _ => {
            mistakes.at(at, format!("it takes a list (`[a, b]`), not {}", at.value.what()));
            return Vec::new();
        }
    };
    if items.len() > most {
        mistakes.at(at, format!("it takes at most {most} items, and here are {}", items.len()));
        return Vec::new();
    }
    items
        .iter()
        .filter_map(|item| each(&At { line: item.line, key: at.key.clone(), value: item }, mistakes))
        .collect()
}

/// One of these names.
pub(super) fn choice<T: Copy>(at: &At<&Node>, names: &[(&str, T)], mistakes: &mut Mistakes) -> Option<At<T>> {
    let found = text(at, mistakes)?;
    if let Some((_, value)) = names.iter().find(|(name, _)| *name == found.value) {
        return Some(at.with(*value));
    }
    let known: Vec<_> = names.iter().map(|(name, _)| format!("`{name}`")).collect();
    mistakes.value(at, &found.value, format!("it takes {}", known.join(" or ")));
    None
}
