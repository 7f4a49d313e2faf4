//! Keys out of what servers say, whole texts and texts that come in pieces.
//!
//! Imports `model`. A server that was sent a key can say it again, in an error as in a reply; the notebook is shared, the key
//! is not.

use super::model::Delta;
use crate::config::Secret;

/// What stands where a key stood.
const MASK: &str = "***";
/// A placeholder such as `x` is no secret.
const SHORTEST: usize = 4;

/// The least of a key's beginning or end that is taken for a piece of it, in bytes. Shorter ones tell little, and the
/// beginnings of keys (`sk-proj-`) are no secrets.
const PIECE: usize = 8;

/// A whole text without any key that we know, and without what is left of one where a text was shortened before: its
/// beginning in front of the cut, its end behind it.
pub(crate) fn masked(text: &str, secrets: &[Secret]) -> String {
    let mut text = without(text, secrets);
    for secret in known(secrets) {
        let piece = (secret.len() / 4).max(PIECE);
        if secret.len() >= 2 * PIECE && secret.is_ascii() {
            text = without_beginnings(&text, secret, piece);
            text = without_ends(&text, secret, piece);
        }
    }
    text
}

/// A text without whole keys.
fn without(text: &str, secrets: &[Secret]) -> String {
    let mut text = text.to_owned();
    for secret in known(secrets) {
        if text.contains(secret) {
            text = text.replace(secret, MASK);
        }
    }
    text
}

fn without_beginnings(text: &str, secret: &str, piece: usize) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(&secret[..piece]) {
        let (before, from) = rest.split_at(at);
        let same = from.bytes().zip(secret.bytes()).take_while(|(one, other)| one == other).count();
        done.push_str(before);
        done.push_str(MASK);
        rest = &from[same..];
    }
    done + rest
}

fn without_ends(text: &str, secret: &str, piece: usize) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(&secret[secret.len() - piece..]) {
        let (before, behind) = rest.split_at(at + piece);
        let same =
            before.bytes().rev().zip(secret.bytes().rev()).take_while(|(one, other)| one == other).count();
        done.push_str(&before[..before.len() - same]);
        done.push_str(MASK);
        rest = behind;
    }
    done + rest
}

fn known(secrets: &[Secret]) -> impl Iterator<Item = &str> {
    secrets.iter().map(Secret::reveal).filter(|secret| secret.len() >= SHORTEST)
}

/// What grows piece by piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grows {
    Text,
    Reasoning,
    Arguments(u64),
}

impl Grows {
    fn delta(self, text: String) -> Delta {
        match self {
            Grows::Text => Delta::Text(text),
            Grows::Reasoning => Delta::Reasoning(text),
            Grows::Arguments(part) => Delta::CallArguments { part, json: text },
        }
    }
}

/// Takes keys out of one reply. The end of a piece that could be the beginning of a key waits for the next piece.
#[derive(Debug)]
pub(super) struct Mask<'a> {
    secrets: &'a [Secret],
    held: Option<(Grows, String)>,
}

impl<'a> Mask<'a> {
    pub(super) fn new(secrets: &'a [Secret]) -> Self {
        Mask { secrets, held: None }
    }

    /// What may be shown now that this came.
    pub(super) fn pass(&mut self, delta: Delta) -> Vec<Delta> {
        let (grows, text) = match delta {
            Delta::Text(text) => (Grows::Text, text),
            Delta::Reasoning(text) => (Grows::Reasoning, text),
            Delta::CallArguments { part, json } => (Grows::Arguments(part), json),
            Delta::CallStart { part, name } => {
                return self.after(Delta::CallStart { part, name: masked(&name, self.secrets) });
            }
            Delta::Call { part, mut call } => {
                for text in [&mut call.id, &mut call.name, &mut call.arguments] {
                    *text = masked(text, self.secrets);
                }
                return self.after(Delta::Call { part, call });
            }
            Delta::End { .. } => return self.after(delta),
        };
        let mut out = match &self.held {
            Some((held, _)) if *held != grows => self.rest(),
            _ => Vec::new(),
        };
        let before = self.held.take().map(|(_, before)| before).unwrap_or_default();
        // What may be a piece of a key may here be the beginning of a whole one, which waits.
        let mut text = without(&(before + &text), self.secrets);
        let begun = text.split_off(text.len() - self.begun(&text));
        if !text.is_empty() {
            out.push(grows.delta(text));
        }
        if !begun.is_empty() {
            self.held = Some((grows, begun));
        }
        out
    }

