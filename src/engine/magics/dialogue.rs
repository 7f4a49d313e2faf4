//! Magics about the dialogue: what the model would be sent, and how to change that.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{cell, name, row, show, usage};
use crate::chat::{Context, Mark};
use crate::engine::agent;
use crate::engine::confirm;
use crate::engine::execute::{Engine, Surroundings};
use crate::event::{Bundle, Event, Failure, terminal};

/// The most turns that are listed; the newest are.
const LISTED: usize = 200;
/// The most of what would be sent that is shown, in bytes.
const SHOWN: usize = 60_000;
/// The most turns that one line marks.
const MARKED: usize = 100;
/// What a restart has cost.
const FRESH: &str = "The sandbox is fresh: variables, imports and background processes from before are gone, files \
                     in /workspace and /session are there. Run the cells again that you need; the model is told.";

pub(super) async fn context(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    if !argument.is_empty() {
        return Err(usage(engine, "context", "takes nothing behind it"));
    }
    let (sandbox, options) = (engine.sandbox.describe(), engine.asking.options());
    let tools = agent::offered(engine, around.ask.as_ref());
    engine.chat.look().await;
    let context = engine.chat.context(around.cell, &sandbox, &tools, &options);
    show(around, &listed(&context)).await;
    // In a display of its own, and as plain text: it holds words of anybody.
    let sent = terminal::filtered(&bounded(&context.sent));
    super::send(around.events, Event::Display { bundle: Bundle::text(sent), display_id: None }).await;
    Ok(())
}

/// What becomes of every turn.
fn listed(context: &Context) -> String {
    let sent = context.turns.iter().filter(|turn| turn.sent).count();
    let mut text = format!(
        "About {} tokens would be sent from here, of about {} that there is room for: {sent} of {} turns (branch `{}`).\n",
        context.tokens,
        context.window,
        context.turns.len(),
        cell(&context.branch),
    );
    if context.turns.is_empty() {
        text.push_str("\nNothing has been said yet.\n");
    } else {
        text.push_str("\n| turn | about | tokens | |\n| ---: | --- | ---: | --- |\n");
    }
    let unlisted = context.turns.len().saturating_sub(LISTED);
    for turn in &context.turns[unlisted..] {
        let label = first_words(&turn.label);
        let label = if label.is_empty() { String::new() } else { format!("`{label}`") };
        // Writing to a string can't fail.
        let _ = writeln!(
            text,
            "| {} | {label} | about {} | {} |",
            turn.number,
            turn.tokens,
            turn.marks.join(", ")
        );
    }
    if unlisted > 0 {
        let _ = writeln!(text, "\nThe first {unlisted} turns are not listed.");
    }
    text.push_str("\nThis is what would be sent:\n");
    text
}

/// Head and tail of a long text.
fn bounded(text: &str) -> String {
    if text.len() <= SHOWN {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(SHOWN / 2);
    let tail = text.ceil_char_boundary(text.len() - SHOWN / 2);
    format!("{}\n\n[... {} bytes are not shown ...]\n\n{}", &text[..head], tail - head, &text[tail..])
}

pub(super) async fn hide(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    mark(engine, ("hide", Mark::Hide), argument, ["is sent again", "is kept from the model"], around).await
}

pub(super) async fn pin(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    let said = ["is sent while there is room", "is sent however full the window is"];
    mark(engine, ("pin", Mark::Pin), argument, said, around).await
}

/// Sets or takes away a mark; never turns it round, for a notebook that runs again runs its magics again.
async fn mark(
    engine: &Engine,
    (magic, mark): (&str, Mark),
    argument: &str,
    [off, on]: [&str; 2],
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    let (holds, written) = match argument.split_once(char::is_whitespace) {
        Some(("off", numbers)) => (false, numbers),
        _ => (true, argument),
    };
    let wrong = || {
        let takes =
            format!("takes numbers of turns as %context lists them (`3`, `2-5`); `%{magic} off 3` undoes it");
        usage(engine, magic, &takes)
    };
    let numbers: Vec<usize> = numbers(written).ok_or_else(wrong)?.into_iter().collect();
    let marked = engine.chat.mark(&numbers, mark, holds).map_err(|missing| {
        usage(engine, magic, &format!("found no turn {missing}, so nothing was changed"))
    })?;
    let mut text = String::new();
    for (number, label) in marked {
        let said = if holds { on } else { off };
        // Writing to a string can't fail.
        let _ = writeln!(text, "- Turn {number} (`{}`) {said}.", first_words(&label));
    }
    show(around, &text).await;
    Ok(())
}

/// A turn's first words, with nothing in them that hides or turns round what stands beside them.
fn first_words(label: &str) -> String {
    cell(&confirm::visible(label))
}

/// `3`, `1 4`, `2-5`, `1,3`; `None`: something else.
fn numbers(text: &str) -> Option<BTreeSet<usize>> {
    let mut numbers = BTreeSet::new();
    for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first == 0 || last < first || last - first >= MARKED {
            return None;
        }
        numbers.extend(first..=last);
    }
    (!numbers.is_empty() && numbers.len() <= MARKED).then_some(numbers)
}

