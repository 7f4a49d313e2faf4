use std::fs;

use tempfile::TempDir;

use super::*;

struct World {
    home: TempDir,
    watch: Watch,
}

impl World {
    fn new(blind: bool) -> Self {
        let home = TempDir::new().unwrap();
        fs::create_dir_all(home.path().join("own/artifacts/old")).unwrap();
        fs::write(home.path().join("own/artifacts/old/before"), "x").unwrap();
        let mounted = Arc::new(Workspace::prepare(home.path(), Path::new("own"), false).unwrap());
        let watch = Watch::open(vec![Tree { mounted, below: "artifacts".into(), except: None }], blind);
        World { home, watch }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join("own/artifacts").join(name)
    }

    /// What is told of a run that does this.
    fn run(&mut self, work: impl FnOnce(&Self)) -> Written {
        self.watch.start();
        if self.watch.stirred() {
            self.watch.forget();
        }
        work(self);
        if self.watch.stirred() { self.watch.written() } else { Written::default() }
    }

    fn files(&mut self, work: impl FnOnce(&Self)) -> Vec<String> {
        let written = self.run(work);
        assert_eq!(written.more, 0);
        written.files.iter().map(|(_, path)| path.to_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn the_same_is_seen_with_and_without_the_systems_help() {
    for blind in [false, true] {
        let mut world = World::new(blind);
        assert!(world.files(|_| ()).is_empty());
        let made = world.files(|world| {
            fs::write(world.path("new"), "x").unwrap();
            fs::write(world.path("old/new"), "x").unwrap();
            fs::create_dir_all(world.path("a/b")).unwrap();
            fs::write(world.path("a/b/new"), "x").unwrap();
            fs::create_dir(world.path(".hidden")).unwrap();
            fs::write(world.path(".hidden/new"), "x").unwrap();
            fs::write(world.path("gone"), "x").unwrap();
            fs::remove_file(world.path("gone")).unwrap();
            std::os::unix::fs::symlink("new", world.path("link")).unwrap();
            fs::write(world.home.path().join("own/elsewhere"), "x").unwrap();
        });
        assert_eq!(made, ["artifacts/a/b/new", "artifacts/new", "artifacts/old/new"], "blind: {blind}");
        let changed = world.files(|world| {
            fs::write(world.path("old/before"), "longer").unwrap();
            fs::rename(world.path("a"), world.path("c")).unwrap();
        });
        // What was moved is new where it is now; who can only compare sees that, too.
        assert_eq!(changed, ["artifacts/c/b/new", "artifacts/old/before"], "blind: {blind}");
        assert_eq!(world.files(|w| fs::write(w.path("c/b/new"), "more").unwrap()), ["artifacts/c/b/new"]);
        assert!(world.files(|_| ()).is_empty(), "blind: {blind}");
    }
}

#[test]
fn what_happens_between_two_runs_is_nobodys() {
    for blind in [false, true] {
        let mut world = World::new(blind);
        fs::write(world.path("between"), "x").unwrap();
        fs::create_dir(world.path("directory")).unwrap();
        assert_eq!(
            world.files(|w| fs::write(w.path("directory/new"), "x").unwrap()),
            ["artifacts/directory/new"]
        );
    }
}

#[test]
fn a_directory_that_is_made_again_is_watched_again() {
    let mut world = World::new(false);
    let made = world.files(|world| {
        fs::remove_dir_all(world.path("")).unwrap();
        fs::create_dir(world.path("")).unwrap();
        fs::write(world.path("one"), "x").unwrap();
    });
    assert_eq!(made, ["artifacts/one"]);
    assert_eq!(world.files(|w| fs::write(w.path("two"), "x").unwrap()), ["artifacts/two"]);
}

#[test]
fn more_directories_than_may_be_watched_are_looked_through() {
    let mut world = World::new(false);
    world.run(|world| (0..600).for_each(|n| fs::create_dir(world.path(&format!("d{n}"))).unwrap()));
    assert!(world.watch.partial);
    // Times of files are coarse.
    std::thread::sleep(3 * TICK);
    let written = world.files(|world| {
        for n in [0, 300, 599] {
            fs::write(world.path(&format!("d{n}/new")), "x").unwrap();
        }
    });
    assert_eq!(written, ["artifacts/d0/new", "artifacts/d300/new", "artifacts/d599/new"]);
}

#[test]
fn no_link_is_followed() {
    let foreign = TempDir::new().unwrap();
    fs::write(foreign.path().join("secret"), "x").unwrap();
    for blind in [false, true] {
        let mut world = World::new(blind);
        let made = world.files(|world| {
            std::os::unix::fs::symlink(foreign.path(), world.path("link")).unwrap();
            fs::write(foreign.path().join("secret"), "changed").unwrap();
        });
        assert!(made.is_empty(), "{made:?}");
        let made = world.files(|world| {
            fs::remove_dir_all(world.path("")).unwrap();
            std::os::unix::fs::symlink(foreign.path(), world.home.path().join("own/artifacts")).unwrap();
            fs::write(foreign.path().join("secret"), "again").unwrap();
        });
        assert!(made.is_empty(), "{made:?}");
    }
}
