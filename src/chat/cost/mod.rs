//! What replies cost: tokens, money and time, over a turn and over the kernel, and the budgets on them.
//!
//! May import `config` and `event`. One [`Ledger`] for a kernel; each turn of the dialogue has its own [`TurnCost`], which
//! every reply in it is charged to:
//!
//! ```text
//! let mut cost = TurnCost::default();
//! before each request:   if let Some(why) = ledger.exhausted(&cost, model) { stop }
//! after each reply:      if let Some(remark) = ledger.charge(&mut cost, model, &usage, bytes) { warn }
//! at the turn's end:     cost.footer(), cost.figures()
//! ```
//!
//! | module | what |
//! | --- | --- |
//! | `catalog` | what is known of models: prices, and which of them see pictures |
//! | `read` | a file of prices, ours (`prices.toml`) or the user's, to a catalog |
//! | `tally` | sums of tokens and money |
//! | `words` | the footer, and numbers for people |

mod catalog;
mod read;
mod tally;
mod words;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::BudgetSettings;
use crate::event::Usage;
use crate::event::words::thousands;

pub use catalog::{Catalog, Price, Rates};
pub use tally::{Tally, TurnCost};
pub use words::dollars;

/// What one kernel's models have cost, and what they may.
#[derive(Debug)]
pub struct Ledger {
    catalog: Arc<Catalog>,
    limits: BudgetSettings,
    spent: Mutex<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    models: Vec<(String, Tally)>,
    /// Replies out of a recording, with what they took when they were recorded.
    recorded: Tally,
    /// What was said once: that a budget in money can't be kept, that one in tokens is an estimate.
    said: [bool; 2],
}

impl Ledger {
    /// Nothing was spent yet.
    pub fn new(catalog: Arc<Catalog>, limits: &BudgetSettings) -> Self {
        Ledger { catalog, limits: limits.clone(), spent: Mutex::default() }
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why no further request may be made, in whole sentences that name the setting and what was used; to be asked
    /// before each request of a turn. `model` is the one that would be asked, when it is known by then.
    pub fn exhausted(&self, turn: &TurnCost, model: Option<&str>) -> Option<String> {
        let limits = &self.limits;
        let (now, all) = (turn.total(), self.total());
        let tokens = |used: u64, limit: Option<u64>, who: &str, name: &str, then: &str| {
            let limit = limit.filter(|limit| used >= *limit)?;
            let (used, limit) = (thousands(used), thousands(limit));
            Some(format!("{who} has used {used} tokens, and {limit} are allowed ({name}). {then}"))
        };
        let price = model.and_then(|model| self.catalog.price(model));
        let money = |used: f64, limit: Option<f64>, who: &str, name: &str, then: &str| {
            // A budget of nothing allows what is free.
            let dear =
                |limit: f64| if limit > 0.0 { used >= limit } else { price.is_some_and(|p| !p.is_free()) };
            let limit = limit.filter(|limit| dear(*limit))?;
            let (used, limit) = (dollars(used), dollars(limit));
            Some(format!("{who} has cost {used}, and {limit} is allowed ({name}). {then}"))
        };
        let raise = "Raise it in your settings and restart the kernel, which also counts from nothing again.";
        let go_on = "Ask again to go on, or raise it in your settings.";
        tokens(now.tokens(), limits.turn_tokens, "This turn", "budget.turn_tokens", go_on)
            .or_else(|| money(now.cost, limits.turn_cost, "This turn", "budget.turn_cost", go_on))
            .or_else(|| tokens(all.tokens(), limits.tokens, "This kernel", "budget.tokens", raise))
            .or_else(|| money(all.cost, limits.cost, "This kernel", "budget.cost", raise))
            .or_else(|| {
                let limit = limits.steps.filter(|limit| all.replies >= *limit)?;
                let (used, limit) = (thousands(all.replies), thousands(limit));
                Some(format!(
                    "This kernel has had {used} replies of the model, and {limit} are allowed (budget.steps). {raise}"
                ))
            })
    }

    /// Charges a reply to its turn and to the kernel. `written` are the bytes of its text and calls, from which its
    /// tokens are estimated when the server did not count them.
    ///
    /// What it returns is to be said to the user: that a budget can't be kept for this model. It is said once.
    #[must_use]
    pub fn charge(&self, turn: &mut TurnCost, model: &str, usage: &Usage, written: usize) -> Option<String> {
        let price = self.catalog.price(model);
        let reply = Tally::of(usage, written, price);
        turn.add(model, usage, &reply);
        let mut spent = self.spent();
        match spent.models.iter_mut().find(|(name, _)| name == model) {
            Some((_, tally)) => tally.add(&reply),
            None => spent.models.push((model.to_owned(), reply.clone())),
        }
        let limits = &self.limits;
        if reply.unpriced > 0 && (limits.cost.is_some() || limits.turn_cost.is_some()) && !spent.said[0] {
            spent.said[0] = true;
            return Some(format!(
                "The price of {model} is not known, so budget.cost and budget.turn_cost can't be kept for it. Prices \
                 of your own belong in prices.toml beside your settings (docs/asking.md)."
            ));
        }
        if reply.estimated > 0 && (limits.tokens.is_some() || limits.turn_tokens.is_some()) && !spent.said[1]
        {
            spent.said[1] = true;
            return Some(format!(
                "{model} did not say how many tokens that took, so budget.tokens and budget.turn_tokens count an \
                 estimate of what it wrote, and nothing of what it read."
            ));
        }
        None
    }

    /// A reply of that model came out of a recording: it is counted, and charged to nobody.
    pub fn add_recorded(&self, turn: &mut TurnCost, model: &str, usage: &Usage) {
        turn.add_recorded(model);
        self.spent().recorded.add(&Tally::of(usage, 0, None));
    }

    /// The replies out of a recording, with what they took when they were recorded.
    pub fn recorded(&self) -> Tally {
        self.spent().recorded.clone()
    }

    /// What was spent, model by model, in the order of their first reply.
    pub fn by_model(&self) -> Vec<(String, Tally)> {
        self.spent().models.clone()
    }

    /// What was spent by all models.
    pub fn total(&self) -> Tally {
        Tally::sum(self.spent().models.iter().map(|(_, tally)| tally))
    }

    /// The budgets.
    pub fn limits(&self) -> &BudgetSettings {
        &self.limits
    }

    /// What is known of models.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}

#[cfg(test)]
mod tests;
