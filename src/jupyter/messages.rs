//! Every request that the kernel understands, with its reply: one table.
//!
//! A handler for a row can return only that row's reply ([`Request::Reply`]). To add a message type: one
//! row in `messages!`, one struct for its content, and the arm that the compiler then asks for.
//! Unknown members of a content are ignored, as the protocol demands of minor versions.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::event::Failure;

use super::wire::PROTOCOL_VERSION;

/// The content of one type of request.
pub(crate) trait Request: DeserializeOwned + Send {
    /// The message type on the wire.
    const TYPE: &'static str;
    /// The type of the reply; `None` when the protocol has none.
    const REPLY: Option<&'static str>;
    /// What a handler may answer.
    type Reply: Reply;
}

/// The content of one type of reply; `status` is added by [`content`].
pub(crate) trait Reply: Serialize + Send {
    /// Why the request failed, for replies that carry more than the failure.
    fn failure(&self) -> Option<&Failure> {
        None
    }

    /// The metadata of the reply message.
    fn metadata(&mut self) -> Map<String, Value> {
        Map::new()
    }
}

/// The whole content of a reply: its status, the failure's three members, and the reply's own.
pub(crate) fn content<R: Reply>(reply: &Result<R, Failure>) -> Value {
    let (failure, own) = match reply {
        Ok(reply) => (reply.failure(), serde_json::to_value(reply)),
        Err(failure) => (Some(failure), Ok(Value::Null)),
    };
    let mut map = Map::new();
    map.insert("status".into(), if failure.is_some() { "error" } else { "ok" }.into());
    match own {
        Ok(Value::Object(own)) => map.extend(own),
        Ok(_) => {}
        Err(error) => tracing::error!(%error, "a reply could not be written as JSON"),
    }
    if let Some(failure) = failure {
        map.insert("ename".into(), failure.ename.as_str().into());
        map.insert("evalue".into(), failure.evalue.as_str().into());
        map.insert("traceback".into(), failure.traceback.clone().into());
    }
    Value::Object(map)
}

/// Why a message is not one of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// No row of the table has this type.
    #[error("no such message type: {0}")]
    Unknown(String),
    /// The content does not fit the type.
    #[error(
        "this {request} can't be read: {why}; its content must follow version {PROTOCOL_VERSION} of the Jupyter protocol"
    )]
    Content {
        /// The request's type.
        request: &'static str,
        /// The reply's type, if it has one.
        reply: Option<&'static str>,
        /// What is wrong.
        why: String,
    },
}

macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident($request:ty) $kind:literal => $reply:ty, $reply_kind:expr;)*) => {
        /// A request that was read.
        #[derive(Debug)]
        pub(crate) enum Incoming {
            $($(#[$doc])* $name($request),)*
        }

        $(impl Request for $request {
            const TYPE: &'static str = $kind;
            const REPLY: Option<&'static str> = $reply_kind;
            type Reply = $reply;
        })*

        impl Incoming {
            /// Reads a content by its message type.
            ///
            /// # Errors
            /// [`Unreadable`]; never panics, whatever the content is.
            pub(crate) fn read(msg_type: &str, content: Value) -> Result<Self, Unreadable> {
                match msg_type {
                    $($kind => serde_json::from_value::<$request>(content).map(Incoming::$name).map_err(|error| {
                        Unreadable::Content {
                            request: $kind,
                            reply: $reply_kind,
                            why: error.to_string(),
                        }
                    }),)*
                    other => Err(Unreadable::Unknown(other.chars().take(100).collect())),
                }
            }
        }
    };
}

messages! {
    /// What kernel is this?
    KernelInfo(KernelInfoRequest) "kernel_info_request" => KernelInfoReply, Some("kernel_info_reply");
    /// Run a cell.
    Execute(ExecuteRequest) "execute_request" => ExecuteReply, Some("execute_reply");
    /// Completions at a position.
    Complete(CompleteRequest) "complete_request" => CompleteReply, Some("complete_reply");
    /// Documentation at a position.
    Inspect(InspectRequest) "inspect_request" => InspectReply, Some("inspect_reply");
    /// Is this ready to run?
    IsComplete(IsCompleteRequest) "is_complete_request" => IsCompleteReply, Some("is_complete_reply");
    /// What was run before.
    History(HistoryRequest) "history_request" => HistoryReply, Some("history_reply");
    /// Which comms are open.
    CommInfo(CommInfoRequest) "comm_info_request" => CommInfoReply, Some("comm_info_reply");
    /// Which ports the kernel listens on.
    Connect(ConnectRequest) "connect_request" => ConnectReply, Some("connect_reply");
    /// Stop what runs.
    Interrupt(InterruptRequest) "interrupt_request" => Empty, Some("interrupt_reply");
    /// End the kernel.
    Shutdown(ShutdownRequest) "shutdown_request" => ShutdownReply, Some("shutdown_reply");
    /// Debug Adapter Protocol: not offered.
    Debug(DebugRequest) "debug_request" => Empty, Some("debug_reply");
    /// Subshells: not offered.
    CreateSubshell(CreateSubshellRequest) "create_subshell_request" => Empty, Some("create_subshell_reply");
    /// Subshells: not offered.
    DeleteSubshell(DeleteSubshellRequest) "delete_subshell_request" => Empty, Some("delete_subshell_reply");
    /// Subshells: not offered.
    ListSubshell(ListSubshellRequest) "list_subshell_request" => Empty, Some("list_subshell_reply");
    /// The front end opens a comm.
    CommOpen(CommOpen) "comm_open" => Empty, None;
    /// The front end uses a comm.
    CommMessage(CommMessage) "comm_msg" => Empty, None;
    /// The front end closes a comm.
    CommClose(CommClose) "comm_close" => Empty, None;
}

/// Declares contents without members: anything that is an object will do.
macro_rules! empty {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[derive(Debug, Default, Deserialize)]
        pub(crate) struct $name {}
    )*};
}

