//! The steps of a start (engine, reaper, image, workspace, create, attach, start) and the end of everything.

use std::sync::Arc;
use std::time::Duration;

use bollard::models::ContainerCreateResponse;
use bollard::query_parameters::{AttachContainerOptionsBuilder, CreateContainerOptionsBuilder};
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::container::{DockerContainer, LastWords, Output};
use super::engine::Engine;
use super::watch::Watch;
use super::{Inner, Prepared, Ready, create, explain};
use crate::event::{DisplayId, Event, EventSender, Notice};
use crate::sandbox::backend::{BackendError, Container, Started};
use crate::sandbox::image::{BuildOptions, Progress, default_tag};
use crate::sandbox::owner::{LABEL, is_orphan};
use crate::sandbox::reaper::Reaper;
use crate::sandbox::spec::{Identity, Spec};
use crate::sandbox::workspace::Workspace;

/// How often a line of progress is updated.
const PACE: Duration = Duration::from_millis(250);

impl Inner {
    /// The engine, connected once; the reaper alive.
    pub(super) async fn ready(&self) -> Result<Ready, BackendError> {
        let ready = self
            .ready
            .get_or_try_init(|| async {
                let engine = Engine::connect(self.options.host.as_deref()).await?;
                let facts = Arc::new(engine.facts().await?);
                let watch = Watch::open(&engine, &self.owner);
                tokio::spawn(sweep(engine.clone()));
                Ok::<_, BackendError>(Ready { engine, facts, watch })
            })
            .await?
            .clone();
        let mut reaper = self.reaper.lock().await;
        if !reaper.as_mut().is_some_and(Reaper::lives) {
            let kernel = self.owner.kernel.to_string();
            let options = &self.options;
            let started =
                Reaper::start(&options.reaper, &kernel, ready.engine.address(), &options.temporary).await;
            *reaper = Some(started.map_err(|e| no_reaper(&e))?);
        }
        Ok(ready)
    }

    /// Which image to run, made or pulled when it is missing, and where it declares volumes.
    pub(super) async fn image(
        &self,
        ready: &Ready,
        progress: Option<EventSender>,
    ) -> Result<(String, Vec<String>), BackendError> {
        let engine = &ready.engine;
        let own = default_tag();
        let settings = &self.options.settings;
        let wanted = [settings.image.as_ref(), self.options.recorded_image.as_ref(), Some(&own)];
        // A setting is an order; the record only says what was built, and may be out of date.
        let wanted: Vec<&String> =
            wanted.into_iter().flatten().take(if settings.image.is_some() { 1 } else { 3 }).collect();
        let look = || async {
            for reference in &wanted {
                if let Some(image) = engine.image(reference).await? {
                    return Ok(Some(((*reference).clone(), image.volumes)));
                }
            }
            Ok::<_, BackendError>(None)
        };
        if let Some(found) = look().await? {
            return Ok(found);
        }
        let _one_at_a_time = self.building.lock().await;
        if let Some(found) = look().await? {
            return Ok(found);
        }
        let options = BuildOptions {
            host: self.options.host.clone(),
            base: settings.base_image.clone(),
            tag: None,
            authorities: self.options.authorities.clone(),
            proxies: self.options.proxies.clone(),
            fresh: false,
        };
        let (say, said) = watch::channel(String::new());
        let mut on_progress = move |state: &Progress| {
            say.send_replace(format!("Getting the sandbox image ready: {state}"));
        };
        // The sending end goes with the work, and its end is the end of the line of progress.
        let work = async move {
            match &settings.image {
                Some(image) => engine.pull(image, &mut on_progress).await,
                None => engine.build(&options, &mut on_progress).await.map(drop),
            }
        };
        let (made, ()) = tokio::join!(work, relay(said, progress));
        made.map_err(|e| BackendError::Image(e.to_string()))?;
        look()
            .await?
            .ok_or_else(|| BackendError::Image("the image vanished again; run the cell again".into()))
    }

    pub(super) async fn workspace(
        &self,
        ready: &Ready,
    ) -> Result<(Arc<Workspace>, Vec<String>), BackendError> {
        let unusable = |e: String| BackendError::Workspace(e);
        let (directory, wanted) = (self.options.directory.clone(), self.options.settings.workspace.clone());
        let outside = self.options.settings.workspace_outside;
        // File systems over a network can take their time.
        let prepared = tokio::task::spawn_blocking(move || Workspace::prepare(&directory, &wanted, outside));
        let workspace =
            prepared.await.map_err(|e| unusable(e.to_string()))?.map_err(|e| unusable(e.to_string()))?;
        let path = workspace.path();
        let socket = ready.engine.socket();
        if socket.canonicalize().unwrap_or_else(|_| socket.to_owned()).starts_with(path) {
            return Err(unusable(format!(
                "the workspace {} holds the container engine's socket: code in the sandbox could take over this \
                 machine. Set another folder (sandbox.workspace)",
                path.display()
            )));
        }
        let mut notices = Vec::new();
        if workspace.exposes_notebook() {
            notices.push(format!(
                "The workspace {} holds the notebook's directory itself: code in the sandbox can read and change \
                 notebooks, settings and everything else there.",
                path.display()
            ));
        }
        let kernel = Identity::current();
        if kernel.uid == 0 && !ready.facts.rootless {
            match workspace.give_to(Identity::inside(kernel, false)) {
                Ok(notice) => notices.extend(notice),
                // Reading may still work; writing will say so itself.
                Err(error) => notices.push(error.to_string()),
            }
        }
        Ok((Arc::new(workspace), notices))
    }

