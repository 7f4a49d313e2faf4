//! Faults that take root: an engine of the test's own, which is restarted, and a small disk, which is filled.
//!
//! Elsewhere these tests fail; `scripts/test.sh` leaves them out, saying so, where it is not run by root.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cellblock::sandbox::Run;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::containers::{PATIENCE, image, said};
use crate::session::{Around, Bed};

fn root() {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests take root: run them as root, or leave them out: -E 'not test(/^faults::as_root/)'"
    );
}

/// An engine of its own: no other test, and nobody else on this machine, notices what happens to it.
struct Engine {
    directory: TempDir,
    daemon: Option<Child>,
}

impl Engine {
    /// Starts it, with the tests' image in it.
    fn new() -> Self {
        root();
        // Not in memory: images lie there.
        let directory = TempDir::with_prefix_in("cellblock-engine-", "/var/tmp").unwrap();
        let driver = said(&["info", "--format", "{{.Driver}}"]);
        std::fs::write(directory.path().join("daemon.json"), format!("{{\"storage-driver\": \"{driver}\"}}"))
            .unwrap();
        let mut engine = Engine { directory, daemon: None };
        engine.start();
        let copy = format!("docker save {} | docker -H {} load", image(), engine.host());
        let copied = Command::new("sh").args(["-c", &copy]).output().unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        engine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn host(&self) -> String {
        format!("unix://{}", self.path("engine.sock").display())
    }

    fn answers(&self) -> bool {
        let asked = Command::new("docker").args(["-H", &self.host(), "version"]).output();
        asked.unwrap().status.success()
    }

    fn start(&mut self) {
        self.spawn();
        let begun = Instant::now();
        while !self.answers() {
            let log = || std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(begun.elapsed() < PATIENCE, "the engine does not come up: {}", log());
            // One that finds its dying helper gives up; who runs engines starts them again.
            if self.daemon.as_mut().is_none_or(|daemon| daemon.try_wait().unwrap().is_some()) {
                self.spawn();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn spawn(&mut self) {
        let option = |name: &str, file: &str| format!("--{name}={}", self.path(file).display());
        let log = std::fs::File::options().create(true).append(true).open(self.path("log")).unwrap();
        // In a network of its own: an engine without a bridge removes the one that it finds, which is the machine's.
        let daemon = Command::new("unshare")
            .args(["--net", "dockerd"])
            .args([
                option("config-file", "daemon.json"),
                option("data-root", "data"),
                option("exec-root", "exec"),
                option("pidfile", "pid"),
                format!("--host={}", self.host()),
            ])
            .args(["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"])
            .args([
                "--containerd-namespace=cellblock-test",
                "--containerd-plugins-namespace=cellblock-test-plugins",
            ])
            .arg("--shutdown-timeout=1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("unshare and dockerd");
        self.daemon = Some(daemon);
    }

    fn stop(&mut self, signal: Signal) {
        let Some(mut daemon) = self.daemon.take() else { return };
        let pid = Pid::from_child(&daemon);
        kill_process(pid, signal).unwrap();
        daemon.wait().unwrap();
        // Its helper ends with it, a moment later.
        let helper = std::fs::read_to_string(self.path("exec/containerd/containerd.pid")).unwrap_or_default();
        let lives = || !helper.is_empty() && Path::new("/proc").join(helper.trim()).join("exe").exists();
        let begun = Instant::now();
        while lives() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn restart(&mut self, signal: Signal) {
        self.stop(signal);
        self.start();
    }

    /// Containers of any kind that it knows.
    fn containers(&self) -> String {
        let listed = Command::new("docker").args(["-H", &self.host(), "ps", "-aq"]).output().unwrap();
        String::from_utf8_lossy(&listed.stdout).into_owned()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop(Signal::TERM);
        // What an engine that was killed has left behind: told by the directory, which nobody else uses.
        for entry in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let pid = entry.file_name().to_string_lossy().parse().ok().and_then(Pid::from_raw);
            if let Some(pid) = pid.filter(|_| {
                String::from_utf8_lossy(&line).contains(&*self.directory.path().to_string_lossy())
            }) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        // What the driver left mounted would keep the directory.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let own = self.directory.path().to_string_lossy().into_owned();
        for place in
            mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)).filter(|p| p.starts_with(&own))
        {
            let _ = Command::new("umount").args(["-l", place]).status();
        }
    }
}

/// One engine for all of this: it takes a while to fill.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_restarted_costs_the_state_and_no_more() {
    let mut engine = Engine::new();
    let bed = Bed::at(&engine.host(), &image());
    bed.python("kept = 1").await.ok();

    // While nothing runs.
    engine.restart(Signal::TERM);
    let ran = bed.python("'kept' in globals()").await;
    assert_eq!(ran.ok().result(), "False");
    assert!(ran.warnings().contains("lost"), "{ran:?}");

    // While a cell runs: in order, and by force.
    for signal in [Signal::TERM, Signal::KILL] {
        bed.python("kept = 1").await.ok();
        let (ran, ()) = tokio::join!(bed.python("import time\ntime.sleep(1000)"), async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            tokio::task::block_in_place(|| engine.restart(signal));
        });
        let failure = ran.failure();
        assert_eq!(failure.ename, "SandboxError", "{failure:?}");
        assert!(failure.evalue.contains("lost") && failure.evalue.contains("the next cell"), "{failure:?}");
        assert_eq!(bed.python("'next'").await.ok().result(), "'next'");
    }

    // While it is away the cell says what to do, and soon.
    engine.stop(Signal::TERM);
    let ran = bed.python("1").await;
    let failure = ran.failure();
    assert!(failure.evalue.contains("engine") && failure.evalue.contains("start docker"), "{failure:?}");
    assert!(ran.took < Duration::from_secs(20), "{:?}", ran.took);
    engine.start();
    assert_eq!(bed.python("'next'").await.ok().result(), "'next'");

    // While a sandbox starts, at several moments.
    for moment in [50, 150, 400] {
        let other = Bed::at(&engine.host(), &image());
        let (ran, ()) = tokio::join!(other.python("'first'"), async {
            tokio::time::sleep(Duration::from_millis(moment)).await;
            tokio::task::block_in_place(|| engine.restart(Signal::KILL));
        });
        if let Some(failure) = &ran.end.failure {
            assert!(failure.evalue.contains("engine") || failure.evalue.contains("sandbox"), "{failure:?}");
        }
        assert_eq!(other.python("'next'").await.ok().result(), "'next'", "after {ran:?}");
        other.sandbox.shutdown().await;
    }

    bed.sandbox.shutdown().await;
    assert_eq!(engine.containers(), "", "nothing is left");
}

/// A disk of four megabytes.
struct Disk(PathBuf);

impl Disk {
    fn over(path: &Path) -> Self {
        root();
        std::fs::create_dir_all(path).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m,mode=0777", "none"]).arg(path).status();
        assert!(mounted.unwrap().success(), "a small disk can't be mounted");
        Disk(path.to_owned())
    }

    fn fill(&self) {
        let _ = std::fs::write(self.0.join("filler"), vec![0; 8 << 20]);
    }

    fn free(&self) {
        std::fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_the_codes_own_error_and_keeps_nothing_from_working() {
    let bed = Bed::with(|settings| settings.output = 1 << 20);
    let disk = Disk::over(&bed.directory.path().join("workspace"));
    let write = "open('/workspace/data', 'wb').write(bytes(1 << 20))";
    assert_eq!(bed.python(write).await.ok().result(), "1048576");
    disk.fill();
    let failure = bed.python("open('/workspace/more', 'wb').write(bytes(1 << 20))").await.failure().clone();
    assert!(failure.ename == "OSError" && failure.evalue.contains("No space left"), "{failure:?}");
    let ran = bed.sh("echo x > /workspace/other || echo full").await;
    assert!(ran.out().contains("full") || ran.end.failure.is_some(), "{ran:?}");
    // Output above the cap has nowhere to go, and that is said.
    let ran = bed.run(Run::new("sh", "head -c 3000000 /dev/zero | tr '\\0' y"), Around::default()).await;
    assert!(ran.ok().out().len() <= 1 << 20);
    assert!(
        ran.warnings().contains("No space left") || ran.warnings().contains("neither shown nor kept"),
        "{ran:?}"
    );
    assert_eq!(bed.python("1 + 1").await.ok().result(), "2");
    // A fresh sandbox starts on a full disk too.
    bed.remove_containers();
    assert_eq!(bed.python("1 + 1").await.ok().result(), "2");
    disk.free();
    assert_eq!(bed.python(write).await.ok().result(), "1048576");
    bed.sandbox.shutdown().await;
}