empty! {
    /// `kernel_info_request`.
    KernelInfoRequest,
    /// `comm_info_request`; no comm is ever open, so its `target_name` does not matter.
    CommInfoRequest,
    /// `connect_request`.
    ConnectRequest,
    /// `interrupt_request`.
    InterruptRequest,
    /// `debug_request`.
    DebugRequest,
    /// `create_subshell_request`.
    CreateSubshellRequest,
    /// `delete_subshell_request`.
    DeleteSubshellRequest,
    /// `list_subshell_request`.
    ListSubshellRequest,
    /// `comm_msg`.
    CommMessage,
    /// `comm_close`.
    CommClose
}

/// A reply with nothing but its status.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Empty {}

impl Reply for Empty {}

/// `kernel_info_reply`.
#[derive(Debug, Serialize)]
pub(crate) struct KernelInfoReply {
    pub(crate) protocol_version: &'static str,
    pub(crate) implementation: &'static str,
    pub(crate) implementation_version: &'static str,
    pub(crate) language_info: Value,
    pub(crate) banner: String,
    pub(crate) help_links: [Value; 0],
    /// Only what works: neither subshells nor the debugger.
    pub(crate) supported_features: [&'static str; 0],
}

impl Reply for KernelInfoReply {}

/// `execute_request`. Members that a client sends as null count as absent.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ExecuteRequest {
    pub(crate) code: String,
    silent: Option<bool>,
    store_history: Option<bool>,
    user_expressions: Option<Map<String, Value>>,
    allow_stdin: Option<bool>,
    stop_on_error: Option<bool>,
}

impl ExecuteRequest {
    /// As quietly as possible; forces `store_history` off.
    pub(crate) fn silent(&self) -> bool {
        self.silent.unwrap_or(false)
    }

    /// Whether histories take it up.
    pub(crate) fn store_history(&self) -> bool {
        !self.silent() && self.store_history.unwrap_or(true)
    }

    /// Whether the user may be asked.
    pub(crate) fn allow_stdin(&self) -> bool {
        self.allow_stdin.unwrap_or(true)
    }

    /// Whether a failure cancels what is queued behind it; a silent request never does.
    pub(crate) fn stops_on_error(&self) -> bool {
        !self.silent() && self.stop_on_error.unwrap_or(true)
    }

    /// Whether it takes the next execution count: an empty cell does not.
    pub(crate) fn counts(&self) -> bool {
        self.store_history() && !self.code.trim().is_empty()
    }

    /// Expressions to evaluate after the code.
    pub(crate) fn user_expressions(&mut self) -> Map<String, Value> {
        self.user_expressions.take().unwrap_or_default()
    }
}

