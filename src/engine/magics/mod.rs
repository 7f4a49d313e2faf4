//! The line magics, one row each: to add one, add a row; help and completion follow.
//!
//! | module | what |
//! | --- | --- |
//! | `about` | help, the model, a fresh beginning |
//! | `agent` | what the model may do |
//! | `asking` | how questions are asked, what they cost |
//! | `dialogue` | what the model would be sent: shown, hidden, branched, taken and brought back |
//! | `containers` | which containers there are, which one is preferred |
//! | `packages` | packages for a container's image |
//! | `intent` | when the code in a prompt runs, and why it did not |
//! | `files` | copies between the notebook's directory and a container; checkpoints |
//! | `sessions` | what runs where, and how to end it |

mod about;
mod agent;
mod asking;
mod containers;
mod dialogue;
mod files;
mod intent;
pub(super) mod packages;
pub(super) mod sessions;
mod spelling;

use futures_util::future::BoxFuture;

use super::execute::{Engine, Surroundings, send};
use crate::cell::Directive;
use crate::config::Flavor;
use crate::event::{Bundle, Event, Failure, terminal, words};
use crate::sandbox::packages::Manager;

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
    /// A container's name.
    Container,
    /// Something that nobody can know.
    Free,
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
        action: |engine, argument, around| Box::pin(about::help(engine, argument, around)),
    },
    Magic {
        name: "model",
        usage: "[NAME]",
        help: "List the language models, or switch to one (`provider/model`)",
        argument: Argument::Model,
        action: |engine, argument, around| Box::pin(about::model(engine, argument, around)),
    },
    Magic {
        name: "mode",
        usage: "[ask | confirm | auto | default]",
        help: "What the model may do: only answer, run code after your yes, or work by itself",
        argument: Argument::Words(agent::MODES),
        action: |engine, argument, around| Box::pin(agent::mode(engine, argument, around)),
    },
    Magic {
        name: "system",
        usage: "[TEXT | off]",
        help: "Tell the model something in the place of `model.system` from now on; alone it shows what",
        argument: Argument::Words(&["off"]),
        action: |engine, argument, around| Box::pin(asking::system(engine, argument, around)),
    },
    Magic {
        name: "temperature",
        usage: "[NUMBER | off]",
        help: "Ask with another sampling temperature from now on; alone it shows which",
        argument: Argument::Words(&["off"]),
        action: |engine, argument, around| Box::pin(asking::temperature(engine, argument, around)),
    },
    Magic {
        name: "attach",
        usage: "[PATH... | off]",
        help: "Send files, or cells (`@cell:3`), with the next question; alone it lists them, `off` undoes it",
        argument: Argument::Words(&["off"]),
        action: |engine, argument, around| Box::pin(asking::attach(engine, argument, around)),
    },
    Magic {
        name: "save",
        usage: "NAME",
        help: "Put the model's last answer into the next Python cell as the variable NAME",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(asking::save(engine, argument, around)),
    },
    Magic {
        name: "cost",
        usage: "",
        help: "Show what the models of this kernel have cost, and the budgets",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(asking::cost(engine, argument, around)),
    },
    Magic {
        name: "reset",
        usage: "[code | chat]",
        help: "Begin afresh: variables and processes of the sandbox, and the conversation; or one of the two",
        argument: Argument::Words(&["code", "chat"]),
        action: |engine, argument, around| Box::pin(about::reset(engine, argument, around)),
    },
    Magic {
        name: "intent",
        usage: "[on | off]",
        help: "Let the words around code decide whether it runs, or let all code run",
        argument: Argument::Words(&["on", "off"]),
        action: |engine, argument, around| Box::pin(intent::intent(engine, argument, around)),
    },
    Magic {
        name: "why",
        usage: "",
        help: "Show why the last code ran, or did not",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(intent::why(engine, argument, around)),
    },
    Magic {
        name: "context",
        usage: "",
        help: "Show exactly what the model would be sent from this cell, with token counts, and what becomes of each turn",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(dialogue::context(engine, argument, around)),
    },
    Magic {
        name: "hide",
        usage: "[off] N...",
        help: "Keep turns of that number from the model; with off, they are sent again",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(dialogue::hide(engine, argument, around)),
    },
    Magic {
        name: "pin",
        usage: "[off] N...",
        help: "Send turns of that number however full the model's window is; off undoes it",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(dialogue::pin(engine, argument, around)),
    },
    Magic {
        name: "undo",
        usage: "",
        help: "Take the last turn out of the dialogue; what it replaced comes back",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(dialogue::undo(engine, argument, around)),
    },
    Magic {
        name: "branch",
        usage: "NAME",
        help: "Go on in a branch of the dialogue; a new one begins with what was said so far",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(dialogue::branch(engine, argument, around)),
    },
    Magic {
        name: "branches",
        usage: "",
        help: "List the branches of the dialogue",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(dialogue::branches(engine, argument, around)),
    },
    Magic {
        name: "resume",
        usage: "",
        help: "Bring back the dialogue that this notebook had before the kernel was restarted",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(dialogue::resume(engine, argument, around)),
    },
    Magic {
        name: "containers",
        usage: "",
        help: "List the containers: what they are for, what they do now, what they use and may use",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(containers::containers(engine, argument, around)),
    },
    Magic {
        name: "container",
        usage: "[NAME | default]",
        help: "Prefer a container for the blocks to come; alone it shows which",
        argument: Argument::Container,
        action: |engine, argument, around| Box::pin(containers::container(engine, argument, around)),
    },
    Magic {
        name: "status",
        usage: "",
        help: "Show what runs where: session, containers, memory, images",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(sessions::status(engine, argument, around)),
    },
    Magic {
        name: "session",
        usage: "[NAME]",
        help: "Enter a session, whose folder (/session) other kernels can share",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(sessions::session(engine, argument, around)),
    },
    Magic {
        name: "restart",
        usage: "[CONTAINER]",
        help: "End the containers, or one, and start them again",
        argument: Argument::Container,
        action: |engine, argument, around| Box::pin(sessions::restart(engine, argument, around)),
    },
    Magic {
        name: "kill",
        usage: "[CONTAINER]",
        help: "End the containers, or one, at once; the next block starts a fresh one",
        argument: Argument::Container,
        action: |engine, argument, around| Box::pin(sessions::kill(engine, argument, around)),
    },
    Magic {
        name: "pip",
        usage: "install PACKAGE...",
        help: "Add Python packages to the container: names and versions only",
        argument: Argument::Words(&["install"]),
        action: |engine, argument, around| Box::pin(packages::add(engine, Manager::Pip, argument, around)),
    },
    Magic {
        name: "apt",
        usage: "install PACKAGE...",
        help: "Add Debian packages to the container: names and versions only",
        argument: Argument::Words(&["install"]),
        action: |engine, argument, around| Box::pin(packages::add(engine, Manager::Apt, argument, around)),
    },
    Magic {
        name: "npm",
        usage: "install PACKAGE...",
        help: "Add Node packages to the container: names and versions only",
        argument: Argument::Words(&["install"]),
        action: |engine, argument, around| Box::pin(packages::add(engine, Manager::Npm, argument, around)),
    },
    Magic {
        name: "rebuild",
        usage: "[CONTAINER]",
        help: "Make a container's image again, from its first step",
        argument: Argument::Container,
        action: |engine, argument, around| Box::pin(containers::rebuild(engine, argument, around)),
    },
    Magic {
        name: "checkpoint",
        usage: "NAME",
        help: "Keep what the session holds: variables and files",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(files::checkpoint(engine, argument, around)),
    },
    Magic {
        name: "restore",
        usage: "NAME",
        help: "Bring a checkpoint back",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(files::restore(engine, argument, around)),
    },
    Magic {
        name: "checkpoints",
        usage: "[--delete NAME]",
        help: "List the checkpoints, or remove one",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(files::checkpoints(engine, argument, around)),
    },
    Magic {
        name: "upload",
        usage: "SRC [DEST]",
        help: "Copy from the notebook's directory into the container",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(files::upload(engine, argument, around)),
    },
    Magic {
        name: "download",
        usage: "SRC [DEST]",
        help: "Copy from the container into the notebook's directory",
        argument: Argument::Free,
        action: |engine, argument, around| Box::pin(files::download(engine, argument, around)),
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
    (magic.action)(engine, &directive.argument, around).await.map_err(|failure| engine.spelt_failure(failure))
}

