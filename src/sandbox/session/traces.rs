//! What a run leaves in its folders: noticed after it, shown, kept.
//!
//! May import `event`. A run that writes nothing there costs two system calls, one before and one after.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::event::Bundle;
use crate::sandbox::artifacts::look::{Artifact, Opened, Preview, look, open};
use crate::sandbox::artifacts::watch::{Tree, Watch};
use crate::sandbox::artifacts::{ARTIFACTS, Folder, Paths, heads, inside, show};
use crate::sandbox::definition::{Definition, Place};
use crate::sandbox::output::Outlet;
use crate::sandbox::runner::frame::{Frame, Incoming, Order};
use crate::sandbox::spec::WORKSPACE;
use crate::sandbox::workspace::Workspace;

use super::{Session, next_frame};

/// How long looking into files may take, and how long when the user has stopped the run.
const PATIENCE: Duration = Duration::from_secs(1);
const HURRIED: Duration = Duration::from_millis(150);
/// How long the container may take to read the beginning of a table.
const GLANCE: Duration = Duration::from_secs(5);
/// The most that it may say of it.
const TOLD: usize = 256 << 10;
/// Tables that are read in the container, of one run.
const GLANCES: usize = 3;
/// Reads the beginning of a Parquet file, where the image can.
const PARQUET: &str = include_str!("parquet.py");

/// The folders of one container, watched.
pub(super) struct Traces {
    watch: Watch,
    paths: Paths,
    /// Where the container sees each tree's directory.
    inside: Vec<&'static str>,
    /// The folder of a run of its own.
    run: Option<Folder>,
}

impl Traces {
    /// Begins to watch the folders of a container that has just started.
    pub(super) async fn open(
        own: Option<Arc<Workspace>>,
        workspace: Option<Arc<Workspace>>,
        definition: &Definition,
        place: &Place,
    ) -> Option<Self> {
        // Another runtime than the engine's may keep what the guest writes to itself for a while.
        let blind = definition.limits.runtime.is_some() || cfg!(not(target_os = "linux"));
        let paths = Paths::new(workspace.as_deref(), own.as_deref().map(|own| (place, own)));
        let (mut trees, mut seen) = (Vec::new(), Vec::new());
        let mut run = None;
        if let Some(mounted) = &own {
            trees.push(Tree { mounted: Arc::clone(mounted), below: ARTIFACTS.into(), except: None });
            seen.push(inside(place));
            if let Place::Run(_) = place {
                run = Some(Folder::new(mounted.home(), place));
            }
        }
        if let Some(mounted) = workspace.filter(|_| definition.limits.workspace_artifacts && !blind) {
            let except = own.as_ref().and_then(|own| own.path().strip_prefix(mounted.path()).ok());
            let except = except.map(Path::to_owned);
            trees.push(Tree { mounted, below: PathBuf::new(), except });
            seen.push(WORKSPACE);
        }
        if trees.is_empty() {
            return None;
        }
        let watch = tokio::task::spawn_blocking(move || Watch::open(trees, blind)).await.ok()?;
        Some(Traces { watch, paths, inside: seen, run })
    }

    /// A run begins.
    pub(super) async fn begin(self) -> Option<Self> {
        let mut traces = self;
        traces.watch.start();
        if !traces.watch.stirred() {
            return Some(traces);
        }
        let forget = move || {
            traces.watch.forget();
            traces
        };
        tokio::task::spawn_blocking(forget).await.ok()
    }

    /// Keeps the artifacts of a run of its own, and says where they are from here on.
    async fn keep(&self, artifacts: &mut [Artifact]) {
        let Some(folder) = self.run.clone() else { return };
        let kept = tokio::task::spawn_blocking(move || folder.promote()).await.ok().flatten();
        let own = Path::new(self.inside.first().copied().unwrap_or_default());
        for artifact in artifacts.iter_mut().filter(|artifact| artifact.container.starts_with(own)) {
            let rest = artifact.container.strip_prefix(own.join(ARTIFACTS)).ok();
            artifact.host = kept.as_ref().zip(rest).map(|(kept, rest)| kept.join(rest));
        }
    }

