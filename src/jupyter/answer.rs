//! A model's reply while it grows.
//!
//! May import `event`. In a front end that can update displays a reply is one Markdown display, replaced
//! at most ten times a second: each update carries the whole text, so longer replies are updated
//! less often. Elsewhere it is `stream` text as it arrives. Reasoning is shown collapsed (dimmed in a
//! stream). Either way the final state is exact, and an ending before the end is said.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::event::terminal::Filter;
use crate::event::{Answer, Bundle, DisplayId, Ending, Level, Stream, Usage};

use super::broadcast::Broadcast;
use super::notice::{self, Style};

/// The least time between two updates of a short reply.
const INTERVAL: Duration = Duration::from_millis(100);
/// Each so many bytes of text make updates rarer by one [`INTERVAL`].
const STRETCH: usize = 32 << 10;

const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// The replies of one run.
#[derive(Debug)]
pub(crate) struct Answers {
    /// Whether displays can be updated.
    updates: bool,
    /// How endings are remarked on.
    style: Style,
    open: Vec<Growing>,
    /// That a reply ended early; left out when an error says so anyway.
    early: Vec<Broadcast>,
}

/// One reply.
#[derive(Debug)]
struct Growing {
    id: DisplayId,
    /// Where it is shown.
    display: DisplayId,
    model: String,
    text: String,
    reasoning: String,
    shown: bool,
    changed: bool,
    due: Instant,
    line: Line,
}

/// The state of a reply that is shown as stream text.
#[derive(Debug, Default)]
struct Line {
    filter: Filter,
    dimmed: bool,
    /// Whether the last thing shown ended its line.
    ended: bool,
}

impl Answers {
    /// No reply yet.
    pub(crate) fn new(updates: bool, style: Style) -> Self {
        Answers { updates, style, open: Vec::new(), early: Vec::new() }
    }

    /// Takes a part of a reply; returns what is to be shown now.
    pub(crate) fn take(&mut self, answer: Answer, now: Instant) -> Vec<Broadcast> {
        match answer {
            Answer::Start { id, model } => {
                self.reply(&id, now).model = model;
                std::mem::take(&mut self.early)
            }
            Answer::Text { id, delta } => self.grow(&id, &delta, false, now),
            Answer::Instead { id, old, new, added } => self.replace(&id, &old, &new, &added, now),
            Answer::Reasoning { id, delta } => self.grow(&id, &delta, true, now),
            Answer::End { id, ending, usage } => self.end(&id, &ending, Some(&usage)),
        }
    }

    /// When [`Answers::tick`] has something to show.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.open.iter().filter(|reply| reply.changed).map(|reply| reply.due).min()
    }

    /// Shows what has become due.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Broadcast> {
        self.open
            .iter_mut()
            .filter(|reply| reply.changed && reply.due <= now)
            .map(|reply| reply.show(now))
            .collect()
    }

    /// The run is over: replies that never ended were cut off.
    pub(crate) fn finish(&mut self) -> Vec<Broadcast> {
        let cut = Ending::Cut("the run ended before the reply did".to_owned());
        let ids: Vec<_> = self.open.iter().map(|reply| reply.id.clone()).collect();
        let mut shown: Vec<_> = ids.iter().flat_map(|id| self.end(id, &cut, None)).collect();
        shown.append(&mut self.early);
        shown
    }

    /// An error was shown, which says how the reply before it ended.
    pub(crate) fn failed(&mut self) {
        self.early.clear();
    }

    /// The reply takes over a display that shows nothing any more.
    pub(crate) fn adopt(&mut self, id: &DisplayId, display: DisplayId) {
        if let Some(reply) = self.open.iter_mut().find(|reply| reply.id == *id)
            && !reply.shown
        {
            (reply.display, reply.shown) = (display, true);
        }
    }

    /// The reply of that name; made when it was never announced, so that no text is lost.
    fn reply(&mut self, id: &DisplayId, now: Instant) -> &mut Growing {
        let place = self.open.iter().position(|reply| reply.id == *id).unwrap_or_else(|| {
            self.open.push(Growing::new(id.clone(), now));
            self.open.len() - 1
        });
        &mut self.open[place]
    }

    fn grow(&mut self, id: &DisplayId, delta: &str, reasoning: bool, now: Instant) -> Vec<Broadcast> {
        let updates = self.updates;
        let reply = self.reply(id, now);
        if delta.is_empty() {
            return Vec::new();
        }
        if !updates {
            return reply.line.push(delta, reasoning).into_iter().collect();
        }
        if reasoning { &mut reply.reasoning } else { &mut reply.text }.push_str(delta);
        reply.changed = true;
        self.tick(now)
    }

    /// The end of the text is another. A stream can only be added to, and so is a text that goes on behind `old`.
    fn replace(&mut self, id: &DisplayId, old: &str, new: &str, added: &str, now: Instant) -> Vec<Broadcast> {
        let reply = self.reply(id, now);
        match reply.text.strip_suffix(old).map(str::len) {
            Some(kept) if !old.is_empty() => {
                reply.text.truncate(kept);
                self.grow(id, new, false, now)
            }
            _ => self.grow(id, added, false, now),
        }
    }

    fn end(&mut self, id: &DisplayId, ending: &Ending, usage: Option<&Usage>) -> Vec<Broadcast> {
        let Some(place) = self.open.iter().position(|reply| reply.id == *id) else { return Vec::new() };
        let reply = self.open.remove(place);
        let shown =
            if self.updates { reply.last(ending, usage).into_iter().collect() } else { reply.line.finish() };
        let said = match ending {
            Ending::Complete => None,
            Ending::Interrupted => Some("The reply was interrupted.".to_owned()),
            Ending::Cut(why) => {
                Some(format!("The reply was cut off: {why}.", why = why.trim_end_matches('.')))
            }
        };
        if let Some(said) = said {
            self.early.extend(notice::remark(self.style, Level::Warning, &said));
        }
        shown
    }
}

