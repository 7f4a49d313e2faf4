//! Images through the engine's API: is it there, pull it, build it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bollard::models::ProgressDetail;
use bollard::query_parameters::{
    BuildImageOptionsBuilder, CreateImageOptionsBuilder, RemoveImageOptionsBuilder,
};
use futures_util::{Stream, StreamExt};

use super::engine::Engine;
use super::explain::status;
use crate::event::terminal::filtered;
use crate::sandbox::backend::BackendError;
use crate::sandbox::image::{
    BuildOptions, BuiltImage, DEBIAN_BASE, ImageError, OnProgress, Progress, Recipe,
};

/// How long a pull may show nothing: a registry that can't be reached is silent.
const SILENCE: Duration = Duration::from_mins(1);
/// The memory of a step of a build, with swap: as much as the API can say.
const MEMORY: i32 = i32::MAX;
/// How many lines of a failed build are shown.
const TAIL: usize = 15;
/// The longest line of it, in characters.
const LINE: usize = 1000;

/// What is known of an image.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// The engine's id of it.
    pub(super) id: String,
    /// Where it declares volumes.
    pub(super) volumes: Vec<String>,
}

impl Engine {
    /// Looks an image up; `None` when the engine does not have it.
    pub(super) async fn image(&self, reference: &str) -> Result<Option<Known>, BackendError> {
        match self.client.inspect_image(reference).await {
            Ok(image) => Ok(Some(Known {
                id: image.id.unwrap_or_default(),
                volumes: image.config.and_then(|c| c.volumes).unwrap_or_default(),
            })),
            Err(e) if status(&e) == Some(404) => Ok(None),
            Err(e) => Err(self.explain(&e, "looking for the image")),
        }
    }

    async fn has(&self, reference: &str) -> Result<bool, ImageError> {
        self.image(reference).await.map(|i| i.is_some()).map_err(|e| ImageError::Engine(e.to_string()))
    }

    /// Pulls an image.
    pub(super) async fn pull(&self, reference: &str, progress: OnProgress<'_>) -> Result<(), ImageError> {
        let failed = |why: String| ImageError::Pull { image: reference.to_owned(), why };
        progress(&Progress { step: None, line: format!("pulling {reference}") });
        // Without a tag the engine would pull every tag that there is.
        let tagged = reference.contains('@') || reference.rsplit('/').next().is_some_and(|n| n.contains(':'));
        let tag = if tagged { "" } else { "latest" };
        let options = CreateImageOptionsBuilder::new().from_image(reference).tag(tag).build();
        let mut states = std::pin::pin!(self.client.create_image(Some(options), None, None));
        while let Some(state) = patiently(&mut states).await.map_err(failed)? {
            let state = state.map_err(|e| failed(self.explain(&e, "pulling the image").to_string()))?;
            if let Some(error) = state.error_detail {
                return Err(failed(error.message.unwrap_or_default()));
            }
            let line = pulled(state.id.as_deref(), state.status.as_deref(), state.progress_detail.as_ref());
            progress(&Progress { step: None, line: format!("pulling {reference}: {line}") });
        }
        if self.has(reference).await? { Ok(()) } else { Err(failed("the pull ended without it".into())) }
    }

    /// The image to build on: the one that is wanted, else the usual one; where that can't be had, the one made from
    /// Debian's packages, when that `will_do`.
    pub(super) async fn base(
        &self,
        wanted: Option<&str>,
        usual: &str,
        will_do: bool,
        progress: OnProgress<'_>,
    ) -> Result<String, ImageError> {
        let base = wanted.unwrap_or(usual);
        if self.has(base).await? {
            return Ok(base.to_owned());
        }
        let failure = match self.pull(base, progress).await {
            Ok(()) => return Ok(base.to_owned()),
            Err(failure) if wanted.is_some() || !will_do => return Err(failure),
            Err(failure) => failure,
        };
        if self.has(DEBIAN_BASE).await? {
            let line = format!("no registry in reach: building on {DEBIAN_BASE}");
            progress(&Progress { step: None, line });
            return Ok(DEBIAN_BASE.to_owned());
        }
        let why = match failure {
            ImageError::Pull { why, .. } => why,
            other => other.to_string(),
        };
        Err(ImageError::NoBase { usual: base.to_owned(), why })
    }

