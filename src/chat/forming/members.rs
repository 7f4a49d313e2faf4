//! The strings in a JSON object, decoded while the object is still arriving. Imports nothing of ours.
//!
//! Only what stands directly in the object counts. Malformed input gives nothing or nonsense, never an error: the
//! whole text is judged when it is there.

/// The most characters of a member's name that count.
const KEY: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    #[default]
    Outside,
    Text,
    Escape,
    /// So many digits of `\uXXXX` are read.
    Unicode(u32, u32),
}

/// Reads one object, piece by piece.
#[derive(Debug, Default)]
pub(super) struct Members {
    at: At,
    depth: u32,
    key: String,
    /// The string that is being read, or comes next, names a member.
    names: bool,
    /// The first half of a character that is escaped in two.
    half: Option<u32>,
}

impl Members {
    /// Takes the next piece; `found` gets each character of a member's string with the member's name.
    pub(super) fn push(&mut self, json: &str, mut found: impl FnMut(&str, char)) {
        for c in json.chars() {
            match self.at {
                At::Outside => self.outside(c),
                At::Text if c == '"' => {
                    self.at = At::Outside;
                    self.half = None;
                }
                At::Text if c == '\\' => self.at = At::Escape,
                At::Text => self.character(c, &mut found),
                At::Escape => {
                    self.at = At::Text;
                    match c {
                        'n' => self.character('\n', &mut found),
                        't' => self.character('\t', &mut found),
                        'r' => self.character('\r', &mut found),
                        'b' => self.character('\u{8}', &mut found),
                        'f' => self.character('\u{c}', &mut found),
                        'u' => self.at = At::Unicode(0, 0),
                        other => self.character(other, &mut found),
                    }
                }
                At::Unicode(count, value) => {
                    let value = value * 16 + c.to_digit(16).unwrap_or(0);
                    self.at = At::Unicode(count + 1, value);
                    if count == 3 {
                        self.at = At::Text;
                        self.unit(value, &mut found);
                    }
                }
            }
        }
    }

    fn outside(&mut self, c: char) {
        match c {
            '"' => {
                self.at = At::Text;
                if self.names && self.depth == 1 {
                    self.key.clear();
                }
            }
            '{' | '[' => {
                self.depth = self.depth.saturating_add(1);
                self.names = c == '{';
            }
            '}' | ']' => self.depth = self.depth.saturating_sub(1),
            ':' => self.names = false,
            ',' => self.names = true,
            _ => {}
        }
    }

    fn character(&mut self, c: char, found: &mut impl FnMut(&str, char)) {
        if self.depth != 1 {
            return;
        }
        if !self.names {
            found(&self.key, c);
        } else if self.key.len() < KEY {
            self.key.push(c);
        }
    }

    /// One unit of UTF-16.
    fn unit(&mut self, value: u32, found: &mut impl FnMut(&str, char)) {
        match (self.half.take(), value) {
            (Some(high), 0xdc00..=0xdfff) => {
                let both = 0x1_0000 + ((high - 0xd800) << 10) + (value - 0xdc00);
                self.character(char::from_u32(both).unwrap_or('\u{fffd}'), found);
            }
            (_, 0xd800..=0xdbff) => self.half = Some(value),
            (_, value) => self.character(char::from_u32(value).unwrap_or('\u{fffd}'), found),
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn read(pieces: &[&str]) -> String {
        let (mut members, mut code) = (Members::default(), String::new());
        for piece in pieces {
            members.push(piece, |key, c| {
                if key == "code" {
                    code.push(c);
                }
            });
        }
        code
    }

    #[test]
    fn a_string_is_decoded_wherever_it_is_cut() {
        let json = r#"{"a": {"code": "no"}, "b": ["code", "no"], "code": "x = \"\\n\"\n\t# é 🦀 \u00e9 \ud83e\udd80", "z": 1}"#;
        let expected = serde_json::from_str::<serde_json::Value>(json).expect("JSON")["code"].clone();
        assert_eq!(read(&[json]), expected.as_str().expect("a string"));
        for at in json.char_indices().map(|(at, _)| at) {
            assert_eq!(read(&[&json[..at], &json[at..]]), expected.as_str().expect("a string"), "{at}");
        }
    }

    #[test]
    fn what_is_malformed_gives_no_error() {
        for json in
            ["", "]]}}", "{\"code\": \"a", "\"code\": \"b\"", "{\"code\": \"\\ud83e\\u0041\\uzzzz\"", "[[[["]
        {
            read(&[json]);
        }
        assert_eq!(read(&["{\"code\": \"a"]), "a");
    }

    proptest::proptest! {
        #[test]
        fn whatever_comes_is_survived(pieces in proptest::collection::vec(".{0,12}", 0..8)) {
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            read(&pieces);
        }
    }
}
