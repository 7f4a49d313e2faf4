//! Interrupts and timeouts: everything ends soon, what was shown stays, and what was lost is said.

use std::sync::Arc;
use std::time::Duration;

use cellblock::event::{Ask, AskError, Question};
use cellblock::sandbox::{Run, Tighter};
use futures_util::future::BoxFuture;

use super::{Answers, Around, Bed};

fn at_go() -> Around {
    Around { cancel_at: Some("go"), ..Around::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_python_and_keeps_its_variables() {
    let bed = Bed::new();
    bed.python("kept = 'kept'\nimport time, asyncio, subprocess").await.ok();
    for code in [
        "print('go')\nwhile True: pass",
        "print('go')\ntime.sleep(1000)",
        "print('go')\nawait asyncio.sleep(1000)",
        "print('go')\nsubprocess.run(['sleep', '1000'])",
        "!echo go; sleep 1000",
        "%%bash\necho go\nsleep 1000",
        "while True: print('go' * 100)",
    ] {
        let ran = bed.run(Run::new("python", code), at_go()).await;
        assert!(ran.out().contains("go"), "{code}: {ran:?}");
        if !code.starts_with("%%bash") {
            assert_eq!(ran.failure().ename, "KeyboardInterrupt", "{code}");
        }
        assert_eq!(bed.python("kept").await.ok().result(), "'kept'", "after {code}");
    }
    let ran = bed.python("print('done')").await;
    assert_eq!(ran.ok().out(), "done\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_ends_a_shell_and_its_children() {
    let bed = Bed::new();
    for code in ["echo go; sleep 1000", "trap '' INT TERM; echo go; sleep 1000; echo survived; sleep 1000"] {
        let ran = bed.run(Run::new("sh", code), at_go()).await;
        assert_eq!(
            (ran.failure().ename.as_str(), ran.out().as_str()),
            ("KeyboardInterrupt", "go\n"),
            "{code}"
        );
        // It is the signal's, as docs/magics.md says of the log of executions.
        assert!(ran.end.exit_code.is_some_and(|code| code > 128), "{ran:?}");
    }
    assert!(!bed.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").await.out().contains("sleep 1000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pending_question_is_interrupted() {
    let bed = Bed::new();
    bed.python("kept = 1").await.ok();
    let ask = Answers::new([]);
    let plan = Around { ask, cancel_after: Some(Duration::from_millis(500)), ..Around::default() };
    let ran = bed.run(Run::new("python", "input('anybody?')"), plan).await;
    assert_eq!(ran.failure().ename, "KeyboardInterrupt");
    let plan = Around { ask: Answers::new([Ok("fresh")]), ..Around::default() };
    assert_eq!(bed.run(Run::new("python", "input(), kept"), plan).await.ok().result(), "('fresh', 1)");
}

#[tokio::test(flavor = "multi_thread")]
async fn python_that_ignores_the_interrupt_is_killed_and_its_loss_is_said() {
    let bed = Bed::new();
    let code =
        "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('go')\ntime.sleep(1000)";
    let ran = bed.run(Run::new("python", code), at_go()).await;
    let failure = ran.failure();
    assert_eq!(failure.ename, "KeyboardInterrupt");
    assert!(failure.evalue.contains("variables") && failure.evalue.contains("lost"), "{failure:?}");
    assert_eq!(bed.python("1 + 1").await.ok().result(), "2");
    let code = "print('go')\nwhile True:\n    try:\n        time.sleep(1000)\n    except KeyboardInterrupt:\n        pass";
    let ran = bed.run(Run::new("python", &*format!("import time\n{code}")), at_go()).await;
    assert!(ran.failure().evalue.contains("lost"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_between_cells_changes_nothing() {
    let bed = Bed::new();
    let code = "import os, signal, threading, time\nx = 1\ndef late():\n    time.sleep(.2)\n    \
                os.killpg(os.getpgrp(), signal.SIGINT)\n    open('/tmp/sent', 'w').close()\n\
                threading.Thread(target=late).start()";
    bed.python(code).await.ok();
    bed.sh("until [ -e /tmp/sent ]; do sleep .05; done").await.ok();
    assert_eq!(bed.python("x").await.ok().result(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_stops_the_code_and_says_so() {
    let bed = Bed::new();
    let limited = |language: &str, code: &str| Run { tighter: seconds(2), ..Run::new(language, code) };
    bed.python("kept = 1").await.ok();
    let ran =
        bed.run(limited("python", "print('begun')\nimport time\ntime.sleep(1000)"), Around::default()).await;
    let failure = ran.failure();
    assert_eq!((failure.ename.as_str(), ran.out().as_str()), ("Timeout", "begun\n"));
    assert!(failure.evalue.contains("timed out after 2 s") && failure.evalue.contains("kept"), "{failure:?}");
    let told = &ran.end.transcript;
    assert!(told.contains("time.sleep(1000)") && !told.contains("cellblock worker"), "{told}");
    assert_eq!(bed.python("kept").await.ok().result(), "1");
    let ran = bed.run(limited("sh", "echo begun; sleep 1000"), Around::default()).await;
    assert_eq!((ran.failure().ename.as_str(), ran.out().as_str()), ("Timeout", "begun\n"));
}

/// Answers late.
struct Slow;

impl Ask for Slow {
    fn available(&self) -> bool {
        true
    }

    fn ask(&self, _: Question) -> BoxFuture<'_, Result<String, AskError>> {
        Box::pin(async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            Ok("late".into())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_the_user_does_not_count() {
    let bed = Bed::new();
    bed.python("1").await.ok();
    let run = Run { tighter: seconds(6), ..Run::new("python", "input()") };
    let ran = bed.run(run, Around { ask: Arc::new(Slow), ..Around::default() }).await;
    assert_eq!(ran.ok().result(), "'late'");
    assert!(ran.end.duration < Duration::from_secs(6), "{:?}", ran.end.duration);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_a_run_and_leaves_nothing() {
    let bed = Bed::new();
    bed.python("1").await.ok();
    let run = bed.python("import time\ntime.sleep(1000)");
    let (ran, ()) = tokio::join!(run, async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        bed.sandbox.shutdown().await;
    });
    assert!(ran.failure().evalue.contains("shutting down"));
    assert_eq!(bed.containers(), Vec::<String>::new());
    assert!(bed.python("1").await.failure().evalue.contains("shut down"));
}

/// No longer than this.
fn seconds(count: u64) -> Tighter {
    Tighter { timeout: Some(Duration::from_secs(count)), ..Tighter::default() }
}
