//! What is known of models: what they cost, and which of them see pictures.
//!
//! Imports nothing of ours but the table of providers. A model's name is understood by degrees: as it is written, without
//! a date or version at its end, then by the longest pattern that fits. A model that is merely similar to a known one has
//! no price, for a wrong price is worse than none.

use super::read;

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Tokens read.
    pub input: f64,
    /// Tokens read that the server had in a cache.
    pub cached: f64,
    /// Tokens written, reasoning included.
    pub output: f64,
}

/// What a model costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// For prompts of usual length.
    pub usual: Rates,
    /// From so many tokens of a prompt on, others.
    pub above: Option<(u64, Rates)>,
}

impl Price {
    /// What so many tokens cost; `cached` are among `input`.
    #[allow(clippy::cast_precision_loss, reason = "two digits are shown")]
    pub fn of(&self, input: u64, cached: u64, output: u64) -> f64 {
        let rates = match self.above {
            Some((above, rates)) if input > above => rates,
            _ => self.usual,
        };
        let fresh = input.saturating_sub(cached);
        (fresh as f64 * rates.input + cached as f64 * rates.cached + output as f64 * rates.output) / 1e6
    }

    /// Whether it costs nothing.
    pub fn is_free(&self) -> bool {
        let free = |rates: &Rates| rates.input <= 0.0 && rates.cached <= 0.0 && rates.output <= 0.0;
        free(&self.usual) && self.above.as_ref().is_none_or(|(_, rates)| free(rates))
    }
}

/// One source of knowledge, ours or the user's.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Sheet {
    /// Provider, model or pattern, price.
    pub(super) prices: Vec<(String, String, Price)>,
    /// Patterns of models that see.
    pub(super) see: Vec<String>,
    /// Patterns of models that don't, although one of the others fits.
    pub(super) blind: Vec<String>,
}

/// What is known of models.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    /// What counts more comes first.
    sheets: Vec<Sheet>,
}

impl Default for Catalog {
    fn default() -> Self {
        Catalog { sheets: vec![read::builtin()] }
    }
}

impl Catalog {
    /// Adds the user's own file, whose word counts more than ours. `file` is how the file is called in what is wrong with
    /// it; what is wrong is left out of the catalog.
    pub fn extended(mut self, text: &str, file: &str) -> (Self, Vec<String>) {
        let (sheet, mistakes) = read::sheet(text);
        self.sheets.insert(0, sheet);
        (self, mistakes.into_iter().map(|(line, why)| format!("{file}:{line}: {why}")).collect())
    }

    /// The price of a model, by its full name (`provider/model`).
    pub fn price(&self, model: &str) -> Option<Price> {
        let (provider, name) = model.split_once('/')?;
        let name = name.to_ascii_lowercase();
        self.sheets.iter().find_map(|sheet| {
            let mine: Vec<_> = sheet.prices.iter().filter(|(by, ..)| by == provider).collect();
            let exact =
                |name: &str| mine.iter().find(|(_, known, _)| known == name).map(|(.., price)| *price);
            let fitting = mine.iter().filter(|(_, known, _)| known.contains('*') && fits(known, &name));
            exact(&name)
                .or_else(|| exact(undated(&name)))
                .or_else(|| fitting.max_by_key(|(_, known, _)| known.len()).map(|(.., price)| *price))
        })
    }

    /// Whether a model sees pictures, by its full name. One that is not known does not.
    pub fn sees(&self, model: &str) -> bool {
        let model = model.to_ascii_lowercase();
        let last = model.rsplit('/').next().unwrap_or(&model);
        let any = |patterns: &[String]| patterns.iter().any(|one| fits(one, &model) || fits(one, last));
        self.sheets
            .iter()
            .find_map(|sheet| match (any(&sheet.blind), any(&sheet.see)) {
                (true, _) => Some(false),
                (false, true) => Some(true),
                (false, false) => None,
            })
            .unwrap_or(false)
    }
}

/// A name without the date or version at its end: `-2025-08-07`, `-20250514`, `-001`, `-latest`.
fn undated(name: &str) -> &str {
    let digits = |text: &str, most: std::ops::RangeInclusive<usize>| {
        most.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    let Some((rest, last)) = name.rsplit_once('-') else { return name };
    if last == "latest" || digits(last, 3..=3) || digits(last, 8..=8) {
        return rest;
    }
    if digits(last, 2..=2)
        && let Some((rest, month)) = rest.rsplit_once('-')
        && let Some((rest, year)) = rest.rsplit_once('-')
        && digits(month, 2..=2)
        && digits(year, 4..=4)
    {
        return rest;
    }
    name
}

/// Whether a pattern fits the whole text; `*` is any text.
pub(super) fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, mut rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    while let Some((middle, after)) = rest.split_once('*') {
        let Some(at) = text.find(middle) else { return false };
        text = text.get(at + middle.len()..).unwrap_or_default();
        rest = after;
    }
    text.ends_with(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, text, fit) in [
            ("gpt-5", "gpt-5", true),
            ("gpt-5", "gpt-5-mini", false),
            ("gpt-5*", "gpt-5-mini", true),
            ("*", "", true),
            ("*vl*", "qwen2.5vl:7b", true),
            ("qwen*-vl*", "qwen3-vl-30b", true),
            ("a*b*c", "abbc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
        }
    }

    #[test]
    fn dates_and_versions_at_the_end_do_not_matter() {
        for (name, rest) in [
            ("gpt-5-2025-08-07", "gpt-5"),
            ("claude-sonnet-4-20250514", "claude-sonnet-4"),
            ("gemini-2.0-flash-001", "gemini-2.0-flash"),
            ("mistral-small-latest", "mistral-small"),
            ("claude-sonnet-4-6", "claude-sonnet-4-6"),
            ("gpt-5", "gpt-5"),
            ("x-08-07", "x-08-07"),
        ] {
            assert_eq!(undated(name), rest);
        }
    }
}
