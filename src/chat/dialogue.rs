//! What [`Chat`] does with the dialogue: recording it, showing it, changing it, bringing it back.

use std::fmt::Write as _;
use std::sync::Arc;

use super::conversation::{Conversation, End, Ran, Said, Slot};
use super::exchange::Exchanged;
use super::model::{Message, Request};
use super::store::{HistoryEntry, HistoryQuery, Keeping, Partial, Store, Write};
use super::turn::{Options, Prompt, Tool, ToolResult};
use super::{Chat, ChatError, Place, Reply, find, prompt};
use crate::config::Replay;
use crate::event::Ending;

/// Bytes of text that make a token, as long as no server has said better.
const DENSITY: f64 = 4.0;

/// What would be sent to the model from some place, and what becomes of every turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Context {
    /// Every turn from the top of the notebook.
    pub turns: Vec<ContextTurn>,
    /// What would be sent, in plain text: the system prompt, then each message under who says it.
    pub sent: String,
    /// About how many tokens that is.
    pub tokens: u64,
    /// About how many the window holds.
    pub window: u64,
    /// How many turns there is no room for.
    pub left_out: usize,
    /// The present branch.
    pub branch: String,
}

/// A turn in a [`Context`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextTurn {
    /// Its number, from the top of the notebook.
    pub number: usize,
    /// Its first words.
    pub label: String,
    /// About how many tokens it takes.
    pub tokens: u64,
    /// Whether it would be sent.
    pub sent: bool,
    /// What is to be said of it: `pinned`, `hidden`, `stale`, ...
    pub marks: Vec<&'static str>,
}

/// What is done with a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The model is not sent it.
    Hide,
    /// It is sent however full the window is.
    Pin,
}

/// What [`Chat::resume`] brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumption {
    /// How many turns.
    pub turns: usize,
    /// When the last was touched, in milliseconds since 1970.
    pub used: i64,
}

impl Chat {
    /// With a place where dialogues are kept, and a notebook whose order they follow.
    #[must_use]
    pub fn keeping(self, keeping: &Keeping) -> Chat {
        let store = keeping.file.as_deref().map(|file| Arc::new(Store::new(file, keeping)));
        self.inner.state().conversation = Conversation::new(keeping.notebook.clone(), store.clone());
        Chat { store, ..self }
    }

    /// A new execution of a cell begins: everything recorded or asked with the returned place belongs
    /// to one turn, which replaces the cell's earlier one once there is something in it.
    pub fn begin(&self, cell: Option<&str>, source: &str) -> Place {
        self.inner.state().conversation.begin(cell, source)
    }

    /// An execution of which nothing is kept begins (what a front end runs behind the user's back): what is recorded or asked
    /// with the returned place is forgotten with [`Chat::pass`], and is never written down.
    pub fn begin_passing(&self) -> Place {
        self.inner.state().conversation.begin_passing()
    }

    /// Such an execution is over; of others nothing is forgotten.
    pub fn pass(&self, place: &Place) {
        self.inner.state().conversation.pass(place);
    }

    /// A block of code ran: the model will be told with the next question.
    pub fn record_run(&self, place: &Place, ran: Ran) {
        self.hide_secrets();
        self.inner.state().conversation.ran(place, ran);
    }

    /// What came of the calls of the last reply in this execution, one result for each call, in their order.
    pub fn record_results(&self, place: &Place, results: Vec<ToolResult>) {
        self.inner.state().conversation.results(place, results);
    }

    /// The user asks; where the reply is kept while it comes.
    pub(super) fn asked(&self, place: &Place, prompt: &Prompt) -> Option<Partial> {
        self.hide_secrets();
        let slot: Option<Slot> = self.inner.state().conversation.asked(place, prompt);
        Some(self.store.as_ref()?.draft(slot?))
    }

    /// The model answered.
    pub(super) fn answered(&self, place: &Place, prompt: &Prompt, exchanged: &Exchanged) {
        let Exchanged { reply, ending } = exchanged;
        let mut state = self.inner.state();
        if let Some(read) = reply.usage.input_tokens.filter(|read| *read > 0 && state.sent > 0) {
            #[allow(clippy::cast_precision_loss, reason = "an estimate")]
            let density = state.sent as f64 / read as f64;
            state.density = Some(density.clamp(1.0, 10.0));
        }
        let within = reply.unfinished.clone();
        if reply.text.trim().is_empty() && reply.calls.is_empty() && within.is_none() {
            return;
        }
        let end = match ending {
            Ending::Complete => End::Whole,
            Ending::Interrupted => End::Interrupted,
            Ending::Cut(_) => End::Cut,
        };
        let said = Said { text: reply.text.clone(), calls: reply.calls.clone(), end, within };
        state.conversation.answered(place, prompt, said);
    }

    /// Nothing came of a question, or nothing that could be kept: a turn that is under way says how it ended.
    pub(super) fn unanswered(&self, place: &Place, reply: &Result<Reply, ChatError>) {
        let end = match reply {
            Err(_) => End::Failed,
            Ok(reply) => match reply.ending {
                Ending::Complete => return,
                Ending::Interrupted => End::Interrupted,
                Ending::Cut(_) => End::Cut,
            },
        };
        self.inner.state().conversation.broke_off(place, end);
    }

