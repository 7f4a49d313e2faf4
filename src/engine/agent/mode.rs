//! What the model may do by itself, and what the user has allowed for as long as the kernel lives.
//!
//! Only settings, `%mode` and answers to our own questions change anything here: nothing that a model says or that
//! code shows comes near it.

use std::collections::BTreeSet;

use crate::config::AgentMode;
use crate::engine::execute::Engine;
use crate::event::Ask;

/// What the model may do in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum Mode {
    /// It only talks.
    Ask,
    /// Each call is shown and confirmed.
    Confirm,
    /// Its calls are carried out.
    Auto,
}

impl Mode {
    pub(in crate::engine) fn name(self) -> &'static str {
        match self {
            Mode::Ask => "ask",
            Mode::Confirm => "confirm",
            Mode::Auto => "auto",
        }
    }
}

/// What was decided for all turns to come.
#[derive(Debug, Default)]
pub(in crate::engine) struct Memory {
    /// What `%mode` said.
    mode: Option<AgentMode>,
    /// What needs no more questions: code in a container, by its name; writing files.
    always: BTreeSet<Always>,
    /// How many outputs were put into files.
    outputs: u64,
}

/// What a user may allow for good.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Always {
    /// Code in the container of that name.
    Code(String),
    /// Files of the workspace.
    Write,
}

impl Engine {
    /// What the model may do, in a cell whose front end is this.
    pub(in crate::engine) fn mode(&self, ask: &dyn Ask) -> Mode {
        match self.agent_memory().mode.unwrap_or(self.habits.agent.mode) {
            AgentMode::Confirm => Mode::Confirm,
            AgentMode::Auto => Mode::Auto,
            AgentMode::Standard if ask.available() => Mode::Confirm,
            AgentMode::Ask | AgentMode::Standard => Mode::Ask,
        }
    }

    /// From the next question on; what was allowed for good no longer is.
    pub(in crate::engine) fn set_mode(&self, mode: AgentMode) {
        let mut memory = self.agent_memory();
        memory.mode = (mode != AgentMode::Standard).then_some(mode);
        memory.always.clear();
    }

    pub(super) fn is_always(&self, what: &Always) -> bool {
        self.agent_memory().always.contains(what)
    }

    pub(super) fn allow_always(&self, what: Always) {
        self.agent_memory().always.insert(what);
    }

    /// A number for the next file of output.
    pub(super) fn next_output(&self) -> u64 {
        let mut memory = self.agent_memory();
        memory.outputs += 1;
        memory.outputs
    }
}
