//! What is different in a request that was never recorded: the nearest recording, and a short difference. Imports
//! nothing of ours but this folder's.

use std::collections::HashMap;
use std::fmt::Write;

use super::asked::Asked;
use super::lines::{Kind, ReplyLine};

/// The most lines of a difference on either side, and the most characters of one.
const LINES: usize = 4;
const WIDTH: usize = 160;

/// What is different, in words for the user.
pub(super) fn explain<'r>(
    asked: &Asked,
    replies: impl Iterator<Item = &'r ReplyLine>,
    texts: &HashMap<String, String>,
) -> String {
    let Some(nearest) = replies.max_by_key(|reply| likeness(asked, reply)) else {
        return "Nothing was recorded yet.".to_owned();
    };
    let mut differences = Vec::new();
    if nearest.model != asked.model {
        let named = |name: &str| if name.is_empty() { "none named".to_owned() } else { name.to_owned() };
        differences.push(format!("the model: {} then, {} now", named(&nearest.model), named(&asked.model)));
    }
    let number = |value: Option<f64>| value.map_or_else(|| "not set".to_owned(), |value| value.to_string());
    if nearest.temperature != asked.temperature {
        let (then, now) = (number(nearest.temperature), number(asked.temperature));
        differences.push(format!("the temperature: {then} then, {now} now"));
    }
    if nearest.max_tokens != asked.max_tokens {
        let word = |value: Option<u64>| value.map_or_else(|| "not set".to_owned(), |value| value.to_string());
        let (then, now) = (word(nearest.max_tokens), word(asked.max_tokens));
        differences.push(format!("the limit of tokens: {then} then, {now} now"));
    }
    differences.extend(parts(asked, nearest, texts));
    let cell = if nearest.cell == asked.cell { "of this cell" } else { "of another cell" };
    if differences.is_empty() {
        // The same parts in another order, or a recording that was changed by hand.
        differences.push("the whole, in a way that can't be named".to_owned());
    }
    format!(
        "The nearest recording ({cell}: \"{}\") differs in {}",
        bounded(&nearest.prompt),
        differences.join("\nand in ")
    )
}

/// The first difference in each kind of part.
fn parts(asked: &Asked, nearest: &ReplyLine, texts: &HashMap<String, String>) -> Vec<String> {
    let then = |kind| nearest.asked.iter().find(|(of, _)| *of == kind).map(|(_, digest)| digest.as_str());
    let now = |kind| asked.parts.iter().find(|part| part.kind == kind);
    let mut differences = Vec::new();
    for kind in [Kind::System, Kind::Tools] {
        match (then(kind), now(kind)) {
            (Some(then), Some(now)) if then != now.digest => {
                differences.push(format!("{}{}", kind.name(), difference(texts.get(then), &now.kept())));
            }
            (Some(_), None) => differences.push(format!("{}: there are none now", kind.name())),
            (None, Some(_)) => differences.push(format!("{}: there were none then", kind.name())),
            _ => {}
        }
    }
    let messages = |kind: Kind| !matches!(kind, Kind::System | Kind::Tools);
    let before: Vec<_> = nearest.asked.iter().filter(|(kind, _)| messages(*kind)).collect();
    let after: Vec<_> = asked.parts.iter().filter(|part| messages(part.kind)).collect();
    let first = (0..before.len().max(after.len()))
        .find(|at| before.get(*at).map(|(_, digest)| digest) != after.get(*at).map(|part| &part.digest));
    if let Some(at) = first {
        let number = at + 1;
        differences.push(match (before.get(at), after.get(at)) {
            (Some((kind, digest)), Some(part)) if *kind == part.kind => {
                let text = difference(texts.get(digest), &part.kept());
                format!("message {number}, {}{text}", kind.name())
            }
            (Some((kind, _)), Some(part)) => {
                format!("message {number}: {} then, {} now", kind.name(), part.kind.name())
            }
            (Some(_), None) => {
                format!("message {number}: there were {} then, {} now", before.len(), after.len())
            }
            (None, _) => {
                format!("message {number}: there were only {} then, {} now", before.len(), after.len())
            }
        });
    }
    differences
}

/// How near a recording is.
fn likeness(asked: &Asked, reply: &ReplyLine) -> (usize, usize, bool) {
    let parts = asked.parts.iter().map(|part| &part.digest);
    let same = parts.zip(&reply.asked).filter(|(now, (_, then))| *now == then).count();
    let steps = asked.parts.len().abs_diff(reply.asked.len());
    (usize::from(reply.cell == asked.cell) * 1000 + same * 10, usize::MAX - steps, reply.model == asked.model)
}

/// The lines in which two texts differ.
fn difference(then: Option<&String>, now: &str) -> String {
    let Some(then) = then else { return " (what it was is not in the file)".to_owned() };
    let (then, now): (Vec<&str>, Vec<&str>) = (then.lines().collect(), now.lines().collect());
    let head = then.iter().zip(&now).take_while(|(a, b)| a == b).count();
    let rest = then.len().min(now.len()) - head;
    let tail = then.iter().rev().zip(now.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (then, now) = (&then[head..then.len() - tail], &now[head..now.len() - tail]);
    let mut text = format!(", line {}:", head + 1);
    let others = [now, then];
    for ((sign, lines), other) in [("-", then), ("+", now)].into_iter().zip(others) {
        for (at, line) in lines.iter().take(LINES).enumerate() {
            // Writing to a string can't fail.
            let _ = write!(text, "\n{sign} {}", around(line, other.get(at).copied().unwrap_or_default()));
        }
        if lines.len() > LINES {
            let _ = write!(text, "\n{sign} ... ({} lines)", lines.len());
        }
    }
    text
}

/// A line, of a long one what is around the first difference from the other.
fn around(line: &str, other: &str) -> String {
    let same = line.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    if line.chars().count() <= WIDTH || same <= WIDTH / 2 {
        return bounded(line);
    }
    let rest: String = line.chars().skip(same - WIDTH / 4).collect();
    format!("...{}", bounded(&rest))
}

/// At most so many characters, none of them one that controls a terminal.
pub(super) fn bounded(text: &str) -> String {
    let mut kept: String = text.chars().take(WIDTH).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(WIDTH).is_some() {
        kept.push_str("...");
    }
    kept
}
