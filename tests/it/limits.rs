//! Each limit and defence of a container: the attack fails with it, and works when just that one is taken away.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write;
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use cellblock::config::Network;
use cellblock::sandbox::backend::Obituary;
use cellblock::sandbox::docker::Prepared;
use cellblock::sandbox::spec::Identity;

use crate::containers::{Bench, Ran, labelled, said};

const ROOT: Identity = Identity { uid: 0, gid: 0 };
const MIB: u64 = 1 << 20;

/// Runs the attack with every defence, and without one.
async fn twice(bench: &Bench, attack: &str, without: impl FnOnce(&mut Prepared)) -> (Ran, Ran) {
    (bench.python(attack, |_| ()).await, bench.python(attack, without).await)
}

/// The same with root inside in both cases: what the defence is worth should the guest become root.
async fn twice_as_root(bench: &Bench, attack: &str, without: impl FnOnce(&mut Prepared)) -> (Ran, Ran) {
    let with = bench.python(attack, |p| p.spec.user = ROOT).await;
    let without = bench.python(attack, |p| {
        p.spec.user = ROOT;
        without(p);
    });
    (with, without.await)
}

/// Runs `code` in the container and prints the name of the error, or `done`.
fn attempt(code: &str) -> String {
    let code = code.replace('\n', "\n    ");
    format!(
        "
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)
try:
    {code}
    print('done')
except OSError as e:
    print(errno.errorcode.get(e.errno, type(e).__name__))
"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_limited_and_swap_does_not_help() {
    let bench = Bench::with(|options| options.settings.memory = 64 * MIB);
    let (with, without) =
        twice(&bench, "x = bytearray(200 << 20); print('done')", |p| p.spec.memory = None).await;
    assert_eq!(with.end, Obituary::OutOfMemory(64 * MIB), "{with:?}");
    assert_eq!(without.out, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_file_systems_are_limited() {
    let bench = Bench::with(|options| options.settings.tmpfs = 4 * MIB);
    for place in ["/tmp", "/home/cell"] {
        let attack = attempt(&format!("open('{place}/x', 'wb').write(bytes(16 << 20))"));
        let (with, without) = twice(&bench, &attack, |p| {
            for (_, options) in &mut p.spec.tmpfs {
                *options = options.replace("size=4194304", "size=64m");
            }
        })
        .await;
        assert_eq!((with.out.as_str(), without.out.as_str()), ("ENOSPC", "done"), "{place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shared_memory_is_limited() {
    let attack = attempt("open('/dev/shm/x', 'wb').write(bytes(100 << 20))");
    let (with, without) = twice(&Bench::new(), &attack, |p| p.spec.shared_memory = 256 << 20).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("ENOSPC", "done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_are_limited() {
    let bench = Bench::with(|options| options.settings.pids = 16);
    let attack = attempt(
        "children = []
try:
    for n in range(64):
        child = os.fork()
        if child == 0:
            os.read(0, 1)
            os._exit(0)
        children.append(child)
finally:
    for child in children:
        os.kill(child, 9)",
    );
    let (with, without) = twice(&bench, &attack, |p| p.spec.pids = None).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("EAGAIN", "done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn open_files_are_limited() {
    let bench = Bench::with(|options| options.settings.open_files = 64);
    let attack = attempt("files = [os.open('/dev/null', os.O_RDONLY) for _ in range(200)]");
    let (with, without) =
        twice(&bench, &attack, |p| p.spec.ulimits.retain(|(name, _)| name != "nofile")).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("EMFILE", "done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn single_files_are_limited_in_the_workspace_too() {
    let bench = Bench::with(|options| options.settings.file_size = MIB);
    let attack = attempt("open('/workspace/x', 'wb').write(bytes(3 << 20))");
    let (with, without) =
        twice(&bench, &attack, |p| p.spec.ulimits.retain(|(name, _)| name != "fsize")).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("EFBIG", "done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn crashes_leave_no_core_files_and_the_guest_can_not_raise_limits() {
    let ask = "import resource as r; print(r.getrlimit(r.RLIMIT_CORE)); r.setrlimit(r.RLIMIT_CORE, (9, 9))";
    let ran = Bench::new().python(ask, |_| ()).await;
    assert_eq!(ran.out, "(0, 0)");
    assert!(ran.err.contains("not allowed to raise maximum limit"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_time_is_limited() {
    // So little that it is used up on a busy machine too.
    let bench = Bench::with(|options| options.settings.cpus = 0.05);
    let attack = "
import glob, time
path = (glob.glob('/sys/fs/cgroup/cpu*/cpu.stat') + ['/sys/fs/cgroup/cpu.stat'])[0]
end, throttled = time.monotonic() + 5, 0
while time.monotonic() < end and not throttled:
    throttled = int(dict(l.split() for l in open(path)).get('nr_throttled', 0))
print(throttled > 0)";
    let (with, without) = twice(&bench, attack, |p| p.spec.nano_cpus = None).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("True", "False"), "{with:?} {without:?}");
}

/// Where containers on the bridge find this machine: their default route.
async fn gateway() -> String {
    let ask = "
import socket, struct
routes = [line.split() for line in open('/proc/net/route')][1:]
print(next(socket.inet_ntoa(struct.pack('<I', int(r[2], 16))) for r in routes if r[1] == '00000000'))";
    Bench::new().python(ask, |p| p.spec.network = Network::Bridge).await.out
}

#[tokio::test(flavor = "multi_thread")]
async fn tcp_reaches_nothing() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(b"secret").unwrap());
    let attack = attempt(&format!(
        "print(socket.create_connection(('{}', {port}), 20).recv(6).decode(), end=' ')",
        gateway().await
    ));
    let (with, without) = twice(&Bench::new(), &attack, |p| p.spec.network = Network::Bridge).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("ENETUNREACH", "secret done"), "{without:?}");
    server.join().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn udp_reaches_nothing_and_so_nothing_leaks_through_names() {
    // A resolver of our own on the host, as a name server that an attacker runs would be.
    let resolver = UdpSocket::bind("0.0.0.0:0").unwrap();
    resolver.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
    let port = resolver.local_addr().unwrap().port();
    let attack = attempt(&format!(
        "query = bytes.fromhex('1234010000010000000000000673656372657407') + b'example\\0' + bytes.fromhex('00010001')
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(query, ('{}', {port}))",
        gateway().await
    ));
    let (with, without) = twice(&Bench::new(), &attack, |p| p.spec.network = Network::Bridge).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("ENETUNREACH", "done"));
    let mut packet = [0; 512];
    let (length, _) = resolver.recv_from(&mut packet).unwrap();
    assert!(
        packet[..length].windows(6).any(|w| w == b"secret"),
        "the one packet is the one without the defence"
    );
    resolver.set_nonblocking(true).unwrap();
    assert!(resolver.recv_from(&mut packet).is_err());
    let names = attempt("socket.getaddrinfo('example.org', 80)");
    assert_ne!(Bench::new().python(&names, |_| ()).await.out, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_interface_but_loopback() {
    let attack = "import os; print(*sorted(os.listdir('/sys/class/net')))";
    let (with, without) = twice(&Bench::new(), attack, |p| p.spec.network = Network::Bridge).await;
    let outside = |ran: &Ran| ran.out.split(' ').any(|name| name.starts_with("eth"));
    assert!(!outside(&with) && outside(&without), "{with:?} {without:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_is_not_root() {
    let attack = attempt("open('/etc/shadow').read()");
    let (with, without) = twice(&Bench::new(), &attack, |p| p.spec.user = ROOT).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("EACCES", "done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn even_root_has_no_capabilities() {
    let attack = attempt("open('/tmp/x', 'w').close(); os.chown('/tmp/x', 5, 5)");
    let (with, without) = twice_as_root(&Bench::new(), &attack, |p| p.spec.drop_capabilities = false).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("EPERM", "done"));
    let sets = "print(*{l.split()[1] for l in open('/proc/self/status') if l.startswith('Cap')})";
    assert_eq!(Bench::new().python(sets, |p| p.spec.user = ROOT).await.out, "0000000000000000");
}

#[tokio::test(flavor = "multi_thread")]
async fn setuid_programs_gain_nothing() {
    // A setuid root program, as a careless image has one; here it lies in the workspace.
    let bench = Bench::new();
    let plant = "
import os, shutil, sys
shutil.copy(os.path.realpath(sys.executable), '/workspace/risen')
os.chmod('/workspace/risen', 0o4755)
print('planted')";
    let planted = bench.python(plant, |p| {
        p.spec.user = ROOT;
        p.spec.drop_capabilities = false;
    });
    assert_eq!(planted.await.out, "planted");
    let attack = "
import subprocess
print(subprocess.run(['/workspace/risen', '-c', 'import os; print(os.geteuid() == 0)'],
                     capture_output=True, text=True).stdout)";
    let (with, without) = twice(&bench, attack, |p| p.spec.no_new_privileges = false).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("False", "True"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_has_no_setuid_programs() {
    let search = "
import os, stat
found = []
for top, folders, files in os.walk('/'):
    folders[:] = [f for f in folders if os.path.join(top, f) not in ('/proc', '/sys', '/dev')]
    for name in files:
        path = os.path.join(top, name)
        try: mode = os.lstat(path).st_mode
        except OSError: continue
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID): found.append(path)
print(found)";
    assert_eq!(Bench::new().python(search, |_| ()).await.out, "[]");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_can_be_mounted_not_even_in_a_name_space_of_its_own() {
    // CLONE_NEWUSER | CLONE_NEWNS gives every capability inside; then the mount is allowed.
    let attack =
        attempt("call('unshare', 0x10000000 | 0x20000)\ncall('mount', b'none', b'/tmp', b'tmpfs', 0, None)");
    let (with, without) = twice(&Bench::new(), &attack, |p| p.spec.seccomp = false).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("EPERM", "done"));
    let plain = attempt("call('mount', b'none', b'/tmp', b'tmpfs', 0, None)");
    assert_eq!(Bench::new().python(&plain, |p| p.spec.user = ROOT).await.out, "EPERM");
}

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
    let known = "HOME HOSTNAME LANG LC_CTYPE LOGNAME PATH PIP_CERT PIP_DISABLE_PIP_VERSION_CHECK \
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
    assert_eq!(seen, "none true private 1073741824 1073741824 256 false true none [ALL] 1 true false");
}
