//! `cellblock doctor`: is everything there that kernels need? Each finding comes with its remedy.
//!
//! | module | what |
//! | --- | --- |
//! | `report` | findings and how they are shown |
//! | `engine` | the container engine, what it can do, the image |
//! | `containers` | the registries of containers, what waits for trust, which images are there |
//! | `runc` | which versions of the runtime have known holes |
//! | `model` | who answers prose |
//! | `jupyter` | Jupyter, and the kernelspecs where it looks |
//! | `workspace` | the directory that the sandbox mounts |
//!
//! All checks run at once, each within [`PATIENCE`], so that one that hangs costs neither the others nor
//! the user's time. To add a check: a function to [`Report`], and a row in [`checks`].

mod containers;
mod engine;
mod jupyter;
mod model;
mod report;
mod runc;
mod workspace;

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use super::arguments::DoctorOptions;
use super::exit::{CliError, FAILURE, emit};
use crate::config::{Environment, Loaded, Trust};
use crate::sandbox::Registry;
use report::{Report, Style};

/// The longest that one check may take.
const PATIENCE: Duration = Duration::from_secs(8);

/// What the checks look at.
pub(super) struct Surroundings {
    loaded: Loaded,
    registry: Registry,
    trust: Trust,
    environment: Environment,
    directory: PathBuf,
}

type Check = (&'static str, Pin<Box<dyn Future<Output = Report> + Send>>);

/// Every check, in the order in which they are shown.
fn checks(around: &Arc<Surroundings>) -> Vec<Check> {
    let blocking = |check: fn(&Surroundings) -> Report| {
        let around = Arc::clone(around);
        let work = async move { tokio::task::spawn_blocking(move || check(&around)).await };
        Box::pin(async move {
            work.await.unwrap_or_else(|why| {
                Report::problem(format!("the check failed: {why}"), "report this as a bug")
            })
        })
    };
    let [engine, containers, model, jupyter] = [(); 4].map(|()| Arc::clone(around));
    vec![
        ("settings", Box::pin(blocking(settings))),
        ("engine", Box::pin(async move { engine::check(&engine).await })),
        ("containers", Box::pin(async move { containers::check(&containers).await })),
        ("workspace", Box::pin(blocking(workspace::check))),
        ("model", Box::pin(async move { model::check(&model).await })),
        ("jupyter", Box::pin(async move { jupyter::check(&jupyter).await })),
    ]
}

pub(crate) fn run(options: &DoctorOptions, environment: Environment) -> Result<ExitCode, CliError> {
    let composed = super::load(options.flavor.flavor, &options.set.set, environment.clone())?;
    let directory = Environment::working_directory().context("the working directory can't be found")?;
    let style = Style::for_terminal(&environment);
    let around = Arc::new(Surroundings {
        loaded: composed.loaded,
        registry: composed.registry,
        trust: composed.trust,
        environment,
        directory,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("the asynchronous runtime can't be started")?;
    let problems = runtime.block_on(async {
        let running: Vec<_> = checks(&around)
            .into_iter()
            .map(|(subject, check)| (subject, tokio::spawn(tokio::time::timeout(PATIENCE, check))))
            .collect();
        let mut total = Report::default();
        for (subject, check) in running {
            let report = match check.await {
                Ok(Ok(report)) => report,
                Ok(Err(_)) => Report::problem(
                    format!("no answer within {} seconds", PATIENCE.as_secs()),
                    "something it needs hangs: a server, an engine or a network file system",
                ),
                Err(why) => Report::problem(format!("the check failed: {why}"), "report this as a bug"),
            };
            emit(&report.show(subject, style))?;
            total.append(report);
        }
        emit(&total.summary(style))?;
        Ok::<_, anyhow::Error>(total.problems())
    });
    // A check that hangs in a system call must not keep the process.
    runtime.shutdown_background();
    Ok(if problems? == 0 { ExitCode::SUCCESS } else { ExitCode::from(FAILURE) })
}

/// Whether the settings can be used as they are.
fn settings(around: &Surroundings) -> Report {
    let loaded = &around.loaded;
    let mut report = Report::default();
    for error in &loaded.errors {
        report.add_problem(error.to_string(), "correct it; until then every cell fails with this message");
    }
    for refusal in &loaded.refusals {
        report.add_warning(refusal.to_string(), "nothing to do if you don't want it");
    }
    if loaded.errors.is_empty() {
        let files: Vec<String> = [&loaded.user_file, &loaded.project_file]
            .into_iter()
            .flatten()
            .filter(|path| path.exists())
            .map(|path| path.display().to_string())
            .collect();
        report.add_good(if files.is_empty() {
            "no settings file: built-in values".to_owned()
        } else {
            files.join(", ")
        });
    }
    report
}
