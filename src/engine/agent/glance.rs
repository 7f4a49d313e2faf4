//! The first lines of files that a question names, so that the model knows what is in them before it writes code.
//!
//! Only for a model that could read them by itself: files of the workspace. And only what a mention (`@data.csv`) could
//! attach unasked: plain files, over no link, nothing hidden, nothing that looks like a key. They are sent as whatever is
//! attached is: fenced, marked as material, without what a reader does not see.

use std::fs::File;
use std::io::Read;

use crate::chat::{Attachment, Content, Prompt};
use crate::engine::asking::Found;
use crate::engine::execute::Engine;

/// Files of one question.
const FILES: usize = 3;
/// Words that are looked at.
const WORDS: usize = 2000;
/// Lines of a file, bytes of a line, bytes of it all.
const LINES: usize = 3;
const LINE: usize = 200;
const HEAD: u64 = 1 << 10;

impl Engine {
    /// Adds the first lines of named text files to a question.
    pub(super) async fn glance(&self, prompt: &mut Prompt) {
        let names = named(&prompt.text);
        if names.is_empty() {
            return;
        }
        let places = self.places();
        let looking = tokio::task::spawn_blocking(move || {
            let mut seen = Vec::new();
            for name in names {
                if let Found::File(file) = places.find(&format!("/workspace/{name}"))
                    && let Some(lines) = first_lines(file)
                    && seen.len() < FILES
                {
                    seen.push(Attachment {
                        name: format!("{name}, only its first lines"),
                        content: Content::Text(lines),
                        agreed: None,
                    });
                }
            }
            seen
        });
        // A question without them is as good as one that names no file.
        prompt.attachments.extend(looking.await.unwrap_or_default());
    }
}

/// Words of a text that could be names of files, each once. Mentions are attached whole, elsewhere.
fn named(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for word in text.split_whitespace().take(WORDS) {
        let around = |c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '/' | '.');
        if word.trim_start_matches(|c: char| around(c) && c != '@').starts_with('@') {
            continue;
        }
        let name = word.trim_start_matches(around).trim_end_matches(|c: char| around(c) || c == '.');
        let is_name = name.rsplit_once('.').is_some_and(|(stem, ending)| {
            !stem.is_empty() && (1..=8).contains(&ending.len()) && ending.chars().all(char::is_alphanumeric)
        });
        if is_name && !names.iter().any(|known| known == name) && names.len() < 4 * FILES {
            names.push(name.to_owned());
        }
    }
    names
}

/// The beginning of a text file.
fn first_lines(file: File) -> Option<String> {
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).ok()?;
    let text = match std::str::from_utf8(&head) {
        Ok(text) => text,
        // A character that the limit cut.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(head.get(..error.valid_up_to())?).ok()?
        }
        Err(_) => return None,
    };
    if text.trim().is_empty() || text.contains('\0') {
        return None;
    }
    let lines = text.lines().take(LINES).map(|line| &line[..line.floor_char_boundary(LINE)]);
    Some(lines.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::io::{Seek, Write};

    use super::*;

    #[test]
    fn names_are_found_in_prose_and_mentions_are_left_to_others() {
        let text =
            "Look at sales.csv, `data/b.tsv` and (c.txt). Not @d.csv, 3.14159265358979, e.g. or the end.";
        assert_eq!(named(text), ["sales.csv", "data/b.tsv", "c.txt", "e.g"]);
        assert_eq!(named("sales.csv sales.csv"), ["sales.csv"]);
    }

    #[test]
    fn only_the_first_lines_of_texts_are_taken() {
        let lines = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file.rewind().unwrap();
            first_lines(file)
        };
        assert_eq!(lines(b"a,b\n1,2\n3,4\n5,6\n").as_deref(), Some("a,b\n1,2\n3,4"));
        assert_eq!(lines(b"a\0b"), None);
        assert_eq!(lines(b"\xff\xfe"), None);
        assert_eq!(lines(b""), None);
        assert_eq!(lines("é".repeat(4000).as_bytes()).unwrap().len(), LINE);
    }
}
