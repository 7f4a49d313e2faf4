//! One turn: a cell's execution, step by step. Imports nothing of ours but the types of questions and answers.

use serde::{Deserialize, Serialize};

use super::text::shorten;
use crate::chat::turn::{Attachment, Content, Image, Prompt, ToolCall, ToolResult};

/// The most of one block of code that is remembered, in bytes.
const SOURCE: usize = 16_000;
/// The most of one block's outcome that is remembered, in bytes.
const OUTCOME: usize = 6_000;
/// The most of one prompt, attachment, reply, result or cell's source that is remembered, in bytes.
const SAID: usize = 200_000;
/// The most pictures of one block or prompt that are remembered.
const IMAGES: usize = 8;
/// The largest picture that is remembered, in bytes of base64.
const IMAGE: usize = 5 << 20;
/// What a picture counts for against the window, in bytes of text.
const SEEN: usize = 4_000;

/// Where one execution of a cell stands in the dialogue; made by [`Chat::begin`](crate::chat::Chat::begin).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub(super) execution: u64,
    pub(super) cell: Option<String>,
    pub(super) source: String,
    /// Whether nothing of it is kept.
    pub(super) passing: bool,
}

impl Place {
    /// The cell's source.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// A place that is only looked from: nothing is ever recorded there.
    pub(crate) fn looking(cell: Option<&str>) -> Self {
        Place { execution: u64::MAX, cell: cell.map(str::to_owned), source: String::new(), passing: true }
    }
}

/// How an answer came to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    /// In order.
    #[default]
    Whole,
    /// The user interrupted it.
    Interrupted,
    /// It was cut off.
    Cut,
    /// The kernel was lost while it came.
    Lost,
    /// None came: the model could not be asked again after its calls.
    Failed,
}

/// A block of code that ran, and what came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    /// Canonical language name.
    pub language: String,
    /// The code.
    pub source: String,
    /// What it showed, shortened, and its error.
    pub outcome: String,
    /// Whether it failed.
    pub failed: bool,
    /// Pictures that it showed, for models that see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// Something that happened in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// A block of the user's ran.
    Ran(Ran),
    /// The user asked.
    Asked(Prompt),
    /// The model answered.
    Said(Said),
    /// What came of the calls of the answer before, in their order.
    Results(Vec<ToolResult>),
}

/// An answer of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Said {
    /// Its text, without reasoning.
    pub(crate) text: String,
    /// What it called.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) calls: Vec<ToolCall>,
    /// How it ended.
    #[serde(default)]
    pub(crate) end: End,
    /// The tool whose call was forming when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) within: Option<String>,
}

impl Said {
    /// Its text, with what the model is told of its end.
    pub(super) fn marked(&self) -> String {
        let within = self.within.as_ref().map_or_else(String::new, |tool| format!(", in a call of {tool}"));
        match self.end {
            End::Whole => self.text.clone(),
            End::Interrupted => format!("{}\n\n[The user interrupted this reply here{within}.]", self.text),
            End::Cut => format!("{}\n\n[This reply was cut off here{within}.]", self.text),
            End::Lost => format!("{}\n\n[This reply was interrupted here: the kernel ended.]", self.text),
            End::Failed => {
                "[This turn broke off here: asking the model failed, and no answer came.]".to_owned()
            }
        }
    }
}

impl Step {
    /// As it is remembered: nothing in it is unbounded.
    pub(crate) fn bounded(self) -> Self {
        match self {
            Step::Ran(mut ran) => {
                ran.source = shorten(&ran.source, SOURCE);
                ran.outcome = shorten(&ran.outcome, OUTCOME);
                remembered(&mut ran.images);
                Step::Ran(ran)
            }
            Step::Asked(prompt) => Step::Asked(bounded(prompt)),
            Step::Said(mut said) => {
                said.text = shorten(&said.text, SAID);
                said.within = said.within.map(|tool| shorten(&tool, 100));
                for call in said.calls.iter_mut().filter(|call| call.arguments.len() > SAID) {
                    // Half of a JSON text is none; servers refuse a dialogue with such a call.
                    r#"{"left_out":"too long to remember"}"#.clone_into(&mut call.arguments);
                }
                Step::Said(said)
            }
            Step::Results(mut results) => {
                for result in &mut results {
                    result.text = shorten(&result.text, SAID);
                    remembered(&mut result.images);
                }
                Step::Results(results)
            }
        }
    }

    /// With code, outcomes and results of at most `each` bytes, for a model with a short memory.
    pub(super) fn shortened(&self, each: usize) -> Self {
        let mut step = self.clone();
        match &mut step {
            Step::Ran(ran) => {
                ran.source = shorten(&ran.source, each);
                ran.outcome = shorten(&ran.outcome, each);
            }
            Step::Results(results) => {
                for result in results {
                    result.text = shorten(&result.text, each);
                }
            }
            // What was asked and answered is never shortened.
            Step::Asked(_) | Step::Said(_) => {}
        }
        step
    }

    /// How many texts [`Step::shortened`] can shorten.
    pub(super) fn shortenable(&self) -> usize {
        match self {
            Step::Ran(_) => 2,
            Step::Results(results) => results.len(),
            Step::Asked(_) | Step::Said(_) => 0,
        }
    }

