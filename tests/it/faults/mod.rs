//! What others do to the sandbox, and what breaks below it. After each fault the next cell works or says why it can't,
//! and nothing hangs.
//!
//! | module | what |
//! | --- | --- |
//! | this one | the container paused, killed or stopped by others; its image deleted; its channel flooded |
//! | `as_root` | an engine that is restarted, a disk that is full: both take an engine or a disk of the test's own, and so root |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod as_root;

use std::time::Duration;

use cellblock::sandbox::{Run, Tighter};

use crate::containers::{PATIENCE, derive, docker, image, said};
use crate::session::{Around, Bed, Ran};

/// An interrupt must have its way within two seconds. A busy machine takes longer, but not for ever.
const SOON: Duration = Duration::from_secs(20);

/// Runs something long and does `fault` to its container once it runs; cancels after `patience` more.
async fn during(bed: &Bed, code: &str, cancel: Option<Duration>, fault: impl FnOnce(&str)) -> Ran {
    let run = Run::new("python", format!("open('/workspace/runs', 'w').close()\n{code}"));
    let marker = bed.directory.path().join("workspace/runs");
    let _ = std::fs::remove_file(&marker);
    let around = Around { cancel_after: cancel, ..Around::default() };
    let (ran, ()) = tokio::join!(bed.run(run, around), async {
        let begun = std::time::Instant::now();
        while !marker.exists() {
            assert!(begun.elapsed() < PATIENCE, "it never runs");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        fault(&bed.containers().remove(0));
    });
    ran
}

/// The next cell works, and the variables are gone: what the user was told. On a busy machine the news of a container's
/// end may come only when that cell has begun; then it says so, and the one after it works.
async fn afresh(bed: &Bed) -> String {
    const CODE: &str = "'kept' in globals()";
    let mut ran = bed.python(CODE).await;
    let told = match &ran.end.failure {
        Some(failure) => failure.evalue.clone(),
        None => ran.warnings(),
    };
    if ran.end.failure.is_some() {
        assert!(told.contains("lost"), "{ran:?}");
        ran = bed.python(CODE).await;
    }
    assert_eq!(ran.ok().result(), "False", "{ran:?}");
    told
}

const LONG: &str = "import time\ntime.sleep(1000)";

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_killed_by_others_is_named_and_replaced() {
    let bed = Bed::new();
    bed.python("kept = 1").await.ok();
    let ran = during(&bed, LONG, None, |id| drop(said(&["kill", id]))).await;
    let failure = ran.failure();
    assert!(failure.evalue.contains("removed or killed from outside"), "{failure:?}");
    assert!(failure.evalue.contains("lost") && failure.evalue.contains("the next cell"), "{failure:?}");
    afresh(&bed).await;
    bed.python("kept = 1").await.ok();
    said(&["kill", &bed.containers()[0]]);
    let told = afresh(&bed).await;
    assert!(told.contains("killed from outside") && told.contains("lost"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_stopped_in_order_by_others_is_named_and_replaced() {
    let bed = Bed::new();
    bed.python("kept = 1").await.ok();
    let ran = during(&bed, LONG, None, |id| drop(said(&["stop", "-t", "1", id]))).await;
    assert!(ran.failure().evalue.contains("lost"), "{ran:?}");
    afresh(&bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_paused_while_a_cell_runs_goes_on_or_is_interrupted() {
    let bed = Bed::new();
    bed.python("kept = 1").await.ok();
    // Paused and continued, nothing is lost.
    let ran = during(&bed, "import time\ntime.sleep(1)\nkept", None, |id| {
        said(&["pause", id]);
        std::thread::sleep(Duration::from_millis(1500));
        said(&["unpause", id]);
    })
    .await;
    assert_eq!(ran.ok().result(), "1");
    let after = Duration::from_secs(5);
    let ran = during(&bed, LONG, Some(after), |id| drop(said(&["pause", id]))).await;
    let failure = ran.failure();
    assert_eq!(failure.ename, "KeyboardInterrupt", "{failure:?}");
    assert!(
        failure.evalue.contains("had been paused from outside") && failure.evalue.contains("lost"),
        "{failure:?}"
    );
    assert!(ran.took < after + SOON, "{:?}", ran.took);
    afresh(&bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_paused_between_cells_stops_at_the_timeout_or_the_interrupt() {
    let bed = Bed::new();
    for (cancel_after, timeout, name) in [
        (Some(Duration::from_secs(1)), None, "KeyboardInterrupt"),
        (None, Some(Duration::from_secs(1)), "Timeout"),
    ] {
        bed.python("kept = 1").await.ok();
        said(&["pause", &bed.containers()[0]]);
        let run = Run { tighter: Tighter { timeout, ..Tighter::default() }, ..Run::new("python", "kept") };
        let ran = bed.run(run, Around { cancel_after, ..Around::default() }).await;
        assert_eq!(ran.failure().ename, name, "{ran:?}");
        assert!(ran.failure().evalue.contains("lost"), "{ran:?}");
        assert!(ran.took < Duration::from_secs(1) + SOON, "{:?}", ran.took);
        afresh(&bed).await;
    }
}

/// Others use up the container's memory while a cell runs: the system kills what it may, the Python session first.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_the_memory_of_others_costs_is_named_and_replaced() {
    let bed = Bed::with(|settings| settings.memory = 300 << 20);
    bed.python("kept = 1").await.ok();
    let patience = Some(Duration::from_secs(30));
    let ran = during(&bed, LONG, patience, |id| {
        let hog = "x = bytearray(10**9)\nx[::4096] = b'1' * len(x[::4096])";
        docker(&["exec", id, "python3", "-c", hog]);
    })
    .await;
    let failure = ran.failure();
    // Where only the other one was killed, the cell is stopped by the test.
    if failure.ename == "KeyboardInterrupt" {
        assert_eq!(bed.python("kept").await.ok().result(), "1");
    } else {
        assert!(failure.evalue.contains("memory") && failure.evalue.contains("300 MB"), "{failure:?}");
        afresh(&bed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_container_holds_no_shutdown_up() {
    let bed = Bed::new();
    bed.python("1").await.ok();
    said(&["pause", &bed.containers()[0]]);
    tokio::time::timeout(PATIENCE, bed.sandbox.shutdown()).await.expect("it hangs");
    assert_eq!(bed.containers(), Vec::<String>::new());
}

/// Sends a signal to a process of the machine, as its administrator could.
fn signal(container: &str, number: u8) {
    let pid = said(&["inspect", "--format", "{{.State.Pid}}", container]);
    let code = format!("import os; os.kill({pid}, {number})");
    let image = image();
    said(&["run", "--rm", "--pid=host", "--user=0:0", "--entrypoint=python3", &image, "-c", &code]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_is_killed_from_the_machine_is_named_and_replaced() {
    let bed = Bed::new();
    bed.python("kept = 1").await.ok();
    let ran = during(&bed, LONG, None, |id| signal(id, 9)).await;
    let failure = ran.failure();
    assert!(
        failure.evalue.contains("main process was killed") && failure.evalue.contains("lost"),
        "{failure:?}"
    );
    afresh(&bed).await;
    bed.python("kept = 1").await.ok();
    signal(&bed.containers()[0], 9);
    let told = afresh(&bed).await;
    assert!(told.contains("main process was killed") && told.contains("lost"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_stands_still_does_not_hold_an_interrupt_up() {
    let bed = Bed::new();
    bed.python("kept = 1").await.ok();
    let after = Duration::from_secs(5);
    let ran = during(&bed, LONG, Some(after), |id| signal(id, 19)).await;
    assert_eq!(ran.failure().ename, "KeyboardInterrupt", "{ran:?}");
    assert!(ran.took < after + SOON, "{:?}", ran.took);
    afresh(&bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_deleted_is_missed_at_the_next_start_and_no_earlier() {
    let name = "localhost:1/cellblock-test/faults:deleted";
    derive(name, "LABEL faults=1");
    let bed = Bed::with(|settings| settings.image = Some(name.to_owned()));
    bed.python("kept = 1").await.ok();
    said(&["rmi", "-f", name]);
    assert_eq!(bed.python("kept").await.ok().result(), "1", "what runs goes on");
    bed.remove_containers();
    let ran = bed.python("1").await;
    let failure = ran.failure();
    assert_eq!(failure.ename, "SandboxError", "{failure:?}");
    assert!(failure.evalue.contains(name), "{failure:?}");
    derive(name, "LABEL faults=1");
    assert_eq!(bed.python("'next'").await.ok().result(), "'next'");
    docker(&["rmi", "-f", name]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_malformed_frames_costs_the_session_at_most() {
    let bed = Bed::new();
    // Frames of the session's own kinds, with contents that are none.
    let flood = "show = get_ipython().session.show\n\
        for n in range(20_000): show(0xa0 + n % 8 if n % 8 != 7 else 0xa8, bytes([n % 256]) * (n % 300))\n\
        'done'";
    assert_eq!(bed.python(flood).await.ok().result(), "'done'");
    assert_eq!(bed.python("'next'").await.ok().result(), "'next'");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_is_overwritten_ends_the_sandbox_in_words() {
    // Only without its defence can the supervisor's own channel be written to.
    let defence = "libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE";
    for garbage in ["b'\\xff' * 100_000", "os.urandom(100_000)", "b'\\x81' + bytes(4) + b'\\xff' * 4"] {
        let bed = Bed::weakened(defence, "pass");
        bed.python("kept = 1").await.ok();
        let code = format!(
            "import os, time\nfd = os.open('/proc/1/fd/1', os.O_WRONLY)\nos.write(fd, {garbage})\ntime.sleep(1000)"
        );
        let failure = bed.python(&code).await.failure().clone();
        assert!(failure.evalue.contains("channel") && failure.evalue.contains("lost"), "{failure:?}");
        afresh(&bed).await;
    }
}
