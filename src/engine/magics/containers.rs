//! Magics about containers: which there are, and which one the blocks to come prefer.

use std::fmt::Write;

use super::{cell, show, usage};
use crate::config::Network;
use crate::engine::execute::{Engine, Surroundings};
use crate::event::Failure;
use crate::sandbox::definition::{Definition, Mode};
use crate::sandbox::{Activity, Surveyed, size};

pub(super) async fn containers(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    if !argument.is_empty() {
        return Err(usage(engine, "containers", "takes nothing behind it"));
    }
    let surveyed = engine.sandbox.containers().await;
    let default = &engine.sandbox.registry().settings.default;
    let mut text = String::from(
        "| container | what it is for | languages | state | memory | CPUs | limits |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for one in &surveyed {
        let definition = &one.definition;
        let mark = match (one.chosen, definition.name == *default) {
            (true, _) => " (chosen)",
            (false, true) => " (default)",
            (false, false) => "",
        };
        let _ = writeln!(
            text,
            "| `{}`{mark} | {} | {} | {} | {} | {} | {} |",
            cell(&definition.name),
            cell(&definition.description),
            definition.languages.join(", "),
            cell(&state(one)),
            one.usage.map_or_else(String::new, |usage| size(usage.memory)),
            one.usage.map_or_else(String::new, |usage| format!("{:.2}", usage.cpus)),
            limits(definition),
        );
    }
    for definition in surveyed.iter().map(|one| &one.definition) {
        let waits = definition.refused.iter().chain(&definition.withheld);
        for why in waits {
            let _ = write!(text, "\n`{}`: {}\n", cell(&definition.name), cell(why));
        }
    }
    let sigil = engine.dialect().sigil();
    let _ = write!(text, "\n`{sigil}container NAME` prefers one; in a fence: `container=NAME`.");
    show(around, &text).await;
    Ok(())
}

/// What a container does, in words.
fn state(one: &Surveyed) -> String {
    let definition = &one.definition;
    if definition.refused.is_some() {
        return "can't be used".to_owned();
    }
    let waiting = match one.spares {
        0 => String::new(),
        1 => " (1 fresh one waits)".to_owned(),
        more => format!(" ({more} fresh ones wait)"),
    };
    let state = match &one.activity {
        Activity::Cold if definition.mode == Mode::Ephemeral => "a fresh one for each block".to_owned(),
        Activity::Cold => "cold".to_owned(),
        Activity::Starting => "starting".to_owned(),
        Activity::Running => "running".to_owned(),
        Activity::Idle => "idle".to_owned(),
        Activity::Stopped(why) => format!("stopped. {why}"),
    };
    format!("{state}{waiting}")
}

fn limits(definition: &Definition) -> String {
    let limits = &definition.limits;
    let network = match limits.network {
        Network::None => "no network",
        Network::Bridge => "network",
    };
    let time = limits.timeout.map_or_else(|| "no timeout".to_owned(), |t| format!("{} s", t.as_secs_f64()));
    format!("{}, {} CPUs, {} processes, {time}, {network}", size(limits.memory), limits.cpus, limits.pids)
}

pub(super) async fn container(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    let sigil = engine.dialect().sigil();
    let text = match argument {
        "" => match engine.sandbox.chosen() {
            Some(name) => format!("Blocks prefer `{name}`. `{sigil}container default` undoes that."),
            None => format!(
                "No container is chosen: blocks run in `{}`, or the first one that runs their language.",
                engine.sandbox.registry().settings.default
            ),
        },
        "default" if engine.sandbox.registry().find("default").is_none() => {
            engine.sandbox.choose(None).map_err(refused)?;
            "No container is chosen any more.".to_owned()
        }
        name => {
            engine.sandbox.choose(Some(name)).map_err(refused)?;
            let definition = engine.sandbox.definition(name).map_err(refused)?;
            format!(
                "From now on blocks in {} prefer `{}`.",
                definition.languages.join(", "),
                cell(&definition.name)
            )
        }
    };
    show(around, &text).await;
    Ok(())
}

pub(super) async fn rebuild(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    let name = (!argument.is_empty()).then_some(argument);
    let said = engine.sandbox.rebuild(name, around.events, around.cancel.clone()).await?;
    show(around, &said).await;
    Ok(())
}

/// What policy says no to, as a cell's failure.
pub(super) fn refused(why: impl std::fmt::Display) -> Failure {
    Failure::new("Refused", why.to_string())
}
