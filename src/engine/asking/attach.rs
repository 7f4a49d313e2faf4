//! What goes with a question: what it mentions, and what `%attach` named before. Shown with sizes before it is sent.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::files::{self, Room, Taken};
use super::mentions::{self, Mention};
use super::places::{Found, Places};
use crate::chat::{Attachment, Content, Options};
use crate::engine::confirm;
use crate::engine::execute::{Engine, Surroundings};
use crate::event::Failure;
use crate::sandbox::size;

/// The most things that go with one question.
const MOST: usize = 20;

/// Something that goes with a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct Attached {
    /// What the model is given.
    pub(super) attachment: Attachment,
    /// For the user: what it is and how large.
    pub(super) what: String,
    /// The user's yes, where it needed one.
    pub(super) agreed: Option<Yes>,
}

/// A yes to sending a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Yes {
    /// Whom to, in words.
    to: String,
    /// The file's real path.
    real: PathBuf,
}

impl Attached {
    /// A line for the list of attachments.
    pub(in crate::engine) fn line(&self) -> String {
        format!("{} ({})", confirm::visible(&self.attachment.name.replace(['\n', '\t'], " ")), self.what)
    }
}

/// What was found for a question.
#[derive(Debug, Default)]
pub(super) struct Collected {
    pub(super) attached: Vec<Attached>,
    /// Names that could not be attached, each with the reason.
    pub(super) remarks: Vec<String>,
    /// What stays words: names that look like files' and are none, words that are also a folder's name.
    pub(super) quiet: Vec<String>,
    /// The model that all of it is for, in words.
    pub(super) to: String,
    /// The same model as the dialogue knows it.
    pub(super) whom: String,
    room: Room,
}

impl Collected {
    /// With what is there already, for that model: in words, and as the dialogue knows it.
    pub(super) fn with(attached: Vec<Attached>, (to, whom): (String, String)) -> Self {
        let mut room = Room::default();
        for one in &attached {
            match &one.attachment.content {
                Content::Text(text) => room.text = room.text.saturating_sub(text.len() as u64),
                Content::Image(image) => {
                    room.images = room.images.saturating_sub(image.base64.len() as u64 / 4 * 3);
                }
            }
        }
        Collected { attached, to, whom, room, ..Collected::default() }
    }

    fn has(&self, name: &str) -> bool {
        self.attached.iter().any(|one| one.attachment.name == name)
    }

    fn is_full(&mut self, name: &str) -> bool {
        if self.attached.len() < MOST {
            return false;
        }
        self.remarks.push(format!("{name} was not attached: {MOST} things are the most"));
        true
    }

    fn push(&mut self, name: String, content: Content, what: String) {
        let attachment = Attachment { name, content, agreed: None };
        self.attached.push(Attached { attachment, what, agreed: None });
    }
}

impl Engine {
    /// The places that a mention can reach.
    pub(in crate::engine) fn places(&self) -> Places {
        let limits = self.sandbox.chosen().and_then(|name| self.sandbox.definition(&name).ok().cloned());
        let limits = limits.or_else(|| {
            let registry = self.sandbox.registry();
            registry.find(&registry.settings.default).or(registry.containers().first()).cloned()
        });
        Places {
            directory: self.habits.directory.clone(),
            workspace: limits.as_ref().map_or_else(|| "workspace".into(), |own| own.limits.workspace.clone()),
            outside: limits.is_some_and(|own| own.limits.workspace_outside),
        }
    }

