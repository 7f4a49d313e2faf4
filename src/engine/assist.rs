//! Help while typing: completion, inspection, and whether a cell is complete.
//!
//! Positions are Unicode code points of the cell's text, as in the Jupyter protocol.

use serde_json::{Value, json};

use super::execute::Engine;
use super::magics::{self, Argument};
use super::{Completeness, Completions};
use crate::cell::{self, CellError, Dialect, Place, locate};
use crate::config::Flavor;
use crate::event::Bundle;

/// The language whose live session can complete and inspect.
const LIVE: &str = "python";

pub(super) async fn complete(engine: &Engine, code: &str, cursor: usize) -> Completions {
    let end = cursor.min(code.chars().count());
    match locate(code, cursor, engine.dialect(), &engine.words) {
        Place::Code { language, source, cursor, cell_cursor } if language == LIVE => {
            let found = in_cell(engine.sandbox.complete(&source, cursor).await, cursor, cell_cursor);
            match (engine.dialect(), ours(code, end)) {
                (Dialect::Python, Some(ours)) => join(ours, found),
                _ => found,
            }
        }
        Place::Magic { sigil, prefix, start, .. } => {
            let names: Vec<&str> = if sigil == "%%" {
                engine.words.cell_magic_names().collect()
            } else {
                magics::MAGICS.iter().map(|magic| magic.name).collect()
            };
            matching(names, &prefix, start, end)
        }
        Place::Argument { magic, prefix, start } => match magics::find(&magic).map(|magic| magic.argument) {
            Some(Argument::Words(words)) => matching(words.iter().copied(), &prefix, start, end),
            Some(Argument::Magic) => {
                matching(magics::MAGICS.iter().map(|magic| magic.name), &prefix, start, end)
            }
            Some(Argument::Model) => {
                let names = engine.chat.known_names();
                matching(names.iter().map(String::as_str), &prefix, start, end)
            }
            Some(Argument::Container) => {
                let containers = engine.sandbox.registry().containers();
                matching(containers.iter().map(|container| container.name.as_str()), &prefix, start, end)
            }
            Some(Argument::Free) | None => nothing(end),
        },
        Place::Language { prefix, start } => matching(engine.words.language_names(), &prefix, start, end),
        Place::Code { .. } | Place::Prose => nothing(end),
    }
}

/// What of ours is being typed where the rest is `IPython`'s: `%cb` and `%%chat`, at a cell's head.
fn ours(code: &str, cursor: usize) -> Option<Completions> {
    let before: String = code.chars().take(cursor).collect();
    let typed = before.trim_start();
    // The head ends with the first line that is not ours.
    let line = typed.lines().last().unwrap_or_default();
    let head = typed.lines().all(|line| line.trim().is_empty() || line.starts_with('%'));
    if !head || !line.starts_with('%') || typed.ends_with('\n') {
        return None;
    }
    let matches: Vec<String> = ["%cb", "%%chat"]
        .into_iter()
        .filter(|name| {
            name.starts_with(line) && (line.starts_with("%%") || !name.starts_with("%%") || line == "%")
        })
        .map(str::to_owned)
        .collect();
    let start = cursor - line.chars().count();
    (!matches.is_empty()).then_some(Completions { matches, start, end: cursor, ..Completions::default() })
}

/// Ours first, when both replace the same text.
fn join(ours: Completions, mut found: Completions) -> Completions {
    if found.matches.is_empty() {
        return ours;
    }
    if (found.start, found.end) == (ours.start, ours.end) {
        // Front ends pair matches and types by their places.
        if let Some(Value::Array(types)) = found.metadata.get_mut("_jupyter_types_experimental") {
            let ours = ours.matches.iter().map(|name| {
                json!({ "start": found.start, "end": found.end, "text": name, "type": "magic", "signature": "" })
            });
            types.splice(0..0, ours);
        }
        found.matches.splice(0..0, ours.matches);
    }
    found
}

pub(super) async fn inspect(engine: &Engine, code: &str, cursor: usize, detail: u8) -> Option<Bundle> {
    match locate(code, cursor, engine.dialect(), &engine.words) {
        Place::Code { language, source, cursor, .. } if language == LIVE => {
            engine.sandbox.inspect(&source, cursor, detail).await
        }
        Place::Magic { sigil, name, .. } if sigil != "%%" => about_magic(engine.dialect(), &name),
        Place::Magic { name, .. } => about_cell_magic(engine.flavor, &name),
        Place::Argument { magic, .. } => {
            about_magic(engine.dialect(), &magic).or_else(|| about_cell_magic(engine.flavor, &magic))
        }
        Place::Code { .. } | Place::Language { .. } | Place::Prose => None,
    }
}

