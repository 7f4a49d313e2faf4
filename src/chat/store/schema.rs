//! The database's file: made with tight permissions, recognised as ours, brought up to date.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use rustix::fs::{Mode, OFlags};

/// The version of the schema that this program writes.
const VERSION: i64 = 1;
/// Marks the file as ours (`SQLite`'s `application_id`).
const OURS: i64 = 0x4365_6c6c;
/// The longest that another kernel's write is waited for.
const BUSY: Duration = Duration::from_secs(5);

/// From nothing to version 1.
const FIRST: &str = "
    CREATE TABLE session (
        id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, started INTEGER NOT NULL
    );
    CREATE TABLE branch (
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL,
        used INTEGER NOT NULL, closed INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX branch_key ON branch (key, used);
    CREATE TABLE turn (
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, cell TEXT, print INTEGER NOT NULL, made INTEGER NOT NULL,
        label TEXT NOT NULL DEFAULT '', size INTEGER NOT NULL DEFAULT 0, replied INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE member (
        branch INTEGER NOT NULL, turn INTEGER NOT NULL, rank INTEGER NOT NULL, hidden INTEGER NOT NULL,
        pinned INTEGER NOT NULL, stale INTEGER NOT NULL, PRIMARY KEY (branch, turn)
    ) WITHOUT ROWID;
    CREATE TABLE source (turn INTEGER PRIMARY KEY, text TEXT NOT NULL);
    CREATE TABLE step (
        id INTEGER PRIMARY KEY, turn INTEGER NOT NULL, number INTEGER NOT NULL, body TEXT NOT NULL,
        UNIQUE (turn, number)
    );
    CREATE TABLE line (
        id INTEGER PRIMARY KEY, session INTEGER NOT NULL, key TEXT NOT NULL, line INTEGER NOT NULL,
        input TEXT NOT NULL, output TEXT, UNIQUE (session, line)
    );
    CREATE INDEX line_key ON line (key, id);
";

/// Why the database can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("was written by a newer Cellblock (schema {0}; this one knows {VERSION})")]
    Newer(i64),
    #[error("belongs to another program")]
    Foreign,
    #[error("was removed or replaced while this kernel used it")]
    Gone,
    #[error("can't be opened: {0}")]
    File(#[from] std::io::Error),
    #[error("can't be used: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl Problem {
    /// Whether waiting may help.
    pub(super) fn passes(&self) -> bool {
        match self {
            Problem::Sqlite(error) => passes(error),
            Problem::Newer(_) | Problem::Foreign | Problem::Gone | Problem::File(_) => false,
        }
    }
}

/// Whether an error of `SQLite` may be gone the next time.
pub(super) fn passes(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull)
    )
}

/// Whether an error of `SQLite` concerns one statement, and not the file.
pub(super) fn is_single(error: &rusqlite::Error) -> bool {
    !matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ReadOnly
                | ErrorCode::CannotOpen
                | ErrorCode::SystemIoFailure
                | ErrorCode::PermissionDenied
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::OutOfMemory
        )
    )
}

/// Which file is there: its device and number. Who keeps a removed one open writes to nowhere.
pub(super) fn identity(file: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    file.metadata().ok().map(|file| (file.dev(), file.ino()))
}

/// Opens the database, which is made when it is not there.
pub(super) fn open(file: &Path) -> Result<Connection, Problem> {
    make(file)?;
    let mut connection = Connection::open(file)?;
    connection.busy_timeout(BUSY)?;
    recognise(&connection.transaction()?)?;
    tighten(file);
    // Where a file system can't do it (a share), another mode stays, which is slower and as safe.
    let _: String = connection.query_row("PRAGMA journal_mode = wal", [], |row| row.get(0))?;
    // A killed process loses nothing by this; a power failure may lose the last moment.
    connection.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = 4194304;")?;
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another kernel may have been faster.
    if recognise(&change)? == 0 {
        change.execute_batch(FIRST)?;
        change.execute_batch(&format!("PRAGMA application_id = {OURS}; PRAGMA user_version = {VERSION};"))?;
    }
    change.commit()?;
    Ok(connection)
}

/// Opens it to read, if it is there and ours.
pub(super) fn read(file: &Path) -> Result<Connection, Problem> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE | rusqlite::OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(Duration::from_millis(500))?;
    connection.execute_batch("PRAGMA query_only = ON")?;
    if recognise(&connection.transaction()?)? == 0 {
        return Err(Problem::Foreign);
    }
    tighten(file);
    Ok(connection)
}

