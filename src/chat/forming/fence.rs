//! A Markdown fence that is written while its content is still coming, and that the content can't close. Imports
//! nothing of ours.

/// Backticks of the fence: one more than code commonly has in a row.
const TICKS: usize = 4;

/// Where in a line the content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// At its beginning, with so many spaces and backticks held back.
    Beginning {
        ticks: usize,
        tail: bool,
    },
    Rest,
}

/// An open fence.
#[derive(Debug)]
pub(super) struct Fence {
    at: At,
    held: String,
    /// A carriage return came; a line feed after it belongs to it.
    returned: bool,
}

const BEGINNING: At = At::Beginning { ticks: 0, tail: false };

impl Fence {
    /// Begins a fence for this language.
    pub(super) fn open(language: &str, shown: &mut String) -> Fence {
        shown.push_str("\n\n");
        shown.push_str(&"`".repeat(TICKS));
        shown.push_str(language);
        shown.push('\n');
        Fence { at: BEGINNING, held: String::new(), returned: false }
    }

    /// A fence that is whole.
    pub(super) fn whole(language: &str, code: &str) -> String {
        let mut shown = String::new();
        let mut fence = Fence::open(language, &mut shown);
        code.chars().for_each(|c| fence.push(c, &mut shown));
        fence.close(&mut shown);
        shown
    }

    /// Adds a character. A line that could close the fence is indented until it can't.
    pub(super) fn push(&mut self, c: char, shown: &mut String) {
        let after_return = std::mem::replace(&mut self.returned, c == '\r');
        match (c, self.at) {
            ('\n', _) if after_return => {}
            // Markdown ends a line at each of them.
            ('\n' | '\r', _) => {
                self.release(shown);
                shown.push('\n');
                self.at = BEGINNING;
            }
            ('`', At::Beginning { ticks, tail: false }) => {
                self.held.push(c);
                self.at = At::Beginning { ticks: ticks + 1, tail: false };
            }
            (' ' | '\t', At::Beginning { ticks: 1.., .. }) => {
                self.held.push(c);
                if let At::Beginning { ticks, .. } = self.at {
                    self.at = At::Beginning { ticks, tail: true };
                }
            }
            (' ', At::Beginning { ticks: 0, .. }) if self.held.len() < 3 => self.held.push(c),
            _ => {
                shown.push_str(&std::mem::take(&mut self.held));
                shown.push(c);
                self.at = At::Rest;
            }
        }
    }

    /// Shows what was held back of a line that ends here.
    fn release(&mut self, shown: &mut String) {
        if matches!(self.at, At::Beginning { ticks, .. } if ticks >= TICKS) {
            shown.push_str("    ");
        }
        shown.push_str(&std::mem::take(&mut self.held));
    }

    /// Ends it.
    pub(super) fn close(mut self, shown: &mut String) {
        // A line break that ends the code already stands there.
        let fresh = self.at == BEGINNING && self.held.is_empty();
        self.release(shown);
        if !fresh {
            shown.push('\n');
        }
        shown.push_str(&"`".repeat(TICKS));
        shown.push('\n');
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

    fn written(code: &str) -> String {
        Fence::whole("python", code)
    }

    /// The content of the only block, with nothing outside it.
    fn content(markdown: &str) -> String {
        let (mut blocks, mut text) = (0, String::new());
        for event in Parser::new(markdown) {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    assert_eq!(info.as_ref(), "python");
                    blocks += 1;
                }
                Event::Text(more) => text.push_str(&more),
                Event::End(TagEnd::CodeBlock) => {}
                other => panic!("{other:?} outside of the fence:\n{markdown}"),
            }
        }
        assert_eq!(blocks, 1, "{markdown}");
        text
    }

    #[test]
    fn code_is_shown_as_it_is() {
        assert_eq!(written("x = 1\nprint(x)"), "\n\n````python\nx = 1\nprint(x)\n````\n");
        assert_eq!(written("s = '''\n```\n  ``\n'''\n"), "\n\n````python\ns = '''\n```\n  ``\n'''\n````\n");
    }

    #[test]
    fn no_code_closes_its_fence() {
        for code in [
            "`````\n<b>out</b>",
            "a\n````\n# out",
            "a\r````\rout",
            "a\r\n   ````   \t\r\nout",
            "    ````\nin",
            "````",
            "  ````",
            "~~~~~\n````x\n",
            "\n\n`````````` \nx",
        ] {
            let lines = |text: &str| -> Vec<String> {
                let text = text.replace("\r\n", "\n").replace('\r', "\n");
                text.trim_end_matches('\n').split('\n').map(|line| line.trim().to_owned()).collect()
            };
            assert_eq!(lines(&content(&written(code))), lines(code), "{code:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_gets_out(code in "[`~ \t\r\na<>#-]{0,40}") {
            content(&written(&code));
        }
    }
}
