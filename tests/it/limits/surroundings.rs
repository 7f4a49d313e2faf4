//! What the code finds around itself: file systems, devices, sockets, variables, other containers.

use tokio::io::AsyncReadExt;

use super::{ROOT, attempt, bare, twice, twice_as_root};
use crate::containers::{Bench, labelled, said};

#[tokio::test(flavor = "multi_thread")]
async fn the_root_file_system_is_read_only() {
    for place in ["/usr/bin/x", "/opt/cellblock/x", "/etc/x"] {
        let attack = attempt(&format!("open('{place}', 'w')"));
        let (with, without) = twice_as_root(&Bench::new(), &attack, |p| p.spec.read_only = false).await;
        assert_eq!((with.out.as_str(), without.out.as_str()), ("EROFS", "done"), "{place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_in_memory_runs_but_is_no_device() {
    let bench = Bench::new();
    let run = "
import os, subprocess
for place in ('/tmp', os.environ['HOME']):
    path = place + '/run'
    open(path, 'w').write('#!/bin/sh\\necho ran')
    os.chmod(path, 0o755)
    print(subprocess.run([path], capture_output=True, text=True).stdout.strip(), end=' ')";
    assert_eq!(bench.python(run, |_| ()).await.out, "ran ran");
    let device = attempt("os.mknod('/tmp/d', 0o600 | 0o020000, os.makedev(1, 3)); open('/tmp/d').close()");
    let (with, without) = twice_as_root(&bench, &device, |p| {
        p.spec.drop_capabilities = false;
        for (_, options) in &mut p.spec.tmpfs {
            *options = options.replace("nodev", "dev");
        }
    })
    .await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("EPERM", "done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engines_socket_is_not_inside() {
    let search = "
import os, stat
found = []
for top, folders, files in os.walk('/'):
    folders[:] = [f for f in folders if os.path.join(top, f) not in ('/proc', '/sys')]
    for name in files:
        try: mode = os.lstat(os.path.join(top, name)).st_mode
        except OSError: continue
        if stat.S_ISSOCK(mode): found.append(name)
print('docker.sock' in found, len(found))";
    let socket = std::fs::canonicalize("/var/run/docker.sock").unwrap();
    let holder = socket.parent().unwrap().to_owned();
    let (with, without) = twice_as_root(&Bench::new(), search, |p| {
        p.workspace = None;
        p.spec.workspace = Some(holder);
    })
    .await;
    assert_eq!(with.out, "False 0");
    assert!(without.out.starts_with("True"), "{without:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_the_images_and_ours_alone() {
    let ran = Bench::new().python("import os; print(*sorted(os.environ))", |_| ()).await;
    let known = "CELLBLOCK_ARTIFACTS HOME HOSTNAME LANG LC_CTYPE LOGNAME PATH PIP_CERT PIP_DISABLE_PIP_VERSION_CHECK \
                 PYTHON_SHA256 PYTHON_VERSION GPG_KEY REQUESTS_CA_BUNDLE SSL_CERT_FILE USER";
    for name in ran.out.split(' ') {
        assert!(known.split(' ').any(|k| k == name), "{name} got in");
    }
    // The test's own variables, as a kernel's keys would be.
    let (with, without) = twice(&Bench::new(), "import os; print('CARGO_PKG_NAME' in os.environ)", |p| {
        p.spec.environment.extend(std::env::vars());
    })
    .await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("False", "True"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_engine_was_asked_for_is_what_it_did() {
    let bench = Bench::new();
    let started = bench.start(&["python3", "-c", "input()"], |_| ()).await;
    let id = labelled(&bench.label()).remove(0);
    let format = "{{.HostConfig.LogConfig.Type}} {{.HostConfig.AutoRemove}} {{.HostConfig.IpcMode}} \
                  {{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.PidsLimit}} {{.HostConfig.Privileged}} \
                  {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.NetworkMode}} {{.HostConfig.CapDrop}} {{len .Mounts}} \
                  {{.Config.StdinOnce}} {{.HostConfig.Init}}";
    let seen = said(&["inspect", "--format", format, &id]);
    started.container.destroy().await;
    assert_eq!(seen, "none true private 1073741824 1073741824 256 false true none [ALL] 2 true false");
}

/// Files through which root in a container has reached the host.
const LEVERS: [&str; 5] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/fs/binfmt_misc",
    "/sys/kernel/mm/transparent_hugepage/enabled",
];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_below_proc_and_sys_can_be_changed() {
    // Opening to write and nothing more: these belong to the machine.
    let attack = format!(
        "import os
opened = []
for path in {LEVERS:?}:
    try: os.close(os.open(path, os.O_WRONLY))
    except OSError: continue
    opened.append(path)
print(len(opened), *opened)"
    );
    let with = Bench::new().python(&attack, |p| p.spec.user = ROOT).await;
    let without =
        bare(&["--user=0:0", "--cap-add=SYS_ADMIN", "--security-opt=systempaths=unconfined"], &attack);
    assert_eq!(with.out, "0");
    assert!(without.contains("core_pattern"), "{without}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_containers_are_out_of_sight_and_reach() {
    let bench = Bench::new();
    let neighbour = "
import socket, sys
listener = socket.create_server(('127.0.0.1', 7001))
print('ready', flush=True)
while True: listener.accept()[0].send(b'secret')";
    let mut other = bench.start(&["python3", "-c", neighbour], |_| ()).await;
    let mut ready = [0; 5];
    other.output.read_exact(&mut ready).await.unwrap();
    let id = labelled(&bench.label()).remove(0);
    let looks = "
import glob
lines = []
for path in glob.glob('/proc/[0-9]*/cmdline'):
    try: lines.append(open(path, 'rb').read())
    except OSError: pass
print(sum(b'create_' + b'server' in line for line in lines))";
    let connects =
        attempt("print(socket.create_connection(('127.0.0.1', 7001), 20).recv(6).decode(), end=' ')");
    for (attack, joined, refused, done) in [
        (looks, format!("--pid=container:{id}"), "0", "1"),
        (connects.as_str(), format!("--network=container:{id}"), "ECONNREFUSED", "secret done"),
    ] {
        let with = bench.python(attack, |_| ()).await;
        assert_eq!((with.out.as_str(), bare(&[&joined], attack).as_str()), (refused, done));
    }
    let plant =
        bench.python("open('/tmp/mine', 'w'); open('/dev/shm/mine', 'w'); print('done')", |_| ()).await;
    assert_eq!(plant.out, "done");
    let search = "import os; print(os.listdir('/tmp') + os.listdir('/dev/shm'))";
    assert_eq!(bench.python(search, |_| ()).await.out, "[]", "nothing is shared but the workspace");
    other.container.destroy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_in_the_workspace_lead_nowhere_on_the_machine() {
    // A user's own link to a file outside: in the container it points into the container.
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let bench = Bench::new();
    let workspace = bench.directory.path().join("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    std::os::unix::fs::symlink(&secret, workspace.join("link")).unwrap();
    let attack = attempt("print(open('/workspace/link').read(), end=' ')");
    let with = bench.python(&attack, |_| ()).await;
    let mounts = [workspace.as_path(), outside.path()].map(|p| p.display().to_string());
    let without = bare(
        &[
            "--user=0:0",
            &format!("--volume={}:/workspace", mounts[0]),
            &format!("--volume={}:{}", mounts[1], mounts[1]),
        ],
        &attack,
    );
    assert_eq!((with.out.as_str(), without.as_str()), ("ENOENT", "secret done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn links_that_the_code_makes_are_not_followed_on_the_machine() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    let bench = Bench::new();
    let mut started = bench
        .start(
            &[
                "python3",
                "-c",
                &format!(
                    "import os
os.symlink({0:?}, '/workspace/file')
os.symlink({1:?}, '/workspace/folder')
print('planted', flush=True)
input()",
                    secret.display().to_string(),
                    outside.path().display().to_string()
                ),
            ],
            |_| (),
        )
        .await;
    let mut planted = [0; 7];
    started.output.read_exact(&mut planted).await.unwrap();
    let side = started.workspace.clone().expect("the host's side");
    for name in ["file", "folder/secret", "folder/new"] {
        let refused = side.create_below(name);
        assert!(refused.is_err(), "{name}");
        // What a host that follows links would have read.
        let naive = std::fs::read_to_string(side.path().join(name)).unwrap_or_default();
        assert_eq!(naive, if name.ends_with("new") { "" } else { "secret" }, "{name}");
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    started.container.destroy().await;
}
