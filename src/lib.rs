//! Cellblock: a Jupyter kernel whose cells are Markdown.
//!
//! Prose goes to a language model, fenced code runs in a hardened container, and everything that
//! either of them says streams into the notebook while it happens.
//!
//! # The floors
//!
//! A module imports only modules above it in this list; `tests/it/layering.rs` enforces it.
//!
//! | module | what lives there | may import |
//! | --- | --- | --- |
//! | [`event`] | what a run can show, the sanitising of rich output, questions to the user | nothing of ours |
//! | [`config`] | layered settings, each value with its origin; what project files may do | nothing of ours |
//! | [`cell`] | cell text to directives, prose and fenced blocks | nothing of ours |
//! | [`sandbox`] | containers, the supervisor inside them, sessions, limits, reaping | `event`, `config` |
//! | [`chat`] | models, the conversation, prompts | `event`, `config` |
//! | [`engine`] | what a cell means: run blocks, ask the model | all of the above |
//! | [`jupyter`] | the wire protocol, sockets, dispatch, iopub | `event`, `config`, `engine`, `cell` |
//! | [`cli`] | subcommands; the composition root | all |
//!
//! The way of a message: frames are authenticated in `jupyter::wire`, dispatched to
//! [`engine::Interpreter::execute`], parsed by [`cell::parse`], run by [`sandbox::Sandbox::run`] or answered
//! by [`chat::Chat::ask`]; what they show comes back as [`event::Event`]s and leaves through
//! `jupyter::iopub`.

pub mod cell;
pub mod chat;
pub mod cli;
pub mod config;
pub mod engine;
pub mod event;
pub mod jupyter;
pub mod sandbox;
