//! Calls that a model writes as text, as small local models do, recognised while they stream.
//!
//! Imports `turn` and `model`. A reply is calls when it is nothing but JSON objects that name offered tools, bare,
//! fenced or in a list; or where such an object stands between `<tool_call>` and `</tool_call>`. Whatever may still
//! become a call is held back; text that merely contains JSON is text. A model that can call needs none of this, and
//! what it quotes from a file must not become a call: [`Counts`].

mod counts;
mod fence;
mod object;

use super::model::Delta;
use super::turn::{Tool, ToolCall};
use fence::Fence;
use object::{Object, Seen};

pub(crate) use counts::Counts;
pub use counts::Told;

const TAG: &str = "<tool_call>";
const END_TAG: &str = "</tool_call>";
const FENCE: &str = "```";
/// What a fence around calls may be called.
const INFOS: &[&str] = &["", "json", "jsonc", "tool_call", "tool_calls", "tool_code"];
/// Calls written as text are told from the others by the numbers of their parts.
const FIRST_PART: u64 = 1 << 32;

/// A part of a reply's text, told apart.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// Text for the reader.
    Text(String),
    /// A part of a call.
    Call(Delta),
    /// The calls of these parts were none: text follows. They were written like this.
    Withdrawn { parts: Vec<u64>, text: String },
}

/// What stands around a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    Nothing,
    Fence,
    Tag,
}

#[derive(Debug)]
enum State {
    /// A call may begin.
    Beginning,
    /// Within an object.
    Object { object: Box<Object>, around: Around, part: Option<u64>, sent: usize },
    /// After an object.
    After(Around),
    /// Text, which only a tag at the beginning of a line ends; perhaps in a fence, perhaps within a line.
    Text { fence: Option<Fence>, within: bool },
}

/// What the beginning of a text is.
enum Begins {
    /// Not to be told yet.
    Open,
    /// An object, at this place.
    Object(Around, usize),
    /// Text.
    Text,
}

/// Reads one reply.
#[derive(Debug)]
pub(super) struct Written<'a> {
    tools: &'a [Tool],
    counts: Counts,
    told: Told,
    state: State,
    /// What is not told apart yet.
    held: String,
    parts: u64,
    /// Calls that are none if text follows, and how they were written.
    doubtful: Vec<u64>,
    doubtful_text: String,
    /// There was text: only tags count from here on.
    prose: bool,
    /// Objects stand in a fence that is not closed yet.
    fence: Option<Fence>,
}

impl<'a> Written<'a> {
    /// Without tools everything is text. What the model was `told` it may quote.
    pub(super) fn new(tools: &'a [Tool], counts: Counts, told: Told) -> Self {
        Written {
            tools: if counts == Counts::Never { &[] } else { tools },
            counts,
            told,
            state: State::Beginning,
            held: String::new(),
            parts: 0,
            doubtful: Vec::new(),
            doubtful_text: String::new(),
            prose: false,
            fence: None,
        }
    }

    /// Takes more of the text.
    pub(super) fn push(&mut self, text: &str) -> Vec<Part> {
        if self.tools.is_empty() {
            return vec![Part::Text(text.to_owned())];
        }
        self.held.push_str(text);
        let mut parts = Vec::new();
        while self.step(&mut parts) {}
        parts
    }

    /// The model has made a call of its own: nothing in its text is one.
    pub(super) fn called(&mut self) -> Vec<Part> {
        if self.tools.is_empty() {
            return Vec::new();
        }
        let object = match &mut self.state {
            State::Object { object, part, .. } => Some((object.take(), part.take())),
            _ => None,
        };
        match object {
            Some((written, Some(part))) => {
                self.doubtful.push(part);
                self.doubtful_text.push_str(&written);
            }
            Some((written, None)) => self.held.insert_str(0, &written),
            None => {}
        }
        let mut parts = Vec::new();
        self.text(&mut parts);
        self.tools = &[];
        let rest = std::mem::take(&mut self.held);
        parts.extend((!rest.is_empty()).then_some(Part::Text(rest)));
        parts
    }

