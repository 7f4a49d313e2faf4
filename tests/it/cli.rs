//! The command line: its reference, exit codes, and output to readers that leave.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use super::config::same_as_document;

/// The binary in an empty environment, with a home and a working directory of its own.
pub(crate) fn cellblock(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cellblock"));
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").current_dir(home).stdin(Stdio::null());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn run(arguments: &[&str]) -> Output {
    let home = TempDir::new().unwrap();
    cellblock(home.path()).args(arguments).output().unwrap()
}

#[test]
fn the_command_line_document_is_what_help_says() {
    let mut document = "# The command line\n\n\
        What `cellblock help` says; a test keeps the two equal (`tests/it/cli.rs`).\n"
        .to_owned();
    let main = text(&run(&["help"]).stdout);
    let subcommands: Vec<&str> = main
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(subcommands.len() > 3, "{main}");
    let _ = write!(document, "\n## `cellblock`\n\n```text\n{main}```\n");
    for subcommand in subcommands {
        let help = run(&[subcommand, "--help"]);
        assert!(help.status.success());
        let _ = write!(document, "\n## `cellblock {subcommand}`\n\n```text\n{}```\n", text(&help.stdout));
    }
    same_as_document("cli.md", &document);
}

#[test]
fn the_version_is_the_packages() {
    let output = run(&["--version"]);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), format!("cellblock {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_wrong_command_line_ends_with_2_and_says_so_on_standard_error() {
    for arguments in
        [&["instal"][..], &[], &["install", "--user", "--sys-prefix"], &["config", "--flavor", "ruby"]]
    {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(text(&output.stdout), "");
        assert!(!output.stderr.is_empty());
    }
    assert!(text(&run(&["instal"]).stderr).contains("install"), "the nearest command is offered");
}

#[test]
fn wrong_settings_end_with_3_and_name_the_place() {
    let output = run(&["config", "--set", "sandbox.memry=1g"]);
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert!(said.starts_with("error: --set sandbox.memry: there is no setting sandbox.memry"), "{said}");
    assert!(said.contains("hint: "), "{said}");
    assert!(text(&output.stdout).contains("sandbox.memory"), "the rest is shown all the same");
}

#[test]
fn config_shows_every_value_with_its_origin_and_what_was_refused() {
    let home = TempDir::new().unwrap();
    std::fs::write(home.path().join("cellblock.toml"), "[sandbox]\nnetwork = 'bridge'\npids = 99\n").unwrap();
    let output =
        cellblock(home.path()).arg("config").env("CELLBLOCK_MODEL__API_KEY", "sk-hidden").output().unwrap();
    assert!(output.status.success());
    let (shown, said) = (text(&output.stdout), text(&output.stderr));
    let row = |key: &str| {
        let row = shown.lines().find(|line| line.starts_with(key)).unwrap();
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(row("sandbox.pids").ends_with("cellblock.toml:3"), "{shown}");
    assert_eq!(row("sandbox.network"), "sandbox.network none built-in");
    assert_eq!(row("model.api_key "), "model.api_key (hidden) CELLBLOCK_MODEL__API_KEY");
    assert!(said.contains("warning: ") && said.contains("sandbox.network = bridge was ignored"), "{said}");
    assert!(!format!("{shown}{said}").contains("sk-hidden"));
}

#[test]
fn config_as_json_has_the_same_for_programs() {
    let home = TempDir::new().unwrap();
    std::fs::write(home.path().join("cellblock.toml"), "[sandbox]\nnetwork = 'bridge'\nx = 1\n").unwrap();
    let output = cellblock(home.path()).args(["config", "--json", "--flavor", "python"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let settings = shown["settings"].as_array().unwrap();
    let timeout = settings.iter().find(|row| row["key"] == "sandbox.timeout").unwrap();
    assert_eq!(timeout["value"], "none");
    assert_eq!(timeout["origin"], "built-in");
    assert_eq!(timeout["variable"], "CELLBLOCK_SANDBOX__TIMEOUT");
    assert!(shown["refused"][0].as_str().unwrap().contains("sandbox.network"));
    assert!(shown["errors"][0].as_str().unwrap().contains("sandbox.x"));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let home = TempDir::new().unwrap();
    for arguments in [&["config"][..], &["completions", "zsh"], &["help"]] {
        let mut child = cellblock(home.path())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        assert!(output.status.success(), "{arguments:?}");
    }
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success() && text(&output.stdout).contains("uninstall"), "{shell}");
    }
}

#[test]
fn a_kernel_without_a_usable_connection_file_says_who_writes_it() {
    let home = TempDir::new().unwrap();
    std::fs::write(home.path().join("half.json"), "{").unwrap();
    for file in ["missing.json", "half.json"] {
        let output = cellblock(home.path()).args(["kernel", "-f", file]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{file}");
        let said = text(&output.stderr);
        assert!(
            said.starts_with("error: ") && said.contains(file) && said.contains("hint: Jupyter"),
            "{said}"
        );
        let why = if file == "missing.json" { "os error" } else { "EOF" };
        assert_eq!(said.matches(why).count(), 1, "the cause is told once: {said}");
    }
    assert_eq!(run(&["kernel"]).status.code(), Some(2));
}
