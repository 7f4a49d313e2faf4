//! The Docker API (and Podman's imitation of it) behind [`Backend`]. The API library's types never leave this
//! folder.
//!
//! May import `event`, `config` and, of this floor, `backend`, `spec`, `owner`, `workspace`, `image` and
//! `reaper`.
//!
//! | module | what |
//! | --- | --- |
//! | `engine` | the connection: where it is, what it can do, find and remove |
//! | `images` | is an image there, pull it, build it |
//! | `create` | a [`Spec`] in the API's words, fitted to what the engine can do |
//! | `container` | a running container: streams, end, why it ended |
//! | `watch` | what the engine says about our containers while they live |
//! | `explain` | the engine's errors in words, with the remedy |

mod container;
mod create;
mod engine;
mod explain;
mod images;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bollard::query_parameters::{AttachContainerOptionsBuilder, CreateContainerOptionsBuilder};
use futures_util::future::{BoxFuture, join_all};
use tokio::sync::{Mutex, OnceCell};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::container::{DockerContainer, LastWords, Output};
use self::watch::Watch;
use super::backend::{Backend, BackendError, Started};
use super::image::{BuildOptions, Progress, default_tag};
use super::owner::{LABEL, Owner, is_orphan};
use super::reaper::{Program, Reaper};
use super::spec::{Identity, Spec};
use super::workspace::Workspace;
use crate::config::SandboxSettings;
use crate::event::{DisplayId, Event, EventSender, Notice};

pub(crate) use engine::Engine;
pub use engine::Facts;

/// How often a line of progress is updated.
const PACE: Duration = Duration::from_millis(250);

/// What the backend needs to know; nothing is read from the environment here.
#[derive(Debug, Clone)]
pub struct Options {
    /// `[sandbox]`.
    pub settings: SandboxSettings,
    /// The notebook's directory: the kernel's working directory.
    pub directory: PathBuf,
    /// The engine, as `DOCKER_HOST` names it; `None`: the usual places.
    pub host: Option<String>,
    /// The image that `cellblock build` recorded.
    pub recorded_image: Option<String>,
    /// Certificate authorities for building the image (`SSL_CERT_FILE`); `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// Proxy variables for building the image.
    pub proxies: Vec<(String, String)>,
    /// How the reaper is started.
    pub reaper: Program,
    /// Directories that the reaper removes when the kernel is killed.
    pub temporary: Vec<PathBuf>,
}

/// The Docker backend of one kernel; cheap to clone.
#[derive(Clone)]
pub struct Docker(Arc<Inner>);

struct Inner {
    options: Options,
    owner: Owner,
    ready: OnceCell<Ready>,
    reaper: Mutex<Option<Reaper>>,
    building: Mutex<()>,
    /// What the engine lacks is told once, not with every container.
    told: AtomicBool,
    closing: CancellationToken,
    starts: TaskTracker,
}

/// What there is once the engine has answered.
#[derive(Clone)]
struct Ready {
    engine: Engine,
    facts: Arc<Facts>,
    watch: Watch,
}

/// A container about to be created. The [`Spec`] may still be changed (tests take a defence away).
pub struct Prepared {
    /// What it is given.
    pub spec: Spec,
    /// The host's side of `/workspace`.
    pub workspace: Option<Arc<Workspace>>,
    /// What the user should be told.
    pub notices: Vec<String>,
}

/// What the engine is and can do, for `cellblock doctor`.
///
/// # Errors
/// When no engine answers, with the remedy.
pub async fn facts(host: Option<&str>) -> Result<Facts, BackendError> {
    Engine::connect(host).await?.facts().await
}

/// Whether the engine has an image of that name, for `cellblock doctor`.
///
/// # Errors
/// When no engine answers, with the remedy.
pub async fn has_image(host: Option<&str>, reference: &str) -> Result<bool, BackendError> {
    Ok(Engine::connect(host).await?.image(reference).await?.is_some())
}

impl Docker {
    /// A backend that has not done anything yet.
    pub fn new(options: Options) -> Self {
        Docker(Arc::new(Inner {
            options,
            owner: Owner::current(),
            ready: OnceCell::new(),
            reaper: Mutex::new(None),
            building: Mutex::new(()),
            told: AtomicBool::new(false),
            closing: CancellationToken::new(),
            starts: TaskTracker::new(),
        }))
    }

    /// The owner that is written on every container.
    pub fn owner(&self) -> &Owner {
        &self.0.owner
    }

