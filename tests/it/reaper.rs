//! Nothing stays, whatever way the kernel dies, and what would stay without the nets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cellblock::sandbox::backend::Backend;
use cellblock::sandbox::definition::{Definition, Place};
use cellblock::sandbox::owner::{LABEL, LABEL_KERNEL, LABEL_PID, LABEL_STARTED, Owner};
use cellblock::sandbox::reaper::Program;
use cellblock::sandbox::spec::NAME;
use tokio_util::sync::CancellationToken;

use crate::containers::{
    Bench, Front, docker, eventually, image, labelled, options, plan, said, sandbox_settings,
};

/// Also the process that the other tests own containers with: there it starts one after the other until it is
/// killed, as a kernel would.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_says_who_it_is_and_when_its_container_runs() {
    let Ok(directory) = std::env::var("CELLBLOCK_TEST_OWNER") else {
        let directory = tempfile::tempdir().unwrap();
        let (child, kernel, mut lines) = own(directory.path(), true);
        assert!(uuid::Uuid::parse_str(&kernel).is_ok(), "{kernel}");
        lines.find(|line| line == "started").expect("a container");
        kill(child);
        return eventually("no container is left", || labelled(&filter(&kernel)).is_empty()).await;
    };
    let mut options = options(directory.as_ref());
    options.host = std::env::var("CELLBLOCK_TEST_HOST").ok();
    if std::env::var_os("CELLBLOCK_TEST_NO_REAPER").is_some() {
        // Says that it is ready, and does nothing ever.
        let script = "printf r; exec cat >/dev/null";
        options.reaper = Program { path: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] };
    }
    let docker = cellblock::sandbox::docker::Docker::new(options);
    eprintln!("kernel {}", docker.owner().kernel);
    let definition = Arc::new(Definition::python(&sandbox_settings()));
    let mut plan = plan(&definition, &["python3", "-c", "import sys; sys.stdin.read()"]);
    // As a kernel whose session has no name: its folder goes with it.
    plan.place = Place::Session(format!("kernel-{}", docker.owner().kernel.simple()));
    plan.temporary = true;
    loop {
        let mut prepared = docker.prepare(plan.clone(), None).await.expect("an engine");
        // Without the time of its start, no other test's sweep takes its containers for orphans.
        prepared.spec.labels.remove(LABEL_STARTED);
        let started = docker.launch(prepared, CancellationToken::new()).await.expect("a container");
        eprintln!("started");
        started.container.destroy().await;
    }
}

/// The name of the test that plays the owner.
const OWNER: &str = "reaper::an_owner_says_who_it_is_and_when_its_container_runs";

/// Starts the owning process; its kernel's id and its further lines.
fn own(directory: &Path, reaper: bool) -> (Child, String, impl Iterator<Item = String> + use<>) {
    own_at(directory, reaper, None)
}

/// The same with another socket as the engine's.
fn own_at(
    directory: &Path,
    reaper: bool,
    host: Option<&Path>,
) -> (Child, String, impl Iterator<Item = String> + use<>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", OWNER, "--nocapture", "--test-threads=1"])
        .env("CELLBLOCK_TEST_OWNER", directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    if let Some(host) = host {
        command.env("CELLBLOCK_TEST_HOST", host);
    }
    if !reaper {
        command.env("CELLBLOCK_TEST_NO_REAPER", "1");
    }
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let kernel = lines.find_map(|line| line.strip_prefix("kernel ").map(str::to_owned)).expect("an owner");
    (child, kernel, lines)
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Processes that guard the kernel: reapers show it nowhere but in the pipe, so they are found by parentage
/// and name beforehand.
fn reaper_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()?;
        Some((pid, parent))
    });
    children.filter(|(_, parent)| *parent == pid).map(|(child, _)| child).find(|child| {
        let line = std::fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
        line.ends_with("reaper\0")
    })
}

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn filter(kernel: &str) -> String {
    format!("{LABEL_KERNEL}={kernel}")
}

/// How many kernels are killed at random moments; `CELLBLOCK_KILLS` says another number than the suite's.
fn kills() -> usize {
    std::env::var("CELLBLOCK_KILLS").map_or(30, |kills| kills.parse().expect("CELLBLOCK_KILLS: a number"))
}

/// Owners that live at the same time.
const AT_ONCE: usize = 6;

/// A killed owner: its kernel's id, and its reaper where that was up already.
struct Killed(String, Option<u32>);

