//! The thread that writes: in order, in few transactions, with patience for other kernels.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior, params};

use super::prune::prune;
use super::schema::{self, Problem};
use super::{Shared, Write, lock};
use crate::chat::mask::masked;

/// How often what is coming is written, and a disk that refused is tried again.
const PULSE: Duration = Duration::from_secs(1);
/// The most that goes into one transaction.
const BATCH: usize = 256;

/// What the thread has at hand.
struct Writer<'a> {
    shared: &'a Shared,
    queue: &'a Receiver<Write>,
    connection: Option<Connection>,
    /// Which file that is.
    file: Option<(u64, u64)>,
    waiting: VecDeque<Write>,
    /// Whether the user knows that the disk refuses.
    told: bool,
}

/// Writes until nobody can send any more.
pub(super) fn run(shared: &Shared, queue: &Receiver<Write>) {
    let mut writer =
        Writer { shared, queue, connection: None, file: None, waiting: VecDeque::new(), told: false };
    loop {
        let busy = !writer.waiting.is_empty() || lock(&shared.draft).is_some();
        let first = if busy {
            queue.recv_timeout(PULSE)
        } else {
            queue.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        let ended = matches!(first, Err(RecvTimeoutError::Disconnected));
        writer.waiting.extend(first.ok());
        writer.waiting.extend(std::iter::from_fn(|| queue.try_recv().ok()).take(BATCH));
        writer.work();
        if ended {
            return;
        }
    }
}

impl Writer<'_> {
    fn work(&mut self) {
        if !self.shared.off.load(Ordering::SeqCst)
            && let Err(problem) = self.attempt()
        {
            if let Some(draft) = lock(&self.shared.draft).as_mut() {
                draft.unwritten();
            }
            self.failed(&problem);
        }
        if self.shared.off.load(Ordering::SeqCst) {
            // Dropping the flushes tells those who wait for them.
            self.waiting.clear();
            self.shared.pending.store(0, Ordering::SeqCst);
            self.connection = None;
        }
    }

    fn failed(&mut self, problem: &Problem) {
        if problem.passes() {
            if !std::mem::replace(&mut self.told, true) {
                let what =
                    format!("{problem}. Until that ends nothing is saved; it is tried again each second.");
                self.shared.warn(&what);
            }
            return;
        }
        self.shared.off.store(true, Ordering::SeqCst);
        let advice = match problem {
            Problem::Newer(_) => "Update Cellblock to use it.",
            Problem::Gone => "Restart the kernel to begin a new one.",
            Problem::Foreign => "Set conversation.file to another path.",
            Problem::File(_) => "Make its folder writable, or set conversation.file to another path.",
            Problem::Sqlite(_) => "Move the file away to begin a new one.",
        };
        self.shared.warn(&format!("{problem}. This kernel's dialogue is kept in memory only. {advice}"));
    }

    /// Writes what waits. What is not written stays.
    fn attempt(&mut self) -> Result<(), Problem> {
        if self.connection.is_none() {
            let mut connection = schema::open(&self.shared.file)?;
            let now = chrono::Utc::now().timestamp_millis();
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            prune(&change, &self.shared.key, now)?;
            change
                .execute("INSERT INTO session (key, started) VALUES (?, ?)", params![self.shared.key, now])?;
            let session = change.last_insert_rowid();
            change.commit()?;
            self.shared.session.store(session, Ordering::SeqCst);
            self.connection = Some(connection);
            self.file = schema::identity(&self.shared.file);
        }
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let draft = lock(&self.shared.draft).as_mut().and_then(super::Draft::news);
        if draft.is_none() && self.waiting.is_empty() {
            return Ok(());
        }
        if schema::identity(&self.shared.file) != self.file {
            return Err(Problem::Gone);
        }
        let secrets = lock(&self.shared.secrets).clone();
        let clean = |text: &str| masked(text, &secrets);
        let who = (self.shared.session.load(Ordering::SeqCst), self.shared.key.as_str());
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Its turn may have been sent while the disk was waited for: it comes before the draft. The whole reply comes
        // after the draft; where it waits already, there is no use for that.
        if draft.is_some() {
            self.waiting.extend(self.queue.try_iter());
        }
        let draft = draft.filter(|draft| !self.waiting.iter().any(|write| write.replaces(draft)));
        for write in self.waiting.iter().chain(&draft) {
            match write.apply(&change, who, &clean) {
                Err(error) if schema::passes(&error) || !schema::is_single(&error) => {
                    return Err(error.into());
                }
                Err(error) => tracing::warn!(%error, "something of the dialogue could not be saved"),
                Ok(()) => {}
            }
        }
        change.commit()?;
        let written: usize = self.waiting.iter().map(Write::weight).sum();
        self.shared.pending.fetch_sub(written, Ordering::SeqCst);
        for write in self.waiting.drain(..) {
            if let Write::Flush(done) = write {
                // Whoever waited may have given up.
                let _ = done.send(());
            }
        }
        if std::mem::replace(&mut self.told, false) {
            self.shared.warn("takes what is to be written again; nothing is lost.");
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::chat::conversation::{End, Said, Slot, Step};
    use crate::chat::store::{Coming, Draft};
    use crate::chat::turn::Prompt;

    fn shared(folder: &std::path::Path) -> Shared {
        Shared::new(folder.join("d.sqlite"), "k".into())
    }

    fn step(number: usize, step: Step, replied: bool) -> Write {
        Write::Step { turn: 7, number, step, label: "?".into(), size: 0, replied }
    }

    /// The turn's mark of an answer, and the text of its second step.
    fn written(shared: &Shared) -> (bool, String) {
        let database = schema::read(&shared.file).unwrap();
        let sql = "SELECT replied, body FROM turn JOIN step ON step.turn = turn.id AND number = 1";
        database.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    }

    #[test]
    fn the_beginning_of_a_reply_counts_however_late_the_writer_learns_of_its_turn() {
        let folder = tempfile::tempdir().unwrap();
        let shared = shared(folder.path());
        let (queue, receiver) = mpsc::channel();
        let mut writer = Writer {
            shared: &shared,
            queue: &receiver,
            connection: None,
            file: None,
            waiting: VecDeque::from([Write::Draft]),
            told: false,
        };
        // The writer was at work when the turn began and the first words came.
        queue.send(Write::Turn { id: 7, cell: None, source: "?".into(), print: 0, made: 0 }).unwrap();
        queue.send(step(0, Step::Asked(Prompt::text("?")), false)).unwrap();
        let slot = Slot { turn: 7, step: 1, size: 1 };
        let coming = Coming { slot, text: "as far as".into(), written: 0, announced: 0 };
        *lock(&shared.draft) = Some(Draft::Reply(coming));
        writer.work();
        let (replied, body) = written(&shared);
        assert!(replied && body.contains("as far as") && body.contains("lost"), "{body}");
        // The whole of it is not overwritten by a draft that was looked at just before.
        if let Some(Draft::Reply(coming)) = &mut *lock(&shared.draft) {
            coming.text.push_str(" here");
        }
        let said =
            Said { text: "as far as here, whole".into(), calls: Vec::new(), end: End::Whole, within: None };
        queue.send(step(1, Step::Said(said), true)).unwrap();
        writer.work();
        let (replied, body) = written(&shared);
        assert!(replied && body.contains("whole") && !body.contains("lost"), "{body}");
    }
}
