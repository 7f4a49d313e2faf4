//! What a run shows on its way to a surface: coalesced, capped, spilled, never stalled by a slow reader.
//!
//! May import `event`. An [`Outlet`] belongs to one run. The session pushes into it without ever waiting;
//! events leave one at a time whenever the surface has room. Every kind of event counts against the cell's
//! cap. Above it, text goes to a file in the workspace that begins with what was shown, so that it holds the
//! whole text; displays are left out and counted; a run's result and its error still pass.

use std::collections::VecDeque;

use tokio_util::sync::CancellationToken;

use crate::event::{Bundle, DisplayId, Event, EventSender, Failure, Notice, Stream, terminal};

use super::pictures::Pictures;
use super::spill::{Shelf, Spill};
use super::transcript::{Picture, Transcript};
use super::watch::Watch;

/// The most text in one event.
const CHUNK: usize = 256 << 10;
/// What an event costs besides its payload.
const OVERHEAD: u64 = 64;
/// Up to this cap the text shown is kept, so that a spill file can begin with it.
const KEEP: u64 = 64 << 20;
/// What results may take above the cap: a value at the end of a flood is what the user waited for.
const RESULTS: u64 = 256 << 10;
/// Text that may still wait for the surface once the run was told to stop.
const AFTER_STOP: usize = 64 << 10;
/// The most of one error's text.
const ERROR_TEXT: usize = 256 << 10;

/// The events of one run that its surface has not taken yet.
pub(crate) struct Outlet {
    pending: VecDeque<Event>,
    /// Bytes of text in `pending`.
    waiting: usize,
    /// Counted against `cap`.
    shown: u64,
    cap: u64,
    /// What is left of [`RESULTS`].
    results: u64,
    filters: [terminal::Filter; 2],
    kept: Vec<u8>,
    shelf: Option<Shelf>,
    spill_limit: u64,
    /// Text is no longer shown.
    cut: bool,
    spill: Option<Spill>,
    /// Text that could be neither shown nor spilled.
    lost: u64,
    left_out: u64,
    stopping: bool,
    held: Option<Failure>,
    /// The last error that was shown where it came.
    told: Option<Failure>,
    transcript: Watch,
    /// The pictures that were shown.
    pub(super) pictures: Pictures,
}

impl Outlet {
    /// For a run whose cell has shown `shown` of at most `cap` bytes.
    pub(crate) fn new(shown: u64, cap: u64, spill_limit: u64, shelf: Option<Shelf>) -> Self {
        Outlet {
            pending: VecDeque::new(),
            waiting: 0,
            shown,
            cap,
            results: RESULTS,
            filters: [terminal::Filter::new(), terminal::Filter::new()],
            kept: Vec::new(),
            shelf,
            spill_limit,
            cut: false,
            spill: None,
            lost: 0,
            left_out: 0,
            stopping: false,
            held: None,
            told: None,
            transcript: Watch::default(),
            pictures: Pictures::default(),
        }
    }

    /// Somebody looks at what the run shows.
    pub(crate) fn watched(&mut self, watch: Watch) {
        self.transcript = watch;
    }

    /// The run's code is about to run.
    pub(crate) fn begin(&self) {
        self.transcript.begin();
    }

    /// Where spilled text may go: known only once the container is.
    pub(crate) fn set_shelf(&mut self, place: Option<Shelf>) {
        self.shelf = place;
    }

    /// Bytes that the cell has shown so far.
    pub(crate) fn shown(&self) -> u64 {
        self.shown
    }

    /// Bytes that the guest wrote to a stream.
    pub(crate) fn bytes(&mut self, stream: Stream, bytes: &[u8]) {
        let mut text = String::with_capacity(bytes.len());
        self.filters[stream as usize].push_into(bytes, &mut text);
        self.text(stream, text);
    }

    fn text(&mut self, stream: Stream, text: String) {
        if text.is_empty() {
            return;
        }
        self.release();
        self.transcript.record(|all| all.text(stream, &text));
        if self.cut {
            return self.spill(text.into_bytes());
        }
        let mut room = usize::try_from(self.cap.saturating_sub(self.shown)).unwrap_or(usize::MAX);
        if self.stopping {
            room = room.min(AFTER_STOP.saturating_sub(self.waiting));
        }
        if text.len() <= room {
            return self.show(stream, text);
        }
        let mut shown = text;
        let rest = shown.split_off(shown.floor_char_boundary(room));
        self.show(stream, shown);
        self.begin_cut();
        self.spill(rest.into_bytes());
    }

