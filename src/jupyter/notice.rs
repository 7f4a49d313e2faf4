//! How the kernel's own remarks are shown.
//!
//! May import `event`. What a remark becomes depends on the front end and on the kernelspec:
//!
//! | | in place (`cellblock`, notebooks) | lines (`cellblock`, consoles) | drop-in (`cellblock-python`) |
//! | --- | --- | --- | --- |
//! | warning | quiet display, warning colour | line on stderr | line on stderr |
//! | info | quiet display | line on stderr | log only |
//! | error | quiet display, red | line on stderr | line on stderr |
//! | progress | one display for all of it, updated, emptied at its end | now and then a line on stderr | the same |
//! | ticking | in the same display | nothing | nothing |
//! | its last state, which stays | in the same display | line on stderr | by its level |
//!
//! A display that was emptied is taken over by what is shown next (more progress, a reply), so that no empty output
//! stays in the notebook.
//!
//! Progress that is over before anybody could read it is not shown at all, so a sandbox that starts
//! at once leaves no trace in a notebook. The texts may quote the guest: HTML is escaped and terminal
//! sequences are filtered here.

use std::time::{Duration, Instant};

use crate::event::terminal::Filter;
use crate::event::{Bundle, DisplayId, Level, Notice, Phase, Stream};

use super::broadcast::Broadcast;

/// How remarks are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// As displays that are updated in place.
    InPlace,
    /// As lines on stderr.
    Lines,
    /// As lines on stderr, and only what the user must know.
    DropIn,
}

impl Style {
    /// How long progress must last to be worth showing.
    fn patience(self) -> Duration {
        match self {
            Style::InPlace => Duration::from_millis(400),
            Style::Lines => Duration::from_secs(1),
            // Longer than a sandbox takes to start on a busy machine: a drop-in notebook stays as it was.
            Style::DropIn => Duration::from_secs(2),
        }
    }

    /// The least time between two states of one progress.
    fn interval(self) -> Duration {
        match self {
            Style::InPlace => Duration::from_millis(100),
            Style::Lines | Style::DropIn => Duration::from_secs(5),
        }
    }
}

/// Shows the remarks of one run.
#[derive(Debug)]
pub(crate) struct Notices {
    style: Style,
    progress: Vec<Progress>,
    /// The one display in which all progress is shown.
    board: Option<Board>,
}

/// One line of progress.
#[derive(Debug)]
struct Progress {
    id: DisplayId,
    text: String,
    /// What was last shown of it, as a line.
    shown: Option<String>,
    due: Instant,
}

/// A display that is updated. When it is empty it can be taken over by what is shown next.
#[derive(Debug)]
struct Board {
    id: DisplayId,
    shown: String,
    due: Instant,
}

impl Notices {
    /// Nothing was said yet.
    pub(crate) fn new(style: Style) -> Self {
        Notices { style, progress: Vec::new(), board: None }
    }

    /// Takes a remark; returns what is to be shown now.
    pub(crate) fn take(&mut self, notice: Notice, now: Instant) -> Vec<Broadcast> {
        let Notice { level, progress, phase, text } = notice;
        match (progress, phase) {
            (None, _) => {
                self.passed();
                remark(self.style, level, &text).into_iter().collect()
            }
            (Some(id), Phase::Settled) => self.settle(&id, level, &text),
            (Some(id), _) if text.is_empty() => self.end(&id, now),
            // Lines that can't be replaced would only repeat the time.
            (Some(_), Phase::Ticking) if self.style != Style::InPlace => Vec::new(),
            (Some(id), Phase::Passing | Phase::Ticking) => self.line(id, text, now),
        }
    }

    /// When [`Notices::tick`] has something to show.
    pub(crate) fn due(&self) -> Option<Instant> {
        let lines = self.progress.iter();
        match self.style {
            Style::Lines | Style::DropIn => lines.filter(|line| line.pending()).map(|line| line.due).min(),
            Style::InPlace => {
                let shown = self.board.as_ref().map_or("", |board| board.shown.as_str());
                let change = lines.clone().map(|line| line.due).min()?;
                let whole = lines.map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n");
                (whole != shown).then(|| self.board.as_ref().map_or(change, |board| board.due.max(change)))
            }
        }
    }