    /// What it takes of the model's window, in bytes of text.
    pub(crate) fn size(&self) -> usize {
        match self {
            Step::Ran(ran) => ran.source.len() + ran.outcome.len() + 80 + ran.images.len() * SEEN,
            Step::Asked(prompt) => prompt.text.len() + prompt.attachments.iter().map(seen).sum::<usize>(),
            Step::Said(said) => {
                let calls = said.calls.iter().map(|call| call.name.len() + call.arguments.len() + 40);
                said.text.len() + calls.sum::<usize>()
            }
            Step::Results(results) => {
                results.iter().map(|result| result.text.len() + 40 + result.images.len() * SEEN).sum()
            }
        }
    }

    /// What it takes of memory, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let bytes = |images: &[Image]| images.iter().map(|image| image.base64.len()).sum::<usize>();
        let images: usize = match self {
            Step::Ran(ran) => bytes(&ran.images),
            Step::Asked(prompt) => prompt.attachments.iter().map(weight).sum(),
            Step::Said(_) => 0,
            Step::Results(results) => results.iter().map(|result| bytes(&result.images)).sum(),
        };
        self.size() + images
    }
}

impl Prompt {
    /// How many bytes of its text are remembered and sent at most, when it has more.
    pub(crate) fn cut_to(&self) -> Option<usize> {
        (self.text.len() > SAID).then_some(SAID)
    }
}

/// Leaves the pictures that are remembered.
fn remembered(images: &mut Vec<Image>) {
    images.retain(|image| image.base64.len() <= IMAGE);
    images.truncate(IMAGES);
}

/// A prompt as it is remembered.
fn bounded(mut prompt: Prompt) -> Prompt {
    prompt.text = shorten(&prompt.text, SAID);
    let mut images = 0;
    prompt.attachments.retain_mut(|attachment| match &mut attachment.content {
        Content::Text(text) => {
            *text = shorten(text, SAID);
            true
        }
        Content::Image(image) => {
            images += 1;
            images <= IMAGES && image.base64.len() <= IMAGE
        }
    });
    prompt
}

fn seen(attachment: &Attachment) -> usize {
    let content = match &attachment.content {
        Content::Text(text) => text.len(),
        Content::Image(_) => SEEN,
    };
    attachment.name.len() + content + 20
}

fn weight(attachment: &Attachment) -> usize {
    match &attachment.content {
        Content::Text(_) => 0,
        Content::Image(image) => image.base64.len(),
    }
}

/// What happened in an execution of a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Body {
    /// The cell's text.
    pub(crate) source: String,
    /// What happened, in order.
    pub(crate) steps: Vec<Step>,
}

impl Body {
    /// An execution in which nothing has happened.
    pub(super) fn new(place: &Place) -> Self {
        Body { source: shorten(&place.source, SAID), steps: Vec::new() }
    }

    /// What it takes of the model's window, in bytes of text.
    pub(super) fn size(&self) -> usize {
        self.steps.iter().map(Step::size).sum()
    }

    /// What later requests are told of it: all but questions that got no answer, for what a server refuses once it
    /// refuses again.
    pub(super) fn told(&self) -> impl Iterator<Item = &Step> {
        self.steps
            .iter()
            .enumerate()
            .filter(|(at, step)| {
                let mut after = self.steps.iter().skip(at + 1);
                let answer = |step: &&Step| matches!(step, Step::Said(_) | Step::Asked(_));
                !matches!(step, Step::Asked(_)) || matches!(after.find(answer), Some(Step::Said(_)))
            })
            .map(|(_, step)| step)
    }

    /// What later requests are told of it takes so much of the model's window, in bytes of text.
    pub(super) fn told_size(&self) -> usize {
        self.told().map(Step::size).sum()
    }

    /// What it takes of memory, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.source.len() + self.steps.iter().map(Step::weight).sum::<usize>()
    }

    /// Whether a request with this prompt goes on where the turn is, so that it is not asked once more.
    pub(super) fn goes_on(&self, prompt: &Prompt) -> bool {
        let asked = self.steps.iter().rev().find_map(|step| match step {
            Step::Asked(asked) => Some(asked),
            _ => None,
        });
        let talks = match self.steps.last() {
            Some(Step::Said(said)) => said.calls.is_empty(),
            _ => false,
        };
        // What is remembered may be shorter than what was asked.
        !talks && asked.is_some_and(|asked| *asked == bounded(prompt.clone()))
    }

    /// The first words of it, for a list.
    pub(super) fn label(&self) -> String {
        const MOST: usize = 80;
        let asked = self.steps.iter().find_map(|step| match step {
            Step::Asked(prompt) => Some(prompt.text.as_str()),
            _ => None,
        });
        let ran = self.steps.iter().find_map(|step| match step {
            Step::Ran(ran) => Some(ran.source.as_str()),
            _ => None,
        });
        let text = asked.filter(|text| !text.trim().is_empty()).or(ran).unwrap_or_default();
        let words: String = text.split_whitespace().flat_map(|word| [word, " "]).collect();
        let mut short: String = words.trim_end().chars().take(MOST).collect();
        if words.trim_end().chars().nth(MOST).is_some() {
            short.push('…');
        }
        short
    }

    /// Whether the model has answered.
    pub(super) fn replied(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Said(_)))
    }

    /// Whether the model was asked.
    pub(super) fn asks(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Asked(_)))
    }

    /// Whether an answer in it is only the beginning of one.
    pub(super) fn partial(&self) -> bool {
        let partial = |said: &Said| !matches!(said.end, End::Whole | End::Failed);
        self.steps.iter().any(|step| matches!(step, Step::Said(said) if partial(said)))
    }

    /// Whether it broke off after calls of the model, without an answer.
    pub(super) fn failed(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Said(said) if said.end == End::Failed))
    }
}
