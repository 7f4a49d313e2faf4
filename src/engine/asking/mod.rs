//! From a cell to a question: the words, what goes with them, and how this one differs from the settings.
//!
//! | module | what |
//! | --- | --- |
//! | `options` | model, temperature, system text and length of one question or of all to come |
//! | `mentions` | what a text mentions (`@data.csv`, `@cell:3`) |
//! | `places` | where a mentioned file is, and whether it may go to a model unasked |
//! | `files` | what of a file goes |
//! | `cells` | the cells that ran, for who mentions them |
//! | `variables`, `names` | answers as variables of the next Python cell; names that they must not take |
//! | `attach` | all of it put together, and listed |

mod attach;
mod cells;
mod files;
mod mentions;
mod names;
mod options;
mod places;
mod variables;

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::execute::{Engine, Surroundings, send};
use super::magics::show;
use crate::cell::{Cell, Part};
use crate::chat::{Content, Image, Options, Prompt};
use crate::config::Flavor;
use crate::event::{Event, Failure, Notice};
use crate::sandbox::Texts;

pub(super) use attach::Attached;
pub(super) use options::value as option_value;
pub(super) use places::{Found, is_private};

use attach::Collected;
use cells::{Cells, Ran};
use variables::Variables;

/// A question for the model.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Question {
    /// What the user asks.
    pub(super) prompt: Prompt,
    /// How it differs from the settings.
    pub(super) options: Options,
    /// Whether the model may call tools at all for this question.
    pub(super) tools: bool,
}

/// What questions to come are asked with.
#[derive(Debug, Default)]
pub(super) struct State(Mutex<Standing>);

#[derive(Debug, Default)]
struct Standing {
    /// Of `%system` and `%temperature`.
    options: Options,
    /// Of `%attach`, for the next question.
    attached: Vec<Attached>,
    cells: Cells,
    variables: Variables,
}

impl State {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How all questions to come differ from the settings.
    pub(super) fn options(&self) -> Options {
        self.standing().options.clone()
    }

    /// Changes how all questions to come differ from the settings.
    pub(super) fn change_options(&self, change: impl FnOnce(&mut Options)) {
        change(&mut self.standing().options);
    }

    /// What goes with the next question.
    pub(super) fn attached(&self) -> Vec<Attached> {
        self.standing().attached.clone()
    }

    /// Changes what goes with the next question.
    pub(super) fn set_attached(&self, attached: Vec<Attached>) {
        self.standing().attached = attached;
    }

    /// A cell begins.
    pub(super) fn begins(&self, count: u32, source: &str) {
        self.standing().cells.begin(count, source);
    }

    /// Code in the cell that runs has shown something.
    pub(super) fn showed(&self, text: &str, images: &[Image]) {
        self.standing().cells.showed(text, images);
    }

    /// The model has said something in the cell that runs.
    pub(super) fn answered(&self, text: &str) {
        if !text.trim().is_empty() {
            let mut standing = self.standing();
            standing.cells.answered(text);
            standing.variables.answered(text);
        }
    }

    /// Puts the last answer into the next Python cell under that name.
    ///
    /// # Errors
    /// Why not, to be put behind the magic's name.
    pub(super) fn save(&self, name: &str) -> Result<(), String> {
        self.standing().variables.save(name)
    }

    /// What the next Python cell finds in its session.
    pub(super) fn texts(&self) -> Texts {
        self.standing().variables.texts()
    }

    /// A Python cell has found it there.
    pub(super) fn delivered(&self) {
        self.standing().variables.delivered();
    }

    fn cell(&self, count: Option<u32>) -> Option<Ran> {
        self.standing().cells.find(count).cloned()
    }

    fn last_cell(&self) -> Option<u32> {
        self.standing().cells.last()
    }
}

impl Engine {
    /// How the question of a cell differs from the settings.
    ///
    /// # Errors
    /// A value behind `%%chat` that can't be used, with its line.
    pub(super) fn options(&self, cell: &Cell) -> Result<Options, Failure> {
        options::of(cell.chat.as_ref(), self.asking.options(), self.chat.max_tokens())
    }

    /// The question that a cell asks, with what it mentions and what was attached before. What goes with it is shown.
    ///
    /// # Errors
    /// `Refused` when something mentioned needs a yes that is not given; nothing is sent then.
    pub(super) async fn question(
        &self,
        cell: &Cell,
        options: Options,
        around: Surroundings<'_>,
    ) -> Result<Question, Failure> {
        self.settled(&options, around).await;
        let mut collected = Collected::with(self.asking.attached(), self.recipient(&options));
        self.still_agreed(&mut collected, around).await?;
        for part in &cell.parts {
            if let Part::Prose(text) = part {
                self.mentioned(text, &mut collected, around).await?;
            }
        }
        self.asking.set_attached(Vec::new());
        collected.remarks.extend(cell.chat.as_ref().and_then(options::late));
        for quiet in collected.quiet {
            send(around.events, Event::Notice(Notice::info(quiet))).await;
        }
        for remark in collected.remarks {
            send(around.events, Event::Notice(Notice::warning(remark))).await;
        }
        let attached = collected.attached;
        if !attached.is_empty() {
            let list: Vec<String> = attached.iter().map(Attached::line).collect();
            let list = format!("Attached to {}: {}", super::confirm::visible(&collected.to), list.join(", "));
            match self.flavor {
                Flavor::Markdown => send(around.events, Event::Notice(Notice::info(list))).await,
                // Remarks go to the log there, and the user must see what leaves the machine.
                Flavor::Python => show(around, &super::magics::literal(&list)).await,
            }
        }
        let model = options.model.clone().or_else(|| self.chat.current());
        let pictures = attached.iter().any(|one| matches!(one.attachment.content, Content::Image(_)));
        if let Some(model) = model.filter(|model| pictures && !self.chat.ledger().catalog().sees(model)) {
            let text = format!(
                "{model} is not known to see pictures, so it is only told that they are there. If it does, name it in \
                 prices.toml beside your settings (docs/asking.md)."
            );
            send(around.events, Event::Notice(Notice::warning(text))).await;
        }
        let attachments = attached.into_iter().map(|one| one.attachment).collect();
        Ok(Question { prompt: Prompt { text: cell.prompt.clone(), attachments }, options, tools: true })
    }
}

/// A question of the kernel's own: the model answers in words.
pub(super) fn about(text: &str) -> Question {
    Question { prompt: Prompt::text(text), options: Options::default(), tools: false }
}
