//! What each request means: one arm per row of the message table.
//!
//! May import `engine` and `event`. The arms are small; what is large has a file of its own.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::engine::Completeness;
use crate::event::Failure;

use super::broadcast::{Broadcast, State};
use super::context::{Context, Origin};
use super::dispatch::{Kind, Reason};
use super::execute::execute;
use super::messages::{
    CommClose, CommInfoReply, CommInfoRequest, CommMessage, CommOpen, CompleteReply, CompleteRequest,
    ConnectRequest, CreateSubshellRequest, DebugRequest, DeleteSubshellRequest, Empty, ExecuteRequest,
    HistoryReply, HistoryRequest, Incoming, InspectReply, InspectRequest, InterruptRequest, IsCompleteReply,
    IsCompleteRequest, KernelInfoReply, KernelInfoRequest, ListSubshellRequest, Request, ShutdownReply,
    ShutdownRequest, Unreadable,
};
use super::sockets::Channel;
use super::wire::PROTOCOL_VERSION;

/// The longest that anybody waits to hear whether code is complete: jupyter console stops asking after 1 s.
pub(crate) const IS_COMPLETE: Duration = Duration::from_millis(500);

/// One request with all that its handler needs.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) origin: Origin,
    pub(crate) request: Result<Incoming, Unreadable>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) cancel: CancellationToken,
}

/// When a request of the shell channel is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// In its order.
    Queued(Kind),
    /// At once, even while a cell runs.
    AtOnce,
}

impl Job {
    /// When it is served, if it came through the shell channel.
    pub(crate) fn turn(&self) -> Turn {
        // Subshells are not offered, so nobody can have been given an id.
        if self.origin.header.subshell_id.is_some() {
            return Turn::AtOnce;
        }
        match &self.request {
            Ok(Incoming::Execute(request)) => {
                Turn::Queued(Kind::Execute { stop_on_error: request.stops_on_error() })
            }
            Ok(Incoming::IsComplete(_)) => Turn::Queued(Kind::Impatient),
            // Old clients send these two on the shell; to queue them behind what they are to end is no use.
            Ok(Incoming::Interrupt(_) | Incoming::Shutdown(_)) => Turn::AtOnce,
            _ => Turn::Queued(Kind::Patient),
        }
    }
}

impl Context {
    /// Serves a request to its end.
    pub(crate) async fn serve(&self, job: Job) {
        let Job { origin, request, metadata, cancel } = job;
        let origin = &origin;
        let request = match request {
            Ok(request) => request,
            Err(error) => return self.reject(origin, &error).await,
        };
        if let Some(refusal) = refusal(origin, &request) {
            return self.refuse(origin, &request, refusal).await;
        }
        match request {
            Incoming::KernelInfo(_) => {
                self.handle::<KernelInfoRequest, _>(origin, async { Ok(self.kernel_info()) }).await;
                self.introduce(origin);
            }
            Incoming::Execute(request) => {
                let run = async { Ok(execute(self, origin, request, &metadata, cancel).await) };
                self.handle::<ExecuteRequest, _>(origin, run).await;
            }
            Incoming::Complete(request) => {
                self.handle::<CompleteRequest, _>(origin, self.complete(request, cancel)).await;
            }
            Incoming::Inspect(request) => {
                self.handle::<InspectRequest, _>(origin, self.inspect(request, cancel)).await;
            }
            Incoming::IsComplete(request) => {
                self.handle::<IsCompleteRequest, _>(origin, self.is_complete(request)).await;
            }
            Incoming::History(request) => {
                let find = async { Ok(HistoryReply { history: self.find_history(&request).await }) };
                self.handle::<HistoryRequest, _>(origin, find).await;
            }
            Incoming::CommInfo(_) => {
                self.handle::<CommInfoRequest, _>(origin, async { Ok(CommInfoReply::default()) }).await;
            }
            Incoming::Connect(_) => {
                self.handle::<ConnectRequest, _>(origin, async { Ok(self.ports.clone()) }).await;
            }
            // The loop has done it; here is only the answer.
            Incoming::Interrupt(_) => {
                self.handle::<InterruptRequest, _>(origin, async { Ok(Empty {}) }).await;
            }
            Incoming::Shutdown(request) => {
                self.handle::<ShutdownRequest, _>(origin, async { Ok(self.end(origin, &request)) }).await;
            }
            Incoming::Debug(_) => {
                self.handle::<DebugRequest, _>(origin, async { Err(not_offered("a debugger")) }).await;
            }
            Incoming::CreateSubshell(_) => {
                self.handle::<CreateSubshellRequest, _>(origin, async { Err(not_offered("subshells")) })
                    .await;
            }
            Incoming::DeleteSubshell(_) => {
                self.handle::<DeleteSubshellRequest, _>(origin, async { Err(not_offered("subshells")) })
                    .await;
            }
            Incoming::ListSubshell(_) => {
                self.handle::<ListSubshellRequest, _>(origin, async { Err(not_offered("subshells")) }).await;
            }
            Incoming::CommOpen(request) => {
                self.handle::<CommOpen, _>(origin, async { Ok(self.comm_open(origin, request)) }).await;
            }
            // No comm is ever open, so these speak of nothing.
            Incoming::CommMessage(_) => self.handle::<CommMessage, _>(origin, async { Ok(Empty {}) }).await,
            Incoming::CommClose(_) => self.handle::<CommClose, _>(origin, async { Ok(Empty {}) }).await,
        }
    }

