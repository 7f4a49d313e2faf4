//! What a request sends: the turns above a cell, as many as the model's window holds.
//!
//! Pinned turns go first, then the newest of the others; hidden ones never.

use std::collections::BTreeSet;

use super::Conversation;
use super::entry::Stale;
use super::messages::Messages;
use super::turn::{Body, Place, Step};
use crate::chat::model::Message;
use crate::chat::turn::{Content, Prompt, ToolResult};

/// The least that code, outcomes and results are shortened to, in bytes.
const LEAST: usize = 200;
/// Said to the model below the turns that an earlier kernel made.
const FRESH: &str = "[The kernel was restarted here and the sandbox is fresh: variables, imports and background \
                     processes of the code above are gone. It has to run again where it is needed.]";

/// In the place of what the user agreed to send to another model.
const LEFT_OUT: &str = "[left out: the user has not agreed to send this file to you]";

/// The messages for a request, and what the user should know about them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Dialogue {
    pub(crate) messages: Vec<Message>,
    /// How many turns are not sent for want of room, when that is news.
    pub(crate) newly_left_out: Option<usize>,
    /// The numbers of turns that are sent although something above them changed, when that is news.
    pub(crate) newly_stale: Vec<usize>,
    /// Attachments that are left out because the user agreed to send them to another model, when that is news: each with
    /// whom the yes was for.
    pub(crate) newly_withheld: Vec<(String, String)>,
}

/// A request's messages, and which turns are in them.
#[derive(Debug)]
pub(crate) struct Composed {
    pub(crate) messages: Vec<Message>,
    /// The turns that are sent, by index.
    sent: Vec<usize>,
    /// How many there was no room for.
    pub(crate) left_out: usize,
    /// Attachments that the user agreed to send to another model: names, and whom the yes was for.
    withheld: Vec<(String, String)>,
}

/// A turn as `%context` lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its number, from the top of the notebook.
    pub(crate) number: usize,
    /// Its first words.
    pub(crate) label: String,
    /// What it takes of the window, in bytes.
    pub(crate) size: usize,
    /// Whether it is sent.
    pub(crate) sent: bool,
    /// What is to be said of it, in words.
    pub(crate) marks: Vec<&'static str>,
}

impl Conversation {
    /// The dialogue up to this place, ending with `prompt`, or where the execution has come to results, with them; in
    /// at most `budget` bytes as far as turns can be left out.
    pub(crate) fn dialogue(&mut self, place: &Place, prompt: &Prompt, budget: usize) -> Dialogue {
        let composed = self.compose(place, Some(prompt), budget);
        let newly_left_out = (composed.left_out > self.left_out).then_some(composed.left_out);
        self.left_out = self.left_out.max(composed.left_out);
        let order = self.order();
        let mut newly_stale = Vec::new();
        for (number, at) in (1..).zip(order) {
            let entry = &mut self.entries[at];
            if entry.stale == Stale::News && composed.sent.contains(&at) {
                entry.stale = Stale::Told;
                newly_stale.push(number);
            }
        }
        let to = &self.to;
        let told = |(name, agreed): &(String, String)| (format!("{name} {agreed}"), to.clone());
        let newly_withheld: Vec<_> =
            composed.withheld.into_iter().filter(|one| !self.withheld.contains(&told(one))).collect();
        let told: Vec<_> = newly_withheld.iter().map(told).collect();
        self.withheld.extend(told);
        Dialogue { messages: composed.messages, newly_left_out, newly_stale, newly_withheld }
    }

    /// What would be sent; without a prompt: what stands above the place.
    pub(crate) fn compose(&mut self, place: &Place, prompt: Option<&Prompt>, budget: usize) -> Composed {
        self.refresh();
        let last = self.now(place, prompt, budget);
        let above = self.above(place);
        let (sent, left_out) = self.fitting(&above, budget.saturating_sub(last.size()));
        self.load(&sent);

        let mut messages = Messages::default();
        let mut withheld = Vec::new();
        let earlier = sent.iter().rposition(|at| self.entries[*at].execution == 0);
        for (n, at) in sent.iter().enumerate() {
            if let Some(body) = &self.entries[*at].body {
                let earlier = self.entries[*at].execution == 0;
                for step in body.told() {
                    match step {
                        Step::Asked(prompt) if prompt.attachments.iter().any(|one| one.agreed.is_some()) => {
                            messages.push(&Step::Asked(self.sendable(prompt, earlier, &mut withheld)));
                        }
                        Step::Results(results) if results.iter().any(|one| one.agreed.is_some()) => {
                            messages.push(&Step::Results(self.tellable(results, earlier, &mut withheld)));
                        }
                        step => messages.push(step),
                    }
                }
                messages.end_turn();
            }
            if Some(n) == earlier {
                messages.note(FRESH);
            }
        }
        for step in &last.steps {
            messages.push(step);
        }
        let messages = if prompt.is_some() { messages.finish() } else { messages.unfinished() };
        Composed { messages, sent, left_out, withheld }
    }

