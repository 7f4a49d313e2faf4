//! Costs in words: the line under a turn, numbers for people.
//!
//! May import `event`.

use super::tally::TurnCost;
use crate::event::words::thousands;

/// `model · 1,234 in (1,000 cached) · 56 out · $0.0012 · first token 0.4 s · 31 tok/s`; what is not known is left
/// out.
pub(super) fn footer(turn: &TurnCost) -> String {
    let total = turn.total();
    let mut parts = vec![turn.models().collect::<Vec<_>>().join(", ")];
    let replies = total.replies + turn.recorded();
    if replies > 1 {
        parts.push(format!("{} replies", thousands(replies)));
    }
    match turn.recorded() {
        0 => {}
        recorded if recorded == replies => parts.push("recorded".to_owned()),
        recorded => parts.push(format!("{} recorded", thousands(recorded))),
    }
    if total.input > 0 {
        let cached =
            if total.cached > 0 { format!(" ({} cached)", thousands(total.cached)) } else { String::new() };
        parts.push(format!("{} in{cached}", thousands(total.input)));
    }
    if total.output > 0 {
        let about = if total.estimated > 0 { "about " } else { "" };
        let thought = if total.reasoning > 0 {
            format!(" ({} reasoning)", thousands(total.reasoning))
        } else {
            String::new()
        };
        parts.push(format!("{about}{} out{thought}", thousands(total.output)));
    }
    if total.unpriced == 0 && total.cost > 0.0 {
        parts.push(dollars(total.cost));
    }
    if let Some(first) = turn.first_token() {
        parts.push(format!("first token {:.1} s", first.as_secs_f64()));
    }
    if let Some(speed) = turn.speed() {
        parts.push(if speed < 10.0 { format!("{speed:.1} tok/s") } else { format!("{speed:.0} tok/s") });
    }
    parts.join(" · ")
}

/// An amount in US dollars, with as many digits as tell something.
pub fn dollars(amount: f64) -> String {
    match amount {
        0.0 => "$0".to_owned(),
        amount if amount < 0.0001 => "under $0.0001".to_owned(),
        amount if amount < 0.1 => format!("${amount:.4}"),
        amount => format!("${amount:.2}"),
    }
}
