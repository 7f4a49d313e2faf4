//! What every handler needs, and the one wrapper around all of them: busy, handler, reply, idle.
//!
//! May import `config`, `engine` and `event`. A handler cannot send a status, so idle cannot be forgotten;
//! and it cannot return another request's reply. A handler that panics becomes an error reply.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};

use crate::engine::Interpreter;
use crate::event::Failure;

use super::Options;
use super::broadcast::{Broadcast, State};
use super::dispatch::Ticket;
use super::history::{self, History};
use super::iopub::{Iopub, Parent};
use super::messages::{ConnectReply, ExecuteRequest, HistoryRequest, Reply, Request, Unreadable, content};
use super::sockets::{Channel, Outbound, Peer};
use super::stdin::Stdin;
use super::wire::Header;

/// Who asked, and with which message.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) channel: Channel,
    pub(crate) peer: Peer,
    pub(crate) header: Arc<Header>,
}

impl Origin {
    /// The parent of everything that the request causes.
    #[allow(clippy::unnecessary_wraps, reason = "a parent may be absent, but not that of a request")]
    pub(crate) fn parent(&self) -> Parent {
        Some(Arc::clone(&self.header))
    }
}

/// What the handlers report to the loop.
#[derive(Debug)]
pub(crate) enum Report {
    /// The running cell has failed; its reply waits until this is dropped.
    Failed(oneshot::Sender<()>),
    /// The running request is over.
    Finished,
    /// An impatient request has waited long enough.
    Overdue(Ticket),
}

/// Shared by all handlers.
pub(crate) struct Context {
    pub(crate) interpreter: Arc<dyn Interpreter>,
    pub(crate) options: Options,
    pub(crate) ports: ConnectReply,
    pub(crate) outbound: Outbound,
    pub(crate) iopub: Iopub,
    pub(crate) stdin: Stdin,
    // Unbounded, but each queued request makes three reports at most.
    pub(crate) reports: mpsc::UnboundedSender<Report>,
    history: Mutex<History>,
    count: AtomicU32,
}

impl Context {
    pub(crate) fn new(
        interpreter: Arc<dyn Interpreter>,
        options: Options,
        ports: ConnectReply,
        outbound: Outbound,
        iopub: Iopub,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Self {
        Context {
            interpreter,
            options,
            ports,
            outbound,
            iopub,
            stdin: Stdin::default(),
            reports,
            history: Mutex::default(),
            count: AtomicU32::new(0),
        }
    }

    /// The execution count of a cell that begins now; `next`: it takes one of its own.
    pub(crate) fn count(&self, next: bool) -> u32 {
        // Cells run one at a time, so nothing is ordered by this.
        if next { self.count.fetch_add(1, Ordering::Relaxed) + 1 } else { self.count.load(Ordering::Relaxed) }
    }

    /// What was run before.
    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a `history_request`: the interpreter knows all kernels of the notebook, or else we know this one.
    pub(crate) async fn find_history(&self, request: &HistoryRequest) -> Vec<Value> {
        match self.interpreter.history(history::query(request)).await {
            Some(found) => found.iter().map(|entry| history::row(entry, request.output())).collect(),
            None => self.history().find(request),
        }
    }

    /// Tells the loop that the running cell has failed, before anybody else hears of it: which cells
    /// are cancelled is decided by what has arrived until now, not by what clients send when they know.
    pub(crate) async fn failed(&self) {
        let (done, taken) = oneshot::channel();
        // Errors mean that the loop has ended, and with it the queue.
        let _ = self.reports.send(Report::Failed(done));
        let _ = taken.await;
    }

    /// Handles one request: busy, handler, reply, idle.
    ///
    /// A handler that shows something flushes iopub itself, so that nothing else ever waits for output.
    pub(crate) async fn handle<R, H>(&self, origin: &Origin, handler: H)
    where
        R: Request,
        H: Future<Output = Result<R::Reply, Failure>>,
    {
        self.busy(origin);
        let mut reply = AssertUnwindSafe(handler).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(request = R::TYPE, "a handler panicked");
            let what = format!("the kernel made a mistake while it handled {}; its log says more", R::TYPE);
            Err(Failure::new("InternalError", what))
        });
        let metadata = reply.as_mut().map(Reply::metadata).unwrap_or_default();
        let content = content(&reply);
        if let Some(reply) = R::REPLY {
            self.reply(origin, R::TYPE, reply, content, metadata).await;
        }
        self.idle(origin);
    }

    /// Answers a message that is none of ours, or not readable.
    pub(crate) async fn reject(&self, origin: &Origin, error: &Unreadable) {
        self.busy(origin);
        tracing::warn!(%error, "a message was not understood");
        if let Unreadable::Content { request, reply: Some(reply), .. } = error {
            let failure = Failure::new("BadRequest", error.to_string());
            let content = content::<super::messages::Empty>(&Err(failure));
            self.reply(origin, request, reply, content, Map::new()).await;
        }
        self.idle(origin);
    }

    fn busy(&self, origin: &Origin) {
        self.iopub.post(&origin.parent(), Broadcast::Status(State::Busy));
    }

    fn idle(&self, origin: &Origin) {
        self.iopub.post(&origin.parent(), Broadcast::Status(State::Idle));
    }

    async fn reply(
        &self,
        origin: &Origin,
        request: &str,
        reply: &str,
        mut content: Value,
        metadata: Map<String, Value>,
    ) {
        // Clients read the count of every execute_reply, failed ones that never began included.
        if request == ExecuteRequest::TYPE
            && let Some(content) = content.as_object_mut()
        {
            content.entry("execution_count").or_insert_with(|| self.count(false).into());
            content.entry("user_expressions").or_insert_with(|| Value::Object(Map::new()));
            content.entry("payload").or_insert_with(|| Value::Array(Vec::new()));
        }
        let frames =
            self.outbound.signer().seal(Some(&origin.header), reply, &content, &metadata, Vec::new());
        if let Err(error) = self.outbound.send_reply(&origin.peer, frames).await {
            // The client went away; its cell ran all the same.
            tracing::info!(%error, reply, "a reply could not be delivered");
        }
    }
}
