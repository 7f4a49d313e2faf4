//! Layered settings: built-in < recorded by `cellblock build` < user file < project file < environment < flags.
//!
//! Imports nothing of ours. This is the only module that reads the environment and the settings files.
//!
//! | module | what |
//! | --- | --- |
//! | `settings` | [`Settings`]: the effective values, section by section, and the built-in ones |
//! | `keys` | [`KEYS`], the one table that drives files, variables, flags, `cellblock config` and the documentation |
//! | `value` | what kinds of value there are, their units, reading and showing them |
//! | `file` | one TOML file to its entries, each with its line |
//! | `origin` | where a value came from |
//! | `project` | the files of a project, found and read once |
//! | `trust` | what a project's file, which may come with a hostile notebook, is allowed to set |
//! | `store` | what the user trusts, and the seal that trust is bound to |
//! | `load` | the layers put together: [`load()`] |
//! | `environment` | [`Environment`]: the process's variables, and what they mean, as plain data |
//! | `record` | what `cellblock build` remembers for the kernels |
//! | `reference` | the table of keys as documentation |
//!
//! To add a setting: one field in its section's struct and one row in [`KEYS`], which says what values it
//! takes and what a project's file may do with it.

mod environment;
mod error;
mod file;
mod keys;
mod load;
mod origin;
mod project;
mod record;
mod reference;
mod secret;
mod settings;
mod store;
mod trust;
mod value;

pub use environment::Environment;
pub use error::{ConfigError, Refusal};
pub use keys::{KEYS, Key, Project};
pub use load::{Inputs, Loaded, load, load_project};
pub use origin::Origin;
pub use project::{Project as ProjectFiles, ProjectFile};
pub use record::{RecordError, record};
pub use reference::reference;
pub use secret::Secret;
pub use settings::{
    AgentMode, AgentSettings, BudgetSettings, ConversationSettings, DisplaySettings, DockerSettings, Flavor,
    Install, LogSettings, ModelSettings, Network, Replay, SandboxSettings, Settings, Status, Updates,
};
pub use store::{Matters, TrustError, Trusted, forget, remember, seal, standing, trusted};
pub use trust::Trust;
pub use value::{Kind, Value};

pub(crate) use file::read as read_file;
pub(crate) use keys::nearest;
pub(crate) use origin::plain;
pub(crate) use trust::judge;
