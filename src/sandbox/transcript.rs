//! What the model may be told of a run's output: bounded, plain text.
//!
//! May import `event`.

use std::fmt::Write;

use crate::event::{Bundle, Failure, Stream};

const HEAD: usize = 3 << 10;
const TAIL: usize = 6 << 10;
const RESULTS: usize = 8 << 10;

/// The beginning and the end of a text.
#[derive(Debug, Clone, Default)]
struct Ends {
    head: String,
    tail: String,
    /// Bytes between the two.
    skipped: usize,
}

impl Ends {
    fn push(&mut self, text: &str) {
        let mut rest = text;
        if self.skipped == 0 && self.tail.is_empty() && self.head.len() < HEAD {
            let (head, after) = text.split_at(text.floor_char_boundary(HEAD - self.head.len()));
            self.head.push_str(head);
            rest = after;
        }
        let kept = &rest[rest.ceil_char_boundary(rest.len().saturating_sub(TAIL))..];
        self.skipped += rest.len() - kept.len();
        self.tail.push_str(kept);
        // Twice the size before it is cut back, so that small writes don't move it each time.
        if self.tail.len() > 2 * TAIL {
            let cut = self.tail.ceil_char_boundary(self.tail.len() - TAIL);
            self.skipped += cut;
            self.tail.drain(..cut);
        }
    }

    fn finish(mut self) -> String {
        if self.tail.len() > TAIL && self.skipped + self.tail.len() > 2 * TAIL {
            let cut = self.tail.ceil_char_boundary(self.tail.len() - TAIL);
            self.skipped += cut;
            self.tail.drain(..cut);
        }
        let gap = if self.skipped > 0 {
            format!("\n[... {} bytes left out ...]\n", self.skipped)
        } else {
            String::new()
        };
        plain(&format!("{}{gap}{}", self.head, self.tail))
    }
}

/// A picture that a run showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// `image/png` or `image/jpeg`.
    pub media_type: &'static str,
    /// Its bytes in base64, without line breaks.
    pub base64: String,
}

/// The most pictures of one run, and the largest one, in bytes of base64.
const PICTURES: usize = 4;
const PICTURE: usize = 2 << 20;

/// Collects what one run shows.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    streams: [Ends; 2],
    results: String,
    errors: String,
    pictures: Vec<Picture>,
}

impl Transcript {
    pub(crate) fn text(&mut self, stream: Stream, text: &str) {
        self.streams[stream as usize].push(text);
    }

    pub(crate) fn result(&mut self, bundle: &Bundle) {
        let text =
            bundle.data().get("text/plain").and_then(|v| v.as_str()).unwrap_or("(a display without text)");
        append(&mut self.results, text);
        let picture = ["image/png", "image/jpeg"]
            .into_iter()
            .find_map(|kind| Some((kind, bundle.data().get(kind)?.as_str()?)));
        if let Some((media_type, data)) = picture
            && self.pictures.len() < PICTURES
            && data.len() <= PICTURE
        {
            let base64 = data.split_ascii_whitespace().collect();
            self.pictures.push(Picture { media_type, base64 });
        }
    }

    /// The first pictures that it showed, for models that see.
    pub(crate) fn take_pictures(&mut self) -> Vec<Picture> {
        std::mem::take(&mut self.pictures)
    }

    pub(crate) fn error(&mut self, failure: &Failure) {
        if failure.traceback.is_empty() {
            append(&mut self.errors, &format!("{}: {}", failure.ename, failure.evalue));
        } else {
            append(&mut self.errors, &plain(&failure.traceback.join("\n")));
        }
    }

    /// The same text as at the end, of what there is by now.
    pub(crate) fn so_far(&self) -> String {
        let (results, errors) = (self.results.clone(), self.errors.clone());
        Transcript { streams: self.streams.clone(), results, errors, pictures: Vec::new() }.finish()
    }

    /// One text, in sections.
    pub(crate) fn finish(self) -> String {
        let [stdout, stderr] = self.streams.map(Ends::finish);
        let sections =
            [("stdout", &stdout), ("stderr", &stderr), ("result", &self.results), ("error", &self.errors)];
        let mut all = String::new();
        for (name, text) in sections {
            let text = text.trim_end();
            if !text.is_empty() {
                let _ = writeln!(all, "[{name}]\n{text}");
            }
        }
        all
    }
}

fn append(to: &mut String, text: &str) {
    let room = RESULTS.saturating_sub(to.len());
    let kept = &text[..text.floor_char_boundary(room)];
    if !kept.is_empty() {
        to.push_str(kept);
        to.push_str(if kept.len() < text.len() { " [...]\n" } else { "\n" });
    }
}

/// Without colours, and with only the last state of a line that was drawn over.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (body, end) = line.strip_suffix('\n').map_or((line, ""), |body| (body, "\n"));
        let body = body.trim_end_matches('\r');
        let mut rest = body.rsplit('\r').next().unwrap_or_default();
        while let Some(at) = rest.find("\u{1b}[") {
            out.push_str(&rest[..at]);
            let after = &rest[at + 2..];
            rest = after.find('m').map_or("", |end| &after[end + 1..]);
        }
        out.push_str(rest);
        out.push_str(end);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_keeps_its_beginning_and_its_end_and_says_what_is_missing() {
        let mut transcript = Transcript::default();
        for number in 0..20_000 {
            transcript.text(Stream::Stdout, &format!("line {number}\n"));
        }
        let text = transcript.finish();
        assert!(text.starts_with("[stdout]\nline 0\n") && text.ends_with("line 19999\n"), "{text}");
        assert!(text.contains("bytes left out") && text.len() < HEAD + TAIL + 200);
    }

    #[test]
    fn the_first_pictures_are_kept_as_long_as_they_are_not_too_large() {
        let bundle = |kind: &str, data: String| {
            let mut map = serde_json::Map::new();
            map.insert(kind.to_owned(), data.into());
            Bundle::sanitised(map, serde_json::Map::new())
        };
        let mut transcript = Transcript::default();
        transcript.result(&bundle("image/png", "aGVs\nbG8=\n".to_owned()));
        transcript.result(&bundle("image/png", "A".repeat(PICTURE + 4)));
        transcript.result(&bundle("text/html", "<b>x</b>".to_owned()));
        for _ in 0..10 {
            transcript.result(&bundle("image/jpeg", "aGVsbG8=".to_owned()));
        }
        let pictures = transcript.take_pictures();
        assert_eq!(pictures.len(), PICTURES);
        assert_eq!(pictures[0], Picture { media_type: "image/png", base64: "aGVsbG8=".to_owned() });
    }

    #[test]
    fn colours_go_and_a_line_drawn_over_shows_its_last_state() {
        assert_eq!(plain("\u{1b}[31mred\u{1b}[0m\n10%\r20%\r\ndone"), "red\n20%\ndone");
        assert_eq!(plain("cut \u{1b}[3"), "cut ");
    }

    #[test]
    fn characters_are_never_split() {
        let mut transcript = Transcript::default();
        for _ in 0..5000 {
            transcript.text(Stream::Stderr, "é𝒳");
        }
        assert!(!transcript.finish().contains('\u{fffd}'));
    }
}
