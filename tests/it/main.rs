//! The integration tests, one binary.
mod cli;
mod config;
mod install;
mod layering;
