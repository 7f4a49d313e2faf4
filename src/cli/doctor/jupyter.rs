//! Is there a Jupyter, and does it find our kernelspecs, starting this very binary?

use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::Surroundings;
use super::report::Report;
use crate::cli::install::active_prefix;
use crate::cli::kernelspec::{KERNELSPECS, Owner};
use crate::config::Environment;

const INSTALL_JUPYTER: &str =
    "install it (`pip install jupyterlab`), or activate the environment that has it";

pub(super) async fn check(around: &Surroundings) -> Report {
    let environment = &around.environment;
    let jupyter = environment
        .find_program("jupyter")
        .or_else(|| active_prefix(environment).map(|p| p.join("bin/jupyter")).filter(|path| path.is_file()));
    let Some(jupyter) = jupyter else {
        return Report::problem("there is no `jupyter` on the PATH", INSTALL_JUPYTER);
    };
    let dirs = match data_dirs(&jupyter).await {
        Ok(dirs) => dirs,
        Err(why) => {
            return Report::problem(
                format!("`{} --paths --json` failed: {why}", jupyter.display()),
                "see what it says when you run it; reinstalling jupyter-core usually helps",
            );
        }
    };
    let mut report = Report::good(jupyter.display().to_string());
    let this = Environment::executable().and_then(|path| path.canonicalize()).ok();
    for spec in &KERNELSPECS {
        kernelspec(&mut report, spec.name, &dirs, this.as_deref());
    }
    report
}

/// The directories in which Jupyter looks for data, in its order.
async fn data_dirs(jupyter: &Path) -> Result<Vec<PathBuf>, String> {
    let output = tokio::process::Command::new(jupyter)
        .args(["--paths", "--json"])
        .stdin(Stdio::null())
        // When time is up, the future is dropped and the process with it.
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} ({})", said.lines().last().unwrap_or_default(), output.status));
    }
    let paths: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let dirs: Vec<PathBuf> = paths["data"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|dir| dir.as_str())
        .map(PathBuf::from)
        .collect();
    if dirs.is_empty() { Err("it names no data directories".to_owned()) } else { Ok(dirs) }
}

/// Judges the kernelspec of that name that Jupyter would take.
fn kernelspec(report: &mut Report, name: &str, dirs: &[PathBuf], this: Option<&Path>) {
    let found =
        dirs.iter().map(|dir| dir.join("kernels").join(name)).find(|dir| Owner::of(dir) != Owner::Nobody);
    let Some(found) = found else {
        return report.add_problem(
            format!("the kernelspec {name} is not in any of Jupyter's directories"),
            "`cellblock install` (or `cellblock install --sys-prefix` for the active environment only)",
        );
    };
    let at = found.display();
    let Owner::Ours(program) = Owner::of(&found) else {
        return report.add_problem(
            format!("{at} is not ours: Jupyter would start something else"),
            format!("`jupyter kernelspec remove {name}`, then `cellblock install`"),
        );
    };
    match program.canonicalize() {
        Err(_) => report.add_problem(
            format!("{at} starts {}, which does not exist", program.display()),
            "`cellblock install` writes it again, for this program",
        ),
        Ok(real) if this.is_some_and(|this| this == real) => report.add_good(at.to_string()),
        Ok(_) => report.add_warning(
            format!("{at} starts another program, {}", program.display()),
            "`cellblock install` if you want this one instead",
        ),
    }
}
