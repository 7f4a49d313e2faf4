//! What a session holds, kept and brought back: into the same kernel, and into the next.

use std::os::unix::fs::PermissionsExt;

use cellblock::event::{self, Event, Failure};
use cellblock::sandbox::checkpoint::{Restored, Saved};
use tokio_util::sync::CancellationToken;

use super::Bed;

/// Whatever is shown meanwhile goes nowhere.
fn nobody() -> event::EventSender {
    let (events, mut shown) = event::channel(8);
    tokio::spawn(async move { while shown.recv().await.is_some() {} });
    events
}

async fn save(bed: &Bed, name: &str) -> Result<Saved, Failure> {
    bed.sandbox.checkpoint(name, &nobody(), &CancellationToken::new()).await
}

async fn restore(bed: &Bed, name: &str) -> Result<Restored, Failure> {
    bed.sandbox.restore(name, &nobody(), &CancellationToken::new()).await
}

const SETUP: &str = "import json as j, os.path, dataclasses, enum, socket\n\
    import pandas as pd\n\
    count = 1\n\
    def grow(by=2):\n\
    \x20   return count + by\n\
    class Base:\n\
    \x20   def hello(self): return f'hello {grow()}'\n\
    class Below(Base):\n\
    \x20   def __init__(self): super().__init__(); self.items = [1]\n\
    @dataclasses.dataclass\n\
    class Point:\n\
    \x20   x: int\n\
    \x20   tags: list = dataclasses.field(default_factory=list)\n\
    class Colour(enum.Enum):\n\
    \x20   RED = 1\n\
    def counter():\n\
    \x20   n = 0\n\
    \x20   def step():\n\
    \x20       nonlocal n; n += 1; return n\n\
    \x20   return step\n\
    step = counter(); step()\n\
    one, point, red = Below(), Point(3), Colour.RED\n\
    frame = pd.DataFrame({'a': [1, 2]})\n\
    twice = lambda y: y * count\n\
    lines = (line for line in 'ab')\n\
    connection = socket.socket()";

const LOOK: &str = "count = 10\n\
    print(one.hello(), isinstance(one, Base), one.items, point, Point(4), red is Colour.RED, step(), twice(3))\n\
    print(frame.a.sum(), j.dumps(1), os.path.basename('a/b'), open('/tmp/kept').read(), open('/home/cell/own').read())";

