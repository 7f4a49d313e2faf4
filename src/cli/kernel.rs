//! `cellblock kernel`: the parts put together, and ended in order.

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, anyhow};

use super::arguments::KernelOptions;
use super::compose::{self, Composed};
use super::exit::CliError;
use crate::chat::Chat;
use crate::config::Environment;
use crate::engine::{Engine, Habits, Parts};
use crate::jupyter::wire::ConnectionInfo;
use crate::jupyter::{self, ExitReason};
use crate::sandbox::Sandbox;
use crate::sandbox::docker::Docker;

/// Showing output never waits for the code that makes it: that takes two.
const WORKERS: usize = 2;

/// Serves one client until it ends the kernel.
pub(super) fn run(options: &KernelOptions, environment: &Environment) -> Result<ExitCode, CliError> {
    let connection = ConnectionInfo::from_file(&options.connection_file).map_err(|error| {
        CliError::hinted(
            error.into(),
            "Jupyter writes this file and starts kernels with it: open a notebook there",
        )
    })?;
    let directory = Environment::working_directory()
        .context("the working directory can't be found; start Jupyter in one that exists")?;
    let composed = super::load(options.flavor.flavor, &options.set.set, environment.clone())?;
    log_to_stderr(&composed.loaded.settings.log.filter, environment);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().context(
            "the operating system refuses the kernel's threads; a limit of processes may be reached",
        )?;
    let reason = runtime.block_on(serve(options, &connection, composed, environment, &directory));
    // Whatever is still blocked (a name look-up, a disk) must not keep the process.
    runtime.shutdown_background();
    match reason? {
        ExitReason::Disconnected => {
            Err(anyhow!("the kernel lost its sockets; the log above says more").into())
        }
        reason @ (ExitReason::Shutdown { .. } | ExitReason::Terminated | ExitReason::ParentGone) => {
            tracing::info!(?reason, "the kernel ends");
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn serve(
    options: &KernelOptions,
    connection: &ConnectionInfo,
    composed: Composed,
    environment: &Environment,
    directory: &Path,
) -> Result<ExitReason, CliError> {
    let flavor = options.flavor.flavor.into();
    let (broken, mut warnings) = (composed.problem(), composed.warnings());
    let (catalog, mistakes) = compose::catalog(environment);
    warnings.extend(mistakes);
    let trusted = composed.trust.given();
    let Composed { loaded, registry, .. } = composed;
    let settings = &loaded.settings;
    let docker = compose::docker(settings, environment, directory)
        .context("this program can't find its own path, which the reaper is started by")?;
    let turns = compose::turns(&registry, environment);
    let mut sandbox = Sandbox::new(Arc::new(registry), Arc::new(Docker::new(docker)), turns);
    if let Some(store) = compose::checkpoints(settings, environment, directory) {
        sandbox = sandbox.with_checkpoints(store);
    }
    if let Some(problem) = &broken {
        tracing::error!("{problem}");
    }
    // With wrong settings a limit may be missing: then nothing is started.
    if settings.sandbox.warm && broken.is_none() {
        sandbox.warm();
    }
    let engine = Engine::new(Parts {
        flavor,
        chat: Chat::new(&settings.model, compose::providers(settings, environment))
            .recording(environment.session_name().as_deref(), directory)
            .with_costs(catalog, &settings.budget)
            .keeping(&compose::keeping(settings, environment, directory)),
        sandbox,
        warnings,
        broken,
        habits: Habits {
            trusted,
            ..compose::habits(settings, environment, directory, &options.connection_file)
        },
    });
    let surface = jupyter::Options {
        flavor,
        paced: environment.session_name().is_some(),
        updates: settings.display.updates,
        parent: environment.parent_pid(),
        signals: true,
    };
    Ok(jupyter::serve(connection, Arc::new(engine), surface).await.map_err(anyhow::Error::new)?)
}

/// The log goes to standard error, where Jupyter shows or keeps it.
fn log_to_stderr(filter: &str, environment: &Environment) {
    let filter = tracing_subscriber::EnvFilter::try_new(filter).unwrap_or_default();
    // A second subscriber can't be set; the first one then stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && !environment.plain_terminal())
        // A terminal that was closed must not cost the kernel: complaining about it would panic.
        .log_internal_errors(false)
        .try_init();
}
