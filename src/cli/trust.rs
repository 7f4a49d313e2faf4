//! `cellblock trust`: what a project asks for, allowed by the user, and bound to the project as it is.

use std::fmt::Write;
use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use super::arguments::TrustOptions;
use super::compose::Composed;
use super::exit::{CliError, complain, emit};
use crate::config::{
    Environment, Flavor, Inputs, ProjectFiles, Trust, TrustError, Trusted, forget, plain, remember, seal,
    standing, trusted,
};
use crate::sandbox::registry::Draft;

pub(crate) fn run(options: &TrustOptions, environment: Environment) -> Result<ExitCode, CliError> {
    if options.list {
        return list(&environment);
    }
    if options.revoke {
        return revoke(&options.directory, &environment);
    }
    let directory = options
        .directory
        .canonicalize()
        .with_context(|| format!("the directory {} can't be found", options.directory.display()))?;
    let project = ProjectFiles::find(&directory, &environment);
    let Some(root) = project.directory.clone() else {
        let error = anyhow!(
            "there is nothing to trust in {} or above: no cellblock.toml, no containers/registry.yaml",
            directory.display()
        );
        return Err(error.into());
    };
    let draft = Draft::read(&project, &environment);
    // Before anything is shown, so that what is trusted is what was there when it was.
    let sealed = draft.matters().map_err(TrustError::NoSeal).and_then(|matters| seal(&project, &matters));
    let inputs = Inputs { flavor: Flavor::Markdown, directory, environment, flags: Vec::new() };
    let composed = Composed::decide(&inputs, project, draft, Trust::Not);
    if let Some(problem) = composed.problem() {
        return Err(CliError::settings(problem));
    }
    let asks = asks(&composed);
    let shown = plain(&root.to_string_lossy());
    if asks.is_empty() {
        emit(&format!("{shown} asks for nothing that needs trust\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let sealed = sealed.map_err(anyhow::Error::new)?;
    let mut text = format!("{shown} asks for more than a project may have by itself:\n\n");
    for ask in &asks {
        // Writing to a String does not fail.
        let _ = writeln!(text, "  {ask}");
    }
    text.push_str(
        "\nWhat is built or run there can then use all of it, until a file of the project changes. Every notebook there \
         may then install packages without asking, too.\n",
    );
    emit(&text)?;
    if !options.yes && !confirmed(&shown)? {
        return Err(CliError::hinted(anyhow!("nothing was trusted"), "`--yes` answers the question"));
    }
    let Some(name) = root.to_str() else {
        return Err(
            anyhow!("the name of {shown} is not Unicode text, and can't be remembered; rename it").into()
        );
    };
    let since = chrono::Local::now().format("%Y-%m-%d").to_string();
    let trusted = Trusted { directory: name.to_owned(), seal: sealed, since };
    let file = remember(&inputs.environment, trusted).map_err(anyhow::Error::new)?;
    emit(&format!(
        "trusted, and remembered in {}; kernels that start from now on honour it\n",
        file.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// What trust would allow, a line each.
fn asks(composed: &Composed) -> Vec<String> {
    let refusals = composed.loaded.refusals.iter().filter(|refusal| !refusal.otherwise.is_empty());
    let settings =
        refusals.map(|refusal| format!("{} = {}   ({})", refusal.key, plain(&refusal.value), refusal.origin));
    settings.chain(composed.registry.asks.iter().cloned()).collect()
}

/// Asks at the terminal; without one, and without `--yes`, the answer is no.
fn confirmed(shown: &str) -> anyhow::Result<bool> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Ok(false);
    }
    complain(&format!("Trust {shown} as it is now? [y/N] "));
    let mut answer = String::new();
    input.lock().read_line(&mut answer).context("the answer can't be read")?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes" | "Yes"))
}

fn list(environment: &Environment) -> Result<ExitCode, CliError> {
    let all = trusted(environment).map_err(anyhow::Error::new)?;
    let mut text = String::new();
    for trusted in &all {
        let directory = Path::new(&trusted.directory);
        let project = ProjectFiles::find(directory, environment);
        let state = if project.directory.as_deref() == Some(directory) {
            let draft = Draft::read(&project, environment);
            match standing(&project, environment, || draft.matters()) {
                Trust::Given { .. } => "valid",
                _ => "changed",
            }
        } else {
            "missing"
        };
        let _ = writeln!(text, "{state:<8} {}  {}", plain(&trusted.since), plain(&trusted.directory));
    }
    if all.is_empty() {
        text.push_str("nothing is trusted\n");
    }
    emit(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The project of that directory, or one that was there.
fn revoke(directory: &Path, environment: &Environment) -> Result<ExitCode, CliError> {
    let absolute = std::path::absolute(directory).context("the directory can't be made absolute")?;
    let real = directory.canonicalize().unwrap_or_else(|_| absolute.clone());
    let of_project = ProjectFiles::find(&real, environment).directory;
    let candidates: Vec<PathBuf> = [real.clone(), absolute].into_iter().chain(of_project).collect();
    for candidate in candidates.iter().filter_map(|path| path.to_str()) {
        if forget(environment, candidate).map_err(anyhow::Error::new)? {
            emit(&format!(
                "{} is trusted no more; kernels that run keep what they have\n",
                plain(candidate)
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
    }
    let error = anyhow!("{} was not trusted", real.display());
    Err(CliError::hinted(error, "`cellblock trust --list` shows what is"))
}