    /// Cells that no longer exist take their turns with them.
    pub fn forget(&self, cells: &[String]) {
        self.inner.state().conversation.forget(cells);
    }

    /// A cell ran in which nothing is said or done any more: its earlier turn goes.
    pub fn vacate(&self, cell: &str) {
        self.inner.state().conversation.vacate(cell);
    }

    /// Forgets the whole conversation; the choice of model stays.
    pub fn reset(&self) {
        self.inner.state().conversation.reset();
    }

    /// What the user should be told about where dialogues are kept, since the last time.
    pub fn remarks(&self) -> Vec<String> {
        self.store.as_ref().map(|store| store.warnings()).unwrap_or_default()
    }

    /// Looks into the notebook's file when it has changed, away from the threads that serve the kernel: it may be large, and
    /// its disk slow. What asks or lists afterwards finds it known.
    pub async fn look(&self) {
        let Some(look) = self.inner.state().conversation.look() else { return };
        if let Ok(news) = tokio::task::spawn_blocking(move || look.read()).await {
            self.inner.state().conversation.learn(news);
        }
    }

    /// What would be sent from a cell (without one: from the end), `sandbox` being what the model is told of it.
    pub fn context(&self, cell: Option<&str>, sandbox: &str, tools: &[Tool], options: &Options) -> Context {
        let addition = options.system.as_deref().or(self.inner.settings.system.as_deref());
        let system = prompt::system(sandbox, addition, tools);
        let whom = self.identity(options);
        let mut state = self.inner.state();
        let density = state.density.unwrap_or(DENSITY);
        let budget = state.window.unwrap_or(find::BUDGET);
        let place = Place::looking(cell);
        let composed = state.conversation.to(whom).compose(&place, None, budget);
        let lines = state.conversation.lines(&place, &composed);
        let branch = state.conversation.branches().into_iter().find(|(_, _, present)| *present);
        drop(state);
        let tools = tools.to_vec();
        let request = Request { system, messages: composed.messages, tools, ..Request::default() };
        let turns = lines.into_iter().map(|line| ContextTurn {
            number: line.number,
            label: line.label,
            tokens: tokens(line.size, density),
            sent: line.sent,
            marks: line.marks,
        });
        Context {
            turns: turns.collect(),
            tokens: tokens(size(&request), density),
            sent: written(&request),
            window: tokens(budget, density),
            left_out: composed.left_out,
            branch: branch.map(|(name, _, _)| name).unwrap_or_default(),
        }
    }

    /// The full name of the model that a question asked with these options goes to; `None`: it will be looked for.
    pub fn recipient(&self, options: &Options) -> Option<String> {
        let wanted = options.model.as_deref();
        wanted.map(|wanted| self.inner.configured(Some(wanted))).or_else(|| self.current())
    }

    /// Finds out who is asked with these options, so that [`Chat::identity`] and [`Chat::recipient`] can tell. Where
    /// recorded replies are given no model is looked for. What can't be found is said when it is asked.
    pub async fn settle_model(&self, options: &Options) {
        if self.recordings.as_ref().is_none_or(|recordings| recordings.mode == Replay::Record) {
            // Whoever asks next meets the same error, and says it.
            let _ = self.inner.settle(options.model.as_deref()).await;
        }
    }

    /// Who is asked with these options, as far as it can be told without looking: what a user agreed to send there goes
    /// nowhere else. Empty: the model is still to be [found](Chat::settle_model).
    pub fn identity(&self, options: &Options) -> String {
        self.inner.identity(options.model.as_deref())
    }

    /// Marks the turns of these numbers, or takes the mark away when `holds` is false; their numbers and first words.
    ///
    /// # Errors
    /// A number that no turn has; nothing is changed then.
    pub fn mark(&self, numbers: &[usize], mark: Mark, holds: bool) -> Result<Vec<(usize, String)>, usize> {
        let mut state = self.inner.state();
        let turns = state.conversation.turns();
        if let Some(missing) = numbers.iter().find(|number| !(1..=turns).contains(*number)) {
            return Err(*missing);
        }
        let mut marked = Vec::new();
        for number in numbers {
            let entry = state.conversation.set(*number, |entry| match mark {
                Mark::Hide => entry.hidden = holds,
                Mark::Pin => entry.pinned = holds,
            });
            marked.extend(entry.map(|entry| (*number, entry.label.clone())));
        }
        Ok(marked)
    }

    /// Takes the last turn back: its first words, and whether the cell's earlier turn is back. `None`: there is none.
    pub fn undo(&self) -> Option<(String, bool)> {
        let undone = self.inner.state().conversation.take_back()?;
        Some((undone.label, undone.restored))
    }

    /// Switches to the branch of that name, or makes it from the present one; whether it is new.
    pub fn branch(&self, name: &str) -> bool {
        self.inner.state().conversation.switch(name)
    }