    /// Says of its own accord that the kernel is idle, to a client that has just come. `JupyterLab` takes no state from the
    /// statuses of a `kernel_info_request` (they are in `jupyter_server`'s list of untracked ones), and missed `starting`
    /// when it connected after it: until its next cell it would call the kernel's state unknown.
    fn introduce(&self, origin: &Origin) {
        // In its turn on the shell channel nothing else is being handled.
        if origin.channel == Channel::Shell {
            self.iopub.post(&None, Broadcast::Status(State::Idle));
        }
    }

    /// Answers a queued request that will not run.
    pub(crate) async fn abort(&self, job: Job, reason: Reason) {
        let failure = match reason {
            Reason::Failed => Failure::new(
                "ExecutionAborted",
                "not run, because a cell before it failed; run it again when that one works",
            ),
            Reason::ShuttingDown => {
                Failure::new("ExecutionAborted", "not run, because the kernel is shutting down")
            }
        };
        match &job.request {
            Ok(request) => self.refuse(&job.origin, request, failure).await,
            Err(error) => self.reject(&job.origin, error).await,
        }
    }

    /// Answers that nobody can tell yet whether the code is complete.
    pub(crate) async fn expire(&self, job: Job) {
        let unknown = async { Ok(IsCompleteReply::unknown()) };
        self.handle::<IsCompleteRequest, _>(&job.origin, unknown).await;
    }

    /// Answers any request with a failure.
    async fn refuse(&self, origin: &Origin, request: &Incoming, failure: Failure) {
        /// The one place that needs a request's type and not its content.
        macro_rules! refuse {
            ($($name:ident),*) => {
                match request {
                    $(Incoming::$name(request) => self.refuse_as(origin, request, failure).await,)*
                }
            };
        }
        refuse!(
            KernelInfo,
            Execute,
            Complete,
            Inspect,
            IsComplete,
            History,
            CommInfo,
            Connect,
            Interrupt,
            Shutdown,
            Debug,
            CreateSubshell,
            DeleteSubshell,
            ListSubshell,
            CommOpen,
            CommMessage,
            CommClose
        );
    }

    async fn refuse_as<R: Request>(&self, origin: &Origin, _: &R, failure: Failure) {
        self.handle::<R, _>(origin, async { Err(failure) }).await;
    }

