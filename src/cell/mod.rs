//! Cell text to directives, prose and fenced blocks. Pure and total: every text gives a [`Cell`] or a
//! [`CellError`] that says what is wrong and where.
//!
//! Imports nothing of ours.

/// How a cell's text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Markdown: prose and fences (the `cellblock` kernelspec).
    Markdown,
    /// Python unless it begins with a fence or one of our magics (the `cellblock-python` kernelspec).
    Python,
}

/// A cell, in its order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Cell {
    /// Line magics at the cell's head.
    pub directives: Vec<Directive>,
    /// What follows them.
    pub parts: Vec<Part>,
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
    /// Text for the model, Markdown as written.
    Prose(String),
    /// Code for the sandbox.
    Code(Block),
}

/// A piece of code to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// The language's canonical name (`python`, `sh`).
    pub language: String,
    /// The code, with the fence's own indentation removed.
    pub source: String,
    /// Line in the cell of the code's first line, from 1.
    pub line: usize,
    /// Attributes of the info string, in order: `timeout=10` has a value, `run` none.
    pub attributes: Vec<(String, Option<String>)>,
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
    #[error("there is no magic %{name}{}", nearest.as_ref().map_or_else(|| "; %help lists them".to_owned(), |n| format!("; did you mean %{n}?")))]
    UnknownMagic {
        /// What was written.
        name: String,
        /// The nearest that exists.
        nearest: Option<String>,
    },
}
