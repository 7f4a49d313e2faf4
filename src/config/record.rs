//! What `cellblock build` remembers for the kernels: a small settings file of its own beside the user's,
//! so that the user's file, with its comments, is never rewritten.

use std::io::Write;
use std::path::PathBuf;

use super::Environment;

/// Why something could not be remembered.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// There is nowhere to write.
    #[error(
        "there is no place for settings: neither HOME nor XDG_CONFIG_HOME is set to an absolute path; set one"
    )]
    NoHome,
    /// The file can't be written.
    #[error("{file}: can't be written: {why}; kernels will not know of the image until it can", file = file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// Why.
        why: std::io::Error,
    },
}

/// The file of records.
pub(crate) fn record_file(environment: &Environment) -> Option<PathBuf> {
    Some(environment.config_dir()?.join("built.toml"))
}

/// Records values of settings as `(section, name, value)`; they replace what was recorded before.
/// The file appears whole or not at all. Returns where it is.
pub fn record(environment: &Environment, values: &[(&str, &str, &str)]) -> Result<PathBuf, RecordError> {
    let file = record_file(environment).ok_or(RecordError::NoHome)?;
    let mut document = toml::Table::new();
    for (section, name, value) in values {
        let section = document.entry(*section).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        if let toml::Value::Table(table) = section {
            table.insert((*name).to_owned(), toml::Value::String((*value).to_owned()));
        }
    }
    let text = format!(
        "# Written by `cellblock build`, which replaces it. Your own settings belong in config.toml and win.\n\
         # Without this file kernels use the image that is built in.\n\n{document}"
    );
    let write = || -> std::io::Result<()> {
        let dir = file.parent().unwrap_or(&file);
        std::fs::create_dir_all(dir)?;
        let mut temporary = tempfile::NamedTempFile::new_in(dir)?;
        temporary.write_all(text.as_bytes())?;
        temporary.as_file().sync_all()?;
        temporary.persist(&file).map_err(|error| error.error)?;
        Ok(())
    };
    match write() {
        Ok(()) => Ok(file),
        Err(why) => Err(RecordError::Write { file, why }),
    }
}
