//! What can be written down, one by one.

use std::sync::mpsc;

use rusqlite::{Connection, params};

use crate::chat::conversation::{Entry, Stale, Step};

/// A turn's place in a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Member {
    turn: i64,
    rank: i64,
    hidden: bool,
    pinned: bool,
    stale: bool,
}

impl Member {
    pub(crate) fn of(entry: &Entry) -> Self {
        let Entry { id: turn, rank, hidden, pinned, .. } = *entry;
        Member { turn, rank, hidden, pinned, stale: entry.stale != Stale::No }
    }
}

/// Something to write down.
#[derive(Debug)]
pub(crate) enum Write {
    /// A branch with its turns, in the place of what was known of it; it is the present one.
    Branch { id: i64, name: String, members: Vec<Member> },
    /// A branch is the present one.
    Use { branch: i64 },
    /// A branch is not to be brought back.
    Close { branch: i64 },
    /// A turn begins.
    Turn { id: i64, cell: Option<String>, source: String, print: i64, made: i64 },
    /// A turn stands in a branch, like this.
    Member { branch: i64, member: Member },
    /// Turns leave a branch.
    Drop { branch: i64, turns: Vec<i64> },
    /// Something happened in a turn.
    Step { turn: i64, number: usize, step: Step, label: String, size: usize, replied: bool },
    /// A reply as far as it has come.
    Partial { turn: i64, number: usize, step: Step, size: usize },
    /// There is news of the reply that is coming.
    Draft,
    /// A cell for the history.
    Line { line: u32, input: String, output: Option<String> },
    /// Everything before is to be written; then say so.
    Flush(mpsc::Sender<()>),
}

impl Write {
    /// About how much memory it takes, at least 1.
    pub(super) fn weight(&self) -> usize {
        100 + match self {
            Write::Branch { members, .. } => members.len() * size_of::<Member>(),
            Write::Turn { source, .. } => source.len(),
            Write::Step { step, .. } | Write::Partial { step, .. } => step.weight(),
            Write::Line { input, output, .. } => input.len() + output.as_ref().map_or(0, String::len),
            Write::Drop { turns, .. } => turns.len() * 8,
            // Counted where it is sent.
            Write::Draft => return 1,
            Write::Use { .. } | Write::Close { .. } | Write::Member { .. } | Write::Flush(_) => 0,
        }
    }

    /// Whether it is the whole of the step that a draft has the beginning of.
    pub(super) fn replaces(&self, draft: &Write) -> bool {
        match (self, draft) {
            (
                Write::Step { turn, number, .. },
                Write::Partial { turn: of, number: at, .. } | Write::Step { turn: of, number: at, .. },
            ) => (turn, number) == (of, at),
            _ => false,
        }
    }

    /// Writes it down, as this session of that key; `clean` takes out what must not be written.
    pub(super) fn apply(
        &self,
        connection: &Connection,
        (session, key): (i64, &str),
        clean: &dyn Fn(&str) -> String,
    ) -> rusqlite::Result<()> {
        let run =
            |sql: &str, values: &[&dyn rusqlite::ToSql]| connection.prepare(sql)?.execute(values).map(|_| ());
        let now = chrono::Utc::now().timestamp_millis();
        match self {
            Write::Branch { id, name, members } => {
                run(
                    "INSERT INTO branch (id, session, key, name, used) VALUES (?1, ?2, ?3, ?4, ?5)
                     ON CONFLICT (id) DO UPDATE SET name = ?4, used = ?5",
                    params![id, session, key, clean(name), now],
                )?;
                run("DELETE FROM member WHERE branch = ?", params![id])?;
                join(connection, *id, members)
            }
            Write::Use { branch } => run("UPDATE branch SET used = ? WHERE id = ?", params![now, branch]),
            Write::Close { branch } => run("UPDATE branch SET closed = 1 WHERE id = ?", params![branch]),
            Write::Turn { id, cell, source, print, made } => {
                run(
                    "INSERT INTO turn (id, session, cell, print, made) VALUES (?, ?, ?, ?, ?)",
                    params![id, session, cell, print, made],
                )?;
                run("INSERT INTO source (turn, text) VALUES (?, ?)", params![id, clean(source)])
            }
            Write::Member { branch, member } => {
                join(connection, *branch, std::slice::from_ref(member))?;
                run("UPDATE branch SET used = ? WHERE id = ?", params![now, branch])
            }
            Write::Drop { branch, turns } => turns.iter().try_for_each(|turn| {
                run("DELETE FROM member WHERE branch = ? AND turn = ?", params![branch, turn])
            }),
            Write::Step { turn, number, step, label, size, replied } => {
                put(connection, *turn, *number, &clean(&body(step)))?;
                run(
                    "UPDATE turn SET label = ?, size = ?, replied = ? WHERE id = ?",
                    params![clean(label), integer(*size), replied, turn],
                )
            }
            Write::Partial { turn, number, step, size } => {
                put(connection, *turn, *number, &clean(&body(step)))?;
                run("UPDATE turn SET size = ?, replied = 1 WHERE id = ?", params![integer(*size), turn])
            }
            Write::Line { line, input, output } => run(
                "INSERT OR REPLACE INTO line (session, key, line, input, output) VALUES (?, ?, ?, ?, ?)",
                params![session, key, line, clean(input), output.as_deref().map(clean)],
            ),
            Write::Draft | Write::Flush(_) => Ok(()),
        }
    }
}

fn body(step: &Step) -> String {
    // Strings, numbers and lists of them: there is nothing in a step that JSON can't say.
    serde_json::to_string(step).unwrap_or_default()
}

fn integer(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

fn join(connection: &Connection, branch: i64, members: &[Member]) -> rusqlite::Result<()> {
    let sql =
        "INSERT OR REPLACE INTO member (branch, turn, rank, hidden, pinned, stale) VALUES (?, ?, ?, ?, ?, ?)";
    let mut statement = connection.prepare(sql)?;
    members.iter().try_for_each(|member| {
        let Member { turn, rank, hidden, pinned, stale } = member;
        statement.execute(params![branch, turn, rank, hidden, pinned, stale]).map(|_| ())
    })
}

fn put(connection: &Connection, turn: i64, number: usize, body: &str) -> rusqlite::Result<()> {
    let sql = "INSERT INTO step (turn, number, body) VALUES (?1, ?2, ?3)
               ON CONFLICT (turn, number) DO UPDATE SET body = ?3";
    connection.prepare(sql)?.execute(params![turn, integer(number), body]).map(|_| ())
}
