//! What the user sees of one reply while it comes: its text, its reasoning, its calls.
//!
//! Imports `event`. The reply's own text is kept apart from how its calls look on the page.

use std::time::Instant;

use super::forming::{Change, Forming, TooMany};
use super::model::{Delta, Request, Tokens};
use super::store::Partial;
use super::think::{Piece, Splitter};
use super::turn::{Tool, ToolCall};
use super::written::{Counts, Part, Told, Written};
use crate::event::{Answer, Closed, DisplayId, Ending, Event, EventSender, Usage};

/// Why no more of a reply can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unshown {
    /// Nobody listens any more.
    Closed,
    /// It called too often.
    TooMany(TooMany),
}

impl From<Closed> for Unshown {
    fn from(Closed: Closed) -> Self {
        Unshown::Closed
    }
}

/// One reply.
pub(super) struct Shown<'a> {
    events: &'a EventSender,
    /// The model's full name.
    model: &'a str,
    began: Instant,
    id: Option<DisplayId>,
    splitter: Splitter,
    written: Written<'a>,
    forming: Forming<'a>,
    /// Nothing of the reply stands on the page.
    blank: bool,
    /// The model called as the protocol has it.
    called: bool,
    text: String,
    usage: Usage,
    /// It is given again: how long that takes says nothing.
    pub(super) again: bool,
    /// Where the text is kept while it comes.
    pub(super) partial: Option<&'a Partial>,
}

/// A reply that is over.
#[derive(Debug)]
pub(super) struct Whole {
    /// Without reasoning and without calls.
    pub(super) text: String,
    /// None unless the reply is complete.
    pub(super) calls: Vec<ToolCall>,
    pub(super) usage: Usage,
    /// Whether the model called as the protocol has it.
    pub(super) called: bool,
    /// The tool whose call was being written when the reply ended.
    pub(super) unfinished: Option<String>,
}

impl<'a> Shown<'a> {
    /// A reply to this request, put at `began`.
    pub(super) fn new(
        events: &'a EventSender,
        model: &'a str,
        request: &'a Request,
        counts: Counts,
        began: Instant,
    ) -> Self {
        let tools: &'a [Tool] = &request.tools;
        let told = if counts == Counts::Never || tools.is_empty() {
            Told::default()
        } else {
            Told::of(&request.messages)
        };
        Shown {
            events,
            model,
            began,
            id: None,
            splitter: Splitter::default(),
            written: Written::new(tools, counts, told),
            forming: Forming::new(tools),
            blank: true,
            called: false,
            text: String::new(),
            usage: Usage::default(),
            again: false,
            partial: None,
        }
    }

    /// What the server counted.
    pub(super) fn count(&mut self, tokens: Tokens) {
        self.usage.input_tokens = tokens.input;
        self.usage.cached_tokens = tokens.cached;
        self.usage.output_tokens = tokens.output;
        self.usage.reasoning_tokens = tokens.reasoning;
    }

    /// Whether the user has seen anything of it.
    pub(super) fn has_begun(&self) -> bool {
        self.id.is_some()
    }

    /// The reply begins on the page, if it has not.
    pub(super) async fn start(&mut self) -> Result<DisplayId, Closed> {
        if let Some(id) = &self.id {
            return Ok(id.clone());
        }
        let id = DisplayId::host();
        self.id = Some(id.clone());
        self.usage.first_token.get_or_insert_with(|| self.began.elapsed());
        self.events
            .send(Event::Answer(Answer::Start { id: id.clone(), model: self.model.to_owned() }))
            .await?;
        Ok(id)
    }