pub(super) async fn undo(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    if !argument.is_empty() {
        return Err(usage(engine, "undo", "takes nothing behind it"));
    }
    let text = match engine.chat.undo() {
        None => "There is no turn to take back.".to_owned(),
        Some((label, restored)) => {
            let label = first_words(&label);
            let what = if label.is_empty() { String::new() } else { format!(" (`{label}`)") };
            let back = if restored { " What its cell said before is back." } else { "" };
            format!(
                "The last turn{what} is taken out of the dialogue.{back} What its code did in the sandbox stays."
            )
        }
    };
    show(around, &text).await;
    Ok(())
}

pub(super) async fn branch(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    let name = name(argument).map_err(|why| usage(engine, "branch", &why))?;
    let text = if engine.chat.branch(name) {
        format!("The dialogue goes on in a new branch `{name}`, which begins with all that was said so far.")
    } else {
        format!("The dialogue goes on in the branch `{name}`.")
    };
    show(around, &format!("{text} The sandbox is the same in all branches.")).await;
    Ok(())
}

pub(super) async fn branches(
    engine: &Engine,
    argument: &str,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    if !argument.is_empty() {
        return Err(usage(engine, "branches", "takes nothing behind it"));
    }
    let mut text = String::from("| branch | turns |\n| --- | --- |\n");
    for (name, turns, present) in engine.chat.branches() {
        let mark = if present { " (the present one)" } else { "" };
        text.push_str(&row(&cell(&name), &format!("{turns}{mark}")));
    }
    show(around, &text).await;
    Ok(())
}

pub(super) async fn resume(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    if !argument.is_empty() {
        return Err(usage(engine, "resume", "takes nothing behind it"));
    }
    let resumed = tokio::select! {
        resumed = engine.chat.resume() => resumed,
        () = around.cancel.cancelled() => {
            return Err(Failure::new("KeyboardInterrupt", "bringing the dialogue back was interrupted"));
        }
    };
    let text = match resumed {
        None if !engine.chat.keeps() => {
            "Dialogues are not kept on disk (conversation.persist), so there is none to bring back."
                .to_owned()
        }
        None => "There is no earlier dialogue of this notebook. It is found by the notebook's path: one that was renamed or \
                 moved since has a dialogue of its own."
            .to_owned(),
        Some(resumed) if resumed.turns == 0 => {
            "Nothing came back: the cells of the earlier dialogue of this notebook have turns here already.".to_owned()
        }
        Some(resumed) => {
            let turns = if resumed.turns == 1 {
                "1 turn is".to_owned()
            } else {
                format!("{} turns are", resumed.turns)
            };
            let when = chrono::DateTime::from_timestamp_millis(resumed.used).map(|used| {
                used.with_timezone(&chrono::Local).format(", the last of %Y-%m-%d %H:%M").to_string()
            });
            format!("{turns} back{}. {FRESH}", when.unwrap_or_default())
        }
    };
    show(around, &text).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_named_by_number_and_range() {
        let set = |numbers: &[usize]| Some(numbers.iter().copied().collect());
        assert_eq!(numbers("3"), set(&[3]));
        assert_eq!(numbers("1, 4  2-3"), set(&[1, 2, 3, 4]));
        for wrong in ["", "0", "x", "3-1", "-1", "1-99999999999999999999", "1-100000", "1--2"] {
            assert_eq!(numbers(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn first_words_turn_nothing_round() {
        assert_eq!(first_words("a\u{202e}b | `c`"), "a\\u{202e}b \\| 'c'");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let short = bounded(&"é".repeat(SHOWN));
        assert!(short.len() < SHOWN + 100 && short.contains("are not shown"));
        assert_eq!(bounded("é"), "é");
    }
}
