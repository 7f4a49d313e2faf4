//! What happens between runs: news, output of background work, requests, a reset.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::event::Notice;
use crate::sandbox::output::Outlet;
use crate::sandbox::runner::frame::{Frame, Incoming, Lost, Order, WorkerNews};

use super::boot::Live;
use super::words::By;
use super::{Look, Session, drive, next_frame, started, words};

/// A request that guest code answers may take this long before it is interrupted, and this long before the
/// session is killed for it.
const REQUEST: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(12)];
/// Output of background work that is kept between runs.
const BETWEEN: usize = 256 << 10;
/// How long the engine may take to say what a container uses.
const USAGE: Duration = Duration::from_secs(3);
/// How long the old Python session may take to end.
const RESTART: Duration = Duration::from_secs(2);

impl Session {
    /// What arrives while nothing runs: news of the session, output of background work.
    pub(super) async fn idle_frame(&mut self, incoming: Option<Result<Incoming, String>>) {
        match incoming {
            Some(Ok(incoming)) => match incoming.frame {
                Frame::Worker(WorkerNews::Ready { python, ipython }) => {
                    drive::tell(&self.python, python, ipython);
                }
                Frame::Worker(WorkerNews::Lost(lost)) if !lost.restart => {
                    self.lose_beside(&lost, "Between two cells");
                }
                _ => self.keep(incoming),
            },
            Some(Err(broken)) => self.gone_idle(Some(&broken)).await,
            None => self.gone_idle(None).await,
        }
    }

    /// The Python session was lost while no Python code ran: the next that does is told.
    pub(super) fn lose_beside(&mut self, lost: &Lost, when: &str) {
        let (_, how) =
            words::how_lost(lost, (self.definition.limits.memory, By::of(&self.definition, false)));
        if std::mem::take(&mut self.used) {
            self.lost = Some(format!(
                "{when} {how}. Its variables and imports are lost; this cell runs in a fresh one."
            ));
        }
    }

    async fn gone_idle(&mut self, broken: Option<&str>) {
        let (_, how) = self.bury(broken).await;
        if std::mem::take(&mut self.used) {
            self.lost = Some(format!(
                "Between two cells {how}. Python's variables and imports are lost; this cell runs in a fresh sandbox."
            ));
        }
    }

    /// How the container is.
    pub(super) async fn look(&mut self) -> Look {
        let Some(live) = &self.live else { return Look { stopped: self.stopped.clone(), ..Look::default() } };
        let (image, up, container) = (live.image.clone(), live.since.elapsed(), Arc::clone(&live.container));
        let usage = tokio::time::timeout(USAGE, container.usage()).await.ok().flatten();
        Look { image: Some(image), up: Some(up), usage, stopped: None }
    }

    pub(super) fn keep(&mut self, incoming: Incoming) {
        // Ends of processes, late answers and the like are no output, and neither is clearing what shows nothing.
        let clears = matches!(incoming.frame, Frame::Clear { .. }) && !self.between.is_empty();
        if (clears || drive::shows(&incoming.frame)) && self.between_size + incoming.size <= BETWEEN {
            self.between_size += incoming.size;
            self.between.push(incoming);
        }
    }

    /// Output after a run's end belongs to the next one, and is marked.
    pub(super) fn show_between(&mut self, outlet: &mut Outlet) {
        if self.between.is_empty() {
            return;
        }
        outlet.notice(Notice::info("What earlier cells started in the background showed meanwhile:"));
        for incoming in self.between.drain(..) {
            drive::show(outlet, incoming.frame, incoming.size);
        }
        self.between_size = 0;
    }

    /// Asks the Python session; `Null` when it does not answer.
    pub(super) async fn request(&mut self, request: &Value) -> Value {
        self.request_within(request, REQUEST, &CancellationToken::new()).await
    }

