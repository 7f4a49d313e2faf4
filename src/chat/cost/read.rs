//! A file of prices, ours (`prices.toml`) or the user's, to what it says. Total: what is wrong is left out and told.
//!
//! Imports nothing of ours but the table of providers.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::catalog::{Price, Rates, Sheet};
use crate::chat::error::nearest;
use crate::chat::provider::PROVIDERS;

/// The section about pictures.
const PICTURES: &str = "pictures";
/// More than any model costs; what is above is a mistake in the unit.
const DEAREST: f64 = 100_000.0;

/// What comes with the program.
pub(super) fn builtin() -> Sheet {
    sheet(include_str!("prices.toml")).0
}

/// A line and what is wrong there.
pub(super) type Mistake = (usize, String);

/// Reads a file's text.
pub(super) fn sheet(text: &str) -> (Sheet, Vec<Mistake>) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader { text, sheet: Sheet::default(), mistakes: Vec::new() };
    for error in &errors {
        let at = error.span().map_or(0, |span| span.start);
        reader.wrong(at, &format!("this line is not valid TOML: {}", error.message()));
    }
    for (name, value) in document.get_ref() {
        reader.section(name.get_ref(), name.span().start, value.get_ref());
    }
    reader.mistakes.sort();
    (reader.sheet, reader.mistakes)
}

struct Reader<'a> {
    text: &'a str,
    sheet: Sheet,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    fn wrong(&mut self, at: usize, why: &str) {
        let line = 1 + self.text.bytes().take(at).filter(|byte| *byte == b'\n').count();
        self.mistakes.push((line, crate::config::plain(why)));
    }

    fn section(&mut self, name: &str, at: usize, value: &DeValue<'_>) {
        let DeValue::Table(table) = value else {
            let why = format!("{name}: a section is expected, as [openai] or [{PICTURES}]");
            return self.wrong(at, &why);
        };
        if name == PICTURES {
            return self.pictures(table);
        }
        if !PROVIDERS.iter().any(|provider| provider.name == name) {
            let mut names: Vec<String> = PROVIDERS.iter().map(|provider| provider.name.to_owned()).collect();
            names.push(PICTURES.to_owned());
            let near = nearest(name, &names);
            let near = if near.is_empty() { names } else { near.into_iter().map(Into::into).collect() };
            return self.wrong(at, &format!("there is no provider [{name}]; there is {}", near.join(", ")));
        }
        for (model, value) in table {
            match price(name, model.get_ref(), value) {
                Ok(read) => {
                    self.sheet.prices.push((name.to_owned(), model.get_ref().to_ascii_lowercase(), read));
                }
                Err((at, why)) => self.wrong(at, &why),
            }
        }
    }

    fn pictures(&mut self, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if !matches!(name, "sees" | "blind") {
                let why = format!("{PICTURES}: there is no key {name}; the keys are sees and blind");
                self.wrong(key.span().start, &why);
                continue;
            }
            let DeValue::Array(list) = value.get_ref() else {
                let why =
                    format!("{PICTURES}.{name} takes a list of names, as [\"openai/gpt-5*\", \"llava*\"]");
                self.wrong(value.span().start, &why);
                continue;
            };
            for item in list {
                match item.get_ref() {
                    DeValue::String(pattern) if !pattern.is_empty() => {
                        let pattern = pattern.to_ascii_lowercase();
                        if name == "sees" {
                            self.sheet.see.push(pattern);
                        } else {
                            self.sheet.blind.push(pattern);
                        }
                    }
                    _ => {
                        let why = format!("{PICTURES}.{name} holds names in quotes, and this is none");
                        self.wrong(item.span().start, &why);
                    }
                }
            }
        }
    }
}

