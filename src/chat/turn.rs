//! What a question and its answer are made of, for everybody: prompts, attachments, tools, calls, results.
//!
//! Imports nothing of ours. These types go into the dialogue, into its store and into recorded replies, so they
//! serialise; a field that is added needs a default.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What the user asks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// What the user wrote, Markdown as it is.
    pub text: String,
    /// What goes with it, in the order in which it was named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
}

impl Prompt {
    /// Words alone.
    pub fn text(text: impl Into<String>) -> Self {
        Prompt { text: text.into(), attachments: Vec::new() }
    }
}

/// Something that goes with a prompt: a file, a cell, an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// As the user named it (`@data.csv`).
    pub name: String,
    /// What it holds.
    pub content: Content,
    /// Whom alone the user agreed to send it to ([`Chat::identity`](crate::chat::Chat::identity)); `None`: it needed no
    /// yes, and goes to whoever is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<String>,
}

/// What an attachment holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Text, shortened where it was too long.
    Text(String),
    /// A picture, for models that see.
    Image(Image),
}

/// A picture.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Its media type: `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    pub media_type: String,
    /// Its bytes in base64.
    pub base64: String,
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({}, {} bytes of base64)", self.media_type, self.base64.len())
    }
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments (an object).
    pub parameters: Value,
    /// Which arguments are code and its language: such a call is shown as a fence while it forms.
    pub code: Option<CodeArguments>,
}

/// Which arguments of a tool are code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeArguments {
    /// The argument that holds the code.
    pub code: &'static str,
    /// The argument that names its language.
    pub language: &'static str,
    /// The language when none is named.
    pub default: &'static str,
}

/// A call that the model makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Names the call; its result carries the same.
    pub id: String,
    /// The tool; it may be one that was never offered.
    pub name: String,
    /// Its arguments, JSON as the model wrote it; it may be malformed.
    pub arguments: String,
}

/// What came of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call's id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// What the model is told, bounded.
    pub text: String,
    /// Whether it failed.
    #[serde(default)]
    pub failed: bool,
    /// Whom alone the user agreed to tell this, as [`Attachment::agreed`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<String>,
    /// Pictures that it showed, for models that see; the text names them, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

/// How one question differs from the settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Another model.
    pub model: Option<String>,
    /// Another sampling temperature.
    pub temperature: Option<f64>,
    /// Another text in the place of `model.system`.
    pub system: Option<String>,
    /// Another limit on the reply's tokens.
    pub max_tokens: Option<u64>,
}
