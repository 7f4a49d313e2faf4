//! The question before a call: yes, no (with words), edit, always.
//!
//! What is asked about was shown as it formed. It is shown again, with nothing hidden, wherever a reader could be
//! misled: other code stands on the page beside it, or it has hidden characters, long lines, a fence of its own.

use super::mode::Mode;
use crate::engine::confirm::{self, Answer, Unanswered};
use crate::event::Ask;

/// Lines that a reader has seen well enough, and that a question has room for.
const LINES: usize = 40;
/// Columns of a line that fit before a reader's eyes.
const WIDTH: usize = 90;
/// Columns of a tab.
const TAB: usize = 8;
/// Lines that may be typed.
const TYPED: usize = 500;

/// What is asked.
pub(super) struct Matter<'a> {
    /// What is to happen, as a question without its mark: `Run this Python code in python`.
    pub(super) what: &'a str,
    /// The code or content.
    pub(super) text: &'a str,
    /// The code's language; empty: it is no code.
    pub(super) language: &'a str,
    /// Whether it is all the code that the reply shows.
    pub(super) alone: bool,
    /// Whether the user may give another text in its stead, and allow the like for good.
    pub(super) text_and_always: bool,
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Consent {
    Once,
    Always,
    /// This is to be used in the place of the text.
    Instead(String),
    /// The user's words, when there were any.
    Refused(Option<String>),
    /// Nobody can be asked.
    Nobody,
    /// The question was interrupted.
    Interrupted,
}

/// Where the text of a matter is shown once more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// Nowhere: it can't be misread.
    No,
    /// In the question.
    Within(String),
    /// Before the question, which has no room for it.
    Before(String),
}

impl Matter<'_> {
    /// What the user must see again.
    pub(super) fn again(&self) -> Again {
        if self.text.is_empty() || (self.alone && is_plain(self.text)) {
            return Again::No;
        }
        let text = laid_out(self.text);
        if text.lines().count() <= LINES { Again::Within(text) } else { Again::Before(text) }
    }
}

/// Asks. What is shown before the question has been shown by then.
pub(super) async fn ask(ask: &dyn Ask, matter: &Matter<'_>, again: &Again) -> Consent {
    let shown = match again {
        Again::No => String::new(),
        Again::Within(text) => format!("\n\n{text}\n\n"),
        Again::Before(_) => " It is the text that stands last above, in full.".to_owned(),
    };
    let choices = if matter.text_and_always { "yes / no / edit / always" } else { "yes / no" };
    let what = confirm::visible(&matter.what.replace(['\n', '\t'], "\u{fffd}"));
    let prompt = format!("{what}?{shown} [{choices}]: ");
    loop {
        match confirm::call(ask, &prompt, matter.text_and_always).await {
            Ok(Answer::Yes) => return Consent::Once,
            Ok(Answer::Always) => return Consent::Always,
            Ok(Answer::No(words)) => return Consent::Refused(words),
            Ok(Answer::Edit) => match typed(ask).await {
                Ok(Some(text)) => return Consent::Instead(text),
                // Nothing was typed: the question stands.
                Ok(None) => {}
                Err(unanswered) => return unanswered.into(),
            },
            Err(unanswered) => return unanswered.into(),
        }
    }
}

impl From<Unanswered> for Consent {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Unavailable => Consent::Nobody,
            Unanswered::Interrupted => Consent::Interrupted,
        }
    }
}

/// A text that the user types line by line; an empty line ends it.
async fn typed(ask: &dyn Ask) -> Result<Option<String>, Unanswered> {
    let mut lines: Vec<String> = Vec::new();
    while lines.len() < TYPED {
        let prompt = match lines.len() {
            0 => "What to use instead, line by line; an empty line ends it.\nLine 1: ".to_owned(),
            count => format!("Line {}: ", count + 1),
        };
        match confirm::line(ask, prompt).await? {
            Some(line) if !line.is_empty() => lines.push(line),
            _ => break,
        }
    }
    Ok((!lines.is_empty()).then(|| lines.join("\n")))
}

