//! The head of a cell: magics and commands before everything else.
//!
//! Imports nothing of ours. A line that is not a magic ends the head; from there on `%` and `!` mean nothing.

use super::vocabulary::{CHAT, Vocabulary};
use super::{Block, CellError, ChatLine, Dialect, Directive, chat, info};

/// What a cell's head says.
#[derive(Debug, PartialEq)]
pub(super) struct Head {
    pub(super) directives: Vec<Directive>,
    /// `!command` lines.
    pub(super) commands: Vec<Block>,
    /// Offset in the cell where the body begins, in bytes.
    pub(super) end: usize,
    /// The line of the body's beginning, from 1.
    pub(super) line: usize,
    /// How the body is read.
    pub(super) body: Body,
    /// What stands behind `%%chat`.
    pub(super) chat: Option<ChatLine>,
}

/// How what follows the head is read.
#[derive(Debug, PartialEq)]
pub(super) enum Body {
    Markdown,
    /// Python, as it was written.
    Python,
    /// Prose, fences and all.
    Chat,
    /// Code, fences and all.
    Code {
        language: String,
        attributes: Vec<(String, Option<String>)>,
    },
}

/// One line of a cell with its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    /// The line without its end.
    pub(super) text: &'a str,
    /// Offset of its first byte in the cell.
    pub(super) start: usize,
    /// Offset behind its end.
    pub(super) end: usize,
    /// From 1.
    pub(super) number: usize,
}

/// What a line at a cell's head is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    Blank,
    /// `%name argument`, or `%cb name argument`.
    Magic {
        name: &'a str,
        argument: &'a str,
    },
    /// `%%name argument`.
    CellMagic {
        name: &'a str,
        argument: &'a str,
    },
    /// `!command`.
    Command(&'a str),
    /// The body's first line.
    Other,
}

const HELP: &str = "help";

/// Lines with their places; a byte order mark at the very beginning belongs to no line.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut start = text.len() - text.trim_start_matches('\u{feff}').len();
    text.get(start..).unwrap_or_default().split_inclusive('\n').enumerate().map(move |(index, whole)| {
        let line = Line {
            text: whole.trim_end_matches('\n').trim_end_matches('\r'),
            start,
            end: start + whole.len(),
            number: index + 1,
        };
        start = line.end;
        line
    })
}

/// Says what a line at the head is.
pub(super) fn classify(line: &str, dialect: Dialect) -> Kind<'_> {
    let text = line.trim();
    if text.is_empty() {
        return Kind::Blank;
    }
    // Four spaces or a tab make an indented code block: no magic.
    let indent = line.len() - line.trim_start().len();
    if indent > 3 || line.starts_with('\t') {
        return Kind::Other;
    }
    if let Some(rest) = text.strip_prefix("%%") {
        return match split_name(rest) {
            Some((name, argument)) => match dialect {
                Dialect::Python if name != CHAT => Kind::Other,
                _ => Kind::CellMagic { name, argument },
            },
            None => Kind::Other,
        };
    }
    if let Some(rest) = text.strip_prefix('%') {
        return match (split_name(rest), dialect) {
            (Some((name, argument)), Dialect::Markdown) => Kind::Magic { name, argument },
            // What notebooks contain already; IPython's own `%pip` can't work without a network.
            (Some((name @ ("pip" | "apt" | "npm"), argument)), Dialect::Python)
                if argument.split_whitespace().next() == Some("install") =>
            {
                Kind::Magic { name, argument }
            }
            (Some(("cb", "")), Dialect::Python) => Kind::Magic { name: HELP, argument: "" },
            (Some(("cb", order)), Dialect::Python) => {
                let (name, argument) = order.split_once(char::is_whitespace).unwrap_or((order, ""));
                Kind::Magic { name: name.trim_start_matches('%'), argument: argument.trim() }
            }
            _ => Kind::Other,
        };
    }
    match text.strip_prefix('!') {
        // An image, or the mark of an admonition, is Markdown.
        Some(command) if dialect == Dialect::Markdown && !command.starts_with(['[', '!']) => {
            match command.trim() {
                "" => Kind::Other,
                command => Kind::Command(command),
            }
        }
        _ => Kind::Other,
    }
}

/// A magic's name and the rest; `None` when it is no name (`% of`, `%5`, `%a%`).
fn split_name(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let mut letters = name.chars();
    let first = letters.next()?;
    let fits = first.is_alphabetic() || first == '_';
    let rest_fits = letters.all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '#'));
    (fits && rest_fits).then_some((name, rest.trim()))
}

/// A command at the head is an order of its own: it runs, whatever the prose below it is about.
fn commanded() -> Vec<(String, Option<String>)> {
    vec![("run".to_owned(), None)]
}

