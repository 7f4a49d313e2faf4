//! The kernel's loop: what happens, in the order of its importance.
//!
//! May import `engine` and its siblings. The loop decides nothing itself: [`Dispatch`] says what is to be
//! done, [`Context::serve`] does it. It never waits for a handler, so control is served while a cell runs;
//! and no message, however bad, ends it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::Interpreter;

use super::broadcast::{Broadcast, State};
use super::context::{Context, Origin, Report};
use super::dispatch::{Action, Dispatch, Input, Kind};
use super::handlers::{IS_COMPLETE, Job, Turn};
use super::iopub::Iopub;
use super::messages::{ConnectReply, Incoming};
use super::signals::{Signal, Signals};
use super::sockets::{self, Inbound, Inbox};
use super::wire::{ConnectionInfo, Port};
use super::{ExitReason, Options, ServeError, parent};

/// Requests that may wait for their turn; further ones wait at the client's end of the connection.
const QUEUE: usize = 10_000;

/// Clients give a shutdown 2.5 s. What runs may end by itself first, then everything is destroyed.
const ENDING: Duration = Duration::from_millis(400);
const DESTRUCTION: Duration = Duration::from_millis(1400);
const FLUSHING: Duration = Duration::from_millis(400);

pub(crate) async fn run(
    connection: &ConnectionInfo,
    interpreter: Arc<dyn Interpreter>,
    options: Options,
) -> Result<ExitReason, ServeError> {
    let signals = Signals::install(options.signals)?;
    let (inbox, outbound, sockets) = sockets::bind(connection)?;
    let (iopub, writer) = Iopub::start(outbound.clone(), outbound.signer().clone(), options.paced);
    iopub.post(&None, Broadcast::Status(State::Starting));
    let (reports, happened) = mpsc::unbounded_channel();
    let context = Context::new(interpreter, options, ports(connection), outbound, iopub, reports);
    let kernel = Kernel {
        context: Arc::new(context),
        dispatch: Dispatch::new(),
        cancel: CancellationToken::new(),
        happened,
    };
    let context = Arc::clone(&kernel.context);
    let reason = kernel.serve(inbox, signals).await;

    // Everything that was said is on its way before the process ends.
    context.iopub.close();
    if tokio::time::timeout(FLUSHING, writer).await.is_err() {
        tracing::warn!("some output could not be sent before the end");
    }
    context.outbound.close().await;
    if tokio::task::spawn_blocking(move || sockets.join()).await.is_err() {
        tracing::warn!("the thread of the sockets was lost");
    }
    Ok(reason)
}

fn ports(connection: &ConnectionInfo) -> ConnectReply {
    ConnectReply {
        shell_port: connection.port(Port::Shell),
        iopub_port: connection.port(Port::Iopub),
        stdin_port: connection.port(Port::Stdin),
        control_port: connection.port(Port::Control),
        hb_port: connection.port(Port::Heartbeat),
    }
}

struct Kernel {
    context: Arc<Context>,
    dispatch: Dispatch<Job>,
    /// Cancels what runs now.
    cancel: CancellationToken,
    happened: mpsc::UnboundedReceiver<Report>,
}

impl Kernel {
    async fn serve(mut self, mut inbox: Inbox, mut signals: Signals) -> ExitReason {
        let gone = parent::gone(self.context.options.parent);
        tokio::pin!(gone);
        loop {
            tokio::select! {
                // Control first; and requests before the end of what runs, so that an error cancels every
                // cell that has already arrived.
                biased;
                message = inbox.control.recv() => {
                    let Some(message) = message else { break };
                    if let Some(reason) = self.at_once(job(message), &mut inbox).await {
                        return reason;
                    }
                }
                message = inbox.stdin.recv() => {
                    let Some(message) = message else { break };
                    self.context.stdin.take(&message.signed);
                }
                message = inbox.shell.recv(), if self.dispatch.waiting() < QUEUE => {
                    let Some(message) = message else { break };
                    let job = job(message);
                    match job.turn() {
                        Turn::Queued(kind) => self.step(Input::Arrived(job, kind)).await,
                        Turn::AtOnce => {
                            if let Some(reason) = self.at_once(job, &mut inbox).await {
                                return reason;
                            }
                        }
                    }
                }
                // The context has a sender too, so there is always one.
                Some(report) = self.happened.recv() => self.report(report).await,
                signal = signals.recv() => match signal {
                    Signal::Interrupt => self.step(Input::Interrupt).await,
                    Signal::Terminate => {
                        self.end(&mut inbox).await;
                        return ExitReason::Terminated;
                    }
                },
                () = &mut gone => {
                    tracing::warn!("the process that started this kernel is gone");
                    self.end(&mut inbox).await;
                    return ExitReason::ParentGone;
                }
            }
        }
        tracing::error!("the kernel's sockets are closed");
        self.end(&mut inbox).await;
        ExitReason::Disconnected
    }