/// Whether a text is what it looks like in its fence.
fn is_plain(text: &str) -> bool {
    text.lines().count() <= LINES
        && text.lines().all(|line| columns(line) <= WIDTH)
        && !text.contains("```")
        && confirm::visible(text) == text
}

fn columns(line: &str) -> usize {
    line.chars().map(|c| if c == '\t' { TAB } else { 1 }).sum()
}

/// With everything visible, and nothing off the right edge: what goes on after a break is marked.
fn laid_out(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.lines() {
        let visible = confirm::visible(line).replace('\t', &" ".repeat(TAB));
        let letters: Vec<char> = visible.chars().collect();
        let mut pieces = letters.chunks(WIDTH).map(|piece| piece.iter().collect::<String>());
        lines.push(pieces.next().unwrap_or_default());
        lines.extend(pieces.map(|piece| format!("  \u{21aa} {piece}")));
    }
    lines.join("\n")
}

/// Whether words of a reply could be taken for code: a fence, an indented block, HTML.
pub(super) fn looks_like_code(words: &str) -> bool {
    words.contains("```")
        || words.contains("~~~")
        || words.contains('<')
        || words.lines().any(|line| line.starts_with("    ") || line.starts_with('\t'))
}

/// What the model is told when its call was not allowed.
pub(super) fn refusal(consent: &Consent) -> String {
    match consent {
        Consent::Refused(Some(words)) => {
            format!(
                "The user refused this call and says: {words}\nDo as the user says; don't repeat the call."
            )
        }
        Consent::Nobody => {
            "Refused: each call needs the user's yes (mode confirm), and nobody can be asked here. Answer \
                            without tools."
                .to_owned()
        }
        _ => "The user refused this call. Don't repeat it: ask the user what to do, or answer without it."
            .to_owned(),
    }
}

/// What the user is told when nobody can be asked.
pub(super) fn nobody(mode: Mode) -> String {
    let why = match mode {
        Mode::Confirm => "each call needs your yes (agent.mode is confirm)",
        Mode::Ask | Mode::Auto => "the container asks for a confirmation before code runs (needs_confirm)",
    };
    format!(
        "A call of the model was refused: {why}, and this front end can't ask. Run the cell where input is possible, or \
         set agent.mode to auto (%mode auto) to let the model work by itself in the sandbox."
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_text_that_could_mislead_is_not_plain() {
        assert!(is_plain("import os\nprint(os.listdir())"));
        let hidden = format!("x = 1{}; evil()", "\t".repeat(12));
        for text in
            ["a\u{202e}b", "x = '''\n```\n'''", &"x".repeat(91), &"x\n".repeat(41), "\u{200b}", &hidden]
        {
            assert!(!is_plain(text), "{text:?}");
        }
    }

    #[test]
    fn what_is_shown_again_is_whole_and_within_sight() {
        let matter = |text, alone| Matter { what: "Run", text, language: "", text_and_always: true, alone };
        assert_eq!(matter("print(1)", true).again(), Again::No);
        assert_eq!(matter("print(1)", false).again(), Again::Within("print(1)".to_owned()));
        let wide = format!("x = 1{};evil()", " ".repeat(140));
        let Again::Within(shown) = matter(&wide, true).again() else { panic!("{wide}") };
        assert!(shown.contains("evil()") && shown.lines().all(|line| columns(line) <= WIDTH + 4), "{shown}");
        let long = format!("{}evil\u{202e}()", "x = 1\n".repeat(51));
        let Again::Before(shown) = matter(&long, true).again() else { panic!("{long}") };
        assert!(shown.ends_with("evil\\u{202e}()"), "{shown}");
    }

    #[test]
    fn words_that_look_like_code_are_noticed() {
        assert!(!looks_like_code("I look at the file first.\n\n- then I plot it (`plot`)"));
        for words in ["```python\nx\n```", "~~~\nx", "a\n    x = 1", "<pre>x</pre>", "\tx"] {
            assert!(looks_like_code(words), "{words}");
        }
    }

    #[test]
    fn the_users_words_reach_the_model() {
        assert!(refusal(&Consent::Refused(Some("use the other file".into()))).contains("use the other file"));
        assert!(refusal(&Consent::Refused(None)).starts_with("The user refused"));
    }
}
