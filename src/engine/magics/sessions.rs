//! Magics about what runs: where, since when, and how to end it.

use std::fmt::Write;
use std::time::Duration;

use super::containers::refused;
use super::{cell, show, usage};
use crate::engine::execute::{Engine, Surroundings};
use crate::event::Failure;
use crate::sandbox::{Activity, size};

const LOST: &str = "Python's variables and imports, everything that ran in the background and the files in /tmp and \
                    the home directory are gone; /workspace and /session are kept.";

pub(super) async fn session(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    let now = engine.sandbox.session();
    if argument.is_empty() {
        let sigil = engine.dialect().sigil();
        let text = format!(
            "The session is `{now}`; its folder is `sessions/{now}` beside the notebook, /session inside. \
             `{sigil}session NAME` enters another one, which later kernels can enter as well."
        );
        show(around, &text).await;
        return Ok(());
    }
    let name = super::name(argument).map_err(|why| usage(engine, "session", &why))?;
    if name == now {
        show(around, &format!("This is the session `{now}` already.")).await;
        return Ok(());
    }
    let had = !engine.sandbox.end(None, false).await.map_err(refused)?.is_empty();
    let others = engine.sandbox.enter(name).await?.map_or_else(String::new, |told| format!("\n\n{told}"));
    let lost = if had {
        format!("\n\n{LOST}").replace("/session are", "the folder of the old session are")
    } else {
        String::new()
    };
    show(around, &format!("From now on /session is `sessions/{name}` beside the notebook.{lost}{others}"))
        .await;
    Ok(())
}

pub(super) async fn status(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    if !argument.is_empty() {
        return Err(usage(engine, "status", "takes nothing behind it"));
    }
    let surveyed = engine.sandbox.containers().await;
    let mut rows = String::new();
    for one in surveyed {
        let activity = match &one.activity {
            Activity::Cold => continue,
            Activity::Starting => "starting".to_owned(),
            Activity::Running => "running".to_owned(),
            Activity::Idle => {
                one.idle.map_or_else(|| "idle".to_owned(), |idle| format!("idle for {}", time(idle)))
            }
            Activity::Stopped(why) => format!("stopped. {why}"),
        };
        let _ = writeln!(
            rows,
            "| `{}` | {} | {} | {} | {} | {} |",
            cell(&one.definition.name),
            cell(&activity),
            one.up.map_or_else(String::new, time),
            one.usage.map_or_else(String::new, |usage| size(usage.memory)),
            one.usage.map_or_else(String::new, |usage| format!("{:.2}", usage.cpus)),
            one.image.as_deref().map_or_else(String::new, |id| format!("`{}`", cell(short(id)))),
        );
    }
    let now = engine.sandbox.session();
    let mut text = format!("Session `{now}`, in `sessions/{now}` beside the notebook (/session inside).\n\n");
    if rows.is_empty() {
        text.push_str("No container runs; the next block starts one.");
    } else {
        text.push_str(
            "| container | state | up for | memory | CPUs | image |\n| --- | --- | --- | --- | --- | --- |\n",
        );
        text.push_str(&rows);
    }
    show(around, &text).await;
    Ok(())
}

pub(super) async fn restart(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    end(engine, argument, true, around).await
}

pub(super) async fn kill(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    end(engine, argument, false, around).await
}

async fn end(engine: &Engine, argument: &str, again: bool, around: Surroundings<'_>) -> Result<(), Failure> {
    let wanted = (!argument.is_empty()).then_some(argument);
    let ended = engine.sandbox.end(wanted, again).await.map_err(refused)?;
    let names = ended.iter().map(|name| format!("`{}`", cell(name))).collect::<Vec<_>>().join(", ");
    let text = match (ended.len(), again) {
        (0, _) => "No such container was running: nothing is lost, and the next block starts a fresh one."
            .to_owned(),
        (_, true) => format!("{names} was ended and starts again. {LOST}"),
        (_, false) => format!("{names} was ended; the next block starts a fresh one. {LOST}"),
    };
    show(around, &text).await;
    Ok(())
}

/// Enough of an image's id to find it.
pub(in crate::engine) fn short(id: &str) -> &str {
    let id = id.strip_prefix("sha256:").unwrap_or(id);
    id.get(..12).unwrap_or(id)
}

/// A time for a person.
pub(in crate::engine) fn time(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{:.1} h", time.as_secs_f64() / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_ids_are_short() {
        assert_eq!(time(Duration::from_secs(119)), "119 s");
        assert_eq!(time(Duration::from_mins(5)), "5 min");
        assert_eq!(time(Duration::from_hours(3)), "3.0 h");
        assert_eq!(short("sha256:0123456789abcdef"), "0123456789ab");
        assert_eq!(short("odd"), "odd");
    }
}