    /// What waited, when nothing follows.
    pub(super) fn rest(&mut self) -> Vec<Delta> {
        let Some((grows, held)) = self.held.take() else { return Vec::new() };
        // Most of a key is as good as all of it.
        let most =
            known(self.secrets).any(|secret| secret.starts_with(&held) && held.len() * 2 > secret.len());
        vec![grows.delta(if most { MASK.to_owned() } else { held })]
    }

    fn after(&mut self, delta: Delta) -> Vec<Delta> {
        let mut out = self.rest();
        out.push(delta);
        out
    }

    /// How many bytes at the end of a text could be the beginning of a key.
    fn begun(&self, text: &str) -> usize {
        let of = |secret: &str| {
            (1..secret.len())
                .rev()
                .find(|length| secret.is_char_boundary(*length) && text.ends_with(&secret[..*length]))
        };
        known(self.secrets).filter_map(of).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(deltas: &[Delta]) -> String {
        deltas
            .iter()
            .map(|delta| match delta {
                Delta::Text(text) => text.clone(),
                Delta::Reasoning(text) => format!("({text})"),
                Delta::CallArguments { json, .. } => format!("[{json}]"),
                other => format!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn a_key_is_taken_out_however_it_is_cut() {
        let secrets = [Secret::new("sk-1234567"), Secret::new("x")];
        let said = "xx it is sk-1234567, sk-12 and sk-1234567";
        for size in 1..said.len() {
            let mut mask = Mask::new(&secrets);
            let pieces = said.as_bytes().chunks(size);
            let mut out: Vec<Delta> = pieces
                .flat_map(|piece| mask.pass(Delta::Text(String::from_utf8_lossy(piece).into_owned())))
                .collect();
            out.extend(mask.rest());
            assert_eq!(text(&out), "xx it is ***, sk-12 and ***", "in pieces of {size}");
        }
    }

    #[test]
    fn what_a_cut_left_of_a_key_is_taken_out() {
        let key = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCD";
        let secrets = [Secret::new(key), Secret::new("short-key-1")];
        for (text, expected) in [
            (
                format!("a {}\n[... 9 bytes left out ...]\n{} b", &key[..40], &key[20..]),
                "a ***\n[... 9 bytes left out ...]\n*** b",
            ),
            (format!("x {}…", &key[..12]), "x ***…"),
            (format!("{0}{0}", &key[..30]), "******"),
            (format!("é{}é{}é", &key[30..], &key[..20]), "é***é***é"),
            // The kind of a key is no secret, and neither is the middle of nothing.
            (
                "set sk-proj-… in OPENAI_API_KEY, not short-ke".to_owned(),
                "set sk-proj-… in OPENAI_API_KEY, not short-ke",
            ),
        ] {
            assert_eq!(masked(&text, &secrets), expected, "{text}");
        }
    }

    #[test]
    fn what_waits_comes_before_what_is_something_else() {
        let secrets = [Secret::new("sk-1234567")];
        let mut mask = Mask::new(&secrets);
        assert_eq!(text(&mask.pass(Delta::Text("a sk".into()))), "a ");
        assert_eq!(text(&mask.pass(Delta::Reasoning("b".into()))), "sk(b)");
        assert_eq!(text(&mask.pass(Delta::CallArguments { part: 0, json: "\"sk-123456".into() })), "[\"]");
        assert_eq!(text(&mask.rest()), "[***]", "most of a key is as good as all of it");
        assert_eq!(mask.rest(), []);
    }

    #[test]
    fn without_a_key_nothing_waits() {
        let mut mask = Mask::new(&[]);
        assert_eq!(text(&mask.pass(Delta::Text("s".into()))), "s");
    }
}
