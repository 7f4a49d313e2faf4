//! Calls while they form: what the reader sees of them, and the calls when they are whole.
//!
//! Imports `turn` and `model`. A call that carries code is shown as a fence that grows with it; any other as one
//! line when it is whole. Everything in a call is the model's: names and arguments are bounded, the code can't
//! close its fence, and what is shown in the end is what will be run, however the arguments were written: a fence
//! whose language came behind its code, or whose code was not the last of that name, is replaced by the right one.

mod fence;
mod members;

use std::collections::VecDeque;

use serde_json::Value;

use super::model::Delta;
use super::turn::{CodeArguments, Tool, ToolCall};
use crate::event::words;
use fence::Fence;
use members::Members;

/// The most calls of one reply.
const CALLS: usize = 128;
/// The most characters of a tool's name, of one argument, and of a whole line.
const NAME: usize = 64;
const ARGUMENT: usize = 60;
const LINE: usize = 200;
/// The most characters of a language's name.
const LANGUAGE: usize = 24;

/// The model called more often than one reply may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the model made more than {CALLS} calls in one reply")]
pub(super) struct TooMany;

/// What becomes of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// More Markdown.
    More(String),
    /// `new` is to stand where `old` does; where that can't be, `added` is added.
    Instead { old: String, new: String, added: String },
}

/// The calls of one reply.
#[derive(Debug)]
pub(super) struct Forming<'a> {
    tools: &'a [Tool],
    /// Calls that are not shown to their end, in the order in which they began.
    open: VecDeque<Open>,
    whole: Vec<(u64, ToolCall)>,
}

/// One call.
#[derive(Debug)]
struct Open {
    part: u64,
    name: String,
    code: Option<CodeArguments>,
    members: Members,
    language: String,
    fence: Option<Fence>,
    /// The language that the fence was opened with.
    opened: String,
    /// The code as far as it was decoded from the pieces.
    decoded: String,
    /// What is to be shown of it.
    shown: String,
    /// What of it stands on the page.
    page: String,
    /// How the page is mended in the end.
    mended: Option<Change>,
    call: Option<ToolCall>,
}

impl<'a> Forming<'a> {
    pub(super) fn new(tools: &'a [Tool]) -> Self {
        Forming { tools, open: VecDeque::new(), whole: Vec::new() }
    }

    /// Takes a part of a call; what is to be shown of it now. Other deltas are not its business.
    pub(super) fn take(&mut self, delta: Delta) -> Result<Vec<Change>, TooMany> {
        match delta {
            Delta::CallStart { part, name } => {
                self.at(part, &name)?;
            }
            Delta::CallArguments { part, json } => {
                if let Some(open) = self.open.iter_mut().find(|open| open.part == part) {
                    open.grow(&json);
                }
            }
            Delta::Call { part, call } => {
                let open = self.at(part, &call.name)?;
                open.end(call);
            }
            Delta::Text(_) | Delta::Reasoning(_) | Delta::End { .. } => {}
        }
        Ok(self.show())
    }

    /// The call that is `part` of the reply, which begins here if it has not begun.
    fn at(&mut self, part: u64, name: &str) -> Result<&mut Open, TooMany> {
        let at = match self.open.iter().position(|open| open.part == part) {
            Some(at) => at,
            None if self.whole.len() + self.open.len() >= CALLS => return Err(TooMany),
            None => {
                let code = self.tools.iter().find(|tool| tool.name == name).and_then(|tool| tool.code);
                self.open.push_back(Open::new(part, name, code));
                self.open.len() - 1
            }
        };
        Ok(&mut self.open[at])
    }

    /// Only one call at a time can grow on the page: the others wait for their turn.
    fn show(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Some(first) = self.open.front_mut() {
            if !first.shown.is_empty() {
                first.page.push_str(&first.shown);
                changes.push(Change::More(std::mem::take(&mut first.shown)));
            }
            changes.extend(first.mended.take());
            let Some(call) = first.call.take() else { break };
            self.whole.push((first.part, call));
            self.open.pop_front();
        }
        changes
    }

    /// These calls turned out to be none; what is to be shown, so that they end.
    pub(super) fn withdraw(&mut self, parts: &[u64]) -> String {
        self.whole.retain(|(part, _)| !parts.contains(part));
        let mut shown = String::new();
        for open in self.open.iter_mut().filter(|open| parts.contains(&open.part)) {
            open.close();
            shown.push_str(&open.shown);
        }
        self.open.retain(|open| !parts.contains(&open.part));
        shown
    }

    /// The tool whose call is being written, when the reply ends here.
    pub(super) fn unfinished(&self) -> Option<String> {
        self.open.front().map(|open| bounded(&open.name, NAME))
    }

