//! Sums of tokens, money and time.
//!
//! Imports `event`.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::catalog::Price;
use super::words;
use crate::event::Usage;

/// What some replies took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tally {
    /// Replies.
    pub replies: u64,
    /// Tokens read by the models, as far as servers said.
    pub input: u64,
    /// Of them, tokens that servers had in a cache.
    pub cached: u64,
    /// Tokens written by the models; estimated where servers did not say.
    pub output: u64,
    /// Of them, tokens of reasoning.
    pub reasoning: u64,
    /// US dollars, as far as prices are known.
    pub cost: f64,
    /// Replies whose price is not known.
    pub unpriced: u64,
    /// Replies whose tokens are estimated, for their servers did not count them.
    pub estimated: u64,
}

/// Bytes of text to a token, roughly.
const BYTES: usize = 4;

impl Tally {
    /// One reply.
    pub(super) fn of(usage: &Usage, written: usize, price: Option<Price>) -> Self {
        let input = usage.input_tokens.unwrap_or_default();
        let cached = usage.cached_tokens.unwrap_or_default().min(input);
        let guess = u64::try_from(written.div_ceil(BYTES)).unwrap_or(u64::MAX);
        let output = usage.output_tokens.unwrap_or(guess);
        Tally {
            replies: 1,
            input,
            cached,
            output,
            reasoning: usage.reasoning_tokens.unwrap_or_default().min(output),
            cost: price.map_or(0.0, |price| price.of(input, cached, output)),
            unpriced: u64::from(price.is_none()),
            estimated: u64::from(usage.output_tokens.is_none() || usage.input_tokens.is_none()),
        }
    }

    pub(super) fn add(&mut self, other: &Tally) {
        self.replies += other.replies;
        self.input = self.input.saturating_add(other.input);
        self.cached = self.cached.saturating_add(other.cached);
        self.output = self.output.saturating_add(other.output);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
        self.cost += other.cost;
        self.unpriced += other.unpriced;
        self.estimated += other.estimated;
    }

    pub(super) fn sum<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Self {
        let mut sum = Tally::default();
        tallies.into_iter().for_each(|tally| sum.add(tally));
        sum
    }

    /// Tokens, read and written.
    pub fn tokens(&self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

/// What one turn of the dialogue took, over all its replies.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TurnCost {
    models: Vec<(String, Tally)>,
    /// Replies out of a recording, which cost nothing.
    recorded: u64,
    first_token: Option<Duration>,
    /// From the first token to the last of each reply whose tokens were counted.
    writing: Duration,
    /// Tokens written in that time.
    measured: u64,
}

impl TurnCost {
    pub(super) fn add(&mut self, model: &str, usage: &Usage, reply: &Tally) {
        if self.models.is_empty() {
            self.first_token = usage.first_token;
        }
        if let (Some(output), Some(first)) = (usage.output_tokens, usage.first_token) {
            self.writing += usage.duration.saturating_sub(first);
            self.measured = self.measured.saturating_add(output);
        }
        match self.models.iter_mut().find(|(name, _)| name == model) {
            Some((_, tally)) => tally.add(reply),
            None => self.models.push((model.to_owned(), reply.clone())),
        }
    }

    /// A reply of that model came out of a recording: it took nothing, whatever the recording says.
    pub(super) fn add_recorded(&mut self, model: &str) {
        self.recorded += 1;
        if !self.models().any(|name| name == model) {
            self.models.push((model.to_owned(), Tally::default()));
        }
    }

    /// Replies that came out of a recording.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// The sum over the replies of models, without those out of a recording.
    pub fn total(&self) -> Tally {
        Tally::sum(self.models.iter().map(|(_, tally)| tally))
    }

    /// The models that replied, in order.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.models.iter().map(|(name, _)| name.as_str())
    }

    /// From the first request to its first text.
    pub fn first_token(&self) -> Option<Duration> {
        self.first_token
    }

    /// Tokens a second while it wrote, when it took long enough to say.
    #[allow(clippy::cast_precision_loss, reason = "two digits are shown")]
    pub fn speed(&self) -> Option<f64> {
        let long_enough = self.writing >= Duration::from_millis(50) && self.measured > 1;
        long_enough.then(|| self.measured as f64 / self.writing.as_secs_f64())
    }

    /// One line for the user; `None` when no model replied.
    pub fn footer(&self) -> Option<String> {
        (!self.models.is_empty()).then(|| words::footer(self))
    }

    /// The same for the reply's metadata: what is not known is left out.
    pub fn figures(&self) -> Value {
        let total = self.total();
        let mut figures = Map::new();
        figures.insert("models".into(), json!(self.models().collect::<Vec<_>>()));
        figures.insert("replies".into(), json!(total.replies + self.recorded));
        if self.recorded > 0 {
            figures.insert("recorded".into(), json!(self.recorded));
        }
        figures.insert("input_tokens".into(), json!(total.input));
        figures.insert("cached_tokens".into(), json!(total.cached));
        figures.insert("output_tokens".into(), json!(total.output));
        figures.insert("reasoning_tokens".into(), json!(total.reasoning));
        if total.estimated > 0 {
            figures.insert("estimated".into(), json!(true));
        }
        if total.unpriced == 0 {
            figures.insert("cost_usd".into(), json!(total.cost));
        }
        if let Some(first) = self.first_token {
            figures.insert("first_token_s".into(), json!(first.as_secs_f64()));
        }
        if let Some(speed) = self.speed() {
            figures.insert("tokens_per_s".into(), json!(speed));
        }
        Value::Object(figures)
    }
}