/// Reads the head of a cell.
pub(super) fn read(text: &str, dialect: Dialect, words: &Vocabulary) -> Result<Head, CellError> {
    let start = text.len() - text.trim_start_matches('\u{feff}').len();
    let mut head = Head {
        directives: Vec::new(),
        commands: Vec::new(),
        end: start,
        line: 1,
        body: Body::Markdown,
        chat: None,
    };
    let mut lines = lines(text);
    while let Some(line) = lines.next() {
        match classify(line.text, dialect) {
            Kind::Blank => continue,
            Kind::Magic { name, argument } => {
                head.directives.push(directive(name, argument, line, dialect, words)?);
            }
            Kind::CellMagic { name, argument } => {
                head.body = cell_magic(name, argument, line, dialect, words)?;
                let is_code = matches!(head.body, Body::Code { .. });
                if is_code && !argument.is_empty() && is_blank(text, line.end) {
                    return Err(CellError::NothingBelow {
                        written: format!("%%{name}"),
                        argument: excerpt(argument),
                        line: line.number,
                    });
                }
                let mut skipped = line.text.find(CHAT).map_or(0, |at| at + CHAT.len());
                let mut inline = false;
                if head.body == Body::Chat {
                    let behind = line.text.get(skipped..).unwrap_or_default();
                    let (attributes, question) = chat::attributes(behind, line.number)?;
                    let late = chat::late(question);
                    head.chat = Some(ChatLine { line: line.number, attributes, late });
                    // `%%chat what is this?` asks right in its line.
                    inline = !question.is_empty();
                    skipped = line.text.len() - question.len();
                }
                (head.end, head.line) =
                    if inline { (line.start + skipped, line.number) } else { (line.end, line.number + 1) };
                return Ok(head);
            }
            Kind::Command(command) => {
                let mut source = command.to_owned();
                let mut last = line;
                // The shell itself joins lines that end with a backslash.
                while source.ends_with('\\') {
                    let Some(next) = lines.next() else { break };
                    source.push('\n');
                    source.push_str(next.text);
                    last = next;
                }
                let language = words.canonical("sh").unwrap_or("sh").to_owned();
                head.commands.push(Block { language, source, line: line.number, attributes: commanded() });
                (head.end, head.line) = (last.end, last.number + 1);
                continue;
            }
            Kind::Other => {
                if dialect == Dialect::Python && !opens_fence(line.text) {
                    head.body = Body::Python;
                }
                return Ok(head);
            }
        }
        (head.end, head.line) = (line.end, line.number + 1);
    }
    Ok(head)
}

fn is_blank(text: &str, from: usize) -> bool {
    text.get(from..).unwrap_or_default().trim().is_empty()
}

/// The beginning of what was written, short enough for a message.
fn excerpt(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Whether a line could open a code fence.
pub(super) fn opens_fence(line: &str) -> bool {
    let text = line.trim_start_matches(' ');
    line.len() - text.len() <= 3 && (text.starts_with("```") || text.starts_with("~~~"))
}

fn directive(
    name: &str,
    argument: &str,
    line: Line<'_>,
    dialect: Dialect,
    words: &Vocabulary,
) -> Result<Directive, CellError> {
    let sigil = dialect.sigil();
    if words.line_magic_names().any(|known| known == name) {
        return Ok(Directive { name: name.to_owned(), argument: argument.to_owned(), line: line.number });
    }
    // `%python` instead of `%%python`.
    let is_cell_magic = dialect == Dialect::Markdown && words.cell_magic_names().any(|known| known == name);
    let nearest = match words.nearest_line_magic(name) {
        _ if is_cell_magic => Some(format!("%%{name}")),
        nearest => nearest.map(|nearest| format!("{sigil}{nearest}")),
    };
    Err(unknown(format!("{sigil}{name}"), line, nearest, dialect))
}

fn cell_magic(
    name: &str,
    argument: &str,
    line: Line<'_>,
    dialect: Dialect,
    words: &Vocabulary,
) -> Result<Body, CellError> {
    if name == CHAT {
        return Ok(Body::Chat);
    }
    if let Some(language) = words.canonical(name) {
        return Ok(Body::Code { language: language.to_owned(), attributes: info::attributes(argument) });
    }
    let nearest = match words.nearest_cell_magic(name) {
        _ if words.line_magic_names().any(|known| known == name) => Some(format!("%{name}")),
        nearest => nearest.map(|nearest| format!("%%{nearest}")),
    };
    Err(unknown(format!("%%{name}"), line, nearest, dialect))
}

fn unknown(written: String, line: Line<'_>, nearest: Option<String>, dialect: Dialect) -> CellError {
    let help = match dialect {
        Dialect::Markdown => "%help lists those there are; IPython's own work in a ```python fence",
        Dialect::Python => "%cb help lists those there are",
    };
    CellError::UnknownMagic { written, line: line.number, nearest, help }
}
