//! Dialogues and history on disk: one `SQLite` database for all kernels of a user.
//!
//! May import `config` (for `Secret`). What happens is written as it happens, by a thread of its own: nobody who shows
//! a reply ever waits for a disk. Whatever is wrong with the database costs a warning, never a cell.
//!
//! | module | what |
//! | --- | --- |
//! | `schema` | the file: made, recognised, brought up to date |
//! | `write`, `writer` | what can be written down, and the thread that does it |
//! | `running` | what is written of code that still runs |
//! | `prune` | what is let go of, so that the file does not grow for ever |
//! | `read` | turns, branches and history, read back |
//! | `history` | what `history_request` asks for |

mod history;
mod prune;
mod read;
mod running;
mod schema;
mod write;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use rusqlite::Connection;

use super::conversation::{End, Said, Slot, Step};
use crate::config::Secret;

pub use history::{Access, Entry as HistoryEntry, Query as HistoryQuery, glob};
pub(crate) use running::{Output, Running};
pub(crate) use write::{Member, Write};

/// The most that may wait to be written, in bytes; beyond it the disk is given up.
const BACKLOG: usize = 64 << 20;
/// A reply is written down when it has grown by so much, in bytes, and each second.
const GROWN: usize = 4 << 10;
/// The longest that a reader waits for the writer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where dialogues are kept, and whose they are.
#[derive(Debug, Clone)]
pub struct Keeping {
    /// The database; `None`: in memory only.
    pub file: Option<PathBuf>,
    /// The notebook, when its path is known.
    pub notebook: Option<PathBuf>,
    /// The kernel's directory.
    pub directory: PathBuf,
}

impl Keeping {
    /// What dialogues are found again by: the notebook's path, or without one the directory's.
    fn key(&self) -> String {
        let path = self.notebook.as_ref().unwrap_or(&self.directory);
        let path = path.canonicalize().unwrap_or_else(|_| path.clone());
        let path = path.to_string_lossy();
        if self.notebook.is_some() { path.into_owned() } else { format!("{}/", path.trim_end_matches('/')) }
    }
}

/// How far the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Everything is written.
    Saved,
    /// Something waits to be written.
    Behind,
    /// Nothing is written any more.
    Off,
}

/// A step of a turn that is not whole yet.
#[derive(Debug)]
enum Draft {
    /// A reply that is still coming.
    Reply(Coming),
    /// Code that still runs.
    Run(Running),
}

/// A reply that is still coming.
#[derive(Debug)]
struct Coming {
    slot: Slot,
    text: String,
    /// How much of it is written.
    written: usize,
    /// How much of it the writer knows to be there.
    announced: usize,
}

/// What the writer and everybody else share.
#[derive(Debug)]
struct Shared {
    file: PathBuf,
    key: String,
    pending: AtomicUsize,
    off: AtomicBool,
    /// Whether the user knows that something can't be read.
    unreadable: AtomicBool,
    /// This kernel's number among the sessions of the database; 0: not known yet.
    session: AtomicI64,
    warnings: Mutex<Vec<String>>,
    secrets: Mutex<Vec<Secret>>,
    draft: Mutex<Option<Draft>>,
}

impl Shared {
    fn new(file: PathBuf, key: String) -> Self {
        Shared {
            file,
            key,
            pending: AtomicUsize::new(0),
            off: AtomicBool::new(false),
            unreadable: AtomicBool::new(false),
            session: AtomicI64::new(0),
            warnings: Mutex::default(),
            secrets: Mutex::default(),
            draft: Mutex::default(),
        }
    }

    fn warn(&self, what: &str) {
        let file = self.file.display();
        tracing::warn!(%file, "{what}");
        lock(&self.warnings).push(format!("The database of dialogues {file} {what}"));
    }
}

