//! What a fence's attributes ask for: a container, limits, packages, input.
//!
//! Unknown attributes belong to other tools and are passed over; a wrong value is an error that names the line.
//! To add an attribute: an arm in [`read`], and a row in `docs/magics.md`.

use crate::cell::Block;
use crate::config::{Environment, Key, Value, nearest};
use crate::sandbox::packages::{Manager, Packages};
use crate::sandbox::{Run, Tighter};

/// What a fence asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Wishes {
    /// The container that it must run in.
    pub(super) container: Option<String>,
    /// A container of its own.
    pub(super) ephemeral: bool,
    /// Limits tighter than the container's.
    pub(super) tighter: Tighter,
    /// Packages that it needs.
    pub(super) packages: Packages,
    /// What it reads from its standard input.
    pub(super) stdin: Option<String>,
    /// The user is shown the code and asked before it runs.
    pub(super) confirm: bool,
    /// The model is to comment the outcome.
    pub(super) explain: bool,
    /// Attributes that mean nothing here.
    pub(super) unknown: Vec<String>,
}

impl Wishes {
    /// Puts the wishes into a run.
    pub(super) fn apply(self, run: Run) -> Run {
        Run {
            container: self.container,
            ephemeral: self.ephemeral,
            tighter: self.tighter,
            packages: self.packages,
            stdin: self.stdin,
            ..run
        }
    }
}

/// Reads a block's attributes; the last of a name counts.
///
/// # Errors
/// Names the line and the attribute, and what it takes.
pub(super) fn read(block: &Block) -> Result<Wishes, String> {
    let mut wishes = Wishes::default();
    for (name, value) in &block.attributes {
        let value = value.as_deref();
        let wrong = |why: &str| {
            let written = value.map_or_else(|| name.clone(), |value| format!("{name}={value}"));
            // The fence, or the cell magic, is the line above the code.
            format!("line {}: {written}: {why}", block.line.saturating_sub(1).max(1))
        };
        let setting = || limit(name, value).map_err(|why| wrong(&why));
        let flag = || match value {
            None | Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(_) => Err(wrong("it stands alone, or takes `true` or `false`")),
        };
        let text = |example: &str| match value {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(wrong(&format!("it needs a value, as {example}"))),
        };
        match name.as_str() {
            "container" => wishes.container = Some(text("container=python")?.to_owned()),
            "ephemeral" => wishes.ephemeral = flag()?,
            "confirm" => wishes.confirm = flag()?,
            "explain" => wishes.explain = flag()?,
            "timeout" => wishes.tighter.timeout = of_time(&setting()?),
            "output" => wishes.tighter.output = of_count(&setting()?),
            "memory" => wishes.tighter.memory = of_count(&setting()?),
            "cpus" => wishes.tighter.cpus = of_number(&setting()?),
            "pids" => wishes.tighter.pids = of_count(&setting()?).and_then(|pids| pids.try_into().ok()),
            "packages" => {
                let manager = manager_for(&block.language);
                for package in
                    text("packages=httpx,rich")?.split(',').map(str::trim).filter(|p| !p.is_empty())
                {
                    wishes.packages.add(manager, package).map_err(|e| wrong(&e.to_string()))?;
                }
            }
            "stdin" => {
                let value = value.ok_or_else(|| wrong("it needs a value, as stdin=\"text\""))?;
                wishes.stdin = Some(unescaped(value));
            }
            // These are the parser's.
            "run" | "norun" => {}
            _ => wishes.unknown.push(match value {
                Some(value) => format!("{name}={value}"),
                None => name.clone(),
            }),
        }
    }
    Ok(wishes)
}

/// What the block could have meant by attributes that mean nothing, a sentence each.
pub(super) fn near_misses(unknown: &[String]) -> Vec<String> {
    const NAMES: [&str; 11] = [
        "container",
        "ephemeral",
        "confirm",
        "explain",
        "timeout",
        "output",
        "memory",
        "cpus",
        "pids",
        "packages",
        "stdin",
    ];
    let near = |written: &String| {
        let (name, value) = written.split_once('=').unwrap_or((written, ""));
        let plain = name.chars().all(|c| c.is_ascii_alphabetic())
            && name.len() > 2
            && (!value.is_empty() || name.len() > 6);
        let meant = nearest(&name.to_ascii_lowercase(), NAMES).filter(|_| plain)?;
        Some(format!("`{name}` is no attribute of a fence and was passed over; did you mean `{meant}`?"))
    };
    unknown.iter().filter_map(near).take(3).collect()
}

/// What installs the packages that a block in this language names.
fn manager_for(language: &str) -> Manager {
    match language {
        "python" => Manager::Pip,
        "javascript" | "typescript" => Manager::Npm,
        _ => Manager::Apt,
    }
}

/// A limit in the units of the setting of that name.
fn limit(name: &str, value: Option<&str>) -> Result<Value, String> {
    let Some(key) = Key::find("sandbox", name) else { return Err("there is no such limit".to_owned()) };
    let Some(value) = value else { return Err(format!("it needs a value: {}", key.kind.accepts())) };
    key.kind.parse(value, &Environment::default())
}

