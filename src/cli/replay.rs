//! `cellblock replay`: recorded replies, listed and pruned. Imports `chat` and `config`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;

use super::arguments::ReplayOptions;
use super::exit::{CliError, emit};
use crate::chat::replay;
use crate::config::plain;

/// Lists or prunes.
pub(super) fn run(options: &ReplayOptions) -> Result<ExitCode, CliError> {
    let paths: Vec<PathBuf> = match &options.path {
        Some(path) => vec![path.clone()],
        None => replay::sidecars(Path::new("")),
    };
    if paths.is_empty() {
        return Err(anyhow!(
            "no replies are recorded here (*.replies.jsonl); name a notebook, or record some with CELLBLOCK_MODEL__REPLAY=record"
        )
        .into());
    }
    let mut text = String::new();
    for path in &paths {
        if options.list || !options.prune {
            list(path, &mut text)?;
        } else {
            let pruned = replay::prune(path).map_err(anyhow::Error::new)?;
            let wrong = if pruned.wrong > 0 {
                format!(", {} lines that were no replies were taken out", pruned.wrong)
            } else {
                String::new()
            };
            let (kept, dropped) = (pruned.kept, pruned.dropped);
            // Writing to a string can't fail.
            let path = plain(&path.to_string_lossy());
            let _ = writeln!(text, "{path}: {kept} replies stay, {dropped} were taken out{wrong}");
        }
    }
    emit(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn list(path: &Path, text: &mut String) -> Result<(), CliError> {
    let (replies, remark) = replay::list(path).map_err(anyhow::Error::new)?;
    let _ = writeln!(text, "{}", plain(&path.to_string_lossy()));
    for reply in &replies {
        let used = if reply.used { "used" } else { "unused" };
        let _ = writeln!(text, "{:>6}  {used:<6}  {}  {}", reply.line, reply.model, reply.prompt);
    }
    if replies.is_empty() {
        text.push_str("  no replies\n");
    }
    if let Some(remark) = remark {
        let _ = writeln!(text, "  {remark}");
    }
    Ok(())
}
