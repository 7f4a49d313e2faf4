//! `cellblock install` and `cellblock uninstall`: where Jupyter looks for kernelspecs.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use super::arguments::Location;
use super::exit::{CliError, emit};
use super::kernelspec::{KERNELSPECS, Owner};
use crate::config::Environment;

pub(crate) fn install(location: &Location, environment: &Environment) -> Result<ExitCode, CliError> {
    let kernels = kernels_dir(location, environment)?;
    let executable = Environment::executable().context("the path of this program can't be found")?;
    if !executable.is_file() {
        return Err(CliError::hinted(
            anyhow!(
                "this program is not at {} any more, so Jupyter could not start it",
                executable.display()
            ),
            "it was replaced or removed while it ran: run the new one",
        ));
    }
    let mut text = String::new();
    for spec in &KERNELSPECS {
        let written = spec.write(&kernels, &executable).map_err(|error| {
            CliError::hinted(error, "choose another place with --user, --sys-prefix or --prefix PREFIX")
        })?;
        // Writing to a String does not fail.
        let _ = writeln!(text, "installed {} in {}", spec.name, written.display());
    }
    emit(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn uninstall(location: &Location, environment: &Environment) -> Result<ExitCode, CliError> {
    let kernels = kernels_dir(location, environment)?;
    let mut text = String::new();
    for spec in &KERNELSPECS {
        let at = kernels.join(spec.name);
        let _ = match spec.remove(&kernels)? {
            Owner::Ours(_) => writeln!(text, "removed {}", at.display()),
            Owner::Nobody => writeln!(text, "there is no {}", at.display()),
            Owner::Other => {
                writeln!(text, "left {} alone: `cellblock install` did not write it", at.display())
            }
        };
    }
    emit(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The directory of kernelspecs that the options name.
fn kernels_dir(location: &Location, environment: &Environment) -> Result<PathBuf, CliError> {
    let of_prefix = |prefix: &Path| prefix.join("share/jupyter/kernels");
    if let Some(prefix) = &location.prefix {
        let prefix = std::path::absolute(prefix).context("the prefix can't be made absolute")?;
        return Ok(of_prefix(&prefix));
    }
    if location.sys_prefix {
        return active_prefix(environment).map(|prefix| of_prefix(&prefix)).ok_or_else(|| {
            CliError::hinted(
                anyhow!("no Python environment is active, and neither jupyter nor python3 is on the PATH"),
                "activate the environment, or name it with --prefix PREFIX",
            )
        });
    }
    environment.jupyter_data_dir().map(|dir| dir.join("kernels")).ok_or_else(|| {
        CliError::hinted(
            anyhow!("this user's Jupyter directory can't be found: HOME is not set"),
            "set HOME or JUPYTER_DATA_DIR, or name a place with --prefix PREFIX",
        )
    })
}

/// The prefix of the Python environment that the user works in.
pub(crate) fn active_prefix(environment: &Environment) -> Option<PathBuf> {
    environment
        .active_prefix()
        .or_else(|| prefix_of_jupyter(environment))
        .or_else(|| prefix_of_python(environment))
}

/// The virtual environment that `jupyter` on the PATH lies in.
fn prefix_of_jupyter(environment: &Environment) -> Option<PathBuf> {
    let jupyter = environment.find_program("jupyter")?;
    // A link in ~/.local/bin leads to the environment that pipx made.
    [jupyter.canonicalize().ok()?, jupyter]
        .iter()
        .filter_map(|path| path.parent()?.parent().map(Path::to_owned))
        .find(|prefix| prefix.join("pyvenv.cfg").is_file())
}

/// What the first `python3` on the PATH says its prefix is.
fn prefix_of_python(environment: &Environment) -> Option<PathBuf> {
    let python = environment.find_program("python3")?;
    let output = std::process::Command::new(python)
        .args(["-I", "-c", "import sys; print(sys.prefix)"])
        .stdin(std::process::Stdio::null())
        .output()
        .ok()?;
    let prefix = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim_end());
    (output.status.success() && prefix.is_absolute()).then_some(prefix)
}
