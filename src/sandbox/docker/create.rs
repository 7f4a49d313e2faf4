//! [`Spec`] in the words of the engine's API.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount,
    MountBindOptions, MountBindOptionsPropagationEnum, MountType, ResourcesUlimits,
};

use super::engine::Facts;
use crate::config::Network;
use crate::sandbox::spec::{Spec, WORKSPACE};

/// The request that creates the container.
pub(super) fn body(spec: &Spec) -> ContainerCreateBody {
    let (program, arguments) = match spec.argv.split_first() {
        Some((program, arguments)) => (vec![program.clone()], arguments.to_vec()),
        None => (Vec::new(), Vec::new()),
    };
    ContainerCreateBody {
        image: Some(spec.image.clone()),
        hostname: Some("sandbox".to_owned()),
        user: Some(spec.user.to_string()),
        entrypoint: Some(program),
        cmd: Some(arguments),
        env: Some(spec.environment.iter().map(|(name, value)| format!("{name}={value}")).collect()),
        working_dir: Some(WORKSPACE.to_owned()),
        labels: Some(spec.labels.clone()),
        // The supervisor ignores all else: an engine that shuts down would wait its ten seconds for each container.
        stop_signal: Some("SIGKILL".to_owned()),
        tty: Some(false),
        open_stdin: Some(true),
        // With these two, the end of the kernel's connection is the end of the main process's input.
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        network_disabled: Some(spec.network == Network::None),
        // An image's own health check would run commands beside the supervisor.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        host_config: Some(host(spec)),
        ..ContainerCreateBody::default()
    }
}

fn host(spec: &Spec) -> HostConfig {
    let (mounts, binds) = mounts(spec);
    let ulimit = |(name, value): &(String, i64)| ResourcesUlimits {
        name: Some(name.clone()),
        soft: Some(*value),
        hard: Some(*value),
    };
    HostConfig {
        mounts,
        binds,
        tmpfs: Some(spec.tmpfs.iter().cloned().collect()),
        memory: spec.memory,
        memory_swap: spec.memory,
        nano_cpus: spec.nano_cpus,
        pids_limit: spec.pids,
        ulimits: Some(spec.ulimits.iter().map(ulimit).collect()),
        shm_size: Some(spec.shared_memory),
        network_mode: Some(
            match spec.network {
                Network::None => "none",
                Network::Bridge => "bridge",
            }
            .to_owned(),
        ),
        ipc_mode: Some("private".to_owned()),
        // Control groups of the old kind are the host's by default, and name the container and its engine.
        cgroupns_mode: Some(HostConfigCgroupnsModeEnum::PRIVATE),
        privileged: Some(false),
        cap_drop: spec.drop_capabilities.then(|| vec!["ALL".to_owned()]),
        cap_add: (!spec.add_capabilities.is_empty())
            .then(|| spec.add_capabilities.iter().map(|name| (*name).to_owned()).collect()),
        security_opt: Some(security(spec)),
        readonly_rootfs: Some(spec.read_only),
        // The supervisor is process 1 itself.
        init: Some(false),
        // What it prints is the frame channel: kept nowhere.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: Some(HashMap::new()) }),
        runtime: spec.runtime.clone(),
        auto_remove: Some(spec.auto_remove),
        // When the host itself runs out of memory, guests go first.
        oom_score_adj: Some(500),
        ..HostConfig::default()
    }
}

/// Without a word about seccomp and `SELinux` the engine's defaults apply, which is what is wanted.
fn security(spec: &Spec) -> Vec<String> {
    let seccomp = match &spec.seccomp_profile {
        _ if !spec.seccomp => Some("seccomp=unconfined".to_owned()),
        Some(profile) => Some(format!("seccomp={profile}")),
        None => None,
    };
    spec.no_new_privileges.then(|| "no-new-privileges".to_owned()).into_iter().chain(seccomp).collect()
}

/// The mounts. A bind by path is what relabels for `SELinux` (`z`: shared, as several kernels may use one
/// folder; confinement stays on); a mount is what refuses a path that vanished instead of creating it.
fn mounts(spec: &Spec) -> (Option<Vec<Mount>>, Option<Vec<String>>) {
    let workspace = spec.workspace.as_ref().map(|path| (path, WORKSPACE));
    let place = spec.place.as_ref().map(|place| (&place.host, place.path.as_str()));
    let ours = || workspace.into_iter().chain(place);
    // What is not ours is never relabelled: that would change it for everybody on the host.
    let others = spec.mounts.iter().map(|other| mount(&other.host, &other.path, other.read_only));
    if spec.relabel {
        let bind =
            |(source, target): (&PathBuf, &str)| format!("{}:{target}:rw,rprivate,z", source.display());
        return (Some(others.collect()), Some(ours().map(bind).collect()));
    }
    let ours = ours().map(|(source, target)| mount(source, target, false));
    (Some(ours.chain(others).collect()), None)
}

