//! `cellblock config`: every effective setting with where it came from.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::arguments::ConfigOptions;
use super::compose::Composed;
use super::exit::{CliError, SETTINGS, complain, emit};
use crate::config::{Environment, Loaded, plain};

pub(crate) fn run(options: &ConfigOptions, environment: Environment) -> Result<ExitCode, CliError> {
    let composed = super::load(options.flavor.flavor, &options.set.set, environment)?;
    let loaded = &composed.loaded;
    if options.json {
        emit(&format!("{:#}\n", as_json(&composed)))?;
        return Ok(if loaded.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(SETTINGS) });
    }
    emit(&as_text(loaded))?;
    if let Some(project) = project(&composed) {
        emit(&format!("\n{project}\n"))?;
    }
    for refusal in &loaded.refusals {
        complain(&format!("warning: {refusal}\n"));
    }
    match loaded.problem() {
        None => Ok(ExitCode::SUCCESS),
        Some(problem) => Err(CliError::settings(problem)),
    }
}

fn as_text(loaded: &Loaded) -> String {
    let rows: Vec<_> = loaded
        .rows()
        .map(|(key, value, origin)| (key.full(), value.replace('\n', " "), origin.to_string()))
        .collect();
    let width = |column: fn(&(String, String, String)) -> &String, most: usize| {
        rows.iter().map(|row| column(row).chars().count()).filter(|n| *n <= most).max().unwrap_or(0)
    };
    let (keys, values) = (width(|row| &row.0, 40), width(|row| &row.1, 40));
    let mut text = String::new();
    for (key, value, origin) in &rows {
        // Writing to a String does not fail.
        let _ = writeln!(text, "{key:keys$}  {value:values$}  {origin}");
    }
    text
}

/// Whether the project is trusted; `None` without one.
fn project(composed: &Composed) -> Option<String> {
    let directory = composed.project.directory.as_ref()?;
    Some(format!("the project {} is {}", plain(&directory.to_string_lossy()), composed.trust))
}

fn as_json(composed: &Composed) -> Value {
    let loaded = &composed.loaded;
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|p| p.display().to_string());
    let settings: Vec<Value> = loaded
        .rows()
        .map(|(key, value, origin)| {
            json!({"key": key.full(), "value": value, "origin": origin.to_string(), "variable": key.variable()})
        })
        .collect();
    json!({
        "settings": settings,
        "user_file": path(&loaded.user_file),
        "project_file": path(&loaded.project_file),
        "project": composed.project.directory.as_ref().map(|directory| {
            json!({"directory": directory.display().to_string(), "trusted": composed.trust.given(),
                "trust": composed.trust.to_string()})
        }),
        "containers": composed.registry.containers().iter().map(|c| &c.name).collect::<Vec<_>>(),
        "refused": loaded.refusals.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "errors": loaded.errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
