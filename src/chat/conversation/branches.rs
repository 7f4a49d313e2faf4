//! Lines of dialogue: branched, taken back, brought back, begun afresh; and marks on single turns.

use super::entry::Entry;
use super::{Conversation, MAIN, Member, Write};

/// The most that can be taken back.
const UNDO: usize = 100;

/// A branch that is not the present one.
#[derive(Debug, Clone)]
pub(crate) struct Branch {
    pub(super) id: i64,
    /// Its name.
    pub(crate) name: String,
    /// Its turns by rank.
    pub(crate) entries: Vec<Entry>,
    announced: bool,
}

/// What an earlier kernel left in the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resumed {
    /// Its branches, each with its name; the one that was used last comes first.
    pub(crate) branches: Vec<(String, Vec<Entry>)>,
    /// When it was used last, in milliseconds since 1970.
    pub(crate) used: i64,
}

/// A turn that can be taken back.
#[derive(Debug, Clone)]
pub(super) struct Undo {
    pub(super) turn: i64,
    /// What it replaced.
    pub(super) replaced: Option<Entry>,
}

/// What was taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Undone {
    /// The first words of the turn that is gone.
    pub(crate) label: String,
    /// Whether the cell's earlier turn is back.
    pub(crate) restored: bool,
}

impl Conversation {
    pub(super) fn undo(&mut self, undo: Undo) {
        if self.undo.len() == UNDO {
            self.undo.remove(0);
        }
        self.undo.push(undo);
    }

    /// Takes the last turn back; what it replaced returns. `None`: there is none.
    pub(crate) fn take_back(&mut self) -> Option<Undone> {
        let there = |talk: &Self, turn: i64| talk.entries.iter().position(|entry| entry.id == turn);
        // A turn may have gone with its cell.
        let last = loop {
            let Some(undo) = self.undo.pop() else { break None };
            if let Some(at) = there(self, undo.turn) {
                break Some((at, undo.replaced));
            }
        };
        let (at, replaced) = match last {
            Some(last) => last,
            None => (self.entries.len().checked_sub(1)?, None),
        };
        self.before = None;
        self.changed(at);
        let gone = self.entries.remove(at);
        self.announce();
        self.write(|| Write::Drop { branch: self.branch, turns: vec![gone.id] });
        let restored = replaced.is_some();
        if let Some(entry) = replaced {
            self.write(|| Write::Member { branch: self.branch, member: Member::of(&entry) });
            self.entries.insert(at, entry);
        }
        Some(Undone { label: gone.label, restored })
    }

    /// Changes the turn of that number; its first words. `None`: there is none of that number.
    pub(crate) fn set(&mut self, number: usize, change: impl FnOnce(&mut Entry)) -> Option<&Entry> {
        let order = self.order();
        let at = *order.get(number.checked_sub(1)?)?;
        change(&mut self.entries[at]);
        self.announce();
        self.write(|| Write::Member { branch: self.branch, member: Member::of(&self.entries[at]) });
        self.entries.get(at)
    }

    /// How many turns the present branch has.
    pub(crate) fn turns(&self) -> usize {
        self.entries.len()
    }

    /// Every branch: its name, its number of turns, whether it is the present one.
    pub(crate) fn branches(&self) -> Vec<(String, usize, bool)> {
        let mut all = vec![(self.name.clone(), self.entries.len(), true)];
        all.extend(self.others.iter().map(|other| (other.name.clone(), other.entries.len(), false)));
        all.sort();
        all
    }

    /// Switches to the branch of that name, or makes it from the present one; whether it is new.
    pub(crate) fn switch(&mut self, name: &str) -> bool {
        if self.name == name {
            return false;
        }
        let found = self.others.iter().position(|other| other.name == name);
        let next = match found {
            Some(at) => self.others.swap_remove(at),
            None => Branch {
                id: self.identities.next(),
                name: name.to_owned(),
                entries: self.entries.clone(),
                announced: false,
            },
        };
        let now = Branch {
            id: std::mem::replace(&mut self.branch, next.id),
            name: std::mem::replace(&mut self.name, next.name),
            entries: std::mem::replace(&mut self.entries, next.entries),
            announced: std::mem::replace(&mut self.announced, next.announced),
        };
        self.others.push(now);
        self.begin_afresh();
        if found.is_none() {
            self.state();
        } else {
            self.write(|| Write::Use { branch: self.branch });
        }
        found.is_none()
    }

    /// Everything is forgotten, every branch.
    pub(crate) fn reset(&mut self) {
        let others = std::mem::take(&mut self.others);
        for id in others.iter().filter(|other| other.announced).map(|other| other.id) {
            self.write(|| Write::Close { branch: id });
        }
        if self.announced {
            self.write(|| Write::Close { branch: self.branch });
        }
        self.branch = self.identities.next();
        MAIN.clone_into(&mut self.name);
        self.entries.clear();
        self.announced = false;
        self.begin_afresh();
    }

    fn begin_afresh(&mut self) {
        self.left_out = 0;
        self.before = None;
        self.undo.clear();
    }

    /// Brings back what an earlier kernel left: its turns come before those of this one, whose cells count. How many
    /// came.
    pub(crate) fn resume(&mut self, resumed: Resumed) -> usize {
        let mut branches = resumed.branches.into_iter();
        let Some((name, mut earlier)) = branches.next() else { return 0 };
        let own: Vec<Entry> = std::mem::take(&mut self.entries);
        earlier.retain(|entry| {
            let same =
                |other: &Entry| other.id == entry.id || (entry.cell.is_some() && other.cell == entry.cell);
            !own.iter().any(same)
        });
        let came = earlier.len();
        self.entries = earlier;
        self.entries.extend(own);
        for (rank, entry) in (0..).zip(&mut self.entries) {
            entry.rank = rank;
        }
        if self.name == MAIN {
            self.name = name;
        }
        for (name, entries) in branches {
            if name != self.name && self.others.iter().all(|other| other.name != name) {
                let id = self.identities.next();
                let members = entries.iter().map(Member::of).collect();
                self.write(|| Write::Branch { id, name: name.clone(), members });
                self.others.push(Branch { id, name, entries, announced: true });
            }
        }
        self.state();
        came
    }

    /// Writes down the whole present branch.
    fn state(&mut self) {
        self.announced = true;
        let members = self.entries.iter().map(Member::of).collect();
        self.write(|| Write::Branch { id: self.branch, name: self.name.clone(), members });
    }
}