impl Growing {
    fn new(id: DisplayId, now: Instant) -> Self {
        Growing {
            display: id.clone(),
            id,
            model: String::new(),
            text: String::new(),
            reasoning: String::new(),
            shown: false,
            changed: false,
            due: now,
            line: Line { ended: true, ..Line::default() },
        }
    }

    fn show(&mut self, now: Instant) -> Broadcast {
        let length = self.text.len() + self.reasoning.len();
        let stretch = u32::try_from(length / STRETCH).unwrap_or(u32::MAX).saturating_add(1);
        self.due = now + INTERVAL.saturating_mul(stretch);
        self.changed = false;
        self.display(None)
    }

    /// The final state; nothing when the reply is complete and empty, as it is before a tool call.
    fn last(mut self, ending: &Ending, usage: Option<&Usage>) -> Option<Broadcast> {
        let empty = self.text.is_empty() && self.reasoning.is_empty();
        let metadata = metadata(&self.model, ending, usage);
        (!empty).then(|| self.display(Some(metadata)))
    }

    /// The reply as it is now; `own` is saved with the output.
    fn display(&mut self, own: Option<Value>) -> Broadcast {
        let mut data = Map::new();
        data.insert("text/markdown".into(), self.markdown().into());
        data.insert("text/plain".into(), self.text.clone().into());
        let mut bundle = Bundle::sanitised(data, Map::new());
        if let Some(own) = own {
            bundle = bundle.with_metadata("cellblock", own);
        }
        let id = self.display.clone();
        if std::mem::replace(&mut self.shown, true) {
            Broadcast::Update { bundle, id }
        } else {
            Broadcast::Display { bundle, id: Some(id) }
        }
    }

    /// The text, after its collapsed reasoning.
    fn markdown(&self) -> String {
        if self.reasoning.is_empty() {
            return self.text.clone();
        }
        let reasoning = inert(self.reasoning.trim());
        format!("<details><summary>Reasoning</summary>\n\n{reasoning}\n\n</details>\n\n{}", self.text)
    }
}

/// Text that shows as itself within Markdown: neither an open fence nor a closing tag in the reasoning
/// reaches the reply behind it.
fn inert(text: &str) -> String {
    let mut inert = String::with_capacity(text.len() + text.len() / 2);
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            // Also for empty lines, which would end the paragraph.
            inert.push_str("<br>\n");
        }
        let indented = line.len() - line.trim_start().len();
        for (at, c) in line.char_indices() {
            if at < indented {
                inert.push_str("&nbsp;");
            } else if c.is_ascii_punctuation() {
                // Writing to a string does not fail.
                let _ = write!(inert, "&#{};", u32::from(c));
            } else {
                inert.push(c);
            }
        }
    }
    inert
}

impl Line {
    fn push(&mut self, delta: &str, reasoning: bool) -> Option<Broadcast> {
        let mut text = String::new();
        if reasoning != self.dimmed {
            text.push_str(&self.filter.finish());
            text.push_str(if reasoning { DIM } else { PLAIN });
            if !reasoning {
                text.push_str("\n\n");
            }
            self.dimmed = reasoning;
        }
        text.push_str(&self.filter.push(delta.as_bytes()));
        if text.is_empty() {
            return None;
        }
        self.ended = text.ends_with('\n');
        Some(Broadcast::text(Stream::Stdout, text))
    }

