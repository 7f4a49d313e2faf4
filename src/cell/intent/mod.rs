//! Whether the code in a prompt is to run: decided from the words around it. Pure and total.
//!
//! Imports nothing of ours. `docs/intent.md` is the user's side of it.
//!
//! | module | what |
//! | --- | --- |
//! | `tokens` | prose to words, without the code, quotes and HTML in it |
//! | `scope` | what a "not" reaches in its sentence |
//! | `phrases` | the phrases of `words.toml`, and where they stand among the words |
//!
//! # The table
//!
//! The first row that fits decides.
//!
//! | the prose | the code |
//! | --- | --- |
//! | is not there | runs |
//! | forbids it ("don't run it"), or takes back what it ordered ("run it? no, don't") | stays |
//! | orders it ("run it", "test this") | runs |
//! | warns of it ("malicious code"), or speaks of a run that it does not order ("is it safe to run this?") | stays |
//! | asks for the outcome ("does it work?") or has a container's trigger, before anything of the next row | runs |
//! | asks something of the code itself ("explain", "refactor") | stays |
//! | asks another question | stays |
//! | has at most [`SHORT`] words, or leads in with a colon, or tells what the code does ("Next, we drop ...") | runs |
//! | is none of these | stays |

mod phrases;
mod scope;
mod tokens;

use phrases::{Found, Kind, Phrases};

/// Prose with no more words than this is a caption.
pub const SHORT: usize = 4;

/// Characters of the user's own words in a reason.
const QUOTED: usize = 60;

/// Whether the code in a prompt runs, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether it runs.
    pub run: bool,
    /// Which row of the table decided.
    pub reason: Reason,
}

/// Which row of the table decided; the words are the user's own, as they were written, at most 60 characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// There are no words around the code.
    NoProse,
    /// It is not to run.
    Forbidden(String),
    /// It is to run.
    Ordered(String),
    /// It is said to be dangerous, and nothing orders a run.
    Danger(String),
    /// A run is spoken of, and none is ordered.
    Spoken(String),
    /// The outcome is asked for.
    Outcome(String),
    /// One of a container's triggers.
    Trigger(String),
    /// Something is to be done with the code itself, or to be said of it.
    Declined(String),
    /// A question, and not about the outcome.
    Question,
    /// Few words.
    Short(usize),
    /// The prose leads to the code with a colon.
    LeadsIn,
    /// The prose tells what the code does.
    Told(String),
    /// Nothing of all this.
    Unclear,
}

impl Reason {
    /// The row's name, for metadata.
    pub fn name(&self) -> &'static str {
        match self {
            Reason::NoProse => "no-prose",
            Reason::Forbidden(_) => "forbidden",
            Reason::Ordered(_) => "ordered",
            Reason::Danger(_) => "danger",
            Reason::Spoken(_) => "spoken-of",
            Reason::Outcome(_) => "outcome",
            Reason::Trigger(_) => "trigger",
            Reason::Declined(_) => "about-the-code",
            Reason::Question => "question",
            Reason::Short(_) => "short",
            Reason::LeadsIn => "leads-in",
            Reason::Told(_) => "told",
            Reason::Unclear => "unclear",
        }
    }

    /// The words that decided, when words did.
    pub fn words(&self) -> Option<&str> {
        match self {
            Reason::Forbidden(words)
            | Reason::Ordered(words)
            | Reason::Danger(words)
            | Reason::Spoken(words)
            | Reason::Outcome(words)
            | Reason::Trigger(words)
            | Reason::Declined(words)
            | Reason::Told(words) => Some(words),
            Reason::NoProse | Reason::Question | Reason::Short(_) | Reason::LeadsIn | Reason::Unclear => None,
        }
    }

    /// The reason as the end of a sentence that begins with "because".
    pub fn clause(&self) -> String {
        match self {
            Reason::NoProse => "there are no words around it".to_owned(),
            Reason::Forbidden(words) => format!("\u{201c}{words}\u{201d} says that it should not"),
            Reason::Ordered(words) => format!("\u{201c}{words}\u{201d} says that it should"),
            Reason::Danger(words) => {
                format!("\u{201c}{words}\u{201d} warns of it and nothing orders a run")
            }
            Reason::Spoken(words) => {
                format!("\u{201c}{words}\u{201d} speaks of a run and does not order one")
            }
            Reason::Outcome(words) => format!("\u{201c}{words}\u{201d} asks for the outcome"),
            Reason::Trigger(words) => format!("\u{201c}{words}\u{201d} is a container's trigger"),
            Reason::Declined(words) => {
                format!("\u{201c}{words}\u{201d} asks something about the code itself")
            }
            Reason::Question => "the question is not about the outcome".to_owned(),
            Reason::Short(1) => "one word beside it is only a caption".to_owned(),
            Reason::Short(count) => format!("{count} words beside it are only a caption"),
            Reason::LeadsIn => "the words lead to it with a colon".to_owned(),
            Reason::Told(words) => format!("\u{201c}{words}\u{201d} tells what the code does"),
            Reason::Unclear => "nothing around it asks for a run".to_owned(),
        }
    }
}

