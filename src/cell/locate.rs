//! What is at the cursor, for completion and inspection. Works while a cell is being typed: a fence without
//! its end and a magic that does not exist yet are no errors here.

use super::head::{self, Kind};
use super::{Dialect, Vocabulary, info, markdown};

/// What is at the cursor. Positions count Unicode code points, as the Jupyter protocol does; a `start` is a
/// position in the cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In code.
    Code {
        /// The language's canonical name.
        language: String,
        /// The code of the whole block, as it would run.
        source: String,
        /// The cursor in the source.
        cursor: usize,
        /// The cursor in the cell; in the cursor's own line, a position in the source differs from that in
        /// the cell as `cursor` differs from `cell_cursor`.
        cell_cursor: usize,
    },
    /// In the name of a magic.
    Magic {
        /// What comes before the name: `%`, `%%` or `%cb `.
        sigil: &'static str,
        /// The name up to the cursor.
        prefix: String,
        /// The whole name.
        name: String,
        /// Where the name begins.
        start: usize,
    },
    /// In the argument of a line magic.
    Argument {
        /// The magic's name.
        magic: String,
        /// The argument up to the cursor.
        prefix: String,
        /// Where the argument begins.
        start: usize,
    },
    /// In the language tag of a fence.
    Language {
        /// The tag up to the cursor.
        prefix: String,
        /// Where the tag begins.
        start: usize,
    },
    /// In text for the model, or where there is nothing to say.
    Prose,
}

/// Says what is at the cursor, which counts code points; a cursor behind the end is at the end.
pub fn locate(text: &str, cursor: usize, dialect: Dialect, words: &Vocabulary) -> Place {
    let at = text.char_indices().nth(cursor).map_or(text.len(), |(at, _)| at);
    let mut lines = head::lines(text).peekable();
    let mut body = lines.peek().map_or(0, |line| line.start);
    while let Some(line) = lines.next() {
        let has_cursor = at >= line.start && at <= line.start + line.text.len();
        match head::classify(line.text, dialect) {
            Kind::Blank => continue,
            Kind::Magic { name, argument } if has_cursor => {
                return in_magic(text, at, line.start, line.text, dialect.sigil(), (name, argument));
            }
            Kind::Magic { .. } => {}
            Kind::CellMagic { name, argument } => {
                if has_cursor {
                    return in_magic(text, at, line.start, line.text, "%%", (name, argument));
                }
                return match words.canonical(name) {
                    Some(language) => code(text, at, language, line.end),
                    None => Place::Prose,
                };
            }
            Kind::Command(command) => {
                let mut end = line.start + line.text.len();
                let mut last = line;
                while last.text.ends_with('\\') {
                    let Some(next) = lines.next() else { break };
                    (last, end) = (next, next.start + next.text.len());
                }
                if at >= line.start && at <= end {
                    let begin = line.start + line.text.find(command).unwrap_or(0);
                    return command_at(text, at, begin..end, words);
                }
                body = last.end;
                continue;
            }
            // A sigil alone, where a magic is about to be typed.
            Kind::Other if has_cursor && is_sigil(line.text, dialect) => {
                let sigil = if line.text.trim() == "%%" { "%%" } else { "%" };
                return magic(text, at, line.start + line.text.trim_end().len(), "", sigil);
            }
            Kind::Other => {
                if dialect == Dialect::Python && !head::opens_fence(line.text) {
                    return code(text, at, "python", body);
                }
                break;
            }
        }
        body = line.end;
    }
    in_markdown(text, at, body, words)
}

fn is_sigil(line: &str, dialect: Dialect) -> bool {
    dialect == Dialect::Markdown && matches!(line.trim(), "%" | "%%")
}

/// The number of code points of a part of the text.
fn points(text: &str, from: usize, to: usize) -> usize {
    text.get(from..to).map_or(0, |part| part.chars().count())
}

fn in_magic(
    text: &str,
    at: usize,
    line_start: usize,
    line: &str,
    sigil: &'static str,
    (name, argument): (&str, &str),
) -> Place {
    // `%cb` alone is read as `%cb help`: the name is not there yet.
    let implied = sigil == Dialect::Python.sigil() && line.trim() == sigil.trim_end();
    let name = if implied { "" } else { name };
    let after_sigil = line.find(sigil.trim_end()).map_or(line.len(), |found| found + sigil.trim_end().len());
    let rest = line.get(after_sigil..).unwrap_or_default();
    let name_start = line_start + after_sigil + rest.find(name).unwrap_or(0);
    let name_start = if implied { line_start + line.len() } else { name_start };
    let name_end = name_start + name.len();
    if at <= name_end {
        return magic(text, at.max(name_start), name_start, name, sigil);
    }
    let tail = text.get(name_end..line_start + line.len()).unwrap_or_default();
    let start = match argument {
        "" => at,
        argument => name_end + tail.find(argument).unwrap_or(0),
    };
    let start = start.min(at);
    Place::Argument {
        magic: name.to_owned(),
        prefix: text.get(start..at).unwrap_or_default().to_owned(),
        start: points(text, 0, start),
    }
}

fn magic(text: &str, at: usize, start: usize, name: &str, sigil: &'static str) -> Place {
    Place::Magic {
        sigil,
        prefix: text.get(start..at).unwrap_or_default().to_owned(),
        name: name.to_owned(),
        start: points(text, 0, start),
    }
}

/// Code that is a part of the cell as it stands.
fn code(text: &str, at: usize, language: &str, from: usize) -> Place {
    Place::Code {
        language: language.to_owned(),
        source: text.get(from..).unwrap_or_default().to_owned(),
        cursor: points(text, from, at),
        cell_cursor: points(text, 0, at),
    }
}

