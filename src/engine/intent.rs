//! Which blocks of a cell run: what the fence says, what `%intent` and the settings say, and then the words around it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use super::confirm::visible;
use super::execute::Engine;
use crate::cell::intent::{self, Decision};
use crate::cell::{Block, Cell, Part, Withheld};

/// What is remembered between cells.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    /// What `%intent` said last.
    switched: Option<bool>,
    /// What was decided about the last cell that had code.
    last: Option<Verdict>,
}

impl Memory {
    fn get(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was decided about one cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    /// By the words around the code; `None` when words have no say here.
    decision: Option<Decision>,
    /// Lines of the blocks that the decision keeps from running.
    kept_back: Vec<usize>,
    /// How many blocks run.
    running: usize,
    /// How many of them run whatever the words say: marked `run`, or commands.
    marked: usize,
    /// The fences that say `norun`.
    withheld: Vec<Withheld>,
}

impl Verdict {
    /// Whether a block runs.
    pub(super) fn runs(&self, block: &Block) -> bool {
        !self.kept_back.contains(&block.line)
    }

    /// For the reply's metadata: `run`, `reason`, `words`, `because`, and in which lines a fence says `norun`.
    /// `None` when neither words nor such a fence had a say.
    pub(super) fn metadata(&self) -> Option<Value> {
        let mut said = Map::new();
        let norun = self.norun();
        if let Some(decision) = &self.decision {
            said.insert("run".to_owned(), json!(decision.run));
            said.insert("reason".to_owned(), json!(decision.reason.name()));
            if let Some(words) = decision.reason.words() {
                said.insert("words".to_owned(), json!(words));
            }
            said.insert("because".to_owned(), json!(decision.reason.clause()));
        } else if let Some(because) = norun {
            said.insert("run".to_owned(), json!(self.running > 0));
            said.insert("reason".to_owned(), json!("norun"));
            said.insert("because".to_owned(), json!(because));
        } else {
            return None;
        }
        if norun.is_some() {
            let lines: Vec<usize> = self.withheld.iter().map(|fence| fence.line).collect();
            said.insert("norun".to_owned(), json!(lines));
        }
        Some(Value::Object(said))
    }

    /// Why the fences that say `norun` did not run, as the end of a sentence that begins with "because".
    fn norun(&self) -> Option<&'static str> {
        let contradicts = self.withheld.iter().any(|fence| fence.contradicts);
        match self.withheld.as_slice() {
            [] => None,
            _ if contradicts => Some("its fence says both `run` and `norun`, and `norun` wins"),
            _ => Some("its fence says `norun`"),
        }
    }

    /// The quiet remark about code that did not run.
    pub(super) fn notice(&self) -> Option<String> {
        let words = self.decision.as_ref().and_then(|decision| {
            Some(format!(
                "{} not run: {}. To run it, write \u{201c}run\u{201d} behind the fence's language.",
                blocks(self.kept_back.len())?,
                visible(&decision.reason.clause())
            ))
        });
        let fence = self.norun().and_then(|because| {
            let blocks = blocks(self.withheld.len())?;
            Some(format!("{blocks} not run: {because}. To run it, take `norun` away."))
        });
        match (words, fence) {
            (Some(words), Some(fence)) => Some(format!("{words} {fence}")),
            (words, fence) => words.or(fence),
        }
    }

    /// The whole of it, for `%why`.
    fn sentence(&self) -> String {
        let norun = self.norun().map(|because| format!("The code did not run, because {because}."));
        match norun {
            Some(norun) if self.running == 0 && self.kept_back.is_empty() => norun,
            Some(norun) => format!("{} Of another block: {norun}", self.of_the_rest()),
            None => self.of_the_rest(),
        }
    }

    /// The same for the blocks whose fences do not say `norun`.
    fn of_the_rest(&self) -> String {
        let marked = match self.marked {
            0 => String::new(),
            _ => " A command at the cell's head, and a fence marked `run`, run whatever the words say."
                .to_owned(),
        };
        let how = if self.running == 0 { " `run` behind the fence's language runs it." } else { "" };
        match &self.decision {
            None if self.marked > 0 && self.marked == self.running => {
                "The code ran, because it is marked `run` or stands at the cell's head.".to_owned()
            }
            None => "The code ran, because words around it have no say: `%intent` is off, or there are none."
                .to_owned(),
            Some(decision) => {
                let ran = if decision.run { "ran" } else { "was not run" };
                format!("The code {ran}, because {}.{}{marked}", visible(&decision.reason.clause()), how)
            }
        }
    }
}

/// "The code was", "2 blocks were"; `None` for none.
fn blocks(count: usize) -> Option<String> {
    match count {
        0 => None,
        1 => Some("The code was".to_owned()),
        count => Some(format!("{count} blocks were")),
    }
}