    /// Every branch: its name, how many turns it has, whether it is the present one.
    pub fn branches(&self) -> Vec<(String, usize, bool)> {
        self.inner.state().conversation.branches()
    }

    /// Whether dialogues are kept on disk at all.
    pub fn keeps(&self) -> bool {
        self.store.is_some()
    }

    /// Brings back what the kernel before this one left; `None`: nothing is there.
    pub async fn resume(&self) -> Option<Resumption> {
        let store = Arc::clone(self.store.as_ref()?);
        // Reading waits for a disk.
        let resumed = tokio::task::spawn_blocking(move || store.previous()).await.ok()??;
        let used = resumed.used;
        let turns = self.inner.state().conversation.resume(resumed);
        Some(Resumption { turns, used })
    }

    /// Keeps a cell for histories.
    pub fn record_line(&self, line: u32, input: String, output: Option<String>) {
        if let Some(store) = &self.store {
            self.hide_secrets();
            store.write(Write::Line { line, input, output });
        }
    }

    /// The cells that are asked for, oldest first; `None`: nobody knows.
    pub async fn history(&self, query: HistoryQuery) -> Option<Vec<HistoryEntry>> {
        let store = Arc::clone(self.store.as_ref()?);
        tokio::task::spawn_blocking(move || store.history(&query)).await.ok()?
    }

    /// Everything that was said is on disk after this, as far as the disk takes it.
    pub(super) async fn settle(&self) {
        if let Some(store) = self.store.clone() {
            // It was waited for long enough.
            let _ = tokio::task::spawn_blocking(move || store.close()).await;
        }
    }

    /// Keys that are known by now are not written down.
    pub(super) fn hide_secrets(&self) {
        if let Some(store) = &self.store {
            store.hide(self.inner.secrets());
        }
    }
}

/// What the user is told of attachments that are not sent again, each with whom the yes was for.
pub(super) fn withheld(attachments: &[(String, String)]) -> Option<String> {
    let one = |(name, agreed): &(String, String)| match agreed.as_str() {
        "" => format!("{name} (your yes was for another model)"),
        agreed => format!("{name} (your yes was for {agreed})"),
    };
    let named: Vec<String> = attachments.iter().map(one).collect();
    (!named.is_empty()).then(|| {
        format!(
            "Not sent with the turns above, because another model is asked: {}. Attach it, or have it read, again to be asked anew.",
            named.join(", ")
        )
    })
}

/// What the user is told of turns that were sent although something above them changed.
pub(super) fn stale(turns: &[usize], sigil: &str) -> Option<String> {
    let named = match turns {
        [] => return None,
        [one] => format!("Turn {one} was"),
        [first @ .., last] => {
            const NAMED: usize = 5;
            let some: Vec<String> = first.iter().take(NAMED).map(ToString::to_string).collect();
            let more = if first.len() > NAMED { ", ..." } else { "" };
            format!("Turns {}{more} and {last} were", some.join(", "))
        }
    };
    Some(format!(
        "{named} answered before something above changed. {sigil}context lists them; run their cells again to renew them."
    ))
}

/// About how many tokens so many bytes are.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate of something positive"
)]
fn tokens(bytes: usize, density: f64) -> u64 {
    (bytes as f64 / density).ceil() as u64
}

/// How much text a request is, in bytes.
pub(super) fn size(request: &Request) -> usize {
    let messages = request.messages.iter().map(|message| match message {
        Message::User { text, .. } => text.len(),
        Message::Assistant { text, calls } => {
            text.len() + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
        }
        Message::Results(results) => results.iter().map(|result| result.text.len()).sum(),
    });
    let tools = request.tools.iter().map(|tool| tool.description.len() + tool.parameters.to_string().len());
    request.system.len() + messages.sum::<usize>() + tools.sum::<usize>()
}

/// A request in plain text.
fn written(request: &Request) -> String {
    let mut text = format!("--- system ---\n{}\n", request.system);
    for tool in &request.tools {
        let _ = write!(text, "\n--- tool {} ---\n{}\n{}\n", tool.name, tool.description, tool.parameters);
    }
    // Writing to a string can't fail.
    for message in &request.messages {
        let _ = match message {
            Message::User { text: said, images } if images.is_empty() => {
                writeln!(text, "\n--- user ---\n{said}")
            }
            Message::User { text: said, images } => {
                writeln!(text, "\n--- user, with {} pictures ---\n{said}", images.len())
            }
            Message::Assistant { text: said, calls } => {
                let called = calls.iter().fold(String::new(), |mut all, call| {
                    let _ = write!(all, "\n[calls {} with {}]", call.name, call.arguments);
                    all
                });
                writeln!(text, "\n--- assistant ---\n{said}{called}")
            }
            Message::Results(results) => results.iter().try_for_each(|result| {
                let pictures = match result.images.len() {
                    0 => String::new(),
                    1 => ", with a picture".to_owned(),
                    count => format!(", with {count} pictures"),
                };
                writeln!(text, "\n--- result of {}{pictures} ---\n{}", result.name, result.text)
            }),
        };
    }
    text
}
