//! What was run before: `history_request` by range, tail and search.
//!
//! May import `engine`, whose store knows all kernels of a notebook ([`query`], [`row`]). Where it has none, the
//! cells of this kernel are kept here in memory, bounded in entries and bytes: the oldest go first.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::messages::{HistoryAccess, HistoryRequest};
use crate::engine::{HistoryAccess as Access, HistoryEntry, HistoryQuery, glob};

/// This process is one session; its number, as clients may name it.
const SESSION: i64 = 1;
/// Entries of a `tail` or `search` that does not say how many.
const DEFAULT_COUNT: usize = 10;
const MAX_ENTRIES: usize = 10_000;
const MAX_BYTES: usize = 8 << 20;

#[derive(Debug)]
struct Entry {
    line: u32,
    input: String,
    output: Option<String>,
}

impl Entry {
    fn size(&self) -> usize {
        self.input.len() + self.output.as_ref().map_or(0, String::len)
    }

    fn row(&self, output: bool) -> Value {
        if output {
            json!([SESSION, self.line, [self.input, self.output]])
        } else {
            json!([SESSION, self.line, self.input])
        }
    }
}

/// What a request asks the interpreter for.
pub(crate) fn query(request: &HistoryRequest) -> HistoryQuery {
    let access = match request.hist_access_type {
        HistoryAccess::Range => Access::Range {
            session: request.session.unwrap_or(0),
            start: request.start.unwrap_or(1),
            stop: request.stop,
        },
        HistoryAccess::Tail => Access::Tail,
        HistoryAccess::Search => Access::Search(request.pattern.clone().unwrap_or_else(|| "*".to_owned())),
    };
    let unique = request.hist_access_type == HistoryAccess::Search && request.unique();
    HistoryQuery { access, most: count(request), unique }
}

/// An entry of the interpreter's as the protocol has it.
pub(crate) fn row(entry: &HistoryEntry, output: bool) -> Value {
    if output {
        json!([entry.session, entry.line, [entry.input, entry.output]])
    } else {
        json!([entry.session, entry.line, entry.input])
    }
}

/// How many entries a `tail` or `search` wants.
fn count(request: &HistoryRequest) -> usize {
    request.n.map_or(DEFAULT_COUNT, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// The cells that were run with `store_history`.
#[derive(Debug, Default)]
pub(crate) struct History {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl History {
    /// Adds a cell; `line` is its execution count, `output` the text of its result.
    pub(crate) fn add(&mut self, line: u32, input: &str, output: Option<String>) {
        let entry = Entry { line, input: input.to_owned(), output };
        self.bytes += entry.size();
        self.entries.push_back(entry);
        while self.entries.len() > MAX_ENTRIES || (self.bytes > MAX_BYTES && self.entries.len() > 1) {
            self.bytes -= self.entries.pop_front().map_or(0, |entry| entry.size());
        }
    }

    /// Answers a request, oldest first.
    pub(crate) fn find(&self, request: &HistoryRequest) -> Vec<Value> {
        let found = match request.hist_access_type {
            HistoryAccess::Range => self.range(request),
            HistoryAccess::Tail => self.last(request, |_| true, false),
            HistoryAccess::Search => {
                let pattern: Vec<char> = request.pattern.as_deref().unwrap_or("*").chars().collect();
                self.last(request, |entry| glob(&pattern, &entry.input), request.unique())
            }
        };
        found.into_iter().map(|entry| entry.row(request.output())).collect()
    }

    /// Lines `start..stop`; negative ones count from the next line. Session 0 is the current one.
    fn range(&self, request: &HistoryRequest) -> Vec<&Entry> {
        if !matches!(request.session, None | Some(0 | SESSION)) {
            return Vec::new();
        }
        let next = self.entries.back().map_or(1, |entry| i64::from(entry.line) + 1);
        let absolute = |line: i64| if line < 0 { next.saturating_add(line) } else { line };
        let start = absolute(request.start.unwrap_or(1));
        let stop = request.stop.map_or(i64::MAX, absolute);
        self.entries.iter().filter(|entry| (start..stop).contains(&i64::from(entry.line))).collect()
    }

    /// The newest `n` that fit; of equal inputs only the newest when `unique`.
    fn last(&self, request: &HistoryRequest, fits: impl Fn(&Entry) -> bool, unique: bool) -> Vec<&Entry> {
        let count = count(request);
        let mut seen = std::collections::HashSet::new();
        let mut found: Vec<&Entry> = self
            .entries
            .iter()
            .rev()
            .filter(|entry| fits(entry) && (!unique || seen.insert(entry.input.as_str())))
            .take(count)
            .collect();
        found.reverse();
        found
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn find(request: Value) -> Value {
        let mut history = History::default();
        for (line, input) in (1..).zip(["x = 1", "print(x)", "x = 1", "x[0]"]) {
            history.add(line, input, (line == 2).then(|| "1".to_owned()));
        }
        history.find(&serde_json::from_value(request).unwrap()).into()
    }

    #[test]
    fn a_tail_is_the_newest_in_their_order() {
        assert_eq!(
            find(json!({"hist_access_type": "tail", "n": 2})),
            json!([[1, 3, "x = 1"], [1, 4, "x[0]"]])
        );
        assert_eq!(find(json!({"hist_access_type": "tail", "n": 0})), json!([]));
    }

    #[test]
    fn outputs_come_when_asked_for() {
        assert_eq!(
            find(json!({"hist_access_type": "range", "start": 1, "stop": 3, "output": true})),
            json!([[1, 1, ["x = 1", null]], [1, 2, ["print(x)", "1"]]])
        );
    }

    #[test]
    fn a_range_may_count_from_the_end_and_knows_one_session() {
        assert_eq!(
            find(json!({"hist_access_type": "range", "session": 0, "start": -1})),
            json!([[1, 4, "x[0]"]])
        );
        assert_eq!(
            find(
                json!({"hist_access_type": "range", "session": 1, "start": -9_223_372_036_854_775_808_i64, "stop": 2})
            ),
            json!([[1, 1, "x = 1"]])
        );
        assert_eq!(find(json!({"hist_access_type": "range", "session": -1})), json!([]));
    }

    #[test]
    fn a_search_takes_a_pattern_and_may_leave_out_repetitions() {
        assert_eq!(
            find(json!({"hist_access_type": "search", "pattern": "x*", "unique": true})),
            json!([[1, 3, "x = 1"], [1, 4, "x[0]"]])
        );
        assert_eq!(find(json!({"hist_access_type": "search", "pattern": "x[*"})), json!([[1, 4, "x[0]"]]));
        assert_eq!(
            find(json!({"hist_access_type": "search", "pattern": "?rint*)"})).as_array().unwrap().len(),
            1
        );
        assert_eq!(find(json!({"hist_access_type": "search", "pattern": "z*"})), json!([]));
    }

    #[test]
    fn the_history_does_not_grow_for_ever() {
        let mut history = History::default();
        for line in 0..30 {
            history.add(line, &"x".repeat(1 << 20), None);
        }
        assert!(history.bytes <= MAX_BYTES);
        assert_eq!(history.entries.back().unwrap().line, 29);
    }
}
