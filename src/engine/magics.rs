//! The line magics, one row each: to add one, add a row; help and completion follow.

use futures_util::future::BoxFuture;

use super::execute::{Engine, Surroundings, send};
use crate::cell::Directive;
use crate::config::Flavor;
use crate::event::{Bundle, Event, Failure};

/// What runs a magic: the engine, the rest of the line, and what the cell is run with.
type Action = for<'a> fn(&'a Engine, &'a str, Surroundings<'a>) -> BoxFuture<'a, Result<(), Failure>>;

/// What may stand behind a magic's name, for completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Argument {
    /// One of these words.
    Words(&'static [&'static str]),
    /// A model's name.
    Model,
    /// A magic's name.
    Magic,
}

/// One line magic.
pub(super) struct Magic {
    /// Its name, without `%`.
    pub(super) name: &'static str,
    /// What may follow the name.
    pub(super) usage: &'static str,
    /// What it does, in a sentence.
    pub(super) help: &'static str,
    /// What completion offers behind the name.
    pub(super) argument: Argument,
    action: Action,
}

/// Every line magic, in the order in which help lists them.
pub(super) const MAGICS: &[Magic] = &[
    Magic {
        name: "help",
        usage: "[MAGIC]",
        help: "List the magics, or show one",
        argument: Argument::Magic,
        action: |engine, argument, around| Box::pin(help(engine, argument, around)),
    },
    Magic {
        name: "model",
        usage: "[NAME]",
        help: "List the language models, or switch to one (`provider/model`)",
        argument: Argument::Model,
        action: |engine, argument, around| Box::pin(model(engine, argument, around)),
    },
    Magic {
        name: "reset",
        usage: "[code | chat]",
        help: "Begin afresh: variables and processes of the sandbox, and the conversation; or one of the two",
        argument: Argument::Words(&["code", "chat"]),
        action: |engine, argument, around| Box::pin(reset(engine, argument, around)),
    },
];

/// Cell magics, for help only: the parser knows them.
const CELL_MAGICS: &[(&str, &str)] = &[
    ("chat", "The rest of the cell is for the model, fences in it do not run"),
    ("python", "The rest of the cell is Python"),
    ("sh", "The rest of the cell is a shell script"),
];

/// Looks a magic up by its name.
pub(super) fn find(name: &str) -> Option<&'static Magic> {
    MAGICS.iter().find(|magic| magic.name == name)
}

/// The cell magics of a kernelspec, each with what it does.
pub(super) fn cell_magics(flavor: Flavor) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    CELL_MAGICS.iter().filter(move |(name, _)| flavor == Flavor::Markdown || *name == "chat")
}

/// How a magic is written in this kernelspec's cells.
pub(super) fn prefix(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Markdown => "%",
        Flavor::Python => "%cb ",
    }
}

/// Runs one directive.
pub(super) async fn run(
    engine: &Engine,
    directive: &Directive,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    // The parser lets no other name through.
    let Some(magic) = find(&directive.name) else {
        return Err(Failure::new("UnknownMagic", format!("there is no magic %{}", directive.name)));
    };
    (magic.action)(engine, &directive.argument, around).await
}

async fn help(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    let prefix = prefix(engine.flavor);
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
            text.push_str(&row(&format!("{prefix}{} {}", magic.name, magic.usage), magic.help));
        }
        for (name, what) in cell_magics(engine.flavor) {
            text.push_str(&row(&format!("%%{name}"), what));
        }
    } else if let Some(magic) = find(wanted) {
        text = format!("`{prefix}{} {}`: {}.", magic.name, magic.usage, magic.help);
    } else if let Some((name, what)) = cell_magics(engine.flavor).find(|(name, _)| *name == wanted) {
        text = format!("`%%{name}`: {what}.");
    } else {
        return Err(Failure::new(
            "UnknownMagic",
            format!("there is no magic {prefix}{wanted}; {prefix}help lists those there are"),
        ));
    }
    show(around, &text).await;
    Ok(())
}

/// One row of a Markdown table; a bar inside a cell would end it.
fn row(left: &str, right: &str) -> String {
    format!("| `{}` | {} |\n", left.trim_end().replace('|', "\\|"), right.replace('|', "\\|"))
}

async fn model(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
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
    let prefix = prefix(engine.flavor);
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
    lines.push(format!("\n`{prefix}model NAME` switches."));
    show(around, &lines.join("\n")).await;
    Ok(())
}

async fn reset(engine: &Engine, argument: &str, around: Surroundings<'_>) -> Result<(), Failure> {
    let (code, chat) = match argument {
        "" => (true, true),
        "code" => (true, false),
        "chat" => (false, true),
        other => {
            let prefix = prefix(engine.flavor);
            return Err(Failure::new(
                "UsageError",
                format!("{prefix}reset takes nothing, `code` or `chat`, not {other:?}"),
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

async fn show(around: Surroundings<'_>, markdown: &str) {
    send(around.events, Event::Display { bundle: Bundle::markdown(markdown), display_id: None }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lower_case() {
        for (at, magic) in MAGICS.iter().enumerate() {
            assert!(magic.name.chars().all(|c| c.is_ascii_lowercase()));
            assert!(MAGICS[at + 1..].iter().all(|other| other.name != magic.name));
        }
    }

    #[test]
    fn a_bar_does_not_end_a_table_cell() {
        assert_eq!(row("%reset [code | chat]", "x"), "| `%reset [code \\| chat]` | x |\n");
    }
}
