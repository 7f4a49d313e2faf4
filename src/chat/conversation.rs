//! The dialogue, turn by turn: what was asked, what ran, what was answered.
//!
//! Imports nothing of ours but `model` (for its messages). A turn belongs to the cell that made it:
//! when the cell runs again, its turn is replaced at its place, and the model is told what stands
//! before that place. A cell without an identity makes a new turn each time. In memory and bounded.

use std::collections::VecDeque;

use super::model::{Message, Role};

/// Turns older than this many characters back are forgotten, whatever the model could read.
const KEPT: usize = 2_000_000;
/// The most of one block of code that is remembered.
const SOURCE: usize = 16_000;
/// The most of one block's outcome that is remembered.
const OUTCOME: usize = 6_000;
/// The most of one prompt and of one reply that is remembered.
const SAID: usize = 200_000;

/// Where one execution of a cell stands in the dialogue; made by [`Chat::begin`](super::Chat::begin).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    execution: u64,
    cell: Option<String>,
}

/// A block of code that ran, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Canonical language name.
    pub language: String,
    /// The code.
    pub source: String,
    /// What it showed, shortened, and its error.
    pub outcome: String,
    /// Whether it failed.
    pub failed: bool,
}

#[derive(Debug, Clone, Default)]
struct Turn {
    execution: u64,
    cell: Option<String>,
    ran: Vec<Ran>,
    prompt: String,
    reply: String,
}

impl Turn {
    fn size(&self) -> usize {
        let ran: usize = self.ran.iter().map(|ran| ran.source.len() + ran.outcome.len() + 80).sum();
        ran + self.prompt.len() + self.reply.len()
    }

    /// What the user's side of the turn says.
    fn said(&self, prompt: &str) -> String {
        let mut parts: Vec<String> = self.ran.iter().map(describe).collect();
        if !prompt.trim().is_empty() {
            parts.push(prompt.trim().to_owned());
        }
        parts.join("\n\n")
    }
}

/// The dialogue of one kernel.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    turns: VecDeque<Turn>,
    executions: u64,
    /// Turns left out of the last request for want of room.
    left_out: usize,
}

/// The messages for a request, and what had to be left out of them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dialogue {
    pub(crate) messages: Vec<Message>,
    /// How many turns are not sent, when that is news.
    pub(crate) newly_left_out: Option<usize>,
}

impl Conversation {
    /// A new execution of a cell. The cell's old turn stays until there is something in its stead.
    pub(crate) fn begin(&mut self, cell: Option<&str>) -> Place {
        self.executions += 1;
        Place { execution: self.executions, cell: cell.map(str::to_owned) }
    }

    /// The index of the turn at this place, where the cell's earlier turn is emptied, or a new one at
    /// the end.
    fn turn(&mut self, place: &Place) -> &mut Turn {
        let at = self.position(place).unwrap_or_else(|| {
            self.turns.push_back(Turn::default());
            self.turns.len() - 1
        });
        let turn = &mut self.turns[at];
        if turn.execution != place.execution {
            *turn = Turn { execution: place.execution, cell: place.cell.clone(), ..Turn::default() };
        }
        turn
    }

    fn position(&self, place: &Place) -> Option<usize> {
        self.turns.iter().position(|turn| {
            turn.execution == place.execution || (turn.cell.is_some() && turn.cell == place.cell)
        })
    }

    /// Code ran in this execution.
    pub(crate) fn ran(&mut self, place: &Place, mut ran: Ran) {
        ran.source = shorten(&ran.source, SOURCE);
        ran.outcome = shorten(&ran.outcome, OUTCOME);
        self.turn(place).ran.push(ran);
        self.forget_excess();
    }

    /// The model answered in this execution.
    pub(crate) fn answered(&mut self, place: &Place, prompt: &str, reply: &str) {
        let turn = self.turn(place);
        turn.prompt = shorten(prompt, SAID);
        turn.reply = shorten(reply, SAID);
        self.forget_excess();
    }

    fn forget_excess(&mut self) {
        let mut size: usize = self.turns.iter().map(Turn::size).sum();
        while size > KEPT && self.turns.len() > 1 {
            size -= self.turns.pop_front().map_or(0, |turn| turn.size());
        }
    }

