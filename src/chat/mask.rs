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

/// A text without any key that we know.
pub(crate) fn masked(text: &str, secrets: &[Secret]) -> String {
    let mut text = text.to_owned();
    for secret in known(secrets) {
        if text.contains(secret) {
            text = text.replace(secret, MASK);
        }
    }
    text
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
        let mut text = masked(&(before + &text), self.secrets);
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