/// The store of one kernel. Nothing is opened before the first write or read.
#[derive(Debug)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    queue: OnceLock<mpsc::Sender<Write>>,
    reader: Mutex<Option<Connection>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each value is whole between any two statements that can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// The store of a kernel that keeps its dialogue in that file.
    pub(crate) fn new(file: &Path, keeping: &Keeping) -> Self {
        Store {
            shared: Arc::new(Shared::new(file.to_owned(), keeping.key())),
            queue: OnceLock::new(),
            reader: Mutex::default(),
        }
    }

    fn queue(&self) -> &mpsc::Sender<Write> {
        self.queue.get_or_init(|| {
            let (sender, receiver) = mpsc::channel();
            let shared = Arc::clone(&self.shared);
            let thread = std::thread::Builder::new().name("cellblock-store".to_owned());
            if let Err(error) = thread.spawn(move || writer::run(&shared, &receiver)) {
                self.shared.off.store(true, Ordering::SeqCst);
                let what = format!("is not used: no thread could be started ({error}). Nothing is saved.");
                self.shared.warn(&what);
            }
            sender
        })
    }

    /// Writes it down soon.
    pub(crate) fn write(&self, write: Write) {
        if self.shared.off.load(Ordering::SeqCst) {
            return;
        }
        let weight = write.weight();
        if self.shared.pending.fetch_add(weight, Ordering::SeqCst) + weight > BACKLOG {
            self.shared.off.store(true, Ordering::SeqCst);
            self.shared.warn("does not take what is to be written. From here on nothing is saved.");
            return;
        }
        // The thread ends early only when it has turned the store off.
        let _ = self.queue().send(write);
    }

    /// How far the disk is.
    pub(crate) fn standing(&self) -> Standing {
        if self.shared.off.load(Ordering::SeqCst) {
            Standing::Off
        } else if self.shared.pending.load(Ordering::SeqCst) == 0 {
            Standing::Saved
        } else {
            Standing::Behind
        }
    }

    /// Waits until everything before is written, for a bounded time; whether it is.
    pub(crate) fn flush(&self) -> bool {
        let (done, written) = mpsc::channel();
        self.write(Write::Flush(done));
        written.recv_timeout(PATIENCE).is_ok() && self.standing() != Standing::Off
    }

    /// Waits for what is still to be written, if anything ever was.
    pub(crate) fn close(&self) {
        if self.queue.get().is_some() {
            self.flush();
        }
    }

    /// Keys to take out of everything that is written.
    pub(crate) fn hide(&self, secrets: Vec<Secret>) {
        *lock(&self.shared.secrets) = secrets;
    }

    /// What the user should be told since the last time.
    pub(crate) fn warnings(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.shared.warnings))
    }

    /// The reply that was coming is there, or will not come: what is written next counts.
    pub(crate) fn settle(&self) {
        lock(&self.shared.draft).take();
    }

    /// Code runs: what is to be known of it is written now and looked at each second from here on.
    pub(crate) fn running(&self, running: Running) -> Partial {
        *lock(&self.shared.draft) = Some(Draft::Run(running));
        if self.standing() != Standing::Off {
            self.write(Write::Draft);
        }
        Partial { shared: Arc::clone(&self.shared), queue: None }
    }

    /// A reply begins to come.
    pub(crate) fn draft(&self, slot: Slot) -> Partial {
        let coming = Coming { slot, text: String::new(), written: 0, announced: 0 };
        *lock(&self.shared.draft) = Some(Draft::Reply(coming));
        let queue = (self.standing() != Standing::Off).then(|| self.queue().clone());
        Partial { shared: Arc::clone(&self.shared), queue }
    }
}

/// A reply, or what code shows, that is written down while it comes, never later than a moment after it was shown.
#[derive(Debug)]
pub(crate) struct Partial {
    shared: Arc<Shared>,
    queue: Option<mpsc::Sender<Write>>,
}

impl Partial {
    /// The reply grew.
    pub(crate) fn grew(&self, delta: &str) {
        let Some(queue) = &self.queue else { return };
        let mut draft = lock(&self.shared.draft);
        let Some(Draft::Reply(draft)) = draft.as_mut() else { return };
        let first = draft.text.is_empty();
        draft.text.push_str(delta);
        // The writer looks each second once it knows that there is something.
        if first || draft.text.len() - draft.announced >= GROWN {
            draft.announced = draft.text.len();
            self.shared.pending.fetch_add(1, Ordering::SeqCst);
            let _ = queue.send(Write::Draft);
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // The reply was written whole before this, or there is none.
        lock(&self.shared.draft).take();
    }
}

impl Draft {
    /// What is to be written of it; `None`: nothing new.
    fn news(&mut self) -> Option<Write> {
        match self {
            Draft::Reply(coming) => coming.news(),
            Draft::Run(running) => running.news(),
        }
    }

    /// Nothing of it is written after all.
    fn unwritten(&mut self) {
        match self {
            Draft::Reply(coming) => coming.written = 0,
            Draft::Run(running) => running.unwritten(),
        }
    }
}

impl Coming {
    fn news(&mut self) -> Option<Write> {
        if self.written == self.text.len() || self.text.trim().is_empty() {
            return None;
        }
        self.written = self.text.len();
        let said = Said { text: self.text.clone(), calls: Vec::new(), end: End::Lost, within: None };
        Some(Write::Partial {
            turn: self.slot.turn,
            number: self.slot.step,
            size: self.slot.size + self.text.len(),
            step: Step::Said(said),
        })
    }
}
