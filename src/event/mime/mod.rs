//! MIME bundles, and their sanitising: guest and model output is hostile to a front end.
//!
//! Imports nothing of ours. Whoever controls what a notebook page shows can act there as its user: call the
//! server's API, open terminals, read other notebooks. And whatever the page loads by itself from an address can
//! carry data out of a sandbox that has no network. A [`Bundle`] exists only in sanitised form: the one way from
//! untrusted representations to a `Bundle` is [`Bundle::sanitised`].
//!
//! | type | what happens to it |
//! | --- | --- |
//! | `text/plain` | escape sequences other than colours are removed (`terminal`) |
//! | `text/html` | cleaned, or framed when it needs script (`html`) |
//! | `text/markdown` | markup in it made safe, everything else as written (`markdown`) |
//! | `text/latex` | commands that reach out of the formula taken apart (`tex`) |
//! | `image/svg+xml` | cleaned (`svg`) |
//! | `image/png`, `jpeg`, `gif`, `webp`, `bmp`, `application/pdf` | must be base64 |
//! | `application/json` | as it is: front ends show it as text |
//! | Vega and Vega-Lite | as they are, unless they hold an address to load or to open |
//! | everything else | refused: script, widgets, renderers of extensions |
//!
//! What is refused leaves a note in `text/plain` unless another rich representation remains. To allow a type, add
//! a row to `representation` and say above what makes it safe.

mod css;
mod html;
mod markdown;
mod svg;
mod tex;
mod url;

use serde_json::{Map, Value};

use super::terminal;

/// Representations of one thing by MIME type, fit for a front end.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Bundle {
    data: Map<String, Value>,
    metadata: Map<String, Value>,
}

const PLAIN: &str = "text/plain";

impl Bundle {
    /// Makes untrusted representations fit for a front end.
    ///
    /// `metadata` is by MIME type, as in a Jupyter message; only sizes and the like stay of it. Sanitising what
    /// is sanitised changes nothing.
    pub fn sanitised(data: Map<String, Value>, metadata: Map<String, Value>) -> Self {
        let mut bundle = Bundle::default();
        let mut refused = Vec::new();
        for (kind, value) in data {
            match representation(&kind, value) {
                Some(value) => {
                    bundle.data.insert(kind, value);
                }
                None => refused.push(kind),
            }
        }
        for (kind, value) in metadata {
            if let Some(value) = bundle.data.get(&kind).and_then(|_| metadata_of(&kind, value)) {
                bundle.metadata.insert(kind, value);
            }
        }
        if !refused.is_empty() && bundle.data.keys().all(|kind| kind == PLAIN) {
            bundle.add_note(&refused);
        }
        bundle
    }

    /// Plain text only; nothing in it is interpreted.
    pub fn text(text: impl Into<String>) -> Self {
        let mut data = Map::new();
        data.insert(PLAIN.into(), Value::String(text.into()));
        Bundle { data, metadata: Map::new() }
    }

    /// Markdown of a hostile source (a model's reply), and the same as plain text.
    pub fn markdown(text: &str) -> Self {
        let mut data = Map::new();
        data.insert("text/markdown".into(), Value::String(markdown::sanitised(text)));
        data.insert(PLAIN.into(), Value::String(terminal::filtered(text)));
        Bundle { data, metadata: Map::new() }
    }

    /// HTML that the host itself made, with every foreign text in it already escaped, and the same as plain text.
    pub fn trusted_html(html: impl Into<String>, plain: impl Into<String>) -> Self {
        let mut bundle = Bundle::text(plain);
        bundle.data.insert("text/html".into(), Value::String(html.into()));
        bundle
    }

    /// Adds metadata of the host's own.
    #[must_use]
    pub fn with_metadata(mut self, key: impl Into<String>, value: Value) -> Self {
        self.metadata.insert(key.into(), value);
        self
    }

    /// Representations by MIME type.
    pub fn data(&self) -> &Map<String, Value> {
        &self.data
    }

    /// Metadata, by MIME type where it belongs to one.
    pub fn metadata(&self) -> &Map<String, Value> {
        &self.metadata
    }