    /// Takes one part of the reply.
    pub(super) async fn take(&mut self, delta: Delta) -> Result<(), Unshown> {
        self.usage.first_token.get_or_insert_with(|| self.began.elapsed());
        match delta {
            Delta::Text(text) => {
                for piece in self.splitter.push(&text) {
                    self.piece(piece).await?;
                }
            }
            Delta::Reasoning(text) => self.piece(Piece::Reasoning(text)).await?,
            Delta::CallStart { .. } | Delta::CallArguments { .. } | Delta::Call { .. } => {
                self.start().await?;
                if !std::mem::replace(&mut self.called, true) {
                    for part in self.written.called() {
                        self.part(part).await?;
                    }
                }
                self.form(delta).await?;
            }
            Delta::End { .. } => {}
        }
        Ok(())
    }

    async fn piece(&mut self, piece: Piece) -> Result<(), Unshown> {
        match piece {
            Piece::Text(text) => {
                for part in self.written.push(&text) {
                    self.part(part).await?;
                }
            }
            Piece::Reasoning(delta) => {
                let id = self.start().await?;
                self.events.send(Event::Answer(Answer::Reasoning { id, delta })).await?;
            }
        }
        Ok(())
    }

    async fn part(&mut self, part: Part) -> Result<(), Unshown> {
        match part {
            Part::Text(delta) => {
                let id = self.start().await?;
                self.text.push_str(&delta);
                self.blank = false;
                if let Some(partial) = self.partial {
                    partial.grew(&delta);
                }
                self.events.send(Event::Answer(Answer::Text { id, delta })).await?;
            }
            Part::Call(delta) => {
                self.start().await?;
                self.form(delta).await?;
            }
            Part::Withdrawn { parts, text } => {
                // It stands on the page already, as what it was taken for.
                if let Some(partial) = self.partial {
                    partial.grew(&text);
                }
                self.text.push_str(&text);
                let markdown = self.forming.withdraw(&parts);
                self.show_call(markdown).await?;
            }
        }
        Ok(())
    }

    /// Takes a part of a call, and shows what there is to see of it.
    async fn form(&mut self, delta: Delta) -> Result<(), Unshown> {
        for change in self.forming.take(delta).map_err(Unshown::TooMany)? {
            match change {
                Change::More(markdown) => self.show_call(markdown).await?,
                Change::Instead { old, new, added } => {
                    let id = self.start().await?;
                    self.events.send(Event::Answer(Answer::Instead { id, old, new, added })).await?;
                }
            }
        }
        Ok(())
    }

    /// Shows something of a call, which is no part of the text.
    async fn show_call(&mut self, markdown: String) -> Result<(), Closed> {
        let delta = if self.blank { markdown.trim_start_matches('\n').to_owned() } else { markdown };
        if delta.is_empty() {
            return Ok(());
        }
        let id = self.start().await?;
        self.blank = false;
        self.events.send(Event::Answer(Answer::Text { id, delta })).await
    }

    /// What was held back is shown, the reply ends on the page.
    pub(super) async fn end(mut self, ending: &Ending) -> Whole {
        let broken = (*ending != Ending::Complete).then(|| self.forming.unfinished()).flatten();
        let mut open = self.finish().await.is_ok();
        let unfinished = broken.or_else(|| self.forming.unfinished());
        let (rest, calls) = std::mem::replace(&mut self.forming, Forming::new(&[])).finish();
        open = open && self.show_call(rest).await.is_ok();
        if self.again {
            self.usage.first_token = None;
        } else {
            self.usage.duration = self.began.elapsed();
        }
        if let (true, Some(id)) = (open, self.id.clone()) {
            let end = Answer::End { id, ending: ending.clone(), usage: self.usage.clone() };
            // Nobody listens any more: the reply is kept all the same.
            let _ = self.events.send(Event::Answer(end)).await;
        }
        Whole {
            text: self.text,
            calls: if *ending == Ending::Complete { calls } else { Vec::new() },
            usage: self.usage,
            called: self.called,
            unfinished,
        }
    }

    async fn finish(&mut self) -> Result<(), Unshown> {
        if let Some(piece) = self.splitter.finish() {
            self.piece(piece).await?;
        }
        for part in self.written.finish() {
            self.part(part).await?;
        }
        Ok(())
    }
}
