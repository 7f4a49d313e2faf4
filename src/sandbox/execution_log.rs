//! Who ran what where: one line of JSON for each run, in a file that all kernels of a user append to.
//!
//! May import `event`. The code itself is never in it, only its SHA-256. Nothing here may fail a run: what can't be
//! written is said once and then left out.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::definition::Definition;
use super::{Run, RunEnd};
use crate::config::Network;

/// From this size on a file is put aside, in bytes.
const FULL: u64 = 10 << 20;
/// How many full files are kept.
const KEPT: u32 = 5;
/// How long a run's end waits for the disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// The log of one kernel.
#[derive(Debug, Clone)]
pub struct ExecutionLog {
    path: Arc<PathBuf>,
    /// The kernel's id.
    kernel: String,
    /// The notebook, when it is known.
    notebook: Option<String>,
    warned: Arc<AtomicBool>,
}

/// What is known of a run before it begins.
#[derive(Debug)]
pub struct Entry {
    line: Value,
}

impl Entry {
    /// `who` wants to run this: a `cell`, or the `model`.
    pub fn new(who: &str, run: &Run, container: &Definition) -> Self {
        let limits = &container.limits;
        let network = match limits.network {
            Network::None => "none",
            Network::Bridge => "bridge",
        };
        let code = Sha256::digest(run.source.as_bytes());
        let sha256: String = code.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(digit).collect();
        Entry {
            line: json!({
                "time": chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
                "who": who,
                "language": run.language,
                "container": container.name,
                "ephemeral": run.ephemeral,
                "limits": {
                    "memory": limits.memory,
                    "cpus": limits.cpus,
                    "pids": limits.pids,
                    "timeout_s": run.tighter.timeout.map(|timeout| timeout.as_secs_f64()),
                    "network": network,
                },
                "sha256": sha256,
            }),
        }
    }
}

fn digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).unwrap_or('0')
}

impl ExecutionLog {
    /// A log in that file, which is made when it is missing.
    pub fn new(path: PathBuf, kernel: String, notebook: Option<String>) -> Self {
        ExecutionLog { path: Arc::new(path), kernel, notebook, warned: Arc::default() }
    }

    /// Writes a line about a run that is over. What the user should be told, once: that it can't be written.
    pub async fn record(&self, entry: Entry, end: &RunEnd) -> Option<String> {
        let mut line = entry.line;
        if let Value::Object(line) = &mut line {
            line.insert("kernel".into(), self.kernel.clone().into());
            line.insert("notebook".into(), self.notebook.clone().into());
            line.insert("container_id".into(), end.container_id.clone().into());
            line.insert("image".into(), end.image.clone().into());
            line.insert("exit".into(), end.exit_code.into());
            line.insert("failure".into(), end.failure.as_ref().map(|failure| bounded(&failure.ename)).into());
            let duration = u64::try_from(end.duration.as_millis()).unwrap_or(u64::MAX);
            line.insert("duration_ms".into(), duration.into());
            line.insert("written".into(), end.written.into());
            line.insert("peak_memory".into(), end.peak_memory.into());
        }
        let path = Arc::clone(&self.path);
        let writing = tokio::task::spawn_blocking(move || append(&path, &line.to_string()));
        let why = match tokio::time::timeout(PATIENCE, writing).await {
            Ok(Ok(Ok(()))) => return None,
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the disk did not answer within {} s", PATIENCE.as_secs()),
        };
        tracing::warn!(why, "the execution log can't be written");
        (!self.warned.swap(true, Ordering::Relaxed)).then(|| {
            format!(
                "The execution log {} can't be written ({why}); the code runs all the same. log.executions turns it \
                 off, log.executions_file moves it.",
                self.path.display()
            )
        })
    }
}

/// An exception's name is the guest's.
fn bounded(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(100).collect()
}

/// Appends one line, whole, in one write.
fn append(path: &Path, line: &str) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let mut file = open(path)?;
    if file.metadata()?.len() >= FULL {
        rotate(path)?;
        file = open(path)?;
    }
    // A long write grows the file page by page: without the lock, half a line of another kernel could be seen.
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    // A line that a full disk cut off must not spoil this one.
    let mut text = String::with_capacity(line.len() + 2);
    if file.seek(SeekFrom::End(-1)).is_ok() {
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            text.push('\n');
        }
    }
    text.push_str(line);
    text.push('\n');
    match file.write(text.as_bytes())? {
        whole if whole == text.len() => Ok(()),
        _ => Err(std::io::ErrorKind::StorageFull.into()),
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    let no_links = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(no_links)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    Ok(file)
}

/// Puts a full file aside, unless another kernel just did.
fn rotate(path: &Path) -> std::io::Result<()> {
    let lock = open(&numbered(path, "lock"))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
    if std::fs::metadata(path)?.len() < FULL {
        return Ok(());
    }
    for number in (1..KEPT).rev() {
        match std::fs::rename(numbered(path, number), numbered(path, number + 1)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::rename(path, numbered(path, 1))
}

fn numbered(path: &Path, number: impl std::fmt::Display) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::{Flavor, Settings};

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn entry(code: &str) -> Entry {
        let definition = Definition::python(&Settings::builtin(Flavor::Markdown).sandbox);
        Entry::new("cell", &Run::new("python", code), &definition)
    }

    #[tokio::test]
    async fn a_run_is_a_line_without_its_code_that_only_the_user_reads() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/executions.jsonl");
        let log = ExecutionLog::new(path.clone(), "k1".into(), Some("/home/u/n.ipynb".into()));
        let end = RunEnd { exit_code: Some(3), written: 5, image: "sha256:1".into(), ..RunEnd::default() };
        assert_eq!(log.record(entry("print('secret')"), &end).await, None);
        let line = &lines(&path)[0];
        assert_eq!(line["sha256"], "3c59a50dd5ce110cef3866a3abbf0d1cb0a7e5760ade35eb69a2a1bee5605075");
        assert_eq!((&line["who"], &line["exit"], &line["kernel"]), (&json!("cell"), &json!(3), &json!("k1")));
        assert!(!line.to_string().contains("secret"));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn many_kernels_append_whole_lines_and_full_files_are_put_aside() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::thread::scope(|scope| {
            for kernel in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for number in 0..200 {
                        append(path, &json!({ "kernel": kernel, "number": number }).to_string()).unwrap();
                    }
                });
            }
        });
        assert_eq!(lines(&path).len(), 800);
        for _ in 0..7 {
            File::options().write(true).open(&path).unwrap().set_len(FULL).unwrap();
            append(&path, "{}").unwrap();
        }
        assert_eq!(lines(&path).len(), 1);
        let kept = (1..10).filter(|number| numbered(&path, number).exists()).count();
        assert_eq!(kept, 5);
    }

    #[test]
    fn a_line_that_was_cut_off_spoils_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "{\"half\":").unwrap();
        append(&path, "{}").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"half\":\n{}\n");
    }

    #[tokio::test]
    async fn what_can_not_be_written_is_said_once_and_no_link_is_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        std::fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let log = ExecutionLog::new(link, "k".into(), None);
        let end = RunEnd::default();
        assert!(log.record(entry("1"), &end).await.is_some_and(|said| said.contains("can't be written")));
        assert_eq!(log.record(entry("1"), &end).await, None);
        assert_eq!(std::fs::read(&target).unwrap(), b"");
    }
}
