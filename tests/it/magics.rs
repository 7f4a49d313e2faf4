//! Choosing containers, and the magics about what runs: whole cells through the engine, real containers.

use cellblock::config::Flavor;
use cellblock::engine::Interpreter;
use cellblock::event::AskError;
use cellblock::sandbox::definition::{Definition, Mode};
use cellblock::sandbox::{Registry, Turns};

use crate::cells::Kernel;
use crate::containers::{labelled, sandbox_settings};
use crate::session::Answers;

/// The usual container under another name, changed.
fn another(name: &str, change: impl FnOnce(&mut Definition)) -> Definition {
    let mut definition = Definition::python(&sandbox_settings());
    name.clone_into(&mut definition.name);
    change(&mut definition);
    definition
}

fn kernel(definitions: impl IntoIterator<Item = Definition>) -> Kernel {
    let registry = definitions.into_iter().fold(Registry::builtin(&sandbox_settings()), Registry::with);
    Kernel::of(Flavor::Markdown, None, registry, Turns::unlimited(), |_| ())
}

const WHERE: &str =
    "import re; print(re.search('containers/([0-9a-f]{64})', open('/proc/self/mountinfo').read())[1])";

fn fence(attributes: &str, code: &str) -> String {
    format!("```python {attributes}\n{code}\n```")
}