/// `execute_reply`, for success and failure.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ExecuteReply {
    pub(crate) execution_count: u32,
    pub(crate) user_expressions: Map<String, Value>,
    pub(crate) payload: Vec<Value>,
    #[serde(skip)]
    pub(crate) failure: Option<Failure>,
    #[serde(skip)]
    pub(crate) metadata: Map<String, Value>,
}

impl Reply for ExecuteReply {
    fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    fn metadata(&mut self) -> Map<String, Value> {
        std::mem::take(&mut self.metadata)
    }
}

/// `complete_request`; `cursor_pos` counts code points and defaults to the end.
#[derive(Debug, Deserialize)]
pub(crate) struct CompleteRequest {
    pub(crate) code: String,
    cursor_pos: Option<u64>,
}

impl CompleteRequest {
    /// The cursor, within the code.
    pub(crate) fn cursor(&self) -> usize {
        clamp(&self.code, self.cursor_pos)
    }
}

/// `complete_reply`.
#[derive(Debug, Serialize)]
pub(crate) struct CompleteReply {
    pub(crate) matches: Vec<String>,
    pub(crate) cursor_start: usize,
    pub(crate) cursor_end: usize,
    pub(crate) metadata: Map<String, Value>,
}

impl Reply for CompleteReply {}

/// `inspect_request`.
#[derive(Debug, Deserialize)]
pub(crate) struct InspectRequest {
    pub(crate) code: String,
    cursor_pos: Option<u64>,
    detail_level: Option<u64>,
}

impl InspectRequest {
    /// The cursor, within the code.
    pub(crate) fn cursor(&self) -> usize {
        clamp(&self.code, self.cursor_pos)
    }

    /// 0 or 1.
    pub(crate) fn detail(&self) -> u8 {
        u8::from(self.detail_level.is_some_and(|level| level > 0))
    }
}

/// `inspect_reply`.
#[derive(Debug, Serialize)]
pub(crate) struct InspectReply {
    pub(crate) found: bool,
    pub(crate) data: Map<String, Value>,
    pub(crate) metadata: Map<String, Value>,
}

impl Reply for InspectReply {}

/// `is_complete_request`.
#[derive(Debug, Deserialize)]
pub(crate) struct IsCompleteRequest {
    pub(crate) code: String,
}

/// `is_complete_reply`: its own `status` replaces ok/error.
#[derive(Debug, Serialize)]
pub(crate) struct IsCompleteReply {
    pub(crate) status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) indent: Option<String>,
}

impl IsCompleteReply {
    /// Nobody could tell in time.
    pub(crate) fn unknown() -> Self {
        IsCompleteReply { status: "unknown", indent: None }
    }
}

impl Reply for IsCompleteReply {}

/// `history_request`.
#[derive(Debug, Deserialize)]
pub(crate) struct HistoryRequest {
    pub(crate) hist_access_type: HistoryAccess,
    output: Option<bool>,
    pub(crate) session: Option<i64>,
    pub(crate) start: Option<i64>,
    pub(crate) stop: Option<i64>,
    pub(crate) n: Option<u64>,
    pub(crate) pattern: Option<String>,
    unique: Option<bool>,
}

impl HistoryRequest {
    /// Whether entries carry their output too.
    pub(crate) fn output(&self) -> bool {
        self.output.unwrap_or(false)
    }

    /// Whether of equal inputs only the newest counts.
    pub(crate) fn unique(&self) -> bool {
        self.unique.unwrap_or(false)
    }
}

/// Which part of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HistoryAccess {
    /// Lines of one session.
    Range,
    /// The newest `n`.
    Tail,
    /// Inputs that match a glob pattern.
    Search,
}

/// `history_reply`.
#[derive(Debug, Serialize)]
pub(crate) struct HistoryReply {
    /// `[session, line, input]`, or `[session, line, [input, output]]`.
    pub(crate) history: Vec<Value>,
}

impl Reply for HistoryReply {}

/// `comm_info_reply`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct CommInfoReply {
    pub(crate) comms: Map<String, Value>,
}

impl Reply for CommInfoReply {}

/// `connect_reply`.
#[allow(clippy::struct_field_names, reason = "the protocol's names")]
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ConnectReply {
    pub(crate) shell_port: u16,
    pub(crate) iopub_port: u16,
    pub(crate) stdin_port: u16,
    pub(crate) control_port: u16,
    pub(crate) hb_port: u16,
}

impl Reply for ConnectReply {}

/// `shutdown_request`.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct ShutdownRequest {
    restart: Option<bool>,
}