    /// Builds one of the binary's own images.
    pub(crate) async fn build(
        &self,
        recipe: &Recipe,
        options: &BuildOptions,
        progress: OnProgress<'_>,
    ) -> Result<BuiltImage, ImageError> {
        let context = recipe.context(options.authorities.as_deref())?;
        let base = self.base(options.base.as_deref(), recipe.usual_base(), true, progress).await?;
        let reference = options.tag.clone().unwrap_or_else(|| recipe.tag());
        let mut arguments = options.proxies.clone();
        arguments.push(("BASE".to_owned(), base.clone()));
        let labels = vec![("cellblock.image", recipe.name), ("cellblock.base", base.as_str())];
        let order = Order {
            tag: &reference,
            context,
            dockerfile: "Dockerfile",
            arguments,
            target: "",
            labels,
            fresh: options.fresh,
        };
        match self.make(order, progress).await {
            Ok(id) => Ok(BuiltImage { reference, id, base }),
            Err(Broken { why, tail }) => Err(ImageError::Build { base, why, tail }),
        }
    }

    /// Builds an image, and returns its id. One that had the same name before and is of no use any more goes.
    pub(super) async fn make(&self, order: Order<'_>, progress: OnProgress<'_>) -> Result<String, Broken> {
        let mut log = Log::default();
        let before = self.image(order.tag).await.ok().flatten();
        let arguments: HashMap<&str, &str> =
            order.arguments.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let labels: HashMap<&str, &str> = order.labels.into_iter().collect();
        let request = BuildImageOptionsBuilder::new()
            .t(order.tag)
            .dockerfile(order.dockerfile)
            .buildargs(&arguments)
            .target(order.target)
            .labels(&labels)
            .nocache(order.fresh)
            // A build may take what it likes of the time, not of the machine.
            .memory(MEMORY)
            .memswap(MEMORY)
            .rm(true)
            .forcerm(true)
            .build();
        let body = bollard::body_full(order.context.into());
        let mut states = std::pin::pin!(self.client.build_image(request, None, Some(body)));
        let failed = |why: String, log: &Log| Broken { why: filtered(&why), tail: log.tail() };
        while let Some(state) = states.next().await {
            let state = state.map_err(|e| failed(self.explain(&e, "building").to_string(), &log))?;
            if let Some(error) = state.error_detail {
                return Err(failed(error.message.unwrap_or_default(), &log));
            }
            if let Some(status) = state.status {
                let line = pulled(state.id.as_deref(), Some(&status), state.progress_detail.as_ref());
                progress(&Progress { step: log.step, line });
            }
            for line in state.stream.unwrap_or_default().lines().map(str::trim_end).filter(|l| !l.is_empty())
            {
                progress(&log.take(line));
            }
        }
        match self.image(order.tag).await {
            Ok(Some(image)) => {
                if let Some(before) = before.filter(|before| before.id != image.id) {
                    self.discard(&before.id).await;
                }
                Ok(image.id)
            }
            Ok(None) => Err(failed("the build ended without an image".to_owned(), &log)),
            Err(error) => Err(failed(error.to_string(), &log)),
        }
    }

    /// Removes an image, unless it has a name, or something runs in it or was made from it.
    pub(super) async fn discard(&self, id: &str) {
        let named = self.client.inspect_image(id).await.map(|i| i.repo_tags.is_some_and(|t| !t.is_empty()));
        if matches!(named, Ok(false)) {
            let options = RemoveImageOptionsBuilder::new().force(false).build();
            if let Err(error) = self.client.remove_image(id, Some(options), None).await {
                tracing::debug!(%error, id, "an image that was replaced is still in use");
            }
        }
    }
}

