//! The session or its container dies: what was lost is said, and the next cell works.

use cellblock::event::Failure;

use super::Bed;

async fn lost(bed: &Bed, code: &str) -> Failure {
    bed.python("kept = 1").await.ok();
    let failure = bed.python(code).await.failure().clone();
    assert!(failure.evalue.contains("lost"), "{failure:?}");
    assert_eq!(bed.python("kept").await.failure().ename, "NameError", "the loss is real");
    assert_eq!(bed.python("'next'").await.ok().result(), "'next'");
    failure
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_exits_or_crashes_is_replaced() {
    let bed = Bed::new();
    let failure = lost(&bed, "print('last words', flush=True)\nimport os\nos._exit(3)").await;
    assert!(failure.ename == "SessionLost" && failure.evalue.contains("exit code 3"), "{failure:?}");
    let failure = lost(&bed, "import ctypes\nctypes.string_at(0)").await;
    assert!(failure.evalue.contains("SIGSEGV"), "{failure:?}");
    let failure = lost(&bed, "import os\nos.kill(os.getpid(), 9)").await;
    assert!(failure.evalue.contains("SIGKILL"), "{failure:?}");
    let failure = lost(&bed, "import os\nos.closerange(3, 1000)\nimport time\ntime.sleep(1000)").await;
    assert_eq!(failure.ename, "SessionLost");
    bed.sh("kill -9 -1; echo 'all but me'").await.ok();
    let ran = bed.python("2").await;
    assert!(ran.ok().warnings().contains("SIGKILL") && ran.warnings().contains("lost"), "{ran:?}");
    assert_eq!(bed.python("2").await.ok().result(), "2");
}

#[tokio::test(flavor = "multi_thread")]
async fn last_words_before_a_sudden_end_are_shown() {
    let bed = Bed::new();
    let ran = bed.python("import os\nprint('said')\nos.write(2, b'raw')\nos._exit(0)").await;
    assert_eq!((ran.out().as_str(), ran.err().as_str()), ("said\n", "raw"));
    let ran = bed.python("import ctypes\nctypes.string_at(0)").await;
    assert!(ran.err().contains("Segmentation fault") && ran.err().contains("string_at"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_dies_between_cells_is_missed_at_the_next() {
    let bed = Bed::new();
    bed.python("import os, threading\nkept = 1\nthreading.Timer(.2, os._exit, (5,)).start()").await.ok();
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let ran = bed.python("'kept' in globals()").await;
    assert_eq!(ran.ok().result(), "False");
    assert!(ran.warnings().contains("exit code 5") && ran.warnings().contains("lost"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn using_too_much_memory_is_named() {
    let bed = Bed::with(|settings| settings.memory = 300 << 20);
    let failure = lost(&bed, "x = bytearray(10**9)\nx[::4096] = b'1' * len(x[::4096])").await;
    assert_eq!(failure.ename, "OutOfMemory", "{failure:?}");
    assert!(failure.evalue.contains("300 MB"), "{failure:?}");
    let failure = bed.sh("python3 -c \"b'x' * 10**9\"").await.failure().clone();
    assert_eq!(failure.ename, "OutOfMemory", "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_removed_by_others_costs_one_cell_at_most() {
    let bed = Bed::new();
    bed.python("kept = 1").await.ok();
    bed.remove_containers();
    let mut ran = bed.python("'kept' in globals()").await;
    // On a busy machine the news may come only when the cell has begun: then that cell says so.
    if let Some(failure) = &ran.end.failure {
        assert!(failure.evalue.contains("removed") && failure.evalue.contains("lost"), "{failure:?}");
        ran = bed.python("'kept' in globals()").await;
    } else {
        assert!(ran.warnings().contains("removed") && ran.warnings().contains("lost"), "{ran:?}");
    }
    assert_eq!(ran.ok().result(), "False");
    let run = bed.python("import time\ntime.sleep(1000)");
    let (ran, ()) = tokio::join!(run, async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        bed.remove_containers();
    });
    assert!(ran.failure().evalue.contains("removed"), "{ran:?}");
    assert_eq!(bed.python("'next'").await.ok().result(), "'next'");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_can_not_start_says_what_to_do() {
    let bed = Bed::with(|settings| settings.image = Some("debian-without-python:none".into()));
    let failure = bed.python("1").await.failure().clone();
    assert_eq!(failure.ename, "SandboxError", "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_session_that_does_not_come_up_says_so_in_words_and_spoils_no_other_block() {
    // Before its streams are its own, and after.
    for place in ["Session().start()", "builtins.input = self.input"] {
        let bed = Bed::weakened(place, "raise RuntimeError(\"can't start new thread\")");
        // Until it has failed; the expression does not match itself.
        let code = "while grep -qs 'sys[.]path' /proc/[2-9]*/cmdline /proc/[1-9][0-9]*/cmdline; do :; done; echo over";
        let ran = bed.sh(code).await;
        assert_eq!((ran.ok().out().as_str(), ran.err().as_str()), ("over\n", ""), "{ran:?}");
        let ran = bed.python("1").await;
        let failure = ran.failure();
        assert!(
            failure.evalue.contains("did not start: RuntimeError: can't start new thread"),
            "{failure:?}"
        );
        assert!(!format!("{ran:?}").contains("File "), "no traceback of ours: {ran:?}");
    }
}
