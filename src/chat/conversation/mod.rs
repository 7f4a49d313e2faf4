//! The dialogue, turn by turn: what was asked, what ran, what was answered.
//!
//! Imports nothing of ours but `model` (for its messages), `turn` and `store`. A turn belongs to the cell that made it:
//! when the cell runs again, its turn is replaced at its place, and the model is told what stands
//! before that place. A cell without an identity makes a new turn each time.
//!
//! | module | what |
//! | --- | --- |
//! | `turn`, `entry` | one turn and its steps; what is known of it without its text |
//! | `order`, `notebook` | which turn stands above which; the notebook's file says it |
//! | `window` | what a request sends, and what there is no room for |
//! | `branches` | lines of dialogue: branched, taken back, brought back |
//! | `messages`, `text` | from steps to what a server is sent; shortened and fenced texts |

mod branches;
mod entry;
mod messages;
mod notebook;
mod order;
mod text;
mod turn;
mod window;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::store::{Member, Output, Running, Standing, Store, Write};
use super::turn::{Prompt, ToolResult};

pub(crate) use branches::Resumed;
pub(crate) use entry::{Entry, Stale};
pub(crate) use text::shorten;
pub(crate) use turn::{Body, End, Said, Step};
pub use turn::{Place, Ran};

use branches::{Branch, Undo};
use entry::Identities;
use notebook::Notebook;

/// Texts of turns older than this many bytes back are let go of: the store has them, or they are forgotten.
const KEPT: usize = 32_000_000;
/// The name of the first branch.
const MAIN: &str = "main";

/// The dialogue of one kernel.
#[derive(Debug)]
pub(crate) struct Conversation {
    /// The present branch: its identity, its name, its turns by rank.
    branch: i64,
    name: String,
    entries: Vec<Entry>,
    /// The other branches.
    others: Vec<Branch>,
    executions: u64,
    identities: Identities,
    /// The most turns that were left out of a request for want of room, as the user was told.
    left_out: usize,
    /// The turn that was replaced last, while its successor is like it.
    before: Option<(i64, Arc<Body>)>,
    undo: Vec<Undo>,
    notebook: Notebook,
    store: Option<Arc<Store>>,
    /// Whether the store knows the present branch.
    announced: bool,
    /// Who is asked next.
    to: String,
    /// Attachments that are not sent there, as the user was told: name and whom for.
    withheld: BTreeSet<(String, String)>,
}

impl Default for Conversation {
    fn default() -> Self {
        Self::new(None, None)
    }
}

/// Where a reply goes while it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The turn.
    pub(crate) turn: i64,
    /// Which of its steps.
    pub(crate) step: usize,
    /// The turn's size without it.
    pub(crate) size: usize,
}

impl Conversation {
    /// A dialogue of the notebook at that path, kept in that store.
    pub(crate) fn new(notebook: Option<PathBuf>, store: Option<Arc<Store>>) -> Self {
        let mut identities = Identities::default();
        Conversation {
            branch: identities.next(),
            name: MAIN.to_owned(),
            entries: Vec::new(),
            others: Vec::new(),
            executions: 0,
            identities,
            left_out: 0,
            before: None,
            undo: Vec::new(),
            notebook: Notebook::new(notebook),
            store,
            announced: false,
            to: String::new(),
            withheld: BTreeSet::new(),
        }
    }

    /// The same, for that model to be asked: what the user agreed to send to another one is left out.
    pub(crate) fn to(&mut self, whom: String) -> &mut Self {
        self.to = whom;
        self
    }

    /// A new execution of a cell. The cell's old turn stays until there is something in its stead.
    pub(crate) fn begin(&mut self, cell: Option<&str>, source: &str) -> Place {
        self.executions += 1;
        Place {
            execution: self.executions,
            cell: cell.map(str::to_owned),
            source: source.to_owned(),
            passing: false,
        }
    }

    /// A new execution that is nobody's cell: what is said in it is known until [`Conversation::pass`] and kept nowhere.
    pub(crate) fn begin_passing(&mut self) -> Place {
        Place { passing: true, ..self.begin(None, "") }
    }

    /// An execution of which nothing is kept is over.
    pub(crate) fn pass(&mut self, place: &Place) {
        self.entries.retain(|entry| !place.passing || entry.execution != place.execution);
    }

