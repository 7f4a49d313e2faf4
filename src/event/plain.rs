//! Text of others as a model is given it: what a reader can't see is not in it either. Imports `terminal` alone.

use super::terminal;

/// Joiners and selectors that may follow one visible character: emoji and some scripts need one or two.
const JOINED: usize = 2;

/// Without colours and other escapes, and without characters that show nothing: marks of direction, zero widths,
/// fillers and tags could carry words that only a model reads. Joiners and variation selectors stay where a script or
/// an emoji can need them.
pub fn plain(text: &str) -> String {
    let filtered = terminal::filtered(text);
    let mut plain = String::with_capacity(filtered.len());
    let mut rest = filtered.as_str();
    // What the filter lets through of escapes are colours.
    while let Some(at) = rest.find('\u{1b}') {
        plain.push_str(&rest[..at]);
        rest = rest[at..].find('m').map_or("", |end| &rest[at + end + 1..]);
    }
    plain.push_str(rest);
    if plain.is_ascii() || !plain.chars().any(terminal::is_invisible) {
        return plain;
    }
    let mut seen = String::with_capacity(plain.len());
    // How many joiners may still follow.
    let mut room = 0;
    for c in plain.chars() {
        match c {
            '\u{2028}' | '\u{2029}' => {
                seen.push('\n');
                room = 0;
            }
            '\u{200c}' | '\u{200d}' | '\u{fe0e}' | '\u{fe0f}' if room > 0 => {
                seen.push(c);
                room -= 1;
            }
            c if terminal::is_invisible(c) => {}
            c => {
                seen.push(c);
                // Keycaps are the only emoji that begin with ASCII; they read as well without.
                room = if c.is_ascii() { 0 } else { JOINED };
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_characters_that_only_a_model_reads_are_taken_out() {
        for (text, left) in [
            ("a\u{1b}[31mred\u{1b}[0m\u{1b}]0;title\u{7}b", "aredb"),
            ("x\u{e0069}\u{e0067}y", "xy"),
            ("a\u{202e}b\u{2066}c\u{200f}", "abc"),
            ("i\u{200b}g\u{2060}n\u{feff}o\u{ad}re", "ignore"),
            ("one\u{2028}two", "one\ntwo"),
            // Words in variation selectors, behind ASCII and behind an emoji.
            ("a\u{fe0f}\u{fe0e}\u{200d}b", "ab"),
            ("\u{1f600}\u{fe0f}\u{200d}\u{fe0e}\u{fe0f}\u{e0100}", "\u{1f600}\u{fe0f}\u{200d}"),
        ] {
            assert_eq!(plain(text), left, "{text:?}");
        }
    }

    #[test]
    fn what_scripts_and_emoji_need_stays() {
        for text in [
            "plain\ttext\r\n",
            "grüße 日本語 e\u{301}\u{a0}",
            "\u{646}\u{645}\u{6cc}\u{200c}\u{62e}\u{648}\u{627}\u{647}\u{645}",
            "\u{2764}\u{fe0f}\u{200d}\u{1f525}",
            "\u{1f469}\u{200d}\u{1f469}\u{200d}\u{1f467}",
        ] {
            assert_eq!(plain(text), text);
        }
    }
}
