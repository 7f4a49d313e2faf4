//! MIME bundles, and their sanitising: guest and model output is hostile to a front end.
//!
//! A [`Bundle`] exists only in sanitised form: the one way from untrusted representations to a
//! `Bundle` is [`Bundle::sanitised`].

use serde_json::{Map, Value};

/// Representations of one thing by MIME type, fit for a front end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bundle {
    data: Map<String, Value>,
    metadata: Map<String, Value>,
}

impl Bundle {
    /// Makes untrusted representations fit for a front end.
    pub fn sanitised(data: Map<String, Value>, metadata: Map<String, Value>) -> Self {
        Bundle { data, metadata }
    }

    /// Plain text only; nothing in it is interpreted.
    pub fn text(text: impl Into<String>) -> Self {
        let mut data = Map::new();
        data.insert("text/plain".into(), Value::String(text.into()));
        Bundle { data, metadata: Map::new() }
    }

    /// Representations by MIME type.
    pub fn data(&self) -> &Map<String, Value> {
        &self.data
    }

    /// Metadata, by MIME type where it belongs to one.
    pub fn metadata(&self) -> &Map<String, Value> {
        &self.metadata
    }
}
