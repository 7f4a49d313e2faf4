//! The cells that ran in this kernel, for who mentions them: bounded in number and size.

use std::collections::VecDeque;
use std::fmt::Write;

use crate::chat::Image;
use crate::event::words;

/// The most cells that are remembered, and the most bytes of all of them.
const KEPT: usize = 200;
const TOGETHER: usize = 16 << 20;
/// The most of one cell's source, and of all that it showed, in bytes.
const SOURCE: usize = 32 << 10;
const SHOWN: usize = 32 << 10;

/// A cell that ran.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ran {
    /// `In[count]`.
    pub(super) count: u32,
    pub(super) source: String,
    /// What its code showed, as a model is told.
    pub(super) shown: String,
    /// What the model answered.
    pub(super) answer: String,
    /// Pictures that its code showed.
    pub(super) images: Vec<Image>,
}

impl Ran {
    fn size(&self) -> usize {
        let images: usize = self.images.iter().map(|image| image.base64.len()).sum();
        self.source.len() + self.shown.len() + self.answer.len() + images
    }

    /// For the model: its source, unless only the `output` is meant, and what came of it.
    pub(super) fn told(&self, output: bool) -> String {
        let mut text = String::new();
        if !output {
            let _ = writeln!(text, "In [{}]:\n{}\n", self.count, self.source.trim_end());
        }
        let _ = write!(text, "Out [{}]:", self.count);
        match (self.shown.trim_end(), self.answer.trim_end()) {
            ("", "") => text.push_str(" (nothing was shown)"),
            (shown, "") => {
                let _ = write!(text, "\n{shown}");
            }
            ("", answer) => {
                let _ = write!(text, "\n[answer]\n{answer}");
            }
            (shown, answer) => {
                let _ = write!(text, "\n{shown}\n[answer]\n{answer}");
            }
        }
        text
    }
}

/// The cells that ran, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Cells(VecDeque<Ran>);

impl Cells {
    /// A cell begins.
    pub(super) fn begin(&mut self, count: u32, source: &str) {
        self.0.push_back(Ran { count, source: bounded(source, SOURCE), ..Ran::default() });
        let mut size: usize = self.0.iter().map(Ran::size).sum();
        while self.0.len() > 1 && (self.0.len() > KEPT || size > TOGETHER) {
            size -= self.0.pop_front().map_or(0, |ran| ran.size());
        }
    }

    /// The cell that runs has shown something.
    pub(super) fn showed(&mut self, text: &str, images: &[Image]) {
        if let Some(now) = self.0.back_mut() {
            now.shown = bounded(&format!("{}{text}", now.shown), SHOWN);
            now.images.extend(images.iter().take(4_usize.saturating_sub(now.images.len())).cloned());
        }
    }

    /// The model has answered in the cell that runs.
    pub(super) fn answered(&mut self, text: &str) {
        if let Some(now) = self.0.back_mut() {
            now.answer = bounded(text, SHOWN);
        }
    }

    /// The cell of that number, or the one before the cell that runs.
    pub(super) fn find(&self, count: Option<u32>) -> Option<&Ran> {
        match count {
            Some(count) => self.0.iter().rev().find(|ran| ran.count == count),
            None => self.0.iter().rev().nth(1),
        }
    }

    /// The number of the cell that ran last.
    pub(super) fn last(&self) -> Option<u32> {
        self.find(None).map(|ran| ran.count)
    }
}

/// The beginning and the end of a text.
fn bounded(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    words::head_and_tail(text, most / 2, most / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_found_by_number_or_as_the_one_before() {
        let mut cells = Cells::default();
        cells.begin(1, "print(1)");
        cells.showed("[stdout]\n1\n", &[]);
        cells.begin(2, "why?");
        cells.answered("Because.");
        cells.begin(3, "@cell");
        assert_eq!(
            cells.find(None).map(|ran| ran.told(false)).as_deref(),
            Some("In [2]:\nwhy?\n\nOut [2]:\n[answer]\nBecause.")
        );
        assert_eq!(cells.find(Some(1)).map(|ran| ran.told(true)).as_deref(), Some("Out [1]:\n[stdout]\n1"));
        assert_eq!((cells.find(Some(9)), cells.last()), (None, Some(2)));
        // A kernel that was interrupted and runs the number again: the later one counts.
        cells.begin(3, "again");
        assert_eq!(cells.find(Some(3)).map(|ran| ran.source.as_str()), Some("again"));
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut cells = Cells::default();
        for count in 0..1000 {
            cells.begin(count, &"x".repeat(100_000));
            cells.showed(&"é".repeat(100_000), &[]);
            cells.showed(&"é".repeat(100_000), &[]);
        }
        assert!(
            cells.0.len() <= KEPT
                && cells.0.iter().map(Ran::size).sum::<usize>() <= TOGETHER + SOURCE + 2 * SHOWN
        );
    }
}
