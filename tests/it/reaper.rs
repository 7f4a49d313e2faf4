//! Nothing stays, whatever way the kernel dies, and what would stay without the nets.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cellblock::sandbox::backend::Backend;
use cellblock::sandbox::owner::{LABEL, LABEL_KERNEL, LABEL_PID, LABEL_STARTED, Owner};
use cellblock::sandbox::reaper::Program;
use cellblock::sandbox::spec::NAME;
use tokio_util::sync::CancellationToken;

use crate::containers::{Bench, Front, docker, eventually, image, labelled, options, said};

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
    let argv: Vec<String> = ["python3", "-c", "import sys; sys.stdin.read()"].map(str::to_owned).to_vec();
    loop {
        let mut prepared = docker.prepare(argv.clone(), None).await.expect("an engine");
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

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_killed_at_any_moment_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut killed = Vec::new();
    for n in 0..50_u64 {
        let (child, kernel, mut lines) = own(directory.path(), true);
        // Half of them at some moment of the first start, half at some moment later: between create and start,
        // while it runs, while it is removed.
        if n % 2 == 1 {
            lines.find(|line| line == "started").unwrap();
        }
        tokio::time::sleep(Duration::from_millis(n * 7 % 320)).await;
        let reaper = reaper_of(child.id());
        kill(child);
        killed.push((kernel, reaper));
    }
    assert!(killed.iter().filter(|(_, reaper)| reaper.is_some()).count() > 25, "the reapers were not found");
    eventually("no container is left", || {
        killed.iter().all(|(kernel, _)| labelled(&filter(kernel)).is_empty())
    })
    .await;
    eventually("no reaper is left", || killed.iter().all(|(_, reaper)| !reaper.is_some_and(lives))).await;
    assert!(killed.iter().all(|(kernel, _)| labelled(&filter(kernel)).is_empty()));
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
    let events = Command::new("docker")
        .args(["events", "--filter", &format!("label={}", filter(&kernel)), "--filter", "event=create"])
        .args(["--filter", "event=destroy", "--format", "{{.Action}}"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    front.release();
    eventually("the reaper is done", || !lives(reaper)).await;
    assert!(labelled(&filter(&kernel)).is_empty());
    let mut events = events;
    let seen = events.stdout.take().unwrap();
    events.kill().unwrap();
    events.wait().unwrap();
    let seen: Vec<String> = BufReader::new(seen).lines().map_while(Result::ok).collect();
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
    let Err(error) = bench.docker.prepare(vec!["true".into()], None).await else { panic!("it went on") };
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
