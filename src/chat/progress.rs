//! A line of progress that is taken away when it is no longer true. Imports `event`.

use crate::event::{DisplayId, Event, EventSender, Notice};

/// The one line of progress of a question.
pub(super) struct Progress<'a> {
    events: &'a EventSender,
    id: DisplayId,
    showing: bool,
}

impl<'a> Progress<'a> {
    pub(super) fn new(events: &'a EventSender) -> Self {
        Progress { events, id: DisplayId::host(), showing: false }
    }

    pub(super) fn is_showing(&self) -> bool {
        self.showing
    }

    pub(super) async fn say(&mut self, text: String) {
        self.showing = true;
        // When nobody listens, the next event of the answer says so.
        let _ = self.events.send(Event::Notice(Notice::progress(&self.id, text))).await;
    }

    pub(super) async fn clear(&mut self) {
        if std::mem::take(&mut self.showing) {
            let _ = self.events.send(Event::Notice(Notice::progress(&self.id, ""))).await;
        }
    }
}
