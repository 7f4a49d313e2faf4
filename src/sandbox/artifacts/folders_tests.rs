use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use tempfile::TempDir;

use super::*;

fn soon() -> Instant {
    Instant::now() + Duration::from_mins(1)
}

fn session(home: &TempDir) -> (Folder, PathBuf) {
    let folder = Folder::new(home.path(), &Place::Session("kernel-1".into()));
    let path = home.path().join("sessions/kernel-1");
    fs::create_dir_all(path.join("artifacts")).unwrap();
    (folder, path)
}

fn run(home: &TempDir) -> (Folder, PathBuf) {
    let folder = Folder::new(home.path(), &Place::Run("id".into()));
    let path = home.path().join("outputs/.pending/id");
    fs::create_dir_all(path.join("artifacts")).unwrap();
    (folder, path)
}

#[test]
fn a_session_without_artifacts_leaves_nothing() {
    let home = TempDir::new().unwrap();
    let (folder, path) = session(&home);
    fs::create_dir_all(path.join("a/b/c")).unwrap();
    fs::write(path.join("a/b/file"), "x").unwrap();
    assert!(folder.settle(soon()).unwrap());
    assert!(!home.path().join("sessions").exists());
    assert!(folder.settle(soon()).unwrap(), "once more does no harm");
}

#[test]
fn artifacts_stay_and_everything_else_goes() {
    let home = TempDir::new().unwrap();
    let (folder, path) = session(&home);
    fs::write(path.join("artifacts/plot.png"), "x").unwrap();
    fs::create_dir(path.join("scratch")).unwrap();
    fs::write(path.join("scratch/file"), "x").unwrap();
    fs::create_dir(home.path().join("sessions/other")).unwrap();
    assert!(folder.settle(soon()).unwrap());
    let left: Vec<_> = fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["artifacts"]);
    assert!(path.join("artifacts/plot.png").exists() && home.path().join("sessions/other").exists());
}

#[test]
fn links_are_removed_and_never_followed() {
    let (home, foreign) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(foreign.path().join("precious"), "x").unwrap();
    let (folder, path) = session(&home);
    symlink(foreign.path(), path.join("link")).unwrap();
    fs::create_dir(path.join("deep")).unwrap();
    symlink(foreign.path(), path.join("deep/link")).unwrap();
    fs::remove_dir(path.join("artifacts")).unwrap();
    symlink(foreign.path(), path.join("artifacts")).unwrap();
    assert!(folder.settle(soon()).unwrap());
    assert!(!path.exists() && foreign.path().join("precious").exists());

    // The folder itself, or the one above it.
    fs::create_dir(home.path().join("sessions")).unwrap();
    symlink(foreign.path(), &path).unwrap();
    let _ = folder.settle(soon());
    assert!(foreign.path().join("precious").exists());
    fs::remove_file(&path).unwrap();
    fs::remove_dir(home.path().join("sessions")).unwrap();
    fs::create_dir(foreign.path().join("kernel-1")).unwrap();
    symlink(foreign.path(), home.path().join("sessions")).unwrap();
    let _ = folder.settle(soon());
    assert!(foreign.path().join("kernel-1").exists());
}

#[test]
fn closed_directories_go_as_well() {
    let home = TempDir::new().unwrap();
    let (folder, path) = session(&home);
    fs::create_dir_all(path.join("a/b/c")).unwrap();
    fs::write(path.join("a/b/file"), "x").unwrap();
    for closed in ["a/b/c", "a/b", "a"] {
        fs::set_permissions(path.join(closed), fs::Permissions::from_mode(0o0)).unwrap();
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
    assert!(folder.settle(soon()).unwrap());
    assert!(!path.exists());
}

#[test]
fn a_tree_deeper_than_a_path_may_be_goes_too() {
    let home = TempDir::new().unwrap();
    let (folder, path) = session(&home);
    let mut at = open_directory(&home_fd(&home), Path::new("sessions")).unwrap();
    at = open_directory(&at, Path::new("kernel-1")).unwrap();
    for _ in 0..1500 {
        rustix::fs::mkdirat(&at, "dddd", Mode::RWXU).unwrap();
        at = open_directory(&at, Path::new("dddd")).unwrap();
    }
    assert!(folder.settle(soon()).unwrap());
    assert!(!path.exists());
}

fn home_fd(home: &TempDir) -> OwnedFd {
    super::home(home.path()).unwrap()
}

#[test]
fn without_time_nothing_is_done() {
    let home = TempDir::new().unwrap();
    let (folder, path) = session(&home);
    fs::write(path.join("file"), "x").unwrap();
    assert!(!folder.settle(Instant::now()).unwrap());
    assert!(path.join("file").exists());
}

#[test]
fn what_a_run_left_is_promoted_and_the_rest_goes() {
    let home = TempDir::new().unwrap();
    let (folder, path) = run(&home);
    assert_eq!(folder.promote(), None, "there is nothing in it");
    fs::write(path.join("artifacts/plot.png"), "x").unwrap();
    fs::write(path.join("scratch"), "x").unwrap();
    assert_eq!(folder.promote(), Some(PathBuf::from("outputs/id")));
    assert!(folder.settle(soon()).unwrap());
    assert!(home.path().join("outputs/id/plot.png").exists());
    assert!(!home.path().join("outputs/.pending").exists());

    let home = TempDir::new().unwrap();
    let (folder, _) = run(&home);
    assert!(folder.settle(soon()).unwrap());
    assert!(!home.path().join("outputs").exists());
}

#[test]
fn only_a_directory_is_promoted_and_nothing_is_replaced() {
    let (home, foreign) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    fs::write(foreign.path().join("precious"), "x").unwrap();
    let (folder, path) = run(&home);
    fs::remove_dir(path.join("artifacts")).unwrap();
    symlink(foreign.path(), path.join("artifacts")).unwrap();
    assert_eq!(folder.promote(), None);
    assert!(home.path().join("outputs/id").symlink_metadata().is_err());
    fs::remove_file(path.join("artifacts")).unwrap();
    fs::create_dir(path.join("artifacts")).unwrap();
    fs::write(path.join("artifacts/new"), "x").unwrap();
    fs::create_dir(home.path().join("outputs/id")).unwrap();
    assert_eq!(folder.promote(), None, "there is something of that name");
}

#[test]
fn folders_that_are_gone_are_forgotten_and_new_ones_are_not() {
    let home = TempDir::new().unwrap();
    let folder = |n: usize| Folder::new(home.path(), &Place::Session(n.to_string()));
    let mut folders: Vec<_> = (0..100).map(folder).collect();
    fs::create_dir_all(home.path().join("sessions/7")).unwrap();
    Folder::forget_gone(&mut folders);
    assert_eq!(folders, [7].into_iter().chain(84..100).map(folder).collect::<Vec<_>>());
}
