//! What the kernel says to every subscriber: the messages of iopub.
//!
//! May import `event`. What is rich travels as a [`Bundle`], so nothing unsanitised can leave. To add one: a variant, its name in [`Broadcast::msg_type`], its content in
//! [`Broadcast::content`], and its weight for the queue.

use serde_json::{Map, Value, json};

use crate::event::{Bundle, DisplayId, Failure, Stream};

/// Whether a request is being handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The kernel process has just begun.
    Starting,
    /// A request is being handled.
    Busy,
    /// Everything that a request caused has been sent.
    Idle,
}

/// One message of iopub.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Broadcast {
    /// `status`.
    Status(State),
    /// `execute_input`: what is about to run.
    ExecuteInput {
        /// The cell's text.
        code: String,
        /// Its execution count.
        count: u32,
    },
    /// `stream`.
    Stream {
        /// Which stream.
        stream: Stream,
        /// The text.
        text: String,
    },
    /// `display_data`.
    Display {
        /// What to show, and the metadata saved with it.
        bundle: Bundle,
        /// A name, for updates.
        id: Option<DisplayId>,
    },
    /// `update_display_data`.
    Update {
        /// What to show, and the metadata saved with it.
        bundle: Bundle,
        /// Which display.
        id: DisplayId,
    },
    /// `execute_result`.
    Result {
        /// The value's representations.
        bundle: Bundle,
        /// The cell's execution count.
        count: u32,
    },
    /// `error`.
    Error(Failure),
    /// `clear_output`.
    Clear {
        /// Wait for the next output.
        wait: bool,
    },
    /// `comm_close`: the answer to a comm that nobody here knows.
    CommClose {
        /// Which comm.
        comm_id: String,
    },
    /// `shutdown_reply`: tells every client that one of them ended the kernel.
    Shutdown {
        /// Whether it will be started again.
        restart: bool,
    },
}

impl Broadcast {
    /// A piece of stream text.
    pub(crate) fn text(stream: Stream, text: impl Into<String>) -> Self {
        Broadcast::Stream { stream, text: text.into() }
    }

    /// The message type on the wire.
    pub(crate) fn msg_type(&self) -> &'static str {
        match self {
            Broadcast::Status(_) => "status",
            Broadcast::ExecuteInput { .. } => "execute_input",
            Broadcast::Stream { .. } => "stream",
            Broadcast::Display { .. } => "display_data",
            Broadcast::Update { .. } => "update_display_data",
            Broadcast::Result { .. } => "execute_result",
            Broadcast::Error(_) => "error",
            Broadcast::Clear { .. } => "clear_output",
            Broadcast::CommClose { .. } => "comm_close",
            Broadcast::Shutdown { .. } => "shutdown_reply",
        }
    }

    /// The message's content.
    pub(crate) fn content(self) -> Value {
        match self {
            Broadcast::Status(state) => json!({"execution_state": match state {
                State::Starting => "starting",
                State::Busy => "busy",
                State::Idle => "idle",
            }}),
            Broadcast::ExecuteInput { code, count } => json!({"code": code, "execution_count": count}),
            Broadcast::Stream { stream, text } => {
                object([("name", stream.name().into()), ("text", text.into())])
            }
            Broadcast::Display { bundle, id } => display(&bundle, id.as_ref()),
            Broadcast::Update { bundle, id } => display(&bundle, Some(&id)),
            Broadcast::Result { bundle, count } => {
                json!({"data": bundle.data(), "metadata": bundle.metadata(), "execution_count": count})
            }
            Broadcast::Error(failure) => json!({
                "ename": failure.ename,
                "evalue": failure.evalue,
                "traceback": failure.traceback,
            }),
            Broadcast::Clear { wait } => json!({"wait": wait}),
            Broadcast::CommClose { comm_id } => json!({"comm_id": comm_id, "data": {}}),
            Broadcast::Shutdown { restart } => json!({"status": "ok", "restart": restart}),
        }
    }

    /// About how many bytes it keeps in memory.
    pub(crate) fn size(&self) -> usize {
        const FRAME: usize = 256;
        FRAME
            + match self {
                Broadcast::Stream { text, .. } => text.len(),
                Broadcast::ExecuteInput { code, .. } => code.len(),
                Broadcast::Display { bundle, .. }
                | Broadcast::Update { bundle, .. }
                | Broadcast::Result { bundle, .. } => strings(bundle.data()),
                Broadcast::Error(failure) => failure.traceback.iter().map(String::len).sum(),
                Broadcast::Status(_)
                | Broadcast::Clear { .. }
                | Broadcast::CommClose { .. }
                | Broadcast::Shutdown { .. } => 0,
            }
    }
}

/// An object of moved values: stream texts are large, and `json!` would copy them.
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn display(bundle: &Bundle, id: Option<&DisplayId>) -> Value {
    let transient = id.map_or_else(|| json!({}), |id| json!({"display_id": id.as_str()}));
    json!({"data": bundle.data(), "metadata": bundle.metadata(), "transient": transient})
}

/// Length of the representations; what is not text (JSON) is rarely large.
fn strings(data: &Map<String, Value>) -> usize {
    const OTHER: usize = 1024;
    data.values().map(|value| value.as_str().map_or(OTHER, str::len)).sum()
}
