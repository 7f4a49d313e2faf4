//! How much a parser may make of HTML: judged from the text, before anything is parsed.
//!
//! Imports nothing of ours. Two shapes cost far more than their length. Elements that lie deep inside each other
//! take time with the square of their depth. And `<b>` and its like, where they are not closed, are opened again
//! in every paragraph that follows: a hundred kilobytes become gigabytes.
//!
//! The text is read tag by tag, like a parser reads it, as long as it is plain enough for both to agree; after
//! anything else (a raw-text element, an odd tag, something in a comment's place) nothing counts as closed any
//! more. So the count is never too low, and too high only for text that no program writes.

use super::lists::{BREAKOUT, CLOSING, ENDLESS, FORMATTING, RAW};

/// How deep elements may lie inside each other.
const MAX_DEPTH: usize = 500;
/// Bytes that elements which are opened again may take.
const MAX_REOPENED: usize = 16 << 20;
/// What an element takes besides its tag.
const OVERHEAD: usize = 32;

/// An element that the text has not closed.
struct Open<'a> {
    name: &'a str,
    /// In an SVG picture, where other rules hold.
    foreign: bool,
    /// What it takes to open it again.
    weight: usize,
}

/// A start or end tag in its plainest form.
struct Tag<'a> {
    name: &'a str,
    closes: bool,
    /// It ends with `/>`.
    is_empty: bool,
    length: usize,
}

/// Whether parsing this would take much more than its length.
pub(in crate::event::mime) fn is_heavy(html: &str) -> bool {
    let (mut open, mut odd, mut at) = (Vec::<Open<'_>>::new(), false, 0);
    // What is opened again wherever it is not open, and what that has taken so far.
    let (mut reopened, mut taken) = (0_usize, 0_usize);
    while let Some(found) = html.get(at..).and_then(|rest| rest.find('<')) {
        at += found;
        let rest = html.get(at..).unwrap_or_default();
        let Some(tag) = tag(rest) else {
            // In text a `<` is a `<`; the beginning of anything else is not read alike by everybody.
            let comment = if odd { None } else { comment(rest) };
            let begins = |c: u8| c.is_ascii_alphabetic() || matches!(c, b'/' | b'!' | b'?');
            odd |= comment.is_none() && rest.as_bytes().get(1).copied().is_some_and(begins);
            if starts_formatting(rest) {
                return true;
            }
            if starts_tag(rest) {
                open.push(Open { name: "", foreign: false, weight: 0 });
            }
            taken = taken.saturating_add(reopened);
            at += comment.unwrap_or(1);
            if open.len() > MAX_DEPTH || taken > MAX_REOPENED {
                return true;
            }
            continue;
        };
        // Where the text is odd, this may lie in what a parser takes for one attribute: look into it, too.
        at += if odd { 1 } else { tag.length };
        taken = taken.saturating_add(reopened);
        if tag.closes {
            if !odd {
                reopened -= close(&mut open, tag.name);
            }
        } else {
            let inside = open.last().is_some_and(|parent| parent.foreign);
            let is = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(tag.name));
            odd |= if inside { is(BREAKOUT) } else { is(RAW) };
            let svg = tag.name.eq_ignore_ascii_case("svg");
            let leaf = if inside || svg { tag.is_empty } else { is(ENDLESS) };
            if odd || !leaf {
                let weight = if is(FORMATTING) { tag.length + OVERHEAD } else { 0 };
                reopened += weight;
                let integration = is(&["foreignObject", "desc", "title"]);
                open.push(Open { name: tag.name, foreign: svg || (inside && !integration), weight });
            }
        }
        if open.len() > MAX_DEPTH || taken > MAX_REOPENED {
            return true;
        }
    }
    false
}

/// Closes the element of that name, when it is sure that a parser does so too. What need no longer be opened
/// again is returned.
fn close(open: &mut Vec<Open<'_>>, name: &str) -> usize {
    let is = |element: &Open<'_>| element.name.eq_ignore_ascii_case(name);
    if open.last().is_some_and(is) {
        return open.pop().map_or(0, |element| element.weight);
    }
    // These close whatever they hold, up to a table: it only closes there, and is opened again outside.
    if CLOSING.iter().any(|closing| closing.eq_ignore_ascii_case(name))
        && let Some(at) = open.iter().rposition(is)
        && open.iter().skip(at + 1).all(|element| transparent(element))
    {
        open.truncate(at);
    }
    0
}

fn transparent(element: &Open<'_>) -> bool {
    let name = element.name;
    !element.foreign
        && ["span", "label"]
            .iter()
            .chain(FORMATTING)
            .chain(CLOSING)
            .any(|known| known.eq_ignore_ascii_case(name))
}

