//! What a container is given, in no engine's terms: image, main process, user, mounts, limits, defences.
//!
//! May import `config`. [`Spec::hardened`] is the only way to make one, and it has every defence on; the
//! fields are public so that a test can take one defence away and show the attack that it stops.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::config::{Network, SandboxSettings};

use super::definition::{Definition, Mount, Seccomp};
use super::owner::Owner;

/// What the names of our containers begin with.
pub const NAME: &str = "cellblock-";
/// Where the user's folder is mounted, and where code starts.
pub const WORKSPACE: &str = "/workspace";
/// The home of the sandbox's user: a tmpfs.
pub const HOME: &str = "/home/cell";
/// The user under a root kernel.
pub const SANDBOX_ID: u32 = 1000;
/// Shared memory, in bytes; it counts towards the memory limit.
const SHARED_MEMORY: i64 = 64 << 20;

/// Everything about one container.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "independent defences, each taken away by itself in a test")]
pub struct Spec {
    /// The image, by reference or id.
    pub image: String,
    /// The main process and its arguments; the image's own entry point is not used.
    pub argv: Vec<String>,
    /// A name of its own.
    pub name: String,
    /// Labels.
    pub labels: HashMap<String, String>,
    /// The only variables besides the image's own; never the host's.
    pub environment: Vec<(String, String)>,
    /// User and group.
    pub user: Identity,
    /// The host directory behind [`WORKSPACE`].
    pub workspace: Option<PathBuf>,
    /// The folder of its session or run.
    pub place: Option<Mount>,
    /// Further directories of the host.
    pub mounts: Vec<Mount>,
    /// Whether a host with `SELinux` must relabel these two so that containers may use it.
    pub relabel: bool,
    /// Writable places in memory, with their options.
    pub tmpfs: Vec<(String, String)>,
    /// Memory, and memory plus swap, in bytes; `None`: no limit.
    pub memory: Option<i64>,
    /// Billionths of a CPU; `None`: no limit.
    pub nano_cpus: Option<i64>,
    /// Processes and threads; `None`: no limit.
    pub pids: Option<i64>,
    /// `(name, value)` of each resource limit, soft and hard.
    pub ulimits: Vec<(String, i64)>,
    /// Shared memory, in bytes.
    pub shared_memory: i64,
    /// The network.
    pub network: Network,
    /// The engine's runtime; `None`: its default.
    pub runtime: Option<String>,
    /// Whether every capability is dropped.
    pub drop_capabilities: bool,
    /// Those that are given all the same: never to code of a cell's.
    pub add_capabilities: Vec<&'static str>,
    /// Whether setuid programs gain nothing.
    pub no_new_privileges: bool,
    /// Whether a filter of system calls is in force.
    pub seccomp: bool,
    /// Which (JSON); `None`: the engine's default.
    pub seccomp_profile: Option<String>,
    /// Whether the root file system is read-only.
    pub read_only: bool,
    /// Whether the engine removes the container when it ends.
    pub auto_remove: bool,
}

/// A user and its group, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

impl Identity {
    /// The user that code runs as, as seen inside the container.
    ///
    /// A rootless engine maps the container's user 0 to the user who runs the engine, so files in the
    /// workspace belong to that user; any other number would be a foreign, unmapped one. Elsewhere it is
    /// the kernel's own user, and never root.
    pub fn inside(kernel: Identity, rootless: bool) -> Identity {
        if rootless {
            Identity { uid: 0, gid: 0 }
        } else if kernel.uid == 0 {
            Identity { uid: SANDBOX_ID, gid: SANDBOX_ID }
        } else {
            kernel
        }
    }

