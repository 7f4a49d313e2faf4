//! What a file is, for who wants to tell a model of it.
//!
//! Imports its neighbours.

use std::io::Read;
use std::path::Path;
use std::time::Instant;

use super::heads;
use super::kind::{self, Kind};

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// A picture of this media type that models know.
    Picture(&'static str),
    /// Values with this byte between them.
    Table(u8),
    /// Parquet.
    Parquet,
    /// Anything else that reads as text.
    Text,
    /// Anything else; its media type.
    Binary(&'static str),
}

/// What a file of this name is that begins with `head`.
pub fn looks(path: &Path, head: &[u8]) -> Looks {
    match kind::of(path, head) {
        (mime, Kind::Image) => Looks::Picture(mime),
        (_, Kind::Table(delimiter)) => Looks::Table(delimiter),
        (_, Kind::Parquet) => Looks::Parquet,
        (_, Kind::Text | Kind::Svg | Kind::Html) => Looks::Text,
        (mime, Kind::Other) => Looks::Binary(mime),
    }
}

/// How large a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Rows that were counted, the header not among them.
    pub rows: u64,
    /// Whether there are more than that.
    pub more: bool,
    /// Columns.
    pub columns: usize,
}

/// Counts a table's rows and columns, within bounds; `until`: no longer than that.
pub fn shape(file: impl Read, delimiter: u8, until: Instant) -> Option<Shape> {
    let table = heads::table(file, delimiter, until)?;
    Some(Shape { rows: table.count, more: table.more, columns: table.columns })
}
