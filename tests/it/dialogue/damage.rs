//! A database that is damaged, locked, foreign or not to be had costs a warning, never a cell.

use std::path::Path;
use std::time::Instant;

use rusqlite::Connection;

use super::{ask_in, kernel};
use crate::chat_server::*;
use crate::containers::PATIENCE;

/// Asks with a database in that state; what the user is told.
async fn told(folder: &Path) -> String {
    let server = Server::play(vec![answer(&["1"]), answer(&["2"])]).await;
    let chat = kernel(&server, folder);
    assert_eq!(ask_in(&chat, "a", "one").await.0.unwrap().text, "1");
    assert_eq!(chat.resume().await, None);
    assert_eq!(ask_in(&chat, "b", "two").await.0.unwrap().text, "2");
    assert_eq!(super::sent(&server, 1), ["one", "1", "two"], "it is remembered all the same");
    chat.shutdown().await;
    let remarks = chat.remarks();
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(remarks[0].contains("dialogues.sqlite"), "{remarks:?}");
    remarks[0].clone()
}

#[tokio::test]
async fn a_damaged_one_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data/dialogues.sqlite");
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let garbage = b"this is no database, and never was. ".repeat(300);
    std::fs::write(&file, &garbage).unwrap();
    let told = told(folder.path()).await;
    assert!(told.contains("in memory only") && told.contains("Move the file away"), "{told}");
    assert_eq!(std::fs::read(&file).unwrap(), garbage);
}

#[tokio::test]
async fn a_newer_one_and_a_foreign_one_are_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data/dialogues.sqlite");
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let database = Connection::open(&file).unwrap();
    database.execute_batch("CREATE TABLE mine (x); PRAGMA user_version = 7;").unwrap();
    let foreign = told(folder.path()).await;
    assert!(
        foreign.contains("belongs to another program") && foreign.contains("conversation.file"),
        "{foreign}"
    );
    database.execute_batch("PRAGMA application_id = 1130720364; PRAGMA user_version = 1000;").unwrap();
    let newer = told(folder.path()).await;
    assert!(newer.contains("newer Cellblock (schema 1000"), "{newer}");
    let tables: i64 = database.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 1);
}

#[tokio::test]
async fn one_that_can_not_be_made_is_done_without() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("data/dialogues.sqlite")).unwrap();
    assert!(told(folder.path()).await.contains("can't be opened"));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data"), "a file where the folder should be").unwrap();
    assert!(told(folder.path()).await.contains("can't be opened"));
}

#[tokio::test]
async fn one_that_is_removed_while_it_is_used_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["1"]), answer(&["2"]), answer(&["3"])]).await;
    let chat = kernel(&server, folder.path());
    ask_in(&chat, "a", "one").await.0.unwrap();
    let file = folder.path().join("data/dialogues.sqlite");
    let written = || -> rusqlite::Result<bool> {
        Connection::open(&file)?
            .query_row("SELECT count(*) FROM step", [], |row| row.get::<_, i64>(0))
            .map(|steps| steps > 1)
    };
    let begun = Instant::now();
    while !written().unwrap_or(false) {
        assert!(begun.elapsed() < PATIENCE, "nothing is written");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    std::fs::remove_file(&file).unwrap();
    ask_in(&chat, "b", "two").await.0.unwrap();
    ask_in(&chat, "c", "three").await.0.unwrap();
    assert_eq!(super::sent(&server, 2), ["one", "1", "two", "2", "three"], "it is remembered all the same");
    chat.shutdown().await;
    let said = chat.remarks().join("\n");
    assert!(said.contains("was removed or replaced") && said.contains("Restart the kernel"), "{said}");
    assert!(!file.exists(), "nothing is made in its place");
}

#[tokio::test]
async fn a_locked_one_is_waited_for_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["1"])]).await;
    let chat = kernel(&server, folder.path());
    ask_in(&chat, "a", "one").await.0.unwrap();
    chat.shutdown().await;
    let file = folder.path().join("data/dialogues.sqlite");
    let other = Connection::open(&file).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The answer does not wait for the disk.
    ask_in(&chat, "b", "two").await.0.unwrap();
    let begun = Instant::now();
    let mut remarks = Vec::new();
    while remarks.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "nothing is said");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        remarks = chat.remarks();
    }
    assert!(remarks[0].contains("locked") && remarks[0].contains("tried again"), "{remarks:?}");
    other.execute_batch("COMMIT").unwrap();
    let count = || -> i64 { other.query_row("SELECT count(*) FROM turn", [], |row| row.get(0)).unwrap() };
    while count() < 2 {
        assert!(begun.elapsed() < PATIENCE, "it is never written");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn texts_that_are_no_longer_readable_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::play(vec![answer(&["1"]), answer(&["2"])]).await;
    let chat = kernel(&server, folder.path());
    ask_in(&chat, "a", "one").await.0.unwrap();
    ask_in(&chat, "b", "two").await.0.unwrap();
    chat.shutdown().await;
    let database = Connection::open(folder.path().join("data/dialogues.sqlite")).unwrap();
    database.execute_batch("UPDATE step SET body = '{' WHERE body LIKE '%one%'").unwrap();
    let chat = kernel(&server, folder.path());
    assert_eq!(chat.resume().await.unwrap().turns, 2);
    ask_in(&chat, "c", "three").await.0.unwrap();
    let texts = super::sent(&server, 2);
    assert!(texts.iter().any(|text| text == "two") && !texts.iter().any(|text| text == "one"), "{texts:?}");
}
