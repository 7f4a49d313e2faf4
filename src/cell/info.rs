//! A fence's info string, and the rest of a `%%` line: a language and attributes.
//!
//! Imports nothing of ours. Understood: `python timeout=10 norun`, `python title="a b"`, and the forms of
//! other tools, `{.python timeout=10}`, `{python, echo=false}` and `python {timeout=10}`.

/// What an info string says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Info {
    /// The language as written; `None` when there is none.
    pub(super) language: Option<String>,
    /// Attributes in order; the value is `None` for a bare word.
    pub(super) attributes: Vec<(String, Option<String>)>,
}

impl Info {
    /// Whether a bare word (or a value of that name) is among the attributes.
    pub(super) fn has(&self, name: &str) -> bool {
        self.attributes.iter().any(|(key, _)| key == name)
    }
}

/// Words that are attributes even in the place of the language.
const BARE: [&str; 2] = ["run", "norun"];

/// Reads an info string; every text is one.
pub(super) fn read(text: &str) -> Info {
    let mut info = Info::default();
    for (place, (key, value)) in words(text).into_iter().enumerate() {
        let name = key.strip_prefix('.').unwrap_or(&key);
        let is_language =
            info.language.is_none() && value.is_none() && !name.is_empty() && !name.starts_with('#');
        if is_language && (place == 0 || key.starts_with('.')) && !BARE.contains(&name) {
            info.language = Some(name.to_owned());
        } else if !name.is_empty() {
            info.attributes.push((name.to_owned(), value));
        }
    }
    info
}

/// Attributes alone: what follows a cell magic's name.
pub(super) fn attributes(text: &str) -> Vec<(String, Option<String>)> {
    words(text)
}

/// Splits at white space, commas and braces outside of quotes; `key=value` in two.
fn words(text: &str) -> Vec<(String, Option<String>)> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(is_separator);
    while !rest.is_empty() {
        let end = rest.find(|c| is_separator(c) || c == '=').unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        let value;
        (value, rest) = match after.strip_prefix('=') {
            Some(after) => {
                let (value, after) = read_value(after);
                (Some(value), after)
            }
            None => (None, after),
        };
        if !key.is_empty() {
            words.push((key.to_owned(), value));
        }
        rest = rest.trim_start_matches(is_separator);
    }
    words
}

fn is_separator(c: char) -> bool {
    c.is_whitespace() || matches!(c, ',' | '{' | '}')
}

/// A value, quoted or up to the next separator, and what follows it. A quote that is not closed goes to the end.
fn read_value(text: &str) -> (String, &str) {
    if let Some(quote @ ('"' | '\'')) = text.chars().next() {
        let inner = text.get(1..).unwrap_or_default();
        return match inner.split_once(quote) {
            Some((value, rest)) => (value.to_owned(), rest),
            None => (inner.to_owned(), ""),
        };
    }
    // A comma may be a part of the value (`packages=httpx,rich`), so only space and braces end it.
    let end = text.find(|c: char| c.is_whitespace() || matches!(c, '{' | '}')).unwrap_or(text.len());
    let (value, rest) = text.split_at(end);
    (value.strip_suffix(',').unwrap_or(value).to_owned(), rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn info_strings_of_every_form_are_understood() {
        type Case<'a> = (&'a str, Option<&'a str>, &'a [(&'a str, Option<&'a str>)]);
        let cases: &[Case<'_>] = &[
            ("", None, &[]),
            ("python", Some("python"), &[]),
            ("python timeout=10 norun", Some("python"), &[("timeout", Some("10")), ("norun", None)]),
            (
                "python  title=\"a, b\" x='y z'",
                Some("python"),
                &[("title", Some("a, b")), ("x", Some("y z"))],
            ),
            (
                "python packages=httpx,rich run",
                Some("python"),
                &[("packages", Some("httpx,rich")), ("run", None)],
            ),
            ("{.python timeout=10}", Some("python"), &[("timeout", Some("10"))]),
            ("{#name .python .wide}", Some("python"), &[("#name", None), (".wide", None)]),
            ("{python, echo=false}", Some("python"), &[("echo", Some("false"))]),
            ("python {timeout=10, run}", Some("python"), &[("timeout", Some("10")), ("run", None)]),
            ("run", None, &[("run", None)]),
            ("timeout=10 run", None, &[("timeout", Some("10")), ("run", None)]),
            ("python title=\"open", Some("python"), &[("title", Some("open"))]),
            ("python x=", Some("python"), &[("x", Some(""))]),
            ("= == , {} .", None, &[]),
            ("c++", Some("c++"), &[]),
        ];
        for (text, language, attributes) in cases {
            let info = read(text);
            assert_eq!(info.language.as_deref(), *language, "{text:?}");
            let seen: Vec<_> = info.attributes.iter().map(|(k, v)| (k.as_str(), v.as_deref())).collect();
            let expected: Vec<_> =
                attributes.iter().map(|(k, v)| (k.strip_prefix('.').unwrap_or(k), *v)).collect();
            assert_eq!(seen, expected, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn reading_an_info_string_is_total(text in "[ -~é{}=\"',.]{0,60}") {
            read(&text);
        }
    }
}