fn mount(source: &Path, target: &str, read_only: bool) -> Mount {
    let options = MountBindOptions {
        propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
        ..MountBindOptions::default()
    };
    Mount {
        target: Some(target.to_owned()),
        source: Some(source.to_string_lossy().into_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(read_only),
        bind_options: Some(options),
        ..Mount::default()
    }
}

/// Fits a container to what the engine can do. What can't be had is told, and is no failure.
pub(super) fn fit(spec: &mut Spec, facts: &Facts) -> Vec<String> {
    let mut notices = Vec::new();
    let mut missing = |what: &str, setting: &str| {
        notices.push(format!(
            "{} can't limit {what} here, so `{setting}` has no effect: code in the sandbox can take what the machine \
             has. An engine on control groups 2 with delegated controllers can.",
            facts.name
        ));
    };
    if !facts.memory {
        spec.memory = None;
        missing("memory", "sandbox.memory");
    }
    if !facts.cpu {
        spec.nano_cpus = None;
        missing("CPU time", "sandbox.cpus");
    }
    if !facts.pids {
        spec.pids = None;
        missing("the number of processes", "sandbox.pids");
    }
    // The engine refuses a limit above what the machine has; all of it is within the limit.
    if let (Some(wanted), Some(cpus)) = (spec.nano_cpus, facts.cpus) {
        spec.nano_cpus = Some(wanted.min(i64::from(cpus) * 1_000_000_000));
    }
    if facts.memory && !facts.swap {
        notices.push(format!(
            "{} can't limit swap here: code in the sandbox can swap beyond `sandbox.memory`.",
            facts.name
        ));
    }
    if !facts.seccomp {
        notices.push(format!(
            "{} runs without a seccomp filter: code in the sandbox can use every system call. Switch its default \
             profile on.",
            facts.name
        ));
    }
    if facts.remapped {
        notices.push(format!(
            "{} maps the users of containers to others (userns-remap): files that the sandbox makes in the workspace \
             belong to a mapped user, and it may lack permission to write there.",
            facts.name
        ));
    }
    spec.relabel = facts.selinux;
    notices
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::config::{Flavor, Settings};
    use crate::sandbox::owner::Owner;
    use crate::sandbox::spec::Identity;

    fn spec() -> Spec {
        let settings = Settings::builtin(Flavor::Markdown).sandbox;
        let user = Identity { uid: 5, gid: 6 };
        let argv = vec!["python3".to_owned(), "-c".to_owned(), "pass".to_owned()];
        let mut spec = Spec::hardened("image", argv, &settings, user, &Owner::current());
        spec.workspace = Some("/home/me/w".into());
        spec
    }

    fn facts() -> Facts {
        Facts {
            address: "unix:///x".into(),
            name: "Docker Engine 1".into(),
            api: "1.41".into(),
            runc: None,
            rootless: false,
            remapped: false,
            selinux: false,
            seccomp: true,
            cgroups: Some(2),
            memory: true,
            swap: true,
            cpu: true,
            pids: true,
            cpus: Some(1),
        }
    }

    #[test]
    fn the_request_has_every_defence_in_it() {
        let body = body(&spec());
        let host = body.host_config.unwrap();
        assert_eq!(body.user.unwrap(), "5:6");
        assert_eq!(body.entrypoint.unwrap(), ["python3"]);
        assert_eq!(host.cap_drop.unwrap(), ["ALL"]);
        assert_eq!(host.security_opt.unwrap(), ["no-new-privileges"]);
        assert_eq!(host.network_mode.unwrap(), "none");
        assert_eq!(host.readonly_rootfs, Some(true));
        assert_eq!(host.auto_remove, Some(true));
        assert_eq!(host.memory, host.memory_swap);
        assert_eq!(host.privileged, Some(false));
        assert_eq!(host.init, Some(false));
        assert_eq!(host.mounts.unwrap().len(), 1);
        assert!(host.binds.is_none() && host.devices.is_none() && host.cap_add.is_none());
    }

    #[test]
    fn an_engine_that_lacks_limits_is_told_about_and_not_asked_for_them() {
        let mut spec = spec();
        let poor =
            Facts { memory: false, cpu: false, pids: false, seccomp: false, remapped: true, ..facts() };
        let notices = fit(&mut spec, &poor);
        assert_eq!((spec.memory, spec.nano_cpus, spec.pids), (None, None, None));
        assert_eq!(notices.len(), 5, "{notices:?}");
        assert_eq!(fit(&mut spec, &Facts { swap: false, ..facts() }).len(), 1);
    }

    #[test]
    fn more_cpus_than_the_machine_has_are_all_of_them() {
        let mut spec = spec();
        assert!(fit(&mut spec, &facts()).is_empty());
        assert_eq!(spec.nano_cpus, Some(1_000_000_000));
    }

    #[test]
    fn selinux_gets_a_relabelled_bind_and_stays_on() {
        let mut spec = spec();
        fit(&mut spec, &Facts { selinux: true, ..facts() });
        let host = body(&spec).host_config.unwrap();
        assert_eq!(host.binds.unwrap(), ["/home/me/w:/workspace:rw,rprivate,z"]);
        assert!(host.mounts.unwrap().is_empty());
        assert!(!host.security_opt.unwrap().iter().any(|o| o.contains("label")));
    }
}
