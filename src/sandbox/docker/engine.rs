//! The connection to the engine: where it is, what it can do, and the calls that need nothing else.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder};

use super::explain::{absent, explain, status};
use crate::sandbox::backend::BackendError;
use crate::sandbox::spec::NAME;

/// The longest that the engine may take to answer one request, in seconds. Creating containers on a busy
/// machine takes seconds; streams are not concerned.
const PATIENCE: u64 = 60;
/// The same for keeping a container as an image: all that it wrote is read.
const KEEPING: Duration = Duration::from_mins(10);
/// How often a removal is tried again while the engine is at it already, and how long to wait between.
const REMOVALS: u32 = 400;
const REMOVAL_PAUSE: Duration = Duration::from_millis(25);

/// A connection to an engine; cheap to clone.
#[derive(Clone)]
pub(crate) struct Engine {
    pub(super) client: bollard::Docker,
    address: String,
}

/// A container of ours, as the engine lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// The engine's id of it.
    pub(crate) id: String,
    /// Its labels.
    pub(crate) labels: HashMap<String, String>,
}

/// What an engine is and can do, for `cellblock doctor` and for what a container may be given.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts, each reported by itself")]
pub struct Facts {
    /// Where it answers: `unix:///var/run/docker.sock`.
    pub address: String,
    /// `Docker Engine 20.10.24`, `Podman Engine 4.3.1`.
    pub name: String,
    /// The API's version that is spoken with it.
    pub api: String,
    /// The runtime's version, as far as the engine says (`1.1.5`, a commit).
    pub runc: Option<String>,
    /// The engine runs without root: the container's user 0 is the user who runs it.
    pub rootless: bool,
    /// The engine maps the users of containers to others (`userns-remap`).
    pub remapped: bool,
    /// `SELinux` confines containers.
    pub selinux: bool,
    /// A seccomp profile that filters is in force.
    pub seccomp: bool,
    /// Control groups 1 or 2.
    pub cgroups: Option<u8>,
    /// Memory can be limited.
    pub memory: bool,
    /// Memory plus swap can be limited.
    pub swap: bool,
    /// CPU time can be limited.
    pub cpu: bool,
    /// The number of processes can be limited.
    pub pids: bool,
    /// CPUs of the engine's machine; `None` when it does not say.
    pub cpus: Option<u32>,
}

impl Engine {
    /// Connects and agrees on a version of the API.
    pub(crate) async fn connect(host: Option<&str>) -> Result<Engine, BackendError> {
        let socket = socket(host)?;
        let address = format!("unix://{}", socket.display());
        let said = |e: &bollard::errors::Error| explain(e, &address, "connecting");
        let path = socket.to_string_lossy();
        let client = bollard::Docker::connect_with_unix(&path, PATIENCE, bollard::API_DEFAULT_VERSION)
            .map_err(|e| said(&e))?;
        // Engines in the field speak 1.41 and older.
        let client = client.negotiate_version().await.map_err(|e| said(&e))?;
        Ok(Engine { client, address })
    }

    /// The same for requests that take as long as the disk does.
    pub(super) fn patient(&self) -> bollard::Docker {
        self.client.clone().with_timeout(KEEPING)
    }

    /// Where it answers.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The engine's socket in the file system.
    pub(crate) fn socket(&self) -> &Path {
        Path::new(self.address.trim_start_matches("unix://"))
    }

    /// Puts an error of the API into words.
    pub(super) fn explain(&self, error: &bollard::errors::Error, doing: &str) -> BackendError {
        explain(error, &self.address, doing)
    }

    /// What it is and can do.
    pub(crate) async fn facts(&self) -> Result<Facts, BackendError> {
        let (version, info) = tokio::try_join!(self.client.version(), self.client.info())
            .map_err(|e| self.explain(&e, "asking what it can do"))?;
        let options = info.security_options.unwrap_or_default();
        let has =
            |name: &str| options.iter().any(|o| o.split(',').any(|part| part == format!("name={name}")));
        let components = version.components.unwrap_or_default();
        let component = |wanted: &str| {
            components.iter().find(|c| c.name.to_lowercase().contains(wanted)).map(|c| c.version.clone())
        };
        let name = match component("podman") {
            Some(version) => format!("Podman Engine {version}"),
            None => format!("Docker Engine {}", version.version.unwrap_or_default()),
        };
        let unconfined =
            options.iter().any(|o| o.contains("name=seccomp") && o.contains("profile=unconfined"));
        Ok(Facts {
            address: self.address.clone(),
            name,
            api: self.client.client_version().to_string(),
            runc: component("runc").or_else(|| info.runc_commit.and_then(|c| c.id)),
            rootless: has("rootless"),
            remapped: has("userns"),
            selinux: has("selinux"),
            seccomp: has("seccomp") && !unconfined,
            cgroups: info.cgroup_version.and_then(|v| v.to_string().parse().ok()),
            // What an engine does not mention (Podman leaves some out) it is taken to have: it would refuse.
            memory: info.memory_limit.unwrap_or(true),
            swap: info.swap_limit.unwrap_or(true),
            cpu: info.cpu_cfs_quota.unwrap_or(true),
            pids: info.pids_limit.unwrap_or(true),
            cpus: info.ncpu.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
        })
    }

