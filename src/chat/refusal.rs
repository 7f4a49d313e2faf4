//! What servers mean when they refuse a request: their words for it differ, and few have a code.
//!
//! Imports `model`.

use super::model::ModelError;

/// Whether an error says that the server does not know the model.
pub(crate) fn is_unknown_model(error: &ModelError) -> bool {
    let ModelError::Status { status: 400 | 404 | 422, text, .. } = error else { return false };
    let text = text.to_lowercase();
    text.contains("model")
        && ["not found", "not exist", "unknown", "invalid model", "not supported", "no such", "unavailable"]
            .iter()
            .any(|words| text.contains(words))
}

/// What a server refused, though the request could do without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The newer request fields.
    Fields,
    /// Tools.
    Tools,
    /// Images.
    Images,
}

/// Whether an error is the refusal of a part of the request, in the words of the servers that there are.
pub(crate) fn refused(error: &ModelError) -> Option<Refused> {
    let ModelError::Status { status, text, .. } = error else { return None };
    if !matches!(status, 400 | 404 | 405 | 415 | 422 | 500 | 501) || is_too_long(*status, text) {
        return None;
    }
    let text = text.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&["stream_options", "include_usage", "encrypted content", "encrypted_content"]) {
        return Some(Refused::Fields);
    }
    if says(&["tool", "function call", "functions"])
        && says(&[
            "support",
            "unknown",
            "unrecognized",
            "unexpected",
            "not allowed",
            "not permitted",
            "extra",
            "requires",
            "not enabled",
            "not available",
        ])
    {
        return Some(Refused::Tools);
    }
    if says(&["image", "vision", "multimodal", "mmproj", "content[].type"]) {
        return Some(Refused::Images);
    }
    says(&["extra inputs"]).then_some(Refused::Fields)
}

/// Whether a refusal is that of a content filter.
pub(super) fn is_filtered(text: &str) -> bool {
    let text = text.to_lowercase();
    let words =
        ["content filter", "content_filter", "content management policy", "content policy", "content_policy"];
    words.iter().any(|words| text.contains(words))
}

/// How much dialogue the model takes, in bytes, when a refusal for its length says how many tokens are allowed.
pub(crate) fn stated_window(error: &ModelError, max_tokens: Option<u64>) -> Option<usize> {
    let ModelError::Status { status, text, .. } = error else { return None };
    if !is_too_long(*status, text) {
        return None;
    }
    let text = text.to_lowercase();
    let before = [
        "maximum context length is ",
        "context length is ",
        "context length of ",
        "context size (",
        "context window of ",
        "context size of ",
        "allowed (",
        "tokens > ",
    ];
    let limit = before.iter().find_map(|words| {
        let after = &text[text.find(words)? + words.len()..];
        let digits: String = after.chars().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
        digits.replace(',', "").parse::<usize>().ok()
    })?;
    // Room for the reply; and a token is seldom less than three bytes.
    let reply = usize::try_from(max_tokens.unwrap_or(1024)).unwrap_or(usize::MAX).min(limit / 2);
    Some((limit - reply).saturating_mul(3)).filter(|window| *window > 0)
}

/// Whether a refusal is for the length of the dialogue.
pub(super) fn is_too_long(status: u16, text: &str) -> bool {
    let text = text.to_lowercase();
    status == 413
        || [
            "context length",
            "context_length",
            "maximum context",
            "context size",
            "context window",
            "too many tokens",
            "prompt is too long",
            "input token count",
        ]
        .iter()
        .any(|words| text.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16, text: &str) -> ModelError {
        ModelError::Status { status, text: text.to_owned(), retry_after: None, location: None }
    }

    #[test]
    fn refusals_of_a_part_are_told_from_others() {
        for (code, text, expected) in [
            (400, "registry.ollama.ai/library/gemma3:1b does not support tools", Some(Refused::Tools)),
            (500, "tools param requires --jinja flag", Some(Refused::Tools)),
            (400, "\"auto\" tool choice requires --enable-auto-tool-choice", Some(Refused::Tools)),
            (400, "Unrecognized request argument supplied: stream_options", Some(Refused::Fields)),
            (500, "image input is not supported - hint: provide the mmproj", Some(Refused::Images)),
            (400, "unknown variant `image_url`, expected `text`", Some(Refused::Images)),
            (400, "Invalid schema for function 'run_code'", None),
            (400, "temperature must be below 2", None),
            (429, "too many tool calls are not supported", None),
            (400, "maximum context length is 4096 tokens, tools included; not supported", None),
        ] {
            assert_eq!(refused(&status(code, text)), expected, "{text}");
        }
    }

    #[test]
    fn the_window_is_found_where_servers_state_it() {
        for (text, tokens) in [
            ("This model's maximum context length is 4,096 tokens. However, you requested 5000.", Some(4096)),
            ("the request exceeds the available context size (8192 tokens), try increasing it", Some(8192)),
            ("prompt is too long: 210000 tokens > 200000 maximum", Some(200_000)),
            (
                "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
                Some(1_048_576),
            ),
            ("context length exceeded", None),
            ("maximum context length is 0", None),
            ("maximum context length is 99999999999999999999999999", None),
        ] {
            let window = tokens.map(|tokens: usize| (tokens - 1024) * 3);
            assert_eq!(stated_window(&status(400, text), None), window, "{text}");
        }
    }
}