/// One build.
pub(super) struct Order<'a> {
    /// What the image is called.
    pub(super) tag: &'a str,
    pub(super) context: Vec<u8>,
    pub(super) dockerfile: &'a str,
    pub(super) arguments: Vec<(String, String)>,
    /// The stage to build; empty: the last.
    pub(super) target: &'a str,
    pub(super) labels: Vec<(&'a str, &'a str)>,
    /// Every step again.
    pub(super) fresh: bool,
}

/// Why there is no image.
pub(super) struct Broken {
    pub(super) why: String,
    pub(super) tail: String,
}

/// The next state of a pull, unless it shows nothing for too long.
async fn patiently<T>(states: &mut (impl Stream<Item = T> + Unpin)) -> Result<Option<T>, String> {
    tokio::time::timeout(SILENCE, states.next())
        .await
        .map_err(|_| format!("the registry was silent for {} s", SILENCE.as_secs()))
}

/// One state of a pull in a line: `a1b2c3: Downloading 12.3 of 45.6 MB`.
fn pulled(id: Option<&str>, status: Option<&str>, detail: Option<&ProgressDetail>) -> String {
    let mut line = id.map(|id| format!("{id}: ")).unwrap_or_default();
    line += status.unwrap_or_default();
    if let Some((Some(current), Some(total))) = detail.map(|d| (d.current, d.total)) {
        let tenths = |bytes: i64| format!("{}.{}", bytes / 1_000_000, bytes / 100_000 % 10);
        line.extend([" ", &tenths(current), " of ", &tenths(total), " MB"]);
    }
    line
}

/// What a build has printed.
#[derive(Default)]
pub(super) struct Log {
    step: Option<(u32, u32)>,
    lines: VecDeque<String>,
}

impl Log {
    /// Takes up one line of output.
    pub(super) fn take(&mut self, line: &str) -> Progress {
        // Output of a build is as foreign as any.
        let line = filtered(line);
        let mut shown = line.as_str();
        if let Some(((step, steps), what)) = step(&line) {
            self.step = Some((step, steps));
            shown = what;
        }
        let progress = Progress { step: self.step, line: shown.to_owned() };
        self.lines.push_back(line.chars().take(LINE).collect());
        if self.lines.len() > TAIL {
            self.lines.pop_front();
        }
        progress
    }

    pub(super) fn tail(&self) -> String {
        self.lines.iter().map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

/// `Step 3/11 : RUN ...`; Podman writes `STEP`.
fn step(line: &str) -> Option<((u32, u32), &str)> {
    let rest = line.strip_prefix("Step ").or_else(|| line.strip_prefix("STEP "))?;
    let (numbers, what) = rest.split_once(':')?;
    let (step, steps) = numbers.trim().split_once('/')?;
    Some(((step.parse().ok()?, steps.parse().ok()?), what.trim()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_from_what_the_builder_prints() {
        assert_eq!(step("Step 3/11 : COPY a b"), Some(((3, 11), "COPY a b")));
        assert_eq!(step("STEP 1/2: FROM x"), Some(((1, 2), "FROM x")));
        assert_eq!(step("Step aside"), None);
        assert_eq!(step(" ---> 0123456789ab"), None);
    }

    #[test]
    fn a_failed_build_shows_its_last_lines() {
        let mut log = Log::default();
        log.take("Step 1/1 : RUN false");
        for n in 0..100 {
            log.take(&format!("line {n}"));
        }
        assert_eq!(log.tail().lines().count(), TAIL);
        assert!(log.tail().ends_with("line 99"));
        assert_eq!(log.take("x").to_string(), "step 1 of 1: x");
    }

    #[test]
    fn a_pull_shows_how_far_it_is() {
        let detail = ProgressDetail { current: Some(12_345_678), total: Some(45_600_000) };
        assert_eq!(pulled(Some("a1"), Some("Downloading"), Some(&detail)), "a1: Downloading 12.3 of 45.6 MB");
        assert_eq!(pulled(None, Some("Done"), None), "Done");
    }
}
