//! The limit on what a run may write to the disk: it bites, and without it the same code fills on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use cellblock::sandbox::Run;

use crate::session::{Around, Bed};

const LIMIT: u64 = 32 << 20;

fn limited() -> Bed {
    Bed::defined(|definition| definition.disk = Some(LIMIT))
}

/// Fills a directory with files of 8 MB until 192 MB are there, slowly enough to be stopped.
fn fill(directory: &str) -> String {
    format!(
        "import os, time\nfor n in range(24):\n with open(f'{directory}/fill{{n}}', 'wb') as f: f.write(os.urandom(8 << 20))\n time.sleep(0.25)\nprint('filled')"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_fills_the_disk_is_stopped() {
    let bed = limited();
    for directory in ["/workspace", "/session"] {
        let ran = bed.python(&fill(directory)).await;
        let failure = ran.failure();
        assert_eq!(failure.ename, "DiskFull", "{failure:?}");
        assert!(failure.evalue.starts_with("disk full: ") && failure.evalue.contains("32 MB"), "{failure:?}");
        assert!(!ran.out().contains("filled"), "{ran:?}");
        // The next run counts from here.
        bed.python("print('fine')").await.ok();
    }
    let ran =
        bed.sh("for n in 1 2 3 4 5 6 7 8 9; do head -c 8000000 /dev/urandom > more$n; sleep 0.5; done").await;
    assert_eq!(ran.failure().ename, "DiskFull");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_limit_the_same_code_fills_on() {
    let bed = Bed::new();
    let ran = bed.python(&fill("/workspace")).await;
    assert!(ran.ok().out().contains("filled"));
    bed.python("import os\nfor n in range(24): os.remove(f'/workspace/fill{n}')").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_over_at_once_fails_all_the_same() {
    let bed = limited();
    let ran = bed.python("open('big', 'wb').write(__import__('os').urandom(64 << 20)); 1").await;
    assert_eq!(ran.failure().ename, "DiskFull");
    assert!(ran.failure().evalue.contains("64 MB"), "{:?}", ran.failure());
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_links_and_what_was_there_do_not_count() {
    let bed = limited();
    let workspace = bed.directory.path().join("workspace");
    fs::create_dir_all(&workspace).unwrap();
    fs::write(workspace.join("data"), vec![1; 64 << 20]).unwrap();
    fs::set_permissions(&workspace, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let code = "import os, time\n\
                f = open('holes', 'wb'); f.truncate(900 << 20); f.close()\n\
                open('one', 'wb').write(os.urandom(10 << 20))\n\
                for n in range(20): os.link('one', f'link{n}')\n\
                os.symlink('/usr', 'link'); os.symlink('/', 'root')\n\
                time.sleep(2.5)";
    bed.python(code).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_hidden_by_depth_by_closing_or_by_tiny_files() {
    let bed = limited();
    let deep = "import os\nfor n in range(150):\n os.mkdir('d'); os.chdir('d')\nopen('x', 'w').write('x')";
    let ran = bed.run(Run::new("python", format!("{deep}\nos.chdir('/workspace')")), Around::default()).await;
    assert_eq!(ran.failure().ename, "DiskFull");
    assert!(ran.failure().evalue.contains("too deep"), "{:?}", ran.failure());
    let ran = bed.python("1").await;
    assert_eq!(ran.failure().ename, "DiskFull", "they are still there");

    let bed = limited();
    let closed = "import os\nos.mkdir('closed')\nopen('closed/big', 'wb').write(os.urandom(64 << 20))\nos.chmod('closed', 0)";
    assert_eq!(bed.python(closed).await.failure().ename, "DiskFull");
    let tiny = Bed::defined(|definition| definition.disk = Some(2 << 20));
    let ran = tiny.python("for n in range(20_000): open(f'{n}', 'w').close()").await;
    assert_eq!(ran.failure().ename, "DiskFull");
}
