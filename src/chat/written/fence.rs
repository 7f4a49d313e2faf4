//! Fences of Markdown, as far as they tell what is quoted: which line opens one, and which closes it.
//!
//! Imports nothing of ours. The rules are those of `CommonMark` for fenced and indented code.

/// Columns of indentation that make a line code.
const CODE: usize = 4;

/// A line of backticks or tildes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fence {
    mark: char,
    length: usize,
    /// Nothing stands behind it: it can close another one.
    bare: bool,
}

impl Fence {
    /// The one that calls may stand in.
    pub(super) const JSON: Fence = Fence { mark: '`', length: 3, bare: false };

    /// The fence that this whole line is.
    pub(super) fn read(line: &str) -> Option<Fence> {
        let seen = line.trim_start_matches([' ', '\t']);
        let mark = seen.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
        let info = seen.trim_start_matches(mark);
        let length = seen.len() - info.len();
        let is_fence = length >= 3 && !is_indented(&line[..line.len() - seen.len()]);
        (is_fence && !(mark == '`' && info.contains('`'))).then_some(Fence {
            mark,
            length,
            bare: info.trim().is_empty(),
        })
    }

    /// Whether this line ends what `opened`.
    pub(super) fn closes(self, opened: Fence) -> bool {
        self.bare && self.mark == opened.mark && self.length >= opened.length
    }
}

/// Whether a line that begins like this may still become a fence.
pub(super) fn may_become(seen: &str) -> bool {
    seen.chars().next().filter(|mark| matches!(mark, '`' | '~')).is_some_and(|mark| {
        let info = seen.trim_start_matches(mark);
        info.is_empty() || seen.len() - info.len() >= 3
    })
}

/// Whether so much white space makes a line code.
pub(super) fn is_indented(space: &str) -> bool {
    let columns = space.chars().fold(0, |column, c| match c {
        '\t' => column / CODE * CODE + CODE,
        _ => column + 1,
    });
    columns >= CODE
}