    pub(super) async fn launch(
        &self,
        prepared: Prepared,
        cancel: &CancellationToken,
    ) -> Result<Started, BackendError> {
        let Prepared { spec, workspace, mut notices } = prepared;
        let ready = self.ready().await?;
        let engine = &ready.engine;
        if cancel.is_cancelled() {
            return Err(BackendError::Cancelled);
        }
        let created = self.create(engine, &spec).await?;
        notices.extend(created.warnings);
        let words = LastWords::default();
        let container =
            DockerContainer::new(engine.clone(), ready.watch.clone(), created.id, spec.memory, words.clone());
        let begun = async {
            let attach = AttachContainerOptionsBuilder::new()
                .stream(true)
                .stdin(true)
                .stdout(true)
                .stderr(true)
                .build();
            // Attached before it starts: the first bytes would be lost otherwise.
            let streams = engine.client.attach_container(container.id(), Some(attach)).await;
            let streams = streams.map_err(|e| engine.explain(&e, "attaching to the container"))?;
            let started = engine.client.start_container(container.id(), None).await;
            started.map_err(|e| engine.explain(&e, "starting the container"))?;
            if let Some(workspace) = &workspace {
                // The engine mounts by path: what was checked must still be what is there.
                workspace.verify().map_err(|e| BackendError::Workspace(e.to_string()))?;
            }
            if cancel.is_cancelled() { Err(BackendError::Cancelled) } else { Ok(streams) }
        };
        match begun.await {
            Ok(streams) => Ok(Started {
                input: Box::new(streams.input),
                output: Box::new(Output::new(streams.output, words)),
                container: Box::new(container),
                notices,
                workspace,
            }),
            Err(error) => {
                container.destroy().await;
                Err(error)
            }
        }
    }

    /// Creates the container, with the reaper told before and after.
    async fn create(&self, engine: &Engine, spec: &Spec) -> Result<ContainerCreateResponse, BackendError> {
        let mut reaper = self.reaper.lock().await;
        let guard = reaper.as_mut().ok_or_else(|| no_reaper(&std::io::Error::other("it is gone")))?;
        guard.creating(&spec.name).await.map_err(|e| no_reaper(&e))?;
        drop(reaper);
        let options = CreateContainerOptionsBuilder::new().name(&spec.name).build();
        let created = engine.client.create_container(Some(options), create::body(spec)).await;
        if let Some(guard) = self.reaper.lock().await.as_mut() {
            // A reaper that died meanwhile is replaced before the next container.
            let _ = guard.created(&spec.name).await;
        }
        created.map_err(|e| match explain::status(&e) {
            Some(404) => BackendError::Image(format!(
                "the image {} is gone from the engine: run the cell again to have it made, or run `cellblock build`",
                spec.image
            )),
            _ => engine.explain(&e, "creating the container"),
        })
    }

    pub(super) async fn destroy_all(&self) {
        self.closing.cancel();
        self.starts.close();
        self.starts.wait().await;
        let Some(ready) = self.ready.get() else { return };
        let mut clean = true;
        match ready.engine.find(&self.owner.filter()).await {
            Ok(found) => {
                let removals = found.iter().map(|container| ready.engine.remove(&container.id));
                for error in join_all(removals).await.into_iter().filter_map(Result::err) {
                    clean = false;
                    tracing::warn!(%error, "could not remove a container");
                }
            }
            Err(error) => {
                clean = false;
                tracing::warn!(%error, "could not look for containers");
            }
        }
        // Not clean: the reaper goes on trying when the pipe closes.
        if let Some(reaper) = self.reaper.lock().await.take_if(|_| clean)
            && let Err(error) = reaper.dismiss().await
        {
            tracing::debug!(%error, "the reaper was gone already");
        }
    }
}

fn no_reaper(error: &std::io::Error) -> BackendError {
    BackendError::Engine(format!(
        "the process that removes containers when the kernel is killed can't be started ({error}), so none was \
         created; see whether the machine is out of memory or processes, and reinstall cellblock if it was moved"
    ))
}

/// Removes the containers of kernels that are dead, and of which a reaper was killed too.
async fn sweep(engine: Engine) {
    let found = match engine.find(&format!("{LABEL}=1")).await {
        Ok(found) => found,
        Err(error) => return tracing::debug!(%error, "could not look for orphans"),
    };
    for orphan in found.iter().filter(|container| is_orphan(&container.labels)) {
        match engine.remove(&orphan.id).await {
            Ok(()) => tracing::info!(container = %orphan.id, "removed a container of a dead kernel"),
            Err(error) => tracing::debug!(%error, "could not remove an orphan"),
        }
    }
}

/// Shows the last state of a piece of work at a bounded pace until the work is done, then takes the line away.
async fn relay(mut said: watch::Receiver<String>, progress: Option<EventSender>) {
    let Some(progress) = progress else { return };
    let id = DisplayId::host();
    while said.changed().await.is_ok() {
        let text = said.borrow_and_update().clone();
        // Nobody looks any more: the work goes on, for the next cell.
        let _ = progress.send(Event::Notice(Notice::progress(&id, text))).await;
        tokio::time::sleep(PACE).await;
    }
    let _ = progress.send(Event::Notice(Notice::progress(&id, ""))).await;
}
