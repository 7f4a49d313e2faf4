//! Magics about when the code in a prompt runs.

use super::{show, usage};
use crate::engine::execute::{Engine, Surroundings};
use crate::event::Failure;

/// `%intent [on | off]`: whether the words around code decide about it.
pub(super) async fn intent(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    match argument {
        "on" => engine.switch_intent(true),
        "off" => engine.switch_intent(false),
        "" => {}
        _ => return Err(usage(engine, "intent", "takes `on` or `off`")),
    }
    let text = if engine.intent_is_on() {
        "Code in a prompt runs when the words around it ask for it."
    } else {
        "All code in a prompt runs, whatever the words around it say."
    };
    show(around, text).await;
    Ok(())
}

/// `%why`: why the last code ran, or did not.
pub(super) async fn why(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    if !argument.is_empty() {
        return Err(usage(engine, "why", "takes nothing"));
    }
    let text = engine.why().unwrap_or_else(|| "No cell with code has run yet.".to_owned());
    show(around, &engine.spelt(&text)).await;
    Ok(())
}
