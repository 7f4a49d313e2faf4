//! `cellblock build`: makes the image that code runs in, and records it for the kernels.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::arguments::{BuildOptions, FlavorArgument};
use super::compose::{self, Composed};
use super::exit::{CliError, complain, emit};
use crate::config::{Environment, Origin, record};
use crate::event::{self, Event};
use crate::sandbox::backend::Backend;
use crate::sandbox::docker::Docker;
use crate::sandbox::image::{self, Progress};

/// How often the line of progress changes on a terminal, and elsewhere.
const TERMINAL_PACE: Duration = Duration::from_millis(100);
const LOG_PACE: Duration = Duration::from_secs(2);

pub(crate) fn run(options: &BuildOptions, environment: &Environment) -> Result<ExitCode, CliError> {
    let composed = super::load(FlavorArgument::Markdown, &options.set.set, environment.clone())?;
    if let Some(problem) = composed.problem() {
        return Err(CliError::settings(problem));
    }
    if let Some(name) = &options.name {
        return container(name, options.fresh, &composed, environment);
    }
    let loaded = composed.loaded;
    let settings = &loaded.settings;
    let recorded_base = matches!(loaded.origin("sandbox.base_image"), Origin::Recorded { .. });
    let wanted = image::BuildOptions {
        host: settings.docker.host.clone(),
        base: options.base_image.clone().or_else(|| settings.sandbox.base_image.clone()),
        tag: options.tag.clone(),
        authorities: environment.certificates(),
        proxies: environment.proxies(),
        fresh: options.fresh,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime can't be started")?;
    let mut line = ProgressLine::new(environment);
    let built = runtime.block_on(image::build(&wanted, &mut |state| line.show(state)));
    line.end();
    let built = built.map_err(|error| CliError::from(anyhow::Error::new(error)))?;

    let mut values = vec![("sandbox", "built_image", built.reference.as_str())];
    // A base that was chosen here is chosen for later builds as well, by kernels too: the usual one may be out of reach.
    if let Some(base) = wanted.base.as_deref().filter(|_| options.base_image.is_some() || recorded_base) {
        values.push(("sandbox", "base_image", base));
    }
    let file = record(environment, &values)
        .map_err(|error| CliError::hinted(error.into(), format!("the image {} is there", built.reference)))?;
    emit(&format!(
        "built {} on {}\nrecorded in {}; kernels that start from now on use it\n",
        built.reference,
        built.base,
        file.display()
    ))?;
    if let Some(image) = &settings.sandbox.image {
        emit(&format!("note: sandbox.image = {image} ({}) comes first\n", loaded.origin("sandbox.image")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The image of one container of the registry.
fn container(
    name: &str,
    fresh: bool,
    composed: &Composed,
    environment: &Environment,
) -> Result<ExitCode, CliError> {
    let registry = &composed.registry;
    for warning in composed.warnings() {
        complain(&format!("warning: {warning}\n"));
    }
    let Some(definition) = registry.find(name) else {
        let known: Vec<_> = registry.containers().iter().map(|c| c.name.as_str()).collect();
        let error = anyhow::anyhow!("there is no container {name:?}; there are {}", known.join(", "));
        return Err(CliError::hinted(error, "containers are defined in containers/registry.yaml"));
    };
    if let Some(why) = &definition.refused {
        return Err(anyhow::anyhow!("the image of {name} is not built: {why}").into());
    }
    for withheld in &definition.withheld {
        complain(&format!("warning: {withheld}\n"));
    }
    let directory = Environment::working_directory().context("the working directory can't be found")?;
    let options = compose::docker(&composed.loaded.settings, environment, &directory)
        .context("this program can't find its own path")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the asynchronous runtime can't be started")?;
    let mut line = ProgressLine::new(environment);
    let made = runtime.block_on(async {
        let docker = Docker::new(options);
        let (events, mut told) = event::channel(64);
        let show = async {
            while let Some(event) = told.recv().await {
                if let Event::Notice(notice) = event {
                    line.show(&Progress { step: None, line: notice.text });
                }
            }
        };
        let making = docker.make(Arc::clone(definition), fresh, Some(events));
        let (made, ()) = tokio::join!(making, show);
        docker.destroy_all().await;
        made
    });
    line.end();
    let id = made.map_err(|error| CliError::from(anyhow::Error::new(error)))?;
    emit(&format!("the image of {name} is {id}; sandboxes that start from now on use it\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// What happens, on standard error: one line that changes on a terminal, now and then a line elsewhere.
struct ProgressLine {
    terminal: bool,
    last: Option<Instant>,
    step: Option<(u32, u32)>,
}

impl ProgressLine {
    fn new(environment: &Environment) -> Self {
        let terminal = std::io::stderr().is_terminal() && !environment.plain_terminal();
        ProgressLine { terminal, last: None, step: None }
    }

    fn show(&mut self, state: &Progress) {
        let pace = if self.terminal { TERMINAL_PACE } else { LOG_PACE };
        let same_step = state.step == self.step;
        if same_step && self.last.is_some_and(|last| last.elapsed() < pace) {
            return;
        }
        (self.last, self.step) = (Some(Instant::now()), state.step);
        // Output of a build is as foreign as any: nothing but one line of plain text reaches the terminal.
        let text: String = state.to_string().chars().filter(|c| !c.is_control()).take(150).collect();
        let shown = if self.terminal {
            // No more than fits on the narrowest usual terminal, or the line could not be taken back.
            let text: String = text.chars().take(78).collect();
            format!("\r\x1b[K{text}")
        } else {
            format!("{text}\n")
        };
        let mut out = std::io::stderr().lock();
        // Progress that can't be shown does not stop the work.
        let _ = out.write_all(shown.as_bytes()).and_then(|()| out.flush());
    }

    fn end(&self) {
        if self.terminal && self.last.is_some() {
            let _ = std::io::stderr().lock().write_all(b"\r\x1b[K");
        }
    }
}