#[tokio::test]
async fn a_fence_a_magic_and_a_trigger_choose_the_container() {
    let science = another("science", |d| d.triggers = vec!["crunch numbers".to_owned()]);
    let kernel = kernel([science]);
    let ran = async |cell: String| {
        let ran = kernel.run(&cell).await;
        let place = ran.outcome.metadata["cellblock_runs"][0]["container"].as_str().map(str::to_owned);
        place.expect("a container")
    };
    assert_eq!(ran(fence("", "kept = 1")).await, "python");
    assert_eq!(ran(fence("container=science", "kept")).await, "science", "each has variables of its own");
    // Nothing answers prose here, which fails the cell, but the code has run by then.
    assert_eq!(ran(format!("Please Crunch   Numbers.\n\n{}", fence("", "1"))).await, "science");
    assert_eq!(ran(format!("crunch numberss\n\n{}", fence("", "1"))).await, "python");
    assert!(kernel.run("%container science").await.succeeded().displayed().contains("`science`"));
    assert_eq!(ran(fence("", "1")).await, "science");
    assert_eq!(ran(fence("container=python", "kept")).await, "python");
    assert!(kernel.run("%container").await.succeeded().displayed().contains("prefer `science`"));
    kernel.run("%container default").await.succeeded();
    assert_eq!(ran(fence("", "kept")).await, "python");
    let table = kernel.run("%containers").await.succeeded().displayed();
    assert!(table.contains("| `python` (default) |") && table.contains("| idle |"), "{table}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn what_can_not_be_had_is_refused_before_anything_runs() {
    let barred = another("barred", |d| d.refused = Some("its Dockerfile waits for trust".to_owned()));
    let kernel = kernel([barred]);
    let first = fence("", "print('ran')");
    for (second, why) in [
        (fence("timeout=soon", "1"), "line 5: timeout=soon: it takes a time"),
        (fence("container=pyhton", "1"), "there is no container \"pyhton\""),
        (fence("container=barred", "1"), "waits for trust"),
        (fence("memory=64m", "1"), "write `ephemeral`"),
    ] {
        let ran = kernel.run(&format!("{first}\n\n{second}")).await;
        assert!(ran.out().is_empty(), "{ran:?}");
        assert!(ran.failure().evalue.contains(why), "{ran:?}");
    }
    let failed = kernel.run("%container barred").await;
    assert!(failed.failure().evalue.contains("waits for trust"), "{failed:?}");
    assert!(kernel.run("%containers").await.displayed().contains("waits for trust"));
    assert!(labelled(&kernel.label).is_empty(), "nothing was started");
}

#[tokio::test]
async fn a_fence_of_its_own_gets_a_fresh_container_with_tighter_limits() {
    let kernel = kernel([]);
    let code = "import pathlib\npathlib.Path('/tmp/mark').touch()\nm = open('/sys/fs/cgroup/memory/memory.limit_in_bytes').read()\nprint(m)";
    let ran = kernel.run(&fence("ephemeral memory=64m timeout=20", code)).await.succeeded();
    assert_eq!(ran.out().trim(), (64 << 20).to_string());
    let left = "import os\nprint(os.path.exists('/tmp/mark'), 'm' in dir())";
    assert_eq!(kernel.run(&fence("ephemeral", left)).await.succeeded().out().trim(), "False False");
    assert_eq!(kernel.run(&fence("", left)).await.succeeded().out().trim(), "False False");
    kernel.engine.shutdown().await;
    assert!(labelled(&kernel.label).is_empty());
}

#[tokio::test]
async fn a_cell_reads_the_input_that_its_fence_gives() {
    let kernel = kernel([]);
    let ran = kernel.run("```sh stdin=\"one\\ntwo\"\nwc -l; cat\n```").await.succeeded();
    assert_eq!(ran.out().trim(), "1", "{ran:?}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn restart_and_kill_end_containers_and_status_says_what_runs() {
    let kernel = kernel([]);
    assert!(kernel.run("%status").await.displayed().contains("No container runs"));
    assert!(kernel.run("%kill").await.displayed().contains("nothing is lost"));
    let host = kernel.run(&fence("", &format!("kept = 1\n{WHERE}"))).await.succeeded().out();
    let status = kernel.run("%status").await.succeeded().displayed();
    assert!(status.contains("| `python` | idle for"), "{status}");
    let killed = kernel.run("%kill python").await.succeeded().displayed();
    assert!(killed.contains("`python` was ended") && killed.contains("variables"), "{killed}");
    assert!(labelled(&kernel.label).is_empty(), "it ends at once");
    let next = kernel.run(&fence("", &format!("print('kept' in dir())\n{WHERE}"))).await.succeeded();
    assert!(next.out().starts_with("False\n") && !next.out().contains(host.trim()), "{next:?}");
    assert!(!next.remarks().contains("was stopped"), "who killed it knows: {next:?}");
    let again = kernel.run("%restart").await.succeeded().displayed();
    assert!(again.contains("starts again"), "{again}");
    assert_eq!(kernel.run(&fence("", "print('kept' in dir())")).await.succeeded().out(), "False\n");
    assert!(kernel.run("%kill nosuch").await.failure().evalue.contains("no container \"nosuch\""));
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_session_of_another_name_has_a_folder_of_its_own_and_unsafe_names_are_refused() {
    let kernel = kernel([]);
    kernel.run(&fence("", "open('/session/a', 'w').write('mine')")).await.succeeded();
    let entered = kernel.run("%session shared-1").await.succeeded().displayed();
    assert!(entered.contains("sessions/shared-1") && entered.contains("are gone"), "{entered}");
    let look = fence("", "import os; print(os.listdir('/session'))\nopen('/session/b', 'w').write('x')");
    assert!(!kernel.run(&look).await.succeeded().out().contains("'a'"));
    let other = self::kernel([]);
    other.run("%session shared-1").await.succeeded();
    for bad in ["..", ".hidden", "a/b", "/etc", "a b"] {
        let ran = kernel.run(&format!("%session {bad}")).await;
        assert_eq!(ran.failure().ename, "UsageError", "{bad}");
    }
    assert!(kernel.run("%session").await.displayed().contains("`shared-1`"));
    kernel.engine.shutdown().await;
    let file = kernel.directory.path().join("sessions/shared-1/b");
    assert_eq!(std::fs::read_to_string(file).unwrap(), "x", "a named session stays");
}

#[tokio::test]
async fn a_container_that_asks_shows_the_code_and_runs_only_what_was_agreed_to() {
    let kernel = kernel([another("careful", |d| d.confirm = true)]);
    let cell = "```sh container=careful\necho ran \u{202e}\n```";
    let unasked = kernel.run(cell).await;
    assert!(unasked.out().is_empty() && unasked.failure().evalue.contains("can't ask"), "{unasked:?}");
    let no = Answers::new([Ok("no")]);
    let ran = kernel.answered(cell, no.clone()).await;
    assert_eq!((ran.out().as_str(), ran.failure().ename.as_str()), ("", "Refused"));
    let prompt = no.1.lock().unwrap()[0].prompt.clone();
    for part in ["echo ran \\u{202e}", "sh", "careful", "[yes / no / always]"] {
        assert!(prompt.contains(part), "{part}: {prompt}");
    }
    let ran = kernel.answered(cell, Answers::new([Ok("what?"), Ok(" Yes ")])).await.succeeded();
    assert!(ran.out().contains("ran"));
    kernel.answered(cell, Answers::new([Ok("always")])).await.succeeded();
    kernel.run(cell).await.succeeded();
    // A fence can ask for the same where the container does not.
    let fenced = kernel.run("```sh confirm\necho x\n```").await;
    assert_eq!(fenced.failure().ename, "Refused");
    let stopped =
        kernel.answered("```sh confirm\necho x\n```", Answers::new([Err(AskError::Interrupted)])).await;
    assert_eq!(stopped.failure().ename, "KeyboardInterrupt");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn what_a_container_was_not_given_is_said_once() {
    let kernel = kernel([another("poor", |d| {
        d.mode = Mode::Ephemeral;
        d.withheld = vec!["the network, until `cellblock trust`".to_owned()];
    })]);
    let cell = fence("container=poor", "1");
    assert!(kernel.run(&cell).await.succeeded().remarks().contains("until `cellblock trust`"));
    assert!(!kernel.run(&cell).await.succeeded().remarks().contains("cellblock trust"));
    assert!(kernel.run("%containers").await.displayed().contains("until 'cellblock trust'"));
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn packages_and_files_outside_need_a_yes_and_without_one_nothing_happens() {
    let kernel = kernel([]);
    std::fs::create_dir(kernel.directory.path().join(".git")).unwrap();
    for (cell, named) in [
        ("%pip install rich", "install rich"),
        ("!pip install -q rich", "install rich"),
        ("```python packages=rich\n1\n```", "install rich"),
        ("%upload /etc/hostname", "/etc/hostname"),
        ("%upload ../x", "read"),
        ("%download /workspace/hooks .git", ".git"),
    ] {
        let ran = kernel.run(cell).await;
        assert_eq!(ran.failure().ename, "Refused", "{cell}: {ran:?}");
        assert!(ran.failure().evalue.contains("can't ask"), "{ran:?}");
        let no = Answers::new([Ok("no")]);
        kernel.answered(cell, no.clone()).await.failure();
        assert!(no.1.lock().unwrap()[0].prompt.contains(named), "{cell}");
    }
    for bad in
        ["%pip install --index-url=http://x y", "%pip uninstall rich", "%apt install ./x.deb", "%npm install"]
    {
        assert_eq!(kernel.run(bad).await.failure().ename, "UsageError", "{bad}");
    }
    assert!(labelled(&kernel.label).is_empty(), "nothing was started");
}

#[tokio::test]
async fn files_of_the_notebooks_directory_go_in_and_come_out() {
    let kernel = kernel([]);
    std::fs::write(kernel.directory.path().join("in.txt"), "across").unwrap();
    let up = kernel.run("%upload in.txt /tmp/there.txt").await.succeeded();
    assert!(up.displayed().contains("Copied 1 file"), "{up:?}");
    assert_eq!(
        kernel.run(&fence("", "print(open('/tmp/there.txt').read())")).await.succeeded().out(),
        "across\n"
    );
    kernel.run("%download /tmp/there.txt out.txt").await.succeeded();
    assert_eq!(std::fs::read_to_string(kernel.directory.path().join("out.txt")).unwrap(), "across");
    kernel.run("%checkpoint first").await.succeeded();
    assert!(kernel.run("%checkpoints").await.displayed().contains("`first`"));
    kernel.run("%kill").await.succeeded();
    kernel.run("%restore first").await.succeeded();
    assert_eq!(
        kernel.run(&fence("", "print(open('/tmp/there.txt').read())")).await.succeeded().out(),
        "across\n"
    );
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn a_long_block_leaves_one_line_and_a_limit_that_was_hit_is_named() {
    let kernel = kernel([]);
    let ran = kernel.run("```sh\nsleep 1.2\nexit 3\n```").await;
    let last = ran.remarks();
    assert!(last.contains("sh in python · 1.") && last.contains("exit 3"), "{last}");
    let ran = kernel.run(&fence("", "import socket\nsocket.getaddrinfo('example.org', 80)")).await;
    assert!(ran.failure().ename == "gaierror" && ran.remarks().contains("network was refused"), "{ran:?}");
    let quick = kernel.run(&fence("", "1")).await.succeeded();
    assert!(!quick.remarks().contains(" s · "), "{quick:?}");
    let dropped = kernel.run("%%python x=3\nprint(1)").await.succeeded();
    assert!(dropped.remarks().contains("`x=3`") && dropped.remarks().contains("was not run"), "{dropped:?}");
    kernel.engine.shutdown().await;
}

#[tokio::test]
async fn hidden_files_in_folders_stay_where_they_are_and_a_yes_is_for_the_path_that_was_shown() {
    let kernel = kernel([]);
    let root = kernel.directory.path();
    std::fs::create_dir_all(root.join("proj/.git/hooks")).unwrap();
    std::fs::write(root.join("proj/.env"), "SECRET").unwrap();
    std::fs::write(root.join("proj/a.txt"), "a").unwrap();
    let up = kernel.run("%upload proj").await.succeeded();
    assert!(up.displayed().contains("left out") && up.displayed().contains(".env"), "{up:?}");
    let seen =
        kernel.run("```sh\nls -A proj\nmkdir -p proj/.git/hooks; echo evil > proj/.git/hooks/x\n```").await;
    assert_eq!(seen.succeeded().out(), "a.txt\n");
    kernel.run("%download proj").await.succeeded();
    assert!(!root.join("proj/.git/hooks/x").exists());
    // A pattern over a link: the yes is for what was shown, and no link is followed.
    let foreign = tempfile::tempdir().unwrap();
    std::fs::write(foreign.path().join("id_key"), "KEY").unwrap();
    std::os::unix::fs::symlink(foreign.path(), root.join(".x1")).unwrap();
    let tried = kernel.answered("%upload .x*/id_* stolen", Answers::new([Ok("yes")])).await;
    assert!(tried.outcome.failure.is_some(), "{tried:?}");
    kernel.engine.shutdown().await;
}