    /// Says in the plain text what was not shown, and why.
    fn add_note(&mut self, refused: &[String]) {
        let name = |kind: &String| kind.chars().filter(|c| !c.is_control()).take(80).collect::<String>();
        let names = refused.iter().map(name).collect::<Vec<_>>().join(", ");
        let note = format!(
            "[not shown: {names} from the sandbox could act in this page as you; \
             display HTML, a picture or text instead]"
        );
        let text = self.data.get(PLAIN).and_then(Value::as_str).unwrap_or_default();
        let text = if text.is_empty() { note } else { format!("{text}\n{note}") };
        self.data.insert(PLAIN.into(), Value::String(text));
    }
}

/// One representation made safe; `None` when it is refused.
fn representation(kind: &str, value: Value) -> Option<Value> {
    let text = |value: Value| match value {
        Value::String(text) => Some(text),
        // The notebook format allows a list of lines.
        Value::Array(lines) => {
            lines.iter().map(Value::as_str).collect::<Option<Vec<_>>>().map(|l| l.concat())
        }
        _ => None,
    };
    let string = |text: String| Some(Value::String(text));
    match kind {
        PLAIN => string(terminal::filtered(&text(value)?)),
        "text/html" => string(html::sanitised(&text(value)?)),
        "text/markdown" => string(markdown::sanitised(&text(value)?)),
        "text/latex" => string(tex::neutral(&text(value)?).into_owned()),
        "image/svg+xml" => string(svg::sanitised(&text(value)?)?),
        "image/png" | "image/jpeg" | "image/gif" | "image/webp" | "image/bmp" => {
            text(value).filter(|data| url::is_base64(data)).and_then(string)
        }
        // `JVBER` is `%PDF-`: nothing else may be opened as a document.
        "application/pdf" => {
            text(value).filter(|data| url::is_base64(data) && data.starts_with("JVBER")).and_then(string)
        }
        "application/json" => Some(value),
        kind if is_vega(kind) => vega(value),
        _ => None,
    }
}

/// `application/vnd.vega.v5+json`, `application/vnd.vegalite.v5.8.0+json` and the like.
fn is_vega(kind: &str) -> bool {
    let version =
        ["application/vnd.vega.v", "application/vnd.vegalite.v"].iter().find_map(|p| kind.strip_prefix(p));
    version
        .and_then(|rest| rest.strip_suffix("+json"))
        .is_some_and(|version| !version.is_empty() && version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

/// A chart whose data is in it. A chart could load an address that it computes from what it loaded before, with
/// the user's own session; its settings for the page (`usermeta`) may hold HTML.
fn vega(mut value: Value) -> Option<Value> {
    if let Some(chart) = value.as_object_mut() {
        chart.remove("usermeta");
    }
    let mut open = vec![&value];
    while let Some(value) = open.pop() {
        match value {
            Value::Array(values) => open.extend(values),
            Value::Object(fields) => {
                if fields.keys().any(|key| matches!(key.as_str(), "url" | "href" | "loader" | "topojson")) {
                    return None;
                }
                open.extend(
                    fields.iter().filter(|(key, _)| *key != "values" && *key != "datasets").map(|(_, v)| v),
                );
            }
            _ => {}
        }
    }
    value.is_object().then_some(value)
}

/// The largest size of a picture, in pixels.
const MAX_PIXELS: f64 = 10_000.0;

/// What stays of the metadata of one representation.
fn metadata_of(kind: &str, value: Value) -> Option<Value> {
    let Value::Object(fields) = value else { return None };
    let size = |value: &Value| value.as_f64().is_some_and(|size| size > 0.0 && size <= MAX_PIXELS);
    let kept: Map<String, Value> = fields
        .into_iter()
        .filter(|(key, value)| match key.as_str() {
            "width" | "height" => kind.starts_with("image/") && size(value),
            "needs_background" => matches!(value.as_str(), Some("light" | "dark")),
            "expanded" => kind == "application/json" && value.is_boolean(),
            "root" => kind == "application/json" && value.as_str().is_some_and(|root| root.len() <= 100),
            _ => false,
        })
        .collect();
    (!kept.is_empty()).then_some(Value::Object(kept))
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
