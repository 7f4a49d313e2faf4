//! The local small model for real: a llama.cpp server, started, shared, and gone with its last kernel.
//!
//! The model is fetched by `scripts/get-model.py` when it is not there yet, into the folder that
//! `CELLBLOCK_MODEL__LOCAL_DIR` names or the usual one.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cellblock::chat::{Chat, ChatError, ProviderEnvironment};
use cellblock::config::ModelSettings;
use cellblock::event::Ending;
use tokio::io::AsyncReadExt;

use crate::chat_server::*;

/// The folder of the installed model.
async fn installed() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/get-model.py");
    let named = std::env::var_os("CELLBLOCK_MODEL__LOCAL_DIR").map(PathBuf::from);
    let mut command = tokio::process::Command::new("python3");
    command.arg(script);
    if let Some(folder) = &named {
        command.arg("--to").arg(folder);
    }
    let status = command.stdout(Stdio::inherit()).status().await.expect("python3");
    assert!(status.success(), "the model can't be fetched; see above");
    named.unwrap_or_else(|| {
        let found = ProviderEnvironment::read(|name| std::env::var(name).ok());
        found.local_model.expect("a data folder")
    })
}

/// A kernel's chat with the local model, meeting others in `runtime`.
fn kernel(folder: &Path, runtime: &Path) -> Chat {
    let settings = ModelSettings {
        name: Some("local".to_owned()),
        base_url: None,
        local: true,
        local_dir: Some(folder.to_owned()),
        temperature: Some(0.0),
        max_tokens: Some(60),
        ..settings("")
    };
    let mut environment = ProviderEnvironment::default();
    environment.runtime_dir = Some(runtime.to_owned());
    Chat::new(&settings, environment)
}

/// The processes that serve a model for this runtime folder.
fn servers(runtime: &Path) -> Vec<String> {
    let needle = runtime.join("cellblock").display().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("/proc").flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        if line.contains(&needle) && line.contains("model.gguf") {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}

/// The socket at which kernels and the server meet.
fn socket(runtime: &Path) -> PathBuf {
    std::fs::read_dir(runtime.join("cellblock"))
        .expect("the folder")
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "sock"))
        .expect("a socket")
}

