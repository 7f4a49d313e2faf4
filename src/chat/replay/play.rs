//! Taking a reply down while it comes, and giving a recorded one again as if it came now.
//!
//! Imports `event`. A reply that the user interrupted is not kept, nor is a failure that has nothing to do with what was asked.

use std::sync::{Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::asked::Asked;
use super::lines::{ReplyLine, Take};
use crate::chat::error::ChatError;
use crate::chat::exchange::{Exchanged, ending};
use crate::chat::mask::masked;
use crate::chat::model::Delta;
use crate::chat::shown::{Shown, Unshown};
use crate::chat::written::Counts;
use crate::config::Secret;
use crate::event::Ending;

/// The most that is taken down of one reply, in bytes.
const SIZE: usize = 8 << 20;

/// What came of one reply.
#[derive(Debug, Default)]
pub(crate) struct Tape(Mutex<(Vec<Take>, usize)>);

impl Tape {
    /// The reply begins, perhaps again.
    pub(crate) fn rewind(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (Vec::new(), 0);
    }

    /// A part came.
    pub(crate) fn take(&self, delta: &Delta) {
        let mut tape = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let size = match delta {
            Delta::Text(text) | Delta::Reasoning(text) => text.len(),
            Delta::CallStart { name, .. } => name.len(),
            Delta::CallArguments { json, .. } => json.len(),
            Delta::Call { call, .. } => call.arguments.len(),
            Delta::End { .. } => 0,
        };
        tape.1 += size + 16;
        if tape.1 <= SIZE {
            tape.0.push(Take::of(delta));
        }
    }

    /// The reply as it is to be kept; `None` when it was interrupted, or was too long.
    pub(crate) fn reply(&self, end: &Ending, secrets: &[Secret]) -> Option<Vec<Take>> {
        let (mut takes, size) = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if size > SIZE || *end == Ending::Interrupted {
            return None;
        }
        if let (Ending::Cut(why), false) = (end, matches!(takes.last(), Some(Take::End { .. }))) {
            takes.push(Take::Cut(why.clone()));
        }
        Some(hidden(takes, secrets))
    }
}

/// Without keys, which may come in pieces.
fn hidden(mut takes: Vec<Take>, secrets: &[Secret]) -> Vec<Take> {
    for take in &mut takes {
        match take {
            Take::CallStart { name, .. } => *name = masked(name, secrets),
            Take::Call { call, .. } => {
                call.id = masked(&call.id, secrets);
                call.name = masked(&call.name, secrets);
            }
            Take::End { finish, .. } => *finish = masked(finish, secrets),
            _ => {}
        }
    }
    let joined = |of: fn(&Take) -> &str| takes.iter().map(of).collect::<String>();
    let texts = [
        joined(|take| if let Take::Text(text) = take { text } else { "" }),
        joined(|take| if let Take::Reasoning(text) = take { text } else { "" }),
        joined(|take| if let Take::CallArguments { json, .. } = take { json } else { "" }),
        joined(|take| if let Take::Call { call, .. } = take { &call.arguments } else { "" }),
    ];
    if texts.iter().all(|text| masked(text, secrets) == *text) {
        return takes;
    }
    let [text, reasoning, ..] = texts;
    let mut out = Vec::new();
    let mut whole = [(false, reasoning), (false, text)];
    for take in takes {
        match take {
            Take::Reasoning(_) | Take::Text(_) => {
                let (done, text) = &mut whole[usize::from(matches!(take, Take::Text(_)))];
                if !std::mem::replace(done, true) {
                    let text = masked(text, secrets);
                    out.push(if matches!(take, Take::Text(_)) {
                        Take::Text(text)
                    } else {
                        Take::Reasoning(text)
                    });
                }
            }
            // The whole call says it all.
            Take::CallArguments { .. } => {}
            Take::Call { part, mut call } => {
                call.arguments = masked(&call.arguments, secrets);
                out.push(Take::Call { part, call });
            }
            other => out.push(other),
        }
    }
    out
}

impl ReplyLine {
    /// The line of a reply to `asked`, by the model of that name.
    pub(crate) fn new(
        asked: &Asked,
        by: &str,
        window: Option<usize>,
        (could_call, as_text): (bool, Counts),
        says: Vec<Take>,
    ) -> Self {
        ReplyLine {
            reply: asked.key.clone(),
            cell: asked.cell.clone(),
            prompt: asked.prompt(),
            model: asked.model.clone(),
            by: by.to_owned(),
            temperature: asked.temperature,
            max_tokens: asked.max_tokens,
            window,
            asked: asked.parts.iter().map(|part| (part.kind, part.digest.clone())).collect(),
            could_call,
            as_text,
            says,
        }
    }
}

/// Gives the reply again.
///
/// # Errors
/// The one that was recorded.
pub(crate) async fn play(
    line: &ReplyLine,
    mut shown: Shown<'_>,
    cancel: &CancellationToken,
) -> Result<Exchanged, ChatError> {
    let mut end = Ending::Cut("the recording ends here".to_owned());
    for take in &line.says {
        let delta = match (take, take.delta()) {
            (_, Some(delta)) => delta,
            (Take::Failed { kind, text }, _) if !shown.has_begun() => {
                return Err(ChatError::recorded(kind, text.clone()));
            }
            (Take::Cut(why) | Take::Failed { text: why, .. }, _) => {
                end = Ending::Cut(why.clone());
                break;
            }
            _ => continue,
        };
        if let Delta::End { finish, tokens } = delta {
            shown.count(tokens);
            end = if shown.start().await.is_ok() {
                ending(finish, line.max_tokens, &[])
            } else {
                Ending::Interrupted
            };
            break;
        }
        let taken = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Unshown::Closed),
            taken = shown.take(delta) => taken,
        };
        match taken {
            Ok(()) => {}
            Err(Unshown::Closed) => {
                end = Ending::Interrupted;
                break;
            }
            Err(Unshown::TooMany(why)) => {
                end = Ending::Cut(why.to_string());
                break;
            }
        }
    }
    Ok(Exchanged { reply: shown.end(&end).await, ending: end })
}
