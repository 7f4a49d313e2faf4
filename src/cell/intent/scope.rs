//! What a "not" reaches: in its sentence it takes back every order that follows it, however far away.
//!
//! Imports nothing of ours. A run that was not wanted can't be taken back, so the way out is narrow: what is negated
//! is known to be something else ("don't explain, run it"), or something else begins with a word that says so ("I
//! have no Python here, so run it").

use super::phrases::{Found, Kept, Kind, Phrases};
use super::tokens::Token;

/// Words of a clause that are looked at.
const CLAUSE: usize = 40;

/// The words from a "not" (or a "forbidden", "refuse") to the run that it takes back, in either order.
pub(super) fn forbidden(tokens: &[Token], found: &[Found]) -> Option<Found> {
    let phrases = Phrases::builtin();
    let kept = phrases.kept(tokens);
    let new = || Sentence { tokens, kept: &kept, phrases, said: Said::default() };
    let mut sentence = new();
    let mut found = found.iter().filter(|found| found.kind != Kind::Trigger).peekable();
    let mut at = 0;
    while let Some(word) = kept.get(at) {
        if sentence.ends_before(at) {
            sentence = new();
        }
        let begins = found.next_if(|found| found.first <= word.index);
        let until = begins.map_or(word.index, |found| found.last);
        let next = at + kept.iter().skip(at).take_while(|word| word.index <= until).count().max(1);
        let place = Place { first: at, last: next - 1 };
        if let Some(by) = sentence.read(begins.map(|found| found.kind), place) {
            let index = |at: usize| kept.get(at).map(|word| word.index);
            let ends = index(by.first.min(place.first)).zip(index(by.last.max(place.last)));
            return ends.map(|(first, last)| Found { kind: Kind::Forbidden, first, last });
        }
        at = next;
    }
    None
}

/// Whether an order is what somebody else said: "he told me: run it".
pub(super) fn is_reported(tokens: &[Token], order: &Found) -> bool {
    if !tokens.get(order.first).is_some_and(|token| token.parted && !token.opens) {
        return false;
    }
    let before = tokens.get(..order.first).unwrap_or_default();
    let begin = before.iter().rposition(|token| token.parted).unwrap_or(0);
    let clause = before.get(begin..).unwrap_or_default();
    // "The others told us: run it", but "as I said: run it".
    let said = clause.iter().rev().take(2).any(|token| Phrases::builtin().reports.contains(&token.word));
    let own = clause.iter().any(|token| matches!(token.word.as_str(), "i" | "we"));
    said && !own
}

/// Where something stands among the words that count.
#[derive(Debug, Clone, Copy)]
struct Place {
    first: usize,
    last: usize,
}

/// What a sentence has said so far.
#[derive(Default)]
struct Said {
    /// A "not" that reaches what follows.
    negated: Option<Place>,
    /// A "not" with something else behind it.
    excepted: Option<Place>,
    /// A word of refusing, which reaches a run that is no order of its own.
    refused: Option<Place>,
    /// A word of forbidding, which reaches both ways.
    banned: Option<Place>,
    /// A run.
    mentioned: Option<Place>,
}

struct Sentence<'a> {
    tokens: &'a [Token],
    kept: &'a [Kept],
    phrases: &'a Phrases,
    said: Said,
}

