//! The quiet line about a block: that it starts, that it runs, how it ended.
//!
//! Only in the Markdown kernel; a drop-in notebook keeps its outputs as they are, and its reply's metadata has the
//! figures.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::diagnose;
use super::execute::{Engine, Surroundings, send};
use super::magics::sessions::short;
use crate::config::{SandboxSettings, Status};
use crate::event::{DisplayId, Event, Level, Notice};
use crate::sandbox::{RunEnd, size};

/// A block that took no longer says nothing of itself.
const WORTH: Duration = Duration::from_secs(1);
/// How often the running time is shown.
const TICK: Duration = Duration::from_millis(500);

/// What the line is about.
pub(super) struct Subject<'a> {
    pub(super) language: &'a str,
    pub(super) container: &'a str,
    pub(super) limits: &'a SandboxSettings,
    pub(super) timeout: Option<Duration>,
    /// Who set the limit of processes, in words.
    pub(super) processes: String,
}

impl Subject<'_> {
    /// The language, and the container unless it has the same name.
    fn what(&self) -> String {
        if self.language == self.container {
            self.language.to_owned()
        } else {
            format!("{} in {}", self.language, self.container)
        }
    }
}

/// Drives a run to its end, and says meanwhile how it goes.
pub(super) async fn watched(
    engine: &Engine,
    subject: &Subject<'_>,
    mut run: BoxFuture<'_, RunEnd>,
    wanted: Status,
    around: Surroundings<'_>,
) -> RunEnd {
    if wanted == Status::Quiet {
        let end = run.await;
        explain(subject, &end, around).await;
        return end;
    }
    let (id, begun) = (DisplayId::host(), Instant::now());
    // What is over sooner shows nothing, not even for a moment: a saved notebook would keep an empty place. A verbose
    // line of a short block stands below its output, as that of a long one does which showed something at once.
    let mut tick = tokio::time::interval_at(begun + WORTH, TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let (mut due, mut shown) = (false, false);
    let end = loop {
        tokio::select! {
            biased;
            end = &mut run => break end,
            _ = tick.tick(), if !due => due = true,
            permit = around.events.reserve(), if due => {
                due = false;
                if let Ok(permit) = permit {
                    shown = true;
                    let does = if engine.sandbox.is_waiting() {
                        "waiting for its turn"
                    } else if engine.sandbox.is_starting(subject.container) {
                        "starting"
                    } else {
                        "running"
                    };
                    let text =
                        format!("{} · {does} · {} s", subject.what(), begun.elapsed().as_secs());
                    permit.send(Event::Notice(Notice::ticking(&id, text)));
                }
            }
        }
    };
    // One that is over before its first line is shown has none: it would stand below the output, and below an error. Where
    // a flood held the line up, it comes late.
    if shown || begun.elapsed() >= 2 * WORTH || wanted == Status::Verbose {
        let level = if end.failure.is_some() { Level::Error } else { Level::Info };
        let last = Notice::settled(&id, level, ended(subject, &end, wanted));
        send(around.events, Event::Notice(last)).await;
    }
    explain(subject, &end, around).await;
    end
}

/// Says which limit a failure has to do with.
async fn explain(subject: &Subject<'_>, end: &RunEnd, around: Surroundings<'_>) {
    // An installer that gives up after its retries may well count as a success.
    let worth = end.failure.is_some() || end.transcript.contains("NewConnectionError");
    if worth && let Some(hint) = diagnose::hint(&end.transcript, subject.limits, &subject.processes) {
        send(around.events, Event::Notice(Notice::warning(hint))).await;
    }
}

/// How a block ended, in a line.
fn ended(subject: &Subject<'_>, end: &RunEnd, wanted: Status) -> String {
    let mut parts =
        vec![subject.what(), format!("{} s", trimmed((end.duration.as_secs_f64() * 10.0).round() / 10.0))];
    parts.extend(end.peak_memory.map(|peak| format!("peak {}", size(peak))));
    parts.extend(end.exit_code.map(|code| format!("exit {code}")));
    let cause = end.failure.as_ref().map(|failure| diagnose::cause(failure, subject.limits, subject.timeout));
    parts.extend(cause.filter(|cause| !cause.is_empty()));
    if wanted == Status::Verbose {
        parts.push(format!("wrote {}", size(end.written)));
        if !end.image.is_empty() {
            parts.push(format!("image {}", short(&end.image)));
        }
    }
    parts.join(" · ")
}

/// A number without needless zeros.
pub(super) fn trimmed(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flavor, Settings};
    use crate::event::Failure;

    #[test]
    fn the_last_line_has_the_figures_and_the_cause() {
        let limits = Settings::builtin(Flavor::Markdown).sandbox;
        let timeout = Some(Duration::from_mins(1));
        let subject = Subject {
            language: "sh",
            container: "python",
            limits: &limits,
            timeout,
            processes: String::new(),
        };
        let mut end = RunEnd {
            duration: Duration::from_millis(12_345),
            peak_memory: Some(210 << 20),
            exit_code: Some(0),
            image: "sha256:0123456789abcdef".into(),
            written: 2048,
            ..RunEnd::default()
        };
        assert_eq!(ended(&subject, &end, Status::Normal), "sh in python · 12.3 s · peak 210 MB · exit 0");
        assert!(ended(&subject, &end, Status::Verbose).ends_with("exit 0 · wrote 2 kB · image 0123456789ab"));
        let python = Subject { language: "python", processes: String::new(), ..subject };
        assert_eq!(ended(&python, &end, Status::Normal), "python · 12.3 s · peak 210 MB · exit 0");
        let subject = Subject { language: "sh", ..python };
        (end.exit_code, end.peak_memory) = (None, None);
        for (name, cause) in [
            ("OutOfMemory", "out of memory at 1.0 GB"),
            ("Timeout", "timeout after 60 s"),
            ("ZeroDivisionError", "ZeroDivisionError"),
        ] {
            end.failure = Some(Failure::new(name, "x"));
            assert_eq!(ended(&subject, &end, Status::Normal), format!("sh in python · 12.3 s · {cause}"));
        }
    }
}
