//! YAML text to a tree in which every key and every value knows its line. Total, and bounded.
//!
//! Imports nothing of ours. A project's registry may be hostile, and YAML is larger than anybody needs here:
//! anchors, aliases, tags and further documents are refused, so no file grows while it is read.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};

/// How many keys and values a registry may have.
const MOST: usize = 20_000;
/// How deep they may lie.
const DEEPEST: usize = 16;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Line on which it begins, from 1.
    pub line: usize,
    /// What it is.
    pub value: Value,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// Nothing was written, or `~`, or `null`.
    Nothing,
    /// A scalar without quotes: a number, a flag or plain text.
    Bare(String),
    /// Text in quotes or in a block.
    Quoted(String),
    /// A list.
    List(Vec<Node>),
    /// Keys with their values, in their order; no key twice.
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// The key's line, from 1.
    pub line: usize,
    /// The key.
    pub key: String,
    /// Its value.
    pub node: Node,
}

/// Why a text is not what a registry may be.
#[derive(Debug, PartialEq)]
pub(super) struct Flaw {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub why: String,
}

impl Node {
    /// What it is, for a message that says it should be something else.
    pub(super) fn what(&self) -> &'static str {
        match &self.value {
            Value::Nothing => "nothing",
            Value::Bare(_) | Value::Quoted(_) => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a table of keys",
        }
    }
}

/// Something that was opened and not yet closed.
enum Open {
    List(usize, Vec<Node>),
    Map(usize, Vec<Entry>, Keys),
}

/// The keys of a table so far.
#[derive(Default)]
struct Keys {
    /// Where each was.
    seen: HashMap<String, usize>,
    /// The one that waits for its value.
    waiting: Option<(usize, String)>,
}

/// Takes YAML text apart; an empty text is [`Value::Nothing`].
pub(super) fn parse(text: &str) -> Result<Node, Flaw> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut open: Vec<Open> = Vec::new();
    let mut root: Option<Node> = None;
    let (mut count, mut documents) = (0, 0);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| invalid(text, &e))?;
        let line = span.start.line();
        let refuse = |why: &str| Err(Flaw { line, why: why.to_owned() });
        let done = match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => continue,
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return refuse("a second document begins here; a registry is one document");
                }
                continue;
            }
            Event::Alias(_) => return refuse("aliases (`*name`) are not taken; write the value out"),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor > 0 =>
            {
                return refuse("anchors (`&name`) are not taken; write the value out where it is needed");
            }
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, Some(_))
            | Event::MappingStart(_, Some(_)) => {
                return refuse("tags (`!name`) are not taken; write the plain value");
            }
            Event::Scalar(text, style, _, None) => {
                let text = text.into_owned();
                let bare = style == ScalarStyle::Plain;
                // A key that waits for nothing is this.
                if let Some(Open::Map(_, _, keys)) = open.last_mut()
                    && keys.waiting.is_none()
                {
                    if let Some(first) = keys.seen.insert(text.clone(), line) {
                        let text = crate::config::plain(&text);
                        return refuse(&format!(
                            "the key {text} is here twice; it is on line {first} already"
                        ));
                    }
                    keys.waiting = Some((line, text));
                    continue;
                }
                let value = match text.as_str() {
                    "" | "~" | "null" | "Null" | "NULL" if bare => Value::Nothing,
                    _ if bare => Value::Bare(text),
                    _ => Value::Quoted(text),
                };
                Node { line, value }
            }
            Event::SequenceStart(..) | Event::MappingStart(..)
                if matches!(open.last(), Some(Open::Map(_, _, Keys { waiting: None, .. }))) =>
            {
                return refuse("a key must be text");
            }
            Event::SequenceStart(..) => {
                open.push(Open::List(line, Vec::new()));
                if open.len() > DEEPEST {
                    return refuse("values lie too deep in one another");
                }
                continue;
            }
            Event::MappingStart(..) => {
                open.push(Open::Map(line, Vec::new(), Keys::default()));
                if open.len() > DEEPEST {
                    return refuse("values lie too deep in one another");
                }
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(Open::List(line, items)) => Node { line, value: Value::List(items) },
                Some(Open::Map(line, entries, _)) => Node { line, value: Value::Map(entries) },
                None => continue,
            },
        };
        count += 1;
        if count > MOST {
            return refuse(&format!("this is more than {MOST} values; no registry needs as many"));
        }
        match open.last_mut() {
            Some(Open::List(_, items)) => items.push(done),
            Some(Open::Map(_, entries, keys)) => {
                if let Some((line, key)) = keys.waiting.take() {
                    entries.push(Entry { line, key, node: done });
                }
            }
            None => root = Some(done),
        }
    }
    Ok(root.unwrap_or(Node { line: 1, value: Value::Nothing }))
}

