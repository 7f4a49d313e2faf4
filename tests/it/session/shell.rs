//! Shell blocks.

use super::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn streams_stay_apart_and_the_exit_code_is_named() {
    let bed = Bed::new();
    let ran = bed.sh("echo out; echo err >&2; pwd").await;
    assert_eq!((ran.ok().out(), ran.err()), ("out\n/workspace\n".to_owned(), "err\n".to_owned()));
    assert_eq!(ran.end.exit_code, Some(0));
    let ran = bed.sh("echo before; exit 4").await;
    let failure = ran.failure();
    assert_eq!((failure.ename.as_str(), ran.end.exit_code), ("ExitCode", Some(4)));
    assert!(failure.evalue.contains("exit code 4"), "{failure:?}");
    assert_eq!(ran.out(), "before\n");
    let failure = bed.sh("kill -9 $$").await.failure().clone();
    assert!(failure.evalue.contains("137") && failure.evalue.contains("killed"), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_shell_leaves_in_the_background_dies_with_it() {
    let bed = Bed::new();
    bed.sh("sleep 1000 & (setsid sleep 1001 &) ; nohup sleep 1002 >/dev/null 2>&1 &").await.ok();
    let ran = bed.sh("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").await;
    assert!(!ran.ok().out().contains("sleep"), "{}", ran.out());
}

#[tokio::test(flavor = "multi_thread")]
async fn long_scripts_and_odd_characters_arrive_whole() {
    let bed = Bed::new();
    let script = format!("cat <<'EOF' | wc -c\n{}\nEOF\nprintf '%s' \"é $0\"", "y".repeat(3 << 20));
    let ran = bed.sh(&script).await;
    assert!(ran.ok().out().starts_with(&format!("{}\né ", (3 << 20) + 1)), "{}", ran.out());
}
