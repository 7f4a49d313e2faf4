//! Terminal text from a hostile source, made fit for a front end: UTF-8 put together across chunks,
//! colours, carriage returns and backspaces kept, every other escape sequence and control removed.
//!
//! Imports nothing of ours. What passes: printable characters, `\n`, `\r`, `\b`, `\t`, and *select graphic
//! rendition* (`ESC [ digits ; : m`). What does not: window titles, hyperlinks and clipboard writes (OSC),
//! device strings (DCS, APC, PM, SOS), cursor movement, modes, the bell and the C1 controls in either form.
//! To let another sequence through, extend `end_of_csi`.

/// Parameters of one control sequence that are kept; a longer sequence is no colour.
const MAX_PARAMETERS: usize = 64;
/// A control sequence ends at the latest here: what follows is text again.
const MAX_SEQUENCE: usize = 256;
/// A control string ends at the latest here, so that an unterminated one can't swallow a whole stream.
/// Nothing of it is held in memory.
const MAX_STRING: usize = 1 << 20;
/// Bytes looked at together while a text is clean.
const BLOCK: usize = 64;

const ESC: char = '\u{1b}';

/// Filters one stream chunk by chunk; holds back only what is not yet complete (at most a few bytes).
///
/// How the stream is cut into chunks changes nothing in the text that comes out.
#[derive(Debug, Default)]
pub struct Filter {
    state: State,
    /// The first bytes of a character that is not complete yet.
    partial: Partial,
}

#[derive(Debug, Default)]
enum State {
    /// Text.
    #[default]
    Ground,
    /// After `ESC`, and after its intermediate bytes if any.
    Escape { length: usize },
    /// After `ESC [`: the parameters so far; `None` when the sequence can't be a colour any more.
    Csi { parameters: Option<String>, length: usize },
    /// In a control string.
    Text { kind: Kind, length: usize, escape: bool },
}

/// The two kinds of control strings, by what ends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// OSC: also ends with BEL, and at a line's end (no OSC in use has lines, and output must not vanish
    /// because a binary file was printed).
    Command,
    /// DCS, SOS, PM, APC.
    Device,
}

#[derive(Debug, Default, Clone, Copy)]
struct Partial {
    bytes: [u8; 4],
    length: usize,
}

impl Partial {
    fn push(&mut self, byte: u8) {
        // A character has at most four bytes and a partial one at most three.
        if let Some(slot) = self.bytes.get_mut(self.length) {
            *slot = byte;
            self.length += 1;
        }
    }