    /// The index of the turn at this place, which takes that of the cell's earlier turn, or a new one at the end.
    fn turn(&mut self, place: &Place) -> usize {
        let found = self.entries.iter().rposition(|entry| entry.is_at(place));
        if let Some(at) = found.filter(|at| self.entries[*at].execution == place.execution) {
            return at;
        }
        let id = self.identities.next();
        let at = if let Some(at) = found {
            self.replace(at, id, place);
            at
        } else {
            let rank = self.entries.last().map_or(0, |last| last.rank + 1);
            self.entries.push(Entry::new(place, id, rank));
            if place.passing {
                return self.entries.len() - 1;
            }
            self.undo(Undo { turn: id, replaced: None });
            self.entries.len() - 1
        };
        self.announce();
        let entry = &self.entries[at];
        self.write(|| Write::Turn {
            id,
            cell: entry.cell.clone(),
            source: entry.body.as_ref().map(|body| body.source.clone()).unwrap_or_default(),
            print: entry.print,
            made: entry.made,
        });
        self.write(|| Write::Member { branch: self.branch, member: Member::of(&self.entries[at]) });
        at
    }

    fn replace(&mut self, at: usize, id: i64, place: &Place) {
        let body = self.body(at);
        let Entry { pinned, hidden, rank, .. } = self.entries[at];
        let new = Entry { hidden, pinned, ..Entry::new(place, id, rank) };
        let old = std::mem::replace(&mut self.entries[at], new);
        if old.print == self.entries[at].print {
            self.before = body.map(|body| (id, body));
        } else {
            self.before = None;
            self.changed(at);
        }
        self.write(|| Write::Drop { branch: self.branch, turns: vec![old.id] });
        self.undo(Undo { turn: id, replaced: Some(old) });
    }

    fn push(&mut self, place: &Place, step: Step) {
        let step = step.bounded();
        let at = self.turn(place);
        let id = self.entries[at].id;
        let Some(body) = self.entries[at].body.as_mut() else { return };
        let number = body.steps.len();
        let news = match &self.before {
            Some((of, before)) if *of == id => before.steps.get(number) != Some(&step),
            _ => false,
        };
        Arc::make_mut(body).steps.push(step.clone());
        self.entries[at].renew();
        if news {
            self.before = None;
            self.changed(at);
        }
        let entry = &self.entries[at];
        if place.passing {
            return;
        }
        self.write(|| Write::Step {
            turn: entry.id,
            number,
            step,
            label: entry.label.clone(),
            size: entry.size,
            replied: entry.replied,
        });
        self.let_go();
    }

    /// What was written while it came is about to be written whole.
    fn settle(&self) {
        if let Some(store) = &self.store {
            store.settle();
        }
    }

    /// Code runs in this execution, which `step` describes: what of it is written before its end.
    pub(crate) fn running(
        &mut self,
        place: &Place,
        output: Output,
        step: Box<dyn Fn(&str) -> Step + Send>,
    ) -> Option<Running> {
        if place.passing || self.store.is_none() {
            return None;
        }
        let at = self.turn(place);
        let entry = &self.entries[at];
        let body = entry.body.as_ref()?;
        let slot = Slot { turn: entry.id, step: body.steps.len(), size: body.size() };
        let mut then = Body::clone(body);
        then.steps.push(step(""));
        let (label, replied) = (then.label(), then.replied());
        Some(Running { slot, label, replied, output, step, written: None })
    }

    /// Code ran in this execution.
    pub(crate) fn ran(&mut self, place: &Place, ran: Ran) {
        self.settle();
        self.push(place, Step::Ran(ran));
    }

    /// The user asks in this execution; what the answer is to be written to.
    pub(crate) fn asked(&mut self, place: &Place, prompt: &Prompt) -> Option<Slot> {
        let goes_on = self
            .entries
            .iter()
            .find(|entry| entry.execution == place.execution)
            .and_then(|entry| entry.body.as_ref())
            .is_some_and(|body| body.goes_on(prompt));
        if !goes_on {
            self.push(place, Step::Asked(prompt.clone()));
        }
        let at = self.turn(place);
        let entry = &self.entries[at];
        let body = entry.body.as_ref().filter(|_| !place.passing)?;
        Some(Slot { turn: entry.id, step: body.steps.len(), size: body.size() })
    }

