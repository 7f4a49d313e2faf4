//! A turn's place in a dialogue: where it stands, what is known of it without its text.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::turn::{Body, Place};

/// Whether something above a turn changed after it was answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Stale {
    /// Nothing did.
    #[default]
    No,
    /// It did, and the user has not been told.
    News,
    /// It did, and the user knows.
    Told,
}

/// A turn in a dialogue. Its text may lie in the store alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Entry {
    /// The turn's identity, the same in every branch and in the store.
    pub(crate) id: i64,
    /// Which execution of this kernel made it; 0: an earlier kernel did.
    pub(crate) execution: u64,
    /// The cell's identity, when its front end has one for it.
    pub(crate) cell: Option<String>,
    /// Its rank by first run.
    pub(crate) rank: i64,
    /// When it was made, in milliseconds since 1970.
    pub(crate) made: i64,
    /// A fingerprint of the cell's text.
    pub(crate) print: i64,
    /// Its first words.
    pub(crate) label: String,
    /// What it takes of the window of later requests, in bytes.
    pub(crate) size: usize,
    /// Whether the model has answered.
    pub(crate) replied: bool,
    /// Whether the user keeps it from the model.
    pub(crate) hidden: bool,
    /// Whether the user wants it sent however full the window is.
    pub(crate) pinned: bool,
    /// Whether something above it changed.
    pub(crate) stale: Stale,
    /// What happened; `None`: it has to be read from the store.
    pub(crate) body: Option<Arc<Body>>,
}

impl Entry {
    /// An execution in which nothing has happened.
    pub(super) fn new(place: &Place, id: i64, rank: i64) -> Self {
        Entry {
            id,
            execution: place.execution,
            cell: place.cell.clone(),
            rank,
            made: chrono::Utc::now().timestamp_millis(),
            print: print(&place.source),
            body: Some(Arc::new(Body::new(place))),
            ..Entry::default()
        }
    }

    /// Whether it is that execution's, or the cell's.
    pub(super) fn is_at(&self, place: &Place) -> bool {
        self.execution == place.execution || (self.cell.is_some() && self.cell == place.cell)
    }

    /// Takes over from the body what can be known without it.
    pub(super) fn renew(&mut self) {
        if let Some(body) = &self.body {
            self.size = body.told_size();
            self.label = body.label();
            self.replied = body.replied();
        }
    }
}

/// A fingerprint of a cell's text.
pub(super) fn print(source: &str) -> i64 {
    let hash = Sha256::digest(source.as_bytes());
    hash.iter().take(8).fold(0, |print, byte| (print << 8) | i64::from(*byte))
}

/// Identities of turns and branches: they grow with time, and no two kernels make the same.
#[derive(Debug, Default)]
pub(super) struct Identities {
    last: i64,
}

impl Identities {
    pub(super) fn next(&mut self) -> i64 {
        let made = (chrono::Utc::now().timestamp_millis() << 20) | fastrand::i64(0..1 << 20);
        self.last = made.max(self.last + 1);
        self.last
    }
}