    /// Shows what has become due.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Broadcast> {
        if self.style == Style::InPlace {
            return self.refresh(now).into_iter().collect();
        }
        let style = self.style;
        self.progress
            .iter_mut()
            .filter(|line| line.pending() && line.due <= now)
            .map(|progress| progress.show(style, now))
            .collect()
    }

    /// The run is over: no progress stays.
    pub(crate) fn finish(&mut self) -> Vec<Broadcast> {
        self.progress.clear();
        self.emptied().into_iter().collect()
    }

    /// Something else was shown: an empty display stands before it now, and is no place for what comes.
    pub(crate) fn passed(&mut self) {
        self.board.take_if(|board| board.shown.is_empty());
    }

    /// A display that shows nothing any more, for what is shown next.
    pub(crate) fn take_free(&mut self) -> Option<DisplayId> {
        self.board.take_if(|board| board.shown.is_empty()).map(|board| board.id)
    }

    fn line(&mut self, id: DisplayId, text: String, now: Instant) -> Vec<Broadcast> {
        match self.progress.iter_mut().find(|line| line.id == id) {
            Some(line) => line.text = text,
            None => self.progress.push(Progress { id, text, shown: None, due: now + self.style.patience() }),
        }
        self.tick(now)
    }

    fn end(&mut self, id: &DisplayId, now: Instant) -> Vec<Broadcast> {
        self.progress.retain(|line| line.id != *id);
        let shown = if self.progress.is_empty() { self.emptied() } else { self.refresh(now) };
        shown.into_iter().collect()
    }

    fn settle(&mut self, id: &DisplayId, level: Level, text: &str) -> Vec<Broadcast> {
        self.progress.retain(|line| line.id != *id);
        match self.board.take() {
            Some(board) => vec![Broadcast::Update { bundle: html(text, level), id: board.id }],
            None => remark(self.style, level, text).into_iter().collect(),
        }
    }

    /// Brings the display up to date, not too often.
    fn refresh(&mut self, now: Instant) -> Option<Broadcast> {
        if self.style != Style::InPlace {
            return None;
        }
        let lines = self.progress.iter().filter(|line| line.due <= now);
        let text = lines.map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n");
        let due = now + self.style.interval();
        match &mut self.board {
            _ if text.is_empty() => None,
            Some(board) if board.shown == text || board.due > now => None,
            Some(board) => {
                (board.shown, board.due) = (text, due);
                Some(Broadcast::Update { bundle: html(&board.shown, Level::Info), id: board.id.clone() })
            }
            None => {
                let (bundle, id) = (html(&text, Level::Info), DisplayId::host());
                self.board = Some(Board { id: id.clone(), shown: text, due });
                Some(Broadcast::Display { bundle, id: Some(id) })
            }
        }
    }

    /// Takes the text away where that is possible.
    fn emptied(&mut self) -> Option<Broadcast> {
        let board = self.board.as_mut().filter(|board| !board.shown.is_empty())?;
        board.shown.clear();
        Some(Broadcast::Update { bundle: Bundle::trusted_html("", ""), id: board.id.clone() })
    }
}

impl Progress {
    fn pending(&self) -> bool {
        self.shown.as_ref() != Some(&self.text)
    }

    fn show(&mut self, style: Style, now: Instant) -> Broadcast {
        self.shown = Some(self.text.clone());
        self.due = now + style.interval();
        line(&self.text)
    }
}

/// A remark that stays; `None` when it only goes to the log.
pub(crate) fn remark(style: Style, level: Level, text: &str) -> Option<Broadcast> {
    match (style, level) {
        (Style::DropIn, Level::Info) => {
            tracing::info!("{text}");
            None
        }
        (Style::DropIn | Style::Lines, _) => Some(line(text)),
        (Style::InPlace, level) => Some(Broadcast::Display { bundle: html(text, level), id: None }),
    }
}

/// A line on stderr; what the text quotes may not drive the terminal.
fn line(text: &str) -> Broadcast {
    let mut filter = Filter::new();
    let mut safe = filter.push(text.trim_end().as_bytes());
    safe.push_str(&filter.finish());
    safe.push('\n');
    Broadcast::text(Stream::Stderr, safe)
}

/// A remark in the front end's own colours, dark themes included. The text is escaped, so that this
/// HTML is ours alone and needs no sanitising (which would take its style away).
fn html(text: &str, level: Level) -> Bundle {
    let colour = match level {
        Level::Info => "var(--jp-ui-font-color2, gray)",
        Level::Warning => "var(--jp-warn-color0, #b25000)",
        Level::Error => "var(--jp-error-color1, #d32f2f)",
    };
    let text = text.trim_end();
    let html = format!("<div style=\"color: {colour}; white-space: pre-wrap\">{}</div>", escape(text));
    Bundle::trusted_html(html, text)
}

