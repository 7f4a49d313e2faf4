//! The fences of a Markdown text, by `CommonMark`'s rules, with the place of every piece of their code.
//!
//! Imports pulldown-cmark, which decides what is a fence; this module only keeps the places it reports and
//! adds what a renderer does not need to know: whether a fence was closed.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::vocabulary::Vocabulary;
use super::{Block, CellError, Part, Withheld, info};

/// A fenced code block.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fence {
    /// The whole block, from the opening fence to the closing one.
    pub(super) range: Range<usize>,
    /// The info string's place, white space around it included.
    pub(super) info_range: Range<usize>,
    /// The info string with entities and backslash escapes resolved.
    pub(super) info: String,
    /// The code without the indentation of its containers and its fence.
    pub(super) source: String,
    /// Where the pieces of the code come from.
    pub(super) pieces: Vec<Piece>,
    /// The line that would close the fence; `None`: it is closed.
    pub(super) missing: Option<String>,
    /// Whether it stands in a block quote.
    pub(super) quoted: bool,
    /// Whether there were words between the fence before this one (or the beginning) and this one.
    pub(super) words_before: bool,
}

/// A run of code that stands in the text as it stands in the source.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Piece {
    /// Its place in the text.
    pub(super) text: Range<usize>,
    /// Its beginning in the source.
    pub(super) source: usize,
}

/// Every fence of a text, in order, and whether there are words after the last one.
pub(super) fn fences(text: &str) -> (Vec<Fence>, bool) {
    let mut fences = Vec::new();
    let mut open: Option<Fence> = None;
    let mut quotes = 0_usize;
    let mut words = false;
    for (event, range) in Parser::new_ext(text, Options::empty()).into_offset_iter() {
        match (event, &mut open) {
            (Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))), None) => {
                open = Some(opened(text, range, &info, quotes > 0, std::mem::take(&mut words)));
            }
            (Event::Text(piece), Some(fence)) => {
                // Normalised pieces (a tab that is split by an indentation) stand nowhere in the text.
                if piece.len() == range.len() {
                    fence.pieces.push(Piece { text: range, source: fence.source.len() });
                }
                fence.source.push_str(&piece);
            }
            (Event::End(TagEnd::CodeBlock), fence) => {
                if let Some(mut fence) = fence.take() {
                    fence.missing = missing_end(text, &fence);
                    fences.push(fence);
                }
            }
            (Event::Start(Tag::BlockQuote(_)), None) => quotes += 1,
            (Event::End(TagEnd::BlockQuote(_)), None) => quotes = quotes.saturating_sub(1),
            (
                Event::Text(_)
                | Event::Code(_)
                | Event::Html(_)
                | Event::InlineHtml(_)
                | Event::Start(Tag::Image { .. }),
                None,
            ) => words = true,
            _ => {}
        }
    }
    (fences, words)
}

fn opened(text: &str, range: Range<usize>, info: &str, quoted: bool, words_before: bool) -> Fence {
    let block = text.get(range.clone()).unwrap_or_default();
    let line = block.split(['\n', '\r']).next().unwrap_or_default();
    let mark = line.chars().next().unwrap_or('`');
    let width = line.len() - line.trim_start_matches(mark).len();
    Fence {
        info_range: range.start + width..range.start + line.len(),
        info: info.to_owned(),
        range,
        source: String::new(),
        pieces: Vec::new(),
        missing: None,
        quoted,
        words_before,
    }
}

/// The closing fence that is not there. The parser closes a fence at its container's end without a word.
fn missing_end(text: &str, fence: &Fence) -> Option<String> {
    let opening = text.get(fence.range.start..fence.info_range.start).unwrap_or_default();
    let code_end = fence.pieces.last().map_or(fence.info_range.end, |piece| piece.text.end);
    let rest = text.get(code_end..fence.range.end).unwrap_or_default().trim();
    let mark = opening.chars().next().unwrap_or('`');
    let closed = rest.len() >= opening.len() && rest.chars().all(|c| c == mark);
    (!closed).then(|| opening.to_owned())
}

