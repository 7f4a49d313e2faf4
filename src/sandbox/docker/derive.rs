//! Packages on top of an image: a container with a network installs them, and is kept as an image.
//!
//! It is no sandbox of anybody's: nothing of the host is mounted, no code of a cell runs in it, and it ends when the
//! install has ended. It has the limits of a sandbox all the same, and no more privileges than installing takes.

use std::time::Duration;

use bollard::container::LogOutput;
use bollard::models::ContainerConfig;
use bollard::query_parameters::{AttachContainerOptionsBuilder, CommitContainerOptionsBuilder};
use futures_util::StreamExt;
use tokio::io::AsyncWriteExt;

use super::container::{DockerContainer, LastWords};
use super::images::{Broken, Known, Log};
use super::make::{known, line, unmade};
use super::{Inner, Ready, create};
use crate::config::Network;
use crate::event::EventSender;
use crate::sandbox::backend::{BackendError, Container};
use crate::sandbox::definition::Definition;
use crate::sandbox::image::{ImageError, OnProgress, Progress, authorities_of, layer};
use crate::sandbox::packages::Packages;
use crate::sandbox::spec::{Identity, Spec};

/// Memory that installing may take at least, in bytes: resolvers and unpackers need some.
const MEMORY: i64 = 2 << 30;
/// Processes that it may take at least.
const PROCESSES: i64 = 512;
/// How long to wait for the engine's word on how it ended.
const WORD: Duration = Duration::from_secs(10);
/// The longest line that is shown, in bytes.
const LINE: usize = 4 << 10;

impl Inner {
    /// An image with packages on top of `base` (an id).
    pub(super) async fn derive(
        &self,
        ready: &Ready,
        definition: &Definition,
        base: &str,
        packages: &Packages,
        fresh: bool,
        progress: Option<EventSender>,
    ) -> Result<Known, BackendError> {
        let tag = layer::tag(base, packages);
        let name = format!("{}:{tag}", layer::NAME);
        let before = ready.engine.image(&name).await?;
        if let Some(found) = before.clone().filter(|_| !fresh) {
            return Ok(found);
        }
        let told = |state: &Progress| format!("Installing {packages}: {state}");
        let (mut line, relayed) = line(progress, told);
        let work = async move {
            let _lock = self.lock(&name, &mut line).await;
            if let Some(found) = ready.engine.image(&name).await?.filter(|_| !fresh) {
                return Ok(found);
            }
            line(&Progress { step: None, line: "starting".to_owned() });
            let container = self.installed(ready, definition, base, packages, &mut line).await?;
            line(&Progress { step: None, line: "keeping it as an image".to_owned() });
            let options = CommitContainerOptionsBuilder::new()
                .container(container.id())
                .repo(layer::NAME)
                .tag(&tag)
                .pause(false)
                .build();
            let config =
                ContainerConfig { env: Some(layer::environment(packages)), ..ContainerConfig::default() };
            let kept = ready.engine.patient().commit_container(options, config).await;
            container.destroy().await;
            kept.map_err(|e| ready.engine.explain(&e, "keeping the packages as an image"))?;
            let made = known(ready, &name).await?;
            if let Some(before) = before.filter(|before| before.id != made.id) {
                ready.engine.discard(&before.id).await;
            }
            Ok(made)
        };
        tokio::join!(work, relayed).0
    }

