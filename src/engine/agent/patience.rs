//! Calls that lead nowhere: the same one with the same result, and calls that can't be carried out.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::chat::ToolCall;

/// Replies in a row of which no call could be carried out, before it is too many.
const FAULTS: u32 = 2;

/// What the model is told when it repeats itself.
pub(super) const TOLD: &str = "\n\nYou have made this very call before, with this very result. Don't repeat it: answer \
                               the user now, or do something else.";

/// What the user is told when that did not help.
pub(super) fn stuck(tool: &str) -> String {
    let tool: String = tool.chars().take(60).collect();
    format!(
        "The model was stopped: it made the same call ({tool}) again and again, with the same result, although it was \
         told so. Ask again in other words, or try another model (%model)."
    )
}

/// What to do about a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Go,
    /// The model is told that it repeats itself.
    Tell,
    /// It was told before.
    Stop,
}

/// What one turn has seen.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Calls of earlier replies, and what came of them: hashes of both.
    seen: HashMap<u64, u64>,
    /// Those of this reply, whose results the model has not seen yet.
    now: Vec<(u64, u64)>,
    told: bool,
    faults: u32,
}

impl Patience {
    /// That came of a call.
    pub(super) fn came(&mut self, call: &ToolCall, result: &str) -> Verdict {
        let (call, result) = (of_call(call), hash(&result));
        let repeated = self.seen.get(&call) == Some(&result);
        self.now.push((call, result));
        match (repeated, self.told) {
            (false, _) => Verdict::Go,
            (true, false) => {
                self.told = true;
                Verdict::Tell
            }
            (true, true) => Verdict::Stop,
        }
    }

    /// The model is about to see the results.
    pub(super) fn reply_over(&mut self) {
        self.seen.extend(self.now.drain(..));
    }

    /// Whether there were too many replies in a row of which no call could be carried out.
    pub(super) fn faulty(&mut self, faulty: bool) -> bool {
        self.faults = if faulty { self.faults + 1 } else { 0 };
        self.faults > FAULTS
    }
}

/// The same for calls whose arguments say the same, however they are written.
fn of_call(call: &ToolCall) -> u64 {
    let arguments = serde_json::from_str::<serde_json::Value>(&call.arguments);
    let arguments = arguments.map_or_else(
        |_| call.arguments.clone(),
        |mut value| {
            value.sort_all_objects();
            value.to_string()
        },
    );
    hash(&(&call.name, arguments))
}

fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> ToolCall {
        ToolCall { id: "1".into(), name: "run_code".into(), arguments: arguments.into() }
    }

    #[test]
    fn a_call_that_is_repeated_with_the_same_result_is_told_once_and_then_stopped() {
        let mut patience = Patience::default();
        let mut next = |arguments: &str, result: &str| {
            let verdict = patience.came(&call(arguments), result);
            patience.reply_over();
            verdict
        };
        assert_eq!(next(r#"{"code": "1"}"#, "1"), Verdict::Go);
        assert_eq!(next(r#"{"code": "2"}"#, "1"), Verdict::Go);
        assert_eq!(next(r#"{"code": "1"}"#, "another result"), Verdict::Go);
        assert_eq!(next(r#"{"b": 1, "a": 2}"#, "1"), Verdict::Go);
        assert_eq!(next(r#"{ "a":2, "b":1 }"#, "1"), Verdict::Tell);
        assert_eq!(next(r#"{"code": "3"}"#, "1"), Verdict::Go);
        assert_eq!(next(r#"{"code": "3"}"#, "1"), Verdict::Stop);
    }

    #[test]
    fn calls_of_one_reply_do_not_count_as_repeated() {
        let mut patience = Patience::default();
        assert_eq!(patience.came(&call("{}"), "x"), Verdict::Go);
        assert_eq!(patience.came(&call("{}"), "x"), Verdict::Go);
        patience.reply_over();
        assert_eq!(patience.came(&call("{}"), "x"), Verdict::Tell);
    }

    #[test]
    fn two_faulty_replies_in_a_row_are_borne_and_a_good_one_between_them_counts() {
        let mut patience = Patience::default();
        let said: Vec<bool> =
            [true, true, false, true, true, true].into_iter().map(|f| patience.faulty(f)).collect();
        assert_eq!(said, [false, false, false, false, false, true]);
    }
}
