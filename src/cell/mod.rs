//! Cell text to directives, prose and fenced blocks. Pure and total: every text gives a [`Cell`] or a
//! [`CellError`] that says what is wrong and where.
//!
//! Imports nothing of ours.
//!
//! | module | what |
//! | --- | --- |
//! | `vocabulary` | the names a cell may use: languages, magics; the nearest one to a wrong one |
//! | `head` | the magics at a cell's head |
//! | `markdown` | the fences of Markdown, with the place of every piece of their code |
//! | `chat` | what differs for one question: the words behind `%%chat` |
//! | `info` | a fence's info string: language and attributes |
//! | `intent` | whether code with words around it is to run |
//! | `locate` | what is at the cursor, for completion and inspection |
//!
//! # The grammar
//!
//! A cell has a *head* and a *body*. The head is the run of lines at the beginning that are magics: `%name
//! argument` (an order to the kernel), `!command` (runs as `sh`), at last `%%name` (the rest is what `name`
//! says); blank lines between them are allowed. The body is Markdown: fences that name a known language run,
//! everything else is prose. In [`Dialect::Python`] only `%cb name argument`, `%%chat` and a body that begins
//! with a fence are ours; everything else goes to Python as it was written.

mod chat;
mod head;
mod info;
pub mod intent;
mod locate;
mod markdown;
#[cfg(test)]
mod tests;
mod vocabulary;

pub use locate::{Place, locate};
pub use vocabulary::Vocabulary;

/// How a cell's text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Markdown: prose and fences (the `cellblock` kernelspec).
    Markdown,
    /// Python unless it begins with a fence or one of our magics (the `cellblock-python` kernelspec).
    Python,
}

impl Dialect {
    /// What stands before the name of one of our line magics: `%`, or `%cb ` where `%` is `IPython`'s.
    pub fn sigil(self) -> &'static str {
        match self {
            Dialect::Markdown => "%",
            Dialect::Python => "%cb ",
        }
    }
}

/// A cell, in its order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cell {
    /// Line magics at the cell's head; they come before every part.
    pub directives: Vec<Directive>,
    /// What follows them. Prose without a single word (list markers around fences, rules) is left out.
    pub parts: Vec<Part>,
    /// What a model is given as the user's words: the body as it was written, its fences included;
    /// empty when there is no prose.
    pub prompt: String,
    /// The fences that would be code if they did not say `norun`; they stand in the prose.
    pub withheld: Vec<Withheld>,
    /// What stands in the line of `%%chat` before the question; `None` without that magic.
    pub chat: Option<ChatLine>,
}

/// A fence that says `norun`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Withheld {
    /// Its line in the cell, from 1.
    pub line: usize,
    /// Whether it says `run` too.
    pub contradicts: bool,
}

/// How a question differs from the settings: the words `name=value` right behind `%%chat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatLine {
    /// Its line in the cell, from 1.
    pub line: usize,
    /// Names that there are ([`CHAT_ATTRIBUTES`]), each with its value as it was written, without its quotes.
    pub attributes: Vec<(&'static str, String)>,
    /// What looks like one of them and stands behind the beginning of the question: it belongs to that.
    pub late: Vec<String>,
}

/// What may stand behind `%%chat` as `name=value`.
pub const CHAT_ATTRIBUTES: [&str; 4] = ["model", "temperature", "system", "max_tokens"];

impl Cell {
    /// The code to run, in order.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.parts.iter().filter_map(|part| match part {
            Part::Code(block) => Some(block),
            Part::Prose(_) => None,
        })
    }

    /// Whether there is anything for a model to read.
    pub fn has_prose(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Prose(_)))
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.directives.is_empty() && self.parts.is_empty()
    }
}

/// A line at a cell's head that is an order to the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directive {
    /// The magic's name without its `%`.
    pub name: String,
    /// The rest of the line, trimmed.
    pub argument: String,
    /// Its line in the cell, from 1.
    pub line: usize,
}

/// One part of a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// Text for the model, Markdown as written (fences that do not run included).
    Prose(String),
    /// Code for the sandbox.
    Code(Block),
}

/// A piece of code to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// The language's canonical name (`python`, `sh`).
    pub language: String,
    /// The code, with the indentation of the fence and of its list item removed.
    pub source: String,
    /// Line in the cell of the code's first line, from 1.
    pub line: usize,
    /// Attributes of the info string, in order: `timeout=10` has a value, `run` none.
    pub attributes: Vec<(String, Option<String>)>,
}

impl Block {
    /// Whether an attribute is there, with a value or without.
    pub fn has(&self, name: &str) -> bool {
        self.attributes.iter().any(|(key, _)| key == name)
    }

    /// The value of an attribute; the last one counts.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.attributes.iter().rev().find(|(key, _)| key == name)?.1.as_deref()
    }
}

