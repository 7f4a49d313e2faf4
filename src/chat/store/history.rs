//! What `history_request` asks for: cells that were run, over all kernels of the same notebook.

use std::sync::atomic::Ordering;

use rusqlite::{Connection, params};

use super::Store;
use super::schema::Problem;

/// The most entries of one answer.
const MOST: usize = 10_000;
/// The most cells that a search looks through.
const SEARCHED: usize = 100_000;

/// A cell that was run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which kernel ran it: a number that grows.
    pub session: i64,
    /// Its execution count there.
    pub line: u32,
    /// Its text.
    pub input: String,
    /// The text of its result.
    pub output: Option<String>,
}

/// Which cells are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Lines `start..stop` of a session; 0 is the present one, negative ones count back from it. Negative lines count
    /// back from the next one.
    Range {
        /// Which session.
        session: i64,
        /// The first line.
        start: i64,
        /// The line behind the last; `None`: to the end.
        stop: Option<i64>,
    },
    /// The newest.
    Tail,
    /// The newest that fit a pattern, in which `*` is any text and `?` any one character.
    Search(String),
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// Which cells.
    pub access: Access,
    /// The most of them, of a tail or a search.
    pub most: usize,
    /// Whether of equal inputs only the newest counts.
    pub unique: bool,
}

impl Store {
    /// The cells that are asked for, oldest first; `None`: the database can't say.
    pub(crate) fn history(&self, query: &Query) -> Option<Vec<Entry>> {
        self.flush();
        let own = self.shared.session.load(Ordering::SeqCst);
        self.read(|connection| match &query.access {
            Access::Range { session, start, stop } => {
                let Some(session) = self.session(connection, own, *session)? else { return Ok(Vec::new()) };
                range(connection, session, *start, *stop)
            }
            Access::Tail => self.last(connection, query, None),
            Access::Search(pattern) => {
                let pattern: Vec<char> = pattern.chars().collect();
                self.last(connection, query, Some(&pattern))
            }
        })
    }

    /// The session that a number means.
    fn session(&self, connection: &Connection, own: i64, number: i64) -> Result<Option<i64>, Problem> {
        if number == 0 || number == own {
            return Ok(Some(own));
        }
        let key = &self.shared.key;
        let mut found = if number > 0 {
            connection
                .prepare("SELECT id FROM session WHERE key = ? AND id = ?")?
                .query_map(params![key, number], |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<i64>>>()?
        } else {
            connection
                .prepare(
                    "SELECT id FROM session WHERE key = ? AND id < ?
                     AND EXISTS (SELECT 1 FROM line WHERE session = session.id) ORDER BY id DESC LIMIT 1 OFFSET ?",
                )?
                .query_map(params![key, own, -(number + 1)], |row| row.get(0))?
                .collect::<rusqlite::Result<Vec<i64>>>()?
        };
        Ok(found.pop())
    }

    /// The newest that fit.
    fn last(
        &self,
        connection: &Connection,
        query: &Query,
        pattern: Option<&[char]>,
    ) -> Result<Vec<Entry>, Problem> {
        let mut statement = connection.prepare(
            "SELECT session, line, input, output FROM line WHERE key = ? ORDER BY id DESC LIMIT ?",
        )?;
        let looked = i64::try_from(SEARCHED).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![self.shared.key, looked])?;
        let mut seen = std::collections::HashSet::new();
        let mut found = Vec::new();
        while found.len() < query.most.min(MOST)
            && let Some(row) = rows.next()?
        {
            let entry = entry(row)?;
            let fits = pattern.is_none_or(|pattern| glob(pattern, &entry.input));
            if fits && (!query.unique || seen.insert(entry.input.clone())) {
                found.push(entry);
            }
        }
        found.reverse();
        Ok(found)
    }
}

fn range(
    connection: &Connection,
    session: i64,
    start: i64,
    stop: Option<i64>,
) -> Result<Vec<Entry>, Problem> {
    let next: i64 = connection
        .prepare("SELECT coalesce(max(line), 0) + 1 FROM line WHERE session = ?")?
        .query_row([session], |row| row.get(0))?;
    let absolute = |line: i64| if line < 0 { next.saturating_add(line) } else { line };
    let (start, stop) = (absolute(start), stop.map_or(i64::MAX, absolute));
    let mut statement = connection.prepare(
        "SELECT session, line, input, output FROM line WHERE session = ? AND line >= ? AND line < ?
         ORDER BY line LIMIT ?",
    )?;
    let most = i64::try_from(MOST).unwrap_or(i64::MAX);
    let rows = statement.query_map(params![session, start, stop, most], entry)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn entry(row: &rusqlite::Row<'_>) -> rusqlite::Result<Entry> {
    Ok(Entry { session: row.get(0)?, line: row.get(1)?, input: row.get(2)?, output: row.get(3)? })
}

/// Whether the text fits a pattern in which `*` is any text and `?` any one character.
///
/// Brackets stand for themselves: in code they are far more often meant so. Takes at most
/// pattern times text steps, so a hostile pattern cannot stall the kernel.
pub fn glob(pattern: &[char], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last star does not fit.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p + 1, t));
                p += 1;
            }
            Some('?') => (p, t) = (p + 1, t + 1),
            Some(c) if *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match retry {
                Some((after, from)) => {
                    retry = Some((after, from + 1));
                    (p, t) = (after, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_pattern_ends() {
        let pattern: Vec<char> = "*a".repeat(500).chars().chain("b".chars()).collect();
        assert!(!glob(&pattern, &"a".repeat(5_000)));
    }
}
