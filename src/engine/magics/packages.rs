//! Magics that add packages to a container's image, and the lines of other notebooks that mean the same.
//!
//! An install has a network and changes an image, so it needs a yes: the user's at the front end, their setting,
//! or trust in the project.

use super::{harmless, show, usage};
use crate::config::Install;
use crate::engine::confirm;
use crate::engine::execute::{Engine, Surroundings};
use crate::event::Failure;
use crate::sandbox::packages::{Manager, Packages};

/// Options that ask for nothing which an install here does not do anyway.
const HARMLESS: [&str; 13] = [
    "-q",
    "-qq",
    "--quiet",
    "-U",
    "--upgrade",
    "--user",
    "--no-cache-dir",
    "--disable-pip-version-check",
    "--no-input",
    "-y",
    "--yes",
    "-g",
    "--global",
];

pub(super) async fn add(
    engine: &Engine,
    manager: Manager,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    let name = manager.name();
    let packages = read(manager, argument).map_err(|why| usage(engine, name, &why))?;
    let wanted = engine.sandbox.current_name();
    if manager == Manager::Npm
        && engine.sandbox.definition(&wanted).is_ok_and(|container| !container.runs("javascript"))
    {
        let has = engine
            .sandbox
            .registry()
            .containers()
            .iter()
            .find(|c| c.runs("javascript") && c.refused.is_none());
        let sigil = engine.dialect().sigil();
        let remedy = has.map_or_else(String::new, |c| {
            format!(": `{sigil}container {0}` chooses the container {0}, which has it", c.name)
        });
        return Err(Failure::new(
            "Refused",
            format!("the container {wanted} runs no JavaScript, and has no npm{remedy}"),
        ));
    }
    if !engine.sandbox.has(&wanted, &packages) {
        allowed(engine, &packages, "This notebook", around).await?;
    }
    let installed = engine.sandbox.install(None, &packages, around.events, around.cancel.clone()).await?;
    show(around, &format!("Installed {packages}. {}", harmless(&installed.kept))).await;
    Ok(())
}

/// Whether packages may be added: by the settings, by trust, or because the user says so now.
pub(in crate::engine) async fn allowed(
    engine: &Engine,
    packages: &Packages,
    who: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    match engine.habits.install {
        Install::Always => Ok(()),
        Install::Never => Err(Failure::new(
            "Refused",
            format!("{packages} can't be installed: the settings say never (sandbox.install)"),
        )),
        Install::Ask if engine.habits.trusted => Ok(()),
        Install::Ask => {
            let list: Vec<_> =
                packages.iter().map(|(manager, what)| format!("- {what} ({})", manager.name())).collect();
            let why = "packages come from the network and become a part of the container's image, so they need a \
                       yes; sandbox.install = \"always\" in your settings, or `cellblock trust`, gives it for good";
            let mut named: String = packages.to_string().chars().take(300).collect();
            if named.len() < packages.to_string().len() {
                named.push_str("...");
            }
            let what = format!("{who} wants to install {named} in its container");
            confirm::plain(around.ask.as_ref(), &what, &list.join("\n"), why).await
        }
    }
}

/// The packages of an `install` line.
fn read(manager: Manager, argument: &str) -> Result<Packages, String> {
    let mut words = argument.split_whitespace().map(|word| word.trim_matches(['"', '\'']));
    match words.next() {
        Some("install" | "add" | "i") => {}
        Some(word @ ("uninstall" | "remove" | "purge" | "rm")) => {
            return Err(format!(
                "can't {word}: packages are layers of an image. A block with `ephemeral` or another container goes \
                 without them, and the rebuild magic makes the image anew"
            ));
        }
        Some(word @ ("list" | "show" | "freeze" | "check" | "search")) => {
            return Err(format!("only installs; `!{} {word}` runs in the sandbox", manager.name()));
        }
        _ => return Err("takes `install` and names of packages".to_owned()),
    }
    let mut packages = Packages::default();
    for word in words.filter(|word| !HARMLESS.contains(word)) {
        if matches!(word, "-r" | "--requirement") {
            return Err("takes names and versions: list what the file names, or set `requirements:` in \
                        containers/registry.yaml"
                .to_owned());
        }
        packages.add(manager, word).map_err(|error| format!("does not take that: {error}"))?;
    }
    if packages.is_empty() {
        return Err("takes `install` and names of packages".to_owned());
    }
    Ok(packages)
}

/// A cell of nothing but lines such as `!pip install x`, as our magics.
pub(in crate::engine) fn rewritten(code: &str, sigil: &str) -> Option<String> {
    let mut lines = Vec::new();
    for line in code.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        // IPython takes a bare `pip install` for its magic, which is prose in a Markdown cell.
        let magic = sigil != "%" && line.starts_with("pip install ");
        let command = if magic { line } else { line.strip_prefix('!')?.trim() };
        // Whatever a shell would do more than call one program is left to it.
        if command.contains(['|', ';', '&', '>', '<', '$', '`', '\\', '(']) && !command.starts_with("{sys.") {
            return None;
        }
        let (manager, rest) = [
            ("pip", "pip "),
            ("pip", "pip3 "),
            ("pip", "python -m pip "),
            ("pip", "python3 -m pip "),
            ("pip", "{sys.executable} -m pip "),
            ("apt", "apt "),
            ("apt", "apt-get "),
            ("npm", "npm "),
        ]
        .into_iter()
        .find_map(|(manager, start)| Some((manager, command.strip_prefix(start)?.trim())))?;
        // `apt-get -y install x`
        let rest = rest.strip_prefix("-y ").unwrap_or(rest).trim();
        if rest.split_whitespace().next() != Some("install") {
            return None;
        }
        lines.push(format!("{sigil}{manager} {rest}"));
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_read_and_what_notebooks_add_is_passed_over() {
        let read = |text: &str| read(Manager::Pip, text).map(|packages| packages.to_string());
        assert_eq!(read("install -q \"httpx>=0.2\" rich").as_deref(), Ok("httpx>=0.2, rich"));
        for bad in [
            "",
            "install",
            "uninstall rich",
            "list",
            "install -r x.txt",
            "install git+https://x/y",
            "install ./x",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cells_that_only_install_become_ours() {
        for (code, ours) in [
            ("!pip install -q rich", Some("%pip install -q rich")),
            (
                "\n# first\n!python -m pip install a\n!pip3 install b\n",
                Some("%pip install a\n%pip install b"),
            ),
            ("!apt-get -y install gcc", Some("%apt install gcc")),
            ("!pip install a; rm -rf x", None),
            ("!pip install a\nimport a", None),
            ("!pip list", None),
            ("!ls", None),
            ("", None),
        ] {
            assert_eq!(rewritten(code, "%").as_deref(), ours, "{code:?}");
        }
        assert_eq!(rewritten("pip install six", "%cb ").as_deref(), Some("%cb pip install six"));
        assert_eq!(rewritten("pip install six", "%"), None, "that is prose");
    }
}
