//! What providers attach to replies that call tools and want to see again with the calls' results: signatures of
//! reasoning, opaque items. In memory, bounded, never in the dialogue.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use rig_core::message::AssistantMessage;

use super::translate;
use crate::chat::turn::ToolCall;

/// More replies than one turn of the user's may take.
const KEPT: usize = 64;

/// The last replies that called tools, as they came.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<VecDeque<AssistantMessage>>);

impl Turns {
    /// Keeps a reply, when it called tools.
    pub(super) fn keep(&self, reply: &AssistantMessage) {
        if reply.tool_calls().next().is_none() {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(reply.clone());
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }

    /// The reply that made exactly these calls; one that the user changed is not it any more.
    pub(super) fn find(&self, calls: &[ToolCall]) -> Option<AssistantMessage> {
        if calls.is_empty() {
            return None;
        }
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let same =
            |reply: &&AssistantMessage| reply.tool_calls().map(translate::call).eq(calls.iter().cloned());
        kept.iter().rev().find(same).cloned()
    }
}