/// Decides from the prose around the code, piece by piece in its order, and the triggers of the containers.
///
/// Takes time linear in the prose, whatever it holds.
pub fn decide<'a>(prose: &[&str], triggers: impl IntoIterator<Item = &'a str>) -> Decision {
    let text = prose.join("\n\n");
    let read = tokens::read(&text);
    let mut found = Phrases::builtin().find(&read.tokens);
    found.extend(phrases::triggers(triggers).find(&read.tokens));
    found.sort_by_key(|found| found.first);
    for found in &mut found {
        if found.kind == Kind::Ordered && scope::is_reported(&read.tokens, found) {
            found.kind = Kind::Spoken;
        }
    }
    let quoted = |found: &Found| {
        let places = read.tokens.get(found.first).zip(read.tokens.get(found.last));
        let words = places.and_then(|(first, last)| text.get(first.start..last.end)).unwrap_or_default();
        excerpt(words)
    };
    let first = |kinds: &[Kind]| found.iter().find(|found| kinds.contains(&found.kind));
    let words = Phrases::builtin().kept(&read.tokens).len();
    let decided = |run: bool, reason: Reason| Decision { run, reason };
    if read.tokens.is_empty() {
        return decided(true, Reason::NoProse);
    }
    let spanned = scope::forbidden(&read.tokens, &found);
    if let Some(found) = first(&[Kind::Forbidden]).or(spanned.as_ref()) {
        return decided(false, Reason::Forbidden(quoted(found)));
    }
    // "yes, no" is an answer that is asked for.
    let answer = |found: &Found| {
        let before = found.first.checked_sub(1).and_then(|before| read.tokens.get(before));
        before.is_some_and(|before| before.word == "yes")
    };
    let last = |kind: Kind| found.iter().rev().find(move |found| found.kind == kind && !answer(found));
    if let Some(found) = last(Kind::Retracted)
        && last(Kind::Ordered).is_none_or(|ordered| ordered.first < found.first)
    {
        return decided(false, Reason::Forbidden(quoted(found)));
    }
    if let Some(found) = first(&[Kind::Ordered]) {
        return decided(true, Reason::Ordered(quoted(found)));
    }
    if let Some(found) = first(&[Kind::Danger]) {
        return decided(false, Reason::Danger(quoted(found)));
    }
    if let Some(found) = first(&[Kind::Spoken]) {
        return decided(false, Reason::Spoken(quoted(found)));
    }
    match first(&[Kind::Outcome, Kind::Trigger, Kind::Declined]) {
        Some(found) if found.kind == Kind::Outcome => decided(true, Reason::Outcome(quoted(found))),
        Some(found) if found.kind == Kind::Trigger => decided(true, Reason::Trigger(quoted(found))),
        Some(found) => decided(false, Reason::Declined(quoted(found))),
        None if read.question => decided(false, Reason::Question),
        None if words <= SHORT => decided(true, Reason::Short(words)),
        None if prose.iter().any(|piece| leads_in(piece)) => decided(true, Reason::LeadsIn),
        None => match first(&[Kind::Told]) {
            Some(found) => decided(true, Reason::Told(quoted(found))),
            None => decided(false, Reason::Unclear),
        },
    }
}

/// Whether a piece of prose ends with a colon, whatever emphasis is around it.
fn leads_in(piece: &str) -> bool {
    piece.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '*' | '_')).ends_with(':')
}

/// The user's words in one line, bounded.
fn excerpt(text: &str) -> String {
    let mut short = String::new();
    for word in text.split_whitespace() {
        if !short.is_empty() {
            short.push(' ');
        }
        short.extend(word.chars().take(QUOTED));
        if let Some((end, _)) = short.char_indices().nth(QUOTED) {
            short.truncate(end);
            short.push('\u{2026}');
            break;
        }
    }
    short
}