    /// The dialogue up to this place, ending with `prompt`, in at most `budget` characters as far as
    /// turns can be left out: the oldest go first.
    pub(crate) fn dialogue(&mut self, place: &Place, prompt: &str, budget: usize) -> Dialogue {
        let end = self.position(place).unwrap_or(self.turns.len());
        let now = self.turns.get(end).filter(|turn| turn.execution == place.execution);
        let mut last = now.map_or_else(|| prompt.trim().to_owned(), |turn| turn.said(prompt));
        if let Some(turn) = now.filter(|_| last.len() > budget) {
            // What was asked is never shortened; what ran beside it is, for a model with a short memory.
            let each = budget.saturating_sub(prompt.len()) / (turn.ran.len().max(1) * 3);
            let mut shorter = turn.clone();
            for ran in &mut shorter.ran {
                ran.source = shorten(&ran.source, each.max(200));
                ran.outcome = shorten(&ran.outcome, each.max(200));
            }
            last = shorter.said(prompt);
        }

        let mut room = budget.saturating_sub(last.len());
        let mut first = end;
        while first > 0 {
            let size = self.turns[first - 1].size();
            if size > room {
                break;
            }
            room -= size;
            first -= 1;
        }

        let mut messages: Vec<Message> = Vec::new();
        let mut pending: Vec<String> = Vec::new();
        for turn in self.turns.range(first..end) {
            let said = turn.said(&turn.prompt);
            if !said.is_empty() {
                pending.push(said);
            }
            // Many servers insist that user and model take turns.
            if !turn.reply.trim().is_empty() {
                let text = std::mem::take(&mut pending).join("\n\n");
                messages.push(Message { role: Role::User, text });
                messages.push(Message { role: Role::Assistant, text: turn.reply.clone() });
            }
        }
        pending.push(last);
        messages.push(Message { role: Role::User, text: pending.join("\n\n") });

        let newly_left_out = (first > self.left_out).then_some(first);
        self.left_out = first;
        Dialogue { messages, newly_left_out }
    }

    /// Cells that no longer exist take their turns with them.
    pub(crate) fn forget(&mut self, cells: &[String]) {
        self.turns.retain(|turn| turn.cell.as_ref().is_none_or(|cell| !cells.contains(cell)));
    }

    /// Everything is forgotten.
    pub(crate) fn reset(&mut self) {
        self.turns.clear();
        self.left_out = 0;
    }
}

/// What the model is told of a block that ran.
fn describe(ran: &Ran) -> String {
    let code = fenced(&ran.language, &ran.source);
    let outcome = ran.outcome.trim_end();
    let how = if ran.failed { "It failed" } else { "It ran" };
    if outcome.trim().is_empty() {
        return format!("This code was run in the notebook:\n\n{code}\n\n{how} and showed nothing.");
    }
    let outcome = fenced("", outcome);
    format!("This code was run in the notebook:\n\n{code}\n\n{how} and showed:\n\n{outcome}")
}