    /// One step; whether there may be another one with what is held.
    fn step(&mut self, parts: &mut Vec<Part>) -> bool {
        match &mut self.state {
            State::Beginning => match begins(&self.held, self.prose) {
                Begins::Open => false,
                Begins::Text => {
                    self.text(parts);
                    true
                }
                // In a fence that objects have left open a tag is quoted.
                Begins::Object(Around::Tag, _) if self.fence.is_some() => {
                    self.text(parts);
                    true
                }
                Begins::Object(around, at) => {
                    let rest = self.held.split_off(at);
                    let before = std::mem::replace(&mut self.held, rest);
                    self.fence = (around == Around::Fence).then_some(Fence::JSON);
                    let object = Box::new(Object::new(before));
                    self.state = State::Object { object, around, part: None, sent: 0 };
                    true
                }
            },
            State::Object { .. } => self.object(parts),
            State::After(around) => {
                let around = *around;
                self.after(around)
            }
            State::Text { .. } if self.counts != Counts::Tagged => {
                // Only a whole reply would have been calls.
                let rest = std::mem::take(&mut self.held);
                parts.extend((!rest.is_empty()).then_some(Part::Text(rest)));
                false
            }
            State::Text { fence, within } => {
                let (shown, tag) = until_tag(&mut self.held, fence, within);
                parts.extend((!shown.is_empty()).then_some(Part::Text(shown)));
                if tag {
                    self.state = State::Beginning;
                }
                tag
            }
        }
    }

    /// What is held is text, and so were the untagged calls before it.
    fn text(&mut self, parts: &mut Vec<Part>) {
        if !self.doubtful.is_empty() {
            parts.push(Part::Withdrawn {
                parts: std::mem::take(&mut self.doubtful),
                text: std::mem::take(&mut self.doubtful_text),
            });
        }
        self.prose = true;
        // A tag that begins here was looked at already.
        let within = self.held.trim_start_matches([' ', '\t']).starts_with(TAG);
        self.state = State::Text { fence: self.fence.take(), within };
    }

    fn object(&mut self, parts: &mut Vec<Part>) -> bool {
        let State::Object { object, around, part, sent } = &mut self.state else { return false };
        let seen = object.push(&mut self.held, self.tools);
        if let (Some((name, arguments)), Seen::More | Seen::Whole) = (object.forming(), seen) {
            let part = *part.get_or_insert_with(|| {
                self.parts += 1;
                let part = FIRST_PART + self.parts;
                parts.push(Part::Call(Delta::CallStart { part, name: name.to_owned() }));
                part
            });
            let json = arguments[*sent..].to_owned();
            *sent = arguments.len();
            parts.extend((!json.is_empty()).then_some(Part::Call(Delta::CallArguments { part, json })));
        }
        let around = *around;
        let whole = match seen {
            Seen::More => return false,
            Seen::Other => None,
            Seen::Whole => object.call(self.tools),
        };
        let (part, written) = (*part, object.take());
        let whole =
            whole.filter(|(name, arguments)| !self.told.has_call(&written, self.code(name, arguments)));
        if let Some((name, arguments)) = whole {
            let part = part.unwrap_or_else(|| {
                self.parts += 1;
                FIRST_PART + self.parts
            });
            let call = ToolCall { id: id(), name, arguments };
            parts.push(Part::Call(Delta::Call { part, call }));
            if self.is_doubtful(around) {
                self.doubtful.push(part);
                self.doubtful_text.push_str(&written);
            }
            self.state = State::After(around);
            return true;
        }
        if let Some(part) = part {
            // It was taken for a call too early; it stands on the page as far as it was shown.
            self.doubtful.push(part);
            self.doubtful_text.push_str(&written);
            self.text(parts);
            if let State::Text { within, .. } = &mut self.state {
                *within = true;
            }
            return true;
        }
        self.held.insert_str(0, &written);
        self.fence = None;
        self.text(parts);
        true
    }

    /// Whether a call in such surroundings is none when text follows.
    fn is_doubtful(&self, around: Around) -> bool {
        around != Around::Tag || self.counts != Counts::Tagged
    }

    /// The code among a call's arguments.
    fn code(&self, name: &str, arguments: &str) -> Option<String> {
        let key = self.tools.iter().find(|tool| tool.name == name)?.code?.code;
        let arguments: serde_json::Value = serde_json::from_str(arguments).ok()?;
        Some(arguments.get(key)?.as_str()?.to_owned())
    }

