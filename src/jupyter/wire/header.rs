//! The header of a message, as both sides send it.
//!
//! Imports nothing of ours.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A message's header. Fields that this version does not know are kept, because a reply's
/// `parent_header` echoes the request's header as it came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Header {
    /// Unique per message; the only field by which clients match replies.
    pub msg_id: String,
    /// Identifies the client's (or the kernel's) process.
    #[serde(default)]
    pub session: String,
    /// Who sent it; informational.
    #[serde(default)]
    pub username: String,
    /// ISO 8601; informational, so it is not parsed.
    #[serde(default)]
    pub date: String,
    /// What kind of message it is.
    pub msg_type: String,
    /// The sender's protocol version; old clients leave it out.
    #[serde(default)]
    pub version: String,
    /// The subshell that should serve the request (JEP 91); `None` is the parent shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subshell_id: Option<String>,
    /// Everything else that the sender put into the header.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}
