//! Turns and branches, read back. What can't be read is as if it were not there, and that is said once.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use rusqlite::{Connection, OptionalExtension, params};

use super::schema::{self, Problem};
use super::{Standing, Store, lock};
use crate::chat::conversation::{Body, Entry, Resumed, Stale, Step};

impl Store {
    /// Reads what is written by now; `None`, with one warning, when the database can't be read.
    pub(super) fn read<T>(&self, read: impl Fn(&Connection) -> Result<T, Problem>) -> Option<T> {
        if self.standing() == Standing::Off {
            return None;
        }
        let mut reader = lock(&self.reader);
        let result = match reader.take().map_or_else(|| schema::read(&self.shared.file), Ok) {
            Ok(connection) => read(&connection).inspect(|_| *reader = Some(connection)),
            Err(problem) => Err(problem),
        };
        let failed = |problem: &Problem| {
            if !self.shared.unreadable.swap(true, Ordering::SeqCst) {
                self.shared.warn(&format!("{problem}; what can't be read of it is left out."));
            }
        };
        result.inspect_err(failed).ok()
    }

    /// The texts of these turns, as far as they can be read.
    pub(crate) fn bodies(&self, turns: &[i64]) -> HashMap<i64, Body> {
        let found = self.read(|connection| {
            let mut sources = connection.prepare("SELECT text FROM source WHERE turn = ?")?;
            let mut steps = connection.prepare("SELECT body FROM step WHERE turn = ? ORDER BY number")?;
            let mut bodies = HashMap::new();
            for turn in turns {
                let source: Option<String> = sources.query_row([turn], |row| row.get(0)).optional()?;
                let texts: Vec<String> =
                    steps.query_map([turn], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
                let steps: Vec<Step> =
                    texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
                bodies.insert(*turn, Body { source: source.unwrap_or_default(), steps });
            }
            Ok(bodies)
        });
        found.unwrap_or_default()
    }

    /// What the kernel before this one left of the same notebook; `None`: nothing.
    pub(crate) fn previous(&self) -> Option<Resumed> {
        // The writer knows which session is our own once it has written something.
        self.flush();
        self.read(|connection| {
            let own = self.shared.session.load(Ordering::SeqCst);
            let last: Option<(i64, i64)> = connection
                .prepare(
                    "SELECT session, used FROM branch WHERE key = ? AND session != ? AND closed = 0
                     AND EXISTS (SELECT 1 FROM member WHERE branch = branch.id) ORDER BY used DESC, id DESC LIMIT 1",
                )?
                .query_row(params![self.shared.key, own], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let Some((session, used)) = last else { return Ok(None) };
            let branches: Vec<(i64, String)> = connection
                .prepare(
                    "SELECT id, name FROM branch WHERE session = ? AND closed = 0 ORDER BY used DESC, id DESC",
                )?
                .query_map([session], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?;
            let mut resumed = Resumed { branches: Vec::new(), used };
            for (id, name) in branches {
                resumed.branches.push((name, entries(connection, id)?));
            }
            Ok(Some(resumed))
        })
        .flatten()
    }
}

/// The turns of a branch by rank, without their texts.
fn entries(connection: &Connection, branch: i64) -> Result<Vec<Entry>, Problem> {
    let mut statement = connection.prepare(
        "SELECT turn.id, cell, rank, made, print, label, size, replied, hidden, pinned, stale
         FROM member JOIN turn ON turn.id = member.turn WHERE branch = ? ORDER BY rank",
    )?;
    let entries = statement.query_map([branch], |row| {
        let size: i64 = row.get(6)?;
        Ok(Entry {
            id: row.get(0)?,
            execution: 0,
            cell: row.get(1)?,
            rank: row.get(2)?,
            made: row.get(3)?,
            print: row.get(4)?,
            label: row.get(5)?,
            size: usize::try_from(size).unwrap_or_default(),
            replied: row.get(7)?,
            hidden: row.get(8)?,
            pinned: row.get(9)?,
            stale: if row.get(10)? { Stale::News } else { Stale::No },
            body: None,
        })
    })?;
    Ok(entries.collect::<rusqlite::Result<_>>()?)
}
