//! Shell blocks.

use cellblock::sandbox::Run;

use super::{Around, Bed};
use crate::containers::{derive, said};

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

#[tokio::test(flavor = "multi_thread")]
async fn what_a_block_defines_the_next_one_finds() {
    let bed = Bed::new();
    let define = "
x=1; export y='a b'; declare -A m=([k]=v); a=(1 $'2\\n3'); readonly fixed=7
greet() { echo \"hello $1, $x\"; }
alias shout='echo HEY'; shopt -s expand_aliases; set -o pipefail; umask 077; mkdir -p deep; cd deep";
    bed.bash(define).await.ok();
    let look = "
echo $x $y ${m[k]} ${#a[@]} $fixed $(umask) $(pwd); sh -c 'echo $y'; greet you; shout; false | true || echo piped";
    let ran = bed.bash(look).await;
    let expected = "1 a b v 2 7 0077 /workspace/deep\na b\nhello you, 1\nHEY\npiped\n";
    assert_eq!((ran.ok().out(), ran.err()), (expected.to_owned(), String::new()));
    // `sh` is the same shell, as POSIX wants it.
    let ran = bed.sh("greet posix; pwd; x=2; case $SHELLOPTS in *posix*) echo posix ;; esac; cd ..").await;
    assert_eq!(ran.ok().out(), "hello posix, 1\n/workspace/deep\nposix\n");
    let ran = bed.bash("greet again; unset x y; case $SHELLOPTS in *posix*) echo posix ;; esac").await;
    assert_eq!(ran.ok().out(), "hello again, 2\n");
    assert_eq!(
        bed.sh("echo ${x-none} ${y-none}; pwd; fixed=8; echo never").await.out(),
        "none none\n/workspace\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn however_a_block_ends_the_next_one_finds_the_shell_in_order() {
    let bed = Bed::new();
    for (code, exit, x) in [
        ("x=1; exit 3", 3, "1"),
        ("set -e; x=2; false; x=never", 1, "2"),
        ("set +e; x=3; return 4", 4, "3"),
        ("set -u; x=4; echo $nothing; x=never", 1, "4"),
        ("set +u; x=5; if then", 2, "4"),
        ("x=6; trap 'x=never; echo bye' EXIT", 0, "6"),
        ("x=7; exec true", 0, "6"),
        ("x=8; kill -9 $$", 137, "6"),
        ("x=9; (exit 5)", 5, "9"),
        ("IFS=9; set -f; x=10", 0, "10"),
        ("x=never; set -n", 0, "10"),
        ("cd() { false; }; declare() { false; }; unset() { false; }; source() { exit 9; }; x=11", 0, "11"),
        ("shopt -s nocasematch extdebug; set -xv; x=12", 0, "12"),
    ] {
        let ran = bed.bash(code).await;
        assert_eq!(ran.end.exit_code, Some(exit), "{code}: {ran:?}");
        let ran = bed.bash("set +xv; echo \"$x\"").await;
        assert_eq!(ran.ok().out(), format!("{x}\n"), "{code}: {ran:?}");
    }
    let ran = bed.bash("\n\necho here\nnosuch").await;
    assert!(ran.err().contains("cell.bash: line 4: nosuch: command not found"), "{}", ran.err());
    let ran = bed.bash("\nif true\nthen").await;
    assert!(ran.err().contains("cell.bash: line 4: syntax error"), "{}", ran.err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_block_keeps_what_it_had_done() {
    let bed = Bed::new();
    bed.sh("x=before").await.ok();
    for endless in ["while :; do :; done", "sleep 1000", "cat /dev/zero | wc -c"] {
        // Said once the endless command runs: before it, the interrupt would meet the shell itself.
        let code = format!("x='{endless}'; {{ sleep 0.3; echo go; }} & {endless}");
        let around = Around { cancel_at: Some("go"), ..Around::default() };
        assert_eq!(bed.run(Run::new("bash", code), around).await.failure().ename, "KeyboardInterrupt");
        assert_eq!(bed.sh("echo \"$x\"").await.ok().out(), format!("{endless}\n"));
    }
    // Nothing but a kill ends this one: then the state is that of the block before.
    let code = "x=lost; trap '' INT TERM; echo go; while :; do sleep 1; done";
    let around = Around { cancel_at: Some("go"), ..Around::default() };
    bed.run(Run::new("sh", code), around).await.failure();
    assert_eq!(bed.sh("echo \"$x\"").await.ok().out(), "cat /dev/zero | wc -c\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_spoilt_or_too_large_is_thrown_away_and_said() {
    let bed = Bed::new();
    for spoilt in ["exit 5", "if", "kill -INT $$; sleep 9", "x=1"] {
        let write = format!("printf \"%s\\n\" \"#0999999999\" \"{spoilt}\"");
        bed.sh(&format!("trap '{write} > /tmp/.cellblock-shell' EXIT")).await.ok();
        let ran = bed.sh("echo hi").await;
        assert!(
            ran.failure().ename == "ExitCode" && ran.err().contains("was thrown away"),
            "{spoilt}: {ran:?}"
        );
        assert_eq!(bed.sh("echo hi").await.ok().out(), "hi\n", "after {spoilt}");
    }
    for odd in ["mkdir", "mkfifo", "ln -s /dev/zero"] {
        for path in ["", "-2", "-lines"].map(|end| format!("/tmp/.cellblock-shell{end}")) {
            bed.sh(&format!("trap 'rm -f {path}; {odd} {path}' EXIT")).await.ok();
            assert_eq!(bed.sh(&format!("echo hi; rm -rf {path}")).await.ok().out(), "hi\n", "{odd} {path}");
        }
    }
    // One that is not whole does not count: what the block before had left does.
    bed.sh("x=older").await.ok();
    bed.sh("x=newer").await.ok();
    let half = "for f in /tmp/.cellblock-shell /tmp/.cellblock-shell-2; do \
                [ -s $f ] || printf '#%010d\\nx=half\\n' 0 > $f; done; kill -9 $$";
    bed.sh(half).await.failure();
    assert_eq!(bed.sh("cat /tmp/.cellblock-shell*; echo $x").await.ok().out().lines().last(), Some("newer"));
    bed.sh("x=small").await.ok();
    let ran = bed.sh("x=$(head -c 20000000 /dev/zero | tr '\\0' x); echo ${#x}").await;
    assert!(ran.ok().out() == "20000000\n" && ran.err().contains("are not kept"), "{ran:?}");
    assert_eq!(bed.sh("echo $x").await.ok().out(), "small\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_and_a_fresh_container_clear_the_shell() {
    let bed = Bed::new();
    let look = "echo ${x-none}; pwd";
    for spoil in [":", "trap 'rm -f /tmp/.cellblock-shell; mkdir /tmp/.cellblock-shell' EXIT"] {
        bed.sh("x=1; cd /usr").await.ok();
        assert_eq!(bed.sh(look).await.ok().out(), "1\n/usr\n");
        bed.sh(spoil).await.ok();
        bed.sandbox.reset().await;
        assert_eq!(bed.sh(look).await.ok().out(), "none\n/workspace\n");
    }
    bed.sh("x=1").await.ok();
    let alone = Run { ephemeral: true, ..Run::new("sh", format!("{look}; x=2")) };
    assert_eq!(bed.run(alone, Around::default()).await.ok().out(), "none\n/workspace\n");
    assert_eq!(bed.sh(look).await.ok().out(), "1\n/workspace\n");
    bed.remove_containers();
    bed.sh("true").await;
    assert_eq!(bed.sh(look).await.ok().out(), "none\n/workspace\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_without_bash_has_a_shell_that_keeps_nothing() {
    let tag = "cellblock-test-languages:dash";
    derive(tag, "USER root\nRUN rm -f /bin/bash /usr/bin/bash");
    let bed = Bed::with(|settings| settings.image = Some(tag.to_owned()));
    let ran = bed.sh("x=1; echo out; echo err >&2; exit 3").await;
    assert_eq!((ran.out(), ran.err(), ran.end.exit_code), ("out\n".into(), "err\n".into(), Some(3)));
    let none = bed.sh("echo ${x-none}").await.out();
    let missing = bed.bash("true").await;
    bed.sandbox.shutdown().await;
    said(&["rmi", tag]);
    assert_eq!(none, "none\n");
    assert!(missing.failure().evalue.contains("this image has no bash"), "{missing:?}");
}
