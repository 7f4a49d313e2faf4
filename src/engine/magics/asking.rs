//! Magics about questions to the model: how they are asked, and what they cost.

use std::fmt::Write;

use super::{cell, literal, show, usage};
use crate::chat::cost::{Tally, dollars};
use crate::config::Value;
use crate::engine::asking::{Attached, option_value};
use crate::engine::execute::{Engine, Surroundings};
use crate::event::Failure;
use crate::event::words::thousands;

/// What undoes a choice.
const OFF: &str = "off";

pub(super) async fn system(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    let sigil = engine.dialect().sigil();
    let text = match unliteral(argument) {
        "" => match engine.asking.options().system {
            Some(text) => {
                format!("The model is told:\n\n{}\n\n`{sigil}system off` undoes that.", literal(&text))
            }
            None => format!(
                "The model is told what the settings say (model.system). `{sigil}system TEXT` tells it something else."
            ),
        },
        OFF => {
            engine.asking.change_options(|options| options.system = None);
            "From now on the model is told what the settings say (model.system).".to_owned()
        }
        text => {
            engine.asking.change_options(|options| options.system = Some(text.to_owned()));
            format!("From now on the model is told:\n\n{}", literal(text))
        }
    };
    show(around, &text).await;
    Ok(())
}

pub(super) async fn temperature(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    let text = match argument {
        "" => match engine.asking.options().temperature {
            Some(temperature) => format!("The temperature is {temperature}."),
            None => {
                "The temperature is that of the settings, or the server's own (model.temperature).".to_owned()
            }
        },
        OFF => {
            engine.asking.change_options(|options| options.temperature = None);
            "From now on the temperature is that of the settings, or the server's own (model.temperature)."
                .to_owned()
        }
        written => {
            let value = option_value("temperature", written)
                .map_err(|why| usage(engine, "temperature", &format!("does not take {written:?}: {why}")))?;
            let Value::Number(temperature) = value else {
                return Err(usage(engine, "temperature", "takes a number or `off`"));
            };
            engine.asking.change_options(|options| options.temperature = Some(temperature));
            format!("From now on the temperature is {temperature}.")
        }
    };
    show(around, &text).await;
    Ok(())
}

pub(super) async fn attach(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    let text = match argument {
        "" => match engine.asking.attached() {
            none if none.is_empty() => "Nothing is attached to the next question.".to_owned(),
            some => format!("These go with the next question:\n\n{}", list(&some)),
        },
        OFF => {
            engine.asking.set_attached(Vec::new());
            "Nothing is attached to the next question any more.".to_owned()
        }
        names => {
            let names = words(names).ok_or_else(|| {
                usage(engine, "attach", "takes paths; one that begins with a quote must end with it")
            })?;
            let attached = engine.attach(&names, around).await?;
            let text = format!("These go with the next question:\n\n{}", list(&attached));
            engine.asking.set_attached(attached);
            text
        }
    };
    show(around, &text).await;
    Ok(())
}

fn list(attached: &[Attached]) -> String {
    literal(&attached.iter().map(Attached::line).collect::<Vec<_>>().join("\n"))
}

/// The words of a line, quoted where they have spaces, also behind an `@`.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let inner = rest.strip_prefix('@').unwrap_or(rest);
        let (word, after) = match inner.chars().next() {
            Some(quote @ ('"' | '\'')) => inner.get(1..)?.split_once(quote)?,
            _ => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    Some(words)
}

pub(super) async fn save(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    engine.asking.save(argument).map_err(|why| usage(engine, "save", &why))?;
    show(around, &format!("The next Python cell finds the last answer in `{argument}`.")).await;
    Ok(())
}

pub(super) async fn cost(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    if !argument.is_empty() {
        return Err(usage(engine, "cost", "takes nothing behind it"));
    }
    let ledger = engine.chat.ledger();
    let models = ledger.by_model();
    let mut text = String::new();
    if models.is_empty() {
        text.push_str("No model has been asked in this kernel yet.\n");
    } else {
        text.push_str("| model | replies | tokens in | of them cached | tokens out | cost |\n| --- | --- | --- | --- | --- | --- |\n");
        for (name, tally) in &models {
            text.push_str(&line(&format!("`{}`", cell(name)), tally));
        }
        if models.len() > 1 {
            text.push_str(&line("together", &ledger.total()));
        }
        if ledger.total().estimated > 0 {
            text.push_str("\nSome servers did not say how many tokens they took: those are estimated.\n");
        }
        if ledger.total().unpriced > 0 {
            text.push_str("\nWhere no cost stands, the price is not known; prices of your own belong in prices.toml beside your settings.\n");
        }
    }
    let recorded = ledger.recorded();
    if recorded.replies > 0 {
        let replies = if recorded.replies == 1 { "reply" } else { "replies" };
        // Writing to a string can't fail.
        let _ = writeln!(
            text,
            "\n{} {replies} came out of a recording, at no cost. When recorded: {} tokens in, {} out.",
            thousands(recorded.replies),
            thousands(recorded.input),
            thousands(recorded.output)
        );
    }
    let (limits, total) = (ledger.limits(), ledger.total());
    let mut budget = |name: &str, used: Option<String>, limit: Option<String>| {
        if let Some(limit) = limit {
            let used = used.map_or_else(|| "in each turn".to_owned(), |used| format!("{used} used"));
            let _ = write!(text, "\n- budget.{name}: {limit}, {used}");
        }
    };
    budget("turn_tokens", None, limits.turn_tokens.map(thousands));
    budget("tokens", Some(thousands(total.tokens())), limits.tokens.map(thousands));
    budget("turn_cost", None, limits.turn_cost.map(dollars));
    budget("cost", Some(dollars(total.cost)), limits.cost.map(dollars));
    budget("steps", Some(thousands(total.replies)), limits.steps.map(thousands));
    show(around, &text).await;
    Ok(())
}

/// One row of the table of costs.
fn line(name: &str, tally: &Tally) -> String {
    let cost = match (tally.unpriced, tally.replies) {
        (0, _) => dollars(tally.cost),
        (unpriced, replies) if unpriced < replies => format!("{} and more", dollars(tally.cost)),
        _ => String::new(),
    };
    format!(
        "| {name} | {} | {} | {} | {} | {cost} |\n",
        thousands(tally.replies),
        thousands(tally.input),
        thousands(tally.cached),
        thousands(tally.output)
    )
}

/// What stands between quotes, when the whole is quoted.
fn unliteral(text: &str) -> &str {
    let text = text.trim();
    let inner =
        |quote: char| text.strip_prefix(quote)?.strip_suffix(quote).filter(|inner| !inner.contains(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_quoted() {
        let read = |line: &str| words(line).map(|words| words.join("|"));
        assert_eq!(read("a.csv  \"b c.csv\" @'d e' @f").as_deref(), Some("a.csv|b c.csv|d e|@f"));
        assert_eq!(read("\"a"), None);
    }

    #[test]
    fn quotes_around_the_whole_are_taken_off() {
        for (text, plain) in [
            ("\"a b\"", "a b"),
            ("'a'", "a"),
            ("\"a\" and \"b\"", "\"a\" and \"b\""),
            ("a", "a"),
            ("\"", "\""),
        ] {
            assert_eq!(unliteral(text), plain);
        }
    }
}
