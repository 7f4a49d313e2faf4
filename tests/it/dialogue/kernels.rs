//! Real kernels: killed in the middle of a reply, and two on one notebook.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::chat_server::*;
use crate::containers::PATIENCE;
use crate::wire_client::{self, Channel, Client};

/// `cellblock kernel`, killed when it is dropped.
struct Kernel {
    process: Child,
    client: Client,
    _folder: tempfile::TempDir,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // Ended already when all is well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn database(home: &Path) -> PathBuf {
    home.join("dialogues.sqlite")
}

impl Kernel {
    /// A kernel of the notebook `n.ipynb` in that folder.
    fn start(home: &Path, server: &Server) -> Kernel {
        let folder = tempfile::tempdir().unwrap();
        let file = wire_client::connection_file(folder.path());
        let process = Command::new(env!("CARGO_BIN_EXE_cellblock"))
            .args(["kernel", "-f"])
            .arg(&file)
            .current_dir(home)
            .env("HOME", home)
            .env("JPY_SESSION_NAME", home.join("n.ipynb"))
            .env("CELLBLOCK_MODEL__NAME", "m")
            .env("CELLBLOCK_MODEL__BASE_URL", server.v1())
            .env("CELLBLOCK_SANDBOX__WARM", "false")
            .env("CELLBLOCK_CONVERSATION__FILE", database(home))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary");
        let client = Client::connect(&file);
        Kernel { process, client, _folder: folder }
    }

    /// Runs a cell to its end; everything that it showed.
    fn run(&mut self, code: &str) -> String {
        let request = self.client.execute(code);
        let shown = self.client.collect_until_idle(&request);
        let reply = self.client.expect_reply(&request, "execute_reply");
        assert_eq!(reply.content["status"], "ok", "{code}: {:?}", reply.content);
        shown.iter().map(|message| message.content.to_string()).collect()
    }

    fn history(&mut self, content: &Value) -> Value {
        let request = self.client.send(Channel::Shell, "history_request", content);
        self.client.expect_busy(&request);
        self.client.expect_idle(&request);
        self.client.expect_reply(&request, "history_reply").content["history"].clone()
    }

    /// `kill -9`; what it had sent is nobody's business any more.
    fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        while self.client.try_iopub(Duration::from_millis(200)).is_some() {}
    }
}

fn bodies(home: &Path) -> Vec<String> {
    let Ok(database) = Connection::open(database(home)) else { return Vec::new() };
    database.busy_timeout(Duration::from_secs(10)).unwrap();
    let Ok(mut statement) = database.prepare("SELECT body FROM step ORDER BY id") else { return Vec::new() };
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.filter_map(Result::ok).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kernel_killed_in_the_middle_of_a_reply_loses_nothing_that_was_shown() {
    let home = tempfile::tempdir().unwrap();
    let script = vec![streaming(), text("as far as "), text("here"), Step::Hang];
    let server = Server::play(vec![answer(&["fine"]), script, answer(&["ok"])]).await;
    let mut first = Kernel::start(home.path(), &server);
    first.run("How are you?");
    first.client.execute("Tell me a story.");
    let begun = Instant::now();
    while !bodies(home.path()).iter().any(|body| body.contains("as far as here")) {
        assert!(begun.elapsed() < PATIENCE, "the reply is never written: {:?}", bodies(home.path()));
        std::thread::sleep(Duration::from_millis(50));
    }
    first.kill();

    let mut second = Kernel::start(home.path(), &server);
    let shown = second.run("%resume");
    assert!(shown.contains("2 turns are back") && shown.contains("sandbox is fresh"), "{shown}");
    let shown = second.run("%context");
    assert!(shown.contains("before the restart") && shown.contains("as far as here"), "{shown}");
    second.run("Go on.");
    let asked = server.asked();
    let sent = asked[2].body["messages"].as_array().unwrap();
    let contents: Vec<&str> = sent.iter().filter_map(|message| message["content"].as_str()).skip(1).collect();
    assert_eq!(contents[..3], ["How are you?", "fine", "Tell me a story."]);
    assert_eq!(contents[3], "as far as here\n\n[This reply was interrupted here: the kernel ended.]");
    assert!(contents[4].contains("the sandbox is fresh") && contents[4].ends_with("Go on."));

    let tail = second.history(&json!({"hist_access_type": "tail", "n": 5, "raw": true, "output": false}));
    let inputs: Vec<&str> = tail.as_array().unwrap().iter().filter_map(|row| row[2].as_str()).collect();
    assert_eq!(inputs, ["How are you?", "Tell me a story.", "%resume", "%context", "Go on."]);
    let range = json!({"hist_access_type": "range", "session": -1, "start": 2, "stop": 3, "output": true});
    let range = second.history(&range);
    assert_eq!((&range[0][1], &range[0][2]), (&json!(2), &json!(["Tell me a story.", null])));
    let search = json!({"hist_access_type": "search", "pattern": "*are*", "n": 1, "unique": true});
    assert_eq!(second.history(&search)[0][2], "How are you?");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_kernels_on_one_notebook_write_at_once_and_lose_nothing() {
    const CELLS: usize = 8;
    let home = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["a reply"])]).await;
    let mut kernels = [Kernel::start(home.path(), &server), Kernel::start(home.path(), &server)];
    for cell in 0..CELLS {
        let asked: Vec<_> = kernels
            .iter_mut()
            .enumerate()
            .map(|(number, kernel)| kernel.client.execute(&format!("question {cell} of kernel {number}")))
            .collect();
        for (kernel, request) in kernels.iter_mut().zip(&asked) {
            kernel.client.collect_until_idle(request);
            assert_eq!(kernel.client.expect_reply(request, "execute_reply").content["status"], "ok");
        }
    }
    for kernel in &mut kernels {
        let shown = kernel.run("%context");
        assert!(!shown.contains("The database of dialogues"), "{shown}");
    }
    // The last moment is written by the time the next kernel reads; kill -9 is no excuse.
    let begun = Instant::now();
    while bodies(home.path()).len() < 2 * 2 * CELLS {
        assert!(begun.elapsed() < PATIENCE, "{:?}", bodies(home.path()));
        std::thread::sleep(Duration::from_millis(50));
    }
    for kernel in kernels {
        kernel.kill();
    }
    let all = bodies(home.path());
    for (cell, kernel) in (0..CELLS).flat_map(|cell| [(cell, 0), (cell, 1)]) {
        let question = format!("question {cell} of kernel {kernel}");
        assert_eq!(all.iter().filter(|body| body.contains(&question)).count(), 1, "{question}");
    }
    assert_eq!(all.iter().filter(|body| body.contains("a reply")).count(), 2 * CELLS);
    let database = Connection::open(database(home.path())).unwrap();
    let sound: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(sound, "ok");
    let mut third = Kernel::start(home.path(), &server);
    let shown = third.run("%resume");
    assert!(shown.contains(&format!("{CELLS} turns are back")), "{shown}");
}