async fn gone(runtime: &Path) {
    for _ in 0..200 {
        if servers(runtime).is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the server outlived its last kernel: {:?}", servers(runtime));
}

#[tokio::test]
async fn a_real_model_answers_is_interrupted_and_is_shared_until_its_last_kernel_is_gone() {
    let folder = installed().await;
    let runtime = tempfile::tempdir().expect("a folder");
    let (one, two) = (kernel(&folder, runtime.path()), kernel(&folder, runtime.path()));

    // Both start it at the same moment; there is one server all the same.
    let question = "What is the capital of France? Answer in one short sentence.";
    let ((first, events), (second, _)) = tokio::join!(ask(&one, question), ask(&two, question));
    let reply = first.expect("an answer");
    assert!(reply.text.contains("Paris"), "{}", reply.text);
    assert_eq!(reply.ending, Ending::Complete);
    assert!(reply.usage.input_tokens.is_some_and(|n| n > 10), "{:?}", reply.usage);
    assert!(reply.usage.output_tokens.is_some_and(|n| n > 1), "{:?}", reply.usage);
    assert!(reply.model.is_some_and(|model| model.starts_with("local/")));
    assert!(progress(&events).iter().any(|line| line.contains("local model")), "{events:?}");
    assert_eq!(progress(&events).last(), Some(&""));
    assert!(second.expect("an answer").text.contains("Paris"));
    assert_eq!(servers(runtime.path()).len(), 1);

    let long = "Count from 1 to 100 in words, one number a line.";
    let (reply, events) = ask_until(&one, long, |events| texts(events).len() == 5).await;
    let reply = reply.expect("a part of an answer");
    assert_eq!(reply.ending, Ending::Interrupted);
    assert_eq!(reply.text, texts(&events).concat());

    one.shutdown().await;
    ask(&two, "And of Italy?").await.0.expect("the other kernel still has it");
    // A kernel is whoever holds a connection; this one will be killed.
    let holder = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                  print(len(s.recv(4096)), flush=True); time.sleep(600)";
    let mut killed = tokio::process::Command::new("python3")
        .args(["-c", holder])
        .arg(socket(runtime.path()))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("python3");
    let mut said = killed.stdout.take().expect("its output");
    assert!(said.read_u8().await.is_ok(), "the third kernel got no answer");
    two.shutdown().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(servers(runtime.path()).len(), 1, "the server left a kernel behind");
    killed.kill().await.expect("kill -9");
    gone(runtime.path()).await;

    // It can be had again.
    assert!(ask(&two, question).await.0.expect("an answer").text.contains("Paris"));
    two.shutdown().await;
    gone(runtime.path()).await;
}

#[tokio::test]
async fn a_server_that_was_killed_is_started_anew() {
    let folder = installed().await;
    let runtime = tempfile::tempdir().expect("a folder");
    let chat = kernel(&folder, runtime.path());
    ask(&chat, "Say hello.").await.0.expect("an answer");
    for pid in servers(runtime.path()) {
        let status = std::process::Command::new("kill").args(["-9", &pid]).status().expect("kill");
        assert!(status.success());
    }
    gone(runtime.path()).await;
    ask(&chat, "Say hello.").await.0.expect("an answer from a new server");
    chat.shutdown().await;
    gone(runtime.path()).await;
}

#[tokio::test]
async fn nobody_without_the_token_or_the_users_rights_gets_an_answer() {
    use std::os::unix::fs::PermissionsExt;
    let folder = installed().await;
    let runtime = tempfile::tempdir().expect("a folder");
    let chat = kernel(&folder, runtime.path());
    ask(&chat, "Say hello.").await.0.expect("an answer");
    let meeting = runtime.path().join("cellblock");
    assert_eq!(std::fs::metadata(&meeting).expect("the folder").permissions().mode() & 0o777, 0o700);
    let mut stream = tokio::net::UnixStream::connect(socket(runtime.path())).await.expect("a connection");
    let mut line = vec![0; 4096];
    let read = stream.read(&mut line).await.expect("an answer");
    let found: serde_json::Value = serde_json::from_slice(&line[..read]).expect("a line of JSON");
    let url = found["url"].as_str().expect("its address");
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    // With the wrong key the same server answers nothing.
    let mut wrong = settings(url);
    wrong.api_key = Some(cellblock::config::Secret::new("guessed"));
    let Err(ChatError::Key(_)) = ask(&crate::chat_server::chat(&wrong), "?").await.0 else {
        panic!("it answered without the token")
    };
    drop(stream);
    chat.shutdown().await;
    gone(runtime.path()).await;
}

#[tokio::test]
async fn a_broken_installation_says_what_broke_and_how_to_mend_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let runtime = tempfile::tempdir().expect("a folder");
    let chat = kernel(dir.path(), runtime.path());
    let Err(ChatError::Local(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains("not installed") && text.contains("get-model"), "{text}");

    std::fs::create_dir_all(dir.path().join("venv/bin")).expect("a folder");
    std::fs::write(dir.path().join("model.json"), r#"{"name": "x"}"#).expect("a file");
    std::fs::write(dir.path().join("model.gguf"), "no model").expect("a file");
    let python = dir.path().join("venv/bin/python");
    std::fs::write(&python, "#!/bin/sh\necho 'no such module' >&2\nexit 3\n").expect("a file");
    let executable = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    std::fs::set_permissions(&python, executable).expect("permissions");
    let Err(ChatError::Local(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains("no such module") && text.contains("get-model"), "{text}");

    // A whole installation whose model is none.
    std::fs::remove_dir_all(dir.path().join("venv")).expect("a folder");
    std::os::unix::fs::symlink(installed().await.join("venv"), dir.path().join("venv")).expect("a link");
    let Err(ChatError::Local(text)) = ask(&chat, "?").await.0 else { panic!("no failure") };
    assert!(text.contains("can't be loaded") || text.contains("ended three times"), "{text}");
    println!("{text}");
    gone(runtime.path()).await;
}

#[tokio::test]
async fn a_meeting_place_that_is_not_ours_is_refused() {
    let folder = installed().await;
    let runtime = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::symlink("/tmp", runtime.path().join("cellblock")).expect("a link");
    let Err(ChatError::Local(text)) = ask(&kernel(&folder, runtime.path()), "?").await.0 else {
        panic!("no failure")
    };
    assert!(text.contains("not a folder of yours"), "{text}");
}
