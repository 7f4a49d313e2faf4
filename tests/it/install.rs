//! `cellblock install` and `cellblock uninstall`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::cli::{cellblock, text};

const NAMES: [&str; 2] = ["cellblock", "cellblock-python"];

fn spec(kernels: &Path, name: &str) -> Value {
    serde_json::from_slice(&fs::read(kernels.join(name).join("kernel.json")).unwrap()).unwrap()
}

fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_kernelspec_has_what_jupyter_needs_to_start_this_very_binary() {
    let home = TempDir::new().unwrap();
    assert!(cellblock(home.path()).arg("install").status().unwrap().success());
    let kernels = home.path().join(".local/share/jupyter/kernels");
    assert_eq!(entries(&kernels), NAMES);
    // Nothing is left of the making, neither where Jupyter looks nor beside it.
    assert_eq!(entries(kernels.parent().unwrap()), ["kernels"]);
    for (name, flavor, display) in
        [(NAMES[0], "markdown", "Cellblock"), (NAMES[1], "python", "Python (sandboxed)")]
    {
        let spec = spec(&kernels, name);
        let executable = Path::new(env!("CARGO_BIN_EXE_cellblock")).canonicalize().unwrap();
        assert_eq!(
            spec["argv"],
            json!([executable, "kernel", "--flavor", flavor, "-f", "{connection_file}"])
        );
        assert_eq!(spec["display_name"], display);
        assert_eq!(spec["language"], flavor);
        assert_eq!(spec["interrupt_mode"], "message");
        assert_eq!(spec["kernel_protocol_version"], "5.5");
        assert_eq!(spec["metadata"]["debugger"], false);
        let dir = kernels.join(name);
        assert_eq!(entries(&dir), ["kernel.json", "logo-32x32.png", "logo-64x64.png", "logo-svg.svg"]);
        for size in [32, 64] {
            let png = fs::read(dir.join(format!("logo-{size}x{size}.png"))).unwrap();
            assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
            // Width and height stand at fixed places of the header.
            assert_eq!([&png[16..20], &png[20..24]], [[0, 0, 0, size], [0, 0, 0, size]]);
        }
        assert!(fs::read_to_string(dir.join("logo-svg.svg")).unwrap().starts_with("<svg "));
    }
}

#[test]
fn other_users_can_read_what_is_installed_for_an_environment() {
    let home = TempDir::new().unwrap();
    let prefix = home.path().join("venv");
    assert!(cellblock(home.path()).args(["install", "--prefix", "venv"]).status().unwrap().success());
    let kernel = prefix.join("share/jupyter/kernels/cellblock");
    let mode = |path: PathBuf| path.metadata().unwrap().permissions().mode() & 0o005;
    assert_eq!((mode(kernel.clone()), mode(kernel.join("kernel.json"))), (0o005, 0o004));
}

