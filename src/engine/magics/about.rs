//! Magics about the kernel itself: help, the model, a fresh beginning.

use super::{MAGICS, cell_magics, find, row, show};
use crate::config::Flavor;
use crate::engine::execute::{Engine, Surroundings};
use crate::event::Failure;

pub(super) async fn help(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    let sigil = engine.dialect().sigil();
    let wanted = argument.trim_start_matches(['%', '!']).trim();
    let mut text = String::new();
    if wanted.is_empty() {
        text.push_str(match engine.flavor {
            Flavor::Markdown => {
                "Prose goes to the model. Fenced code runs in the sandbox. `!command` at the head of a cell runs in \
                 the sandbox's shell.\n\n"
            }
            Flavor::Python => {
                "Cells are Python in the sandbox; IPython's own magics and `!command` work there. Ours begin with \
                 `%cb`.\n\n"
            }
        });
        text.push_str("| magic | what it does |\n| --- | --- |\n");
        for magic in MAGICS {
            text.push_str(&row(&format!("{sigil}{} {}", magic.name, magic.usage), magic.help));
        }
        for (name, what) in cell_magics(engine.flavor) {
            text.push_str(&row(&format!("%%{name}"), what));
        }
    } else if let Some(magic) = find(wanted) {
        text = format!("`{sigil}{} {}`: {}.", magic.name, magic.usage, magic.help);
    } else if let Some((name, what)) = cell_magics(engine.flavor).find(|(name, _)| *name == wanted) {
        text = format!("`%%{name}`: {what}.");
    } else {
        return Err(Failure::new(
            "UnknownMagic",
            format!("there is no magic {sigil}{wanted}; {sigil}help lists those there are"),
        ));
    }
    show(around, &text).await;
    Ok(())
}

pub(super) async fn model(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    if !argument.is_empty() {
        engine.chat.switch(argument).map_err(|error| error.failure())?;
        let now = engine.chat.current().unwrap_or_else(|| argument.to_owned());
        show(around, &format!("From now on `{now}` answers.")).await;
        return Ok(());
    }
    let listing = tokio::select! {
        listing = engine.chat.models() => listing,
        () = around.cancel.cancelled() => return Err(Failure::new("KeyboardInterrupt", "the search for models was interrupted")),
    };
    let sigil = engine.dialect().sigil();
    let mut lines = Vec::new();
    if listing.models.is_empty() {
        lines.push("No model was found. Set a provider's key (`OPENAI_API_KEY`, `ANTHROPIC_API_KEY`, ...) before Jupyter starts, or start Ollama; docs/models.md has an entry for each.".to_owned());
    } else {
        lines.push("| | model | from |\n| --- | --- | --- |".to_owned());
        lines.extend(listing.models.iter().map(|model| {
            let mark = if model.current { "**→**" } else { "" };
            format!(
                "| {mark} | `{}` | {} |",
                model.name.replace('|', "\\|"),
                model.source.replace('|', "\\|")
            )
        }));
    }
    lines.extend(listing.problems.iter().map(|problem| format!("\n{problem}")));
    lines.push(format!("\n`{sigil}model NAME` switches."));
    show(around, &lines.join("\n")).await;
    Ok(())
}

pub(super) async fn reset(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    let (code, chat) = match argument {
        "" => (true, true),
        "code" => (true, false),
        "chat" => (false, true),
        other => {
            let sigil = engine.dialect().sigil();
            return Err(Failure::new(
                "UsageError",
                format!("{sigil}reset takes nothing, `code` or `chat`, not {other:?}"),
            ));
        }
    };
    if code {
        engine.sandbox.reset().await;
    }
    if chat {
        engine.chat.reset();
    }
    let text = match (code, chat) {
        (true, true) => "The sandbox and the conversation begin afresh.",
        (true, false) => "The sandbox begins afresh: its variables and processes are gone.",
        (false, _) => "The conversation begins afresh.",
    };
    show(around, text).await;
    Ok(())
}
