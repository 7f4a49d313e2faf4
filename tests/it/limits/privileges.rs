//! Nothing is gained: user, capabilities, setuid programs, name spaces, calls of the system.

use super::{ROOT, attempt, bare, twice, twice_as_root};
use crate::containers::Bench;

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

/// What root in a container may do by the engine's own default, and what it takes: `(capability, attack, refusal)`.
const USUAL: [(&str, &str, &str); 7] = [
    ("CAP_DAC_OVERRIDE", "os.close(os.open('/tmp/x', os.O_CREAT, 0)); open('/tmp/x').close()", "EACCES"),
    ("CAP_FOWNER", "os.chmod('/home/cell', 0o777)", "EPERM"),
    ("CAP_SETUID", "os.setuid(5)", "EPERM"),
    ("CAP_SETGID", "os.setgid(5)", "EPERM"),
    ("CAP_SYS_CHROOT", "os.chroot('/tmp')", "EPERM"),
    ("CAP_MKNOD", "os.mknod('/tmp/d', 0o020600, os.makedev(1, 3))", "EPERM"),
    (
        "CAP_SETFCAP",
        "open('/tmp/x', 'w').close()
os.setxattr('/tmp/x', b'security.capability', bytes.fromhex('0100000200200000' + '00' * 12))",
        "EPERM",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn each_capability_of_the_engines_default_is_taken_from_root_too() {
    for (capability, attack, refusal) in USUAL {
        let attack = attempt(attack);
        let (with, without) =
            twice_as_root(&Bench::new(), &attack, |p| p.spec.drop_capabilities = false).await;
        assert_eq!((with.out.as_str(), without.out.as_str()), (refusal, "done"), "{capability}");
    }
}

/// What careless options give: `(option, attack, refusal)`.
const GENEROUS: [(&str, &str, &str); 4] = [
    ("--cap-add=SYS_ADMIN", "call('sethostname', b'x', 1)", "EPERM"),
    ("--cap-add=SYS_ADMIN", "call('mount', b'none', b'/mnt', b'tmpfs', 0, None)", "EPERM"),
    ("--cap-add=SYS_NICE", "os.setpriority(os.PRIO_PROCESS, 0, -5)", "EACCES"),
    // SO_RCVBUFFORCE
    (
        "--cap-add=NET_ADMIN",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).setsockopt(socket.SOL_SOCKET, 33, 1 << 20)",
        "EPERM",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_careless_options_would_give_is_not_there() {
    for (option, attack, refusal) in GENEROUS {
        let attack = attempt(attack);
        let with = Bench::new().python(&attack, |p| p.spec.user = ROOT).await;
        let without = bare(&["--user=0:0", "--security-opt=apparmor=unconfined", option], &attack);
        assert_eq!((with.out.as_str(), without.as_str()), (refusal, "done"), "{option}: {attack}");
    }
}

/// System calls that have opened the way to the kernel: `(name, number on x86-64, on arm64, arguments)`. The last
/// column is how to show it working: without the filter, or with `SYS_ADMIN` too where the kernel itself refuses.
const CALLS: [(&str, u32, u32, &str, bool); 6] = [
    ("add_key", 248, 217, "b'user', b'cellblock', b'x', 1, -3", false),
    ("keyctl", 250, 219, "0, -3, 0", false),
    ("unshare", 272, 97, "0x10000000", false),
    // UFFD_USER_MODE_ONLY
    ("userfaultfd", 323, 282, "1", false),
    ("bpf", 321, 280, "0, (ctypes.c_uint32 * 32)(2, 4, 4, 1), 128", true),
    ("perf_event_open", 298, 241, "(ctypes.c_uint32 * 32)(1, 112), 0, -1, -1, 0", true),
];

#[tokio::test(flavor = "multi_thread")]
async fn dangerous_system_calls_are_refused() {
    for (name, intel, arm, arguments, admin) in CALLS {
        let number = if cfg!(target_arch = "x86_64") { intel } else { arm };
        let attack = attempt(&format!("call('syscall', {number}, {arguments})"));
        let bench = Bench::new();
        let with = bench.python(&attack, |_| ()).await.out;
        let without = if admin {
            bare(&["--user=0:0", "--security-opt=seccomp=unconfined", "--cap-add=SYS_ADMIN"], &attack)
        } else {
            bench.python(&attack, |p| p.spec.seccomp = false).await.out
        };
        assert_eq!((with.as_str(), without.as_str()), ("EPERM", "done"), "{name}");
    }
}
