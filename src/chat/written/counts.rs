//! Whether what looks like a call in a reply's text is one, and what a model merely quotes.
//!
//! Imports `model`. A file that the model was shown can hold a call, or a fence marked `run`; a model that repeats it
//! does not want it run.

use serde::{Deserialize, Serialize};

use crate::chat::model::{Endpoint, Message, Understands};
use crate::chat::provider::{LOCAL, Wire};

/// Which calls written as text count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Counts {
    /// None: the model calls tools as the protocol has it.
    #[default]
    Never,
    /// A reply that is nothing but calls: of a server of the user's own, which may not know how its model calls.
    Whole,
    /// Tagged ones among other text, too, and fences marked `run`: the model has no other way, or is a small one.
    Tagged,
}

impl Counts {
    /// Those of a model that was asked there.
    pub(crate) fn of(endpoint: &Endpoint, understands: Understands) -> Counts {
        let provider = endpoint.provider;
        let own = endpoint.base_url.as_deref().is_some_and(|url| url != provider.base_url);
        if understands.calls {
            Counts::Never
        } else if provider.name == LOCAL || provider.wire == Wire::Ollama || !understands.tools {
            Counts::Tagged
        } else if own || !provider.needs_key {
            Counts::Whole
        } else {
            Counts::Never
        }
    }
}

/// What a model was told in a dialogue by others, to tell what it quotes from it: without white space and
/// backslashes, which quoting changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told(String);

impl Told {
    /// The words of the user with what goes with them, and the results of calls.
    pub(crate) fn of(messages: &[Message]) -> Told {
        let mut told = String::new();
        for message in messages {
            match message {
                Message::User { text, .. } => add(&mut told, text),
                Message::Results(results) => results.iter().for_each(|result| add(&mut told, &result.text)),
                Message::Assistant { .. } => {}
            }
        }
        Told(told)
    }

    /// Whether a call, written like this and with this code, stands in it.
    pub(super) fn has_call(&self, written: &str, code: Option<String>) -> bool {
        let object = written.find('{').map(|at| bare(&written[at..]));
        let code = code.map(|code| bare(&format!("\"code\":{}", serde_json::Value::from(code))));
        object.into_iter().chain(code).any(|quoted| self.0.contains(&quoted))
    }

    /// Whether a fence marked `run` with this code stands in it.
    pub fn has_fence(&self, code: &str) -> bool {
        let code = bare(code);
        ["```", "~~~"].iter().any(|end| {
            let quoted = format!("{code}{end}");
            self.0.match_indices(&quoted).any(|(at, _)| {
                let before = &self.0[..at];
                let began = before.rfind("```").max(before.rfind("~~~"));
                began.is_some_and(|began| before[began..].contains("run"))
            })
        })
    }
}

fn add(told: &mut String, text: &str) {
    told.extend(text.chars().filter(|c| !c.is_whitespace() && *c != '\\'));
    // Two texts are not one.
    told.push('\n');
}

fn bare(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && *c != '\\').collect()
}