/// A fence that its content can't close.
fn fenced(language: &str, content: &str) -> String {
    let mut longest = 0;
    let mut run = 0;
    for c in content.chars() {
        run = if c == '`' { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    let fence = "`".repeat((longest + 1).max(3));
    format!("{fence}{language}\n{}\n{fence}", content.trim_end_matches('\n'))
}

/// The head and the tail of a long text, with what is missing said between them.
pub(crate) fn shorten(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut head = limit * 2 / 3;
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - limit / 3;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!("{}\n[... {} bytes left out ...]\n{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(source: &str, outcome: &str) -> Ran {
        Ran { language: "python".into(), source: source.into(), outcome: outcome.into(), failed: false }
    }

    fn texts(dialogue: &Dialogue) -> Vec<&str> {
        dialogue.messages.iter().map(|m| m.text.as_str()).collect()
    }

    #[test]
    fn a_cell_that_runs_again_replaces_its_turn_at_its_place() {
        let mut talk = Conversation::default();
        for (cell, prompt) in [("a", "one"), ("b", "two"), ("c", "three")] {
            let place = talk.begin(Some(cell));
            talk.answered(&place, prompt, &format!("re {prompt}"));
        }
        let again = talk.begin(Some("b"));
        assert_eq!(texts(&talk.dialogue(&again, "zwei", 1000)), ["one", "re one", "zwei"]);
        talk.answered(&again, "zwei", "re zwei");
        let next = talk.begin(None);
        assert_eq!(
            texts(&talk.dialogue(&next, "four", 1000)),
            ["one", "re one", "zwei", "re zwei", "three", "re three", "four"]
        );
    }

    #[test]
    fn code_and_prompt_of_one_execution_make_one_turn_and_roles_alternate() {
        let mut talk = Conversation::default();
        let first = talk.begin(Some("a"));
        talk.ran(&first, ran("print(1)", "1"));
        let second = talk.begin(None);
        talk.ran(&second, ran("x = {'$a': \"{b}\"}", ""));
        let dialogue = talk.dialogue(&second, "why?", 10_000);
        assert_eq!(dialogue.messages.len(), 1);
        let text = texts(&dialogue)[0];
        for part in ["```python\nprint(1)\n```", "```\n1\n```", "x = {'$a': \"{b}\"}", "showed nothing"] {
            assert!(text.contains(part), "{part} not in {text}");
        }
        assert!(text.ends_with("why?"));
    }

    #[test]
    fn an_execution_that_comes_to_nothing_leaves_the_old_turn() {
        let mut talk = Conversation::default();
        let place = talk.begin(Some("a"));
        talk.answered(&place, "one", "re one");
        let _ = talk.begin(Some("a"));
        let next = talk.begin(Some("b"));
        assert_eq!(texts(&talk.dialogue(&next, "two", 1000)), ["one", "re one", "two"]);
    }

    #[test]
    fn old_turns_are_left_out_beyond_the_budget_and_it_is_said_once() {
        let mut talk = Conversation::default();
        for n in 0..10 {
            let place = talk.begin(None);
            talk.answered(&place, &format!("{n:050}"), &format!("{n:050}"));
        }
        let place = talk.begin(None);
        let dialogue = talk.dialogue(&place, "now", 350);
        assert_eq!(dialogue.messages.len(), 2 * 3 + 1);
        assert_eq!(dialogue.newly_left_out, Some(7));
        assert_eq!(talk.dialogue(&place, "now", 350).newly_left_out, None);
        // However small the budget, the prompt itself is sent.
        assert_eq!(texts(&talk.dialogue(&place, "now", 0)), ["now"]);
    }

    #[test]
    fn code_is_shortened_for_a_model_with_a_short_memory() {
        let mut talk = Conversation::default();
        let place = talk.begin(None);
        talk.ran(&place, ran(&"x = 1\n".repeat(2000), &"y\n".repeat(2000)));
        let dialogue = talk.dialogue(&place, "why?", 3000);
        let text = texts(&dialogue)[0];
        assert!(text.len() < 3000 && text.contains("left out") && text.ends_with("why?"), "{}", text.len());
    }

    #[test]
    fn deleted_cells_and_a_reset_are_forgotten() {
        let mut talk = Conversation::default();
        for cell in ["a", "b"] {
            let place = talk.begin(Some(cell));
            talk.answered(&place, cell, "ok");
        }
        talk.forget(&["a".to_owned()]);
        let place = talk.begin(None);
        assert_eq!(texts(&talk.dialogue(&place, "?", 1000)), ["b", "ok", "?"]);
        talk.reset();
        assert_eq!(texts(&talk.dialogue(&place, "?", 1000)), ["?"]);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut talk = Conversation::default();
        for _ in 0..40 {
            let place = talk.begin(None);
            talk.answered(&place, &"x".repeat(100_000), "ok");
        }
        assert!(talk.turns.iter().map(Turn::size).sum::<usize>() <= KEPT);
    }

    #[test]
    fn shortening_keeps_head_and_tail_and_whole_characters() {
        let text = "é".repeat(100);
        let short = shorten(&text, 31);
        assert!(short.starts_with('é') && short.ends_with('é') && short.contains("left out"), "{short}");
        assert_eq!(shorten("abc", 3), "abc");
    }

    #[test]
    fn a_fence_is_longer_than_any_inside() {
        assert_eq!(fenced("md", "```\nx\n```\n"), "````md\n```\nx\n```\n````");
    }
}