    fn show(&mut self, stream: Stream, text: String) {
        if text.is_empty() {
            return;
        }
        self.shown += text.len() as u64;
        self.waiting += text.len();
        if self.cap <= KEEP {
            self.kept.extend_from_slice(text.as_bytes());
        }
        match self.pending.back_mut() {
            Some(Event::Stream { stream: last, text: before })
                if *last == stream && before.len() + text.len() <= CHUNK =>
            {
                before.push_str(&text);
            }
            _ => {
                self.shown += OVERHEAD;
                self.pending.push_back(Event::Stream { stream, text });
            }
        }
    }

    /// From here on text goes to a file, and the user is told so once.
    fn begin_cut(&mut self) {
        self.cut = true;
        let why = if self.stopping {
            "The code was stopped before all of its output was shown".to_owned()
        } else {
            format!("The output is cut here: a cell shows at most {} (sandbox.output)", size(self.cap))
        };
        let kept = std::mem::take(&mut self.kept);
        let whole = self.cap <= KEEP;
        let told = match self.shelf.as_ref().map(Shelf::create) {
            Some(Ok((file, path))) => {
                let mut spill = Spill::start(file, self.spill_limit);
                spill.write(kept);
                self.spill = Some(spill);
                let what = if whole { "The whole text" } else { "The rest of the text" };
                format!("{why}. {what} is in {path} (up to {}).", size(self.spill_limit))
            }
            Some(Err(e)) => {
                format!("{why}. The rest is lost: no file for it can be made in the workspace ({e}).")
            }
            None => format!("{why}. The rest is lost: there is no workspace to keep it in."),
        };
        self.pending.push_back(Event::Notice(Notice::warning(told)));
    }

    fn spill(&mut self, bytes: Vec<u8>) {
        match &mut self.spill {
            Some(spill) => spill.write(bytes),
            None => self.lost += bytes.len() as u64,
        }
    }

    /// Something rich of about `size` bytes; `false` when the cap leaves it out.
    pub(crate) fn rich(&mut self, event: Event, size: usize) -> bool {
        self.release();
        let cost = size as u64 + OVERHEAD;
        if self.shown + cost > self.cap {
            if !matches!(event, Event::Result { .. }) || cost > self.results {
                self.left_out += 1;
                return false;
            }
            self.results -= cost;
        }
        self.shown += cost;
        if let Event::Result { bundle } | Event::Display { bundle, .. } = &event {
            self.transcript.record(|all| all.result(bundle));
            self.pictures.showed(bundle);
        } else if let Event::Clear { .. } = &event {
            // What is cleared is not there to be seen.
            self.pictures = Pictures::default();
        }
        self.pending.push_back(event);
        true
    }

    pub(crate) fn display(&mut self, bundle: Bundle, id: Option<DisplayId>, update: bool, size: usize) {
        let event = match (id, update) {
            (Some(display_id), true) => Event::UpdateDisplay { bundle, display_id },
            (display_id, _) => Event::Display { bundle, display_id },
        };
        self.rich(event, size);
    }

    /// The kernel's own words always pass.
    pub(crate) fn notice(&mut self, notice: Notice) {
        self.release();
        self.pending.push_back(Event::Notice(notice));
    }

    /// An error that the guest showed. It is held back, for it may be the run's own and then comes last, or
    /// keeps its place before what follows it (figures that are drawn at a cell's end, the advice after `exit`).
    pub(crate) fn error(&mut self, failure: Failure) {
        self.release();
        self.held = Some(failure);
    }

    /// The error held back was not the end: it takes its place before what follows.
    fn release(&mut self) {
        if let Some(failure) = self.held.take() {
            let size: usize = failure.traceback.iter().map(String::len).sum();
            self.transcript.record(|all| all.error(&failure));
            self.shown += size as u64 + OVERHEAD;
            if self.shown > self.cap {
                self.left_out += 1;
            } else {
                self.told = Some(failure.clone());
                self.pending.push_back(Event::Error(failure));
            }
        }
    }

    /// Takes back the error held last, to become the run's own.
    pub(crate) fn take_held(&mut self) -> Option<Failure> {
        self.held.take()
    }

    /// The run was told to stop: what the surface has not taken by now is not worth waiting for.
    pub(crate) fn stopping(&mut self) {
        self.stopping = true;
        if self.waiting <= AFTER_STOP || self.cut {
            return;
        }
        let (mut kept, mut room, mut dropped) = (VecDeque::new(), AFTER_STOP, Vec::new());
        for event in self.pending.drain(..) {
            match event {
                Event::Stream { stream, mut text } => {
                    let rest = text.split_off(text.floor_char_boundary(room));
                    room -= text.len();
                    dropped.extend_from_slice(rest.as_bytes());
                    if !text.is_empty() {
                        kept.push_back(Event::Stream { stream, text });
                    }
                }
                other => kept.push_back(other),
            }
        }
        self.pending = kept;
        self.waiting = AFTER_STOP - room;
        let whole = self.cap <= KEEP;
        self.begin_cut();
        if !whole {
            self.spill(dropped);
        }
    }