    fn as_slice(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl Filter {
    /// A filter at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and returns what can be shown now.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let mut text = String::new();
        self.push_into(bytes, &mut text);
        text
    }

    /// Takes the next bytes and appends what can be shown now to `out`.
    pub fn push_into(&mut self, bytes: &[u8], out: &mut String) {
        let mut rest = bytes;
        while self.partial.length > 0 {
            let Some((&byte, after)) = rest.split_first() else { return };
            let mut attempt = self.partial;
            attempt.push(byte);
            match std::str::from_utf8(attempt.as_slice()) {
                Ok(text) => {
                    self.partial = Partial::default();
                    rest = after;
                    for c in text.chars() {
                        self.feed(c, out);
                    }
                }
                Err(e) if e.error_len().is_none() => {
                    self.partial = attempt;
                    rest = after;
                }
                Err(_) => {
                    // The byte does not belong to the character: it is read again as what follows.
                    self.partial = Partial::default();
                    self.feed(char::REPLACEMENT_CHARACTER, out);
                }
            }
        }
        while !rest.is_empty() {
            let used = match self.state {
                State::Ground => self.text(rest, out),
                _ => self.step(rest, out),
            };
            rest = rest.get(used..).unwrap_or_default();
        }
    }

    /// The stream is over: returns what was held back, made valid. An unfinished sequence is dropped.
    pub fn finish(&mut self) -> String {
        let mut text = String::new();
        if self.partial.length > 0 {
            self.partial = Partial::default();
            self.feed(char::REPLACEMENT_CHARACTER, &mut text);
        }
        self.state = State::Ground;
        text
    }

    /// Takes text up to the first control; returns how many bytes were used, at least one.
    fn text(&mut self, bytes: &[u8], out: &mut String) -> usize {
        let run = clean_prefix(bytes);
        let Some(clean) = bytes.get(..run).filter(|clean| !clean.is_empty()) else {
            // A whole colour at once: coloured output is mostly that.
            if let Some(colour) = colour(bytes) {
                out.push_str(colour);
                return colour.len();
            }
            // A control: always one ASCII byte.
            let Some(&byte) = bytes.first() else { return 0 };
            self.feed(char::from(byte), out);
            return 1;
        };
        if let Ok(text) = std::str::from_utf8(clean) {
            return self.push_text(text, out);
        }
        let at_end = run == bytes.len();
        let mut used = 0;
        for chunk in clean.utf8_chunks() {
            let taken = self.push_text(chunk.valid(), out);
            used += taken;
            if taken < chunk.valid().len() || !matches!(self.state, State::Ground) {
                return used;
            }
            let invalid = chunk.invalid();
            used += invalid.len();
            let unfinished = || std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
            if used == run && at_end && !invalid.is_empty() && unfinished() {
                for &byte in invalid {
                    self.partial.push(byte);
                }
            } else if !invalid.is_empty() {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
        used
    }

    /// Appends text without ASCII controls; stops behind the first C1 control, which changes the state.
    fn push_text(&mut self, text: &str, out: &mut String) -> usize {
        match find_c1(text) {
            None => {
                out.push_str(text);
                text.len()
            }
            Some((at, control)) => {
                out.push_str(text.get(..at).unwrap_or_default());
                self.feed(control, out);
                at + control.len_utf8()
            }
        }
    }

    /// Takes one character inside a sequence; returns how many bytes were used, at least one.
    fn step(&mut self, bytes: &[u8], out: &mut String) -> usize {
        let Some(&first) = bytes.first() else { return 0 };
        if first.is_ascii() {
            self.feed(char::from(first), out);
            return 1;
        }
        let head = bytes.get(..bytes.len().min(4)).unwrap_or_default();
        let Some(chunk) = head.utf8_chunks().next() else { return bytes.len() };
        if let Some(c) = chunk.valid().chars().next() {
            self.feed(c, out);
            return c.len_utf8();
        }
        let invalid = chunk.invalid();
        let unfinished = std::str::from_utf8(invalid).is_err_and(|e| e.error_len().is_none());
        if unfinished && invalid.len() == bytes.len() {
            for &byte in invalid {
                self.partial.push(byte);
            }
        } else {
            self.feed(char::REPLACEMENT_CHARACTER, out);
        }
        invalid.len().max(1)
    }

    /// The state machine itself, one character at a time.
    fn feed(&mut self, c: char, out: &mut String) {
        match std::mem::take(&mut self.state) {
            State::Ground => self.ground(c, out),
            State::Escape { length } => match c {
                '[' if length == 0 => {
                    self.state = State::Csi { parameters: Some(String::new()), length: 0 };
                }
                ']' if length == 0 => self.begin_string(Kind::Command),
                'P' | 'X' | '^' | '_' if length == 0 => self.begin_string(Kind::Device),
                ' '..='/' if length < MAX_SEQUENCE => self.state = State::Escape { length: length + 1 },
                '0'..='~' => {}
                _ => self.ground(c, out),
            },
            State::Csi { mut parameters, length } => match c {
                '0'..='9' | ';' | ':' if length < MAX_SEQUENCE => {
                    if let Some(text) = &mut parameters {
                        text.push(c);
                    }
                    parameters = parameters.filter(|text| text.len() <= MAX_PARAMETERS);
                    self.state = State::Csi { parameters, length: length + 1 };
                }
                ' '..='?' if length < MAX_SEQUENCE => {
                    self.state = State::Csi { parameters: None, length: length + 1 };
                }
                '@'..='~' => end_of_csi(c, parameters, out),
                _ => self.ground(c, out),
            },
            State::Text { kind, length, escape } => self.in_string(c, kind, length, escape, out),
        }
    }

    fn ground(&mut self, c: char, out: &mut String) {
        match c {
            ESC => self.state = State::Escape { length: 0 },
            '\u{9b}' => self.state = State::Csi { parameters: Some(String::new()), length: 0 },
            '\u{9d}' => self.begin_string(Kind::Command),
            '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}' => self.begin_string(Kind::Device),
            '\n' | '\r' | '\u{8}' | '\t' => out.push(c),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }

    fn begin_string(&mut self, kind: Kind) {
        self.state = State::Text { kind, length: 0, escape: false };
    }

    fn in_string(&mut self, c: char, kind: Kind, length: usize, escape: bool, out: &mut String) {
        match c {
            '\\' if escape => {}
            // An escape that is not the string terminator: the string was cut off, a new sequence began.
            _ if escape => {
                self.state = State::Escape { length: 0 };
                self.feed(c, out);
            }
            ESC => self.state = State::Text { kind, length, escape: true },
            // String terminator, cancel, substitute.
            '\u{9c}' | '\u{18}' | '\u{1a}' => {}
            '\u{7}' if kind == Kind::Command => {}
            '\n' if kind == Kind::Command => self.ground(c, out),
            _ if length >= MAX_STRING => self.ground(c, out),
            _ => self.state = State::Text { kind, length: length + 1, escape: false },
        }
    }
}

/// The final byte of a control sequence: colours pass, everything else is dropped.
fn end_of_csi(last: char, parameters: Option<String>, out: &mut String) {
    if let ('m', Some(parameters)) = (last, parameters) {
        out.push_str("\u{1b}[");
        out.push_str(&parameters);
        out.push('m');
    }
}

/// The complete colour at the beginning of some bytes.
fn colour(bytes: &[u8]) -> Option<&str> {
    let parameters = bytes.strip_prefix(b"\x1b[")?.iter().take(MAX_PARAMETERS + 1);
    let length = parameters.take_while(|b| matches!(b, b'0'..=b'9' | b';' | b':')).count();
    let whole = bytes.get(..length + 3).filter(|whole| length <= MAX_PARAMETERS && whole.ends_with(b"m"))?;
    std::str::from_utf8(whole).ok()
}

/// Whether a character shows nothing itself: marks of direction, joiners, fillers, variation selectors, tags.
pub fn is_invisible(c: char) -> bool {
    matches!(u32::from(c),
        0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180b..=0x180f | 0x200b..=0x200f
        | 0x2028..=0x202e | 0x2060..=0x206f | 0x2800 | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfffb
        | 0xe0000..=0xe0fff)
}

/// A whole text, filtered.
pub fn filtered(text: &str) -> String {
    let mut filter = Filter::new();
    let mut out = String::with_capacity(text.len());
    filter.push_into(text.as_bytes(), &mut out);
    out.push_str(&filter.finish());
    out
}

/// Whether an ASCII byte is a control that ends the fast path.
fn is_control(byte: u8) -> bool {
    (byte < 0x20 && !matches!(byte, 0x08..=0x0a | 0x0d)) || byte == 0x7f
}

/// The length of the beginning that has no ASCII control except those that pass.
fn clean_prefix(bytes: &[u8]) -> usize {
    let mut clean = 0;
    // Whole blocks without a branch inside, so that the compiler can use vector instructions.
    for block in bytes.chunks_exact(BLOCK) {
        if block.iter().fold(false, |found, &byte| found | is_control(byte)) {
            break;
        }
        clean += BLOCK;
    }
    let tail = bytes.get(clean..).unwrap_or_default();
    clean + tail.iter().position(|&byte| is_control(byte)).unwrap_or(tail.len())
}

/// The first C1 control of a text, which has two bytes in UTF-8, and where it is.
fn find_c1(text: &str) -> Option<(usize, char)> {
    if text.is_ascii() {
        return None;
    }
    let is_c1 = |pair: &[u8]| matches!(pair, [0xc2, 0x80..=0x9f]);
    let at = text.as_bytes().windows(2).position(is_c1)?;
    let control = text.get(at..)?.chars().next()?;
    Some((at, control))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(bytes: &[u8]) -> String {
        let mut filter = Filter::new();
        let mut out = filter.push(bytes);
        out.push_str(&filter.finish());
        out
    }

    #[test]
    fn text_controls_and_colours_pass_untouched() {
        for text in [
            "",
            "plain\n",
            " 50%|#####     | 5/10\r100%|##########| 10/10\n",
            "a\u{8}b\tc\r\n",
            "\u{1b}[31mred\u{1b}[0m \u{1b}[1;38;2;255;0;0mx\u{1b}[m\u{1b}[38:5:9mcolon\u{1b}[0m",
            "grüße 日本語 🦀 e\u{301}\u{a0}",
        ] {
            assert_eq!(whole(text.as_bytes()), text);
        }
    }

    #[test]
    fn every_other_sequence_is_removed() {
        for (input, expected) in [
            ("a\u{1b}[Kb", "ab"),
            ("a\u{1b}[2J\u{1b}[1;1Hb", "ab"),
            ("a\u{1b}[?25lb\u{1b}[?1049h", "ab"),
            ("a\u{1b}[>4mb", "ab"),
            ("a\u{1b}[0 mb", "ab"),
            ("a\u{1b}[1A\u{1b}[5Db", "ab"),
            ("a\u{1b}cb\u{1b}7\u{1b}8", "ab"),
            ("a\u{1b}(B\u{1b}[mb", "a\u{1b}[mb"),
            ("a\u{1b}]0;title\u{7}b", "ab"),
            ("a\u{1b}]8;;https://x.example\u{1b}\\link\u{1b}]8;;\u{1b}\\b", "alinkb"),
            ("a\u{1b}]52;c;ZXZpbA==\u{7}b", "ab"),
            ("a\u{1b}Pq#0;2\nsixel\u{1b}\\b", "ab"),
            ("a\u{1b}_Gpayload\u{1b}\\b\u{1b}^pm\u{1b}\\\u{1b}Xsos\u{1b}\\", "ab"),
            ("bell\u{7}, \u{0}nul, \u{b}\u{c}, \u{7f}del", "bell, nul, , del"),
            ("c1 \u{9b}31mx\u{9b}2J \u{9d}0;t\u{9c}y \u{85}\u{90}dcs\u{9c}z", "c1 \u{1b}[31mx y z"),
        ] {
            assert_eq!(whole(input.as_bytes()), expected, "{input:?}");
        }
    }

    #[test]
    fn a_sequence_that_is_cut_off_does_not_swallow_what_follows() {
        for (input, expected) in [
            ("\u{1b}]0;title\nnext", "\nnext"),
            ("\u{1b}]0;ti\u{1b}[31mred", "\u{1b}[31mred"),
            ("\u{1b}[12\nx", "\nx"),
            ("\u{1b}[12\u{1b}[31mx", "\u{1b}[31mx"),
            ("\u{1b}\nx", "\nx"),
            ("\u{1b}[3日", "日"),
            ("\u{1b}Pdcs\u{18}x", "x"),
            ("end\u{1b}[3", "end"),
            ("end\u{1b}]0;never", "end"),
        ] {
            assert_eq!(whole(input.as_bytes()), expected, "{input:?}");
        }
    }

    #[test]
    fn an_endless_string_or_sequence_is_given_up_and_takes_no_memory() {
        let mut filter = Filter::new();
        filter.push(b"\x1bP");
        let mut shown = 0;
        for _ in 0..4 {
            shown += filter.push(&vec![b'x'; MAX_STRING / 2]).len();
        }
        assert_eq!(shown, MAX_STRING);
        assert_eq!(filter.push(b"after"), "after");

        let mut endless = b"\x1b[".to_vec();
        endless.extend(vec![b'1'; 10_000]);
        assert_eq!(whole(&endless).len(), 10_000 - MAX_SEQUENCE);
    }

    #[test]
    fn characters_are_put_together_across_chunks() {
        let mut filter = Filter::new();
        assert_eq!(filter.push(b"a\xf0\x9f"), "a");
        assert_eq!(filter.push(b"\xa6"), "");
        assert_eq!(filter.push(b"\x80b"), "🦀b");
        assert_eq!(filter.push(b"\xe2\x82"), "");
        assert_eq!(filter.push(b"A"), "\u{fffd}A");
        assert_eq!(filter.push(b"\xc2"), "");
        assert_eq!(filter.finish(), "\u{fffd}");
        assert_eq!(filter.push(b"again"), "again");
    }

    /// Bytes that are likely to meet the interesting transitions.
    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => "[ -~\\n\\r\\t]{0,80}".prop_map(String::into_bytes),
            2 => any::<String>().prop_map(String::into_bytes),
            3 => prop::collection::vec(any::<u8>(), 0..6),
            6 => prop::sample::select(vec![
                &b"\x1b"[..], b"\x1b[", b"\x1b[31m", b"m", b"\x1b]", b"\x07", b"\x1b\\", b"\x9b", b"\xc2\x9b",
                b"\xc2", b"\x9d", b"\xc2\x9d", b"\xe2\x82", b"\xac", b"\xf0\x9f\xa6", b"\x1bP", b"\x18", b";1",
            ]).prop_map(<[u8]>::to_vec),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn chunking_changes_nothing(bytes in hostile(), cuts in prop::collection::vec(1usize..9, 1..200)) {
            let mut filter = Filter::new();
            let mut out = String::new();
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (chunk, after) = rest.split_at((*cut).min(rest.len()));
                filter.push_into(chunk, &mut out);
                rest = after;
            }
            out.push_str(&filter.finish());
            prop_assert_eq!(out, whole(&bytes));
        }

        #[test]
        fn only_colours_and_four_controls_come_out(bytes in hostile()) {
            let out = whole(&bytes);
            let mut rest = out.as_str();
            while let Some(at) = rest.find(ESC) {
                let sequence = &rest[at + 1..];
                prop_assert!(sequence.starts_with('['), "{:?}", out);
                let end = sequence.find(|c: char| !"[0123456789;:".contains(c)).unwrap_or(sequence.len());
                prop_assert!(sequence[end..].starts_with('m'), "{:?}", out);
                rest = &sequence[end..];
            }
            prop_assert!(out.chars().all(|c| !c.is_control() || "\n\r\t\u{8}\u{1b}".contains(c)), "{:?}", out);
        }

        #[test]
        fn filtering_twice_is_filtering_once(bytes in hostile()) {
            let once = whole(&bytes);
            prop_assert_eq!(whole(once.as_bytes()), once.clone());
        }

        #[test]
        fn text_without_controls_is_decoded_like_the_standard_library_does(
            bytes in prop::collection::vec(prop_oneof![0x20u8..0x7f, 0xc3u8..=0xff, 0xa0u8..0xc2], 0..100)
        ) {
            let expected = String::from_utf8_lossy(&bytes).into_owned();
            prop_assert_eq!(whole(&bytes), expected);
        }
    }
}
