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
//! | `exec` | a program beside the main process of any kernel's container |
//! | `images` | is an image there, pull it, build it |
//! | `derive` | packages on top of an image |
//! | `make` | the image of a definition |
//! | `prune` | images that nobody needs any more |
//! | `folders` | the host's directories that it sees |
//! | `create` | a [`Spec`] in the API's words, fitted to what the engine can do |
//! | `container` | a running container: streams, end, why it ended |
//! | `way` | proxies and certificates for containers with a network |
//! | `watch` | what the engine says about our containers while they live |
//! | `explain` | the engine's errors in words, with the remedy |

mod container;
mod create;
mod derive;
mod engine;
mod exec;
mod explain;
mod folders;
mod images;
mod make;
mod prune;
mod start;
mod watch;
mod way;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, OnceCell};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::folders::Folders;
use self::images::Known;
use self::watch::Watch;
use super::artifacts::Folder;
use super::backend::{Backend, BackendError, Started};
use super::definition::{Definition, Place, Plan, User};
use super::owner::{LABEL_CONTAINER, LABEL_DIRECTORY, LABEL_SESSION, Owner};
use super::packages::Packages;
use super::reaper::{Program, Reaper};
use super::spec::{Identity, Spec};
use super::workspace::Workspace;
use crate::config::Network;
use crate::event::EventSender;

pub(crate) use engine::Engine;
pub use engine::Facts;
pub(crate) use exec::Running;
pub use prune::{Pruned, Pruning};

/// What the backend needs to know; nothing is read from the environment here.
#[derive(Debug, Clone)]
pub struct Options {
    /// The notebook's directory: the kernel's working directory.
    pub directory: PathBuf,
    /// The engine, as `DOCKER_HOST` names it; `None`: the usual places.
    pub host: Option<String>,
    /// Certificate authorities for building the image (`SSL_CERT_FILE`); `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// Proxy variables for building the image.
    pub proxies: Vec<(String, String)>,
    /// Where what kernels share is kept (locks, certificates); `None`: nowhere.
    pub state: Option<PathBuf>,
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
    /// Folders that the reaper removes in the end, for the next one should it die.
    temporary: Mutex<Vec<Folder>>,
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
    /// The host's side of `/session` or `/work`.
    pub place: Option<Arc<Workspace>>,
    /// The host's side of the definition's own mounts.
    pub mounts: Vec<Workspace>,
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
            temporary: Mutex::new(Vec::new()),
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
    pub async fn prepare(&self, plan: Plan, progress: Option<EventSender>) -> Result<Prepared, BackendError> {
        let inner = &self.0;
        let ready = inner.ready().await?;
        inner.guard(&plan).await?;
        let definition = &plan.definition;
        let Known { id: image, volumes } =
            inner.image(&ready, definition, plan.image.as_deref(), progress).await?;
        let user = match definition.user {
            User::Auto => Identity::inside(Identity::current(), ready.facts.rootless),
            User::Id(user) => user,
        };
        let mut spec = Spec::hardened(image, plan.argv, &definition.limits, user, &inner.owner);
        spec.labels.extend(inner.told_by_labels(&plan.definition, &plan.place));
        let lacking = create::fit(&mut spec, &ready.facts);
        spec.define(definition);
        let Folders { workspace, place, mounts, mut notices } =
            inner.folders(&ready, definition, &plan.place, &mut spec).await?;
        spec.cover_volumes(volumes.iter().map(String::as_str), definition.limits.tmpfs);
        if !inner.told.swap(true, Ordering::SeqCst) {
            notices.extend(lacking);
        }
        if spec.network == Network::Bridge {
            inner.give_way(&mut spec).await;
        }
        Ok(Prepared { spec, workspace, place, mounts, notices })
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

impl Inner {
    /// What a container is to others: `cellblock cp`, another kernel in the same session.
    fn told_by_labels(&self, definition: &Definition, place: &Place) -> [(String, String); 3] {
        let session = match place {
            Place::Session(name) => name.clone(),
            Place::Run(_) => String::new(),
        };
        [
            (LABEL_CONTAINER.to_owned(), definition.name.clone()),
            (LABEL_SESSION.to_owned(), session),
            (LABEL_DIRECTORY.to_owned(), self.directory()),
        ]
    }

    /// The notebook's directory, as labels name it.
    fn directory(&self) -> String {
        let directory = &self.options.directory;
        directory.canonicalize().unwrap_or_else(|_| directory.clone()).to_string_lossy().into_owned()
    }
}

impl Backend for Docker {
    fn start(
        &self,
        plan: Plan,
        progress: Option<EventSender>,
        cancel: CancellationToken,
    ) -> BoxFuture<'_, Result<Started, BackendError>> {
        let docker = self.clone();
        Box::pin(self.detached(cancel, |cancel| async move {
            let prepared = tokio::select! {
                prepared = docker.prepare(plan, progress) => prepared?,
                () = cancel.cancelled() => return Err(BackendError::Cancelled),
            };
            docker.0.launch(prepared, &cancel).await
        }))
    }

    fn make(
        &self,
        definition: Arc<Definition>,
        fresh: bool,
        progress: Option<EventSender>,
    ) -> BoxFuture<'_, Result<String, BackendError>> {
        Box::pin(async move {
            let ready = self.0.ready().await?;
            Ok(self.0.make(&ready, &definition, fresh, progress).await?.id)
        })
    }

    fn derive(
        &self,
        definition: Arc<Definition>,
        base: Option<String>,
        packages: Packages,
        progress: Option<EventSender>,
    ) -> BoxFuture<'_, Result<String, BackendError>> {
        Box::pin(async move {
            let ready = self.0.ready().await?;
            let base = self.0.image(&ready, &definition, base.as_deref(), progress.clone()).await?;
            Ok(self.0.derive(&ready, &definition, &base.id, &packages, false, progress).await?.id)
        })
    }

    fn others(&self, session: &str) -> BoxFuture<'_, usize> {
        let session = session.to_owned();
        Box::pin(async move {
            let Ok(ready) = self.0.ready().await else { return 0 };
            let (kernel, directory) = (self.0.owner.kernel.to_string(), self.0.directory());
            let there = ready.engine.running().await.unwrap_or_default();
            let theirs =
                |r: &&Running| r.session == session && r.directory == directory && r.kernel != kernel;
            there.iter().filter(theirs).count()
        })
    }

    fn destroy_all(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.destroy_all())
    }
}
