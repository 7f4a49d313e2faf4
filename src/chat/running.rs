//! Code that still runs: its turn, its text and what it has shown, written down before its end.

use super::Chat;
use super::conversation::{Place, Ran, Step};
use super::store::{Output, Partial};
use super::turn::ToolResult;

/// Said of code that ran when its kernel ended, where its outcome would stand.
const LOST: &str = "The kernel ended while this ran.";

/// Code that runs, written down until this is dropped.
#[derive(Debug)]
#[must_use = "nothing more is written once it is dropped"]
pub struct Running {
    _partial: Partial,
}

impl Chat {
    /// A block of the user's code runs: with what `output` says it has shown, it is written down now and each second until
    /// the guard is dropped, so that a killed kernel loses neither. `output` says `None` once the run is over.
    pub fn running(
        &self,
        place: &Place,
        ran: Ran,
        output: impl Fn() -> Option<String> + Send + 'static,
    ) -> Option<Running> {
        let step = move |shown: &str| {
            let outcome = format!("{shown}[error]\n{LOST}\n");
            Step::Ran(Ran { outcome, failed: true, ..ran.clone() })
        };
        self.draft(place, Box::new(output), Box::new(step))
    }

    /// The same for code that a call of the model runs: `before` came of the calls before it in the same reply, and `call`
    /// is to be its result, with what that begins with; `data` goes before what the container showed.
    pub fn running_call(
        &self,
        place: &Place,
        before: Vec<ToolResult>,
        call: ToolResult,
        data: &'static str,
        output: impl Fn() -> Option<String> + Send + 'static,
    ) -> Option<Running> {
        let step = move |shown: &str| {
            let mut results = before.clone();
            let text = match shown.trim_end() {
                "" => format!("{}{LOST} It had printed nothing.", call.text),
                shown => format!("{}{LOST} Its output until then {data}:\n{shown}", call.text),
            };
            results.push(ToolResult { text, failed: true, ..call.clone() });
            Step::Results(results)
        };
        self.draft(place, Box::new(output), Box::new(step))
    }

    fn draft(
        &self,
        place: &Place,
        output: Output,
        step: Box<dyn Fn(&str) -> Step + Send>,
    ) -> Option<Running> {
        self.hide_secrets();
        let store = self.store.as_ref()?;
        let running = self.inner.state().conversation.running(place, output, step)?;
        Some(Running { _partial: store.running(running) })
    }
}