/// One model's price. The error is where it is wrong, and why.
fn price(provider: &str, model: &str, value: &Spanned<DeValue<'_>>) -> Result<Price, (usize, String)> {
    let at = value.span().start;
    let whole = format!("{provider}.\"{model}\"");
    let DeValue::Table(fields) = value.get_ref() else {
        let why = format!("{whole} needs a table, as {{ input = 1.25, cached = 0.125, output = 10 }}");
        return Err((at, why));
    };
    let mut numbers = [None; NAMES.len()];
    for (key, value) in fields {
        let name = key.get_ref().as_ref();
        let Some(index) = NAMES.iter().position(|known| *known == name) else {
            let why = format!("{whole}: there is no key {name}; the keys are {}", NAMES.join(", "));
            return Err((key.span().start, why));
        };
        let most = if name == ABOVE { 1e9 } else { DEAREST };
        let Some(number) = number(value.get_ref()).filter(|number| (0.0..=most).contains(number)) else {
            let unit = if name == ABOVE { "tokens" } else { "US dollars for a million tokens" };
            let why = format!("{whole}: {name} takes a number from 0 to {most}, in {unit}");
            return Err((value.span().start, why));
        };
        numbers[index] = Some(number);
    }
    let [input, cached, output, above, input_above, cached_above, output_above] = numbers;
    let rates = |input: Option<f64>, cached: Option<f64>, output: Option<f64>, names: &str| {
        let (Some(input), Some(output)) = (input, output) else {
            return Err((at, format!("{whole} needs {names}")));
        };
        Ok(Rates { input, cached: cached.unwrap_or(input), output })
    };
    let usual = rates(input, cached, output, "input and output")?;
    let above = match above {
        Some(tokens) => {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "its range is checked"
            )]
            let tokens = tokens as u64;
            Some((tokens, rates(input_above, cached_above, output_above, "input_above and output_above")?))
        }
        None if [input_above, cached_above, output_above].iter().any(Option::is_some) => {
            return Err((
                at,
                format!("{whole} needs {ABOVE}: from how many tokens on the other prices count"),
            ));
        }
        None => None,
    };
    Ok(Price { usual, above })
}

const ABOVE: &str = "above";
/// The keys of a price, in the order in which they are taken apart.
const NAMES: [&str; 7] = ["input", "cached", "output", ABOVE, "input_above", "cached_above", "output_above"];

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_file_is_without_a_mistake() {
        let (sheet, mistakes) = sheet(include_str!("prices.toml"));
        assert_eq!(mistakes, []);
        assert!(sheet.prices.len() > 60 && !sheet.see.is_empty() && !sheet.blind.is_empty());
        for (at, (provider, model, _)) in sheet.prices.iter().enumerate() {
            let again = |(p, m, _): &(String, String, Price)| p == provider && m == model;
            assert!(!sheet.prices[at + 1..].iter().any(again), "{provider}/{model} is there twice");
        }
    }

    #[test]
    fn a_mistake_names_its_line_and_its_key_and_costs_only_itself() {
        let text = "[openai]\n\"gpt-x\" = { input = 1, output = 2 }\n\"gpt-y\" = { input = 1 }\n\
                    \"gpt-z\" = { input = -1, output = 2 }\n\"gpt-w\" = { inptu = 1, output = 2 }\ngpt-v = 3\n\
                    [opnai]\n[pictures]\nsees = \"x\"\nblind = [1, \"b*\"]\nlooks = []\n\
                    [xai]\na = { input = 1, output = 1, input_above = 2 }\nb = { input = nan, output = 1 }\n";
        let (sheet, mistakes) = sheet(text);
        assert_eq!(sheet.prices.len(), 1, "{:?}", sheet.prices);
        assert_eq!(sheet.blind, ["b*"]);
        let said: Vec<String> = mistakes.iter().map(|(line, why)| format!("{line}: {why}")).collect();
        for (line, part) in [
            (3, "openai.\"gpt-y\" needs input and output"),
            (4, "openai.\"gpt-z\": input takes a number from 0"),
            (5, "openai.\"gpt-w\": there is no key inptu"),
            (6, "openai.\"gpt-v\" needs a table"),
            (7, "there is no provider [opnai]; there is openai"),
            (9, "pictures.sees takes a list"),
            (10, "pictures.blind holds names"),
            (11, "there is no key looks"),
            (13, "xai.\"a\" needs above"),
            (14, "xai.\"b\": input takes a number"),
        ] {
            assert!(
                said.iter().any(|one| one.starts_with(&format!("{line}: ")) && one.contains(part)),
                "{part} not in {said:#?}"
            );
        }
        assert_eq!(said.len(), 10, "{said:#?}");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in ".{0,200}|[a-z\\[\\]{}.=\"'#\n 0-9]{0,200}") {
            sheet(&text);
        }
    }
}
