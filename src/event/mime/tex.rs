//! TeX commands that reach out of a formula: links, classes, identifiers, styles, packages.
//!
//! Imports nothing of ours. Front ends typeset formulas in Markdown, in HTML and in `text/latex`; a name that is
//! on the list below is taken apart (`\href` becomes `\ href`), which shows it as text and does nothing.

use std::borrow::Cow;

/// Command names without their backslash, in the spelling that typesetters know.
const REACHING: &[&str] = &[
    "bbox",
    "class",
    "csname",
    "cssId",
    "data",
    "href",
    "html",
    "htmlClass",
    "htmlData",
    "htmlId",
    "htmlStyle",
    "includegraphics",
    "mmlToken",
    "require",
    "style",
    "toggle",
    "url",
];

/// Whether a text that begins behind a backslash begins with one of the commands.
pub(super) fn is_reaching(behind: &str) -> bool {
    let end = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
    behind.get(..end).is_some_and(|name| REACHING.contains(&name))
}

/// Whether there is anything in a text that could begin a formula.
pub(super) fn may_hold_formulas(text: &str) -> bool {
    text.contains('$')
        || ["\\(", "\\[", "\\begin", "&#", "&dollar", "&bsol"].iter().any(|mark| text.contains(mark))
}

/// A formula, or a text with formulas in it, without the commands that reach out of it.
pub(super) fn neutral(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut done = 0;
    for (at, _) in text.match_indices('\\') {
        if is_reaching(text.get(at + 1..).unwrap_or_default()) {
            out.push_str(text.get(done..=at).unwrap_or_default());
            out.push(' ');
            done = at + 1;
        }
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reaching_commands_are_taken_apart_and_others_left_alone() {
        for (text, expected) in [
            (r"\frac{a}{b} \hrefx \urls \data1", r"\frac{a}{b} \hrefx \urls \ data1"),
            (r"\href{javascript:alert(1)}{x}", r"\ href{javascript:alert(1)}{x}"),
            (r"\\href{x}{y}\style{z}{w}", r"\\ href{x}{y}\ style{z}{w}"),
            ("\\", "\\"),
        ] {
            assert_eq!(neutral(text), expected);
            assert_eq!(neutral(expected), expected);
        }
    }
}
