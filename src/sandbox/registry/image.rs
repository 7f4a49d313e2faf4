//! Where a container's image comes from, and the packages that are put into it, as a registry writes them.
//!
//! May import what `written` does.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::sandbox::packages::{Manager, Packages};

use super::fields::{At, Mistakes, Table, line, list};
use super::paths::{Found, Ground};
use super::written::{LARGEST, Written, variable};
use super::yaml::Node;

const BUILD: &[&str] = &["context", "dockerfile", "args", "target"];

/// Where its image comes from.
#[derive(Debug)]
pub(super) enum Source {
    Image(String),
    Build {
        context: Found,
        dockerfile: PathBuf,
        arguments: Vec<(String, String)>,
        target: Option<String>,
        /// What the context's hash was when trust was looked up.
        seal: OnceLock<[u8; 32]>,
    },
}

/// `image`, `dockerfile` or `build`.
pub(super) fn source(table: &Table<'_>, ground: &Ground, mistakes: &mut Mistakes) -> Option<At<Source>> {
    let given: Vec<_> =
        ["dockerfile", "image", "build"].iter().filter_map(|name| Some((*name, table.get(name)?))).collect();
    if let [(first, _), (second, at), ..] = given.as_slice() {
        mistakes
            .at(at, format!("{second} and {first} both say where the image comes from; keep one of them"));
        return None;
    }
    let (name, at) = given.into_iter().next()?;
    match name {
        "image" => {
            let found = line(&at, 300, mistakes)?;
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
            if !found.value.starts_with(|c: char| c.is_ascii_alphanumeric())
                || !found.value.chars().all(plain)
            {
                mistakes.value(
                    &at,
                    &found.value,
                    "it takes the name of an image, such as `python:3.13-slim`",
                );
                return None;
            }
            Some(at.with(Source::Image(found.value)))
        }
        "dockerfile" => {
            let written = line(&at, 4096, mistakes)?.value;
            let dockerfile = ground.source(&written).and_then(|found| {
                if found.path.is_file() { Ok(found) } else { Err(format!("{written} is not a file")) }
            });
            match dockerfile {
                Ok(Found { path, inside }) => {
                    let context = Found { path: path.parent().unwrap_or(&path).to_owned(), inside };
                    Some(at.with(Source::Build {
                        context,
                        dockerfile: path,
                        arguments: Vec::new(),
                        target: None,
                        seal: OnceLock::new(),
                    }))
                }
                Err(why) => {
                    mistakes.value(&at, &written, why);
                    None
                }
            }
        }
        _ => build(&at, ground, mistakes),
    }
}

/// The keys of `build:`.
fn build(at: &At<&Node>, ground: &Ground, mistakes: &mut Mistakes) -> Option<At<Source>> {
    let table = Table::new(at, BUILD, mistakes)?;
    let Some(folder) = table.get("context") else {
        mistakes.at(at, "context is missing: name the folder that the Dockerfile lies in");
        return None;
    };
    let folder = line(&folder, 4096, mistakes)?;
    let context = match ground.source(&folder.value) {
        Ok(found) if found.path.is_dir() => found,
        Ok(found) => {
            mistakes.value(&folder, &folder.value, format!("{} is not a folder", found.path.display()));
            return None;
        }
        Err(why) => {
            mistakes.value(&folder, &folder.value, why);
            return None;
        }
    };
    let file = match table.get("dockerfile") {
        Some(at) => line(&at, 4096, mistakes).map(|found| at.with(found.value))?,
        None => folder.with("Dockerfile".to_owned()),
    };
    let dockerfile = match context.path.join(&file.value).canonicalize() {
        Ok(path) if !path.starts_with(&context.path) => Err("it lies outside of the context".to_owned()),
        Ok(path) if path.is_file() => Ok(path),
        _ => Err(format!("there is no file {} in {}", file.value, context.path.display())),
    };
    let dockerfile = dockerfile.map_err(|why| mistakes.value(&file, &file.value, why)).ok()?;
    let mut arguments = Vec::new();
    if let Some(at) = table.get("args")
        && let Some(table) = Table::open(&at, mistakes)
    {
        for (name, at) in table.iter() {
            if let Some(value) = variable(name, &at, mistakes) {
                arguments.push((name.to_owned(), value));
            }
        }
    }
    let target = table.get("target").and_then(|at| {
        let found = line(&at, 128, mistakes)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !found.value.chars().all(plain) {
            mistakes.value(&at, &found.value, "it takes the name of a stage of the Dockerfile");
        }
        Some(found.value)
    });
    Some(at.with(Source::Build { context, dockerfile, arguments, target, seal: OnceLock::new() }))
}

/// `requirements.txt`: names and versions, one a line, with comments.
pub(super) fn requirements(at: &At<&Node>, ground: &Ground, mistakes: &mut Mistakes) -> Option<At<Packages>> {
    let written = line(at, 4096, mistakes)?;
    let read = ground.text(&written.value, LARGEST).and_then(|(file, text)| {
        // The list is shown to whoever is asked for trust, and a project could name any file.
        if file.inside { Ok((file, text)) } else { Err("it lies outside the project".to_owned()) }
    });
    let (file, text) = read.map_err(|why| mistakes.value(at, &written.value, why)).ok()?;
    let mut packages = Packages::default();
    for (n, line) in text.lines().enumerate() {
        let line = line.split_once(" #").map_or(line, |(line, _)| line).trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if packages.add(Manager::Pip, &squeezed(line)).is_err() {
            // The line itself is not quoted: the file may be anything.
            let why = "this line is not the name of a Python package and its versions; options, URLs and paths are not taken";
            mistakes.value(at, &written.value, format!("{}:{}: {why}", file.path.display(), n + 1));
            return None;
        }
    }
    Some(at.with(packages))
}

/// Without the spaces that are allowed around what compares versions.
fn squeezed(line: &str) -> String {
    let mut squeezed = String::new();
    for word in line.split_whitespace() {
        let joins = |c: Option<char>| c.is_none_or(|c| "<>=!~,[]".contains(c));
        if !joins(squeezed.chars().last()) && !joins(word.chars().next()) {
            squeezed.push(' ');
        }
        squeezed.push_str(word);
    }
    squeezed
}

/// `environment`: packages by their managers.
pub(super) fn packages(at: &At<&Node>, written: &mut Written, mistakes: &mut Mistakes) {
    const MANAGERS: [(&str, Manager); 3] =
        [("pip", Manager::Pip), ("apt", Manager::Apt), ("npm", Manager::Npm)];
    let Some(table) = Table::new(at, &MANAGERS.map(|(name, _)| name), mistakes) else { return };
    for (name, manager) in MANAGERS {
        let Some(at) = table.get(name) else { continue };
        let mut packages = Packages::default();
        list(&at, 500, mistakes, |item, mistakes| {
            let found = line(item, 300, mistakes)?;
            packages
                .add(manager, &squeezed(&found.value))
                .map_err(|why| mistakes.at(item, why.to_string()))
                .ok()
        });
        written.packages.push(at.with(packages));
    }
}
