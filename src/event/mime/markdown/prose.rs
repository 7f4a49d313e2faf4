//! Cleans what is not code, character by character, without asking what a parser makes of it.

use super::code::begins_tag;
use super::entities::{number, own_code};
use crate::event::mime::{html, tex, url};

/// Cleans what is not code.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prose {
    /// There is something in the text that could begin a formula.
    pub(super) formulas: bool,
    /// No run of three backticks or tildes may stay: it could be taken for a fence.
    pub(super) strict: bool,
}

impl Prose {
    pub(super) fn clean(self, text: &str, formula: bool, out: &mut String) {
        let mut rest = text;
        // Once there is no end of a comment any more, nobody needs to look for one again.
        let mut comments = true;
        while let Some(at) = rest.find(['<', '&', '\\', '!', ']', '`', '~']) {
            out.push_str(rest.get(..at).unwrap_or_default());
            let here = rest.get(at..).unwrap_or_default();
            let used = match here.as_bytes().first() {
                Some(b'<') => less_than(here, formula, &mut comments, out),
                Some(b'&') => entity(here, out),
                Some(b'\\') => self.backslash(here, out),
                Some(b'!') => exclamation(here, out),
                Some(b']') => bracket(here, out),
                _ => self.mark(here, out),
            };
            rest = here.get(used.max(1)..).unwrap_or_default();
        }
        out.push_str(rest);
    }

    fn backslash(self, here: &str, out: &mut String) -> usize {
        let behind = here.get(1..).unwrap_or_default();
        // Escaped marks are written as entities: inside of an HTML block a backslash escapes nothing.
        if behind.starts_with('<') {
            out.push_str("&lt;");
            return 2;
        }
        if behind.starts_with("![") {
            out.push_str("&#33;");
            return 2;
        }
        out.push('\\');
        if self.formulas && tex::is_reaching(behind) {
            out.push(' ');
        }
        if !self.strict && behind.starts_with(['`', '~']) {
            out.push_str(behind.get(..1).unwrap_or_default());
            return 2;
        }
        1
    }

    fn mark(self, here: &str, out: &mut String) -> usize {
        let mark = here.chars().next().unwrap_or('`');
        let length = here.len() - here.trim_start_matches(mark).len();
        if self.strict && length >= 3 {
            out.push_str(&number(mark).repeat(length));
        } else {
            out.push_str(here.get(..length).unwrap_or_default());
        }
        length
    }
}

/// A `<` outside of code: a safe tag, an address, or text.
fn less_than(here: &str, formula: bool, comments: &mut bool, out: &mut String) -> usize {
    let behind = here.get(1..).unwrap_or_default();
    if !begins_tag(behind) {
        out.push('<');
        return 1;
    }
    if formula {
        // An entity would be shown as it is written there.
        out.push_str("< ");
        return 1;
    }
    // `<https://example.org>` could be a tag named `https:` inside of an HTML block; without its angle brackets
    // front ends still make it a link.
    let end = behind.find(|c: char| c.is_whitespace() || matches!(c, '<' | '>')).unwrap_or(behind.len());
    let (address, after) = behind.split_at(end);
    if after.starts_with('>')
        && url::target(address) == url::Target::Remote
        && !address.contains(['\'', '"', '`', '[', ']', '&', '\\'])
    {
        out.push_str(address);
        return 1 + address.len() + 1;
    }
    if *comments && behind.starts_with("!--") {
        if let Some(end) = here.get(4..).and_then(|text| text.find("-->")) {
            out.push(' ');
            return 4 + end + 3;
        }
        *comments = false;
    }
    if let Some(length) = own_code(here) {
        out.push_str(here.get(..length).unwrap_or_default());
        return length;
    }
    if let Some((length, safe)) = tag(here) {
        out.push_str(&safe);
        return length;
    }
    out.push_str("&lt;");
    1
}

/// The tag at the beginning of a text: its length, and what may stay of it.
fn tag(here: &str) -> Option<(usize, String)> {
    let closing = here.starts_with("</");
    let behind = here.get(if closing { 2 } else { 1 }..)?;
    let name_end = behind.find(|c: char| !c.is_ascii_alphanumeric())?;
    let name = behind.get(..name_end)?.to_ascii_lowercase();
    let mut quote = None;
    let mut length = None;
    for (at, c) in here.char_indices() {
        match (quote, c) {
            (Some(mark), c) if mark == c => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '>') => {
                length = Some(at + 1);
                break;
            }
            // Another tag before the end of this one: not looking further keeps the work linear.
            (None, '<') if at > 0 => return None,
            _ => {}
        }
    }
    let length = length?;
    let whole = here.get(..length)?;
    if whole.contains("\n\n") {
        return None;
    }
    // Code and preformatted text in HTML would hold text that other rules here don't know as code.
    let safe = html::clean_start_tag(&name, whole).filter(|_| name != "pre")?;
    if closing {
        return Some((length, format!("</{name}>")));
    }
    Some((length, attribute_entities(&safe)))
}