    /// What the run wrote, with how many files more.
    async fn written(self, hurry: bool) -> Option<(Self, Vec<Artifact>, usize)> {
        if !self.watch.stirred() {
            return Some((self, Vec::new(), 0));
        }
        tokio::task::spawn_blocking(move || {
            let mut traces = self;
            let written = traces.watch.written();
            let (opened, more): (Vec<Opened>, usize) = open(traces.watch.trees(), written);
            let patience = if hurry { HURRIED } else { PATIENCE };
            let artifacts = look(opened, &traces.inside, &traces.paths, patience);
            (traces, artifacts, more)
        })
        .await
        .ok()
    }
}

impl Session {
    /// Shows what the run left, before its end.
    pub(super) async fn leave(
        &mut self,
        traces: Traces,
        outlet: &mut Outlet,
        cancel: &CancellationToken,
    ) -> Option<Traces> {
        if self.shutdown.is_cancelled() {
            return Some(traces);
        }
        let (traces, mut artifacts, more) = traces.written(cancel.is_cancelled()).await?;
        if artifacts.is_empty() && more == 0 {
            return Some(traces);
        }
        let tables = artifacts.iter_mut().filter(|a| matches!(a.preview, Preview::Parquet));
        for artifact in tables.take(GLANCES) {
            let told = self.glance(&artifact.container, cancel).await;
            if let Some(table) = told.as_deref().and_then(heads::told) {
                artifact.preview = Preview::Table(table);
            }
        }
        // Only now: a file that is kept is no longer where the container could read it.
        traces.keep(&mut artifacts).await;
        outlet.end_of_text();
        // It is listed all the same.
        for artifact in &mut artifacts {
            if let Preview::Rich(bundle) = &artifact.preview
                && outlet.pictures.has(bundle)
            {
                artifact.preview = Preview::None;
            }
        }
        for bundle in show::displays(artifacts, more) {
            let size = size_of(&bundle);
            outlet.display(bundle, None, false, size);
        }
        Some(traces)
    }

    /// What a process in the container says of a table. It is killed when it takes too long, and when the user
    /// waits no longer.
    async fn glance(&mut self, path: &Path, cancel: &CancellationToken) -> Option<String> {
        let path = path.to_str().filter(|path| !path.contains(['{', '\0']))?;
        let live = self.live.as_mut()?;
        let number = live.number();
        let order =
            json!({ "argv": ["python3", "-I", "-c", PARQUET, path], "compile": Value::Null, "files": {} });
        live.order(Order::Process, number, &order).await.ok()?;
        let (mut text, mut killed) = (Vec::new(), false);
        let mut until = Instant::now() + GLANCE;
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return None,
                () = stopped(cancel, until) => {
                    if killed {
                        return None;
                    }
                    killed = true;
                    until = Instant::now() + Duration::from_secs(1);
                    self.live.as_mut()?.order(Order::Kill, number, &json!({})).await.ok()?;
                }
                incoming = next_frame(&mut self.live) => match incoming {
                    Some(Ok(Incoming { run, frame: Frame::Stdout(bytes), .. })) if run == number => {
                        if text.len() + bytes.len() <= TOLD {
                            text.extend_from_slice(&bytes);
                        }
                    }
                    Some(Ok(Incoming { run, frame: Frame::Stderr(_), .. })) if run == number => {}
                    Some(Ok(Incoming { run, frame: Frame::Exit(exit), .. })) if run == number => {
                        return (!killed && exit.code == Some(0)).then(|| String::from_utf8(text).ok())?;
                    }
                    Some(Ok(Incoming { run, frame: Frame::Fault(_), .. })) if run == number => return None,
                    incoming => {
                        self.idle_frame(incoming).await;
                        self.live.as_ref()?;
                    }
                }
            }
        }
    }
}

/// The moment when nobody waits any longer.
async fn stopped(cancel: &CancellationToken, until: Instant) {
    tokio::select! {
        () = cancel.cancelled() => {}
        () = tokio::time::sleep_until(until) => {}
    }
}

/// Bytes that a bundle takes, about.
fn size_of(bundle: &Bundle) -> usize {
    let texts: usize = bundle.data().values().filter_map(Value::as_str).map(str::len).sum();
    texts + bundle.metadata().values().map(|value| value.to_string().len()).sum::<usize>()
}