    /// Serves what does not wait for its turn.
    async fn at_once(&mut self, job: Job, inbox: &mut Inbox) -> Option<ExitReason> {
        // A message for a subshell that does not exist orders nothing.
        let ordered = job.request.as_ref().ok().filter(|_| job.origin.header.subshell_id.is_none());
        let mut exit = None;
        match ordered {
            Some(Incoming::Interrupt(_)) => self.step(Input::Interrupt).await,
            Some(Incoming::Shutdown(request)) => {
                exit = Some(ExitReason::Shutdown { restart: request.restart() });
                self.end(inbox).await;
            }
            _ => {}
        }
        self.context.serve(job).await;
        exit
    }

    async fn report(&mut self, report: Report) {
        match report {
            Report::Finished => self.step(Input::Finished).await,
            Report::Overdue(ticket) => self.step(Input::Overdue(ticket)).await,
            Report::Failed(taken) => {
                self.step(Input::Failed).await;
                drop(taken);
            }
        }
    }

    async fn step(&mut self, input: Input<Job>) {
        for action in self.dispatch.step(input) {
            match action {
                Action::Run(job) => self.start(job),
                Action::Abort(job, reason) => self.context.abort(job, reason).await,
                Action::Expire(job) => self.context.expire(job).await,
                Action::Cancel => self.cancel.cancel(),
                Action::Wait(ticket) => {
                    let reports = self.context.reports.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(IS_COMPLETE).await;
                        // The loop may have ended meanwhile.
                        let _ = reports.send(Report::Overdue(ticket));
                    });
                }
            }
        }
    }

    fn start(&mut self, job: Job) {
        self.cancel = job.cancel.clone();
        let context = Arc::clone(&self.context);
        tokio::spawn(async move {
            context.serve(job).await;
            // The loop may have ended meanwhile.
            let _ = context.reports.send(Report::Finished);
        });
    }

    /// Ends what runs, answers what waits, destroys everything; within the time that clients give.
    async fn end(&mut self, inbox: &mut Inbox) {
        self.step(Input::Shutdown).await;
        // What has already arrived waits too.
        while let Ok(message) = inbox.shell.try_recv() {
            self.step(Input::Arrived(job(message), Kind::Patient)).await;
        }
        let running = tokio::time::timeout(ENDING, self.finished()).await;
        self.context.interpreter.keep().await;
        if tokio::time::timeout(DESTRUCTION, self.context.interpreter.shutdown()).await.is_err() {
            tracing::error!("not everything could be destroyed in time; what remains is left to the reaper");
        }
        if running.is_err() && tokio::time::timeout(ENDING, self.finished()).await.is_err() {
            tracing::error!("a cell did not end although everything it used is gone");
        }
    }

    async fn finished(&mut self) {
        while self.dispatch.busy() {
            let Some(report) = self.happened.recv().await else { return };
            self.report(report).await;
        }
    }
}

fn job(message: Inbound) -> Job {
    let Inbound { channel, signed, peer } = message;
    let request = Incoming::read(&signed.header.msg_type, signed.content);
    Job {
        origin: Origin { channel, peer, header: Arc::new(signed.header) },
        request,
        metadata: signed.metadata,
        cancel: CancellationToken::new(),
    }
}
