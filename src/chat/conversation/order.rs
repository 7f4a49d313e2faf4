//! Which turn stands above which, and what becomes of those below when one changes.
//!
//! The notebook's file says where its cells stand. A turn whose cell is not in it (not saved yet, or without an
//! identity) stands below everything that ran before it; without a file that is the order of first run.

use super::entry::{Entry, Stale};
use super::notebook::{Look, News};
use super::turn::Place;
use super::{Conversation, Member, Write};

impl Conversation {
    /// Looks whether the notebook's file has news. Whoever may not wait for a disk asks [`Conversation::look`] before.
    pub(super) fn refresh(&mut self) {
        if let Some(look) = self.look() {
            self.learn(look.read());
        }
    }

    /// What to look at, for whoever may wait for a disk; `None`: there is no file.
    pub(crate) fn look(&self) -> Option<Look> {
        self.notebook.look()
    }

    /// Takes over what was seen there: another order, cells that were edited and not run again.
    pub(crate) fn learn(&mut self, news: News) {
        if !self.notebook.learn(news) {
            return;
        }
        let Some(written) = self.notebook.written() else { return };
        let order = self.order();
        let edited = order.iter().position(|at| {
            let entry = &self.entries[*at];
            let cell = self.notebook.find(entry.cell.as_deref());
            // A file that is older than the run says nothing about the cell that was run.
            cell.is_some_and(|cell| cell.print != entry.print && written > entry.made)
        });
        if let Some(first) = edited {
            self.mark(&order[first + 1..]);
        }
    }

    /// The turns from the top of the notebook to its end.
    pub(super) fn order(&self) -> Vec<usize> {
        let mut order: Vec<(usize, usize)> = Vec::with_capacity(self.entries.len());
        let mut lowest = 0;
        for (at, entry) in self.entries.iter().enumerate() {
            let known = self.notebook.find(entry.cell.as_deref());
            let place = known.map_or(lowest, |cell| cell.at);
            lowest = lowest.max(place);
            order.push((place, at));
        }
        order.sort_unstable();
        order.into_iter().map(|(_, at)| at).collect()
    }

    /// The turns above a place, from the top; the whole dialogue for a place that nobody knows.
    pub(super) fn above(&self, place: &Place) -> Vec<usize> {
        let mut order = self.order();
        let own = order.iter().position(|at| self.entries[*at].is_at(place));
        let end = own.or_else(|| {
            let here = self.notebook.find(place.cell.as_deref())?.at;
            // What the file does not know ran before, and stays above.
            order.iter().position(|at| {
                self.notebook.find(self.entries[*at].cell.as_deref()).is_some_and(|cell| cell.at > here)
            })
        });
        order.truncate(end.unwrap_or(order.len()));
        order
    }

    /// A turn is not what it was: what was answered below it was answered to something else.
    pub(super) fn changed(&mut self, at: usize) {
        let order = self.order();
        if let Some(own) = order.iter().position(|other| *other == at) {
            self.mark(&order[own + 1..]);
        }
    }

    fn mark(&mut self, turns: &[usize]) {
        let mut marked = Vec::new();
        for at in turns {
            let entry = &mut self.entries[*at];
            if entry.replied && entry.stale != Stale::News {
                entry.stale = Stale::News;
                marked.push(Member::of(entry));
            }
        }
        for member in marked {
            self.write(|| Write::Member { branch: self.branch, member });
        }
    }

    /// Whether the notebook's file has another text for the cell than the one that ran.
    pub(super) fn edited(&self, entry: &Entry) -> bool {
        let cell = self.notebook.find(entry.cell.as_deref());
        let newer = self.notebook.written().is_some_and(|written| written > entry.made);
        newer && cell.is_some_and(|cell| cell.print != entry.print)
    }
}