    /// The reply is over: what closes an unfinished call's fence, and the calls that are whole.
    pub(super) fn finish(mut self) -> (String, Vec<ToolCall>) {
        let mut shown = String::new();
        for mut open in self.open.drain(..) {
            open.close();
            shown.push_str(&open.shown);
        }
        (shown, self.whole.into_iter().map(|(_, call)| call).collect())
    }
}

impl Open {
    fn new(part: u64, name: &str, code: Option<CodeArguments>) -> Self {
        Open {
            part,
            name: name.to_owned(),
            code,
            members: Members::default(),
            language: String::new(),
            fence: None,
            opened: String::new(),
            decoded: String::new(),
            shown: String::new(),
            page: String::new(),
            mended: None,
            call: None,
        }
    }

    fn grow(&mut self, json: &str) {
        let Some(code) = self.code else { return };
        let Open { members, language, fence, opened, decoded, shown, .. } = self;
        members.push(json, |key, c| {
            if key == code.language {
                // One character too many shows that it is no name.
                if language.chars().count() <= LANGUAGE {
                    language.push(c);
                }
            } else if key == code.code {
                decoded.push(c);
                let fence = fence.get_or_insert_with(|| {
                    info(language, code.default).clone_into(opened);
                    Fence::open(opened, shown)
                });
                fence.push(c, shown);
            }
        });
    }

    fn end(&mut self, call: ToolCall) {
        let arguments = serde_json::from_str::<Value>(&call.arguments).ok();
        let code = self.code.and_then(|code| {
            let text = arguments.as_ref()?.get(code.code)?.as_str()?.to_owned();
            let language = arguments.as_ref()?.get(code.language).and_then(Value::as_str).unwrap_or_default();
            Some((text, info(language, code.default)))
        });
        match code {
            // Arguments can be written so that the first reading is not the last, or come all at once.
            Some((text, language))
                if text != self.decoded
                    || !text.is_empty() && !language.eq_ignore_ascii_case(&self.opened) =>
            {
                self.mend(&text, language);
            }
            Some((text, _)) if !text.is_empty() => self.close(),
            _ => {
                self.close();
                self.shown.push_str(&line(&call.name, arguments.as_ref(), &call.arguments));
            }
        }
        self.call = Some(call);
    }

    /// The fence was to be this one.
    fn mend(&mut self, text: &str, language: &str) {
        let whole = Fence::whole(language, text);
        if self.page.is_empty() {
            self.shown = whole;
            return;
        }
        let mut added = std::mem::take(&mut self.shown);
        if let Some(fence) = self.fence.take() {
            fence.close(&mut added);
        }
        if text == self.decoded {
            added.extend(["\nThe language of the code above is ", language, ".\n\n"]);
        } else {
            added.push_str("\nThe call ended otherwise than it began; what counts is this:");
            added.push_str(&whole);
        }
        // What is before the fence may have been trimmed.
        let old = self.page.trim_start_matches('\n').to_owned();
        let new = whole.trim_start_matches('\n').to_owned();
        self.mended = Some(Change::Instead { old, new, added });
    }

    fn close(&mut self) {
        if let Some(fence) = self.fence.take() {
            fence.close(&mut self.shown);
        }
    }
}

/// A language as a fence can name it.
fn info<'l>(language: &'l str, default: &'l str) -> &'l str {
    let language = language.trim();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '#' | '.' | '_' | '-');
    let is_name = !language.is_empty() && language.len() <= LANGUAGE && language.chars().all(plain);
    if is_name { language } else { default }
}

/// A call in one line of Markdown: `name(argument="value")`.
fn line(name: &str, arguments: Option<&Value>, raw: &str) -> String {
    let arguments = match arguments.and_then(Value::as_object) {
        Some(members) => {
            let members = members.iter().map(|(key, value)| {
                format!("{}={}", bounded(key, NAME), bounded(&value.to_string(), ARGUMENT))
            });
            members.take(LINE).collect::<Vec<_>>().join(", ")
        }
        None => raw.trim().to_owned(),
    };
    let text = bounded(&format!("{}({arguments})", bounded(name, NAME)), LINE);
    let ticks = "`".repeat(words::longest_ticks(&text) + 1);
    // A space keeps backticks of the text from those around it.
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("\n\n{ticks}{space}{text}{space}{ticks}\n\n")
}

/// At most so many characters, on one line, without characters that control or reorder.
fn bounded(text: &str, limit: usize) -> String {
    let mut kept: String =
        text.chars().take(limit + 1).map(|c| if c.is_control() || is_mark(c) { ' ' } else { c }).collect();
    if let Some((at, _)) = kept.char_indices().nth(limit) {
        kept.truncate(at);
        kept.push('…');
    }
    kept
}

/// Marks that reorder or hide text, and the line separators.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
mod tests;
