//! What the end of a Python run carries into the reply, made fit for a front end.
//!
//! May import `event`. A front end shows a `page` payload as it shows a display, and extensions show the values
//! of user expressions: both are guest output, and pass the same sanitising as every other. To let another
//! payload through, add an arm to [`payload`] that names each of its fields.

use serde_json::{Map, Value, json};

use crate::event::{Bundle, terminal};
use crate::sandbox::output::guest_failure;
use crate::sandbox::runner::frame::{BundleFrame, ErrorFrame};

/// The payloads that a front end may act on, with nothing in them but what it acts on.
pub(super) fn payloads(guest: Vec<Value>) -> Vec<Value> {
    guest.into_iter().filter_map(payload).collect()
}

fn payload(mut guest: Value) -> Option<Value> {
    match guest["source"].as_str()? {
        "page" => {
            let Value::Object(data) = guest["data"].take() else { return None };
            let bundle = Bundle::sanitised(data, Map::new());
            let start = guest["start"].as_u64().unwrap_or_default();
            Some(json!({ "source": "page", "data": bundle.data(), "start": start }))
        }
        "set_next_input" => {
            let text = terminal::filtered(guest["text"].as_str()?);
            let replace = guest["replace"].as_bool().unwrap_or_default();
            Some(json!({ "source": "set_next_input", "text": text, "replace": replace }))
        }
        "ask_exit" => Some(json!({ "source": "ask_exit", "keepkernel": false })),
        _ => None,
    }
}

/// The values of the expressions, by name.
pub(super) fn expressions(guest: Map<String, Value>) -> Map<String, Value> {
    guest.into_iter().map(|(name, value)| (name, expression(value))).collect()
}

fn expression(guest: Value) -> Value {
    if guest["status"] == "ok" {
        let BundleFrame { data, metadata } = serde_json::from_value(guest).unwrap_or_default();
        let bundle = Bundle::sanitised(data, metadata);
        return json!({ "status": "ok", "data": bundle.data(), "metadata": bundle.metadata() });
    }
    let ErrorFrame { ename, evalue, traceback } = serde_json::from_value(guest).unwrap_or_default();
    let failure = guest_failure(&ename, &evalue, &traceback);
    json!({
        "status": "error",
        "ename": failure.ename,
        "evalue": failure.evalue,
        "traceback": failure.traceback,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn hostile() -> Value {
        json!({
            "text/plain": "a\u{1b}]0;title\u{7}b",
            "text/html": "<b onclick=\"alert(1)\">b</b>",
            "application/javascript": "alert(2)",
        })
    }

    #[test]
    fn a_page_is_sanitised_like_a_display() {
        let shown = payloads(vec![
            json!({ "source": "page", "data": hostile(), "start": 3, "extra": 1 }),
            json!({ "source": "page", "data": "text" }),
        ]);
        let data = json!({ "text/plain": "ab", "text/html": "<b>b</b>" });
        assert_eq!(shown, [json!({ "source": "page", "data": data, "start": 3 })]);
    }

    #[test]
    fn the_next_input_is_text_and_nothing_unknown_passes() {
        let shown = payloads(vec![
            json!({ "source": "set_next_input", "text": "a\n\u{1b}[2Jb", "replace": true, "html": "<script>" }),
            json!({ "source": "set_next_input", "text": ["a"] }),
            json!({ "source": "ask_exit", "keepkernel": "x" }),
            json!({ "source": "edit_magic", "filename": "/etc/passwd" }),
            json!("page"),
        ]);
        let expected = [
            json!({ "source": "set_next_input", "text": "a\nb", "replace": true }),
            json!({ "source": "ask_exit", "keepkernel": false }),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn values_of_expressions_are_sanitised_and_errors_bounded() {
        let Value::Object(guest) = json!({
            "good": { "status": "ok", "data": hostile(), "metadata": { "text/html": { "isolated": true } } },
            "bad": { "status": "error", "ename": "E", "evalue": "v\u{1b}c", "traceback": ["t"], "x": 1 },
            "odd": 7,
        }) else {
            unreachable!()
        };
        let shown = expressions(guest);
        let data = json!({ "text/plain": "ab", "text/html": "<b>b</b>" });
        assert_eq!(shown["good"], json!({ "status": "ok", "data": data, "metadata": {} }));
        assert_eq!(
            shown["bad"],
            json!({ "status": "error", "ename": "E", "evalue": "v", "traceback": ["t"] })
        );
        assert_eq!(shown["odd"]["status"], "error");
    }
}