fn starts_tag(rest: &str) -> bool {
    rest.as_bytes().get(1).is_some_and(u8::is_ascii_alphabetic)
}

fn starts_formatting(rest: &str) -> bool {
    let name = rest.get(1..).unwrap_or_default();
    let end = name.bytes().position(|b| !b.is_ascii_alphanumeric()).unwrap_or(name.len());
    name.get(..end).is_some_and(|name| FORMATTING.iter().any(|known| known.eq_ignore_ascii_case(name)))
}

/// A tag that every parser reads alike.
fn tag(rest: &str) -> Option<Tag<'_>> {
    let bytes = rest.as_bytes();
    let byte = |at: usize| bytes.get(at).copied().unwrap_or_default();
    let skip = |mut at: usize, wanted: fn(u8) -> bool| {
        while at < bytes.len() && wanted(byte(at)) {
            at += 1;
        }
        at
    };
    let closes = byte(1) == b'/';
    let start = 1 + usize::from(closes);
    if !byte(start).is_ascii_alphabetic() {
        return None;
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b':' | b'-' | b'_' | b'.');
    let end = skip(start, plain);
    let name = rest.get(start..end)?;
    let mut at = end;
    loop {
        let before = at;
        at = skip(at, |b| b.is_ascii_whitespace());
        match byte(at) {
            b'>' => return Some(Tag { name, closes, is_empty: false, length: at + 1 }),
            b'/' if byte(at + 1) == b'>' => {
                return Some(Tag { name, closes, is_empty: true, length: at + 2 });
            }
            first if plain(first) && at > before && !closes => {}
            _ => return None,
        }
        at = skip(at, plain);
        if byte(at) != b'=' {
            continue;
        }
        at += 1;
        at = if let quote @ (b'"' | b'\'') = byte(at) {
            at + 2 + rest.get(at + 1..)?.find(char::from(quote))?
        } else {
            let end = skip(at, |b| !b.is_ascii_whitespace() && !b"\"'<>".contains(&b));
            if end == at || !(byte(end).is_ascii_whitespace() || byte(end) == b'>') {
                return None;
            }
            end
        };
    }
}

/// The length of a comment that every parser reads alike.
fn comment(rest: &str) -> Option<usize> {
    let text = rest.strip_prefix("<!--")?;
    let text = text.get(..text.find("-->")?)?;
    let odd = text.starts_with(['>', '-']) || text.contains("--");
    (!odd).then_some("<!--".len() + text.len() + "-->".len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_closed_does_not_add_up() {
        for piece in [
            "<b>x</b>",
            "<tr><td><b style='color: red'>1</b><td><a href=\"x>y\">2</a></tr>",
            "<div><span></div>",
            "<!-- a < b --><i>x</i><p>y",
            "<svg width=1><g><title>t</title><path d='M0 0'/></g><use href='#a' /></svg>",
            "<font color=#fff>a < b</font><br/><img src=x><a href=http://a/b?c=d/>x</a>",
        ] {
            assert!(!is_heavy(&piece.repeat(20_000)), "{piece}");
        }
    }

    #[test]
    fn depth_and_what_is_opened_again_are_seen_through_every_disguise() {
        let depth = "<div></x>".repeat(1000);
        assert!(is_heavy(&depth));
        assert!(is_heavy(&"<svg><td>".repeat(600)) && is_heavy(&"<svg></p><g/>".repeat(600)));
        for disguise in [
            "<b id=1>",
            "<b id=1 title='</b>'>",
            "<b id=1 title=\">\"x='</b>'>",
            "<b id=1><i a=' y=\"></i></b>",
            "<b id=1><!--></b>-->",
            "<b id=1><!-- --!></b>-->",
            "<b id=1><?</b>",
            "<b id=1></ </b>",
            "<b id=1 </b>",
            "<b id=1><textarea><x a='</textarea></b><b id=2>'>",
            "<b id=1><table></b></table>",
            "<b id=1><img a=x\"></b>",
            "<b id=1><svg><p></svg></b>",
            "<b id=1><svg><foreignObject></b></foreignObject></svg>",
        ] {
            let html = format!("<p>{}{}", disguise.repeat(400), "<p>x".repeat(100_000));
            assert!(is_heavy(&html), "{disguise}");
        }
        // One long tag that is opened again and again.
        assert!(is_heavy(&format!("<p><b title='{}'>{}", "x".repeat(100_000), "<p>x".repeat(1000))));
    }
}