/// The schema's version; 0 for a new file. In one transaction: otherwise another kernel that makes the database
/// meanwhile would be seen in halves, and taken for another program.
fn recognise(look: &Transaction<'_>) -> Result<i64, Problem> {
    let number = |sql: &str| look.query_row(sql, [], |row| row.get::<_, i64>(0));
    let (ours, version) = (number("PRAGMA application_id")?, number("PRAGMA user_version")?);
    if ours != OURS && (ours != 0 || version != 0 || number("SELECT count(*) FROM sqlite_master")? != 0) {
        return Err(Problem::Foreign);
    }
    if version > VERSION { Err(Problem::Newer(version)) } else { Ok(version) }
}

/// Takes from a database that was there before, and from what `SQLite` keeps beside it, what others may do with it.
fn tighten(file: &Path) {
    // The files beside it stand where a link leads.
    let Ok(real) = file.canonicalize() else { return };
    for ending in ["", "-wal", "-shm"] {
        let mut path = real.clone().into_os_string();
        path.push(ending);
        if let Err(error) = for_the_user_alone(Path::new(&path)) {
            tracing::warn!(file = %Path::new(&path).display(), %error, "can't be kept from other users");
        }
    }
}

/// Mode 0600 for a file of ours that has a wider one.
fn for_the_user_alone(path: &Path) -> std::io::Result<()> {
    // Such a descriptor can't be read or written; closing any other would let go of SQLite's locks on the file.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    let found = rustix::fs::fstat(&opened)?;
    let is_file = rustix::fs::FileType::from_raw_mode(found.st_mode).is_file();
    if is_file && found.st_mode & 0o077 != 0 && found.st_uid == rustix::process::geteuid().as_raw() {
        rustix::fs::chmod(format!("/proc/self/fd/{}", opened.as_raw_fd()), Mode::RUSR | Mode::WUSR)?;
    }
    Ok(())
}

/// Folder and file are the user's alone from their first moment on.
fn make(file: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    match std::fs::metadata(file) {
        // It is not even opened: closing a descriptor of it would let go of SQLite's locks in this process.
        Ok(there) if there.is_file() => return Ok(()),
        Ok(_) => return Err(std::io::Error::other("it is no file")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Where a link leads to a file that is not there yet, that is made.
    let target = std::fs::read_link(file).ok().map(|link| match file.parent() {
        Some(folder) => folder.join(link),
        None => link,
    });
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    match rustix::fs::open(target.as_deref().unwrap_or(file), flags, Mode::RUSR | Mode::WUSR) {
        // Another kernel was faster.
        Ok(_) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    /// How many locks this process holds on a file, as the system lists them with its descriptors.
    fn locks(file: &Path) -> usize {
        let inode = std::fs::metadata(file).unwrap().ino();
        let mut lines = 0;
        for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
            let ours = std::fs::metadata(entry.path()).is_ok_and(|found| found.ino() == inode);
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            if let (true, Ok(info)) = (ours, std::fs::read_to_string(info)) {
                lines += info.lines().filter(|line| line.starts_with("lock:")).count();
            }
        }
        lines
    }

    #[test]
    fn a_database_that_many_make_at_once_is_everybodys() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("d.sqlite");
            let all: Vec<_> = (0..4)
                .map(|_| {
                    let file = file.clone();
                    std::thread::spawn(move || open(&file).map(drop))
                })
                .collect();
            for one in all {
                // Who finds it locked tries again later; nobody takes it for another program's.
                let opened = one.join().unwrap();
                assert!(!opened.as_ref().is_err_and(|problem| !problem.passes()), "{opened:?}");
            }
        }
    }

    #[test]
    fn opening_a_database_again_lets_go_of_no_lock() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/d.sqlite");
        let first = open(&file).unwrap();
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        // In this mode the locks are on the file itself.
        let _: String = first.query_row("PRAGMA journal_mode = delete", [], |row| row.get(0)).unwrap();
        first.execute_batch("BEGIN IMMEDIATE").unwrap();
        let held = locks(&file);
        assert!(held > 0, "SQLite locks the file");
        make(&file).unwrap();
        tighten(&file);
        assert_eq!(locks(&file), held);
        // As it was done before.
        drop(std::fs::File::open(&file).unwrap());
        assert_eq!(locks(&file), 0, "closing any descriptor lets go of them");
    }

    #[test]
    fn a_file_is_made_where_a_link_leads_and_what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        symlink("real.sqlite", folder.path().join("link.sqlite")).unwrap();
        make(&folder.path().join("link.sqlite")).unwrap();
        let made = std::fs::metadata(folder.path().join("real.sqlite")).unwrap();
        assert_eq!((made.is_file(), made.permissions().mode() & 0o777), (true, 0o600));
        assert!(make(folder.path()).is_err());
    }
}
