//! What is let go of when a kernel begins to write, so that the file does not grow for ever.

use rusqlite::{Connection, params};

/// The kernels of one notebook whose dialogues are kept: those that were used last. Each began with what it resumed.
const DIALOGUES: i64 = 20;
/// The cells of one notebook's history.
const LINES: i64 = 100_000;
/// How long a dialogue is kept in any case, for its kernel may live, and a turn that is in no dialogue any more (replaced, taken back, deleted), in milliseconds.
const REPLACED: i64 = 30 * 24 * 60 * 60 * 1000;

/// Lets go of what is old of that notebook, and of turns that nothing refers to.
pub(super) fn prune(connection: &Connection, key: &str, now: i64) -> rusqlite::Result<()> {
    let old = "SELECT id FROM branch WHERE key = ?1 AND session NOT IN
               (SELECT session FROM branch WHERE key = ?1 GROUP BY session ORDER BY max(used) DESC LIMIT ?2)
               AND session NOT IN (SELECT session FROM branch WHERE key = ?1 AND used >= ?3)";
    connection.execute(
        &format!("DELETE FROM member WHERE branch IN ({old})"),
        params![key, DIALOGUES, now - REPLACED],
    )?;
    connection.execute(
        &format!("DELETE FROM branch WHERE id IN ({old})"),
        params![key, DIALOGUES, now - REPLACED],
    )?;
    connection.execute(
        "DELETE FROM line WHERE key = ?1
         AND id <= (SELECT id FROM line WHERE key = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        params![key, LINES],
    )?;
    let unused = "SELECT id FROM turn WHERE made < ?1 AND id NOT IN (SELECT turn FROM member)";
    for (table, column) in [("step", "turn"), ("source", "turn"), ("turn", "id")] {
        connection
            .execute(&format!("DELETE FROM {table} WHERE {column} IN ({unused})"), params![now - REPLACED])?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::chat::store::schema;

    #[test]
    fn old_dialogues_go_and_what_is_used_stays() {
        let folder = tempfile::tempdir().unwrap();
        let database = schema::open(&folder.path().join("d.sqlite")).unwrap();
        let run = |sql: &str, values: [i64; 2]| database.execute(sql, values).unwrap();
        let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        // Thirty kernels, each with a turn of its own and one that all of them share.
        for n in 1..=30 {
            run("INSERT INTO branch (id, session, key, name, used) VALUES (?1, ?1, 'k', 'main', ?2)", [n, n]);
            run("INSERT INTO turn (id, session, print, made) VALUES (?1, ?1, 0, ?2)", [n, 0]);
            run("INSERT INTO step (turn, number, body) VALUES (?1, ?2, '{}')", [n, 0]);
            for turn in [n, 1] {
                run(
                    "INSERT OR REPLACE INTO member (branch, turn, rank, hidden, pinned, stale)
                     VALUES (?1, ?2, 0, 0, 0, 0)",
                    [n, turn],
                );
            }
        }
        run(
            "INSERT INTO branch (id, session, key, name, used) VALUES (?1, ?1, 'other', 'main', ?2)",
            [99, 0],
        );
        // Their kernels may live.
        prune(&database, "k", REPLACED + 1).unwrap();
        assert_eq!(count("SELECT count(*) FROM branch WHERE key = 'k'"), 30);
        prune(&database, "k", REPLACED + 100).unwrap();
        assert_eq!(count("SELECT count(*) FROM branch WHERE key = 'k'"), DIALOGUES);
        assert_eq!(count("SELECT min(id) FROM branch WHERE key = 'k'"), 11);
        assert_eq!(count("SELECT count(*) FROM branch WHERE key = 'other'"), 1);
        assert_eq!(count("SELECT count(*) FROM turn"), DIALOGUES + 1);
        assert_eq!(count("SELECT count(*) FROM step"), DIALOGUES + 1);
        // What was replaced a moment ago is kept for a while.
        run("INSERT INTO turn (id, session, print, made) VALUES (?1, 30, 0, ?2)", [50, REPLACED]);
        prune(&database, "k", REPLACED + 1).unwrap();
        assert_eq!(count("SELECT count(*) FROM turn"), DIALOGUES + 2);
    }
}
