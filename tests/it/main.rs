//! The integration tests, one binary.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a failed test panics")]

mod cells;
mod chat;
mod chat_failures;
mod chat_keys;
mod chat_local;
mod chat_providers;
mod chat_server;
mod cli;
mod config;
mod containers;
mod docker;
mod doctor;
mod images;
mod install;
mod layering;
mod limits;
mod neighbour;
mod protocol;
mod protocol_flood;
mod reaper;
mod scripted;
mod session;
mod wire_client;
mod workspace;