impl Sentence<'_> {
    /// Reads on; what forbids the run that was read, or that was spoken of before.
    fn read(&mut self, kind: Option<Kind>, place: Place) -> Option<Place> {
        match kind {
            Some(Kind::Passed) => None,
            // "It doesn't run" is a complaint, "nobody thinks it should run" is none.
            Some(Kind::Outcome) if self.said.negated.is_none() => None,
            Some(Kind::Negated) => self.negate(place),
            Some(Kind::Retracted) if matches!(self.word(place.last), "dont" | "donot" | "not" | "never") => {
                self.negate(place)
            }
            Some(Kind::Excepted) => {
                self.said.excepted = Some(place);
                None
            }
            Some(Kind::Refused) if self.is_bare(place) => self.negate(place),
            Some(Kind::Refused) => {
                self.said.refused = Some(place);
                None
            }
            Some(Kind::Banned) => {
                self.said.banned = Some(place);
                self.said.mentioned
            }
            Some(Kind::Ordered) => self.order(place),
            _ if (place.first..=place.last).any(|at| self.is_run(at)) => self.mention(place),
            _ => None,
        }
    }

    fn negate(&mut self, place: Place) -> Option<Place> {
        self.said.negated.get_or_insert(place);
        None
    }

    /// A run is spoken of.
    fn mention(&mut self, place: Place) -> Option<Place> {
        self.said.mentioned = Some(place);
        let said = &self.said;
        // "I don't see why anyone should run it": in one breath it belongs to what is negated.
        let excepted = said.excepted.filter(|other| self.is_joined(place) || !self.is_parted(*other, place));
        said.negated.or(said.refused).or(said.banned).or(excepted)
    }

    /// A run is ordered.
    fn order(&mut self, place: Place) -> Option<Place> {
        self.said.mentioned = Some(place);
        if self.said.negated.is_some_and(|negated| self.is_lifted(negated, place)) {
            self.said.negated = None;
        }
        let said = &self.said;
        said.negated.or(said.banned).or(said.excepted.filter(|_| self.is_joined(place)))
    }

    fn word(&self, at: usize) -> &str {
        self.kept.get(at).and_then(|kept| self.tokens.get(kept.index)).map_or("", |token| token.word.as_str())
    }

    fn is_run(&self, at: usize) -> bool {
        self.phrases.mentions.contains(self.word(at))
    }

    /// Whether a new sentence begins with that word, or with a filler before it.
    fn ends_before(&self, at: usize) -> bool {
        let index = |at: usize| self.kept.get(at).map(|kept| kept.index);
        let from = at.checked_sub(1).and_then(index).map_or(0, |index| index + 1);
        let to = index(at).unwrap_or(from);
        self.tokens.get(from..=to).unwrap_or_default().iter().any(|token| token.opens)
    }

    /// Whether nothing stands behind a "not", or only an aside: "don't, under any circumstances".
    fn is_bare(&self, place: Place) -> bool {
        let next = self.kept.get(place.last + 1);
        next.is_none_or(|next| next.parted) || self.phrases.asides.contains(self.word(place.last + 1))
    }

    /// Whether the clause up to that word, as far as it can be overlooked, depends on another.
    fn depends(&self, at: usize) -> bool {
        for at in (at.saturating_sub(CLAUSE)..=at).rev() {
            if self.phrases.subordinators.contains(self.word(at)) {
                return true;
            }
            if self.kept.get(at).is_none_or(|kept| kept.parted) {
                return false;
            }
        }
        false
    }

    /// Whether a run is one of several things that are negated: "don't edit, share or run it".
    fn is_joined(&self, place: Place) -> bool {
        let before = place.first.checked_sub(1).map_or("", |before| self.word(before));
        let and = before == "and" && self.is_run(place.first);
        and || [before, self.word(place.last + 1)].iter().any(|word| matches!(*word, "or" | "nor"))
    }

    fn is_parted(&self, one: Place, other: Place) -> bool {
        (one.last + 1..=other.first).any(|at| self.kept.get(at).is_some_and(|kept| kept.parted))
    }

    /// Whether an order begins something else than what was negated.
    fn is_lifted(&self, negated: Place, order: Place) -> bool {
        if self.is_bare(negated) {
            return false;
        }
        let parted = self.is_parted(negated, order);
        let depends = self.depends(negated.first);
        let request = !self.is_run(order.first);
        // "so run it", "please run it", with whatever fillers.
        let from = self.kept.get(order.first.saturating_sub(1)).map_or(0, |kept| kept.index);
        let to = self.kept.get(order.first).map_or(from, |kept| kept.index);
        let lead = self.tokens.get(from..to).unwrap_or_default();
        let turn = lead.iter().any(|token| self.phrases.turns.contains(&token.word));
        let strong =
            lead.first().is_some_and(|token| matches!(token.word.as_str(), "so" | "but" | "instead"));
        strong || (parted && (turn || depends || request))
    }
}