/// What the parser says. Of a tab it names the line before, where it was looking at the time.
fn invalid(text: &str, error: &ScanError) -> Flaw {
    if error.info().contains("tab") {
        let indented = |text: &str| text.trim_start_matches(' ').starts_with('\t') && !text.trim().is_empty();
        let below = text
            .lines()
            .enumerate()
            .skip(error.marker().line().saturating_sub(1))
            .find(|(_, text)| indented(text));
        if let Some((n, _)) = below {
            return Flaw {
                line: n + 1,
                why: "not valid YAML: it is indented with a tab; use spaces".to_owned(),
            };
        }
    }
    Flaw { line: error.marker().line(), why: format!("not valid YAML: {}", error.info()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
    use super::*;

    fn flaw(text: &str) -> (usize, String) {
        let flaw = parse(text).unwrap_err();
        (flaw.line, flaw.why)
    }

    #[test]
    fn every_key_and_value_knows_its_line() {
        let node = parse("# head\na:\n  b: 1\n  c: ['x', y]\nd:\n").unwrap();
        let Value::Map(entries) = &node.value else { panic!("{node:?}") };
        assert_eq!((entries[0].line, entries[1].line), (2, 5));
        let Value::Map(inner) = &entries[0].node.value else { panic!("{entries:?}") };
        assert_eq!((inner[0].line, &inner[0].node.value), (3, &Value::Bare("1".to_owned())));
        let Value::List(items) = &inner[1].node.value else { panic!("{inner:?}") };
        assert_eq!(items[0], Node { line: 4, value: Value::Quoted("x".to_owned()) });
        assert_eq!(entries[1].node.value, Value::Nothing);
    }

    #[test]
    fn what_could_grow_or_mean_two_things_is_refused_with_its_line() {
        for (text, line, why) in [
            ("a: &x 1\n", 1, "anchors"),
            ("a: 1\nb: &x [1]\nc: [*x, *x]\n", 2, "anchors"),
            ("a: 1\nb: !!str 1\n", 2, "tags"),
            ("a: 1\nb: !evil {}\n", 2, "tags"),
            ("a: 1\n---\nb: 1\n", 2, "second document"),
            ("a: 1\nb: 2\na: 3\n", 3, "twice"),
            ("a: 1\n[x]: 2\n", 2, "a key must be text"),
            ("a: [\n", 2, "not valid YAML"),
            ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
        ] {
            let (at, said) = flaw(text);
            assert!(at == line && said.contains(why), "{text:?}: {at}: {said}");
        }
        assert!(flaw(&"[".repeat(100)).1.contains("too deep"));
        assert!(flaw(&"- 1\n".repeat(30_000)).1.contains("more than 20000"));
    }

    #[test]
    fn a_file_of_the_largest_size_is_read_in_a_moment() {
        for piece in
            ["a: 1\n", "- ", "[", "{", "? ", ": ", "'", "\"", "|\n", "# x\n", "a\n\n", "%", "[a, ", "{a: "]
        {
            let _ = parse(&piece.repeat((1 << 20) / piece.len()));
        }
        let unlike: Vec<String> = (0..60_000).map(|n| format!("k{n}: {n}")).collect();
        let unlike = unlike.join("\n");
        assert!(flaw(&unlike).1.contains("more than"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken_apart_without_a_panic(text in ".{0,200}|[a-z\\[\\]{}:,&*!|>%@`~?.=\"'# \n\t0-9-]{0,200}") {
            let _ = parse(&text);
        }
    }
}