    /// Looks up what a text mentions.
    ///
    /// # Errors
    /// `Refused` when the user does not agree to a file that needs a yes, or can't be asked.
    pub(super) async fn mentioned(
        &self,
        text: &str,
        collected: &mut Collected,
        around: Surroundings<'_>,
    ) -> Result<(), Failure> {
        for mention in mentions::find(text) {
            match mention {
                Mention::Cell(count) => self.cell(count, false, collected),
                Mention::Output(count) => self.cell(count, true, collected),
                Mention::Path { candidates, quoted } => {
                    let told = quoted || candidates.iter().any(|name| name.contains(['.', '/']));
                    for (at, name) in candidates.iter().enumerate() {
                        let last = at + 1 == candidates.len();
                        match self.path(name, collected, around).await? {
                            Sought::Attached => break,
                            Sought::Refused(why) => {
                                let why = format!("@{name} was not attached: {why}");
                                // A word that happens to be a folder's name may be just a word.
                                let said = if told { &mut collected.remarks } else { &mut collected.quiet };
                                said.push(why);
                                break;
                            }
                            Sought::Nothing if last && told => {
                                if let Some(near) = self.near(name, around).await?.filter(|near| near != name)
                                {
                                    let why = format!("There is no file {name}; did you mean @{near}?");
                                    collected.remarks.retain(|said| *said != why);
                                    collected.remarks.push(why);
                                } else if quoted {
                                    collected.remarks.push(format!("There is no file {name}."));
                                } else if mentions::looks_like_a_file(name) {
                                    let why = format!(
                                        "There is no file {name} in the workspace or in the notebook's directory; \
                                         @{name} was sent as it is written."
                                    );
                                    collected.quiet.retain(|said| *said != why);
                                    collected.quiet.push(why);
                                }
                            }
                            Sought::Nothing => {}
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Attaches what the user names outright.
    ///
    /// # Errors
    /// Why it can't be attached.
    pub(in crate::engine) async fn attach(
        &self,
        names: &[String],
        around: Surroundings<'_>,
    ) -> Result<Vec<Attached>, Failure> {
        let failed = |text: String| Failure::new("AttachError", text);
        self.settled(&self.asking.options(), around).await;
        let to = self.recipient(&self.asking.options());
        let mut collected = Collected::with(self.asking.attached(), to);
        for name in names {
            let name = name.strip_prefix('@').unwrap_or(name);
            if let [mention @ (Mention::Cell(_) | Mention::Output(_))] =
                &mentions::find(&format!("@{name}"))[..]
            {
                match mention {
                    Mention::Cell(count) => self.cell(*count, false, &mut collected),
                    Mention::Output(count) => self.cell(*count, true, &mut collected),
                    Mention::Path { .. } => {}
                }
                continue;
            }
            match self.path(name, &mut collected, around).await? {
                Sought::Attached => {}
                Sought::Refused(why) => return Err(failed(format!("{name} was not attached: {why}"))),
                Sought::Nothing => {
                    let near = self.near(name, around).await?.filter(|near| near != name);
                    let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
                    return Err(failed(format!(
                        "there is no file {name} in the workspace or in the notebook's directory{near}"
                    )));
                }
            }
        }
        match collected.remarks.pop() {
            Some(remark) => Err(failed(remark)),
            None => Ok(collected.attached),
        }
    }

    fn cell(&self, count: Option<u32>, output: bool, collected: &mut Collected) {
        let what = if output { "out" } else { "cell" };
        let Some(ran) = self.asking.cell(count) else {
            let last =
                self.asking.last_cell().map_or_else(String::new, |last| format!("; the last one is {last}"));
            let written = count.map_or_else(|| format!("@{what}"), |count| format!("@{what}:{count}"));
            collected
                .remarks
                .push(format!("{written} was not attached: no such cell ran in this kernel{last}"));
            return;
        };
        let name = format!("@{what}:{}", ran.count);
        if collected.has(&name) || collected.is_full(&name) {
            return;
        }
        let text = ran.told(output);
        if text.len() as u64 > collected.room.text {
            let most = size(files::TOGETHER);
            collected
                .remarks
                .push(format!("{name} was not attached: the attachments together would be more than {most}"));
            return;
        }
        collected.room.text -= text.len() as u64;
        let bytes = size(text.len() as u64);
        collected.push(name.clone(), Content::Text(text), bytes);
        for (number, image) in ran.images.iter().enumerate() {
            let bytes = image.base64.len() as u64 / 4 * 3;
            let name = format!("{name} picture {}", number + 1);
            if bytes <= collected.room.images && !collected.is_full(&name) {
                collected.room.images -= bytes;
                collected.push(name, Content::Image(image.clone()), format!("picture, {}", size(bytes)));
            }
        }
    }

    async fn path(
        &self,
        name: &str,
        collected: &mut Collected,
        around: Surroundings<'_>,
    ) -> Result<Sought, Failure> {
        let (places, written) = (self.places(), name.to_owned());
        let found = blocking(around, move || places.find(&written)).await?;
        let mut agreed = None;
        let file = match found {
            Found::Nothing => return Ok(Sought::Nothing),
            Found::Refused(why) => return Ok(Sought::Refused(why)),
            Found::File(file) => file,
            Found::Ask(real) => match self.consented(&real, &collected.to, around).await? {
                Ok(file) => {
                    agreed = Some(Yes { to: collected.to.clone(), real });
                    file
                }
                Err(why) => return Ok(Sought::Refused(why)),
            },
        };
        let name = format!("@{name}");
        if collected.has(&name) {
            return Ok(Sought::Attached);
        }
        if collected.is_full(&name) {
            return Ok(Sought::Attached);
        }
        let (path, mut room) = (PathBuf::from(&name), collected.room);
        let (read, room) = blocking(around, move || {
            let read = files::read(&path, file, &mut room);
            (read, room)
        })
        .await?;
        collected.room = room;
        match read {
            Ok(Taken { content, what }) => {
                let whom = agreed.is_some().then(|| collected.whom.clone());
                let attachment = Attachment { name, content, agreed: whom };
                collected.attached.push(Attached { attachment, what, agreed });
                Ok(Sought::Attached)
            }
            Err(why) => Ok(Sought::Refused(why)),
        }
    }

    /// A file whose name is nearly that one.
    async fn near(&self, name: &str, around: Surroundings<'_>) -> Result<Option<String>, Failure> {
        let (places, written) = (self.places(), name.to_owned());
        blocking(around, move || places.near(&written)).await
    }

    /// Knows afterwards which model is meant, so that a question can name it.
    pub(super) async fn settled(&self, options: &Options, around: Surroundings<'_>) {
        tokio::select! {
            () = self.chat.settle_model(options) => {}
            () = around.cancel.cancelled() => {}
        }
    }

    /// Whom a question asked with these options goes to: in words, and as the dialogue knows it.
    pub(super) fn recipient(&self, options: &Options) -> (String, String) {
        let words = self.chat.recipient(options).unwrap_or_else(|| "a language model".to_owned());
        (words, self.chat.identity(options))
    }

    /// What the user agreed to send to one model goes to no other without another yes.
    ///
    /// # Errors
    /// `Refused` when it is not given.
    pub(super) async fn still_agreed(
        &self,
        collected: &mut Collected,
        around: Surroundings<'_>,
    ) -> Result<(), Failure> {
        let (to, whom) = (&collected.to, &collected.whom);
        for one in &mut collected.attached {
            let other = one.attachment.agreed.as_ref().is_some_and(|agreed| agreed != whom);
            if let Some(yes) = one.agreed.as_mut().filter(|yes| yes.to != *to || other) {
                let what = format!("This notebook wants to send {} to {to}", yes.real.display());
                let why = format!("your yes was to sending it to {}", yes.to);
                confirm::plain(around.ask.as_ref(), &what, "", &why).await?;
                yes.to.clone_from(to);
                one.attachment.agreed = Some(whom.clone());
            }
        }
        Ok(())
    }

    /// A file that is read only when the user agrees. The inner error says why it can't be read.
    async fn consented(
        &self,
        real: &Path,
        to: &str,
        around: Surroundings<'_>,
    ) -> Result<Result<File, String>, Failure> {
        let what = format!("This notebook wants to send {} to {to}", real.display());
        let why = "that is outside the notebook's directory, hidden, behind a link, a part of its settings, or looks like \
                   a key, so it needs a yes";
        confirm::plain(around.ask.as_ref(), &what, "", why).await?;
        let real = real.to_owned();
        let opened = blocking(around, move || Places::open(&real)).await?;
        Ok(opened.map_err(|error| format!("it can't be read: {error}")))
    }
}

/// What came of looking for a path.
enum Sought {
    /// It is attached, or why it is not is among the remarks.
    Attached,
    Refused(String),
    Nothing,
}

/// Does something that may wait for a disk.
async fn blocking<T: Send + 'static>(
    around: Surroundings<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::select! {
        done = tokio::task::spawn_blocking(work) => {
            done.map_err(|_| Failure::new("InternalError", "looking for an attached file failed; run the cell again"))
        }
        () = around.cancel.cancelled() => {
            Err(Failure::new("KeyboardInterrupt", "interrupted while an attached file was read"))
        }
    }
}
