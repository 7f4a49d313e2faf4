//! What only a whole session has: the clock, the output's cap, no standard input.

use std::time::Duration;

use cellblock::sandbox::{Run, Tighter};

use crate::session::{Around, Bed};

#[tokio::test(flavor = "multi_thread")]
async fn time_is_limited() {
    let bed = Bed::new();
    for (language, code) in [
        ("python", "import time\ntime.sleep(3)\nprint('done')"),
        ("python", "import os\nif os.fork() == 0:\n    while True: pass\nos.wait()"),
        ("sh", "trap '' INT TERM; sleep 3; echo done"),
    ] {
        let tighter = Tighter { timeout: Some(Duration::from_secs(1)), ..Tighter::default() };
        let with = bed.run(Run { tighter, ..Run::new(language, code) }, Around::default()).await;
        assert_eq!((with.failure().ename.as_str(), with.out().as_str()), ("Timeout", ""), "{code}");
        if code.contains("done") {
            let without = bed.run(Run::new(language, code), Around::default()).await;
            assert_eq!(without.ok().out(), "done\n");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_limited() {
    let code = "import sys\nfor n in range(3000): sys.stdout.write('x' * 1023 + '\\n')";
    let bounded = Bed::with(|settings| settings.output = 1 << 20);
    let with = bounded.python(code).await;
    assert!(with.ok().out().len() <= 1 << 20, "{}", with.out().len());
    assert!(with.warnings().contains("/workspace/.cellblock/"), "{}", with.warnings());
    let without = Bed::with(|settings| settings.output = 1 << 30).python(code).await;
    assert_eq!(without.ok().out().len(), 3000 << 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_have_no_standard_input_least_of_all_the_kernels_channel() {
    let code = "readlink /proc/self/fd/0; timeout 2 cat; echo $?";
    assert_eq!(Bed::new().sh(code).await.ok().out(), "/dev/null\n0\n");
    let python = "import os, sys\nos.readlink('/proc/self/fd/0'), sys.stdin.read()";
    assert_eq!(Bed::new().python(python).await.ok().result(), "('/dev/null', '')");
    // Without the defence a program holds what the kernel writes to its supervisor: it waits for orders.
    let defence = "moves.insert(0, (os.POSIX_SPAWN_OPEN, 0, \"/dev/null\", os.O_RDONLY, 0))";
    let ran = Bed::weakened(defence, "pass").sh(code).await;
    assert!(!ran.ok().out().starts_with("/dev/null") && ran.out().ends_with("\n124\n"), "{ran:?}");
}
