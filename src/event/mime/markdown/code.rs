//! What is code in a Markdown text, and whether it would be markup if it were not.

use std::ops::Range;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Inline code.
    Span(String),
    /// A fenced block that stands in no list and no quote.
    Fence { info: String, code: String },
    /// Any other code block.
    Nested { info: String, code: String },
    /// A formula.
    Formula,
}

#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) range: Range<usize>,
    pub(super) kind: Kind,
}

/// What is code and what is a formula, in order.
pub(super) fn code(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut open: Option<(Range<usize>, Option<String>, String)> = None;
    let mut containers = 0_usize;
    let options = Options::ENABLE_MATH | Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        match (event, &mut open) {
            (Event::Start(Tag::CodeBlock(kind)), _) => {
                let info = match kind {
                    CodeBlockKind::Fenced(info) => Some(info.to_string()),
                    CodeBlockKind::Indented => None,
                };
                open = Some((range, info, String::new()));
            }
            (Event::Text(part), Some((_, _, code))) => code.push_str(&part),
            (Event::End(TagEnd::CodeBlock), _) => {
                if let Some((range, info, code)) = open.take() {
                    let kind = match info {
                        Some(info) if containers == 0 => Kind::Fence { info, code },
                        info => Kind::Nested { info: info.unwrap_or_default(), code },
                    };
                    pieces.push(Piece { range, kind });
                }
            }
            (Event::Start(Tag::Item | Tag::BlockQuote(_)), _) => containers += 1,
            (Event::End(TagEnd::Item | TagEnd::BlockQuote(_)), _) => {
                containers = containers.saturating_sub(1);
            }
            (Event::Code(code), _) => pieces.push(Piece { range, kind: Kind::Span(code.to_string()) }),
            (Event::InlineMath(_) | Event::DisplayMath(_), _) => {
                pieces.push(Piece { range, kind: Kind::Formula });
            }
            _ => {}
        }
    }
    // Some spans are reported out of order (in links); none overlap, but a mistake there must not panic here.
    pieces.sort_by_key(|piece| piece.range.start);
    let mut end = 0;
    pieces.retain(|piece| {
        let in_order = piece.range.start >= end;
        end = end.max(piece.range.end);
        in_order
    });
    pieces
}

/// Whether code would be markup if it were not code.
pub(super) fn is_markup(code: &str) -> bool {
    ["](", "]:", "!["].iter().any(|mark| code.contains(mark))
        || code.match_indices('<').any(|(at, _)| begins_tag(code.get(at + 1..).unwrap_or_default()))
        || code.contains("&#")
}

/// Whether text behind a `<` could be read as the rest of a tag.
pub(super) fn begins_tag(behind: &str) -> bool {
    behind.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '!' | '?'))
}

/// Marks between which some front ends look for a formula, blank lines and fences or not.
pub(super) fn has_display_formula(code: &str) -> bool {
    ["$$", "\\begin", "\\end", "\\[", "\\("].iter().any(|mark| code.contains(mark))
}

/// The longest run of backticks or tildes, not counting the fences of top-level blocks themselves.
pub(super) fn longest_run(text: &str, pieces: &[Piece]) -> usize {
    let mut longest = 0;
    let mut at = 0;
    for piece in pieces {
        if let Kind::Fence { code, .. } = &piece.kind {
            longest = longest.max(run(text.get(at..piece.range.start).unwrap_or_default())).max(run(code));
            at = piece.range.end;
        }
    }
    longest.max(run(text.get(at..).unwrap_or_default()))
}

fn run(text: &str) -> usize {
    let (mut longest, mut current, mut last) = (0, 0, ' ');
    for c in text.chars() {
        current = if matches!(c, '`' | '~') && c == last {
            current + 1
        } else {
            usize::from(matches!(c, '`' | '~'))
        };
        last = c;
        longest = longest.max(current);
    }
    longest
}