impl ShutdownRequest {
    /// Whether the client means to start the kernel again.
    pub(crate) fn restart(&self) -> bool {
        self.restart.unwrap_or(false)
    }
}

/// `shutdown_reply`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ShutdownReply {
    pub(crate) restart: bool,
}

impl Reply for ShutdownReply {}

/// `comm_open`.
#[derive(Debug, Deserialize)]
pub(crate) struct CommOpen {
    pub(crate) comm_id: String,
    #[serde(default)]
    pub(crate) target_name: String,
}

/// A cursor in code points, moved into the text when it lies outside.
fn clamp(code: &str, cursor: Option<u64>) -> usize {
    let length = code.chars().count();
    cursor.map_or(length, |at| usize::try_from(at).map_or(length, |at| at.min(length)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use serde_json::json;

    use super::*;

    fn execute(content: &str) -> ExecuteRequest {
        match Incoming::read("execute_request", serde_json::from_str(content).unwrap()).unwrap() {
            Incoming::Execute(request) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn absent_and_null_members_of_an_execute_request_take_the_protocols_defaults() {
        for text in
            [r#"{"code":"1"}"#, r#"{"code":"1","silent":null,"store_history":null,"allow_stdin":null}"#]
        {
            let request = execute(text);
            assert!(!request.silent() && request.store_history() && request.allow_stdin());
            assert!(request.stops_on_error() && request.counts());
        }
    }

    #[test]
    fn silent_forces_history_and_counting_off_and_never_stops_the_queue() {
        let request = execute(r#"{"code":"1","silent":true,"store_history":true,"stop_on_error":true}"#);
        assert!(!request.store_history() && !request.counts() && !request.stops_on_error());
    }

    #[test]
    fn an_empty_cell_does_not_count() {
        assert!(!execute(r#"{"code":" \n"}"#).counts());
    }

    #[test]
    fn a_content_that_does_not_fit_says_which_request_and_why() {
        for content in
            [json!({}), json!({"code": 1}), json!([]), json!({"code": "1", "silent": "no"}), Value::Null]
        {
            let error = Incoming::read("execute_request", content).unwrap_err();
            assert!(matches!(&error, Unreadable::Content { reply: Some("execute_reply"), .. }), "{error}");
            assert!(error.to_string().starts_with("this execute_request can't be read: "), "{error}");
        }
    }

    #[test]
    fn an_unknown_type_is_named_but_not_at_any_length() {
        let error = Incoming::read(&"x".repeat(5000), json!({})).unwrap_err();
        assert_eq!(error, Unreadable::Unknown("x".repeat(100)));
    }

    #[test]
    fn cursors_count_code_points_and_stay_inside() {
        let request = |cursor: Value| {
            let content = json!({"code": "é𝒳a", "cursor_pos": cursor});
            match Incoming::read("complete_request", content).unwrap() {
                Incoming::Complete(request) => request.cursor(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(request(2.into()), 2);
        assert_eq!(request(99.into()), 3);
        assert_eq!(request(Value::Null), 3);
    }

    #[test]
    fn a_failed_execute_reply_keeps_its_own_members() {
        let reply = ExecuteReply {
            execution_count: 3,
            failure: Some(Failure::new("Oops", "it broke")),
            ..ExecuteReply::default()
        };
        let content = content(&Ok(reply));
        assert_eq!(content["status"], "error");
        assert_eq!(content["ename"], "Oops");
        assert_eq!(content["execution_count"], 3);
        assert_eq!(content["payload"], json!([]));
        assert_eq!(content["user_expressions"], json!({}));
    }

    #[test]
    fn is_complete_has_a_status_of_its_own() {
        assert_eq!(content(&Ok(IsCompleteReply::unknown())), json!({"status": "unknown"}));
    }

    proptest::proptest! {
        #[test]
        fn no_content_of_any_request_is_fatal(text in ".*", number in proptest::prelude::any::<i64>()) {
            for content in [
                json!({"code": text, "cursor_pos": number, "silent": number, "hist_access_type": text}),
                json!({"code": number, "comm_id": number, "restart": text}),
                json!([text, number]),
                json!(text),
            ] {
                for kind in ["execute", "complete", "inspect", "is_complete", "history", "shutdown", "comm_info", &text] {
                    let _ = Incoming::read(&format!("{kind}_request"), content.clone());
                }
                let _ = Incoming::read("comm_open", content);
            }
        }
    }
}