/// A text of unknown making within a cell of a Markdown table or between backticks.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('`', "'").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text with words of the guest's, as Markdown in which they mean nothing.
fn harmless(text: &str) -> String {
    let mut literal = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // Mathematics begins with these, also behind a backslash.
            '\\' => literal.push_str("&#92;"),
            '$' => literal.push_str("&#36;"),
            '(' | ')' | ',' | ';' | '-' | '/' | '\'' | '"' => literal.push(c),
            c if c.is_ascii_punctuation() => literal.extend(['\\', c]),
            c if c.is_whitespace() => literal.push(' '),
            c => literal.push(c),
        }
    }
    literal
}

/// What is wrong with what was written behind a magic.
fn usage(engine: &Engine, name: &str, what: &str) -> Failure {
    let sigil = engine.dialect().sigil();
    Failure::new("UsageError", format!("{sigil}{name} {what}; {sigil}help {name} shows its use"))
}

/// The name of a session or a checkpoint: it names a folder or a file.
fn name(text: &str) -> Result<&str, String> {
    const MOST: usize = 64;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > MOST || text.starts_with(['.', '-']) || !text.chars().all(fits) {
        return Err(format!(
            "takes a name of letters, digits, `-`, `_` and `.`, at most {MOST}, beginning with a letter, a digit or \
             `_`; not {text:?}"
        ));
    }
    Ok(text)
}

/// One row of a Markdown table; a bar inside a cell would end it.
fn row(left: &str, right: &str) -> String {
    format!("| `{}` | {} |\n", left.trim_end().replace('|', "\\|"), right.replace('|', "\\|"))
}

/// A text of unknown making as Markdown in which it means itself.
pub(super) fn literal(text: &str) -> String {
    let plain = terminal::filtered(text);
    let fence = words::fence(&plain);
    format!("{fence}text\n{plain}\n{fence}")
}

/// Shows Markdown of ours.
pub(super) async fn show(around: Surroundings<'_>, markdown: &str) {
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
    fn words_of_the_guest_are_literal() {
        assert_eq!(harmless("a_b [x](y)\n# <i> $e$ \\("), "a\\_b \\[x\\](y) \\# \\<i\\> &#36;e&#36; &#92;(");
    }

    #[test]
    fn names_are_safe_names_of_files() {
        for good in ["a", "my-session_2.1", "_x"] {
            assert_eq!(name(good), Ok(good));
        }
        for bad in ["", ".", "..", ".x", "-x", "a/b", "a b", "é", "a\\b", &"x".repeat(65)] {
            assert!(name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_quotation_can_not_be_left() {
        assert_eq!(literal("a\n```\nb"), "````text\na\n```\nb\n````");
    }

    #[test]
    fn a_bar_does_not_end_a_table_cell() {
        assert_eq!(row("%reset [code | chat]", "x"), "| `%reset [code \\| chat]` | x |\n");
    }
}