    /// The container in which everything was installed, ended.
    async fn installed(
        &self,
        ready: &Ready,
        definition: &Definition,
        base: &str,
        packages: &Packages,
        on_progress: OnProgress<'_>,
    ) -> Result<DockerContainer, BackendError> {
        let authorities = authorities_of(self.options.authorities.as_deref()).map_err(|e| unmade(&e))?;
        let engine = &ready.engine;
        let mut spec = self.installer(definition, base, packages);
        create::fit(&mut spec, &ready.facts);
        let created = self.create(engine, &spec).await?;
        let words = LastWords::default();
        let container =
            DockerContainer::new(engine.clone(), ready.watch.clone(), created.id, spec.memory, words);
        let attach =
            AttachContainerOptionsBuilder::new().stream(true).stdin(true).stdout(true).stderr(true).build();
        let streams = engine.client.attach_container(container.id(), Some(attach)).await;
        let mut streams = streams.map_err(|e| engine.explain(&e, "attaching to the container"))?;
        let started = engine.client.start_container(container.id(), None).await;
        started.map_err(|e| engine.explain(&e, "starting the container"))?;
        let order = layer::order(packages, &authorities, &self.options.proxies);
        let told = async {
            streams.input.write_all(&order).await?;
            streams.input.shutdown().await
        };
        let mut log = Log::default();
        let mut lines = Lines::default();
        let shown = async {
            while let Some(Ok(piece)) = streams.output.next().await {
                lines.take(&piece, |line| on_progress(&log.take(line)));
            }
            lines.finish(|line| on_progress(&log.take(line)));
        };
        let (told, ()) = tokio::join!(told, shown);
        let fate = ready.watch.fate(container.id(), WORD, |fate| fate.exit.is_some() || fate.gone).await;
        let why = match (fate.exit, told) {
            (Some(0), Ok(())) => return Ok(container),
            (Some(_), _) if fate.out_of_memory > 0 => {
                "installing takes more memory than it is given".to_owned()
            }
            (Some(code), _) => format!("the installer ended with exit code {code}"),
            (None, _) => "the container that installs was removed from outside".to_owned(),
        };
        container.destroy().await;
        let Broken { why, tail } = Broken { why, tail: log.tail() };
        let remedy = layer::remedy(&tail, &why);
        Err(unmade(&ImageError::Packages { packages: packages.to_string(), why, tail, remedy }))
    }

    /// What the container that installs is given.
    fn installer(&self, definition: &Definition, base: &str, packages: &Packages) -> Spec {
        let root = Identity { uid: 0, gid: 0 };
        let mut spec = Spec::hardened(base, layer::argv(), &definition.limits, root, &self.owner);
        spec.network = Network::Bridge;
        spec.runtime = None;
        spec.add_capabilities = layer::capabilities(packages);
        // What is installed lands in the root file system, which is kept; the container waits until it was.
        spec.read_only = false;
        spec.auto_remove = false;
        spec.tmpfs.clear();
        spec.ulimits.retain(|(name, _)| name != "fsize");
        spec.memory = spec.memory.map(|memory| memory.max(MEMORY));
        spec.pids = spec.pids.map(|pids| pids.max(PROCESSES));
        spec
    }
}

/// Output put together to lines, each bounded.
#[derive(Default)]
struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    fn take(&mut self, piece: &LogOutput, mut each: impl FnMut(&str)) {
        for byte in piece.as_ref() {
            match byte {
                b'\n' | b'\r' => self.finish(&mut each),
                _ if self.rest.len() < LINE => self.rest.push(*byte),
                _ => {}
            }
        }
    }

    fn finish(&mut self, mut each: impl FnMut(&str)) {
        let line = String::from_utf8_lossy(&self.rest).trim_end().to_owned();
        self.rest.clear();
        if !line.is_empty() {
            each(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_becomes_lines_however_it_is_cut() {
        let mut lines = Lines::default();
        let mut seen = Vec::new();
        for piece in ["one\ntw", "o\r\n", "\n", "three"] {
            let piece = LogOutput::StdOut { message: piece.into() };
            lines.take(&piece, |line| seen.push(line.to_owned()));
        }
        let long = LogOutput::StdErr { message: "x".repeat(3 * LINE).into() };
        lines.take(&long, |line| seen.push(line.to_owned()));
        lines.finish(|line| seen.push(line.chars().take(6).collect()));
        assert_eq!(seen, ["one", "two", "threex"]);
    }
}
