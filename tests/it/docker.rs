//! The Docker backend: streams, ends and why, cancellation, what the engine is asked for.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use cellblock::event::{Event, channel};
use cellblock::sandbox::backend::{Backend, BackendError, Obituary};
use cellblock::sandbox::docker::{Docker, facts};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::containers::{Bench, Front, PATIENCE, docker, eventually, labelled, options, plan, said};

const CAT: [&str; 3] = [
    "python3",
    "-c",
    "import sys; [sys.stdout.buffer.raw.write(b) for b in iter(lambda: sys.stdin.buffer.raw.read(65536), b'')]",
];

#[tokio::test(flavor = "multi_thread")]
async fn bytes_go_in_and_come_back_unchanged() {
    let bench = Bench::new();
    let mut started = bench.start(&CAT, |_| ()).await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let mut input = started.input;
    let writer = tokio::spawn({
        let sent = sent.clone();
        async move {
            input.write_all(&sent).await.unwrap();
            input.shutdown().await.unwrap();
        }
    });
    let mut back = Vec::new();
    tokio::time::timeout(PATIENCE, started.output.read_to_end(&mut back)).await.unwrap().unwrap();
    writer.await.unwrap();
    assert!(back == sent, "{} bytes came back", back.len());
    assert_eq!(started.container.obituary().await, Obituary::Exited(0));
    started.container.destroy().await;
    assert!(labelled(&bench.label()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn its_standard_error_is_kept_as_last_words() {
    let ran = Bench::new().python("import sys; print('out'); sys.exit('I die')", |_| ()).await;
    assert_eq!(ran.out, "out");
    assert_eq!(ran.err.trim(), "I die");
    assert_eq!(ran.end, Obituary::Exited(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destroyed_container_is_gone_and_destroying_it_again_is_fine() {
    let bench = Bench::new();
    let mut started = bench.start(&CAT, |_| ()).await;
    assert_eq!(labelled(&bench.label()).len(), 1);
    started.container.destroy().await;
    assert!(labelled(&bench.label()).is_empty());
    started.container.destroy().await;
    assert_eq!(started.output.read(&mut [0; 16]).await.unwrap(), 0);
    assert_eq!(started.container.obituary().await, Obituary::Removed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_container_goes_by_itself() {
    let bench = Bench::new();
    drop(bench.start(&CAT, |_| ()).await);
    eventually("the container is gone", || labelled(&bench.label()).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_removed_by_others_is_told_from_one_that_ended() {
    let bench = Bench::new();
    let mut started = bench.start(&CAT, |_| ()).await;
    let id = labelled(&bench.label()).remove(0);
    said(&["rm", "-f", &id]);
    assert_eq!(started.output.read(&mut [0; 16]).await.unwrap(), 0);
    assert_eq!(started.container.obituary().await, Obituary::Removed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_main_process_killed_for_memory_is_an_obituary_with_the_limit() {
    let bench = Bench::of(|definition| definition.limits.memory = 64 << 20);
    let ran = bench.python("x = bytearray(500 << 20)", |_| ()).await;
    assert_eq!(ran.end, Obituary::OutOfMemory(64 << 20), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_killed_for_memory_is_known_while_the_container_lives() {
    let bench = Bench::of(|definition| definition.limits.memory = 64 << 20);
    let code = "
import subprocess, sys
print(subprocess.run([sys.executable, '-c', 'x = bytearray(500 << 20)']).returncode, flush=True)
sys.stdin.read()
";
    let mut started = bench.start(&["python3", "-c", code], |_| ()).await;
    let mut line = [0; 3];
    tokio::time::timeout(PATIENCE, started.output.read_exact(&mut line)).await.unwrap().unwrap();
    assert_eq!(&line, b"-9\n");
    assert_eq!(started.container.out_of_memory().await, Some(64 << 20));
    assert_eq!(started.container.out_of_memory().await, None, "told once");
    started.container.destroy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_container_can_be_destroyed() {
    let bench = Bench::new();
    let started = bench.start(&CAT, |_| ()).await;
    let id = labelled(&bench.label()).remove(0);
    said(&["pause", &id]);
    tokio::time::timeout(PATIENCE, started.container.destroy()).await.unwrap();
    assert!(labelled(&bench.label()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_cancelled_at_any_moment_leaves_nothing() {
    let bench = Bench::new();
    for n in 0..12 {
        let cancel = CancellationToken::new();
        let start = bench.docker.start(bench.plan(&CAT), None, cancel.clone());
        let delay = Duration::from_millis(n * 15);
        if n % 2 == 0 {
            let result = tokio::join!(start, async {
                tokio::time::sleep(delay).await;
                cancel.cancel();
            });
            assert!(!matches!(result.0, Err(ref e) if !matches!(e, BackendError::Cancelled)));
        } else {
            let _ = tokio::time::timeout(delay, start).await;
        }
    }
    eventually("nothing is left", || labelled(&bench.label()).is_empty()).await;
    bench.docker.destroy_all().await;
    assert!(labelled(&bench.label()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn destroy_all_ends_everything_and_nothing_starts_afterwards() {
    let bench = Bench::new();
    let first = bench.start(&CAT, |_| ()).await;
    let second = bench.start(&CAT, |_| ()).await;
    bench.docker.destroy_all().await;
    assert!(labelled(&bench.label()).is_empty());
    drop((first, second));
    let refused = bench.docker.start(bench.plan(&CAT), None, CancellationToken::new()).await;
    assert!(matches!(refused, Err(BackendError::Cancelled)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_without_python_says_so() {
    let bench = Bench::new();
    let prepared = bench.prepare(&["no-such-program"]).await;
    let Err(error) = bench.docker.launch(prepared, CancellationToken::new()).await else {
        panic!("it started");
    };
    assert!(error.to_string().contains("cellblock build"), "{error}");
    assert!(labelled(&bench.label()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_can_not_be_pulled_says_so() {
    let name = "localhost:1/cellblock-test/nothing:here";
    let bench = Bench::of(|definition| definition.limits.image = Some(name.to_owned()));
    let (progress, mut shown) = channel(100);
    let Err(error) = bench.docker.prepare(bench.plan(&["true"]), Some(progress)).await else {
        panic!("it is there");
    };
    assert!(matches!(error, BackendError::Image(_)), "{error:?}");
    assert!(error.to_string().contains(name), "{error}");
    let mut notices = Vec::new();
    while let Some(event) = shown.recv().await {
        let Event::Notice(notice) = event else { panic!("{event:?}") };
        notices.push(notice);
    }
    assert!(notices[0].text.contains(name), "{notices:?}");
    assert_eq!(notices.last().unwrap().text, "", "the line of progress is taken away");
    assert!(notices.iter().all(|n| n.progress.is_some() && n.progress == notices[0].progress));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_not_there_is_an_error_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path());
    options.host = Some("unix:///nowhere/docker.sock".into());
    let Err(error) = Docker::new(options).prepare(plan(&Bench::new().definition, &["true"]), None).await
    else {
        panic!("an engine")
    };
    let error = error.to_string();
    assert!(error.contains("/nowhere/docker.sock") && error.contains("DOCKER_HOST"), "{error}");
    let stale = directory.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let error = facts(stale.to_str()).await.unwrap_err().to_string();
    assert!(error.contains("systemctl start docker"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_facts_are_the_engines() {
    let facts = facts(None).await.unwrap();
    let version = said(&["version", "--format", "{{.Server.Version}}"]);
    assert!(facts.name.contains(&version), "{facts:?}");
    assert!(facts.cpus.is_some() && facts.runc.is_some(), "{facts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_an_image_declares_are_bounded_memory() {
    let name = "cellblock-test-docker:volume";
    crate::containers::derive(name, "VOLUME /data");
    let bench = Bench::of(|definition| {
        definition.limits.image = Some(name.to_owned());
        definition.limits.tmpfs = 8 << 20;
    });
    let ran = bench.python("print([l for l in open('/proc/mounts') if ' /data ' in l])", |_| ()).await;
    docker(&["rmi", "-f", name]);
    assert!(ran.out.contains("tmpfs") && ran.out.contains("size=8192k"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_goes_away_is_told_from_a_container_that_was_removed() {
    let directory = tempfile::tempdir().unwrap();
    let front = Front::new(directory.path(), "/nothing");
    let bench = Bench::with(|options| options.host = front.socket.to_str().map(str::to_owned));
    let mut started = bench.start(&CAT, |_| ()).await;
    front.close();
    // Whether the stream ends or breaks, it is over.
    let _ = tokio::time::timeout(PATIENCE, started.output.read_to_end(&mut Vec::new())).await.unwrap();
    let end = started.container.obituary().await;
    let Obituary::EngineGone(why) = end else { panic!("{end:?}") };
    assert!(why.contains("front.sock"), "{why}");
    // Its input has ended too, and so it ends by itself, with no engine to ask for it.
    eventually("it is gone", || labelled(&bench.label()).is_empty()).await;
}
