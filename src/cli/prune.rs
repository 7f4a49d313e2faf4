//! `cellblock prune`: images that Cellblock made and nothing uses any more.

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};

use super::arguments::{FlavorArgument, PruneOptions};
use super::compose;
use super::exit::{CliError, FAILURE, complain, emit};
use crate::config::Environment;
use crate::sandbox::backend::Backend;
use crate::sandbox::docker::{Docker, Pruning};
use crate::sandbox::{checkpoint, size};

const DAY: Duration = Duration::from_hours(24);

pub(crate) fn run(options: &PruneOptions, environment: &Environment) -> Result<ExitCode, CliError> {
    let composed = super::load(FlavorArgument::Markdown, &options.set.set, environment.clone())?;
    if let Some(problem) = composed.problem() {
        return Err(CliError::settings(problem));
    }
    let kept = match environment.data_dir() {
        None => HashSet::new(),
        Some(folder) => checkpoint::images(&folder.join("checkpoints")).map_err(|why| {
            let hint = "move it away, or remove it; until then nobody knows which images it needs";
            CliError::hinted(anyhow!("a checkpoint can't be read, so nothing is removed: {why}"), hint)
        })?,
    };
    let days = u32::try_from(options.days).unwrap_or(u32::MAX);
    let idle = if options.all { Duration::ZERO } else { DAY.saturating_mul(days) };
    let order = Pruning { idle, dry_run: options.dry_run, kept };
    let directory = Environment::working_directory().context("the working directory can't be found")?;
    let docker = compose::docker(&composed.loaded.settings, environment, &directory)
        .context("this program can't find its own path")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime can't be started")?;
    let pruned = runtime.block_on(async {
        let docker = Docker::new(docker);
        let pruned = docker.prune(composed.registry.containers(), &order).await;
        docker.destroy_all().await;
        pruned
    });
    let pruned = pruned.map_err(|error| CliError::from(anyhow::Error::new(error)))?;
    let (mut count, mut bytes) = (0_u64, 0_u64);
    for image in &pruned {
        if let Some(why) = &image.failed {
            complain(&format!("not removed: {}: {why}\n", image.name));
            continue;
        }
        (count, bytes) = (count + 1, bytes + image.bytes);
        let did = if options.dry_run { "would remove" } else { "removed" };
        emit(&format!("{did} {} ({}, unused for {} days)\n", image.name, size(image.bytes), image.days))?;
    }
    let sum = if options.dry_run { "to be freed" } else { "freed" };
    emit(&format!("{count} images, {} {sum}\n", size(bytes)))?;
    let whole = pruned.iter().all(|image| image.failed.is_none());
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(FAILURE) })
}
