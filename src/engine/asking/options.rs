//! How a question differs from the settings: what stands behind `%%chat`, on top of `%system` and `%temperature`.

use crate::cell::ChatLine;
use crate::chat::Options;
use crate::config::{Environment, Key, Value};
use crate::engine::confirm::visible;
use crate::event::Failure;

/// Puts what stands behind `%%chat` on top of what holds for all questions. `longest` is the user's own limit on a
/// reply's tokens, which a notebook may only lower.
///
/// # Errors
/// Names the line, what was written and what would be right.
pub(super) fn of(
    line: Option<&ChatLine>,
    standing: Options,
    longest: Option<u64>,
) -> Result<Options, Failure> {
    let mut options = standing;
    let Some(line) = line else { return Ok(options) };
    for (name, written) in &line.attributes {
        let wrong = |why: &str| {
            let text = format!("line {}: {name}={written}: {why}", line.line);
            Failure::new("CellError", text)
        };
        match (*name, value(name, written).map_err(|why| wrong(&why))?) {
            ("model", Value::Text(model)) => options.model = Some(model),
            ("system", Value::Text(system)) => options.system = Some(system),
            ("temperature", Value::Number(temperature)) => options.temperature = Some(temperature),
            ("max_tokens", Value::Count(tokens)) => {
                if let Some(longest) = longest.filter(|longest| tokens > *longest) {
                    return Err(wrong(&format!("the settings allow at most {longest} (model.max_tokens)")));
                }
                options.max_tokens = Some(tokens);
            }
            _ => {}
        }
    }
    Ok(options)
}

/// What is said of options that stand behind the question.
pub(super) fn late(line: &ChatLine) -> Option<String> {
    let late = line.late.join(" ");
    (!late.is_empty()).then(|| {
        let late = visible(&late);
        format!("`{late}` stands behind the question and was read as a part of it; options come first: `%%chat {late} ...`")
    })
}

/// A value in the units of the setting of that name; the error says what it takes.
pub(in crate::engine) fn value(name: &str, written: &str) -> Result<Value, String> {
    let key = Key::find("model", if name == "model" { "name" } else { name });
    let key = key.ok_or_else(|| "there is no such setting".to_owned())?;
    key.kind.parse(written, &Environment::default())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn line(attributes: &[(&'static str, &str)]) -> ChatLine {
        let attributes = attributes.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        ChatLine { line: 2, attributes, late: Vec::new() }
    }

    #[test]
    fn a_cell_goes_before_what_holds_for_all() {
        let standing =
            Options { temperature: Some(1.0), system: Some("Be brief.".into()), ..Options::default() };
        assert_eq!(of(None, standing.clone(), None).unwrap(), standing);
        let cell = line(&[("temperature", "0"), ("model", "openai/gpt-5"), ("max_tokens", "100")]);
        let options = of(Some(&cell), standing, Some(100)).unwrap();
        assert_eq!(options.temperature, Some(0.0));
        assert_eq!(options.system.as_deref(), Some("Be brief."));
        assert_eq!((options.model.as_deref(), options.max_tokens), (Some("openai/gpt-5"), Some(100)));
    }

    #[test]
    fn a_wrong_value_names_its_line_and_what_would_be_right() {
        for (name, value, said) in [
            ("temperature", "hot", "line 2: temperature=hot: it takes a number from 0 to 2"),
            ("temperature", "2.5", "line 2: temperature=2.5: "),
            ("temperature", "nan", "line 2: temperature=nan: "),
            ("max_tokens", "0", "line 2: max_tokens=0: it takes a whole number"),
            (
                "max_tokens",
                "500",
                "line 2: max_tokens=500: the settings allow at most 100 (model.max_tokens)",
            ),
            ("system", "", "line 2: system=: it is empty"),
            ("model", "", "line 2: model=: it is empty"),
        ] {
            let error = of(Some(&line(&[(name, value)])), Options::default(), Some(100)).unwrap_err();
            assert!(error.evalue.starts_with(said), "{}", error.evalue);
        }
    }
}