pub(super) async fn is_complete(engine: &Engine, code: &str) -> Completeness {
    let dialect = engine.dialect();
    match cell::parse(code, dialect, &engine.words) {
        Err(CellError::UnterminatedFence { .. }) => Completeness::Incomplete { indent: String::new() },
        // The code below a cell magic is still to come, until a blank line ends the cell.
        Ok(_) | Err(CellError::NothingBelow { .. })
            if opens_cell_magic(code) && !ends_with_blank_line(code) =>
        {
            Completeness::Incomplete { indent: String::new() }
        }
        Ok(cell) if dialect == Dialect::Python && !opens_cell_magic(code) => match cell.parts.as_slice() {
            [cell::Part::Code(block)] if block.language == LIVE => {
                engine.sandbox.is_complete(&block.source).await
            }
            _ => Completeness::Complete,
        },
        // What can't be read will be refused with a reason when it is run.
        Ok(_) | Err(_) => Completeness::Complete,
    }
}

/// Whether the cell is one whose end only a blank line tells.
fn opens_cell_magic(code: &str) -> bool {
    code.trim_start().starts_with("%%")
}

fn ends_with_blank_line(code: &str) -> bool {
    code.contains('\n') && code.lines().next_back().is_some_and(|line| line.trim().is_empty())
        || code.ends_with("\n\n")
}

fn about_magic(dialect: Dialect, name: &str) -> Option<Bundle> {
    let magic = magics::find(name)?;
    Some(Bundle::text(format!("{}{} {}\n\n{}.", dialect.sigil(), magic.name, magic.usage, magic.help)))
}

fn about_cell_magic(flavor: Flavor, name: &str) -> Option<Bundle> {
    let (name, what) = magics::cell_magics(flavor).find(|(known, _)| *known == name)?;
    Some(Bundle::text(format!("%%{name}\n\n{what}.")))
}

/// Places completions of a block's source in the cell. The texts that they replace lie in the cursor's own
/// line, in which source and cell differ by a constant.
fn in_cell(found: Completions, cursor: usize, cell_cursor: usize) -> Completions {
    let back = cursor.saturating_sub(found.start);
    let ahead = found.end.saturating_sub(cursor);
    Completions { start: cell_cursor.saturating_sub(back), end: cell_cursor + ahead, ..found }
}

fn matching<'a>(
    names: impl IntoIterator<Item = &'a str>,
    prefix: &str,
    start: usize,
    end: usize,
) -> Completions {
    let wanted = prefix.to_lowercase();
    let matches = names
        .into_iter()
        .filter(|name| name.to_lowercase().starts_with(&wanted))
        .map(str::to_owned)
        .collect();
    Completions { matches, start, end, ..Completions::default() }
}

fn nothing(at: usize) -> Completions {
    Completions { start: at, end: at, ..Completions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_of_a_block_are_placed_in_its_cell() {
        let found = Completions { matches: vec!["upper".into()], start: 4, end: 7, ..Completions::default() };
        let placed = in_cell(found, 7, 21);
        assert_eq!((placed.start, placed.end), (18, 21));
    }

    #[test]
    fn ours_are_offered_only_at_the_head_of_a_cell() {
        let offered = |code: &str| ours(code, code.chars().count()).map(|found| (found.matches, found.start));
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(offered("%"), Some((owned(&["%cb", "%%chat"]), 0)));
        assert_eq!(offered("\n%c"), Some((owned(&["%cb"]), 1)));
        assert_eq!(offered("%cb model x\n%%c"), Some((owned(&["%%chat"]), 12)));
        for nothing in ["", "%ca", "x = 5 %", "x = 1\n%c", "%c\n", "%matplotlib"] {
            assert_eq!(offered(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn names_match_whatever_their_case() {
        let found = matching(["help", "model", "reset"], "H", 1, 2);
        assert_eq!(found.matches, ["help"]);
        assert_eq!((found.start, found.end), (1, 2));
    }

    #[test]
    fn a_cell_magic_ends_with_a_blank_line() {
        assert!(opens_cell_magic("%%python\nx"));
        assert!(!ends_with_blank_line("%%python\nx"));
        assert!(ends_with_blank_line("%%python\nx\n\n"));
        assert!(!ends_with_blank_line("%%python\n"));
    }
}
