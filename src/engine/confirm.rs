//! Questions to the user before something happens: yes, no, always.
//!
//! Whoever wrote the notebook chooses the code and the names in a question, so they are shown with nothing
//! hidden: no control characters, no turned-round text, and what is cut is counted.

use std::fmt::Write;

use crate::event::{Ask, AskError, Failure, Question, terminal};
use crate::sandbox::Run;
use crate::sandbox::policy::Approved;

/// Lines of code in a question.
const LINES: usize = 40;
/// Characters of code in a question.
const LETTERS: usize = 4000;

/// What the user said, when it was not no.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consent {
    Once,
    Always,
}

/// The longest words of a user that are passed on, in characters.
const WORDS: usize = 1000;

/// What the user says to a call of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    Always,
    Edit,
    /// With what was written behind it (`no, because ...`).
    No(Option<String>),
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unanswered {
    Unavailable,
    Interrupted,
}

/// Asks about a call of the model; `more`: whether it can be edited and allowed for good.
pub(super) async fn call(ask: &dyn Ask, prompt: &str, more: bool) -> Result<Answer, Unanswered> {
    for _ in 0..3 {
        let Some(answer) = line(ask, prompt.to_owned()).await? else { return Ok(Answer::No(None)) };
        match understood(&answer) {
            Some(Answer::Edit | Answer::Always) if !more => {}
            Some(answer) => return Ok(answer),
            None => {}
        }
    }
    Ok(Answer::No(None))
}

/// One line; `None` when the user ended the input.
pub(super) async fn line(ask: &dyn Ask, prompt: String) -> Result<Option<String>, Unanswered> {
    if !ask.available() {
        return Err(Unanswered::Unavailable);
    }
    match ask.ask(Question { prompt, password: false }).await {
        Ok(answer) => Ok(Some(answer)),
        Err(AskError::EndOfInput) => Ok(None),
        Err(AskError::Unavailable) => Err(Unanswered::Unavailable),
        Err(AskError::Interrupted) => Err(Unanswered::Interrupted),
    }
}

/// What an answer means, if anything.
fn understood(answer: &str) -> Option<Answer> {
    let answer = answer.trim();
    let word = answer.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let rest =
        answer[word.len()..].trim_start_matches(|c: char| !c.is_alphanumeric() && !"\"'`(".contains(c));
    match word.to_lowercase().as_str() {
        "n" | "no" => {
            let words: String = rest.chars().take(WORDS).collect();
            Some(Answer::No((!words.is_empty()).then_some(words)))
        }
        _ if !rest.is_empty() => None,
        "y" | "yes" => Some(Answer::Yes),
        "a" | "always" => Some(Answer::Always),
        "e" | "edit" => Some(Answer::Edit),
        _ => None,
    }
}

/// Shows the code and asks whether it may run.
///
/// # Errors
/// `Refused` when the user says no or nobody can be asked, `KeyboardInterrupt` when the question is interrupted.
pub(super) async fn code(ask: &dyn Ask, run: &Approved<Run>) -> Result<Consent, Failure> {
    let container = &run.container().name;
    let mut text = run.source.clone();
    for (name, expression) in &run.user_expressions {
        let _ = write!(text, "\n{name}: {}", expression.as_str().unwrap_or_default());
    }
    let what = format!("This {} code wants to run in the container {container}", run.language);
    let prompt = format!("{what}:\n\n{}\n\nRun it? [yes / no / always]: ", bounded(&text));
    let why = format!(
        "the container {container}, or the fence, asks for a confirmation before code runs (needs_confirm)"
    );
    put(ask, prompt, true, &what, &why).await
}

/// Asks yes or no; `what` says what is asked for in a sentence without its end, `why` why it is asked at all.
///
/// # Errors
/// As for [`code`].
pub(super) async fn plain(ask: &dyn Ask, what: &str, details: &str, why: &str) -> Result<(), Failure> {
    let details = if details.is_empty() { String::new() } else { format!("\n\n{}\n", bounded(details)) };
    // One line: a name with line breaks must not add lines of its own to the question.
    let what = &what.replace(['\n', '\t'], "\u{fffd}");
    put(ask, format!("{}.{details}\nGo on? [yes / no]: ", visible(what)), false, what, why).await.map(|_| ())
}

async fn put(ask: &dyn Ask, prompt: String, always: bool, what: &str, why: &str) -> Result<Consent, Failure> {
    let refused = |how: &str| Failure::new("Refused", format!("{}: {how}", visible(what)));
    let no_way = || refused(&format!("{why}, and this front end can't ask; run it where input is possible"));
    if !ask.available() {
        return Err(no_way());
    }
    for _ in 0..3 {
        let question = Question { prompt: prompt.clone(), password: false };
        match ask.ask(question).await {
            Ok(answer) => match answer.trim().to_lowercase().as_str() {
                "y" | "yes" => return Ok(Consent::Once),
                "a" | "always" if always => return Ok(Consent::Always),
                "n" | "no" => return Err(refused("you said no")),
                _ => {}
            },
            Err(AskError::EndOfInput) => return Err(refused("you said no")),
            Err(AskError::Unavailable) => return Err(no_way()),
            Err(AskError::Interrupted) => {
                return Err(Failure::new(
                    "KeyboardInterrupt",
                    "interrupted while a confirmation was asked for",
                ));
            }
        }
    }
    Err(refused("none of the answers was yes"))
}

/// As much of a text as fits in a question, and how much is missing.
pub(super) fn bounded(text: &str) -> String {
    let all = text.lines().count();
    let mut shown = String::new();
    let mut lines = 0;
    for line in text.lines().take(LINES) {
        let room = LETTERS.saturating_sub(shown.chars().count());
        if line.chars().count() > room {
            break;
        }
        shown.push_str(&visible(line));
        shown.push('\n');
        lines += 1;
    }
    if lines < all {
        let _ = write!(shown, "... and {} more lines that are not shown here", all - lines);
    }
    shown.trim_end().to_owned()
}

/// With everything visible that could hide or rearrange a text.
pub(super) fn visible(text: &str) -> String {
    let hides = |c: char| (c.is_control() && c != '\t' && c != '\n') || terminal::is_invisible(c);
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hides(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_word_and_a_no_may_have_reasons() {
        for (answer, meant) in [
            (" Y ", Some(Answer::Yes)),
            ("yes.", Some(Answer::Yes)),
            ("ALWAYS", Some(Answer::Always)),
            ("e", Some(Answer::Edit)),
            ("n", Some(Answer::No(None))),
            ("no!", Some(Answer::No(None))),
            ("No, use 'b.csv' (it is newer)", Some(Answer::No(Some("use 'b.csv' (it is newer)".into())))),
            ("no because", Some(Answer::No(Some("because".into())))),
            ("yes but", None),
            ("note", None),
            ("", None),
            ("\u{1f600}", None),
        ] {
            assert_eq!(understood(answer), meant, "{answer:?}");
        }
    }

    #[test]
    fn nothing_in_a_question_is_hidden() {
        assert_eq!(visible("a\u{202e}b\u{1b}[2Jc\td"), "a\\u{202e}b\\u{1b}[2Jc\td");
        let long = (0..100).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
        let shown = bounded(&long);
        assert!(shown.contains("line 39") && !shown.contains("line 40"), "{shown}");
        assert!(shown.ends_with("... and 60 more lines that are not shown here"), "{shown}");
        assert!(bounded(&"x".repeat(10_000)).ends_with("... and 1 more lines that are not shown here"));
    }
}