fn of_count(value: &Value) -> Option<u64> {
    if let Value::Count(count) = value { Some(*count) } else { None }
}

fn of_number(value: &Value) -> Option<f64> {
    if let Value::Number(number) = value { Some(*number) } else { None }
}

fn of_time(value: &Value) -> Option<std::time::Duration> {
    if let Value::Time(time) = value { Some(*time) } else { None }
}

/// A fence is one line: `\n`, `\t` and `\\` stand for what they stand for elsewhere.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match if c == '\\' { letters.next() } else { None } {
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some('\\') => plain.push('\\'),
            Some(other) => plain.extend([c, other]),
            None => plain.push(c),
        }
    }
    plain
}

/// Which of these phrases a text has, whole words and whatever the case: where the first one begins.
pub(super) fn mentions<'a>(text: &str, phrases: impl IntoIterator<Item = &'a str>) -> Option<usize> {
    phrases.into_iter().filter_map(|phrase| mention(text, phrase)).min()
}

fn mention(text: &str, phrase: &str) -> Option<usize> {
    let text = spaced(text);
    let phrase = spaced(phrase);
    if phrase.is_empty() {
        return None;
    }
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(&phrase).map(|(at, _)| at).find(|at| {
        let before = text.get(..*at).and_then(|before| before.chars().next_back());
        let after = text.get(at + phrase.len()..).and_then(|after| after.chars().next());
        !is_word(before) && !is_word(after)
    })
}

/// In lower case, with one space between words.
fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use std::time::Duration;

    use super::*;

    fn block(attributes: &[(&str, Option<&str>)]) -> Block {
        Block {
            language: "python".to_owned(),
            source: String::new(),
            line: 4,
            attributes: attributes.iter().map(|(k, v)| ((*k).to_owned(), v.map(str::to_owned))).collect(),
        }
    }

    #[test]
    fn every_attribute_is_read_in_its_units_and_others_are_passed_over() {
        let wishes = read(&block(&[
            ("container", Some("science")),
            ("ephemeral", None),
            ("timeout", Some("10")),
            ("output", Some("1m")),
            ("memory", Some("64m")),
            ("cpus", Some("0.5")),
            ("pids", Some("32")),
            ("packages", Some("httpx, rich==13.0")),
            ("stdin", Some("a\\nb\\\\")),
            ("confirm", Some("false")),
            ("explain", None),
            ("title", Some("mine")),
            (".wide", None),
        ]))
        .unwrap();
        let tighter = Tighter {
            timeout: Some(Duration::from_secs(10)),
            output: Some(1 << 20),
            memory: Some(64 << 20),
            cpus: Some(0.5),
            pids: Some(32),
        };
        assert_eq!(wishes.tighter, tighter);
        assert_eq!(wishes.container.as_deref(), Some("science"));
        assert_eq!(wishes.packages.to_string(), "httpx, rich==13.0");
        assert_eq!(wishes.stdin.as_deref(), Some("a\nb\\"));
        assert!(wishes.ephemeral && wishes.explain && !wishes.confirm);
    }

    #[test]
    fn a_wrong_value_is_an_error_with_its_line_and_what_would_be_right() {
        for (name, value, said) in [
            ("timeout", Some("soon"), "line 3: timeout=soon: it takes a time"),
            ("timeout", None, "line 3: timeout: it needs a value"),
            ("timeout", Some("-1"), "line 3: timeout=-1"),
            ("memory", Some("lots"), "line 3: memory=lots: it takes a size"),
            ("cpus", Some("nan"), "line 3: cpus=nan"),
            ("pids", Some("1"), "line 3: pids=1"),
            ("container", None, "line 3: container: it needs a value"),
            ("ephemeral", Some("maybe"), "line 3: ephemeral=maybe"),
            ("packages", Some("--index-url=x"), "line 3: packages=--index-url=x: "),
            ("packages", Some("https://evil/x.whl"), "line 3: packages=https"),
            ("stdin", None, "line 3: stdin: it needs a value"),
        ] {
            let error = read(&block(&[(name, value)])).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
    }

    #[test]
    fn what_nearly_is_an_attribute_is_told_and_what_belongs_to_others_is_not() {
        let said = |written: &str| near_misses(&[written.to_owned()]).concat();
        assert!(said("timout=10").contains("`timeout`") && said("ephemral").contains("`ephemeral`"));
        for other in ["title=mine", ".wide", "linenums=1", "hl_lines=2", "echo=false", "name=x", "id=1"] {
            assert_eq!(said(other), "", "{other}");
        }
    }

    #[test]
    fn triggers_are_whole_phrases_whatever_their_case_and_spaces() {
        for (text, phrase, found) in [
            ("Please Run  Python\nnow", "run python", true),
            ("run pythonic code", "run python", false),
            ("prerun python", "run python", false),
            ("(run python)", "run python", true),
            ("überrun python run python", "run python", true),
            ("anything", "", false),
        ] {
            assert_eq!(mentions(text, [phrase]).is_some(), found, "{text:?} {phrase:?}");
        }
    }
}