fn command_at(text: &str, at: usize, range: std::ops::Range<usize>, words: &Vocabulary) -> Place {
    Place::Code {
        language: words.canonical("sh").unwrap_or("sh").to_owned(),
        cursor: points(text, range.start, at),
        cell_cursor: points(text, 0, at),
        source: text.get(range).unwrap_or_default().to_owned(),
    }
}

fn in_markdown(text: &str, at: usize, body: usize, words: &Vocabulary) -> Place {
    let markdown = text.get(body..).unwrap_or_default();
    let Some(inner) = at.checked_sub(body) else { return Place::Prose };
    let (fences, _) = markdown::fences(markdown);
    let Some(fence) =
        fences.into_iter().rev().find(|fence| fence.range.start <= inner && inner <= fence.range.end)
    else {
        return Place::Prose;
    };
    if inner <= fence.info_range.end {
        return in_info(text, at, body + fence.info_range.start);
    }
    let Some(language) = markdown::language(&fence, words) else { return Place::Prose };
    // Behind the code: on the closing fence's line, or at the end of one that is still being typed.
    let code_end = fence.pieces.last().map_or(fence.info_range.end + 1, |piece| piece.text.end);
    if fence.missing.is_none() && inner >= code_end {
        return Place::Prose;
    }
    let source_at = fence
        .pieces
        .iter()
        .rev()
        .find(|piece| piece.text.start <= inner)
        .map_or(0, |piece| piece.source + (inner - piece.text.start).min(piece.text.len()));
    let source_at = if inner >= code_end { fence.source.len() } else { source_at };
    Place::Code {
        cursor: points(&fence.source, 0, source_at),
        language,
        cell_cursor: points(text, 0, at),
        source: fence.source,
    }
}

/// In an info string that begins at byte `start`: only the language tag can be completed.
fn in_info(text: &str, at: usize, start: usize) -> Place {
    let typed = text.get(start..at).unwrap_or_default();
    let tag = typed.trim_start_matches([' ', '\t', '{', '.']);
    let is_tag = !tag.contains([' ', '\t', '=']) && info::read(tag).attributes.is_empty();
    if at < start || !is_tag {
        return Place::Prose;
    }
    Place::Language { prefix: tag.to_owned(), start: points(text, 0, at - tag.len()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Vocabulary {
        Vocabulary::new().language("python", ["py"]).language("sh", ["bash"]).magics(["help", "model"])
    }

    /// What is at the `|` of a text.
    fn at(text: &str, dialect: Dialect) -> String {
        let cursor = text.chars().position(|c| c == '|').unwrap_or_default();
        match locate(&text.replacen('|', "", 1), cursor, dialect, &words()) {
            Place::Code { language, source, cursor, cell_cursor } => {
                let at = source.char_indices().nth(cursor).map_or(source.len(), |(at, _)| at);
                let (before, after) = source.split_at(at);
                format!("{language} {before}|{after} {cell_cursor}")
            }
            Place::Magic { sigil, prefix, name, start } => format!("magic {sigil}{prefix}|{name} {start}"),
            Place::Argument { magic, prefix, start } => format!("argument {magic} {prefix}| {start}"),
            Place::Language { prefix, start } => format!("language {prefix}| {start}"),
            Place::Prose => "prose".to_owned(),
        }
    }

    #[test]
    fn the_cursor_is_found_in_a_markdown_cell() {
        for (text, expected) in [
            ("|", "prose"),
            ("hel|lo", "prose"),
            ("%|", "magic %| 1"),
            ("%%|", "magic %%| 2"),
            ("%mo|", "magic %mo|mo 1"),
            ("%mo|del x", "magic %mo|model 1"),
            ("%model |", "argument model | 7"),
            ("%model open|ai/x", "argument model open| 7"),
            ("%model  openai/x |", "argument model openai/x | 8"),
            ("%%pyt|\nx", "magic %%pyt|pyt 2"),
            ("%%python\nimport o|s", "python import o|s 17"),
            ("!ls -|l", "sh ls -|l 5"),
            ("a\n%mo|", "prose"),
            ("é𝒳\n```py|", "language py| 6"),
            ("```|", "language | 3"),
            ("``` {.py|}", "language py| 6"),
            ("```python time|", "prose"),
            ("é\n```python\nos.|\n```", "python os.|\n 15"),
            ("é\n```python\nos.|", "python os.| 15"),
            ("```python\n|", "python | 10"),
            ("```python\nx\n|\n```", "python x\n|\n 12"),
            ("```python\nx\n|```", "prose"),
            ("```python\nx\n```|", "prose"),
            ("```text\nx|\n```", "prose"),
            ("- ```py\n  a\n  é𝒳.|b\n  ```", "python a\né𝒳.|b\n 17"),
            ("- ```py\n  a\n |  b\n  ```", "python a\n| b\n 13"),
            ("> ```py\n> a|\n> ```", "prose"),
            ("%model x\n```py\nb|\n```", "python b|\n 16"),
        ] {
            assert_eq!(at(text, Dialect::Markdown), expected, "{text:?}");
        }
    }

    #[test]
    fn the_cursor_is_found_in_a_python_cell() {
        for (text, expected) in [
            ("|", "prose"),
            ("im|port", "python im|port 2"),
            ("%matpl|", "python %matpl| 6"),
            ("%cb mo|", "magic %cb mo|mo 4"),
            ("%cb |", "magic %cb | 4"),
            ("%cb model a|", "argument model a| 10"),
            ("%cb model a\né.|", "python é.| 14"),
            ("%%chat\nhello|", "prose"),
            ("```sh\nl|s\n```", "sh l|s\n 7"),
        ] {
            assert_eq!(at(text, Dialect::Python), expected, "{text:?}");
        }
    }
}
