//! Files into a container and out of it.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cellblock::event::{self, Event, Failure};
use cellblock::sandbox::transfer::{Transfer, Transferred};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::Bed;

async fn up(bed: &Bed, from: &[PathBuf], to: &str, within: Option<&Path>) -> Result<Transferred, Failure> {
    let (events, mut shown) = event::channel(8);
    tokio::spawn(async move { while shown.recv().await.is_some() {} });
    let cancel = CancellationToken::new();
    bed.sandbox
        .upload(from, to, &Transfer { events: &events, cancel: &cancel, within, confirmed: within.is_none() })
        .await
}

async fn down(bed: &Bed, from: &str, to: &Path, within: Option<&Path>) -> Result<Transferred, Failure> {
    let (events, mut shown) = event::channel(8);
    tokio::spawn(async move { while shown.recv().await.is_some() {} });
    let cancel = CancellationToken::new();
    bed.sandbox
        .download(
            from,
            to,
            &Transfer { events: &events, cancel: &cancel, within, confirmed: within.is_none() },
        )
        .await
}

fn tree() -> TempDir {
    let home = TempDir::new().expect("a directory");
    let at = |name: &str| home.path().join(name);
    std::fs::create_dir_all(at("data/deep/é x")).unwrap();
    std::fs::write(at("data/a.csv"), "a").unwrap();
    std::fs::write(at("data/b.csv"), "bb").unwrap();
    std::fs::write(at("data/run.sh"), "#!/bin/sh\necho ran").unwrap();
    std::fs::set_permissions(at("data/run.sh"), PermissionsExt::from_mode(0o750)).unwrap();
    std::fs::write(at("data/deep/é x/ü"), "ü".repeat(100)).unwrap();
    std::fs::write(at("data/deep").join("n".repeat(200)), "long").unwrap();
    symlink("a.csv", at("data/link")).unwrap();
    std::fs::File::open(at("data/a.csv"))
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000))
        .unwrap();
    home
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_goes_there_and_back_as_it_was() {
    let bed = Bed::new();
    let home = tree();
    // Into memory, where the engine's own copying reaches nothing.
    let sent = up(&bed, &["data".into()], "/tmp", Some(home.path())).await.expect("sent");
    assert_eq!((sent.files, sent.skipped.len()), (5, 0), "{sent:?}");
    let ran = bed
        .sh("cd /tmp/data; cat a.csv link; stat -c '%a %Y' run.sh a.csv; ./run.sh; wc -c < 'deep/é x/ü'")
        .await;
    let out = ran.ok().out();
    assert!(out.starts_with("aa750 ") && out.contains("644 1000000000\nran\n200\n"), "{out}");
    let back = down(&bed, "/tmp/data", Path::new("copy"), Some(home.path())).await.expect("fetched");
    assert_eq!((back.files, back.skipped.len()), (5, 0), "{back:?}");
    let at = |name: &str| home.path().join("copy").join(name);
    assert_eq!(std::fs::read_to_string(at("deep/é x/ü")).unwrap(), "ü".repeat(100));
    assert_eq!(std::fs::read_to_string(at("deep").join("n".repeat(200))).unwrap(), "long");
    assert_eq!(std::fs::read_link(at("link")).unwrap(), Path::new("a.csv"));
    assert_eq!(at("run.sh").metadata().unwrap().permissions().mode() & 0o777, 0o750);
    assert_eq!(at("a.csv").metadata().unwrap().mtime(), 1_000_000_000);
    // Into a folder that is there, under its own name.
    down(&bed, "/tmp/data/", Path::new("copy"), Some(home.path())).await.expect("fetched");
    assert!(at("data/a.csv").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn patterns_new_names_and_what_is_missing() {
    let bed = Bed::new();
    let home = tree();
    let within = Some(home.path());
    let sent = up(&bed, &["data/*.csv".into(), "data/run.sh".into()], "in", within).await.expect("sent");
    assert_eq!(sent.files, 3);
    assert_eq!(bed.sh("cd in; ls").await.ok().out(), "a.csv\nb.csv\nrun.sh\n");
    up(&bed, &["data/a.csv".into()], "in/new.csv", within).await.expect("sent");
    assert_eq!(bed.sh("cat /workspace/in/new.csv").await.ok().out(), "a");
    let got = down(&bed, "in/*.csv", Path::new("out/"), within).await.expect("fetched");
    assert_eq!((got.files, got.bytes), (3, 4));
    assert_eq!(std::fs::read_to_string(home.path().join("out/b.csv")).unwrap(), "bb");
    let failure = down(&bed, "in/*.csv", Path::new("single"), within).await.expect_err("one name for three");
    assert!(failure.evalue.contains("must be a folder"), "{failure:?}");
    let failure = down(&bed, "in/none*", Path::new("x"), within).await.expect_err("nothing");
    assert!(failure.evalue.contains("/workspace/in/none*"), "{failure:?}");
    let failure = up(&bed, &["data/none".into()], "in", within).await.expect_err("nothing");
    assert!(failure.evalue.contains("data/none"), "{failure:?}");
    let sent = up(&bed, &["data/a.csv".into()], "/usr/lib/x", within).await;
    let told = format!("{sent:?}");
    assert!(told.contains("Read-only") || told.contains("Permission"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_side_leaves_the_directory_by_name_or_by_link() {
    let bed = Bed::new();
    let home = tree();
    let other = TempDir::new().unwrap();
    std::fs::write(other.path().join("secret"), "secret").unwrap();
    symlink(other.path(), home.path().join("away")).unwrap();
    symlink(other.path().join("secret"), home.path().join("key")).unwrap();
    let within = Some(home.path());
    for path in ["../x", "/etc/passwd", "away/secret"] {
        assert!(up(&bed, &[path.into()], "in/", within).await.is_err(), "{path}");
        assert!(down(&bed, "/etc/hostname", Path::new(path), within).await.is_err(), "{path}");
    }
    // A link goes as a link, and nothing of what it leads to.
    up(&bed, &["key".into()], "in/", within).await.expect("sent");
    assert!(!bed.sh("cat in/key 2>&1").await.out().contains("secret\n"));
    assert!(down(&bed, "/etc/hostname", Path::new("key"), within).await.is_err());
    assert_eq!(std::fs::read_to_string(other.path().join("secret")).unwrap(), "secret");
    // Once the user has confirmed it, the path is taken as it is.
    let confirmed = home.path().join("away/secret");
    up(&bed, &[confirmed], "in/", None).await.expect("sent");
    assert_eq!(bed.sh("cat in/secret").await.out(), "secret");
}

/// Puts a program in the place of the container's own packing: whatever it writes is the archive.
async fn hostile(bed: &Bed, archive: &str) {
    // The guest can't replace the program, but it can kill it and write to its pipe: they share a user.
    let code = format!(
        "import glob, os, signal, threading, time\n\
         def attack():\n\
         \x20   while True:\n\
         \x20       for path in glob.glob('/proc/[0-9]*/cmdline'):\n\
         \x20           pid = int(path.split('/')[2])\n\
         \x20           try:\n\
         \x20               if b'\"pack\"' not in open(path, 'rb').read() or pid == os.getpid(): continue\n\
         \x20               os.kill(pid, signal.SIGSTOP)\n\
         \x20               pipe = os.open(f'/proc/{{pid}}/fd/1', os.O_WRONLY)\n\
         \x20               {archive}\n\
         \x20               os.close(pipe)\n\
         \x20               os.kill(pid, signal.SIGKILL)\n\
         \x20           except (OSError, ValueError): pass\n\
         \x20       time.sleep(.001)\n\
         threading.Thread(target=attack, daemon=True).start()"
    );
    bed.python(&code).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn code_that_takes_over_the_packing_reaches_nothing_outside() {
    let bed = Bed::new();
    let home = TempDir::new().unwrap();
    bed.sh("head -c 50000000 /dev/zero > /tmp/large").await.ok();
    let archive = "import io, tarfile\n\
        \x20               out = io.BytesIO(); tar = tarfile.open(fileobj=out, mode='w')\n\
        \x20               for name in ('../up', '/tmp/cellblock-abs', 'fine'): tar.addfile(tarfile.TarInfo(name))\n\
        \x20               tar.close(); os.write(pipe, out.getvalue())";
    hostile(&bed, archive).await;
    let within = home.path().join("in");
    std::fs::create_dir(&within).unwrap();
    for _ in 0..5 {
        let _ = down(&bed, "/tmp/large", Path::new("."), Some(&within)).await;
    }
    assert!(!home.path().join("up").exists() && !Path::new("/tmp/cellblock-abs").exists());
    assert_eq!(bed.python("'still there'").await.ok().result(), "'still there'");
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_and_silent_archives_are_stopped_by_an_interrupt_and_the_session_goes_on() {
    let bed = Bed::new();
    let home = TempDir::new().unwrap();
    bed.python("kept = 1").await.ok();
    bed.sh("truncate -s 1000000000 /tmp/sparse; mkfifo /tmp/pipe").await.ok();
    let (events, mut shown) = event::channel(8);
    let cancel = CancellationToken::new();
    let around = Transfer { events: &events, cancel: &cancel, within: Some(home.path()), confirmed: true };
    let stopping = cancel.clone();
    tokio::spawn(async move {
        // Once there is progress.
        while let Some(event) = shown.recv().await {
            if matches!(&event, Event::Notice(n) if n.text.contains("MB of")) {
                stopping.cancel();
            }
        }
    });
    let failure = bed.sandbox.download("/tmp/sparse", Path::new("."), &around).await;
    if let Err(failure) = failure {
        assert_eq!(failure.ename, "KeyboardInterrupt", "{failure:?}");
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "nothing half-written stays");
    }
    // A program that is stopped says nothing more.
    hostile(&bed, "time.sleep(1000)").await;
    let cancel = CancellationToken::new();
    let around = Transfer { cancel: &cancel, ..around };
    let begun = Instant::now();
    let (result, ()) = tokio::join!(bed.sandbox.download("/tmp/sparse", Path::new("."), &around), async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        cancel.cancel();
    });
    assert!(result.is_err() && begun.elapsed() < Duration::from_secs(30));
    assert_eq!(bed.python("kept").await.ok().result(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_files_pass_without_piling_up() {
    let bed = Bed::new();
    let home = TempDir::new().unwrap();
    let size = 300_u64 << 20;
    std::fs::File::create(home.path().join("large")).unwrap().set_len(size).unwrap();
    let sent = up(&bed, &["large".into()], "/workspace/large", Some(home.path())).await.expect("sent");
    assert_eq!(sent.bytes, size);
    let got = down(&bed, "large", Path::new("back"), Some(home.path())).await.expect("fetched");
    assert_eq!((got.bytes, home.path().join("back").metadata().unwrap().len()), (size, size));
    let ran = bed.sh("cut -d' ' -f2 /proc/1/statm").await;
    let pages: u64 = ran.ok().out().trim().parse().expect("pages");
    assert!(pages < 15_000, "the supervisor holds {pages} pages");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_copies_into_a_running_kernels_container_and_out_of_it() {
    let bed = Bed::new();
    let home = tree();
    bed.python("1").await.ok();
    let kernel = bed.label.split_once('=').expect("a label").1.to_owned();
    let cp = |source: &str, destination: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_cellblock"))
            .args(["cp", "--kernel", &kernel, source, destination])
            .current_dir(home.path())
            .output()
            .expect("the command");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, told) = cp("data", ":/tmp/there");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("copied 5 files"), "{told}");
    // What copies is of another group than the code, which so can't trace it.
    let ran = bed.sh("[ $(stat -c %g /tmp/there/run.sh) != $(id -g) ] && echo apart").await;
    assert_eq!(ran.ok().out(), "apart\n");
    let ran = bed.sh("stat -c '%U %a' /tmp/there/run.sh; /tmp/there/run.sh; id -un").await;
    assert!(ran.ok().out().ends_with("750\nran\ncell\n") || ran.out().contains("750\nran\n"), "{ran:?}");
    let (code, told) = cp("python:/tmp/there/*.csv", ".");
    assert_eq!(
        (code, std::fs::read_to_string(home.path().join("b.csv")).unwrap().as_str()),
        (Some(0), "bb"),
        "{told}"
    );
    let (code, told) = cp(":/tmp/none", ".");
    assert!(code == Some(1) && told.contains("/tmp/none"), "{told}");
    let (code, told) = cp("other:/tmp/x", ".");
    assert!(code == Some(1) && told.contains("python") && told.contains(&kernel[..8]), "{told}");
    // What leads out is left out, and says so.
    bed.sh("mkdir /tmp/bad; ln -s /etc/passwd /tmp/bad/link; printf x > /tmp/bad/ok").await.ok();
    let (code, told) = cp(":/tmp/bad", "got");
    assert!(code == Some(1) && told.contains("leads out") && home.path().join("got/ok").exists(), "{told}");
}
