//! The words behind `%%chat`: `name=value` as long as they are ours, and then the question.
//!
//! Imports nothing of ours.

use super::{CHAT_ATTRIBUTES, CellError};

/// Attributes with their values.
type Attributes = Vec<(&'static str, String)>;

/// The attributes at the beginning of what stands behind `%%chat`, and the rest of the line, which is the question.
/// Values are literal: braces, dollar signs and backslashes mean themselves.
///
/// # Errors
/// A name that is nearly one of ours or there twice, or a quote that is never closed. Everything else is the question.
pub(super) fn attributes(text: &str, line: usize) -> Result<(Attributes, &str), CellError> {
    let mut found: Attributes = Vec::new();
    let mut rest = text.trim_start();
    while let Some((written, after)) = pair(rest) {
        let Some(name) = CHAT_ATTRIBUTES.into_iter().find(|name| *name == written) else {
            let nearest =
                CHAT_ATTRIBUTES.into_iter().find(|name| strsim::damerau_levenshtein(name, written) <= 2);
            // `%%chat x=3; why?` asks something.
            if nearest.is_none() && found.is_empty() {
                break;
            }
            return Err(CellError::UnknownAttribute { line, written: written.to_owned(), nearest });
        };
        if found.iter().any(|(earlier, _)| *earlier == name) {
            return Err(CellError::RepeatedAttribute { line, name });
        }
        let (value, behind) = value(after).map_err(|quote| CellError::OpenQuote { line, name, quote })?;
        found.push((name, value.to_owned()));
        rest = behind.trim_start();
    }
    Ok((found, rest))
}

/// The words of a question that would be attributes at its place in the line.
pub(super) fn late(question: &str) -> Vec<String> {
    let is_attribute = |word: &&str| {
        pair(word).is_some_and(|(name, value)| !value.is_empty() && CHAT_ATTRIBUTES.contains(&name))
    };
    question.split_whitespace().filter(is_attribute).map(str::to_owned).collect()
}

/// A `name=value` at the beginning: the name, and what follows its `=`.
fn pair(text: &str) -> Option<(&str, &str)> {
    let (name, after) = text.split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    // `a == b` is no attribute.
    (is_name && !after.starts_with(['=', ' '])).then_some((name, after))
}

/// A value, quoted or up to the next space, and what follows it. The error is the quote that is not closed.
fn value(text: &str) -> Result<(&str, &str), char> {
    if let Some(quote @ ('"' | '\'')) = text.chars().next() {
        let inner = text.get(1..).unwrap_or_default();
        return inner.split_once(quote).ok_or(quote);
    }
    Ok(text.split_once(char::is_whitespace).unwrap_or((text, "")))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn attributes_come_first_and_the_rest_is_the_question() {
        for (text, expected, question) in [
            ("", vec![], ""),
            (" what is this?", vec![], "what is this?"),
            (
                " model=openai/gpt-5 temperature=0.5",
                vec![("model", "openai/gpt-5"), ("temperature", "0.5")],
                "",
            ),
            (
                " system=\"Say {x} and ${y}, \\n\" why, 'you'?",
                vec![("system", "Say {x} and ${y}, \\n")],
                "why, 'you'?",
            ),
            (" system='a \"b\"'  max_tokens=10  ", vec![("system", "a \"b\""), ("max_tokens", "10")], ""),
            (" x=3; what is x?", vec![], "x=3; what is x?"),
            (" model == x means?", vec![], "model == x means?"),
            (" temperature= is empty", vec![], "temperature= is empty"),
        ] {
            let (found, rest) = attributes(text, 1).unwrap();
            let found: Vec<_> = found.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!((found, rest), (expected, question), "{text:?}");
        }
    }

    #[test]
    fn attributes_behind_the_question_are_noticed() {
        assert_eq!(late("hello temperature=2 model=openai/m"), ["temperature=2", "model=openai/m"]);
        for text in ["", "hello", "what does x=3 do?", "temperature == 2?", "is temperature= empty?"] {
            assert_eq!(late(text), Vec::<String>::new(), "{text:?}");
        }
    }

    #[test]
    fn slips_are_errors_with_their_line_and_what_would_be_right() {
        let error = attributes("temprature=1", 3).unwrap_err().to_string();
        assert_eq!(error, "line 3: there is no temprature= for %%chat; did you mean temperature=?");
        let error = attributes("model=x colour=red", 3).unwrap_err().to_string();
        assert!(error.contains("there is model=, temperature=, system=, max_tokens="), "{error}");
        let error = attributes("system=\"You are", 2).unwrap_err().to_string();
        assert_eq!(error, "line 2: the value of system= begins with \" and has no second one to end it");
        let error = attributes("model=a temperature=0 model=b why?", 2).unwrap_err().to_string();
        assert_eq!(error, "line 2: model= is there twice; leave one of them");
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_read(text in "[ a-z=\"'{}$é]{0,60}|.{0,60}") {
            if let Ok((_, rest)) = attributes(&text, 1) {
                proptest::prop_assert!(text.ends_with(rest));
            }
        }
    }
}