    fn finish(mut self) -> Vec<Broadcast> {
        let mut text = self.filter.finish();
        if self.dimmed {
            text.push_str(PLAIN);
        }
        if !self.ended || !text.is_empty() {
            text.push('\n');
        }
        if text.is_empty() { Vec::new() } else { vec![Broadcast::text(Stream::Stdout, text)] }
    }
}

/// What is saved with the finished output.
fn metadata(model: &str, ending: &Ending, usage: Option<&Usage>) -> Value {
    let ending = match ending {
        Ending::Complete => "complete",
        Ending::Interrupted => "interrupted",
        Ending::Cut(_) => "cut",
    };
    let mut own = Map::from_iter([("model".to_owned(), model.into()), ("ending".to_owned(), ending.into())]);
    if let Some(usage) = usage {
        own.insert(
            "usage".into(),
            json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}),
        );
        own.insert("duration_s".into(), seconds(usage.duration).into());
        own.insert("first_token_s".into(), usage.first_token.map(seconds).into());
    }
    own.into()
}

/// Seconds to the millisecond.
fn seconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e3).round() / 1e3
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::*;

    fn text(id: &DisplayId, delta: &str) -> Answer {
        Answer::Text { id: id.clone(), delta: delta.into() }
    }

    fn end(id: &DisplayId, ending: Ending) -> Answer {
        let usage = Usage {
            input_tokens: Some(12),
            output_tokens: Some(34),
            duration: Duration::from_millis(1234),
            first_token: Some(Duration::from_millis(200)),
            ..Usage::default()
        };
        Answer::End { id: id.clone(), ending, usage }
    }

    fn markdown(shown: &Broadcast) -> &str {
        match shown {
            Broadcast::Display { bundle, .. } | Broadcast::Update { bundle, .. } => {
                bundle.data()["text/markdown"].as_str().unwrap_or_default()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_fast_reply_is_updated_about_twelve_times_a_second_and_ends_exactly() {
        let (mut answers, start, id) =
            (Answers::new(true, Style::InPlace), Instant::now(), DisplayId::host());
        answers.take(Answer::Start { id: id.clone(), model: "openai/x".into() }, start);
        let (mut shown, mut whole) = (Vec::new(), String::new());
        for step in 0..2_000 {
            let delta = format!("w{step} ");
            whole.push_str(&delta);
            shown.extend(answers.take(text(&id, &delta), start + Duration::from_millis(step)));
        }
        assert!((15..=25).contains(&shown.len()), "{} messages in two seconds", shown.len());
        assert!(matches!(&shown[0], Broadcast::Display { id: Some(name), .. } if *name == id));
        assert_eq!(markdown(&shown[0]), "w0 ", "the first word is shown at once");
        let last = answers.take(end(&id, Ending::Complete), start + Duration::from_secs(2));
        let [Broadcast::Update { bundle, id: name }] = last.as_slice() else { panic!("{last:?}") };
        assert_eq!(
            (bundle.data()["text/markdown"].as_str(), bundle.data()["text/plain"].as_str()),
            (Some(&*whole), Some(&*whole))
        );
        assert_eq!(*name, id);
        assert_eq!(
            Value::Object(bundle.metadata().clone()),
            json!({"cellblock": {
                "model": "openai/x", "ending": "complete", "duration_s": 1.234, "first_token_s": 0.2,
                "usage": {"input_tokens": 12, "output_tokens": 34},
            }})
        );
        assert_eq!(answers.due(), None);
    }

    #[test]
    fn what_was_held_back_is_shown_when_the_model_pauses() {
        let (mut answers, now, id) = (Answers::new(true, Style::InPlace), Instant::now(), DisplayId::host());
        answers.take(text(&id, "a"), now);
        assert_eq!(answers.due(), None);
        assert_eq!(answers.take(text(&id, "b"), now), []);
        let due = answers.due();
        assert_eq!(due, Some(now + INTERVAL));
        assert_eq!(answers.tick(now), []);
        assert_eq!(answers.tick(now + INTERVAL).iter().map(markdown).collect::<Vec<_>>(), ["ab"]);
    }

    #[test]
    fn a_long_reply_is_updated_less_often() {
        let (mut answers, start, id) =
            (Answers::new(true, Style::InPlace), Instant::now(), DisplayId::host());
        let mut bytes = 0;
        for step in 0..1_000 {
            let shown =
                answers.take(text(&id, &"word ".repeat(200)), start + Duration::from_millis(step * 10));
            bytes += shown.iter().map(|s| markdown(s).len()).sum::<usize>();
        }
        assert!(bytes < 20_000_000, "{bytes} bytes of updates for a reply of one million in ten seconds");
    }

    #[test]
    fn reasoning_is_collapsed_and_cannot_reach_the_reply() {
        let (mut answers, now, id) = (Answers::new(true, Style::InPlace), Instant::now(), DisplayId::host());
        answers
            .take(Answer::Reasoning { id: id.clone(), delta: "</details>\n\n```python\n1 < 2".into() }, now);
        answers.take(text(&id, "Yes."), now);
        let shown = answers.take(end(&id, Ending::Complete), now);
        let markdown = markdown(&shown[0]);
        let (reasoning, reply) = markdown.rsplit_once("</details>").unwrap_or_default();
        assert_eq!(reply, "\n\nYes.");
        let lines = reasoning.strip_prefix("<details><summary>Reasoning</summary>\n\n").unwrap_or_default();
        let shown_lines = lines.trim_end().replace("<br>\n", "\n");
        assert!(!shown_lines.contains(['<', '`', '>']), "{markdown}");
        assert!(shown_lines.contains("details&") && shown_lines.contains("python\n1 &"), "{markdown}");
        let Broadcast::Update { bundle, .. } = &shown[0] else { panic!("{shown:?}") };
        let data = bundle.data();
        assert_eq!(data["text/plain"], "Yes.");
    }

    #[test]
    fn without_updates_a_reply_is_stream_text_and_ends_its_line() {
        let (mut answers, now, id) = (Answers::new(false, Style::Lines), Instant::now(), DisplayId::host());
        let mut shown = answers.take(Answer::Start { id: id.clone(), model: "m".into() }, now);
        shown.extend(answers.take(Answer::Reasoning { id: id.clone(), delta: "hm".into() }, now));
        shown.extend(answers.take(text(&id, "Hello "), now));
        shown.extend(answers.take(text(&id, "world"), now));
        shown.extend(answers.take(end(&id, Ending::Complete), now));
        let stdout: String = shown
            .iter()
            .map(|s| match s {
                Broadcast::Stream { stream: Stream::Stdout, text } => text.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(stdout, "\x1b[2mhm\x1b[0m\n\nHello world\n");
    }

    #[test]
    fn what_turned_out_to_be_another_is_replaced_or_where_it_cannot_be_added_to() {
        for (updates, expected) in
            [(true, "So: ````rust\nx\n````\n"), (false, "So: ````python\nx\n````\nIt is rust.\n")]
        {
            let (mut answers, now, id) =
                (Answers::new(updates, Style::InPlace), Instant::now(), DisplayId::host());
            let mut shown = answers.take(text(&id, "So: "), now);
            shown.extend(answers.take(text(&id, "````python\nx"), now));
            let instead = Answer::Instead {
                id: id.clone(),
                old: "````python\nx".into(),
                new: "````rust\nx\n````\n".into(),
                added: "\n````\nIt is rust.\n".into(),
            };
            shown.extend(answers.take(instead, now));
            shown.extend(answers.take(end(&id, Ending::Complete), now));
            let stands = shown.iter().fold(String::new(), |stands, shown| match shown {
                Broadcast::Stream { text, .. } => stands + text,
                display => markdown(display).to_owned(),
            });
            assert_eq!(stands, expected);
        }
    }

    #[test]
    fn an_early_end_is_said_and_the_text_stays() {
        for (ending, said) in [
            (Ending::Interrupted, "The reply was interrupted."),
            (
                Ending::Cut("the server closed the stream.".into()),
                "The reply was cut off: the server closed the stream.",
            ),
        ] {
            for updates in [true, false] {
                let style = if updates { Style::InPlace } else { Style::Lines };
                let (mut answers, now, id) =
                    (Answers::new(updates, style), Instant::now(), DisplayId::host());
                let mut shown = answers.take(text(&id, "Half a sen"), now);
                shown.extend(answers.take(end(&id, ending.clone()), now));
                shown.extend(answers.finish());
                let all = format!("{shown:?}");
                assert!(all.contains("Half a sen") && all.contains(said), "{all}");
            }
        }
    }

    #[test]
    fn a_reply_that_never_ended_is_shown_whole_and_said_to_be_cut() {
        let (mut answers, now, id) = (Answers::new(true, Style::InPlace), Instant::now(), DisplayId::host());
        answers.take(text(&id, "a"), now);
        answers.take(text(&id, "b"), now);
        let shown = answers.finish();
        assert_eq!(markdown(&shown[0]), "ab");
        assert!(format!("{:?}", shown[1]).contains("cut off"), "{shown:?}");
    }

    #[test]
    fn a_complete_reply_without_text_leaves_no_trace() {
        for updates in [true, false] {
            let (mut answers, now, id) =
                (Answers::new(updates, Style::InPlace), Instant::now(), DisplayId::host());
            answers.take(Answer::Start { id: id.clone(), model: "m".into() }, now);
            assert_eq!(answers.take(end(&id, Ending::Complete), now), []);
        }
    }
}
