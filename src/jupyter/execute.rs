//! One `execute_request`, from its content to its reply.
//!
//! May import `event`, `config` and `engine`. The interpreter runs in a task of its own, so whatever
//! happens to it the cell gets its outputs, its error and its reply. Its events are shown while it runs;
//! waiting for room on iopub is what slows it down.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::{Flavor, Updates};
use crate::engine::{Execute, Outcome};
use crate::event::{self, Event, Failure};

use super::broadcast::Broadcast;
use super::context::{Context, Origin};
use super::messages::{ExecuteReply, ExecuteRequest};
use super::notice::Style;
use super::present::{Manner, Presenter};
use super::stdin::Prompt;

/// Events that may wait to be shown; behind them the run's own buffer waits. Few, for one may be a large text: at
/// the pace of a Jupyter server, what is in here is shown before an interrupt ends the cell.
const DEPTH: usize = 2;

/// Runs a cell.
pub(crate) async fn execute(
    context: &Context,
    origin: &Origin,
    mut request: ExecuteRequest,
    metadata: &Map<String, Value>,
    cancel: CancellationToken,
) -> ExecuteReply {
    let count = context.count(request.counts());
    if !request.silent() {
        let input = Broadcast::ExecuteInput { code: request.code.clone(), count };
        context.iopub.post(&origin.parent(), input);
    }
    if request.counts() {
        // A kernel that is lost in this cell has still been asked for it.
        context.interpreter.remember(count, &request.code, None);
    }
    let manner = manner(context, &request, metadata, count);
    let (settle, settled) = mpsc::channel(1);
    let ask = Prompt {
        stdin: context.stdin.clone(),
        outbound: context.outbound.clone(),
        peer: origin.peer.clone(),
        parent: Arc::clone(&origin.header),
        allowed: request.allow_stdin(),
        cancel: cancel.clone(),
        settle,
    };
    let cell = Execute {
        user_expressions: request.user_expressions(),
        silent: request.silent(),
        store_history: request.store_history(),
        cell_id: metadata.get("cellId").and_then(Value::as_str).map(str::to_owned),
        deleted_cells: strings(metadata.get("deletedCells")),
        count,
        code: request.code.clone(),
    };
    let (events, shown) = event::channel(DEPTH);
    let interpreter = Arc::clone(&context.interpreter);
    let started = chrono::Utc::now();
    let run = tokio::spawn(async move { interpreter.execute(cell, events, Arc::new(ask), cancel).await });
    let show = Show { context, origin, presenter: Presenter::new(manner) };
    let (outcome, presenter) = show.run(run, shown, settled).await;
    // The reply comes after everything that was shown.
    context.iopub.flush().await;
    if outcome.failure.is_some() {
        context.failed().await;
    }

    if request.counts() {
        let result = presenter.into_result();
        context.interpreter.remember(count, &request.code, result.clone());
        context.history().add(count, &request.code, result);
    }
    let mut metadata = outcome.metadata;
    metadata
        .entry("started")
        .or_insert_with(|| started.to_rfc3339_opts(chrono::SecondsFormat::Micros, true).into());
    ExecuteReply {
        execution_count: count,
        user_expressions: outcome.user_expressions,
        payload: outcome.payload,
        failure: outcome.failure,
        metadata,
    }
}

/// How this front end sees what the cell shows.
fn manner(context: &Context, request: &ExecuteRequest, metadata: &Map<String, Value>, count: u32) -> Manner {
    let updates = match context.options.updates {
        Updates::Always => true,
        Updates::Never => false,
        // Notebooks name their cells; what runs notebooks without a person allows no input. What is left
        // is a console, and consoles do not know update_display_data.
        Updates::Auto => metadata.contains_key("cellId") || !request.allow_stdin(),
    };
    let style = match context.options.flavor {
        Flavor::Python => Style::DropIn,
        Flavor::Markdown if updates => Style::InPlace,
        Flavor::Markdown => Style::Lines,
    };
    Manner { updates, style, silent: request.silent(), count }
}

/// The strings of a list; anything else in it is none of ours.
fn strings(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Shows a run while it runs.
struct Show<'a> {
    context: &'a Context,
    origin: &'a Origin,
    presenter: Presenter,
}

impl Show<'_> {
    async fn run(
        mut self,
        mut run: tokio::task::JoinHandle<Outcome>,
        mut events: mpsc::Receiver<Event>,
        mut settle: mpsc::Receiver<tokio::sync::oneshot::Sender<()>>,
    ) -> (Outcome, Presenter) {
        let outcome = loop {
            let due = self.presenter.due();
            let alarm = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // In this order: what was shown comes before a question and before the end.
                biased;
                Some(event) = events.recv() => {
                    let messages = self.presenter.take(event, Instant::now());
                    self.offer(messages).await;
                }
                Some(done) = settle.recv() => {
                    self.context.iopub.flush().await;
                    // Whoever asks may just have been interrupted.
                    let _ = done.send(());
                }
                ended = &mut run => break ended,
                () = alarm => {}
            }
            let messages = self.presenter.tick(Instant::now());
            self.offer(messages).await;
        };
        // A sender that somebody keeps must not keep the cell open.
        events.close();
        while let Ok(event) = events.try_recv() {
            let messages = self.presenter.take(event, Instant::now());
            self.offer(messages).await;
        }
        let outcome = outcome.unwrap_or_else(|error| {
            tracing::error!(%error, "the interpreter was lost");
            let what = "the kernel made a mistake while it ran this cell; its log says more. Run the cell again, \
                        and if it happens again restart the kernel and report it";
            Outcome { failure: Some(Failure::new("InternalError", what)), ..Outcome::default() }
        });
        let messages = self.presenter.finish(outcome.failure.as_ref());
        self.offer(messages).await;
        (outcome, self.presenter)
    }

    async fn offer(&self, messages: Vec<Broadcast>) {
        for message in messages {
            self.context.iopub.offer(&self.origin.parent(), message).await;
        }
    }
}