/// Makes text mean itself in HTML, in element content and in quoted attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(50);

    /// A minute of progress that changes all the time, then its end.
    fn minute(style: Style) -> Vec<Broadcast> {
        let (mut notices, mut now, id) = (Notices::new(style), Instant::now(), DisplayId::host());
        let mut shown = Vec::new();
        for step in 0..1200 {
            now += STEP;
            shown.extend(notices.take(Notice::progress(&id, format!("pulling {step}")), now));
        }
        shown.extend(notices.take(Notice::progress(&id, ""), now));
        assert!(notices.due().is_none() && notices.finish().is_empty());
        shown
    }

    #[test]
    fn progress_is_one_display_that_is_emptied_at_its_end() {
        let shown = minute(Style::InPlace);
        assert!(shown.len() < 620, "{} messages a minute", shown.len());
        let Some((Broadcast::Display { id: Some(first), .. }, updates)) = shown.split_first() else {
            panic!("{:?}", shown.first())
        };
        for update in updates {
            assert!(matches!(update, Broadcast::Update { id, .. } if id == first), "{update:?}");
        }
        let Some(Broadcast::Update { bundle, .. }) = shown.last() else { panic!("no end") };
        let data = bundle.data();
        assert_eq!(data["text/plain"], "");
        assert_eq!(data["text/html"], "");
    }

    #[test]
    fn progress_in_lines_is_no_spam() {
        for style in [Style::Lines, Style::DropIn] {
            let shown = minute(style);
            assert!((10..=13).contains(&shown.len()), "{} lines a minute", shown.len());
            assert!(shown.iter().all(|s| matches!(s, Broadcast::Stream { stream: Stream::Stderr, .. })));
        }
    }

    #[test]
    fn progress_that_is_over_at_once_is_never_shown() {
        for style in [Style::InPlace, Style::Lines, Style::DropIn] {
            let (mut notices, now, id) = (Notices::new(style), Instant::now(), DisplayId::host());
            assert_eq!(notices.take(Notice::progress(&id, "starting"), now), []);
            assert!(notices.due().is_some());
            assert_eq!(notices.take(Notice::progress(&id, ""), now + STEP), []);
            assert_eq!(notices.due(), None);
        }
    }

    #[test]
    fn progress_that_says_nothing_new_is_shown_when_due_without_another_notice() {
        let (mut notices, now, id) = (Notices::new(Style::InPlace), Instant::now(), DisplayId::host());
        notices.take(Notice::progress(&id, "building"), now);
        let due = notices.due();
        assert!(due.is_some_and(|due| due > now));
        assert_eq!(notices.tick(now), []);
        assert_eq!(notices.tick(now + Duration::from_secs(2)).len(), 1);
        assert_eq!(notices.due(), None);
    }

    #[test]
    fn the_last_state_stays_in_the_display_in_which_time_passed() {
        let (mut notices, now, id) = (Notices::new(Style::InPlace), Instant::now(), DisplayId::host());
        let other = DisplayId::host();
        notices.take(Notice::progress(&other, "pulling"), now);
        notices.take(Notice::ticking(&id, "0 s"), now);
        let later = now + Duration::from_secs(1);
        let shown = notices.tick(later);
        let [Broadcast::Display { id: Some(board), bundle }] = shown.as_slice() else { panic!("{shown:?}") };
        assert_eq!(bundle.data()["text/plain"], "pulling\n0 s", "one display for all");
        notices.take(Notice::progress(&other, ""), later + STEP);
        let shown = notices.take(Notice::settled(&id, Level::Error, "exit 1"), later + STEP);
        let [Broadcast::Update { id, bundle }] = shown.as_slice() else { panic!("{shown:?}") };
        assert!(id == board && bundle.data()["text/plain"] == "exit 1");
        assert_eq!((notices.finish(), notices.due()), (Vec::new(), None));
    }

    #[test]
    fn time_that_passes_is_nothing_for_lines_but_the_end_is() {
        let (mut notices, now, id) = (Notices::new(Style::Lines), Instant::now(), DisplayId::host());
        assert_eq!(notices.take(Notice::ticking(&id, "9 s"), now), []);
        assert_eq!(notices.tick(now + Duration::from_mins(1)), []);
        let shown = notices.take(Notice::settled(&id, Level::Info, "10 s"), now);
        assert_eq!(shown, [Broadcast::text(Stream::Stderr, "10 s\n")]);
    }

    #[test]
    fn an_emptied_display_is_taken_over_unless_something_stands_behind_it() {
        for something in [false, true] {
            let (mut notices, now, id) = (Notices::new(Style::InPlace), Instant::now(), DisplayId::host());
            notices.take(Notice::progress(&id, "loading"), now);
            assert_eq!(notices.tick(now + Duration::from_secs(1)).len(), 1);
            assert!(notices.take_free().is_none(), "it shows something");
            notices.take(Notice::progress(&id, ""), now);
            if something {
                notices.passed();
            }
            assert_eq!(notices.take_free().is_none(), something);
        }
    }

    #[test]
    fn a_drop_in_kernel_shows_warnings_only() {
        let mut notices = Notices::new(Style::DropIn);
        assert_eq!(notices.take(Notice::info("ready"), Instant::now()), []);
        let shown = notices.take(Notice::warning("output was cut"), Instant::now());
        assert_eq!(shown, [Broadcast::text(Stream::Stderr, "output was cut\n")]);
    }

    #[test]
    fn what_a_remark_quotes_is_escaped() {
        let shown = remark(Style::InPlace, Level::Warning, "<img src=x onerror='a()'> & \"b\"");
        let Some(Broadcast::Display { bundle, .. }) = shown else { panic!("{shown:?}") };
        let data = bundle.data();
        let html = data["text/html"].as_str().unwrap_or_default();
        assert!(html.contains("&lt;img src=x onerror=&#39;a()&#39;&gt; &amp; &quot;b&quot;"), "{html}");
        assert_eq!(data["text/plain"], "<img src=x onerror='a()'> & \"b\"");
    }
}
