//! Who shares a container, who waits, who has to go: sandboxes with real containers.

use std::sync::Arc;
use std::time::Duration;

use cellblock::event::ask::Nobody;
use cellblock::event::{self, Event};
use cellblock::sandbox::definition::Definition;
use cellblock::sandbox::docker::Docker;
use cellblock::sandbox::{Activity, Registry, Run, RunEnd, Sandbox, Surveyed, Turns};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::containers::{PATIENCE, eventually, labelled, options, said, sandbox_settings};

struct House {
    sandbox: Arc<Sandbox>,
    label: String,
    _directory: TempDir,
}

impl House {
    fn new(turns: Turns, change: impl FnOnce(Registry) -> Registry) -> Self {
        let directory = TempDir::new().unwrap();
        let docker = Docker::new(options(directory.path()));
        let label = docker.owner().filter();
        let registry = Arc::new(change(Registry::builtin(&sandbox_settings())));
        House {
            sandbox: Arc::new(Sandbox::new(registry, Arc::new(docker), turns)),
            label,
            _directory: directory,
        }
    }

    fn containers(&self) -> Vec<String> {
        labelled(&self.label)
    }

    /// Waits until the first container is like that.
    async fn until_surveyed(&self, is: impl Fn(&Surveyed) -> bool) {
        let begin = std::time::Instant::now();
        while !is(&self.sandbox.containers().await[0]) {
            assert!(begin.elapsed() < PATIENCE, "nobody noticed");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The one spare that waits after this run, whose own container is gone.
    async fn spare(&self, after: &Ran) -> String {
        let used = after.out().trim().to_owned();
        self.until_surveyed(|python| python.spares == 1).await;
        let alone = || matches!(self.containers().as_slice(), [only] if *only != used);
        eventually("one spare waits", alone).await;
        self.containers().remove(0)
    }

    async fn run(&self, run: Run) -> Ran {
        self.until(run, CancellationToken::new()).await
    }

    async fn until(&self, run: Run, cancel: CancellationToken) -> Ran {
        let approved = self.sandbox.approve(run).expect("a run that is allowed");
        let (sender, mut shown) = event::channel(4);
        let running = async {
            let end = self.sandbox.run(approved, &sender, Arc::new(Nobody), cancel).await;
            drop(sender);
            end
        };
        let collecting = async {
            let mut events = Vec::new();
            while let Some(event) = shown.recv().await {
                events.push(event);
            }
            events
        };
        let both = async { tokio::join!(running, collecting) };
        let (end, events) = tokio::time::timeout(PATIENCE, both).await.expect("the run hangs");
        Ran { end, events }
    }
}

#[derive(Debug)]
struct Ran {
    end: RunEnd,
    events: Vec<Event>,
}

impl Ran {
    fn ok(self) -> Self {
        assert_eq!(self.end.failure, None, "{self:?}");
        self
    }

    fn out(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            Event::Stream { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    fn remarks(&self) -> String {
        let texts = self.events.iter().filter_map(|event| match event {
            Event::Notice(notice) => Some(notice.text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}

/// Which container it is: the engine mounts files of its own there.
const WHERE: &str =
    "import re; print(re.search('containers/([0-9a-f]{64})', open('/proc/self/mountinfo').read())[1])";

fn fresh(code: &str) -> Run {
    Run { ephemeral: true, ..Run::new("python", code) }
}

fn named(container: &str, code: &str) -> Run {
    Run { container: Some(container.to_owned()), ..Run::new("python", code) }
}

fn another(name: &str) -> Definition {
    let mut definition = Definition::python(&sandbox_settings());
    name.clone_into(&mut definition.name);
    definition
}

#[tokio::test]
async fn a_spare_makes_an_ephemeral_run_quick_and_each_is_used_once() {
    let house = House::new(Turns::unlimited(), |registry| registry);
    let first = house.run(fresh(WHERE)).await.ok();
    let spare = house.spare(&first).await;
    let second = house.run(fresh(WHERE)).await.ok();
    assert_eq!(spare, second.out().trim(), "the spare ran it");
    assert_ne!(spare, house.spare(&second).await, "and is used once");
    house.sandbox.shutdown().await;
    assert!(house.containers().is_empty());
}

#[tokio::test]
async fn a_spare_that_died_while_it_waited_fails_nobody_and_is_replaced() {
    let house = House::new(Turns::unlimited(), |registry| registry);
    let mut ran = house.run(fresh(WHERE)).await.ok();
    for _ in 0..2 {
        let spare = house.spare(&ran).await;
        said(&["rm", "-f", &spare]);
        house.until_surveyed(|python| python.spares == 0).await;
        ran = house.run(fresh(WHERE)).await.ok();
        assert_ne!(spare, ran.out().trim());
    }
    house.spare(&ran).await;
    house.sandbox.shutdown().await;
    assert!(house.containers().is_empty());
}

#[tokio::test]
async fn a_spare_that_can_not_start_does_no_harm() {
    let house = House::new(Turns::unlimited(), |registry| {
        let mut broken = another("broken");
        broken.source = cellblock::sandbox::definition::Source::Image("cellblock-no-such-image:none".into());
        broken.limits.image = Some("cellblock-no-such-image:none".into());
        registry.with(broken)
    });
    for _ in 0..2 {
        let ran = house.run(Run { ephemeral: true, ..named("broken", "1") }).await;
        assert!(ran.end.failure.is_some());
        assert!(house.run(Run::new("python", "1")).await.end.failure.is_none());
    }
    house.sandbox.shutdown().await;
    assert!(house.containers().is_empty());
}

#[tokio::test]
async fn two_kernels_share_the_turns_and_who_waits_is_told_and_can_be_interrupted() {
    let places = TempDir::new().unwrap();
    let turns = || Turns::new(places.path(), 1);
    let (one, two) = (House::new(turns(), |r| r), House::new(turns(), |r| r));
    one.run(Run::new("python", "import time")).await.ok();
    two.run(Run::new("python", "1")).await.ok();
    let stop = CancellationToken::new();
    let long = one.until(Run::new("python", "time.sleep(600)"), stop.clone());
    let waiting = async {
        eventually("the first one runs", || turns_taken(places.path())).await;
        let cancel = CancellationToken::new();
        let soon = cancel.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            soon.cancel();
        });
        let given_up = two.until(Run::new("python", "1"), cancel).await;
        assert_eq!(given_up.end.failure.as_ref().map(|f| f.ename.as_str()), Some("KeyboardInterrupt"));
        assert!(given_up.remarks().contains("waits for its turn"), "{given_up:?}");
        let later = two.run(Run::new("python", "print('later')"));
        let stopping = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            stop.cancel();
        };
        let (later, ()) = tokio::join!(later, stopping);
        later.ok()
    };
    let (first, later) = tokio::join!(long, waiting);
    assert_eq!(first.end.failure.map(|f| f.ename).as_deref(), Some("KeyboardInterrupt"));
    assert_eq!(later.out(), "later\n");
    tokio::join!(one.sandbox.shutdown(), two.sandbox.shutdown());
}

/// Whether somebody holds the only turn.
fn turns_taken(directory: &std::path::Path) -> bool {
    let Ok(file) = std::fs::File::open(directory.join("turn-0")) else { return false };
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err()
}

#[tokio::test]
async fn the_container_idle_for_longest_makes_room_and_its_next_use_is_told() {
    let places = TempDir::new().unwrap();
    let house = House::new(Turns::new(places.path(), 2), |registry| {
        registry.with(another("second")).with(another("third"))
    });
    house.run(named("python", "kept = 1")).await.ok();
    house.run(named("second", "kept = 2")).await.ok();
    assert!(!house.run(named("third", "1")).await.ok().remarks().contains("stopped"));
    assert_eq!(house.containers().len(), 2);
    let surveyed = house.sandbox.containers().await;
    assert!(
        matches!(&surveyed[0].activity, Activity::Stopped(why) if why.contains("make room") && why.contains("third")),
        "{surveyed:?}"
    );
    // A block with a container of its own takes nobody's.
    house.run(fresh("1")).await.ok();
    assert_eq!(house.run(named("second", "print(kept)")).await.ok().out(), "2\n");
    let again = house.run(named("python", "print('kept' in dir())")).await.ok();
    assert!(again.remarks().contains("make room") && again.remarks().contains("variables"), "{again:?}");
    assert_eq!(again.out(), "False\n");
    house.sandbox.shutdown().await;
    assert!(house.containers().is_empty());
}

#[tokio::test]
async fn an_idle_container_is_stopped_and_its_next_use_is_told() {
    let house = House::new(Turns::unlimited(), |mut registry| {
        registry.settings.idle_timeout = Some(Duration::from_secs(1));
        registry
    });
    house.run(Run::new("python", "kept = 1")).await.ok();
    eventually("it is stopped", || house.containers().is_empty()).await;
    let next = house.run(Run::new("python", "print('kept' in dir())")).await.ok();
    assert!(next.remarks().contains("idle_timeout") && next.remarks().contains("variables"), "{next:?}");
    assert_eq!(next.out(), "False\n");
    house.sandbox.shutdown().await;
}

#[tokio::test]
async fn a_container_removed_between_two_cells_costs_the_variables_and_nothing_else() {
    let house = House::new(Turns::unlimited(), |registry| registry);
    house.run(Run::new("python", "kept = 1")).await.ok();
    for id in house.containers() {
        said(&["rm", "-f", &id]);
    }
    house.until_surveyed(|python| python.activity == Activity::Cold).await;
    let next = house.run(Run::new("python", "print('kept' in dir())")).await.ok();
    assert!(next.remarks().contains("removed or killed from outside"), "{next:?}");
    assert_eq!(next.out(), "False\n");
    house.sandbox.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_amid_everything_leaves_nothing() {
    let house = House::new(Turns::unlimited(), |registry| registry.with(another("second")));
    house.run(fresh("1")).await.ok();
    let runs = (0..6).map(|number| {
        let sandbox = Arc::clone(&house.sandbox);
        tokio::spawn(async move {
            let run = match number % 3 {
                0 => fresh("import time; time.sleep(600)"),
                1 => named("second", "import time; time.sleep(600)"),
                _ => Run::new("sh", "sleep 600"),
            };
            let approved = sandbox.approve(run).expect("a run that is allowed");
            let (sender, mut shown) = event::channel(4);
            let drain = tokio::spawn(async move { while shown.recv().await.is_some() {} });
            let end = sandbox.run(approved, &sender, Arc::new(Nobody), CancellationToken::new()).await;
            drop(sender);
            drain.await.expect("no panic");
            end
        })
    });
    let runs: Vec<_> = runs.collect();
    eventually("some run", || house.containers().len() >= 3).await;
    tokio::time::timeout(PATIENCE, house.sandbox.shutdown()).await.expect("an end");
    assert!(house.containers().is_empty());
    for run in runs {
        let end = tokio::time::timeout(PATIENCE, run).await.expect("an end").expect("no panic");
        assert!(end.failure.is_some(), "{end:?}");
    }
    assert!(house.containers().is_empty());
}