    /// Everything that comes before a container is created: engine, image, workspace.
    ///
    /// # Errors
    /// When one of them can't be had, with the remedy.
    pub async fn prepare(
        &self,
        argv: Vec<String>,
        progress: Option<EventSender>,
    ) -> Result<Prepared, BackendError> {
        let inner = &self.0;
        let ready = inner.ready().await?;
        let (image, volumes) = inner.image(&ready, progress).await?;
        let (workspace, mut notices) = inner.workspace(&ready).await?;
        let settings = &inner.options.settings;
        let user = Identity::inside(Identity::current(), ready.facts.rootless);
        let mut spec = Spec::hardened(image, argv, settings, user, &inner.owner);
        spec.cover_volumes(volumes.iter().map(String::as_str), settings.tmpfs);
        let lacking = create::fit(&mut spec, &ready.facts);
        if !inner.told.swap(true, Ordering::SeqCst) {
            notices.extend(lacking);
        }
        let path = workspace.path();
        if spec.relabel && path.to_string_lossy().contains(':') {
            return Err(BackendError::Workspace(format!(
                "the workspace {} has a colon in its path, which can't be mounted on a host with SELinux; rename the \
                 folder or set another one (sandbox.workspace)",
                path.display()
            )));
        }
        spec.workspace = Some(path.to_owned());
        Ok(Prepared { spec, workspace: Some(workspace), notices })
    }

    /// Creates, attaches and starts a container. When the future is dropped or `cancel` fires, nothing remains.
    ///
    /// # Errors
    /// When the engine refuses, with the remedy, or [`BackendError::Cancelled`].
    pub async fn launch(
        &self,
        prepared: Prepared,
        cancel: CancellationToken,
    ) -> Result<Started, BackendError> {
        let docker = self.clone();
        self.detached(cancel, |cancel| async move { docker.0.launch(prepared, &cancel).await }).await
    }

    /// Runs a start to its end whatever becomes of whoever waits for it: between the request that creates a
    /// container and its answer there is nothing yet that could be removed.
    async fn detached<F>(
        &self,
        cancel: CancellationToken,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Result<Started, BackendError>
    where
        F: Future<Output = Result<Started, BackendError>> + Send + 'static,
    {
        if self.0.closing.is_cancelled() {
            return Err(BackendError::Cancelled);
        }
        let own = self.0.closing.child_token();
        let task = self.0.starts.spawn(work(own.clone()));
        // Dropping this future drops the guard, and the task undoes what it did. A container that is already
        // on its way to us is destroyed by its own drop.
        let _guard = own.drop_guard();
        tokio::select! {
            ended = task => match ended {
                Ok(result) => result,
                Err(_) => Err(BackendError::Engine("the start of the sandbox broke off; run the cell again".into())),
            },
            () = cancel.cancelled() => Err(BackendError::Cancelled),
        }
    }
}

impl Backend for Docker {
    fn start(
        &self,
        argv: Vec<String>,
        progress: Option<EventSender>,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Result<Started, BackendError>> {
        let docker = self.clone();
        Box::pin(self.detached(cancel, |cancel| async move {
            let prepared = tokio::select! {
                prepared = docker.prepare(argv, progress) => prepared?,
                () = cancel.cancelled() => return Err(BackendError::Cancelled),
            };
            docker.0.launch(prepared, &cancel).await
        }))
    }

    fn destroy_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.destroy_all())
    }
}

impl Inner {
    /// The engine, connected once; the reaper alive.
    async fn ready(&self) -> Result<Ready, BackendError> {
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
    async fn image(
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
        let (say, said) = tokio::sync::watch::channel(String::new());
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

    async fn workspace(&self, ready: &Ready) -> Result<(Arc<Workspace>, Vec<String>), BackendError> {
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

    async fn launch(&self, prepared: Prepared, cancel: &CancellationToken) -> Result<Started, BackendError> {
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
                use super::backend::Container as _;
                container.destroy().await;
                Err(error)
            }
        }
    }

    /// Creates the container, with the reaper told before and after.
    async fn create(
        &self,
        engine: &Engine,
        spec: &Spec,
    ) -> Result<bollard::models::ContainerCreateResponse, BackendError> {
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

    async fn destroy_all(&self) {
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
async fn relay(mut said: tokio::sync::watch::Receiver<String>, progress: Option<EventSender>) {
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