/// What is to be done with a fence.
#[derive(Debug, PartialEq)]
enum Purpose {
    Run(String),
    Prose,
    Unknown,
}

/// Decides from a fence's tag and attributes.
fn purpose(fence: &Fence, info: &info::Info, words: &Vocabulary) -> Purpose {
    if fence.quoted || info.has("norun") {
        return Purpose::Prose;
    }
    match info.language.as_deref().and_then(|name| words.canonical(name)) {
        Some(language) => Purpose::Run(language.to_owned()),
        None if info.has("run") => Purpose::Unknown,
        None => Purpose::Prose,
    }
}

/// The language a fence would run in, when it runs.
pub(super) fn language(fence: &Fence, words: &Vocabulary) -> Option<String> {
    match purpose(fence, &info::read(&fence.info), words) {
        Purpose::Run(language) => Some(language),
        Purpose::Prose | Purpose::Unknown => None,
    }
}

/// What a Markdown text holds.
#[derive(Debug, Default)]
pub(super) struct Body {
    pub(super) parts: Vec<Part>,
    pub(super) withheld: Vec<Withheld>,
}

/// Whether a fence would be code if it did not say `norun`.
fn withheld(fence: &Fence, info: &info::Info, line: usize, words: &Vocabulary) -> Option<Withheld> {
    let known = info.language.as_deref().is_some_and(|name| words.canonical(name).is_some());
    let contradicts = info.has("run");
    (!fence.quoted && info.has("norun") && (known || contradicts)).then_some(Withheld { line, contradicts })
}

/// Prose and code of a Markdown text whose first line is line `first_line` of its cell.
pub(super) fn parts(text: &str, first_line: usize, words: &Vocabulary) -> Result<Body, CellError> {
    let (fences, words_after) = fences(text);
    let mut parts = Vec::new();
    let mut kept_out = Vec::new();
    let mut lines = Lines { text, at: 0, line: first_line };
    let mut prose_from = 0;
    let mut has_words = false;
    let push_prose = |parts: &mut Vec<Part>, range: Range<usize>, has_words: bool| {
        if has_words {
            parts.push(Part::Prose(text.get(range).unwrap_or_default().to_owned()));
        }
    };
    for fence in fences {
        let line = lines.number(fence.range.start);
        if let (Some(missing), false) = (&fence.missing, fence.quoted) {
            return Err(CellError::UnterminatedFence { line, fence: missing.clone() });
        }
        has_words |= fence.words_before;
        let info = info::read(&fence.info);
        kept_out.extend(withheld(&fence, &info, line, words));
        match purpose(&fence, &info, words) {
            Purpose::Prose => has_words = true,
            Purpose::Unknown => {
                let nearest = info.language.as_deref().and_then(|name| words.nearest_language(name));
                return Err(CellError::UnknownLanguage {
                    line,
                    nearest: nearest.map(str::to_owned),
                    known: words.canonical_names(),
                    language: info.language,
                });
            }
            Purpose::Run(language) => {
                push_prose(&mut parts, prose_from..fence.range.start, has_words);
                has_words = false;
                prose_from = fence.range.end;
                let block =
                    Block { language, source: fence.source, line: line + 1, attributes: info.attributes };
                parts.push(Part::Code(block));
            }
        }
    }
    push_prose(&mut parts, prose_from..text.len(), has_words || words_after);
    Ok(Body { parts, withheld: kept_out })
}

/// Line numbers of growing offsets, each byte looked at once.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl Lines<'_> {
    fn number(&mut self, offset: usize) -> usize {
        let passed = self.text.as_bytes().get(self.at..offset).unwrap_or_default();
        self.line += passed.split(|byte| *byte == b'\n').count() - 1;
        self.at = offset.max(self.at);
        self.line
    }
}