impl Engine {
    /// Whether the words around code decide about it.
    pub(super) fn intent_is_on(&self) -> bool {
        self.intent.get().switched.unwrap_or(self.habits.agent.intent)
    }

    /// From now on the words around code decide about it, or don't.
    pub(super) fn switch_intent(&self, on: bool) {
        self.intent.get().switched = Some(on);
    }

    /// What was decided about the last cell with code, in sentences.
    pub(super) fn why(&self) -> Option<String> {
        self.intent.get().last.as_ref().map(Verdict::sentence)
    }

    /// Decides which blocks of a cell run, and remembers why.
    pub(super) fn intended(&self, cell: &Cell) -> Verdict {
        let withheld = cell.withheld.clone();
        let mut verdict = Verdict { decision: None, kept_back: Vec::new(), running: 0, marked: 0, withheld };
        let mut unmarked = Vec::new();
        for block in cell.blocks() {
            if block.has("run") {
                verdict.marked += 1;
            } else {
                unmarked.push(block.line);
            }
        }
        if cell.has_prose() && !unmarked.is_empty() && self.intent_is_on() {
            let decision = self.decide(cell);
            if !decision.run {
                verdict.kept_back.clone_from(&unmarked);
            }
            verdict.decision = Some(decision);
        }
        verdict.running = verdict.marked + unmarked.len() - verdict.kept_back.len();
        if verdict.marked + unmarked.len() + verdict.withheld.len() > 0 {
            self.intent.get().last = Some(verdict.clone());
        }
        verdict
    }

    fn decide(&self, cell: &Cell) -> Decision {
        let prose: Vec<&str> = cell
            .parts
            .iter()
            .filter_map(|part| if let Part::Prose(text) = part { Some(text.as_str()) } else { None })
            .collect();
        let registry = self.sandbox.registry();
        let triggers = registry.containers().iter().flat_map(|container| &container.triggers);
        intent::decide(&prose, triggers.map(String::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::intent::Reason;

    fn verdict(run: bool, reason: Reason, kept_back: &[usize], marked: usize) -> Verdict {
        let running = marked + usize::from(run);
        let decision = Some(Decision { run, reason });
        Verdict { decision, kept_back: kept_back.to_vec(), running, marked, withheld: Vec::new() }
    }

    #[test]
    fn what_did_not_run_is_said_with_the_words_and_the_way_out() {
        let kept = verdict(false, Reason::Declined("explain".to_owned()), &[3, 8], 0);
        let said = "2 blocks were not run: \u{201c}explain\u{201d} asks something about the code itself. \
                    To run it, write \u{201c}run\u{201d} behind the fence's language.";
        assert_eq!(kept.notice().as_deref(), Some(said));
        assert!(
            kept.sentence().contains("was not run, because \u{201c}explain\u{201d}"),
            "{}",
            kept.sentence()
        );
        assert_eq!(kept.metadata().map(|m| m["reason"].clone()), Some(json!("about-the-code")));
        assert_eq!(verdict(true, Reason::Short(2), &[], 0).notice(), None);
        let hidden = verdict(false, Reason::Forbidden("don't\u{202e} run".to_owned()), &[3], 0);
        assert!(!hidden.notice().is_some_and(|text| text.contains('\u{202e}')));
    }

    #[test]
    fn the_reason_for_code_that_words_have_no_say_about() {
        let off =
            Verdict { decision: None, kept_back: Vec::new(), running: 1, marked: 0, withheld: Vec::new() };
        assert!(off.sentence().contains("`%intent` is off") && off.metadata().is_none());
        let marked = Verdict { marked: 1, ..off };
        assert!(marked.sentence().contains("marked `run`"));
    }

    #[test]
    fn a_fence_that_says_norun_is_told_and_so_is_its_contradiction() {
        let fence = |contradicts| Withheld { line: 3, contradicts };
        let of = |withheld: &[Withheld]| Verdict {
            decision: None,
            kept_back: Vec::new(),
            running: 0,
            marked: 0,
            withheld: withheld.to_vec(),
        };
        let plain = of(&[fence(false)]);
        assert_eq!(plain.sentence(), "The code did not run, because its fence says `norun`.");
        assert!(plain.notice().is_some_and(|said| said.contains("was not run: its fence says `norun`")));
        let both = of(&[fence(true)]);
        assert!(both.sentence().contains("both `run` and `norun`, and `norun` wins"), "{}", both.sentence());
        let mixed = Verdict { withheld: vec![fence(false)], ..verdict(true, Reason::Short(1), &[], 0) };
        assert!(mixed.sentence().starts_with("The code ran") && mixed.sentence().contains("norun"));
        assert_eq!(mixed.metadata().map(|m| m["norun"].clone()), Some(json!([3])));
    }
}
