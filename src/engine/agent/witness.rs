//! What a run of the model's shows: passed on to the user, and remembered for the model.
//!
//! Two things change on the way. An error is shown as text on the error stream: the model sees it and may well mend
//! it, and a cell that ends well must not look failed to programs that judge it by its outputs. And nothing that was
//! shown is cleared: what the model's code did stays to be seen.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::execute::Surroundings;
use crate::event::{self, Bundle, Event, EventSender, Stream};
use crate::sandbox::artifacts;

use super::results::plain;

/// Events on their way.
const DEPTH: usize = 4;
/// How much of what is shown is kept for a file, in bytes.
const KEPT: usize = 1 << 20;
/// How long an interrupted run waits for a surface that takes nothing.
const PATIENCE: Duration = Duration::from_millis(200);
/// Files that are named.
const FILES: usize = 20;

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Media types of the pictures, in order.
    pub(super) pictures: Vec<String>,
    /// Paths of the files that it left in its folder of artifacts, in the container.
    pub(super) files: Vec<String>,
    /// What it showed as text, up to a limit.
    pub(super) text: String,
    /// Whether there was more.
    pub(super) more: bool,
}

/// Does some work with a sender of events, and passes on what it sends.
pub(super) async fn watched<T>(
    around: Surroundings<'_>,
    work: impl AsyncFnOnce(EventSender) -> T,
) -> (T, Seen) {
    let (sender, mut shown) = event::channel(DEPTH);
    let mut seen = Seen::default();
    let done = {
        let work = work(sender);
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                Some(event) = shown.recv() => pass(around, seen.take(event)).await,
                done = &mut work => break done,
            }
        }
    };
    drain(&mut shown, around, &mut seen).await;
    (done, seen)
}

/// What was sent before the work's end.
async fn drain(shown: &mut mpsc::Receiver<Event>, around: Surroundings<'_>, seen: &mut Seen) {
    while let Ok(event) = shown.try_recv() {
        pass(around, seen.take(event)).await;
    }
}

async fn pass(around: Surroundings<'_>, event: Option<Event>) {
    let Some(event) = event else { return };
    let Surroundings { events, cancel, .. } = around;
    let given_up = async |cancel: &CancellationToken| {
        cancel.cancelled().await;
        tokio::time::sleep(PATIENCE).await;
    };
    tokio::select! {
        biased;
        // A surface that is gone sees nothing more; the run goes on to its end.
        _ = events.send(event) => {}
        () = given_up(cancel) => {}
    }
}

impl Seen {
    fn take(&mut self, event: Event) -> Option<Event> {
        match &event {
            Event::Stream { text, .. } => self.keep(text),
            Event::Display { bundle, .. } | Event::Result { bundle } => self.look(bundle),
            Event::Error(failure) => {
                let mut text = failure.traceback.join("\n");
                text.push('\n');
                self.keep(&text);
                return Some(Event::Stream { stream: Stream::Stderr, text });
            }
            Event::Clear { .. } => return None,
            Event::UpdateDisplay { .. } | Event::Notice(_) | Event::Answer(_) => {}
        }
        Some(event)
    }

    fn look(&mut self, bundle: &Bundle) {
        if let Some(list) = bundle.metadata().get(artifacts::METADATA) {
            let files = list["artifacts"].as_array().into_iter().flatten();
            let paths = files.filter_map(|file| file["container"].as_str()).map(plain);
            self.files.extend(paths.take(FILES.saturating_sub(self.files.len())));
            return;
        }
        let pictures = bundle.data().keys().filter(|mime| mime.starts_with("image/"));
        // One thing may come as a PNG and as an SVG.
        self.pictures.extend(pictures.take(1).cloned());
        if let Some(text) = bundle.data().get("text/plain").and_then(Value::as_str) {
            self.keep(text);
            self.keep("\n");
        }
    }

    fn keep(&mut self, text: &str) {
        let kept = &text[..text.floor_char_boundary(KEPT - self.text.len())];
        self.text.push_str(kept);
        self.more |= kept.len() < text.len();
    }
}
