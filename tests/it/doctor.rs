//! `cellblock doctor`: what it finds, what it says to do, and how it ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::cli::{cellblock, text};

/// A home in which everything but an engine is well: a Jupyter that knows where it looks, and kernelspecs.
struct World {
    home: TempDir,
}

impl World {
    fn new() -> Self {
        let world = World { home: TempDir::new().unwrap() };
        let data = world.path(".local/share/jupyter");
        world.program("bin/jupyter", &format!("echo '{{\"data\": [\"{}\"]}}'", data.display()));
        assert!(world.command().arg("install").status().unwrap().success());
        world
    }
    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }
    fn program(&self, name: &str, script: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    /// No engine, no model, our Jupyter.
    fn command(&self) -> Command {
        let mut command = cellblock(self.home.path());
        command
            .env("PATH", self.path("bin"))
            .env("DOCKER_HOST", format!("unix://{}", self.path("no.sock").display()))
            .env("OLLAMA_HOST", "127.0.0.1:1");
        command
    }
    fn doctor(&self) -> Output {
        self.command().arg("doctor").output().unwrap()
    }
}

/// The line of one subject with that text, and the line after it.
fn finding(shown: &str, level: &str, subject: &str, what: &str) -> String {
    let lines: Vec<&str> = shown.lines().collect();
    let at = lines.iter().position(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(level) && words.next() == Some(subject) && line.contains(what)
    });
    let at = at.unwrap_or_else(|| panic!("no {level} of {subject} with `{what}` in\n{shown}"));
    lines[at..lines.len().min(at + 2)].join("\n")
}

#[test]
fn a_missing_engine_is_a_problem_that_names_the_address_and_the_remedy() {
    let world = World::new();
    let output = world.doctor();
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    let said = finding(&shown, "problem", "engine", "no.sock");
    assert!(said.contains("DOCKER_HOST") && said.contains("-> "), "{said}");
    assert!(shown.ends_with("1 problem, 1 warning.\n"), "{shown}");
    // The rest was looked at all the same.
    finding(&shown, "ok", "settings", "built-in values");
    finding(&shown, "ok", "workspace", "will be made");
    finding(&shown, "ok", "jupyter", "kernels/cellblock-python");
    assert!(finding(&shown, "warning", "model", "no model").contains("OPENAI_API_KEY"));
    assert!(!shown.contains('\x1b'), "no colours where there is no terminal");
}

#[test]
fn with_an_engine_kernels_can_work_and_the_exit_code_says_so() {
    let world = World::new();
    let output = world.command().env_remove("DOCKER_HOST").arg("doctor").output().unwrap();
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    finding(&shown, "ok", "engine", ", API 1.");
    assert!(shown.contains("Kernels can work; ") || shown.contains("All is well."), "{shown}");
}

#[test]
fn an_engine_that_never_answers_costs_some_seconds_and_no_more() {
    let world = World::new();
    let socket = world.path("silent.sock");
    let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    world.program("bin/jupyter", "exec /bin/sleep 1000");
    let host = format!("unix://{}", socket.display());
    let output = world.command().env("DOCKER_HOST", host).arg("doctor").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    finding(&shown, "problem", "engine", "no answer within");
    finding(&shown, "problem", "jupyter", "no answer within");
    finding(&shown, "ok", "settings", "");
}

#[test]
fn wrong_settings_are_a_problem_and_refused_ones_a_warning() {
    let world = World::new();
    fs::write(world.path("cellblock.toml"), "[sandbox]\nnetwork = 'bridge'\nmemry = '1g'\n").unwrap();
    let output = world.doctor();
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    finding(&shown, "problem", "settings", "sandbox.memry");
    finding(&shown, "warning", "settings", "sandbox.network = bridge was ignored");
}

#[test]
fn a_model_that_is_configured_and_does_not_answer_is_a_problem() {
    let world = World::new();
    let output = world
        .command()
        .args(["doctor", "--set", "model.base_url=http://127.0.0.1:1/v1", "--set", "model.name=openai/m"])
        .env("CELLBLOCK_MODEL__API_KEY", "sk-hidden")
        .output()
        .unwrap();
    let shown = text(&output.stdout);
    assert!(finding(&shown, "problem", "model", "openai/m").contains("127.0.0.1:1"), "{shown}");
    assert!(!shown.contains("sk-hidden"));
}

#[test]
fn a_workspace_that_leads_outside_is_a_problem_unless_it_is_allowed() {
    let world = World::new();
    let elsewhere = TempDir::new().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), world.path("workspace")).unwrap();
    let shown = text(&world.doctor().stdout);
    assert!(finding(&shown, "problem", "workspace", "outside").contains("sandbox.workspace_outside"));
    let output =
        world.command().args(["doctor", "--set", "sandbox.workspace_outside=true"]).output().unwrap();
    finding(&text(&output.stdout), "ok", "workspace", "");
    fs::remove_file(world.path("workspace")).unwrap();
    fs::write(world.path("workspace"), "").unwrap();
    finding(&text(&world.doctor().stdout), "problem", "workspace", "is not a directory");
    fs::remove_file(world.path("workspace")).unwrap();
    std::os::unix::fs::symlink("/nowhere/at/all", world.path("workspace")).unwrap();
    finding(&text(&world.doctor().stdout), "problem", "workspace", "can't be followed");
}

#[test]
fn jupyter_must_be_there_and_find_our_kernelspecs_starting_this_program() {
    let world = World::new();
    let kernels = world.path(".local/share/jupyter/kernels");
    let spec = kernels.join("cellblock/kernel.json");
    let ours = fs::read_to_string(&spec).unwrap();
    let this = Path::new(env!("CARGO_BIN_EXE_cellblock")).canonicalize().unwrap();
    let starting =
        |program: &str| fs::write(&spec, ours.replace(&this.display().to_string(), program)).unwrap();

    starting("/gone/cellblock");
    finding(&text(&world.doctor().stdout), "problem", "jupyter", "/gone/cellblock, which does not exist");
    starting("/bin/sh");
    finding(&text(&world.doctor().stdout), "warning", "jupyter", "starts another program, /bin/sh");
    fs::write(&spec, "{}").unwrap();
    finding(&text(&world.doctor().stdout), "problem", "jupyter", "is not ours");
    fs::remove_dir_all(kernels.join("cellblock")).unwrap();
    let shown = text(&world.doctor().stdout);
    assert!(finding(&shown, "problem", "jupyter", "cellblock is not in any").contains("cellblock install"));

    world.program("bin/jupyter", "echo broken >&2; exit 3");
    finding(&text(&world.doctor().stdout), "problem", "jupyter", "broken");
    fs::remove_file(world.path("bin/jupyter")).unwrap();
    let shown = text(&world.doctor().stdout);
    assert!(finding(&shown, "problem", "jupyter", "no `jupyter`").contains("pip install jupyterlab"));
}
