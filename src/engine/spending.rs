//! What a turn costs: whether the next request may be made, what a reply took, and the line under the turn.
//!
//! One turn keeps one [`TurnCost`] and calls, in this order: [`Engine::affordable`] before each request,
//! [`Engine::charge`] after each reply, [`Engine::settle`] at its end, however it ended.

use super::Outcome;
use super::execute::{Engine, Surroundings, send};
use crate::chat::cost::TurnCost;
use crate::chat::{Options, Reply};
use crate::event::{Event, Notice, Usage};

impl Engine {
    /// Whether another request may be made in this turn.
    ///
    /// # Errors
    /// What is used up, in whole sentences for the user: they name the setting and what was used.
    pub(super) fn affordable(&self, cost: &TurnCost, options: &Options) -> Result<(), String> {
        let model = options.model.clone().or_else(|| self.chat.current());
        self.chat.ledger().exhausted(cost, model.as_deref()).map_or(Ok(()), Err)
    }

    /// Charges a reply, also one that was interrupted or cut; says once when a budget can't be kept. One out of a recording
    /// is only noted.
    pub(super) async fn charge(&self, cost: &mut TurnCost, reply: &Reply, around: Surroundings<'_>) {
        let Some(model) = &reply.model else { return };
        if reply.recorded {
            self.asking.answered(&reply.text);
            self.chat.ledger().add_recorded(cost, model, &reply.usage);
            return;
        }
        // It was interrupted before anything was asked.
        if reply.usage == Usage::default() {
            return;
        }
        self.asking.answered(&reply.text);
        let written = reply.text.len()
            + reply.calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>();
        if let Some(remark) = self.chat.ledger().charge(cost, model, &reply.usage, written) {
            send(around.events, Event::Notice(Notice::warning(remark))).await;
        }
    }

    /// Shows the line under a turn, and puts its figures into the reply's metadata (`cellblock_usage`).
    pub(super) async fn settle(&self, cost: &TurnCost, around: Surroundings<'_>, outcome: &mut Outcome) {
        let Some(footer) = cost.footer() else { return };
        outcome.metadata.insert("cellblock_usage".into(), cost.figures());
        if self.habits.footer {
            send(around.events, Event::Notice(Notice::info(footer))).await;
        }
    }
}
