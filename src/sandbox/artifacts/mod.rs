//! What a run leaves behind for its user: noticed, shown, kept or removed.
//!
//! May import `event` and `config`. Everything below the folders here belongs to the guest, which can put a
//! link, a FIFO or a million files there at any moment: the host walks from descriptors, follows nothing, and
//! counts what it does.
//!
//! | module | what |
//! | --- | --- |
//! | `folders` | the life of a session's and a run's folder on the host |
//! | `remove` | taking away what a guest made |
//! | `watch` | which files a run wrote |
//! | `notify` | what the system says of changes |
//! | `look` | those files, opened and looked into |
//! | `kind` | what a file is |
//! | `heads` | the beginning of tables and texts |
//! | `peek` | what a file is, to tell a model of it |
//! | `show` | the displays |
//! | `paths` | container paths, host paths, links |

mod folders;
pub(super) mod heads;
mod kind;
pub(super) mod look;
mod notify;
mod paths;
mod peek;
mod remove;
pub(super) mod show;
pub(super) mod watch;

pub use folders::Folder;
pub use paths::{Paths, inside, link};
pub use peek::{Looks, Shape, looks, shape};
pub use show::METADATA;

/// Where sessions have their folders, below the notebook's directory.
pub const SESSIONS: &str = "sessions";
/// Where runs in containers of their own leave their artifacts, below the notebook's directory.
pub const OUTPUTS: &str = "outputs";
/// Where such a run has its folder until it is known whether anything in it is worth keeping.
pub const PENDING: &str = ".pending";
/// The folder in each of them whose files are shown and kept.
pub const ARTIFACTS: &str = "artifacts";