    fn kernel_info(&self) -> KernelInfoReply {
        let info = self.interpreter.info();
        KernelInfoReply {
            protocol_version: PROTOCOL_VERSION,
            implementation: env!("CARGO_PKG_NAME"),
            implementation_version: env!("CARGO_PKG_VERSION"),
            language_info: info.language_info,
            banner: info.banner,
            help_links: [],
            supported_features: [],
        }
    }

    async fn complete(
        &self,
        request: CompleteRequest,
        cancel: CancellationToken,
    ) -> Result<CompleteReply, Failure> {
        let cursor = request.cursor();
        let found = unless(&cancel, self.interpreter.complete(&request.code, cursor)).await?;
        Ok(CompleteReply {
            matches: found.matches,
            cursor_start: found.start,
            cursor_end: found.end,
            metadata: found.metadata,
        })
    }

    async fn inspect(
        &self,
        request: InspectRequest,
        cancel: CancellationToken,
    ) -> Result<InspectReply, Failure> {
        let (cursor, detail) = (request.cursor(), request.detail());
        let found = unless(&cancel, self.interpreter.inspect(&request.code, cursor, detail)).await?;
        Ok(InspectReply {
            found: found.is_some(),
            data: found.as_ref().map(|bundle| bundle.data().clone()).unwrap_or_default(),
            metadata: found.as_ref().map(|bundle| bundle.metadata().clone()).unwrap_or_default(),
        })
    }

    async fn is_complete(&self, request: IsCompleteRequest) -> Result<IsCompleteReply, Failure> {
        let asked = self.interpreter.is_complete(&request.code);
        let Ok(answer) = tokio::time::timeout(IS_COMPLETE, asked).await else {
            return Ok(IsCompleteReply::unknown());
        };
        let (status, indent) = match answer {
            Completeness::Complete => ("complete", None),
            Completeness::Incomplete { indent } => ("incomplete", Some(indent)),
            Completeness::Invalid => ("invalid", None),
            Completeness::Unknown => ("unknown", None),
        };
        Ok(IsCompleteReply { status, indent })
    }

    fn comm_open(&self, origin: &Origin, request: CommOpen) -> Empty {
        tracing::info!(target_name = request.target_name, "a comm for an unknown target was refused");
        self.iopub.post(&origin.parent(), Broadcast::CommClose { comm_id: request.comm_id });
        Empty {}
    }

    /// Everything has ended; all clients are told.
    fn end(&self, origin: &Origin, request: &ShutdownRequest) -> ShutdownReply {
        let restart = request.restart();
        self.iopub.post(&origin.parent(), Broadcast::Shutdown { restart });
        ShutdownReply { restart }
    }
}

/// Why a request is not served where, or for whom, it was sent.
fn refusal(origin: &Origin, request: &Incoming) -> Option<Failure> {
    if let Some(id) = &origin.header.subshell_id {
        let id: String = id.chars().take(100).collect();
        let what = format!(
            "there is no subshell {id:?}: this kernel offers none; send the request without subshell_id"
        );
        return Some(Failure::new("UnknownSubshell", what));
    }
    let waits = matches!(
        request,
        Incoming::Execute(_) | Incoming::Complete(_) | Incoming::Inspect(_) | Incoming::IsComplete(_)
    );
    (waits && origin.channel == Channel::Control).then(|| {
        Failure::new(
            "WrongChannel",
            "this request may take long: send it on the shell channel, where it waits its turn",
        )
    })
}

fn not_offered(what: &str) -> Failure {
    Failure::new(
        "NotSupported",
        format!("this kernel does not offer {what}; kernel_info_reply lists what it does"),
    )
}

/// Ends early when the user interrupts; the question is read-only, so dropping it loses nothing.
async fn unless<T>(cancel: &CancellationToken, work: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Failure::new("KeyboardInterrupt", "interrupted before there was an answer")),
        answer = work => Ok(answer),
    }
}
