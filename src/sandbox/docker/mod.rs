//! The Docker API (and Podman's imitation of it) behind [`Backend`]. The API library's types never leave this
//! folder.
//!
//! May import `event`, `config` and, of this floor, `backend`, `spec`, `owner`, `workspace`, `image` and
//! `reaper`.
//!
//! | module | what |
//! | --- | --- |
//! | `start` | the steps of a start, and the end of everything |
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
mod start;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, OnceCell};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::watch::Watch;
use super::backend::{Backend, BackendError, Started};
use super::owner::Owner;
use super::reaper::{Program, Reaper};
use super::spec::{Identity, Spec};
use super::workspace::Workspace;
use crate::config::SandboxSettings;
use crate::event::EventSender;

pub(crate) use engine::Engine;
pub use engine::Facts;

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
