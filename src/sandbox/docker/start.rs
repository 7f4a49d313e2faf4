//! The steps of a start (engine, reaper, image, workspace, create, attach, start) and the end of everything.

use std::sync::Arc;

use bollard::models::ContainerCreateResponse;
use bollard::query_parameters::{AttachContainerOptionsBuilder, CreateContainerOptionsBuilder};
use futures_util::future::join_all;
use tokio_util::sync::CancellationToken;

use super::container::{DockerContainer, LastWords, Output};
use super::engine::Engine;
use super::watch::Watch;
use super::{Inner, Prepared, Ready, create, explain};
use crate::sandbox::artifacts::Folder;
use crate::sandbox::backend::{BackendError, Container, Started};
use crate::sandbox::definition::Plan;
use crate::sandbox::owner::{LABEL, is_orphan};
use crate::sandbox::reaper::Reaper;
use crate::sandbox::spec::Spec;

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
            let folders = self.temporary.lock().await.clone();
            let (engine, directories) = (ready.engine.address(), &options.temporary);
            let started = Reaper::start(&options.reaper, &kernel, engine, directories, &folders).await;
            *reaper = Some(started.map_err(|e| no_reaper(&e))?);
        }
        Ok(ready)
    }

    /// Has the reaper remove the folder of `plan` in the end, before it is made.
    pub(super) async fn guard(&self, plan: &Plan) -> Result<(), BackendError> {
        if !plan.temporary {
            return Ok(());
        }
        let folder = Folder::new(&self.options.directory, &plan.place);
        let mut folders = self.temporary.lock().await;
        if folders.contains(&folder) {
            return Ok(());
        }
        if folders.len() % 64 == 63 {
            Folder::forget_gone(&mut folders);
        }
        folders.push(folder.clone());
        drop(folders);
        match self.reaper.lock().await.as_mut() {
            Some(reaper) => reaper.folder(&folder).await.map_err(|e| no_reaper(&e)),
            None => Ok(()),
        }
    }

    pub(super) async fn launch(
        &self,
        prepared: Prepared,
        cancel: &CancellationToken,
    ) -> Result<Started, BackendError> {
        let Prepared { spec, workspace, place, mounts, mut notices } = prepared;
        let ready = self.ready().await?;
        let engine = &ready.engine;
        if cancel.is_cancelled() {
            return Err(BackendError::Cancelled);
        }
        let created = self.create(engine, &spec).await?;
        notices.extend(created.warnings);
        let words = LastWords::default();
        let container =
            DockerContainer::new(engine.clone(), ready.watch.clone(), created.id, spec.memory, words.clone())
                .with_private(self.options.proxies.iter().map(|(name, _)| name.clone()).collect());
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
            // The engine mounts by path: what was checked must still be what is there.
            for mounted in workspace.iter().chain(&place).map(Arc::as_ref).chain(&mounts) {
                mounted.verify().map_err(|e| BackendError::Workspace(e.to_string()))?;
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
                place,
                image: spec.image,
            }),
            Err(error) => {
                container.destroy().await;
                Err(error)
            }
        }
    }

    /// Creates the container, with the reaper told before and after.
    pub(super) async fn create(
        &self,
        engine: &Engine,
        spec: &Spec,
    ) -> Result<ContainerCreateResponse, BackendError> {
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
