//! What a run leaves behind: shown after it, kept, and harmless whatever a hostile guest makes of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use cellblock::event::{Bundle, Event};
use cellblock::sandbox::Run;
use cellblock::sandbox::artifacts::METADATA;
use cellblock::sandbox::definition::{Place, Plan};
use serde_json::Value;
use tempfile::TempDir;

use crate::containers::{Bench, derive, docker, eventually};
use crate::session::{Around, Bed, Ran};

/// What was shown, in order.
fn displays(ran: &Ran) -> Vec<&Bundle> {
    let bundles = ran.events.iter().filter_map(|event| match event {
        Event::Display { bundle, .. } => Some(bundle),
        _ => None,
    });
    bundles.collect()
}

/// The list of artifacts, when one was shown.
fn list(ran: &Ran) -> Option<&Bundle> {
    displays(ran).into_iter().find(|bundle| bundle.metadata().contains_key(METADATA))
}

/// What the list's metadata says.
fn entries(ran: &Ran) -> Vec<Value> {
    let list = list(ran).unwrap_or_else(|| panic!("nothing is listed: {ran:?}"));
    list.metadata()[METADATA]["artifacts"].as_array().unwrap().clone()
}

fn names(ran: &Ran) -> Vec<String> {
    let name = |entry: &Value| entry["container"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    entries(ran).iter().map(name).collect()
}

fn html(bundle: &Bundle) -> &str {
    bundle.data()["text/html"].as_str().unwrap()
}

/// A picture of one pixel, in Python.
const PNG: &str = "__import__('base64').b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')";

/// The only folder in a directory.
fn only(directory: impl AsRef<Path>) -> PathBuf {
    let found: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_shown_after_the_run_that_wrote_them() {
    let bed = Bed::new();
    assert!(displays(bed.python("print(1)").await.ok()).is_empty());
    let code = format!(
        "import os\n\
         os.chdir('/session/artifacts')\n\
         open('plot.png', 'wb').write({PNG})\n\
         open('data.csv', 'w').write('name,value\\n' + 'a,1\\n' * 20)\n\
         open('notes.txt', 'w').write('line\\n' * 30)\n\
         open('model.bin', 'wb').write(bytes(range(256)) * 8)\n\
         os.makedirs('deep/er'); open('deep/er/page.html', 'w').write('<b>hello</b><script>alert(1)</script>')\n\
         print('done')"
    );
    let ran = bed.python(&code).await;
    ran.ok();
    assert_eq!(names(&ran), ["data.csv", "page.html", "model.bin", "notes.txt", "plot.png"]);
    let session = only(bed.directory.path().join("sessions"));
    let name = session.file_name().unwrap().to_str().unwrap();
    let entry = &entries(&ran)[4];
    assert_eq!(entry["container"], "/session/artifacts/plot.png");
    assert_eq!(entry["host"], format!("sessions/{name}/artifacts/plot.png"));
    assert_eq!(entry["mime"], "image/png");
    assert_eq!(entry["bytes"], 70);
    assert!(bed.directory.path().join(entry["host"].as_str().unwrap()).is_file());
    let shown = displays(&ran);
    assert!(html(shown[0]).contains(&format!("href=\"sessions/{name}/artifacts/plot.png\"")));
    assert!(
        shown[0].data()["text/plain"].as_str().unwrap().contains("/session/artifacts/model.bin -> sessions/")
    );
    assert!(shown.iter().any(|bundle| bundle.data().contains_key("image/png")));
    let all: String =
        shown.iter().filter_map(|b| b.data().get("text/html")).filter_map(Value::as_str).collect();
    assert!(
        all.contains("20 rows, 2 columns") && all.contains(">a</td>") && all.contains("<td>1</td>"),
        "{all}"
    );
    assert!(all.contains("notes.txt (its beginning)"), "{all}");
    assert!(all.contains("sandbox=\"allow-scripts\"") && !all.contains("<script>alert"), "{all}");
    // After the text, and only once.
    let place = |wanted: &dyn Fn(&Event) -> bool| ran.events.iter().position(wanted).unwrap();
    let text = place(&|event| matches!(event, Event::Stream { text, .. } if text.contains("done")));
    assert!(text < place(&|event| matches!(event, Event::Display { .. })));
    assert!(list(bed.python("print(1)").await.ok()).is_none());

    // A directory that was there is watched like any other; so is a change of what was there, and a shell's work.
    let ran = bed
        .sh("cd /session/artifacts && echo x >> notes.txt && echo y > deep/er/new && ln model.bin link")
        .await;
    assert_eq!(names(ran.ok()), ["new", "link", "notes.txt"]);
    let ran =
        bed.sh("cd /session && rm -r artifacts && mkdir artifacts && echo y > artifacts/again.txt").await;
    assert_eq!(names(ran.ok()), ["again.txt"]);
    let ran = bed.sh("echo z > /session/artifacts/after.txt; echo secret > /session/elsewhere").await;
    assert_eq!(names(ran.ok()), ["after.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn they_come_before_the_error_of_a_run_that_fails_or_is_stopped() {
    let bed = Bed::new();
    let write = "open('/session/artifacts/a.txt', 'w').write('x')";
    for code in [format!("{write}; 1/0"), format!("{write}; raise SystemExit(3)")] {
        let ran = bed.python(&code).await;
        assert_eq!(names(&ran), ["a.txt"], "{code}");
    }
    let ran = bed.python(&format!("{write}; 1/0")).await;
    assert_eq!(ran.failure().ename, "ZeroDivisionError");
    assert!(matches!(ran.events.last(), Some(Event::Error(_))), "{ran:?}");
    let around = Around { cancel_at: Some("go"), ..Around::default() };
    let run = Run::new("sh", "echo x > /session/artifacts/b.txt; echo go; sleep 600");
    assert_eq!(names(&bed.run(run, around).await), ["b.txt"]);
    let ran = bed.python(&format!("{write}; import os; os.kill(os.getpid(), 9)")).await;
    assert_eq!(ran.failure().ename, "SessionLost");
    assert_eq!(names(&ran), ["a.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_background_work_writes_between_runs_is_not_the_next_ones() {
    let bed = Bed::new();
    bed.python("import threading, time\nthreading.Timer(0.3, lambda: open('/session/artifacts/late', 'w').close()).start()")
        .await
        .ok();
    let late = only(bed.directory.path().join("sessions")).join("artifacts/late");
    eventually("the file", || late.exists()).await;
    let ran = bed.python("open('/session/artifacts/mine', 'w').write('x')").await;
    assert_eq!(names(&ran), ["mine"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_the_workspace_are_shown_where_that_is_wanted() {
    let write = "import os\nos.makedirs('sub', exist_ok=True)\nfor p in ['top.txt', 'sub/in.txt', '.hidden']: open(p, 'w').write('x')";
    assert!(list(&Bed::new().python(write).await).is_none());
    let bed = Bed::with(|settings| settings.workspace_artifacts = true);
    let ran = bed.python(write).await;
    assert_eq!(names(&ran), ["in.txt", "top.txt"]);
    assert_eq!(entries(&ran)[0]["host"], "workspace/sub/in.txt");
    let ran =
        bed.python("open('sub/in.txt', 'a').write('x'); open('/session/artifacts/s', 'w').write('x')").await;
    assert_eq!(names(&ran), ["s", "in.txt"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_names_and_files_do_no_harm() {
    let bed = Bed::new();
    let foreign = TempDir::new().unwrap();
    fs::write(foreign.path().join("secret.txt"), "the secret").unwrap();
    let secret = foreign.path().join("secret.txt");
    let code = format!(
        "import os\n\
         os.chdir('/session/artifacts')\n\
         names = ['<img src=x onerror=alert(1)>.txt', 'a\\nb.txt', 'gnp\\u202egpj.exe', '$\\\\href{{javascript:x}}{{y}}$.txt',\n\
         '\"><script>x<script>.csv', '%2e%2e%2fx', 'up..\\\\x', 'x' * 250]\n\
         for name in names: open(name, 'w').write('<img src=x onerror=alert(2)>,$x$\\n1,2\\n')\n\
         open(os.fsencode('bad') + b'\\xff.txt', 'w').write('x')\n\
         os.symlink('{}', 'link.txt'); os.symlink('/etc', 'etc'); os.mkfifo('fifo')\n\
         import socket; socket.socket(socket.AF_UNIX).bind('socket')",
        secret.display()
    );
    let ran = bed.python(&code).await;
    ran.ok();
    let listed = names(&ran);
    assert_eq!(listed.len(), 9, "{listed:?}");
    assert!(
        !listed.iter().any(|name| ["link.txt", "etc", "fifo", "socket"].contains(&name.as_str())),
        "{listed:?}"
    );
    for bundle in displays(&ran) {
        let html = html(bundle);
        assert!(!html.contains("<img") && !html.contains("<script"), "{html}");
        assert!(
            !html.contains("the secret") && !html.contains('\u{202e}') && !html.contains("$x$"),
            "{html}"
        );
        assert!(!html.contains("$\\href"), "{html}");
        assert!(!html.contains("href=\"javascript") && !html.contains("/.."), "{html}");
    }
    // A directory that is a link, and one above it, lead nowhere either.
    let ran = bed
        .sh(&format!(
            "cd /session && rm -rf artifacts && ln -s {} artifacts && touch artifacts/secret.txt; true",
            foreign.path().display()
        ))
        .await;
    assert!(list(&ran).is_none(), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_files_is_bounded_and_counted() {
    let bed = Bed::new();
    let ran = bed.python("for n in range(300): open(f'/session/artifacts/{n:04}.txt', 'w').write('x')").await;
    assert_eq!(entries(ran.ok()).len(), 50);
    assert_eq!(list(&ran).unwrap().metadata()[METADATA]["more"], 250);
    assert!(displays(&ran).len() <= 13);
    // More than the system's queue of events holds: one look through the tree tells.
    let ran = bed
        .python("import os\nos.chdir('/session/artifacts')\nfor n in range(9000): open(f'b{n:05}', 'w').write('x')")
        .await;
    assert_eq!(entries(ran.ok()).len(), 50);
    let more = list(&ran).unwrap().metadata()[METADATA]["more"].as_u64().unwrap();
    assert!((8000..20_000).contains(&more), "{more}");
    assert!(names(&ran).iter().all(|name| name.starts_with('b')), "{:?}", names(&ran));
    let ran = bed.python("open('last', 'w').write('x')").await;
    assert_eq!(names(ran.ok()), ["last"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn they_count_towards_the_output_of_the_cell() {
    let write = format!("open('/session/artifacts/plot.png', 'wb').write({PNG} + bytes(100_000))");
    let shown = |ran: &Ran| displays(ran).iter().any(|bundle| bundle.data().contains_key("image/png"));
    let ran = Bed::with(|settings| settings.output = 4 << 10).python(&write).await;
    assert!(!shown(&ran) && ran.warnings().contains("left out"), "{ran:?}");
    assert!(shown(&Bed::new().python(&write).await));
}

fn ephemeral(language: &str, code: &str) -> Run {
    Run { ephemeral: true, ..Run::new(language, code) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_its_own_keeps_its_artifacts_and_nothing_else() {
    let bed = Bed::new();
    let code = "import os\nopen('/work/scratch', 'w').write('x')\nos.makedirs('/work/artifacts/sub')\n\
                open('/work/artifacts/sub/a.txt', 'w').write('kept')";
    let ran = bed.run(ephemeral("python", code), Around::default()).await;
    let entry = &entries(ran.ok())[0];
    assert_eq!(entry["container"], "/work/artifacts/sub/a.txt");
    let host = entry["host"].as_str().unwrap();
    assert!(host.starts_with("outputs/2") && host.ends_with("/sub/a.txt"), "{host}");
    assert_eq!(fs::read_to_string(bed.directory.path().join(host)).unwrap(), "kept");
    assert!(html(list(&ran).unwrap()).contains(&format!("href=\"{host}\"")));
    let nothing = bed.run(ephemeral("sh", "echo x > /work/scratch"), Around::default()).await;
    assert!(list(nothing.ok()).is_none());
    bed.sandbox.shutdown().await;
    let outputs = bed.directory.path().join("outputs");
    eventually("only what was kept is left", || !outputs.join(".pending").exists()).await;
    assert_eq!(only(outputs), bed.directory.path().join(host).parent().unwrap().parent().unwrap());
}

/// What is left of the sessions once a bed is shut down.
async fn left(code: &str, bed: Bed) -> Vec<PathBuf> {
    bed.sh(code).await.ok();
    let sessions = bed.directory.path().join("sessions");
    let session = only(sessions.clone());
    bed.sandbox.shutdown().await;
    let settled = |path: &Path| !path.join("scratch").exists();
    eventually("the folder is settled", || settled(&session)).await;
    let left = fs::read_dir(&session).into_iter().flatten().map(|entry| entry.unwrap().path());
    let left = left.collect();
    if !session.exists() {
        eventually("the empty folder is gone", || !sessions.exists()).await;
    }
    left
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_a_name_leaves_only_its_artifacts() {
    let scratch = "mkdir -p /session/scratch/a; echo x > /session/scratch/a/b; chmod 0 /session/scratch/a /session/scratch";
    assert_eq!(left(scratch, Bed::new()).await, Vec::<PathBuf>::new());
    let kept = left(&format!("{scratch}; echo x > /session/artifacts/a.txt"), Bed::new()).await;
    assert_eq!(kept.len(), 1);
    assert!(kept[0].ends_with("artifacts") && kept[0].parent().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_everything_where_the_user_wants_that() {
    let bed = Bed::settled(|pool| pool.auto_cleanup = false);
    bed.sh("echo x > /session/scratch").await.ok();
    let session = only(bed.directory.path().join("sessions"));
    bed.sandbox.shutdown().await;
    assert!(session.join("scratch").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parquet_file_is_read_in_the_container_where_that_can() {
    const READER: &str = "class C:\\n def __init__(s,v): s.v=v\\n def to_pylist(s): return s.v\\n\
        class B: columns=[C([1,2]),C(['<b>x</b>','y'])]\\n\
        class ParquetFile:\\n def __init__(s,p): open(p,'rb').read()\\n schema_arrow=type('S',(),{'names':['n','t']})\\n \
        metadata=type('M',(),{'num_rows':1234})\\n def iter_batches(s,**k): return iter([B])\\n";
    let name = "cellblock-test-parquet:1";
    let lines = format!(
        "USER root\nRUN p=$(python3 -c 'import sys; print([p for p in sys.path if p.endswith(\"packages\")][0])') && mkdir -p \
         $p/pyarrow && touch $p/pyarrow/__init__.py && printf \"{READER}\" > $p/pyarrow/parquet.py"
    );
    derive(name, &lines);
    let write = "open('/session/artifacts/t.parquet', 'wb').write(b'PAR1' + bytes(100))";
    let bed = Bed::with(|settings| settings.image = Some(name.to_owned()));
    let ran = bed.python(write).await;
    assert_eq!(entries(ran.ok())[0]["mime"], "application/vnd.apache.parquet");
    let shown: String = displays(&ran).into_iter().map(html).collect();
    assert!(shown.contains("1,234 rows, 2 columns") && shown.contains("&lt;b&gt;x&lt;/b&gt;"), "{shown}");
    assert_eq!(bed.python("40 + 2").await.result(), "42");
    let alone = bed.run(ephemeral("python", &write.replace("/session", "/work")), Around::default()).await;
    let shown: String = displays(&alone).into_iter().map(html).collect();
    assert!(shown.contains("1,234 rows"), "{shown}");
    assert!(entries(&alone)[0]["host"].as_str().unwrap().starts_with("outputs/2"), "{alone:?}");
    drop(bed);
    // Without a reader there is a link.
    let plain = Bed::new();
    let ran = plain.python(write).await;
    assert_eq!((names(&ran), displays(&ran).len()), (vec!["t.parquet".to_owned()], 1));
    docker(&["rmi", "-f", name]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_kernel_leaves_only_artifacts_too() {
    let bench = Bench::new();
    let plan = |place: Place| Plan { place, temporary: true, ..bench.plan(&["true"]) };
    for place in
        [Place::Session("kernel-0".into()), Place::Session("kernel-1".into()), Place::Run("id".into())]
    {
        bench.docker.prepare(plan(place), None).await.unwrap();
    }
    let Bench { directory, docker, .. } = bench;
    let sessions = directory.path().join("sessions");
    for file in ["kernel-0/scratch", "kernel-1/scratch", "kernel-1/artifacts/kept"] {
        fs::write(sessions.join(file), "x").unwrap();
    }
    fs::write(directory.path().join("outputs/.pending/id/artifacts/kept"), "x").unwrap();
    // The pipe to the reaper ends without a farewell.
    drop(docker);
    eventually("the folders are settled", || {
        !sessions.join("kernel-0").exists()
            && !sessions.join("kernel-1/scratch").exists()
            && !directory.path().join("outputs/.pending").exists()
    })
    .await;
    assert!(sessions.join("kernel-1/artifacts/kept").exists());
    assert!(directory.path().join("outputs/id/kept").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn under_gvisor_files_are_noticed_too() {
    let bed = Bed::with(|settings| settings.runtime = Some("runsc".into()));
    let ran = bed.python("open('/session/artifacts/a.txt', 'w').write('x')").await;
    assert_eq!(names(ran.ok()), ["a.txt"]);
    assert!(list(bed.python("1").await.ok()).is_none());
    let ran = bed.sh("mkdir /session/artifacts/sub && echo y > /session/artifacts/sub/b.txt").await;
    assert_eq!(names(ran.ok()), ["b.txt"]);
}
