//! The workspace: where it may lie, to whom its files belong, and what a hostile guest can do to the host's side.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use cellblock::sandbox::backend::BackendError;
use cellblock::sandbox::spec::Identity;
use cellblock::sandbox::workspace::{Workspace, WorkspaceError};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;

use crate::containers::Bench;

fn prepare(directory: &Path, wanted: &str) -> Result<Workspace, WorkspaceError> {
    Workspace::prepare(directory, Path::new(wanted), false)
}

#[test]
fn a_missing_workspace_is_made() {
    let home = TempDir::new().unwrap();
    for wanted in ["workspace", "a/deep/one", "a/./other"] {
        let workspace = prepare(home.path(), wanted).unwrap();
        assert!(workspace.path().is_dir());
        assert_eq!(workspace.path(), home.path().join(wanted).canonicalize().unwrap());
    }
}

#[test]
fn a_link_beside_the_notebook_can_not_choose_what_code_may_change() {
    let home = TempDir::new().unwrap();
    fs::create_dir_all(home.path().join(".git/hooks")).unwrap();
    fs::create_dir(home.path().join("data")).unwrap();
    for (link, to) in [("workspace", ".git/hooks"), ("w2", "."), ("w3", "data"), ("deep", ".git")] {
        symlink(to, home.path().join(link)).unwrap();
    }
    for wanted in ["workspace", "w2", "w3", "deep/hooks", "w2/.git/hooks"] {
        let error = prepare(home.path(), wanted).unwrap_err();
        assert!(matches!(error, WorkspaceError::Linked { .. }), "{wanted}: {error}");
    }
    // The user's own setting allows it, and the folder itself can be named.
    let allowed = Workspace::prepare(home.path(), Path::new("workspace"), true).unwrap();
    assert_eq!(allowed.path(), home.path().canonicalize().unwrap().join(".git/hooks"));
    assert!(prepare(home.path(), "data").is_ok());
}

#[test]
fn a_workspace_outside_is_refused_and_nothing_is_made_there() {
    let (home, foreign) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    symlink(foreign.path(), home.path().join("link")).unwrap();
    symlink("/etc", home.path().join("workspace")).unwrap();
    let name = home.path().file_name().unwrap().to_str().unwrap();
    let outside = [
        "workspace".to_owned(),
        "link/new".to_owned(),
        "..".to_owned(),
        format!("../{name}-sibling"),
        "/".to_owned(),
        foreign.path().join("new").to_str().unwrap().to_owned(),
    ];
    for wanted in &outside {
        let error = prepare(home.path(), wanted).unwrap_err();
        assert!(matches!(error, WorkspaceError::Outside { .. }), "{wanted}: {error}");
        assert!(error.to_string().contains("workspace_outside"), "{error}");
    }
    assert!(prepare(home.path(), "missing/../../escape").is_err());
    assert!(!home.path().join("missing").exists());
    assert_eq!(fs::read_dir(foreign.path()).unwrap().count(), 0);
    // The user's own setting allows it.
    let allowed = Workspace::prepare(home.path(), Path::new("link/new"), true).unwrap();
    assert_eq!(allowed.path(), foreign.path().canonicalize().unwrap().join("new"));
}

#[test]
fn what_is_no_directory_is_refused() {
    let home = TempDir::new().unwrap();
    fs::write(home.path().join("file"), "").unwrap();
    symlink("nowhere", home.path().join("dangling")).unwrap();
    symlink("loop", home.path().join("loop")).unwrap();
    for wanted in ["file", "file/below", "dangling", "dangling/below", "loop"] {
        let error = prepare(home.path(), wanted).unwrap_err().to_string();
        assert!(error.contains(home.path().to_str().unwrap()), "{wanted}: {error}");
    }
    assert!(!home.path().join("nowhere").exists());
}

#[test]
fn files_are_created_below_and_never_over_anything() {
    let home = TempDir::new().unwrap();
    let workspace = prepare(home.path(), "w").unwrap();
    workspace.create_below(".cellblock/output-1.txt").unwrap().write_all(b"text").unwrap();
    workspace.create_below(".cellblock/output-2.txt").unwrap();
    let root = home.path().join("w");
    assert_eq!(fs::read(root.join(".cellblock/output-1.txt")).unwrap(), b"text");
    let again = workspace.create_below(".cellblock/output-1.txt").unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    for path in ["", ".", "..", "../x", "a/../x", "/etc/x", "./x"] {
        let error = workspace.create_below(path).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{path}");
    }
}

