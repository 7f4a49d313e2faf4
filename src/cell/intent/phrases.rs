//! The phrases of `words.toml`, and where they stand among a prompt's words.
//!
//! Imports nothing of ours. Phrases are kept in a tree of words and classes, so that finding them takes time linear
//! in the prompt, with a factor that only the phrases decide.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;

use super::tokens::{self, Token};

/// What a phrase says; of phrases of one length at one place the first of these counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Passed,
    Forbidden,
    Retracted,
    Banned,
    Refused,
    Negated,
    Excepted,
    Spoken,
    Ordered,
    Danger,
    Outcome,
    Declined,
    Told,
    Trigger,
}

/// A phrase that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) kind: Kind,
    /// Index of its first token.
    pub(super) first: usize,
    /// Index of its last token.
    pub(super) last: usize,
}

/// A word that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    /// Index of its token.
    pub(super) index: usize,
    /// Whether a part of a sentence begins with it.
    pub(super) begins: bool,
    /// Whether punctuation stands before it, perhaps with fillers between.
    pub(super) parted: bool,
}

/// The file of words.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Words {
    fillers: BTreeSet<String>,
    conjunctions: BTreeSet<String>,
    mentions: BTreeSet<String>,
    reports: BTreeSet<String>,
    turns: BTreeSet<String>,
    asides: BTreeSet<String>,
    subordinators: BTreeSet<String>,
    classes: BTreeMap<String, BTreeSet<String>>,
    phrases: Lists,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Lists {
    forbidden: Vec<String>,
    retracted: Vec<String>,
    banned: Vec<String>,
    refused: Vec<String>,
    excepted: Vec<String>,
    negated: Vec<String>,
    spoken: Vec<String>,
    danger: Vec<String>,
    ordered: Vec<String>,
    outcome: Vec<String>,
    declined: Vec<String>,
    passed: Vec<String>,
    told: Vec<String>,
}

impl Lists {
    fn all(self) -> [(Kind, Vec<String>); 13] {
        [
            (Kind::Forbidden, self.forbidden),
            (Kind::Retracted, self.retracted),
            (Kind::Banned, self.banned),
            (Kind::Refused, self.refused),
            (Kind::Excepted, self.excepted),
            (Kind::Negated, self.negated),
            (Kind::Spoken, self.spoken),
            (Kind::Danger, self.danger),
            (Kind::Ordered, self.ordered),
            (Kind::Outcome, self.outcome),
            (Kind::Declined, self.declined),
            (Kind::Passed, self.passed),
            (Kind::Told, self.told),
        ]
    }
}

/// Phrases, ready to be found.
#[derive(Debug, Default)]
pub(super) struct Phrases {
    fillers: BTreeSet<String>,
    conjunctions: BTreeSet<String>,
    /// Words that speak of a run.
    pub(super) mentions: BTreeSet<String>,
    /// Words of somebody else follow these.
    pub(super) reports: BTreeSet<String>,
    /// Words with which something else begins than what was said before.
    pub(super) turns: BTreeSet<String>,
    /// Words with which an aside begins, which is no end of what it stands in.
    pub(super) asides: BTreeSet<String>,
    /// Words with which a clause begins that another depends on.
    pub(super) subordinators: BTreeSet<String>,
    /// The sets of words that phrases name: a class, or a choice.
    sets: Vec<BTreeSet<String>>,
    /// The sets that a word is in.
    sets_of: BTreeMap<String, Vec<usize>>,
    /// The tree; its first two nodes are the roots of [`ANYWHERE`] and [`AT_BEGINNING`].
    nodes: Vec<Node>,
}

const ANYWHERE: usize = 0;
const AT_BEGINNING: usize = 1;

#[derive(Debug, Default)]
struct Node {
    words: BTreeMap<String, usize>,
    sets: BTreeMap<usize, usize>,
    ends: Option<Kind>,
    /// The same, where a part of a sentence ends with it.
    closes: Option<Kind>,
}

/// One step of a phrase.
#[derive(Debug, Clone)]
enum Step {
    Word(String),
    Set(usize),
}

static BUILTIN: LazyLock<Phrases> = LazyLock::new(|| {
    // The file is compiled in; a test reads it as strictly, so that it can't be wrong here.
    let words = toml::from_str(include_str!("words.toml")).unwrap_or_default();
    Phrases::of(words)
});