    /// A prompt as the model that is asked may see it. `earlier`: an earlier kernel asked it, which may have found another
    /// model when it looked around.
    fn sendable(&self, prompt: &Prompt, earlier: bool, withheld: &mut Vec<(String, String)>) -> Prompt {
        let mut prompt = prompt.clone();
        for attachment in &mut prompt.attachments {
            if self.withholds(attachment.agreed.as_deref(), &attachment.name, earlier, withheld) {
                attachment.content = Content::Text(LEFT_OUT.to_owned());
            }
        }
        prompt
    }

    /// The same for what came of calls.
    fn tellable(
        &self,
        results: &[ToolResult],
        earlier: bool,
        withheld: &mut Vec<(String, String)>,
    ) -> Vec<ToolResult> {
        let mut results = results.to_vec();
        for result in &mut results {
            if self.withholds(result.agreed.as_deref(), "a file that a model read", earlier, withheld) {
                LEFT_OUT.clone_into(&mut result.text);
                result.images.clear();
            }
        }
        results
    }

    /// Whether a yes was for another model than the one that is asked; then it is noted.
    fn withholds(
        &self,
        agreed: Option<&str>,
        name: &str,
        earlier: bool,
        withheld: &mut Vec<(String, String)>,
    ) -> bool {
        let Some(agreed) = agreed.filter(|agreed| *agreed != self.to || (earlier && agreed.is_empty()))
        else {
            return false;
        };
        let one = (name.to_owned(), agreed.to_owned());
        if !withheld.contains(&one) {
            withheld.push(one);
        }
        true
    }

    /// The execution at the place as far as it has come, with the prompt.
    fn now(&self, place: &Place, prompt: Option<&Prompt>, budget: usize) -> Body {
        let now = self.entries.iter().find(|entry| entry.execution == place.execution);
        let mut last = now.and_then(|entry| entry.body.as_deref()).cloned().unwrap_or_default();
        if let Some(prompt) = prompt.filter(|prompt| !last.goes_on(prompt)) {
            last.steps.push(Step::Asked(prompt.clone()));
        }
        if last.size() > budget {
            // What was asked is never shortened; what ran beside it is, for a model with a short memory.
            let texts: usize = last.steps.iter().map(Step::shortenable).sum();
            let fixed: usize = last.steps.iter().filter(|step| step.shortenable() == 0).map(Step::size).sum();
            let each = budget.saturating_sub(fixed) * 2 / (texts.max(1) * 3);
            for step in &mut last.steps {
                *step = step.shortened(each.max(LEAST));
            }
        }
        last
    }

    /// Of these turns the ones that there is room for, in their order, and how many there is none for.
    fn fitting(&self, above: &[usize], mut room: usize) -> (Vec<usize>, usize) {
        // A turn that takes nothing is one of which nothing is told.
        let visible =
            above.iter().copied().filter(|at| !self.entries[*at].hidden && self.entries[*at].size > 0);
        let mut sent = BTreeSet::new();
        let mut left_out = 0;
        let newest: Vec<(usize, usize)> = visible.enumerate().collect();
        for pinned in [true, false] {
            let mut full = false;
            for (n, at) in newest.iter().rev().filter(|(_, at)| self.entries[*at].pinned == pinned) {
                let size = self.entries[*at].size;
                full |= size > room;
                if full {
                    left_out += 1;
                } else {
                    room -= size;
                    sent.insert((*n, *at));
                }
            }
        }
        (sent.into_iter().map(|(_, at)| at).collect(), left_out)
    }

    /// Every turn from the top of the notebook, with what a request from that place would do with it.
    pub(crate) fn lines(&self, place: &Place, composed: &Composed) -> Vec<Line> {
        let above: BTreeSet<usize> = self.above(place).into_iter().collect();
        let all_sent: BTreeSet<usize> = composed.sent.iter().copied().collect();
        let order = self.order();
        let line = |(number, at): (usize, usize)| {
            let entry = &self.entries[at];
            let sent = all_sent.contains(&at);
            // What is only in the store and takes nothing is a question alone.
            let asks = entry.body.as_ref().map_or(entry.size == 0, |body| body.asks());
            let answered = entry.replied || !asks;
            let marks = [
                (entry.pinned, "pinned"),
                (entry.hidden, "hidden"),
                (entry.stale != Stale::No, "stale"),
                (self.edited(entry), "edited since"),
                (entry.execution == 0, "before the restart"),
                (!answered, "not answered, not sent"),
                (entry.body.as_ref().is_some_and(|body| body.partial()), "interrupted"),
                (entry.body.as_ref().is_some_and(|body| body.failed()), "failed"),
                (!above.contains(&at), "below"),
                (!sent && !entry.hidden && entry.size > 0 && above.contains(&at), "no room"),
            ];
            let marks = marks.iter().filter(|(holds, _)| *holds).map(|(_, mark)| *mark).collect();
            Line { number, label: entry.label.clone(), size: entry.size, sent, marks }
        };
        (1..).zip(order).map(line).collect()
    }
}