    /// The model answered in this execution.
    pub(crate) fn answered(&mut self, place: &Place, prompt: &Prompt, said: Said) {
        self.asked(place, prompt);
        self.settle();
        self.push(place, Step::Said(said));
    }

    /// No more of an answer comes in this execution. Where the model had made calls, the turn says so: what it said
    /// before them is not the end of what it had to say.
    pub(crate) fn broke_off(&mut self, place: &Place, end: End) {
        let now = self.entries.iter().find(|entry| entry.execution == place.execution);
        let last = now.and_then(|entry| entry.body.as_ref()).and_then(|body| body.steps.last());
        if matches!(last, Some(Step::Results(_))) {
            self.settle();
            self.push(place, Step::Said(Said { text: String::new(), calls: Vec::new(), end, within: None }));
        }
    }

    /// What came of the last reply's calls.
    pub(crate) fn results(&mut self, place: &Place, results: Vec<ToolResult>) {
        self.settle();
        self.push(place, Step::Results(results));
    }

    /// Cells that no longer exist take their turns with them.
    pub(crate) fn forget(&mut self, cells: &[String]) {
        let gone = |entry: &Entry| entry.cell.as_ref().is_some_and(|cell| cells.contains(cell));
        let turns: Vec<i64> = self.entries.iter().filter(|entry| gone(entry)).map(|entry| entry.id).collect();
        if !turns.is_empty() {
            self.entries.retain(|entry| !gone(entry));
            self.write(|| Write::Drop { branch: self.branch, turns });
        }
    }

    /// A cell ran in which nothing is said or done any more: its turn goes, and what followed it is old.
    pub(crate) fn vacate(&mut self, cell: &str) {
        if let Some(at) = self.entries.iter().position(|entry| entry.cell.as_deref() == Some(cell)) {
            self.changed(at);
            self.forget(&[cell.to_owned()]);
        }
    }

    /// The text of a turn, from wherever it is.
    fn body(&mut self, at: usize) -> Option<Arc<Body>> {
        self.load(&[at]);
        self.entries.get(at)?.body.clone()
    }

    /// Brings the texts of these turns into memory, as far as they can be had.
    fn load(&mut self, wanted: &[usize]) {
        let missing: Vec<i64> = wanted
            .iter()
            .filter_map(|at| self.entries.get(*at))
            .filter(|entry| entry.body.is_none())
            .map(|entry| entry.id)
            .collect();
        let Some(store) = self.store.as_ref().filter(|_| !missing.is_empty()) else { return };
        let mut bodies = store.bodies(&missing);
        for at in wanted {
            let Some(entry) = self.entries.get_mut(*at) else { continue };
            if let Some(body) = bodies.remove(&entry.id) {
                entry.body = Some(Arc::new(body));
            }
        }
    }

    /// Lets go of the oldest texts when there are too many: the store has them; without one they are forgotten.
    fn let_go(&mut self) {
        let weight = |entry: &Entry| entry.body.as_ref().map_or(0, |body| body.weight());
        let mut all: usize = self.entries.iter().map(weight).sum();
        let standing = self.store.as_ref().map_or(Standing::Off, |store| store.standing());
        if all <= KEPT || standing == Standing::Behind {
            return;
        }
        let last = self.entries.iter().map(|entry| entry.execution).max();
        for entry in &mut self.entries {
            if all > KEPT && Some(entry.execution) != last {
                all -= weight(entry);
                entry.body = None;
            }
        }
        if standing == Standing::Off {
            self.entries.retain(|entry| entry.body.is_some());
        }
    }

    /// Tells the store of the present branch, before anything else of it.
    fn announce(&mut self) {
        if !std::mem::replace(&mut self.announced, true) {
            self.write(|| Write::Branch { id: self.branch, name: self.name.clone(), members: Vec::new() });
        }
    }

    fn write(&self, write: impl FnOnce() -> Write) {
        if let Some(store) = &self.store {
            store.write(write());
        }
    }
}

#[cfg(test)]
mod tests;