#[tokio::test(flavor = "multi_thread")]
async fn variables_and_files_come_back_in_a_fresh_container_and_losses_are_listed() {
    let bed = Bed::new();
    bed.python(SETUP).await.ok();
    bed.sh("printf tmp > /tmp/kept; printf own > ~/own; chmod 750 ~/own; mkfifo /tmp/pipe; printf s > /session/mine").await.ok();
    let saved = save(&bed, "first").await.expect("saved");
    let inventory = &saved.inventory;
    let lost: Vec<_> = inventory.lost.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(lost, ["lines", "connection", "/tmp/pipe"], "{inventory:?}");
    assert!(inventory.kept.contains(&"frame".to_owned()) && inventory.python, "{inventory:?}");
    // The session goes on as it was, and nothing of the saving is left in it.
    assert_eq!(bed.python("next(lines)").await.ok().result(), "'a'");
    assert_eq!(bed.sh("ls -A /session /tmp | grep -c cellblock-state").await.out(), "0\n");
    bed.python("count = 99; del one").await.ok();
    bed.sh("rm /tmp/kept /session/mine; printf new > /tmp/later").await.ok();
    let restored = restore(&bed, "first").await.expect("restored");
    assert_eq!(restored.container, "python");
    assert_eq!(restored.inventory.count, inventory.count, "{restored:?}");
    assert!(restored.inventory.words().contains("lines"), "{restored:?}");
    let ran = bed.python(LOOK).await;
    assert_eq!(
        ran.ok().out(),
        "hello 12 True [1] Point(x=3, tags=[]) Point(x=4, tags=[]) True 2 30\n3 1 b tmp own\n"
    );
    let ran = bed.sh("stat -c %a ~/own; cat /session/mine; ls /tmp/later 2>/dev/null; ls -A /session /tmp | grep cellblock-state").await;
    assert_eq!(ran.out(), "750\ns");
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_lie_where_no_container_sees_them_and_are_listed_and_removed() {
    let bed = Bed::new();
    assert!(bed.sandbox.checkpoints().expect("a list").is_empty());
    let failure = save(&bed, "early").await.expect_err("nothing runs");
    assert!(failure.evalue.contains("not running"), "{failure:?}");
    bed.python("x = 1").await.ok();
    save(&bed, "one").await.expect("saved");
    save(&bed, "one").await.expect("saved again");
    let folder = bed.directory.path().join("kept/one");
    assert_eq!(std::fs::metadata(&folder).expect("there").permissions().mode() & 0o777, 0o700);
    let list = bed.sandbox.checkpoints().expect("a list");
    assert_eq!((list.len(), list[0].name.as_str(), list[0].container.as_str()), (1, "one", "python"));
    let failure = restore(&bed, "two").await.expect_err("there is none");
    assert!(failure.evalue.contains("two") && failure.evalue.contains("one"), "{failure:?}");
    assert!(save(&bed, "../up").await.is_err());
    assert!(bed.sandbox.delete_checkpoint("one").expect("removed"));
    assert!(!folder.exists());
    assert_eq!(bed.python("x").await.ok().result(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused_and_leaves_the_one_before() {
    let bed = Bed::with(|settings| settings.checkpoint_size = 8 << 20);
    bed.python("x = 1").await.ok();
    save(&bed, "one").await.expect("saved");
    bed.sh("head -c 20000000 /dev/zero > /tmp/large").await.ok();
    let failure = save(&bed, "one").await.expect_err("too large");
    assert!(failure.evalue.contains("8 MB") && failure.evalue.contains("checkpoint_size"), "{failure:?}");
    assert_eq!(std::fs::read_dir(bed.directory.path().join("kept/one")).expect("there").count(), 2);
    // A variable alone is only left out.
    bed.python("import os; os.remove('/tmp/large'); big = bytes(9_000_000)").await.ok();
    let saved = save(&bed, "one").await.expect("saved");
    assert_eq!(saved.inventory.lost, [("big".to_owned(), "it is too large".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_gone_is_told_and_the_next_cell_works() {
    let bed = Bed::new();
    bed.python("x = 1").await.ok();
    save(&bed, "one").await.expect("saved");
    let meta = bed.directory.path().join("kept/one/meta.json");
    let text = std::fs::read_to_string(&meta).expect("meta");
    let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    value["image"] = format!("sha256:{}", "0".repeat(64)).into();
    std::fs::write(&meta, value.to_string()).expect("written");
    let failure = restore(&bed, "one").await.expect_err("no image");
    assert!(failure.evalue.contains("sha256:000"), "{failure:?}");
    assert_eq!(bed.python("'x' in globals()").await.ok().result(), "False");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_archive_is_never_opened_on_the_host_and_endless_or_lying_ones_end() {
    let bed = Bed::new();
    // Variables that make their pickling lie, take for ever, or write to the channel.
    bed.python(
        "import os, time\nclass Evil:\n    def __reduce__(self): return (exec, ('open(\"/workspace/ran\", \"w\")',))\n\
         class Slow:\n    def __reduce__(self): time.sleep(1); raise KeyboardInterrupt\n\
         evil, slow, after = Evil(), Slow(), 1",
    )
    .await
    .ok();
    let saved = save(&bed, "one").await.expect("saved");
    assert!(saved.inventory.lost.iter().any(|(name, _)| name == "slow"), "{saved:?}");
    assert!(!bed.directory.path().join("workspace/ran").exists());
    restore(&bed, "one").await.expect("restored, inside");
    // What the pickle runs, it runs in the container, like any code.
    assert!(bed.directory.path().join("workspace/ran").exists());
    // The archive itself is nonsense.
    for entry in std::fs::read_dir(bed.directory.path().join("kept/one")).expect("there").flatten() {
        if entry.file_name().to_string_lossy().ends_with(".tar") {
            std::fs::write(entry.path(), b"nonsense").expect("written");
        }
    }
    let failure = restore(&bed, "one").await.expect_err("nonsense");
    assert!(failure.evalue.contains("unpacked"), "{failure:?}");
    assert_eq!(bed.python("'after' in globals()").await.ok().result(), "False");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_kept_is_there_in_the_next_kernel_of_the_directory() {
    let keep = || Bed::defined(|definition| definition.keep = true);
    let bed = keep();
    bed.python("x = 'from before'").await.ok();
    bed.sandbox.keep_last().await;
    bed.sandbox.shutdown().await;
    let mut next = keep();
    next.sandbox = next.sandbox.with_checkpoints(bed.store());
    let ran = next.python("x").await;
    assert_eq!(ran.ok().result(), "'from before'");
    let told = ran.events.iter().any(|e| matches!(e, Event::Notice(n) if n.text.contains("last kernel")));
    assert!(told, "{ran:?}");
    assert!(next.python("x").await.ok().events.iter().all(|e| !matches!(e, Event::Notice(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_a_name_keeps_its_files_and_tells_of_others_in_it() {
    let bed = Bed::new();
    let first = bed.sandbox.session();
    bed.sh("echo mine > /session/file").await.ok();
    assert_eq!(bed.sandbox.enter("work").await.expect("a name"), None);
    assert_eq!(bed.sandbox.session(), "work");
    assert!(bed.sh("cat /session/file").await.end.failure.is_some());
    bed.sh("echo shared > /session/file").await.ok();
    let other = Bed::beside(&bed);
    let told = other.sandbox.enter("work").await.expect("a name").expect("a notice");
    assert!(told.contains("another kernel"), "{told}");
    assert_eq!(other.sh("cat /session/file").await.ok().out(), "shared\n");
    assert_ne!(first, "work");
    for name in ["", "..", "a/b", ".hidden", "a b"] {
        assert!(bed.sandbox.enter(name).await.is_err(), "{name}");
    }
    bed.sandbox.keep_last().await;
    bed.sandbox.shutdown().await;
    assert_eq!(
        std::fs::read_to_string(bed.directory.path().join("sessions/work/file")).expect("kept"),
        "shared\n"
    );
    assert_eq!(other.sh("cat /session/file").await.ok().out(), "shared\n");
}
