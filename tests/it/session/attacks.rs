//! Guest code against the supervisor. Each attack is shown to work when its defence is taken away.

use cellblock::sandbox::Run;

use super::{Around, Bed};

const FORGE: &str = "import os, struct\n\
    try:\n\
    \x20   fd = os.open('/proc/1/fd/1', os.O_WRONLY)\n\
    \x20   os.write(fd, struct.pack('<BII', 0x81, 0, 7) + b'forged\\n')\n\
    except OSError as e:\n\
    \x20   print('refused')";

const PEEK: &str = "try:\n\
    \x20   open('/proc/1/environ', 'rb').read()\n\
    \x20   print('seen')\n\
    except OSError as e:\n\
    \x20   print('refused')";

const UNDEFENDED: (&str, &str) = ("libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE", "pass");

#[tokio::test(flavor = "multi_thread")]
async fn frames_can_not_be_forged_through_the_supervisors_descriptors() {
    let bed = Bed::new();
    assert_eq!(bed.python(FORGE).await.ok().out(), "refused\n");
    let ran =
        bed.sh("for fd in 0 1 2; do echo x > /proc/1/fd/$fd && echo opened; done 2>/dev/null; true").await;
    assert_eq!(ran.ok().out(), "");
    assert_eq!(bed.python(PEEK).await.ok().out(), "refused\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_defence_frames_are_forged_and_memory_is_seen() {
    let bed = Bed::weakened(UNDEFENDED.0, UNDEFENDED.1);
    assert_eq!(bed.python(FORGE).await.ok().out(), "forged\n");
    assert_eq!(bed.python(PEEK).await.ok().out(), "seen\n");
}

const TRACE: &str = "import ctypes\n\
    libc = ctypes.CDLL(None, use_errno=True)\n\
    libc.ptrace(0x4206, 1, None, None)";

#[tokio::test(flavor = "multi_thread")]
async fn the_supervisor_can_not_be_traced() {
    let bed = Bed::new();
    assert_eq!(bed.python(TRACE).await.ok().result(), "-1");
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if scope.trim().is_empty() || scope.trim() == "0" {
        let bed = Bed::weakened(UNDEFENDED.0, UNDEFENDED.1);
        assert_eq!(bed.python(TRACE).await.ok().result(), "0");
    }
}

const KILL: &str = "import os, signal\n\
    for number in set(signal.Signals):\n\
    \x20   os.kill(os.getppid(), number)\n\
    import time; time.sleep(.2)\n\
    'alive'";

#[tokio::test(flavor = "multi_thread")]
async fn the_supervisor_survives_every_signal() {
    let bed = Bed::new();
    assert_eq!(bed.python(KILL).await.ok().result(), "'alive'");
    let ran = bed.sh("kill -9 1; kill -STOP 1; kill -INT 1; echo alive").await;
    assert_eq!(ran.ok().out(), "alive\n");
    bed.python("import os\nos.kill(-1, 9)").await.failure();
    assert_eq!(bed.python("'next'").await.ok().result(), "'next'");
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_another_init_it_would_not_survive() {
    let bed = Bed::behind_init();
    let failure = bed.python(KILL).await.failure().clone();
    assert_eq!(failure.ename, "SandboxError", "{failure:?}");
    let guarded = Bed::behind_init_guarded();
    let failure = guarded.python("1").await.failure().clone();
    assert!(failure.evalue.contains("PID 1"), "and so nothing is run there: {failure:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_in_the_sessions_own_channel_ends_the_session_only() {
    let bed = Bed::new();
    for bytes in [
        "b'\\xff' * 64",
        "struct.pack('<BI', 0xa0, 1 << 30)",
        "struct.pack('<BI', 0x83, 2) + b'{}'",
        "struct.pack('<BI', 0x80, 2) + b'{}'",
    ] {
        // The channel is the one pipe that the session writes besides 1 and 2.
        let code = format!(
            "import fcntl, os, struct, time\n\
             for fd in range(3, 1000):\n\
             \x20   try:\n\
             \x20       if os.readlink(f'/proc/self/fd/{{fd}}').startswith('pipe:') and fcntl.fcntl(fd, fcntl.F_GETFL) & 1:\n\
             \x20           os.write(fd, {bytes})\n\
             \x20   except OSError: pass\n\
             time.sleep(1000)"
        );
        let failure = bed.python(&code).await.failure().clone();
        assert_eq!(failure.ename, "SessionLost", "{bytes}: {failure:?}");
        assert_eq!(bed.python("'next'").await.ok().result(), "'next'", "after {bytes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_of_the_sessions_kinds_with_hostile_contents_are_data() {
    let bed = Bed::new();
    let code = "show = get_ipython().session.show\n\
        show(0xa2, b'{'); show(0xa2, b'[' * 100_000); show(0xa4, b'{\"ename\": 3}'); show(0xa8, b'{}')\n\
        show(0xa6, b'{\"prompt\": \"forged?\", \"seq\": 99}'); show(0xae, b''); show(0xae, b'\\x83{}')\n\
        show(0xa2, b'{\"data\": {\"text/plain\": \"fine\"}, \"display_id\": \"host:x\", \"update\": true}')\n\
        'done'";
    let ran = bed.run(Run::new("python", code), Around::default()).await;
    assert_eq!(ran.ok().result(), "'done'");
    assert!(ran.warnings().contains("left out"));
    let ids: Vec<_> = ran
        .events
        .iter()
        .filter_map(|event| match event {
            cellblock::event::Event::UpdateDisplay { display_id, .. } => Some(display_id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["guest:host:x"], "the host's own displays are out of reach");
}

/// Modules that the session imports while it starts or puts its first error into words.
const SHADOWS: [&str; 9] = [
    "json",
    "types",
    "asyncio",
    "random",
    "IPython",
    "pygments",
    "matplotlib_inline",
    "sitecustomize",
    "homemade",
];

fn with_shadows(bed: Bed) -> Bed {
    let workspace = bed.directory.path().join("workspace");
    std::fs::create_dir(&workspace).expect("a workspace");
    for name in SHADOWS {
        let text = format!("open('/tmp/ran', 'a').write('{name} ')\nmine = 1\n");
        std::fs::write(workspace.join(format!("{name}.py")), text).expect("a file");
    }
    bed
}

#[tokio::test(flavor = "multi_thread")]
async fn files_in_the_workspace_run_only_when_a_cell_imports_them() {
    let bed = with_shadows(Bed::new());
    bed.sandbox.warm();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(bed.sh("cat /tmp/ran 2>/dev/null || echo nothing").await.ok().out(), "nothing\n");
    assert_eq!(bed.python("1 + 1").await.ok().result(), "2");
    // The user's own modules do go first, as in any Python.
    assert_eq!(bed.python("import homemade, sys; sys.path[0], homemade.mine").await.ok().result(), "('', 1)");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_defence_files_in_the_workspace_run_as_the_session_starts() {
    let defence = "\"sys.path[:]=[p for p in sys.path if p]\\n\"";
    let bed = with_shadows(Bed::weakened(defence, "\"\\n\""));
    assert!(bed.sh("sleep 1; cat /tmp/ran").await.ok().out().starts_with("json "));
}

const HOSTILE_REPLY: &str = "evil = {'text/html': '<b onclick=\"alert(1)\">b</b>', 'application/javascript': 'x'}\n\
    get_ipython().payload_manager.write_payload({'source': 'page', 'data': evil, 'start': 0})\n\
    class Evil:\n\
    \x20   def _repr_html_(self): return '<b onclick=\"alert(1)\">b</b>'";

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_into_the_reply_is_sanitised_too() {
    let bed = Bed::new();
    let mut run = Run::new("python", HOSTILE_REPLY);
    run.user_expressions.insert("a".to_owned(), "Evil()".into());
    let ran = bed.run(run, Around::default()).await;
    assert_eq!(ran.end.payload[0]["data"], serde_json::json!({ "text/html": "<b>b</b>" }));
    assert_eq!(ran.end.user_expressions["a"]["data"]["text/html"], "<b>b</b>");
}
