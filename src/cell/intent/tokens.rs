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
    /// Whether a sentence begins with it.
    pub(super) opens: bool,
}

/// What stands between two words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    /// Nothing that parts them.
    None,
    /// A comma, a dash, a colon.
    Part,
    /// The end of a sentence, or of a paragraph.
    Sentence,
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
    let mut reader = Reader { read: Read::default(), gap: Gap::Sentence, colon: false };
    // Depth of what is not the user's own prose.
    let mut foreign = 0_usize;
    for (event, range) in Parser::new_ext(text, Options::empty()).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_) | Tag::BlockQuote(_) | Tag::HtmlBlock) => {
                foreign += 1;
                reader.block();
            }
            Event::End(TagEnd::CodeBlock | TagEnd::BlockQuote(_) | TagEnd::HtmlBlock) => {
                foreign = foreign.saturating_sub(1);
                reader.block();
            }
            _ if foreign > 0 => {}
            // The place is of the text as it was written: an entity or an escape in it stays what it was.
            Event::Text(_) => reader.words(text.get(range.clone()).unwrap_or_default(), range.start),
            // Two backticks for apostrophes look like inline code, but no space stands before the first.
            Event::Code(_)
                if text.get(..range.start).is_some_and(|before| before.ends_with(char::is_alphanumeric)) =>
            {
                reader.words(text.get(range.clone()).unwrap_or_default(), range.start);
            }
            Event::Code(_) => reader.push(CODE.to_owned(), range.start, range.end),
            Event::Start(Tag::Emphasis | Tag::Strong | Tag::Link { .. } | Tag::Image { .. })
            | Event::End(TagEnd::Emphasis | TagEnd::Strong | TagEnd::Link | TagEnd::Image)
            | Event::SoftBreak
            | Event::InlineHtml(_) => {}
            // The points of a list go on with the sentence before them: "do not:", and then what.
            Event::Start(Tag::List(_) | Tag::Item) | Event::End(TagEnd::Item) => reader.part(Gap::Part),
            _ => reader.block(),
        }
    }
    reader.join_shouts();
    reader.read
}

/// What people and keyboards write for an apostrophe.
fn is_apostrophe(c: char) -> bool {
    matches!(
        c,
        '\'' | '`'
            | '\u{b4}'
            | '\u{2b9}'..='\u{2bd}'
            | '\u{2c8}'
            | '\u{2ca}'
            | '\u{2cb}'
            | '\u{55a}'
            | '\u{2018}'..='\u{201b}'
            | '\u{2032}'
            | '\u{2035}'
            | '\u{a78c}'
            | '\u{ff07}'
            | '\u{ff40}'
    )
}

/// What has no width and may stand in the middle of a word.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{fe0f}' | '\u{feff}')
}

struct Reader {
    read: Read,
    /// What parts the next word from the last one.
    gap: Gap,
    /// Whether a colon was the last that was read.
    colon: bool,
}

impl Reader {
    /// The next word is at least as far from the last one as that.
    fn part(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    /// A block begins or ends; after a colon the sentence goes on in it.
    fn block(&mut self) {
        self.part(if self.colon { Gap::Part } else { Gap::Sentence });
    }

    fn push(&mut self, word: String, start: usize, end: usize) {
        let gap = std::mem::replace(&mut self.gap, Gap::None);
        self.colon = false;
        // "don t": an apostrophe that was lost, or one that is not known.
        if let Some(last) = self.read.tokens.last_mut()
            && gap == Gap::None
            && ((word == "t" && last.word.ends_with('n')) || word == "nt")
        {
            last.word.push_str(&word);
            last.end = end;
            return;
        }
        let (parted, opens) = (gap >= Gap::Part, gap == Gap::Sentence);
        self.read.tokens.push(Token { word, start, end, parted, opens });
    }

    /// The words of a piece of text that begins at `offset` of the prose.
    fn words(&mut self, text: &str, offset: usize) {
        let mut word = String::new();
        let mut start = 0;
        let mut end = 0;
        // A space behind the text ends its last word.
        for (at, c) in text.char_indices().chain(std::iter::once((text.len(), ' '))) {
            let after = at + c.len_utf8();
            let inside = !word.is_empty();
            if inside && (is_apostrophe(c) || is_invisible(c)) {
                continue;
            }
            if (c.is_alphanumeric() || c == '_') && !is_apostrophe(c) {
                if !inside {
                    start = at;
                }
                word.extend(c.to_lowercase());
                end = after;
                continue;
            }
            // "e.g.": the point of a letter ends no sentence.
            let letter = word.chars().nth(1).is_none() && inside;
            if inside {
                self.push(std::mem::take(&mut word), offset + start, offset + end);
            }
            self.read.question |= c == '?';
            let ends =
                text.get(after..).is_none_or(|rest| rest.chars().next().is_none_or(|c| !c.is_alphanumeric()));
            match c {
                '!' | '?' | ';' => self.part(Gap::Sentence),
                '.' if ends && !letter && !is_ellipsis(text, at) => self.part(Gap::Sentence),
                '.' | ',' | ':' | '(' | ')' | '\u{2013}' | '\u{2014}' | '\u{2026}' => self.part(Gap::Part),
                _ if is_dash(text, at) => self.part(Gap::Part),
                _ => {}
            }
            self.colon = if c == ':' { true } else { self.colon && !c.is_alphanumeric() };
        }
    }

    /// "Do. Not. Run. This." is one sentence: neighbours of one word each are.
    fn join_shouts(&mut self) {
        let opens: Vec<bool> = self.read.tokens.iter().map(|token| token.opens).collect();
        let alone =
            |at: usize| opens.get(at).copied().unwrap_or(false) && opens.get(at + 1).copied().unwrap_or(true);
        for (at, token) in self.read.tokens.iter_mut().enumerate().skip(1) {
            token.opens &= !(alone(at) && alone(at - 1));
        }
    }
}

/// Whether a full stop is one of several.
fn is_ellipsis(text: &str, at: usize) -> bool {
    let around = (text.get(..at), text.get(at + 1..));
    matches!(around, (Some(before), Some(after)) if before.ends_with('.') || after.starts_with('.'))
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
            ("don t, can`t, don\u{b4}t, won\u{2bc}t", &["|dont", "|cant", "|dont", "|wont"]),
            ("don`t run, I can`t", &["|dont", "run", "|i", "cant"]),
            ("do n't run", &["|dont", "run"]),
            ("do\u{200b}n\u{2019}t \u{ff07}x\u{ff07}", &["|dont", "x"]),
            ("", &[]),
        ] {
            assert_eq!(seen(text), words, "{text:?}");
        }
    }

    #[test]
    fn a_sentence_ends_where_it_ends() {
        let sentences = |text: &str| read(text).tokens.iter().filter(|token| token.opens).count();
        for (text, count) in [
            ("one, two - three: four (five)", 1),
            ("one two. Three four! Five six? Seven eight; nine ten", 5),
            ("don't ... ever ... run it", 1),
            ("don't, e.g. for fun, run 3.14", 1),
            ("Do. Not. Run. This.", 1),
            ("Don't. Oh well, run it.", 2),
            ("one two\n\nthree four", 2),
            ("Do not:\n\n- run it\n- change it", 1),
        ] {
            assert_eq!(sentences(text), count, "{text:?}");
        }
    }
}