    /// The same for one that may take longer: it is interrupted, then killed after these times.
    pub(super) async fn request_within(
        &mut self,
        request: &Value,
        patience: [Duration; 2],
        cancel: &CancellationToken,
    ) -> Value {
        if self.live.is_none() && self.starting.is_some() {
            tokio::select! {
                () = self.shutdown.cancelled() => return Value::Null,
                () = started(&mut self.starting) => {}
            }
            self.settle().await;
        }
        let Some(live) = &mut self.live else { return Value::Null };
        let number = live.number();
        if live.order(Order::Request, number, request).await.is_err() {
            return Value::Null;
        }
        let begun = tokio::time::Instant::now();
        let mut patience = patience.iter().zip([Order::Signal, Order::Kill]);
        let mut next = patience.next();
        let mut cancelled = false;
        loop {
            let alarm = next.map(|(after, order)| (begun + *after, order));
            tokio::select! {
                () = self.shutdown.cancelled() => return Value::Null,
                () = cancel.cancelled(), if !cancelled => {
                    cancelled = true;
                    if let Some(live) = &mut self.live {
                        let _ = live.order(Order::Signal, number, &json!({ "signal": 2 })).await;
                    }
                }
                () = async { if let Some((at, _)) = alarm { tokio::time::sleep_until(at).await } }, if alarm.is_some() => {
                    if let (Some((_, order)), Some(live)) = (alarm, &mut self.live) {
                        let _ = live.order(order, number, &json!({ "signal": 2 })).await;
                    }
                    next = patience.next();
                }
                incoming = next_frame(&mut self.live) => match incoming {
                    Some(Ok(Incoming { run, frame: Frame::Reply(value), .. })) if run == number => return value,
                    Some(Ok(Incoming { run, frame: Frame::Fault(_), .. })) if run == number => return Value::Null,
                    incoming => {
                        let over = matches!(
                            &incoming,
                            Some(Ok(Incoming { run, frame: Frame::Worker(WorkerNews::Lost(_)), .. })) if *run == number
                        );
                        self.idle_frame(incoming).await;
                        if over || self.live.is_none() {
                            return Value::Null;
                        }
                    }
                }
            }
        }
    }

    /// A fresh Python session; everything that the old one started ends.
    pub(super) async fn reset(&mut self) {
        self.used = false;
        self.lost = None;
        self.between.clear();
        self.between_size = 0;
        let Some(live) = &mut self.live else { return };
        let ordered = live.order(Order::Restart, 0, &json!({})).await.is_ok();
        let restarted =
            ordered && tokio::time::timeout(RESTART, restarted(&mut self.live)).await.unwrap_or(false);
        if !restarted {
            self.end_live().await;
        }
    }
}

/// Waits until the old Python session is gone on our order; `false` when everything is.
async fn restarted(live: &mut Option<Live>) -> bool {
    loop {
        match next_frame(live).await {
            Some(Ok(Incoming { frame: Frame::Worker(WorkerNews::Lost(lost)), .. })) if lost.restart => {
                return true;
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::sandbox::runner::frame::Exit;

    #[test]
    fn only_what_shows_something_is_kept_for_the_next_cell() {
        let exit = Exit { code: Some(0), signal: None, stage: "run".into(), oom: false, memory: None };
        let nothing = [
            // The ends of the programs that pack a checkpoint.
            Frame::Exit(exit),
            Frame::PipeErr(Bytes::from_static(b"words")),
            Frame::PipeOut(Bytes::new()),
            Frame::Taken(0),
            // Answers that nobody waits for any more.
            Frame::Reply(Value::Null),
            Frame::Fault("late".into()),
            Frame::Stdout(Bytes::new()),
            Frame::Clear { wait: false },
        ];
        for frame in nothing {
            assert!(!drive::shows(&frame), "{frame:?}");
        }
        assert!(drive::shows(&Frame::Stderr(Bytes::from_static(b"late\n"))));
        assert!(drive::shows(&Frame::Unreadable("a display".into())));
    }
}
