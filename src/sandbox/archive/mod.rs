//! Archives between host and guest. One that comes from the guest is hostile: nothing in it leads out of the
//! folder that it is unpacked into, whatever the guest does to that folder meanwhile.
//!
//! Imports nothing of ours. Everything is opened by walking from a descriptor, one plain name at a time and over
//! no link. Only files, folders and links that stay inside are made; all else is refused and listed.
//!
//! | module | what |
//! | --- | --- |
//! | `host` | a place on the host, opened without following links below a folder that is not to be left |
//! | `read` | the format (tar), read without trust |
//! | `unpack` | an archive into a folder |
//! | `pattern` | patterns for names; which names are private |
//! | `pack` | files of the host into an archive |

mod host;
mod pack;
mod pattern;
mod read;
mod unpack;

pub use host::Spot;
pub use pack::{Packing, pack};
pub use pattern::{is_private, matches};
pub use unpack::{Rules, unpack};

/// The most that may come out of an archive.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Files, folders and links.
    pub entries: u64,
    /// Bytes of files.
    pub bytes: u64,
}

/// What went through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was left out, and why; the first few. Fit for a terminal.
    pub refused: Vec<String>,
    /// How many more were.
    pub more: u64,
}

/// How many refusals are listed.
const LISTED: usize = 50;
/// How much of a name is shown.
const SHOWN: usize = 200;

impl Report {
    /// Lists something that was left out.
    pub(crate) fn refuse(&mut self, name: &[u8], why: &str) {
        if self.refused.len() >= LISTED {
            self.more += 1;
            return;
        }
        let name: String = String::from_utf8_lossy(name)
            .chars()
            .take(SHOWN)
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        self.refused.push(format!("{name}: {why}"));
    }
}

/// Why an archive could not be taken to its end. What was unpacked before stays.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It is not what it should be.
    #[error("the archive is damaged: {0}")]
    Damaged(&'static str),
    /// It holds more than is allowed.
    #[error("the archive holds more than {0}, so the rest was left out")]
    TooMuch(String),
    /// It has more than one thing at its top, and there is one name for it.
    #[error("there are several files, so the destination must be a folder")]
    Several,
    /// The system refuses.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}