/// The triggers of containers: their words as they are, fillers too.
pub(super) fn triggers<'a>(texts: impl IntoIterator<Item = &'a str>) -> Phrases {
    let mut phrases = Phrases::empty();
    for text in texts {
        let words: Vec<_> =
            tokens::read(text).tokens.into_iter().map(|token| Step::Word(token.word)).collect();
        phrases.insert(ANYWHERE, &words, (Kind::Trigger, false));
    }
    phrases
}

impl Phrases {
    /// The phrases of the compiled-in file.
    pub(super) fn builtin() -> &'static Phrases {
        &BUILTIN
    }

    fn empty() -> Self {
        Phrases { nodes: vec![Node::default(), Node::default()], ..Phrases::default() }
    }

    fn of(words: Words) -> Self {
        let mut phrases = Phrases::empty();
        for (kind, list) in words.phrases.all() {
            for phrase in list {
                phrases.add(&phrase, kind, &words.classes);
            }
        }
        phrases.fillers = words.fillers;
        phrases.conjunctions = words.conjunctions;
        phrases.mentions = words.mentions;
        phrases.reports = words.reports;
        phrases.turns = words.turns;
        phrases.asides = words.asides;
        phrases.subordinators = words.subordinators;
        for (index, set) in phrases.sets.iter().enumerate() {
            for word in set {
                phrases.sets_of.entry(word.clone()).or_default().push(index);
            }
        }
        phrases
    }

    /// Adds a phrase in the notation of the file, once with and once without each word that may be missing.
    fn add(&mut self, phrase: &str, kind: Kind, classes: &BTreeMap<String, BTreeSet<String>>) {
        let (root, phrase) = match phrase.strip_prefix('^') {
            Some(rest) => (AT_BEGINNING, rest),
            None => (ANYWHERE, phrase),
        };
        let (phrase, closes) = match phrase.strip_suffix('$') {
            Some(rest) => (rest, true),
            None => (phrase, false),
        };
        let mut ways: Vec<Vec<Step>> = vec![Vec::new()];
        for written in phrase.split_whitespace() {
            let (written, optional) = match written.strip_suffix('?') {
                Some(rest) => (rest, true),
                None => (written, false),
            };
            let step = self.step(written, classes);
            let without = if optional { ways.clone() } else { Vec::new() };
            for way in &mut ways {
                way.push(step.clone());
            }
            ways.extend(without);
        }
        for way in ways {
            self.insert(root, &way, (kind, closes));
        }
    }

    fn step(&mut self, written: &str, classes: &BTreeMap<String, BTreeSet<String>>) -> Step {
        if !written.contains(['|', '{']) {
            return Step::Word(written.to_owned());
        }
        let mut set = BTreeSet::new();
        for choice in written.split('|') {
            match choice.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
                Some(name) => set.extend(classes.get(name).into_iter().flatten().cloned()),
                None => _ = set.insert(choice.to_owned()),
            }
        }
        let known = self.sets.iter().position(|known| *known == set);
        Step::Set(known.unwrap_or_else(|| {
            self.sets.push(set);
            self.sets.len() - 1
        }))
    }

    fn insert(&mut self, root: usize, steps: &[Step], (kind, closes): (Kind, bool)) {
        if steps.is_empty() {
            return;
        }
        let mut at = root;
        for step in steps {
            let fresh = self.nodes.len();
            let Some(node) = self.nodes.get_mut(at) else { return };
            at = match step {
                Step::Word(word) => *node.words.entry(word.clone()).or_insert(fresh),
                Step::Set(set) => *node.sets.entry(*set).or_insert(fresh),
            };
            if at == fresh {
                self.nodes.push(Node::default());
            }
        }
        if let Some(node) = self.nodes.get_mut(at) {
            let ends = if closes { &mut node.closes } else { &mut node.ends };
            *ends = Some(ends.map_or(kind, |known| known.min(kind)));
        }
    }

    /// The words that count, in their order.
    pub(super) fn kept(&self, tokens: &[Token]) -> Vec<Kept> {
        let mut kept = Vec::new();
        let (mut parted, mut after_conjunction) = (true, false);
        for (index, token) in tokens.iter().enumerate() {
            parted |= token.parted;
            let conjunction = self.conjunctions.contains(&token.word);
            if self.fillers.contains(&token.word) {
                after_conjunction |= conjunction;
                continue;
            }
            kept.push(Kept { index, begins: parted || after_conjunction, parted });
            after_conjunction = conjunction;
            parted = false;
        }
        kept
    }

    /// The longest phrase at each place, from the left, each word in one phrase at most; fillers are passed over.
    pub(super) fn find(&self, tokens: &[Token]) -> Vec<Found> {
        let kept = self.kept(tokens);
        let mut found = Vec::new();
        let mut rest = kept.as_slice();
        while let Some(first) = rest.first() {
            let longest = self.longest(tokens, rest);
            if let Some((length, kind)) = longest
                && let Some(last) = rest.get(length - 1)
            {
                found.push(Found { kind, first: first.index, last: last.index });
            }
            rest = rest.get(longest.map_or(1, |(length, _)| length)..).unwrap_or_default();
        }
        found
    }

    /// Whether a part of a sentence ends before this word.
    fn closes(&self, tokens: &[Token], next: Option<&Kept>) -> bool {
        next.is_none_or(|next| {
            let word = tokens.get(next.index).map(|token| token.word.as_str());
            next.parted || word.is_some_and(|word| self.conjunctions.contains(word))
        })
    }

    /// The longest phrase that begins with the first of these words: how many words it has, at least one.
    fn longest(&self, tokens: &[Token], kept: &[Kept]) -> Option<(usize, Kind)> {
        let mut best: Option<(usize, Kind)> = None;
        let begins = kept.first().is_some_and(|first| first.begins);
        let mut open = vec![(ANYWHERE, 0)];
        if begins {
            open.push((AT_BEGINNING, 0));
        }
        while let Some((node, length)) = open.pop() {
            let Some(node) = self.nodes.get(node) else { continue };
            let closed = node.closes.filter(|_| self.closes(tokens, kept.get(length)));
            if let Some(kind) = node.ends.into_iter().chain(closed).min()
                && best.is_none_or(|(longest, of)| (length, Reverse(kind)) > (longest, Reverse(of)))
            {
                best = Some((length, kind));
            }
            let Some(word) = kept.get(length).filter(|word| length == 0 || !word.parted) else { continue };
            let Some(word) = tokens.get(word.index).map(|token| token.word.as_str()) else { continue };
            open.extend(node.words.get(word).map(|next| (*next, length + 1)));
            let sets = self.sets_of.get(word).into_iter().flatten();
            open.extend(sets.filter_map(|set| node.sets.get(set)).map(|next| (*next, length + 1)));
        }
        best
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn words() -> Words {
        toml::from_str(include_str!("words.toml")).unwrap()
    }

    #[test]
    fn the_file_can_be_read_and_names_no_class_that_is_not_there() {
        let words = words();
        for (name, class) in &words.classes {
            assert!(class.is_disjoint(&words.fillers), "{name}: a filler in it is never seen");
        }
        let classes = words.classes.clone();
        let fillers = words.fillers.clone();
        for phrase in words.phrases.all().iter().flat_map(|(_, list)| list) {
            for part in phrase.split(['{', '}']).skip(1).step_by(2) {
                assert!(classes.contains_key(part), "{phrase}: {part}");
            }
            let plain: String = phrase.chars().filter(|c| !"{}|?^$`_ ".contains(*c)).collect();
            assert!(plain.chars().all(|c| c.is_ascii_lowercase()), "{phrase}");
            let never = phrase.split([' ', '^', '$', '?', '|']).filter(|word| fillers.contains(*word));
            assert_eq!(never.collect::<Vec<_>>(), Vec::<&str>::new(), "{phrase}: never seen, a filler");
        }
    }

    #[test]
    fn the_longest_phrase_counts_and_punctuation_ends_it() {
        let found = |text: &str| -> Vec<Kind> {
            Phrases::builtin().find(&tokens::read(text).tokens).into_iter().map(|found| found.kind).collect()
        };
        assert_eq!(found("run it"), [Kind::Ordered]);
        assert_eq!(found("don't run it").first(), Some(&Kind::Forbidden));
        assert_eq!(found("don't, run it"), [Kind::Retracted, Kind::Ordered]);
        assert_eq!(found("run this no more than twice"), [Kind::Ordered, Kind::Passed]);
        assert_eq!(found("run this no"), [Kind::Retracted]);
        assert_eq!(found("don't forget to run it"), [Kind::Ordered]);
        assert_eq!(found("when I run it"), [Kind::Passed]);
        assert_eq!(found("before I run it"), [Kind::Spoken]);
        assert_eq!(found(""), []);
    }
}