#[test]
fn no_link_on_the_way_is_followed() {
    let (home, foreign) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let workspace = prepare(home.path(), "w").unwrap();
    let root = home.path().join("w");
    symlink(foreign.path(), root.join("folder")).unwrap();
    symlink(foreign.path().join("made"), root.join("file")).unwrap();
    fs::create_dir(root.join("real")).unwrap();
    symlink("../folder", root.join("real/back")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    for path in ["folder/x", "file", "real/back/x", "pipe", "pipe/x"] {
        workspace.create_below(path).unwrap_err();
    }
    assert_eq!(fs::read_dir(foreign.path()).unwrap().count(), 0);
    // The attack works on whoever opens the path as a whole.
    fs::File::create(root.join("folder/x")).unwrap();
    assert_eq!(fs::read_dir(foreign.path()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_belong_to_the_user() {
    let bench = Bench::new();
    let root = bench.directory.path().join("workspace");
    let code =
        "import os; os.mkdir('made'); open('made/file', 'w').write('x'); print(os.getcwd(), os.getuid())";
    let ran = bench.python(code, |_| ()).await;
    let user = Identity::inside(Identity::current(), false);
    assert_eq!(ran.out, format!("/workspace {}", user.uid), "{ran:?}");
    for path in ["", "made", "made/file"] {
        let meta = fs::metadata(root.join(path)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (user.uid, user.gid), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_kernel_gives_away_the_directory_alone_and_says_so() {
    if Identity::current().uid != 0 {
        return; // There is nothing to give.
    }
    let bench = Bench::new();
    let root = bench.directory.path().join("workspace");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("mine"), "x").unwrap();
    let first = bench.prepare(&["true"]).await;
    assert!(
        first.notices.iter().any(|n| n.contains("1000:1000") && n.contains("0:0")),
        "{:?}",
        first.notices
    );
    assert_eq!(fs::metadata(&root).unwrap().uid(), 1000);
    assert_eq!(fs::metadata(root.join("mine")).unwrap().uid(), 0);
    let second = bench.prepare(&["true"]).await;
    assert!(!second.notices.iter().any(|n| n.contains("belongs")), "{:?}", second.notices);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_that_holds_the_engines_socket_is_refused_always() {
    for place in ["/", "/run"] {
        let bench = Bench::of(|definition| {
            definition.limits.workspace = place.into();
            definition.limits.workspace_outside = true;
        });
        let refused = bench.docker.prepare(bench.plan(&["true"]), None).await;
        let Err(BackendError::Workspace(why)) = refused else { panic!("{place} was taken") };
        assert!(why.contains("socket"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_notebooks_own_directory_is_used_with_a_warning() {
    let bench = Bench::of(|definition| definition.limits.workspace = ".".into());
    let prepared = bench.prepare(&["true"]).await;
    assert!(prepared.notices.iter().any(|n| n.contains("notebooks")), "{:?}", prepared.notices);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_that_is_replaced_while_the_sandbox_starts_is_refused() {
    let bench = Bench::new();
    let root = bench.directory.path().join("workspace");
    let prepared = bench.prepare(&["python3", "-c", "input()"]).await;
    fs::rename(&root, bench.directory.path().join("old")).unwrap();
    fs::create_dir(&root).unwrap();
    let result = bench.docker.launch(prepared, tokio_util::sync::CancellationToken::new()).await;
    let Err(BackendError::Workspace(why)) = result else { panic!("it started") };
    assert!(why.contains("replaced"), "{why}");
    assert!(crate::containers::labelled(&bench.label()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_swaps_directories_for_links_moves_nothing_out() {
    let bench = Bench::new();
    let foreign = TempDir::new().unwrap();
    let aim = foreign.path().to_str().unwrap();
    fs::set_permissions(foreign.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    // The link means nothing inside; outside, followed, it leads to a foreign directory.
    let code = format!(
        "
import itertools, os
print('swapping', flush=True)
for n in itertools.count():
    try:
        if os.path.islink('spill'): os.unlink('spill')
        elif os.path.isdir('spill'): os.rename('spill', f'old-{{n}}')
        if n % 2: os.mkdir('spill')
        else: os.symlink({aim:?}, 'spill')
    except OSError: pass
"
    );
    let mut started = bench.start(&["python3", "-c", &code], |_| ()).await;
    started.output.read_exact(&mut [0; 8]).await.unwrap();
    let workspace = started.workspace.clone().unwrap();
    let (mut made, mut refused) = (0, 0);
    for n in 0..2000 {
        match workspace.create_below(format!("spill/{n}")) {
            Ok(_) => made += 1,
            Err(_) => refused += 1,
        }
    }
    // The same by path, until the attack has worked once.
    let naive = bench.directory.path().join("workspace/spill");
    let escaped = (0..1_000_000).any(|n| {
        let _ = fs::File::create(naive.join(format!("naive-{n}")));
        fs::read_dir(foreign.path()).unwrap().count() > 0
    });
    started.container.destroy().await;
    let names: Vec<_> = fs::read_dir(foreign.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(escaped, "the naive way was never caught: the guest does not attack");
    assert!(names.iter().all(|n| n.to_str().unwrap().starts_with("naive-")), "{names:?}");
    assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
}
