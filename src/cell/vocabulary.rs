//! The names that a cell may use. The sandbox knows the languages and the engine the magics; they tell the
//! parser through a [`Vocabulary`], so that a new one is a row in their tables and nothing here.

use std::collections::BTreeMap;

/// The names that a cell may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Vocabulary {
    /// Aliases and canonical names, in lower case, to canonical names.
    languages: BTreeMap<String, String>,
    /// Names of line magics, without `%`.
    line_magics: Vec<String>,
    /// Names of cell magics other than languages, without `%%`.
    cell_magics: Vec<String>,
}

/// The cell magic whose rest is prose.
pub(super) const CHAT: &str = "chat";

impl Vocabulary {
    /// No languages; of magics only `%%chat`.
    pub fn new() -> Self {
        Vocabulary { cell_magics: vec![CHAT.to_owned()], ..Self::default() }
    }

    /// Adds a language under its canonical name and others; every one of them is also a cell magic.
    #[must_use]
    pub fn language<'a>(mut self, canonical: &'a str, aliases: impl IntoIterator<Item = &'a str>) -> Self {
        for name in std::iter::once(canonical).chain(aliases) {
            self.languages.insert(name.to_lowercase(), canonical.to_owned());
        }
        self
    }

    /// Adds line magics, without their `%`.
    #[must_use]
    pub fn magics<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.line_magics.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// The canonical name of a language, whatever the case of its letters.
    pub fn canonical(&self, name: &str) -> Option<&str> {
        self.languages.get(&name.to_lowercase()).map(String::as_str)
    }

    /// The canonical names, each once, in alphabetical order.
    pub fn canonical_names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.languages.values().cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Every name that a fence may begin with, in alphabetical order.
    pub fn language_names(&self) -> impl Iterator<Item = &str> {
        self.languages.keys().map(String::as_str)
    }

    /// The names of the line magics, without their `%`.
    pub fn line_magic_names(&self) -> impl Iterator<Item = &str> {
        self.line_magics.iter().map(String::as_str)
    }

    /// The names of the cell magics, without their `%%`: our own, and every language.
    pub fn cell_magic_names(&self) -> impl Iterator<Item = &str> {
        self.cell_magics.iter().map(String::as_str).chain(self.language_names())
    }

    /// The nearest line magic to a wrong name.
    pub(super) fn nearest_line_magic(&self, name: &str) -> Option<&str> {
        nearest(name, self.line_magic_names())
    }

    /// The nearest cell magic to a wrong name.
    pub(super) fn nearest_cell_magic(&self, name: &str) -> Option<&str> {
        nearest(name, self.cell_magic_names())
    }

    /// The nearest language to a wrong name.
    pub(super) fn nearest_language(&self, name: &str) -> Option<&str> {
        nearest(name, self.language_names())
    }
}

/// The candidate that is nearest to a name, when it is near enough to be meant.
fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const NEAR_ENOUGH: f64 = 0.55;
    /// No name is that long; comparing takes quadratic time.
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let name = name.to_lowercase();
    candidates
        .map(|candidate| (strsim::normalized_damerau_levenshtein(&name, candidate), candidate))
        .filter(|(similarity, _)| *similarity >= NEAR_ENOUGH)
        .max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.len().cmp(&b.1.len())))
        .map(|(_, candidate)| candidate)
}
