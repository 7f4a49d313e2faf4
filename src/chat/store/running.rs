//! What is written of code that still runs.

use super::Write;
use crate::chat::conversation::{Slot, Step};

/// Says what code has shown so far; `None`: it does not run any more.
pub(crate) type Output = Box<dyn Fn() -> Option<String> + Send>;

/// Code that runs in a turn.
pub(crate) struct Running {
    pub(crate) slot: Slot,
    /// The turn's first words.
    pub(crate) label: String,
    /// Whether the model has answered in it.
    pub(crate) replied: bool,
    /// What the code has shown.
    pub(crate) output: Output,
    /// The turn's step, with that output, as it is if the kernel ends now.
    pub(crate) step: Box<dyn Fn(&str) -> Step + Send>,
    /// What was written last.
    pub(crate) written: Option<String>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("slot", &self.slot)
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl Running {
    /// What is to be written of it; `None`: nothing new.
    pub(super) fn news(&mut self) -> Option<Write> {
        let shown = (self.output)()?;
        if self.written.as_ref() == Some(&shown) {
            return None;
        }
        let step = (self.step)(&shown).bounded();
        self.written = Some(shown);
        Some(Write::Step {
            turn: self.slot.turn,
            number: self.slot.step,
            size: self.slot.size + step.size(),
            step,
            label: self.label.clone(),
            replied: self.replied,
        })
    }

    pub(super) fn unwritten(&mut self) {
        self.written = None;
    }
}