    /// The user of this process.
    pub fn current() -> Identity {
        Identity { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl Spec {
    /// A container with every defence that there is.
    pub fn hardened(
        image: impl Into<String>,
        argv: Vec<String>,
        settings: &SandboxSettings,
        user: Identity,
        owner: &Owner,
    ) -> Spec {
        // The engine's own default is `noexec`: compilers need to run what they wrote.
        let writable = format!("rw,nosuid,nodev,exec,size={}", settings.tmpfs);
        let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        Spec {
            image: image.into(),
            argv,
            name: format!("{NAME}{}", uuid::Uuid::new_v4().simple()),
            labels: owner.labels(),
            environment: vec![
                variable("HOME", HOME),
                variable("USER", "cell"),
                variable("LOGNAME", "cell"),
                variable("LANG", "C.UTF-8"),
            ],
            user,
            workspace: None,
            place: None,
            mounts: Vec::new(),
            relabel: false,
            tmpfs: vec![
                ("/tmp".to_owned(), format!("{writable},mode=1777")),
                (HOME.to_owned(), format!("{writable},mode=0700,uid={},gid={}", user.uid, user.gid)),
            ],
            memory: Some(saturated(settings.memory)),
            nano_cpus: Some(nano(settings.cpus)),
            pids: Some(processes(settings)),
            ulimits: vec![
                ("nofile".to_owned(), settings.open_files),
                ("fsize".to_owned(), saturated(settings.file_size)),
                ("core".to_owned(), 0),
            ],
            shared_memory: SHARED_MEMORY,
            network: settings.network,
            runtime: settings.runtime.clone(),
            drop_capabilities: true,
            add_capabilities: Vec::new(),
            no_new_privileges: true,
            seccomp: true,
            seccomp_profile: None,
            read_only: true,
            auto_remove: true,
        }
    }

    /// Changes what the definition says otherwise. Its mounts come with the directories of the host.
    pub fn define(&mut self, definition: &Definition) {
        self.read_only = definition.read_only;
        if let Seccomp::Profile(profile) = &definition.seccomp {
            self.seccomp_profile = Some(profile.clone());
        }
        for (name, value) in &definition.environment {
            self.set_variable(name, value);
        }
    }

    /// Sets a variable, in place of one of the same name.
    pub fn set_variable(&mut self, name: &str, value: impl Into<String>) {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.into()));
    }

    /// A writable place in memory for the sandbox's user, of at most `size` bytes.
    pub fn add_tmpfs(&mut self, path: &str, size: u64) {
        let Identity { uid, gid } = self.user;
        let options = format!("rw,nosuid,nodev,exec,size={size},mode=0700,uid={uid},gid={gid}");
        self.tmpfs.push((path.to_owned(), options));
    }

    /// Puts a tmpfs over each volume that the image declares: the engine would make a disk volume without
    /// any limit there.
    pub fn cover_volumes<'a>(&mut self, volumes: impl IntoIterator<Item = &'a str>, size: u64) {
        for volume in volumes {
            let path = volume.trim_end_matches('/');
            let mounted = self.place.iter().chain(&self.mounts).any(|mount| mount.path == path);
            let taken = self.tmpfs.iter().any(|(taken, _)| taken == path);
            if path == WORKSPACE || path.is_empty() || mounted || taken {
                continue;
            }
            self.tmpfs.push((path.to_owned(), format!("rw,nosuid,nodev,exec,size={size},mode=1777")));
        }
    }
}

fn saturated(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// CPUs to billionths. Settings are validated; what is out of range saturates all the same.
#[allow(clippy::cast_possible_truncation, reason = "float casts saturate, which is what is wanted")]
fn nano(cpus: f64) -> i64 {
    (cpus * 1e9) as i64
}

/// gVisor's own processes and threads count as well, and it ends when it gets no more: each of the guest's costs it up
/// to three.
fn processes(settings: &SandboxSettings) -> i64 {
    let gvisor =
        settings.runtime.as_ref().is_some_and(|name| name.contains("runsc") || name.contains("gvisor"));
    settings.pids.saturating_mul(if gvisor { 4 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flavor, Settings};

    fn spec() -> Spec {
        let settings = Settings::builtin(Flavor::Markdown).sandbox;
        let user = Identity { uid: 7, gid: 8 };
        Spec::hardened("image", vec!["true".into()], &settings, user, &Owner::current())
    }

    #[test]
    fn every_defence_is_on_from_the_start() {
        let spec = spec();
        assert!(
            spec.drop_capabilities
                && spec.no_new_privileges
                && spec.seccomp
                && spec.read_only
                && spec.auto_remove
        );
        assert_eq!(spec.network, Network::None);
        assert_eq!(spec.memory, Some(1 << 30));
        assert_eq!(spec.nano_cpus, Some(2_000_000_000));
        assert_eq!(spec.pids, Some(256));
        assert!(spec.tmpfs.iter().all(|(_, o)| o.contains("nosuid,nodev,exec,size=")));
        assert!(spec.tmpfs[1].1.contains("uid=7,gid=8"));
    }

    #[test]
    fn the_user_is_never_root_except_where_root_is_the_user() {
        let root = Identity { uid: 0, gid: 0 };
        let user = Identity { uid: 1001, gid: 100 };
        assert_eq!(Identity::inside(root, false), Identity { uid: 1000, gid: 1000 });
        assert_eq!(Identity::inside(user, false), user);
        assert_eq!(Identity::inside(user, true), root);
        assert_eq!(Identity::inside(root, true), root);
    }

    #[test]
    fn volumes_of_the_image_become_bounded_memory() {
        let mut spec = spec();
        let before = spec.tmpfs.len();
        spec.cover_volumes(["/data/", "/tmp", "/workspace", "/", "/data"], 5);
        assert_eq!(spec.tmpfs.len(), before + 1);
        assert!(spec.tmpfs[before].0 == "/data" && spec.tmpfs[before].1.contains("size=5,"));
    }

    #[test]
    fn absurd_settings_saturate() {
        assert_eq!(saturated(u64::MAX), i64::MAX);
        assert_eq!(nano(f64::INFINITY), i64::MAX);
        assert_eq!(nano(f64::NAN), 0);
    }
}
