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
//! | `trust` | what a project's file, which may come with a hostile notebook, is allowed to set |
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
mod record;
mod reference;
mod secret;
mod settings;
mod trust;
mod value;

pub use environment::Environment;
pub use error::{ConfigError, Refusal};
pub use keys::{KEYS, Key, Project};
pub use load::{Inputs, Loaded, load};
pub use origin::Origin;
pub use record::{RecordError, record};
pub use reference::reference;
pub use secret::Secret;
pub use settings::{
    DisplaySettings, DockerSettings, Flavor, LogSettings, ModelSettings, Network, SandboxSettings, Settings,
    Updates,
};
pub use value::{Kind, Value};
