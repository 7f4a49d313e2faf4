//! From what a run shows to what its front end sees: every [`Event`] becomes messages, with no `_` arm.
//!
//! May import `event`. Pure: the clock is a parameter, so throttling is tested without waiting. What is
//! held back (a growing reply, progress) names its time in [`Presenter::due`].

use std::time::Instant;

use crate::event::{Answer, Event, Failure};

use super::answer::Answers;
use super::broadcast::Broadcast;
use super::notice::{Notices, Style};

/// How one run is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    /// Whether replies are displays that are updated in place.
    pub(crate) updates: bool,
    /// How remarks are shown.
    pub(crate) style: Style,
    /// No results and no informal remarks.
    pub(crate) silent: bool,
    /// The cell's execution count.
    pub(crate) count: u32,
}

/// Shows one run.
#[derive(Debug)]
pub(crate) struct Presenter {
    manner: Manner,
    answers: Answers,
    notices: Notices,
    failed: bool,
    result: Option<String>,
}

impl Presenter {
    /// Nothing was shown yet.
    pub(crate) fn new(manner: Manner) -> Self {
        let style = if manner.silent { Style::DropIn } else { manner.style };
        Presenter {
            manner,
            answers: Answers::new(manner.updates, style),
            notices: Notices::new(style),
            failed: false,
            result: None,
        }
    }

    /// Takes what happened; returns what is to be shown now.
    pub(crate) fn take(&mut self, event: Event, now: Instant) -> Vec<Broadcast> {
        let of_notices = matches!(event, Event::Notice(_));
        let shown = self.translate(event, now);
        if !of_notices && !shown.is_empty() {
            self.notices.passed();
        }
        shown
    }

    fn translate(&mut self, event: Event, now: Instant) -> Vec<Broadcast> {
        match event {
            Event::Stream { text, .. } if text.is_empty() => Vec::new(),
            Event::Stream { stream, text } => vec![Broadcast::Stream { stream, text }],
            Event::Display { bundle, display_id: id } => vec![Broadcast::Display { bundle, id }],
            Event::UpdateDisplay { bundle, display_id: id } => vec![Broadcast::Update { bundle, id }],
            Event::Result { .. } if self.manner.silent => Vec::new(),
            Event::Result { bundle } => {
                self.result =
                    bundle.data().get("text/plain").and_then(|text| text.as_str()).map(str::to_owned);
                vec![Broadcast::Result { bundle, count: self.manner.count }]
            }
            Event::Error(failure) => {
                self.failed = true;
                self.answers.failed();
                vec![Broadcast::Error(failure)]
            }
            Event::Clear { wait } => vec![Broadcast::Clear { wait }],
            Event::Notice(notice) => self.notices.take(notice, now),
            Event::Answer(answer) => {
                let started = match &answer {
                    Answer::Start { id, .. } => Some(id.clone()),
                    Answer::Text { .. }
                    | Answer::Instead { .. }
                    | Answer::Reasoning { .. }
                    | Answer::End { .. } => None,
                };
                let shown = self.answers.take(answer, now);
                if let Some(id) = started
                    && let Some(free) = self.notices.take_free()
                {
                    self.answers.adopt(&id, free);
                }
                shown
            }
        }
    }

    /// When [`Presenter::tick`] has something to show.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.answers.due().into_iter().chain(self.notices.due()).min()
    }

    /// Shows what has become due.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Broadcast> {
        let mut shown = self.answers.tick(now);
        shown.extend(self.notices.tick(now));
        shown
    }

    /// The run is over: shows what was held back, and its failure if nobody did.
    pub(crate) fn finish(&mut self, failure: Option<&Failure>) -> Vec<Broadcast> {
        if failure.is_some() {
            self.answers.failed();
        }
        let mut shown = self.answers.finish();
        shown.extend(self.notices.finish());
        if let Some(failure) = failure
            && !self.failed
        {
            shown.push(Broadcast::Error(failure.clone()));
        }
        shown
    }

    /// The text of the last result, for the history.
    pub(crate) fn into_result(self) -> Option<String> {
        self.result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Bundle, Notice, Stream};

    fn presenter(silent: bool) -> Presenter {
        Presenter::new(Manner { updates: true, style: Style::InPlace, silent, count: 7 })
    }

    #[test]
    fn a_result_carries_the_count_and_is_remembered() {
        let mut presenter = presenter(false);
        let bundle = Bundle::text("42");
        let shown = presenter.take(Event::Result { bundle: bundle.clone() }, Instant::now());
        assert_eq!(shown, [Broadcast::Result { bundle, count: 7 }]);
        assert_eq!(presenter.into_result().as_deref(), Some("42"));
    }

    #[test]
    fn a_silent_run_shows_output_and_errors_but_neither_results_nor_remarks() {
        let (mut presenter, now) = (presenter(true), Instant::now());
        assert_eq!(presenter.take(Event::Result { bundle: Bundle::text("42") }, now), []);
        assert_eq!(presenter.take(Event::Notice(Notice::info("ready")), now), []);
        let text = Event::Stream { stream: Stream::Stdout, text: "hi".into() };
        assert_eq!(presenter.take(text, now), [Broadcast::text(Stream::Stdout, "hi")]);
        assert_eq!(
            presenter.take(Event::Error(Failure::default()), now),
            [Broadcast::Error(Failure::default())]
        );
    }

    #[test]
    fn a_failure_is_shown_once_whether_or_not_the_engine_sent_it() {
        let failure = Failure::new("Oops", "it broke");
        let mut told = presenter(false);
        assert_eq!(told.take(Event::Error(failure.clone()), Instant::now()).len(), 1);
        assert_eq!(told.finish(Some(&failure)), []);
        assert_eq!(presenter(false).finish(Some(&failure)), [Broadcast::Error(failure)]);
    }

    #[test]
    fn an_empty_text_is_no_message() {
        let text = Event::Stream { stream: Stream::Stdout, text: String::new() };
        assert_eq!(presenter(false).take(text, Instant::now()), []);
    }
}