    /// Whether an event waits for the surface.
    pub(crate) fn has_events(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The next event.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let event = self.pending.pop_front();
        if let Some(Event::Stream { text, .. }) = &event {
            self.waiting = self.waiting.saturating_sub(text.len());
        }
        event
    }

    /// The file that takes what is not shown, when it is behind: the guest has to wait for it.
    pub(crate) fn busy_spill(&mut self) -> Option<&mut Spill> {
        self.spill.as_mut().filter(|spill| spill.is_behind())
    }

    /// The guest writes no more: what follows is about the run, and comes after all that it showed.
    pub(crate) fn end_of_text(&mut self) {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let text = self.filters[stream as usize].finish();
            self.text(stream, text);
        }
        self.release();
    }

    /// The run is over: its failure comes last, after what the filters held back and a last remark, unless it
    /// was already shown where it came.
    pub(crate) async fn finish(&mut self, failure: Option<&Failure>) -> String {
        self.end_of_text();
        self.close_spill().await;
        if self.left_out > 0 {
            let cap = size(self.cap);
            let what = match self.left_out {
                1 => "1 display was".to_owned(),
                count => format!("{count} displays were"),
            };
            self.notice(Notice::warning(format!(
                "{what} left out: a cell shows at most {cap} (sandbox.output)."
            )));
        }
        if let Some(failure) = failure.filter(|failure| self.told.as_ref() != Some(*failure)) {
            self.transcript.record(|all| all.error(failure));
            self.pending.push_back(Event::Error(failure.clone()));
        }
        self.transcript.finish()
    }

    /// Pictures that it showed, for models that see.
    pub(crate) fn take_pictures(&mut self) -> Vec<Picture> {
        self.transcript.record(Transcript::take_pictures)
    }

    /// Closes the file, and says what it could not take.
    async fn close_spill(&mut self) {
        if let Some(spill) = self.spill.take() {
            let end = spill.finish().await;
            self.lost += end.beyond;
            if let Some(e) = end.error {
                self.notice(Notice::warning(format!(
                    "The file with the rest of the output is incomplete: {e}"
                )));
            }
        }
        if self.lost > 0 {
            let lost = size(std::mem::take(&mut self.lost));
            self.notice(Notice::warning(format!("{lost} of output were neither shown nor kept.")));
        }
    }

    /// Hands over what is left, at the surface's own pace. When `cancel` fires, the user waits no longer for
    /// text that the surface has not taken: it goes to a file, as when the run itself is stopped.
    pub(crate) async fn flush(&mut self, events: &EventSender, cancel: &CancellationToken) {
        while self.has_events() {
            tokio::select! {
                biased;
                () = cancel.cancelled(), if !self.stopping => self.stopped_late().await,
                permit = events.reserve() => match permit {
                    Ok(permit) => if let Some(event) = self.next() {
                        permit.send(event);
                    },
                    Err(_) => self.discard(),
                },
            }
        }
    }

    /// The run is over but its end has not been shown; its failure stays the last event.
    async fn stopped_late(&mut self) {
        let failure = match self.pending.back() {
            Some(Event::Error(_)) => self.pending.pop_back(),
            _ => None,
        };
        self.stopping();
        self.close_spill().await;
        self.pending.extend(failure);
    }

    /// Nobody will ever take the events.
    pub(crate) fn discard(&mut self) {
        self.pending.clear();
        self.waiting = 0;
    }
}

/// An error in the guest's words, bounded and made fit for a front end.
pub(crate) fn guest_failure(ename: &str, evalue: &str, traceback: &[String]) -> Failure {
    let mut room = ERROR_TEXT;
    let mut take = |text: &str| {
        let kept = &text[..text.floor_char_boundary(room)];
        room -= kept.len();
        let mut kept = terminal::filtered(kept);
        if room == 0 {
            kept.push('…');
        }
        kept
    };
    let ename = take(ename.get(..ename.floor_char_boundary(200)).unwrap_or_default());
    let evalue = take(evalue);
    let traceback = traceback.iter().take(5000).map(|line| take(line)).collect();
    Failure { ename, evalue, traceback }
}

/// A size for a person.
#[allow(clippy::cast_precision_loss, reason = "two digits are shown")]
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        1 => "1 byte".to_owned(),
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{:.0} kB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.0} MB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GB", bytes as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
