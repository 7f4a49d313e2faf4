//! Prose to words: what the user says, without the code, quotes and HTML that stand in it.
//!
//! Imports pulldown-cmark for what is prose at all.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// What stands for a piece of inline code: its words are not the user's.
pub(super) const CODE: &str = "`";

/// One word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// In lower case, without apostrophes; [`CODE`] for inline code.
    pub(super) word: String,
    /// Where it stands in the prose, in bytes.
    pub(super) start: usize,
    /// Where it ends.
    pub(super) end: usize,
    /// Whether punctuation or a new paragraph parts it from the word before it.
    pub(super) parted: bool,
}

/// The words of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Read {
    pub(super) tokens: Vec<Token>,
    /// Whether there is a question mark.
    pub(super) question: bool,
}

/// Reads prose; takes time linear in it.
pub(super) fn read(text: &str) -> Read {
    let mut read = Read::default();
    let mut parted = true;
    // Depth of what is not the user's own prose.
    let mut foreign = 0_usize;
    for (event, range) in Parser::new_ext(text, Options::empty()).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_) | Tag::BlockQuote(_) | Tag::HtmlBlock) => {
                foreign += 1;
                parted = true;
            }
            Event::End(TagEnd::CodeBlock | TagEnd::BlockQuote(_) | TagEnd::HtmlBlock) => {
                foreign = foreign.saturating_sub(1);
                parted = true;
            }
            _ if foreign > 0 => {}
            // The place is of the text as it was written: an entity or an escape in it stays what it was.
            Event::Text(_) => {
                words(text.get(range.clone()).unwrap_or_default(), range.start, &mut parted, &mut read);
            }
            Event::Code(_) => {
                let code = Token {
                    word: CODE.to_owned(),
                    start: range.start,
                    end: range.end,
                    parted: std::mem::take(&mut parted),
                };
                read.tokens.push(code);
            }
            Event::Start(Tag::Emphasis | Tag::Strong | Tag::Link { .. } | Tag::Image { .. })
            | Event::End(TagEnd::Emphasis | TagEnd::Strong | TagEnd::Link | TagEnd::Image)
            | Event::SoftBreak
            | Event::InlineHtml(_) => {}
            _ => parted = true,
        }
    }
    read
}

/// The words of a piece of text that begins at `offset` of the prose.
fn words(text: &str, offset: usize, parted: &mut bool, read: &mut Read) {
    let mut word = String::new();
    let mut start = 0;
    let mut end = 0;
    // A space behind the text ends its last word.
    for (at, c) in text.char_indices().chain(std::iter::once((text.len(), ' '))) {
        let apostrophe = matches!(c, '\'' | '\u{2019}') && !word.is_empty();
        if c.is_alphanumeric() || c == '_' || apostrophe {
            if word.is_empty() {
                start = at;
            }
            if !apostrophe {
                word.extend(c.to_lowercase());
                end = at + c.len_utf8();
            }
            continue;
        }
        if !word.is_empty() {
            let token = Token {
                word: std::mem::take(&mut word),
                start: offset + start,
                end: offset + end,
                parted: std::mem::take(parted),
            };
            read.tokens.push(token);
        }
        read.question |= c == '?';
        *parted |= is_dash(text, at)
            || matches!(
                c,
                '.' | ',' | ';' | ':' | '!' | '?' | '(' | ')' | '\u{2013}' | '\u{2014}' | '\u{2026}'
            );
    }
}

/// Whether a hyphen stands for a dash there: between spaces, or doubled.
fn is_dash(text: &str, at: usize) -> bool {
    let Some(rest) = text.get(at..).and_then(|rest| rest.strip_prefix('-')) else { return false };
    let spaced = text.get(..at).is_some_and(|before| before.ends_with([' ', '\t']));
    rest.starts_with('-') || (spaced && rest.starts_with([' ', '\t']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Vec<String> {
        let parted = |token: &Token| if token.parted { "|" } else { "" };
        read(text).tokens.iter().map(|token| format!("{}{}", parted(token), token.word)).collect()
    }

    #[test]
    fn words_are_the_users_own_and_know_where_a_sentence_parts() {
        for (text, words) in [
            ("Don't run *it*, please!", &["|dont", "run", "it", "|please"][..]),
            ("Don\u{2019}t\nrun", &["|dont", "run"]),
            ("What does `run(it)` give?", &["|what", "does", "`", "give"]),
            ("a\n\nb", &["|a", "|b"]),
            ("run this - no re-run -1 x--y", &["|run", "this", "|no", "re", "run", "1", "x", "|y"]),
            ("> run it\n\nmine", &["|mine"]),
            ("```text\nrun it\n```\nmine", &["|mine"]),
            ("    run it\n\nmine", &["|mine"]),
            ("<!-- run it -->\n\n<b>mine</b>", &["|mine"]),
            ("* one\n* two", &["|one", "|two"]),
            ("ÄRGER über_x 3.14 'quoted'", &["|ärger", "über_x", "3", "|14", "quoted"]),
            ("", &[]),
        ] {
            assert_eq!(seen(text), words, "{text:?}");
        }
    }
}