/// Starts an owner and kills it: half of them at some moment of the first start, half at some moment later, between
/// create and start, while it runs, while it is removed.
fn kill_one(directory: &Path, later: bool, after: Duration) -> Killed {
    let (child, kernel, mut lines) = own(directory, true);
    if later {
        lines.find(|line| line == "started").expect("a container");
    }
    std::thread::sleep(after);
    let reaper = reaper_of(child.id());
    kill(child);
    Killed(kernel, reaper)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_killed_at_any_moment_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (seed, count) = (fastrand::u64(..), kills());
    eprintln!("{count} kills, seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let moments: Vec<_> =
        (0..count).map(|_| (random.bool(), Duration::from_millis(random.u64(..600)))).collect();
    let mut killed = Vec::new();
    for together in moments.chunks(AT_ONCE) {
        let mut owners = tokio::task::JoinSet::new();
        for (later, after) in together.iter().copied() {
            let directory = directory.path().to_owned();
            owners.spawn_blocking(move || kill_one(&directory, later, after));
        }
        killed.extend(owners.join_all().await);
    }
    let reapers = killed.iter().filter(|Killed(_, reaper)| reaper.is_some()).count();
    assert!(reapers > count / 3, "the reapers were not found: {reapers} of {count}");
    let left = || {
        let all = labelled(LABEL_KERNEL);
        let ours = |id: &String| {
            let kernel = said_of(id, &format!("{{{{index .Config.Labels \"{LABEL_KERNEL}\"}}}}"));
            killed.iter().any(|Killed(killed, _)| *killed == kernel)
        };
        all.into_iter().filter(ours).count()
    };
    eventually("no container is left", || left() == 0).await;
    eventually("no reaper is left", || killed.iter().all(|Killed(_, reaper)| !reaper.is_some_and(lives)))
        .await;
    assert_eq!(left(), 0, "and none came after");
    let sessions = std::fs::read_dir(directory.path().join("sessions"));
    let folders: Vec<_> = sessions.into_iter().flatten().map(|entry| entry.unwrap().file_name()).collect();
    assert!(folders.is_empty(), "the folders of sessions are left: {folders:?}");
}

/// What the engine knows of a container; empty when it is gone.
fn said_of(id: &str, format: &str) -> String {
    let output = docker(&["inspect", "--format", format, id]);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_killed_between_create_and_start_leaves_nothing_only_because_of_the_reaper() {
    for reaper in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let front = Front::new(directory.path(), "/start");
        let (child, kernel, _lines) = own_at(directory.path(), reaper, Some(&front.socket));
        front.keeps_one().await;
        assert_eq!(labelled(&filter(&kernel)).len(), 1, "it is created");
        kill(child);
        if reaper {
            eventually("it is gone", || labelled(&filter(&kernel)).is_empty()).await;
        } else {
            tokio::time::sleep(Duration::from_secs(5)).await;
            let left = labelled(&filter(&kernel));
            assert_eq!(left.len(), 1, "the engine removes what was never started: the reaper is not needed");
            docker(&["rm", "-f", &left[0]]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_the_engine_creates_after_its_kernels_death_is_removed_too() {
    let directory = tempfile::tempdir().unwrap();
    let front = Front::new(directory.path(), "/containers/create");
    let (child, kernel, _lines) = own_at(directory.path(), true, Some(&front.socket));
    front.keeps_one().await;
    let reaper = reaper_of(child.id()).expect("a reaper");
    kill(child);
    // Longer than the reaper looks when nothing is on its way.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(labelled(&filter(&kernel)).is_empty());
    // From now on, also what happens before the client has connected.
    let since = chrono::Utc::now().timestamp().to_string();
    let mut events = Command::new("docker")
        .args(["events", "--since", &since, "--filter", &format!("label={}", filter(&kernel))])
        .args(["--filter", "event=create", "--filter", "event=destroy", "--format", "{{.Action}}"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let shown = BufReader::new(events.stdout.take().unwrap());
    let reading = std::thread::spawn(move || shown.lines().map_while(Result::ok).take(2).collect::<Vec<_>>());
    front.release();
    eventually("the reaper is done", || !lives(reaper)).await;
    assert!(labelled(&filter(&kernel)).is_empty());
    let end = std::time::Instant::now() + Duration::from_secs(30);
    while !reading.is_finished() && std::time::Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    events.kill().unwrap();
    events.wait().unwrap();
    let seen = reading.join().unwrap();
    assert_eq!(seen, ["create", "destroy"], "it was there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_container_ends_with_its_kernel_even_without_a_reaper() {
    let directory = tempfile::tempdir().unwrap();
    let (child, kernel, mut lines) = own(directory.path(), false);
    lines.find(|line| line == "started").unwrap();
    eventually("one runs", || {
        !said(&["ps", "-q", "--filter", &format!("label={}", filter(&kernel))]).is_empty()
    })
    .await;
    kill(child);
    // A kill that hit the moment between create and start leaves one that never ran; that is the reaper's case.
    eventually("none runs", || {
        said(&["ps", "-q", "--filter", &format!("label={}", filter(&kernel))]).is_empty()
    })
    .await;
    for id in labelled(&filter(&kernel)) {
        docker(&["rm", "-f", &id]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sweep_leaves_the_containers_of_living_and_unknown_kernels_and_of_strangers_alone() {
    let labels = |pid: u32, owner: &Owner| {
        let mut labels = owner.labels();
        labels.insert(LABEL_PID.to_owned(), pid.to_string());
        labels
    };
    let ours = Owner::current();
    let foreign = Owner { host: Some("another boot/1".into()), ..Owner::current() };
    let create = |prefix: &str, labels: HashMap<String, String>| {
        let name = format!("--name={prefix}{}", uuid::Uuid::new_v4().simple());
        let mut arguments = vec!["create".to_owned(), "--network=none".to_owned(), name];
        arguments.extend(labels.iter().map(|(name, value)| format!("--label={name}={value}")));
        arguments.extend([image(), "true".to_owned()]);
        said(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let dead = labels(u32::MAX - 1, &Owner::current());
    let kept = [
        create(NAME, labels(ours.pid, &ours)),
        create(NAME, labels(u32::MAX - 1, &foreign)),
        // As it would run from an image that somebody committed from a container of ours.
        create("committed-", dead.clone()),
    ];
    let orphan = create(NAME, dead);
    Bench::new().prepare(&["true"]).await;
    eventually("the orphan is gone", || !labelled(&format!("{LABEL}=1")).contains(&orphan)).await;
    let left = labelled(&format!("{LABEL}=1"));
    assert!(kept.iter().all(|id| left.contains(id)));
    for id in kept {
        docker(&["rm", "-f", &id]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reaper_survives_what_ends_its_kernel_and_goes_with_an_orderly_end() {
    use rustix::process::{Pid, Signal, getpgid, getsid, kill_process};
    let bench = Bench::new();
    let _started = bench.start(&["python3", "-c", "input()"], |_| ()).await;
    let reaper = reaper_of(std::process::id()).expect("a reaper");
    let pid = Pid::from_raw(reaper.try_into().unwrap()).unwrap();
    assert_eq!(getsid(Some(pid)).unwrap(), pid, "a session of its own");
    assert_eq!(getpgid(Some(pid)).unwrap(), pid, "a process group of its own");
    for signal in [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT] {
        kill_process(pid, signal).unwrap();
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(lives(reaper));
    let environment = std::fs::read(format!("/proc/{reaper}/environ")).unwrap();
    assert!(environment.is_empty(), "the kernel's environment, and its keys, are not handed on");
    let status = std::fs::read_to_string(format!("/proc/{reaper}/status")).unwrap();
    let resident: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap();
    assert!(resident < 8 << 10, "{resident} kB");
    bench.docker.destroy_all().await;
    assert!(!lives(reaper));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reaper_that_was_killed_is_replaced_before_the_next_container() {
    let bench = Bench::new();
    drop(bench.start(&["python3", "-c", "input()"], |_| ()).await);
    let first = reaper_of(std::process::id()).expect("a reaper");
    let pid = rustix::process::Pid::from_raw(first.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("the reaper is dead", || !lives(first)).await;
    drop(bench.start(&["python3", "-c", "input()"], |_| ()).await);
    let second = reaper_of(std::process::id()).expect("another reaper");
    assert_ne!(first, second);
    bench.docker.destroy_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_reaper_nothing_is_created() {
    let bench = Bench::with(|options| {
        options.reaper = Program { path: "/bin/false".into(), arguments: Vec::new() };
    });
    let Err(error) = bench.docker.prepare(bench.plan(&["true"]), None).await else { panic!("it went on") };
    assert!(error.to_string().contains("none was created"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reaper_removes_temporary_directories_of_a_killed_kernel() {
    let temporary = tempfile::tempdir().unwrap();
    let doomed = temporary.path().join("doomed");
    std::fs::create_dir(&doomed).unwrap();
    let bench = Bench::with(|options| options.temporary = vec![doomed.clone()]);
    bench.prepare(&["true"]).await;
    // The pipe ends without a farewell when the backend is dropped.
    drop(bench);
    eventually("it is gone", || !doomed.exists()).await;
}