#[test]
fn each_option_installs_where_jupyter_looks() {
    let home = TempDir::new().unwrap();
    let at = |path: &str| home.path().join(path);
    let jupyter = at("env/bin/jupyter");
    fs::create_dir_all(jupyter.parent().unwrap()).unwrap();
    fs::write(&jupyter, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&jupyter, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(at("env/pyvenv.cfg"), "").unwrap();
    fs::create_dir_all(at("links")).unwrap();
    std::os::unix::fs::symlink(&jupyter, at("links/jupyter")).unwrap();
    let path = |p: &str| at(p).display().to_string();
    for (arguments, variables, place) in [
        (&["--user"][..], vec![], ".local/share/jupyter/kernels"),
        (&["--user"], vec![("XDG_DATA_HOME", path("xdg"))], "xdg/jupyter/kernels"),
        (&["--user"], vec![("JUPYTER_DATA_DIR", path("jd"))], "jd/kernels"),
        (&["--prefix", "p"], vec![("VIRTUAL_ENV", path("v"))], "p/share/jupyter/kernels"),
        (&["--sys-prefix"], vec![("VIRTUAL_ENV", path("v"))], "v/share/jupyter/kernels"),
        (&["--sys-prefix"], vec![("CONDA_PREFIX", path("c"))], "c/share/jupyter/kernels"),
        (&["--sys-prefix"], vec![("PATH", path("env/bin"))], "env/share/jupyter/kernels"),
        (&["--sys-prefix"], vec![("PATH", path("links"))], "env/share/jupyter/kernels"),
    ] {
        for (action, remaining) in [("install", 2), ("uninstall", 0)] {
            let output =
                cellblock(home.path()).arg(action).args(arguments).envs(variables.clone()).output().unwrap();
            assert!(output.status.success(), "{arguments:?} {variables:?}: {}", text(&output.stderr));
            assert_eq!(entries(&at(place)).len(), remaining, "{action} {arguments:?} {variables:?}");
        }
    }
}

#[test]
fn installing_again_replaces_and_uninstalling_again_is_no_error() {
    let home = TempDir::new().unwrap();
    let kernels = home.path().join(".local/share/jupyter/kernels");
    cellblock(home.path()).arg("install").status().unwrap();
    fs::write(kernels.join("cellblock/leftover"), "of an older version").unwrap();
    assert!(cellblock(home.path()).arg("install").status().unwrap().success());
    assert!(!kernels.join("cellblock/leftover").exists());
    assert!(cellblock(home.path()).arg("uninstall").status().unwrap().success());
    let again = cellblock(home.path()).arg("uninstall").output().unwrap();
    assert!(again.status.success());
    assert!(text(&again.stdout).contains("there is no "));
    assert_eq!(entries(kernels.parent().unwrap()), ["kernels"]);
}

#[test]
fn kernelspecs_of_others_are_never_touched() {
    let home = TempDir::new().unwrap();
    let kernels = home.path().join(".local/share/jupyter/kernels");
    fs::create_dir_all(kernels.join("python3")).unwrap();
    fs::create_dir_all(kernels.join("cellblock")).unwrap();
    let theirs = r#"{"argv": ["other"], "metadata": {}}"#;
    fs::write(kernels.join("cellblock/kernel.json"), theirs).unwrap();
    let elsewhere = home.path().join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::write(elsewhere.join("kernel.json"), r#"{"metadata": {"cellblock": {}}}"#).unwrap();
    std::os::unix::fs::symlink(&elsewhere, kernels.join("cellblock-python")).unwrap();
    let install = cellblock(home.path()).arg("install").output().unwrap();
    assert_eq!(install.status.code(), Some(1));
    assert!(text(&install.stderr).contains("`cellblock install` did not write"), "{}", text(&install.stderr));
    let uninstall = cellblock(home.path()).arg("uninstall").output().unwrap();
    assert!(uninstall.status.success());
    assert_eq!(text(&uninstall.stdout).matches("alone").count(), 2);
    assert_eq!(fs::read_to_string(kernels.join("cellblock/kernel.json")).unwrap(), theirs);
    assert_eq!(entries(&kernels), ["cellblock", "cellblock-python", "python3"]);
    assert!(elsewhere.join("kernel.json").exists());
}

#[test]
fn a_place_that_cannot_be_used_is_an_error_with_a_hint() {
    let home = TempDir::new().unwrap();
    fs::write(home.path().join("file"), "").unwrap();
    for arguments in [&["install", "--prefix", "file"][..], &["install", "--prefix", "/proc/nowhere"]] {
        let output = cellblock(home.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains("hint: "), "{}", text(&output.stderr));
    }
    let homeless = cellblock(home.path()).env_remove("HOME").arg("install").output().unwrap();
    assert_eq!(homeless.status.code(), Some(1));
    assert!(text(&homeless.stderr).contains("HOME is not set"));
    let nothing =
        cellblock(home.path()).env("PATH", home.path()).args(["install", "--sys-prefix"]).output().unwrap();
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing.stderr).contains("--prefix PREFIX"));
}