    /// After an object: its surroundings end, or another one begins.
    fn after(&mut self, around: Around) -> bool {
        let rest = self.held.trim_start_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | ']'));
        let end = match around {
            Around::Nothing => "",
            Around::Fence => FENCE,
            Around::Tag => END_TAG,
        };
        let (skipped, closed) = match rest.strip_prefix(end) {
            _ if rest.is_empty() => return false,
            Some(rest) => (self.held.len() - rest.len(), true),
            None if end.starts_with(rest) => return false,
            None => (self.held.len() - rest.len(), false),
        };
        let next_object = rest.starts_with('{');
        let rest = self.held.split_off(skipped);
        let skipped = std::mem::replace(&mut self.held, rest);
        if self.is_doubtful(around) {
            self.doubtful_text.push_str(&skipped);
        }
        if closed {
            self.fence = None;
        }
        self.state = if !closed && next_object {
            State::Object { object: Box::new(Object::new(String::new())), around, part: None, sent: 0 }
        } else {
            State::Beginning
        };
        true
    }

    /// The reply is over: what was held back. An object that its writer forgot to close is a call all the same.
    pub(super) fn finish(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        match std::mem::replace(&mut self.state, State::Text { fence: None, within: false }) {
            State::Object { mut object, part: Some(part), .. } => {
                let forming = object.forming();
                let call = forming.map(|(name, arguments)| (name.to_owned(), object::mend(arguments)));
                let written = object.take();
                match call {
                    Some((name, arguments)) if self.told.has_call(&written, self.code(&name, &arguments)) => {
                        self.doubtful.push(part);
                        self.doubtful_text.push_str(&written);
                        self.text(&mut parts);
                    }
                    Some((name, arguments)) => {
                        let call = ToolCall { id: id(), name, arguments };
                        parts.push(Part::Call(Delta::Call { part, call }));
                    }
                    None => {}
                }
            }
            State::Object { mut object, .. } => self.held.insert_str(0, &object.take()),
            State::After(_) => self.held.clear(),
            State::Beginning if self.parts > 0 && self.held.trim().is_empty() => self.held.clear(),
            State::Beginning | State::Text { .. } => {}
        }
        let rest = std::mem::take(&mut self.held);
        if !rest.is_empty() {
            if !self.doubtful.is_empty() {
                let (doubtful, text) =
                    (std::mem::take(&mut self.doubtful), std::mem::take(&mut self.doubtful_text));
                parts.push(Part::Withdrawn { parts: doubtful, text });
            }
            parts.push(Part::Text(rest));
        }
        parts
    }
}

/// A fresh name for a call.
fn id() -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("call_{}", &id[..16])
}

/// What a text begins with; after prose only a tag counts, and what is indented like code never does.
fn begins(text: &str, prose: bool) -> Begins {
    let seen = text.trim_start();
    let indent = &text[..text.len() - seen.len()];
    if fence::is_indented(indent.rsplit(['\n', '\r']).next().unwrap_or_default()) {
        return Begins::Text;
    }
    let at = |rest: &str| text.len() - rest.len();
    // The object, or the list of objects, that this is the inside of.
    let inside = |rest: &str, around: Around| {
        let rest = rest.trim_start();
        let first = rest.strip_prefix('[').map_or(rest, str::trim_start);
        match first {
            "" => Begins::Open,
            first if first.starts_with('{') => Begins::Object(around, at(first)),
            _ => Begins::Text,
        }
    };
    if let Some(rest) = seen.strip_prefix(TAG) {
        return inside(rest, Around::Tag);
    }
    if TAG.starts_with(seen) {
        return Begins::Open;
    }
    if prose {
        return Begins::Text;
    }
    if let Some(rest) = seen.strip_prefix(FENCE) {
        return match rest.split_once('\n') {
            Some((info, rest)) if INFOS.contains(&info.trim()) => inside(rest, Around::Fence),
            None if INFOS.iter().any(|known| known.starts_with(rest.trim())) => Begins::Open,
            _ => Begins::Text,
        };
    }
    if FENCE.starts_with(seen) {
        return Begins::Open;
    }
    inside(seen, Around::Nothing)
}

/// Takes out of `held` what is certainly text, up to a tag at the beginning of a line outside of fences; whether
/// there is one. `within`: it begins within a line, as what is left will.
fn until_tag(held: &mut String, fence: &mut Option<Fence>, within: &mut bool) -> (String, bool) {
    let mut at = 0;
    loop {
        let line = held[at..].split_inclusive(['\n', '\r']).next().unwrap_or_default();
        let whole = line.ends_with(['\n', '\r']);
        if !*within {
            let seen = line.trim_start_matches([' ', '\t']);
            let code = fence::is_indented(&line[..line.len() - seen.len()]);
            if fence.is_none() && !code && seen.starts_with(TAG) {
                return (cut(held, at), true);
            }
            if !whole && !code && (TAG.starts_with(seen) || fence::may_become(seen)) {
                return (cut(held, at), false);
            }
            if let Some(read) = Fence::read(line).filter(|_| whole) {
                match *fence {
                    None => *fence = Some(read),
                    Some(opened) if read.closes(opened) => *fence = None,
                    Some(_) => {}
                }
            }
        }
        *within = !whole;
        if !whole {
            return (std::mem::take(held), false);
        }
        at += line.len();
    }
}

/// The first `at` bytes of `held`, which keeps the rest.
fn cut(held: &mut String, at: usize) -> String {
    let rest = held.split_off(at);
    std::mem::replace(held, rest)
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
mod tests;
