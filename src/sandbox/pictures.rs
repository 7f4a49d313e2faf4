//! Pictures that a run has shown, so that a file that holds the same one is not shown beside it.
//!
//! May import `event`. The same is what has the same bytes. And Matplotlib draws a figure twice, for the page and for a file, with
//! other bytes each time: of a run that showed figures, as many files that it drew count as them.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use base64::Engine;
use serde_json::Value;

use crate::event::Bundle;

/// Pictures that are remembered.
const KEPT: usize = 64;
/// Characters of base64 in which Matplotlib names itself, close to the beginning.
const HEAD: usize = 400;

/// What one run has shown.
#[derive(Debug, Default)]
pub(crate) struct Pictures {
    seen: HashSet<u64>,
    /// Figures that no file was taken for yet.
    figures: usize,
}

impl Pictures {
    /// The run showed this.
    pub(crate) fn showed(&mut self, bundle: &Bundle) {
        let Some((mime, data)) = picture(bundle) else { return };
        if self.seen.len() < KEPT {
            self.seen.insert(hash(mime, data));
        }
        self.figures += usize::from(is_drawn(mime, data));
    }

    /// Whether what is in a file was shown already.
    pub(crate) fn has(&mut self, file: &Bundle) -> bool {
        let Some((mime, data)) = picture(file) else { return false };
        let is_figure = self.figures > 0 && is_drawn(mime, data);
        self.figures -= usize::from(is_figure);
        is_figure || self.seen.contains(&hash(mime, data))
    }
}

/// The picture in a bundle.
fn picture(bundle: &Bundle) -> Option<(&str, &str)> {
    let pictures = bundle.data().iter().filter(|(mime, _)| mime.starts_with("image/"));
    let mut pictures =
        pictures.filter_map(|(mime, data): (&String, &Value)| Some((mime.as_str(), data.as_str()?)));
    pictures.next()
}

/// The same for the same bytes: base64 may be broken into lines, an SVG is text.
fn hash(mime: &str, data: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    mime.hash(&mut hasher);
    for piece in data.split_ascii_whitespace() {
        hasher.write(piece.as_bytes());
    }
    hasher.finish()
}

/// Whether Matplotlib drew it as a PNG: it says so at its beginning.
fn is_drawn(mime: &str, data: &str) -> bool {
    let head: String = data.chars().filter(|c| !c.is_ascii_whitespace()).take(HEAD).collect();
    let whole = head.len() / 4 * 4;
    mime == "image/png"
        && base64::engine::general_purpose::STANDARD
            .decode(&head[..whole])
            .is_ok_and(|head| head.windows(10).any(|name| name == b"Matplotlib"))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;

    /// A PNG whose text chunk says this, whose pixels are those.
    fn png(software: &str, pixels: &str, width: usize) -> Bundle {
        let mut bytes =
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89".to_vec();
        bytes.extend(format!("tEXtSoftware\0{software}{pixels}").into_bytes());
        let base64 = base64::engine::general_purpose::STANDARD.encode(bytes);
        let lines: Vec<&str> =
            base64.as_bytes().chunks(width).map(|l| str::from_utf8(l).unwrap_or("")).collect();
        let mut data = Map::new();
        data.insert("image/png".to_owned(), Value::String(lines.join("\n")));
        data.insert("text/plain".to_owned(), Value::String("a figure".to_owned()));
        Bundle::sanitised(data, Map::new())
    }

    #[test]
    fn the_same_bytes_are_the_same_picture() {
        let mut pictures = Pictures::default();
        pictures.showed(&png("a camera", "one", 76));
        assert!(pictures.has(&png("a camera", "one", 10_000)));
        assert!(!pictures.has(&png("a camera", "two", 10_000)));
        assert!(!pictures.has(&Bundle::text("a text")));
    }

    #[test]
    fn as_many_drawn_files_as_figures_were_shown_are_those_figures() {
        let drawn = |pixels| png("Matplotlib version3.6.3, https://matplotlib.org/", pixels, 10_000);
        let mut pictures = Pictures::default();
        assert!(!pictures.has(&drawn("one")), "no figure was shown");
        pictures.showed(&drawn("one, for the page"));
        assert!(!pictures.has(&png("a camera", "one", 76)));
        assert!(pictures.has(&drawn("one, for a file")));
        assert!(!pictures.has(&drawn("another")), "one figure is one file");
    }
}
