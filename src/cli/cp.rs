//! `cellblock cp`: files between this machine and the container of a kernel that runs.

use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::arguments::{CpOptions, FlavorArgument};
use super::exit::{CliError, FAILURE, complain, emit};
use crate::config::Environment;
use crate::event::Failure;
use crate::sandbox::docker::{Engine, Running};
use crate::sandbox::transfer::{self, Progress, Transferred};

/// How often the line of progress changes.
const PACE: Duration = Duration::from_millis(100);

pub(crate) fn run(options: &CpOptions, environment: &Environment) -> Result<ExitCode, CliError> {
    let loaded = super::load(FlavorArgument::Markdown, &options.set.set, environment.clone())?.loaded;
    if let Some(problem) = loaded.problem() {
        return Err(CliError::settings(problem));
    }
    let way = Way::read(&options.source, &options.destination)?;
    let host = loaded.settings.docker.host.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime can't be started")?;
    let shown = std::io::stderr().is_terminal() && !environment.plain_terminal();
    let copied = runtime.block_on(copy(&way, host.as_deref(), options.kernel.as_deref(), shown))?;
    for line in &copied.skipped {
        complain(&format!("left out: {line}\n"));
    }
    if copied.more > 0 {
        complain(&format!("left out: {} more\n", copied.more));
    }
    emit(&format!("copied {} files, {} bytes\n", copied.files, copied.bytes))?;
    let whole = copied.skipped.is_empty() && copied.more == 0;
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::from(FAILURE) })
}

/// Which way files go. The side in the container is `NAME:PATH`; a path here that has a colon is written `./a:b`.
#[derive(Debug, PartialEq, Eq)]
enum Way<'a> {
    In { from: &'a str, container: &'a str, to: &'a str },
    Out { container: &'a str, from: &'a str, to: &'a str },
}

impl<'a> Way<'a> {
    fn read(source: &'a str, destination: &'a str) -> Result<Self, CliError> {
        match (remote(source), remote(destination)) {
            (None, Some((container, to))) => Ok(Way::In { from: source, container, to }),
            (Some((container, from)), None) => Ok(Way::Out { container, from, to: destination }),
            _ => Err(CliError::hinted(
                anyhow!("one side must be in a container and the other one here"),
                "write `cellblock cp data.csv :/workspace/` or `cellblock cp python:/tmp/result.png .`",
            )),
        }
    }

    fn container(&self) -> &'a str {
        match self {
            Way::In { container, .. } | Way::Out { container, .. } => container,
        }
    }
}

/// `NAME:PATH`, taken apart.
fn remote(side: &str) -> Option<(&str, &str)> {
    let (name, path) = side.split_once(':')?;
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    (plain && name != "." && name != "..").then_some((name, path))
}

async fn copy(
    way: &Way<'_>,
    host: Option<&str>,
    kernel: Option<&str>,
    shown: bool,
) -> Result<Transferred, CliError> {
    let engine = Engine::connect(host).await.map_err(anyhow::Error::new)?;
    let running = engine.running().await.map_err(anyhow::Error::new)?;
    let here = Environment::working_directory().ok().map(|path| path.to_string_lossy().into_owned());
    let container = choose(&running, way.container(), kernel, here.as_deref())?;
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            stop.cancel();
        }
    });
    let (progress, seen) = watch::channel(Progress::default());
    let said = |failure: Failure| CliError::from(anyhow!(failure.evalue));
    let work = async {
        match way {
            Way::In { from, to, .. } => {
                transfer::copy_in(&engine, &container.id, Path::new(from), to, progress, cancel).await
            }
            Way::Out { from, to, .. } => {
                transfer::copy_out(&engine, &container.id, from, Path::new(to), progress, cancel).await
            }
        }
    };
    let (copied, ()) = tokio::join!(work, line(seen, shown));
    copied.map_err(said)
}

/// The only container that fits, or the only one of a kernel in the directory `here`.
fn choose<'a>(
    running: &'a [Running],
    container: &str,
    kernel: Option<&str>,
    here: Option<&str>,
) -> Result<&'a Running, CliError> {
    let fits = |r: &&Running| {
        (container.is_empty() || r.container == container)
            && kernel.is_none_or(|kernel| !kernel.is_empty() && r.kernel.starts_with(kernel))
    };
    let mut ours = running.iter().filter(fits).filter(|r| here == Some(r.directory.as_str()));
    if let (Some(only), None) = (ours.next(), ours.next()) {
        return Ok(only);
    }
    let mut fitting = running.iter().filter(fits);
    let what = match (fitting.next(), fitting.next()) {
        (Some(only), None) => return Ok(only),
        (None, _) if running.is_empty() => {
            return Err(CliError::hinted(
                anyhow!("no kernel has a container now"),
                "a container starts with the first block of code, and ends with its kernel",
            ));
        }
        (None, _) => "no container fits",
        _ => "several containers fit",
    };
    let mut list = format!("{what}; these run now:");
    for r in running {
        let short = r.kernel.get(..8).unwrap_or(&r.kernel);
        list.extend(["\n  ", short, "  ", &r.container, "  ", &r.directory]);
    }
    let hint = "name one by its kernel and container: `cellblock cp --kernel ID CONTAINER:PATH ...`";
    Err(CliError::hinted(anyhow!(list), hint))
}

/// Shows the progress on a terminal, in one line that is taken back.
async fn line(mut seen: watch::Receiver<Progress>, shown: bool) {
    let show = |text: &str| {
        let mut out = std::io::stderr().lock();
        // Progress that can't be shown does not stop the work.
        let _ = write!(out, "\r\x1b[K{text}").and_then(|()| out.flush());
    };
    while seen.changed().await.is_ok() {
        if shown {
            show(&seen.borrow_and_update().line("copying"));
        }
        tokio::time::sleep(PACE).await;
    }
    if shown {
        show("");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn one_side_is_in_a_container() {
        assert_eq!(Way::read("a", "py:/b").unwrap(), Way::In { from: "a", container: "py", to: "/b" });
        assert_eq!(Way::read(":b", "./c:d").unwrap(), Way::Out { container: "", from: "b", to: "./c:d" });
        for (source, destination) in [("a", "b"), ("x:a", "y:b"), ("./x:a", "b")] {
            assert!(Way::read(source, destination).is_err(), "{source} {destination}");
        }
    }

    #[test]
    fn the_container_is_the_only_one_that_fits_or_they_are_listed() {
        let of = |kernel: &str, container: &str| Running {
            id: format!("{kernel}{container}"),
            kernel: kernel.into(),
            container: container.into(),
            session: String::new(),
            directory: "/home/me".into(),
        };
        let running = [of("aaaa1111-2", "python"), of("aaaa1111-2", "web"), of("bbbb", "web")];
        assert_eq!(choose(&running, "python", None, None).unwrap().id, "aaaa1111-2python");
        let elsewhere = [of("cccc", "python"), Running { directory: "/here".into(), ..of("dddd", "python") }];
        assert_eq!(choose(&elsewhere, "", None, Some("/here")).unwrap().id, "ddddpython");
        assert_eq!(choose(&running, "web", Some("b"), None).unwrap().id, "bbbbweb");
        for (container, kernel) in [("web", None), ("", Some("aaaa")), ("none", None), ("web", Some(""))] {
            let told = format!("{:?}", choose(&running, container, kernel, Some("/home/me")).unwrap_err());
            assert!(told.contains("aaaa1111") && told.contains("/home/me"), "{told}");
        }
        assert!(format!("{:?}", choose(&[], "", None, None).unwrap_err()).contains("no kernel"));
    }
}
