//! Exit codes, errors with hints, and output that survives a closed pipe.

use std::io::Write;
use std::process::ExitCode;

/// Something failed, or `doctor` found something that keeps kernels from working.
pub(crate) const FAILURE: u8 = 1;
/// The settings are wrong.
pub(crate) const SETTINGS: u8 = 3;

/// Why a command ends without success: what happened and why, what to do next, and the exit code.
#[derive(Debug)]
pub(crate) struct CliError {
    error: anyhow::Error,
    hint: Option<String>,
    code: u8,
}

impl CliError {
    /// An error whose remedy is a line of its own.
    pub(crate) fn hinted(error: anyhow::Error, hint: impl Into<String>) -> Self {
        CliError { error, hint: Some(hint.into()), code: FAILURE }
    }

    /// The settings are wrong; the text names each mistake.
    pub(crate) fn settings(problem: String) -> Self {
        let hint = "`cellblock config` shows every setting with where it comes from";
        CliError { error: anyhow::Error::msg(problem), hint: Some(hint.to_owned()), code: SETTINGS }
    }

    /// Says it on standard error; the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        let mut text = format!("error: {:#}\n", self.error);
        if let Some(hint) = &self.hint {
            text.push_str("hint: ");
            text.push_str(hint);
            text.push('\n');
        }
        complain(&text);
        ExitCode::from(self.code)
    }
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        CliError { error, hint: None, code: FAILURE }
    }
}

/// The exit code for what clap has to say: help and version are no mistakes.
pub(crate) fn code_of_usage(error: &clap::Error) -> ExitCode {
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(FAILURE))
}

/// Writes to standard output. A reader that went away (`cellblock config | head`) has seen enough: no error.
pub(crate) fn emit(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("standard output can't be written"))
        }
        _ => Ok(()),
    }
}

/// Writes to standard error; where that is closed there is nobody to tell.
pub(crate) fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
