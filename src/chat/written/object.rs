//! One JSON object that may be a call, read as it comes.
//!
//! Imports `turn`. The tools that models were taught to write differ in small things: all of them are read.

use serde_json::Value;

use crate::chat::turn::Tool;

/// The names of the member that names the tool, and of the one that holds the arguments.
const NAMES: &[&str] = &["name", "tool", "tool_name", "function"];
const ARGUMENTS: &[&str] = &["arguments", "parameters", "args", "input", "tool_input"];
/// The longest object whose tool is not known yet.
const UNKNOWN: usize = 64 << 10;

/// What an object turned out to be so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// It may be a call, or is one that is not whole.
    More,
    /// Its end is there.
    Whole,
    /// No call.
    Other,
}

/// An object as far as it came.
#[allow(clippy::struct_excessive_bools, reason = "what is known at each place is independent of the rest")]
#[derive(Debug)]
pub(super) struct Object {
    /// What stood before it.
    before: String,
    raw: String,
    depth: u32,
    text: bool,
    escape: bool,
    /// The string that comes next at the first level names a member.
    names: bool,
    /// Where the string that is being read began.
    began: usize,
    key: String,
    first_key: bool,
    name: Option<String>,
    arguments: Option<usize>,
    arguments_end: Option<usize>,
}

impl Object {
    pub(super) fn new(before: String) -> Self {
        Object {
            before,
            raw: String::new(),
            depth: 0,
            text: false,
            escape: false,
            names: true,
            began: 0,
            key: String::new(),
            first_key: true,
            name: None,
            arguments: None,
            arguments_end: None,
        }
    }

    /// Takes what belongs to the object out of `held`.
    pub(super) fn push(&mut self, held: &mut String, tools: &[Tool]) -> Seen {
        let mut seen = Seen::More;
        let mut taken = 0;
        for c in held.chars() {
            taken += c.len_utf8();
            seen = self.character(c, tools);
            if seen != Seen::More {
                break;
            }
        }
        held.drain(..taken);
        if seen == Seen::More && self.forming().is_none() && self.raw.len() > UNKNOWN {
            return Seen::Other;
        }
        seen
    }

    fn character(&mut self, c: char, tools: &[Tool]) -> Seen {
        let at = self.raw.len();
        self.raw.push(c);
        if self.text {
            match c {
                _ if self.escape => self.escape = false,
                '\\' => self.escape = true,
                '"' => {
                    self.text = false;
                    if self.depth == 1 {
                        return self.string(at, tools);
                    }
                }
                _ => {}
            }
            return Seen::More;
        }
        if c.is_whitespace() {
            return Seen::More;
        }
        if self.depth == 1 {
            // Between members only a name can come.
            if self.names && !matches!(c, '"' | '}') {
                return Seen::Other;
            }
            let begins = !self.names && !matches!(c, ':' | ',' | '}');
            if begins && self.arguments.is_none() && ARGUMENTS.contains(&self.key.as_str()) {
                self.arguments = Some(at);
            }
        }
        match c {
            '"' => {
                self.text = true;
                self.began = at + 1;
            }
            '{' | '[' => self.depth += 1,
            '}' | ']' => {
                self.depth = self.depth.saturating_sub(1);
                if self.depth == 1 {
                    self.value_ends(at + 1);
                }
                if self.depth == 0 {
                    self.value_ends(at);
                    return Seen::Whole;
                }
            }
            ',' if self.depth == 1 => {
                self.value_ends(at);
                self.names = true;
            }
            _ => {}
        }
        Seen::More
    }

    fn value_ends(&mut self, at: usize) {
        if self.arguments.is_some() && ARGUMENTS.contains(&self.key.as_str()) {
            self.arguments_end.get_or_insert(at);
        }
    }

    /// A string at the first level ended at this place.
    fn string(&mut self, at: usize, tools: &[Tool]) -> Seen {
        let text = &self.raw[self.began..at];
        if self.names {
            self.key = text.chars().take(32).collect();
            self.names = false;
            let known = NAMES.iter().chain(ARGUMENTS).any(|known| *known == self.key);
            let first = std::mem::replace(&mut self.first_key, false);
            if first && !known && !matches!(self.key.as_str(), "type" | "id") {
                return Seen::Other;
            }
        } else if NAMES.contains(&self.key.as_str()) && self.name.is_none() {
            if !tools.iter().any(|tool| tool.name == text) {
                return Seen::Other;
            }
            self.name = Some(text.to_owned());
        } else {
            self.value_ends(at + 1);
        }
        Seen::More
    }

    /// The tool and the arguments as far as they are there; `None` when it is too early to tell.
    pub(super) fn forming(&self) -> Option<(&str, &str)> {
        let (name, from) = (self.name.as_deref()?, self.arguments?);
        let arguments = &self.raw[from..self.arguments_end.unwrap_or(self.raw.len())];
        arguments.starts_with('{').then_some((name, arguments))
    }

    /// The call that the whole object is.
    pub(super) fn call(&self, tools: &[Tool]) -> Option<(String, String)> {
        let offered = |name: &str| tools.iter().any(|tool| tool.name == name);
        let value = serde_json::from_str::<Value>(&self.raw)
            .or_else(|_| serde_json::from_str::<Value>(&escaped(&self.raw)));
        let Ok(value) = value else {
            // Malformed, but a call: the model is told what is wrong with it.
            return self.forming().map(|(name, arguments)| (name.to_owned(), mend(arguments)));
        };
        let inner = value.get("function").filter(|inner| inner.is_object()).unwrap_or(&value);
        let members = inner.as_object()?;
        let name = NAMES.iter().find_map(|key| members.get(*key)?.as_str()).filter(|name| offered(name))?;
        let arguments = ARGUMENTS.iter().find_map(|key| members.get(*key));
        if arguments.is_none() && members.len() > 1 {
            return None;
        }
        let arguments = match arguments {
            None | Some(Value::Null) => "{}".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        Some((name.to_owned(), arguments))
    }

    /// Everything that came, with what stood before it.
    pub(super) fn take(&mut self) -> String {
        let mut text = std::mem::take(&mut self.before);
        text.push_str(&std::mem::take(&mut self.raw));
        text
    }
}

/// Arguments in proper JSON where that takes no guessing; else as they are.
pub(super) fn mend(arguments: &str) -> String {
    let text = arguments.trim();
    let tries = [text.to_owned(), escaped(text), format!("{}}}", escaped(text))];
    let read = tries.iter().find_map(|text| serde_json::from_str::<Value>(text).ok());
    read.filter(Value::is_object).map_or_else(|| text.to_owned(), |value| value.to_string())
}

/// JSON whose strings have line breaks and tabs as they are, which JSON does not allow and models write.
fn escaped(json: &str) -> String {
    let (mut out, mut text, mut escape) = (String::with_capacity(json.len() + 16), false, false);
    for c in json.chars() {
        match c {
            '"' if !escape => text = !text,
            '\n' if text => {
                out.push_str("\\n");
                continue;
            }
            '\t' if text => {
                out.push_str("\\t");
                continue;
            }
            '\r' if text => {
                out.push_str("\\r");
                continue;
            }
            _ => {}
        }
        escape = c == '\\' && !escape;
        out.push(c);
    }
    out
}