/// Why a cell can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    /// A fence without its end.
    #[error("the code fence opened in line {line} is never closed; end it with a line of {fence}")]
    UnterminatedFence {
        /// Line of the opening fence, from 1.
        line: usize,
        /// The closing fence that is missing.
        fence: String,
    },
    /// A magic that does not exist.
    #[error("there is no magic {written} (line {line}); {}", match nearest {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => (*help).to_owned(),
    })]
    UnknownMagic {
        /// What was written, with its `%`, `%%` or `%cb`.
        written: String,
        /// Its line in the cell, from 1.
        line: usize,
        /// The nearest that exists, written the same way.
        nearest: Option<String>,
        /// Where to look, when nothing is near.
        help: &'static str,
    },
    /// Code stands in the line of a cell magic, which runs the lines below it.
    #[error("{written} runs the lines below it, and there are none (line {line}); put `{argument}` below it")]
    NothingBelow {
        /// The magic, with its `%%`.
        written: String,
        /// What stands in its line.
        argument: String,
        /// Its line in the cell, from 1.
        line: usize,
    },
    /// Behind `%%chat` stands a `name=value` that means nothing.
    #[error("line {line}: there is no {written}= for %%chat; {}", match nearest {
        Some(nearest) => format!("did you mean {nearest}=?"),
        None => format!("there is {}", CHAT_ATTRIBUTES.map(|name| format!("{name}=")).join(", ")),
    })]
    UnknownAttribute {
        /// Its line in the cell, from 1.
        line: usize,
        /// What stands before the `=`.
        written: String,
        /// The nearest that exists.
        nearest: Option<&'static str>,
    },
    /// A value behind `%%chat` begins with a quote that nothing ends.
    #[error("line {line}: the value of {name}= begins with {quote} and has no second one to end it")]
    OpenQuote {
        /// Its line in the cell, from 1.
        line: usize,
        /// The attribute.
        name: &'static str,
        /// The quote.
        quote: char,
    },
    /// The same `name=` stands behind `%%chat` twice.
    #[error("line {line}: {name}= is there twice; leave one of them")]
    RepeatedAttribute {
        /// Its line in the cell, from 1.
        line: usize,
        /// The attribute.
        name: &'static str,
    },
    /// A fence is marked `run`, in a language that nothing here can run.
    #[error("the fence in line {line} is marked `run` but {}; the languages here are {}", match language {
        Some(language) => match nearest {
            Some(nearest) => format!("nothing here runs {language:?} (did you mean {nearest}?)"),
            None => format!("nothing here runs {language:?}"),
        },
        None => "names no language".to_owned(),
    }, known.join(", "))]
    UnknownLanguage {
        /// Line of the opening fence, from 1.
        line: usize,
        /// The language that was asked for, if any.
        language: Option<String>,
        /// The nearest name that exists.
        nearest: Option<String>,
        /// The canonical names of the languages there are.
        known: Vec<String>,
    },
}

/// Reads a cell.
///
/// Takes time linear in the text, whatever it holds.
///
/// # Errors
/// A fence that is never closed, a magic that does not exist, or a fence marked `run` in an unknown language.
pub fn parse(text: &str, dialect: Dialect, words: &Vocabulary) -> Result<Cell, CellError> {
    let head = head::read(text, dialect, words)?;
    let mut cell = Cell { directives: head.directives, chat: head.chat, ..Cell::default() };
    cell.parts.extend(head.commands.into_iter().map(Part::Code));
    let body = text.get(head.end..).unwrap_or_default();
    match head.body {
        _ if body.trim().is_empty() => {}
        head::Body::Chat => {
            cell.prompt = String::from(body.trim());
            cell.parts.push(Part::Prose(body.to_owned()));
        }
        head::Body::Code { language, attributes } => {
            let source = without_carriage_returns(body);
            cell.parts.push(Part::Code(Block { language, source, line: head.line, attributes }));
        }
        head::Body::Python => cell.parts.push(Part::Code(Block {
            language: "python".to_owned(),
            source: body.to_owned(),
            line: head.line,
            attributes: Vec::new(),
        })),
        head::Body::Markdown => {
            let read = markdown::parts(body, head.line, words)?;
            cell.parts.extend(read.parts);
            cell.withheld = read.withheld;
            if cell.has_prose() {
                cell.prompt = String::from(body.trim());
            }
        }
    }
    Ok(cell)
}

/// The fences of a text that is no cell (a model's reply) and that name a known language, in order.
///
/// # Errors
/// As for [`parse`]: a fence that is never closed, or one marked `run` in an unknown language.
pub fn fences(text: &str, words: &Vocabulary) -> Result<Vec<Block>, CellError> {
    let code = |part| if let Part::Code(block) = part { Some(block) } else { None };
    Ok(markdown::parts(text, 1, words)?.parts.into_iter().filter_map(code).collect())
}

/// Lines end with `\n` alone: a shell takes a carriage return for a part of the last word.
fn without_carriage_returns(text: &str) -> String {
    text.replace("\r\n", "\n")
}
