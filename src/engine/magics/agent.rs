//! The magic about what the model may do.

use super::{show, usage};
use crate::config::AgentMode;
use crate::engine::agent::Mode;
use crate::engine::execute::{Engine, Surroundings};
use crate::event::Failure;

/// What may stand behind `%mode`.
pub(super) const MODES: &[&str] = &["ask", "confirm", "auto", "default"];

pub(super) async fn mode(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    let wanted = match argument {
        "" => None,
        "ask" => Some(AgentMode::Ask),
        "confirm" => Some(AgentMode::Confirm),
        "auto" => Some(AgentMode::Auto),
        "default" => Some(AgentMode::Standard),
        _ => return Err(usage(engine, "mode", "takes `ask`, `confirm`, `auto` or `default`")),
    };
    if let Some(mode) = wanted {
        engine.set_mode(mode);
    }
    let mode = engine.mode(around.ask.as_ref());
    let now = match mode {
        Mode::Ask => "the model answers, and runs nothing",
        Mode::Confirm if around.ask.available() => {
            "the model may run code and write files in the sandbox; each call is shown and waits for your yes"
        }
        Mode::Confirm => {
            "each call of the model waits for your yes, and this front end can't ask: all calls are refused"
        }
        Mode::Auto => "the model runs code and writes files in the sandbox by itself",
    };
    let what = if wanted.is_some() { "From now on" } else { "Mode" };
    let sigil = engine.dialect().sigil();
    let text = format!("{what}: **{}**, {now}. `{sigil}mode ask|confirm|auto` changes that.", mode.name());
    show(around, &text).await;
    Ok(())
}