    /// All containers of ours with that label, running or not. An image committed from a container of ours hands
    /// its labels on to strangers' containers, but not its name.
    pub(crate) async fn find(&self, label: &str) -> Result<Vec<Found>, BackendError> {
        let filters = HashMap::from([("label", vec![label])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found = self
            .client
            .list_containers(Some(options))
            .await
            .map_err(|e| self.explain(&e, "listing containers"))?;
        Ok(found
            .into_iter()
            .filter(|c| c.names.iter().flatten().any(|name| name.trim_start_matches('/').starts_with(NAME)))
            .filter_map(|c| Some(Found { id: c.id?, labels: c.labels.unwrap_or_default() }))
            .collect())
    }

    /// Kills and removes a container, and returns when it is gone. One that is not there is no error.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), BackendError> {
        let mut last = None;
        for _ in 0..REMOVALS {
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            let Err(error) = self.client.remove_container(id, Some(options)).await else { return Ok(()) };
            match status(&error) {
                // Conflict: the engine is removing it already, by itself (auto-remove) or for somebody else. Gone
                // is what it does not know any more.
                Some(404) => return Ok(()),
                Some(_) => last = Some(error),
                None => return Err(self.explain(&error, "removing a container")),
            }
            tokio::time::sleep(REMOVAL_PAUSE).await;
        }
        match last {
            Some(error) => Err(self.explain(&error, "removing a container")),
            None => {
                Err(BackendError::Engine(format!("the container engine does not remove the container {id}")))
            }
        }
    }

    /// Whether it answers, within a second.
    pub(crate) async fn answers(&self) -> Result<(), BackendError> {
        match tokio::time::timeout(Duration::from_secs(1), self.client.ping()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(e)) => Err(self.explain(&e, "asking whether it still runs")),
            Err(_) => {
                Err(BackendError::Engine(format!("the container engine at {} is silent", self.address)))
            }
        }
    }
}

/// The engine's socket: the one that `host` (the value of `DOCKER_HOST`) names, or the first usable one of
/// the usual places.
fn socket(host: Option<&str>) -> Result<PathBuf, BackendError> {
    let Some(host) = host.map(str::trim).filter(|h| !h.is_empty()) else {
        return found();
    };
    let path = host.strip_prefix("unix://").unwrap_or(host);
    if path.starts_with('/') {
        return Ok(PathBuf::from(path));
    }
    Err(BackendError::Engine(format!(
        "DOCKER_HOST is `{host}`: only an engine on this machine can be used (the workspace is mounted from here), so \
         it must be unix:///path/to/its.sock; set it to that, or unset it for the usual places"
    )))
}

fn found() -> Result<PathBuf, BackendError> {
    let uid = rustix::process::geteuid().as_raw();
    let usual = [
        PathBuf::from("/var/run/docker.sock"),
        PathBuf::from(format!("/run/user/{uid}/docker.sock")),
        PathBuf::from(format!("/run/user/{uid}/podman/podman.sock")),
        PathBuf::from("/run/podman/podman.sock"),
    ];
    let usable = |path: &&PathBuf| {
        rustix::fs::access(*path, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK).is_ok()
    };
    // One that may be used comes before one that is only there; the latter gives the better error.
    let chosen = usual.iter().find(usable).or_else(|| usual.iter().find(|path| path.exists()));
    chosen.cloned().ok_or_else(|| {
        let places: Vec<_> = usual.iter().map(|p| p.display().to_string()).collect();
        BackendError::Engine(absent(&places.join(", "), "there are no such sockets"))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_host_setting_names_a_socket_of_this_machine() {
        assert_eq!(socket(Some("unix:///a/b.sock")).unwrap(), PathBuf::from("/a/b.sock"));
        assert_eq!(socket(Some(" /a/b.sock ")).unwrap(), PathBuf::from("/a/b.sock"));
        for other in ["tcp://127.0.0.1:2375", "ssh://me@there", "https://x", "unix://relative", "nonsense"] {
            let said = socket(Some(other)).unwrap_err().to_string();
            assert!(said.contains(other) && said.contains("unix:///"), "{said}");
        }
    }
}
