//! Takes inline reasoning (`<think>…</think>` at the beginning of a reply) out of the text while it
//! streams. Imports nothing of ours.
//!
//! Only the beginning counts: later in a reply the tag is text that the model wrote about.

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// A piece of a reply, told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Text for the reader.
    Text(String),
    /// Reasoning.
    Reasoning(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Nothing but white space and perhaps the beginning of a tag so far.
    #[default]
    Beginning,
    Thinking,
    /// The tag was closed; the line breaks that follow belong to it.
    AfterThinking,
    Text,
}

/// Splits one reply, piece by piece; tags may be cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    state: State,
    held: String,
}

impl Splitter {
    /// Takes the next part of the reply.
    pub(crate) fn push(&mut self, part: &str) -> Vec<Piece> {
        self.held.push_str(part);
        let mut pieces = Vec::new();
        loop {
            match self.state {
                State::Beginning => {
                    let seen = self.held.trim_start();
                    if let Some(rest) = seen.strip_prefix(OPEN) {
                        self.held = rest.to_owned();
                        self.state = State::Thinking;
                    } else if OPEN.starts_with(seen) {
                        return pieces;
                    } else {
                        self.state = State::Text;
                    }
                }
                State::Thinking => {
                    if let Some(at) = self.held.find(CLOSE) {
                        let rest = self.held.split_off(at + CLOSE.len());
                        self.held.truncate(at);
                        let thought = std::mem::replace(&mut self.held, rest);
                        pieces.extend((!thought.is_empty()).then_some(Piece::Reasoning(thought)));
                        self.state = State::AfterThinking;
                    } else {
                        let keep = partial(&self.held, CLOSE);
                        let rest = self.held.split_off(self.held.len() - keep);
                        let thought = std::mem::replace(&mut self.held, rest);
                        pieces.extend((!thought.is_empty()).then_some(Piece::Reasoning(thought)));
                        return pieces;
                    }
                }
                State::AfterThinking => {
                    let rest = self.held.trim_start();
                    if rest.is_empty() {
                        return pieces;
                    }
                    self.held = rest.to_owned();
                    self.state = State::Text;
                }
                State::Text => {
                    let text = std::mem::take(&mut self.held);
                    pieces.extend((!text.is_empty()).then_some(Piece::Text(text)));
                    return pieces;
                }
            }
        }
    }

    /// The reply is over: what was held back.
    pub(crate) fn finish(&mut self) -> Option<Piece> {
        let rest = std::mem::take(&mut self.held);
        if rest.is_empty() || self.state == State::AfterThinking {
            return None;
        }
        Some(if self.state == State::Thinking { Piece::Reasoning(rest) } else { Piece::Text(rest) })
    }
}

/// How many bytes at the end of `text` may be the beginning of `tag`.
fn partial(text: &str, tag: &str) -> usize {
    (1..tag.len()).rev().find(|n| text.ends_with(&tag[..*n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reasoning and the text of a reply that comes in these parts.
    fn split<'a>(parts: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut splitter = Splitter::default();
        let (mut reasoning, mut text) = (String::new(), String::new());
        let mut take = |piece| match piece {
            Piece::Reasoning(more) => reasoning.push_str(&more),
            Piece::Text(more) => text.push_str(&more),
        };
        for part in parts {
            splitter.push(part).into_iter().for_each(&mut take);
        }
        splitter.finish().into_iter().for_each(take);
        (reasoning, text)
    }

    #[test]
    fn reasoning_at_the_beginning_is_taken_out_wherever_the_stream_is_cut() {
        let reply = "\n<think>a < b, é</thin></think>\n\nIt is <think>5</think>.";
        let expected = ("a < b, é</thin>".to_owned(), "It is <think>5</think>.".to_owned());
        assert_eq!(split([reply]), expected);
        for at in reply.char_indices().map(|(at, _)| at) {
            assert_eq!(split([&reply[..at], &reply[at..]]), expected, "cut at {at}");
        }
        let characters: Vec<String> = reply.chars().map(String::from).collect();
        assert_eq!(split(characters.iter().map(String::as_str)), expected);
    }

    #[test]
    fn a_reply_without_reasoning_is_text_as_it_is() {
        for reply in ["", "  \n", " <thin", "plain", "  <b>x</b>", "I <think> so</think>"] {
            assert_eq!(split([reply]), (String::new(), reply.to_owned()));
        }
    }

    #[test]
    fn reasoning_that_never_ends_stays_reasoning() {
        assert_eq!(split(["<think>on and", " on </th"]), ("on and on </th".to_owned(), String::new()));
    }
}