/// A tag whose attributes hold nothing that Markdown could take for its own.
fn attribute_entities(tag: &str) -> String {
    let mut out = String::with_capacity(tag.len());
    for c in tag.chars() {
        match c {
            '\n' => out.push(' '),
            '`' | '$' | '\\' | '[' | ']' | '*' | '_' | '~' | '!' | '|' | '{' | '}' => {
                out.push_str(&number(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// An `&` outside of code. Numbers stand for letters, a backslash or a dollar sign only to hide them.
fn entity(here: &str, out: &mut String) -> usize {
    let number = here.strip_prefix("&#").and_then(|rest| match rest.strip_prefix(['x', 'X']) {
        Some(digits) => read_number(digits, 16, 3),
        None => read_number(rest, 10, 2),
    });
    let known = ["&bsol;", "&dollar;", "&colon;", "&Tab;", "&NewLine;"];
    let named = || known.into_iter().zip("\\$: \n".chars()).find(|(name, _)| here.starts_with(name));
    let Some((c, length)) = number.or_else(|| named().map(|(name, c)| (c, name.len()))) else {
        out.push('&');
        return 1;
    };
    match c {
        '\\' => out.push_str("\\\\"),
        '$' => out.push_str("\\$"),
        c if c.is_ascii_alphanumeric() || c == ':' => out.push(c),
        c if c.is_control() => out.push(' '),
        _ => out.push_str(here.get(..length).unwrap_or_default()),
    }
    length
}

/// A number of a character reference and the reference's length, its semicolon included when there is one.
fn read_number(digits: &str, radix: u32, before: usize) -> Option<(char, usize)> {
    let length = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let text = digits.get(..length)?.trim_start_matches('0');
    let number = if text.is_empty() { 0 } else { u32::from_str_radix(text, radix).ok()? };
    let semicolon = usize::from(digits.get(length..)?.starts_with(';'));
    (length > 0)
        .then(|| (char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER), before + length + semicolon))
}

/// A `!` outside of code: it stays a picture's mark only before the plainest picture that needs no network.
fn exclamation(here: &str, out: &mut String) -> usize {
    if !here.starts_with("![") {
        out.push('!');
        return 1;
    }
    if let Some(length) = plain_image(here) {
        out.push_str(here.get(..length).unwrap_or_default());
        return length;
    }
    out.push_str("&#33;");
    1
}

/// The length of `![words](address)` when nothing in it can be read in two ways.
fn plain_image(here: &str) -> Option<usize> {
    let special = |c: char| "[]()`<>\\!$&\n\"'*_~|".contains(c);
    let words = here.get(2..)?;
    let (words, rest) = words.split_at(words.find(special)?);
    let rest = rest.strip_prefix("](")?;
    let (address, rest) = rest.split_at(rest.find(|c: char| special(c) || c.is_whitespace())?);
    let is_plain = rest.starts_with(')') && url::is_safe_image(address);
    is_plain.then(|| "![](".len() + words.len() + address.len() + ")".len())
}

/// A `]` outside of code: behind `](` and `]:` there may be an address.
fn bracket(here: &str, out: &mut String) -> usize {
    if !(here.starts_with("](") || here.starts_with("]:")) {
        out.push(']');
        return 1;
    }
    let behind = here.get(2..).unwrap_or_default();
    // A line's end and a quote's mark may stand before the address.
    let address_at = behind.find(|c: char| !(c.is_whitespace() || c == '>')).unwrap_or(behind.len());
    let before = behind.get(..address_at).unwrap_or_default();
    let address = behind.get(address_at..).unwrap_or_default();
    out.push_str(here.get(..2).unwrap_or_default());
    out.push_str(before);
    if let Some(inner) = address.strip_prefix('<') {
        let (inner, rest) = inner.split_at(inner.find(['<', '>', '\n']).unwrap_or(inner.len()));
        if begins_tag_name(inner) || rest.starts_with('<') {
            return 2 + address_at;
        }
        let is_closed = rest.starts_with('>');
        let encoded = encoded(inner.trim());
        out.push_str(if is_refused(&encoded) { "#" } else { "" });
        out.push_str(&encoded);
        return 2 + address_at + 1 + inner.len() + usize::from(is_closed);
    }
    let end = address.find(|c: char| c.is_whitespace() || matches!(c, ')' | ']')).unwrap_or(address.len());
    let (address, after) = address.split_at(end);
    if is_refused(address) || (after.starts_with(']') && !address.starts_with('#')) {
        out.push('#');
    }
    2 + address_at
}

/// Whether the inside of angle brackets is a tag that is allowed, not an address.
fn begins_tag_name(inner: &str) -> bool {
    inner.starts_with(['/', '!', '?']) || (!inner.contains([':', '.', '/']) && begins_tag(inner))
}

/// An address from angle brackets, written without them.
fn encoded(address: &str) -> String {
    let mut out = String::with_capacity(address.len());
    for c in address.chars() {
        match c {
            ' ' => out.push_str("%20"),
            '(' | ')' | '<' | '>' | '"' | '\'' | '`' | '\\' | '\t' => out.push_str(&percent(c)),
            c => out.push(c),
        }
    }
    out
}

fn percent(c: char) -> String {
    format!("%{:02X}", u32::from(c))
}

/// Whether an address, after whatever a parser decodes in it, could be something that must not be followed.
fn is_refused(address: &str) -> bool {
    let address = address.replace('\\', "");
    if address.is_empty() || address.starts_with('#') {
        return false;
    }
    let start = address.split(['/', '?', '#']).next().unwrap_or_default();
    start.contains('&')
        || url::target(&address.replace('&', "_")) == url::Target::Refused && !is_word(&address)
}

/// Text behind `]:` that is no address at all (`[a]: see below`), or the beginning of a list of arguments.
fn is_word(address: &str) -> bool {
    !address.contains([':', '/', '\\', '%', '.']) && !address.starts_with('?')
}
