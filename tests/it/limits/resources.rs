//! What one container may take: memory, CPU, processes, files.

use cellblock::sandbox::backend::Obituary;
use cellblock::sandbox::docker::Prepared;

use super::{MIB, attempt, twice};
use crate::containers::{Bench, labelled};

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_limited_and_swap_does_not_help() {
    let bench = Bench::of(|definition| definition.limits.memory = 64 * MIB);
    let (with, without) =
        twice(&bench, "x = bytearray(200 << 20); print('done')", |p| p.spec.memory = None).await;
    assert_eq!(with.end, Obituary::OutOfMemory(64 * MIB), "{with:?}");
    assert_eq!(without.out, "done");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_file_systems_are_limited() {
    let bench = Bench::of(|definition| definition.limits.tmpfs = 4 * MIB);
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
    let bench = Bench::of(|definition| definition.limits.pids = 16);
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
    let bench = Bench::of(|definition| definition.limits.open_files = 64);
    let attack = attempt("files = [os.open('/dev/null', os.O_RDONLY) for _ in range(200)]");
    let (with, without) =
        twice(&bench, &attack, |p| p.spec.ulimits.retain(|(name, _)| name != "nofile")).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("EMFILE", "done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn single_files_are_limited_in_the_workspace_too() {
    let bench = Bench::of(|definition| definition.limits.file_size = MIB);
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
    let bench = Bench::of(|definition| definition.limits.cpus = 0.05);
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

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_in_memory_file_systems_counts_as_memory() {
    for place in ["/tmp", "/dev/shm"] {
        let bench = Bench::of(|definition| {
            definition.limits.memory = 64 * MIB;
            definition.limits.tmpfs = 512 * MIB;
        });
        let attack = format!(
            "import os
file = os.open('{place}/x', os.O_WRONLY | os.O_CREAT)
for n in range(160): os.write(file, bytes(1 << 20))
print('done')"
        );
        let roomy = |p: &mut Prepared| p.spec.shared_memory = 512 << 20;
        let with = bench.python(&attack, roomy).await;
        let without = bench.python(&attack, |p| {
            roomy(p);
            p.spec.memory = None;
        });
        assert_eq!((with.end, with.out.as_str()), (Obituary::OutOfMemory(64 * MIB), ""), "{place}");
        assert_eq!(without.await.out, "done", "{place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_meets_the_limit_and_goes_with_its_container() {
    let bench = Bench::of(|definition| definition.limits.pids = 64);
    // Bounded by itself, so that the test without a limit stays harmless.
    let attack = "
import os, sys, time
reader, writer = os.pipe()
os.set_blocking(reader, False)
def bomb(depth):
    for _ in range(2):
        try: child = os.fork()
        except OSError:
            os.write(writer, b'f')
            continue
        if child == 0:
            os.write(writer, b'c')
            if depth: bomb(depth - 1)
            time.sleep(30)
            os._exit(0)
bomb(6)
time.sleep(3)
said = os.read(reader, 4096)
print(said.count(b'c') < 64, b'f' in said)";
    let (with, without) = twice(&bench, attack, |p| p.spec.pids = None).await;
    assert_eq!((with.out.as_str(), without.out.as_str()), ("True True", "False False"));
    assert_eq!(labelled(&bench.label()), Vec::<String>::new(), "and nothing of it is left");
}
