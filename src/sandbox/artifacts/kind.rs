//! What a file is, by its first bytes and its name. The bytes decide where a wrong answer would matter.
//!
//! Imports nothing of ours.

use std::path::Path;

/// How a file is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A picture that front ends show by themselves.
    Image,
    Svg,
    Html,
    /// Values with this byte between them.
    Table(u8),
    Parquet,
    /// Anything that reads as text.
    Text,
    /// A link only.
    Other,
}

/// First bytes, and what they mean.
const MAGIC: &[(&[u8], &str, Kind)] = &[
    (b"\x89PNG\r\n\x1a\n", "image/png", Kind::Image),
    (b"\xff\xd8\xff", "image/jpeg", Kind::Image),
    (b"GIF87a", "image/gif", Kind::Image),
    (b"GIF89a", "image/gif", Kind::Image),
    (b"PAR1", "application/vnd.apache.parquet", Kind::Parquet),
    (b"%PDF-", "application/pdf", Kind::Other),
    (b"PK\x03\x04", "application/zip", Kind::Other),
    (b"\x1f\x8b", "application/gzip", Kind::Other),
];

/// Endings of names, and what they mean for a file that reads as text.
const NAMES: &[(&str, &str, Kind)] = &[
    ("svg", "image/svg+xml", Kind::Svg),
    ("html", "text/html", Kind::Html),
    ("htm", "text/html", Kind::Html),
    ("csv", "text/csv", Kind::Table(b',')),
    ("tsv", "text/tab-separated-values", Kind::Table(b'\t')),
    ("md", "text/markdown", Kind::Text),
    ("json", "application/json", Kind::Text),
    ("jsonl", "application/jsonl", Kind::Text),
    ("ipynb", "application/x-ipynb+json", Kind::Text),
    ("xml", "application/xml", Kind::Text),
];

/// The media type and the way to show a file that begins with `head`.
pub(super) fn of(path: &Path, head: &[u8]) -> (&'static str, Kind) {
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return ("image/webp", Kind::Image);
    }
    if let Some((_, mime, kind)) = MAGIC.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return (mime, *kind);
    }
    if !is_text(head) {
        return ("application/octet-stream", Kind::Other);
    }
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_ascii_lowercase();
    NAMES.iter().find(|(name, ..)| *name == ending).map_or(("text/plain", Kind::Text), |(_, m, k)| (m, *k))
}

/// Whether bytes are the beginning of a text: UTF-8 (the last character may be cut) without control characters.
fn is_text(head: &[u8]) -> bool {
    let valid = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !valid
        .contains(|c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{c}' | '\u{1b}' | '\u{8}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_before_names() {
        for (name, head, mime, kind) in [
            ("x.txt", &b"\x89PNG\r\n\x1a\nrest"[..], "image/png", Kind::Image),
            ("x.png", b"<script>", "text/plain", Kind::Text),
            ("x.csv", b"a,b\n1,2\n", "text/csv", Kind::Table(b',')),
            ("x.CSV", b"a,b\n1,\xc3", "text/csv", Kind::Table(b',')),
            ("x.csv", b"a\x00b", "application/octet-stream", Kind::Other),
            ("x.svg", b"<svg/>", "image/svg+xml", Kind::Svg),
            ("x.html", b"\xff\xfe", "application/octet-stream", Kind::Other),
            ("x.webp", b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp", Kind::Image),
            ("x", b"PAR1\x15", "application/vnd.apache.parquet", Kind::Parquet),
            ("empty", b"", "text/plain", Kind::Text),
        ] {
            assert_eq!(of(Path::new(name), head), (mime, kind), "{name}");
        }
    }
}
