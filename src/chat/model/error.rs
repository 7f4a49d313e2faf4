//! What went wrong with a request to a model, in terms that retrying and explaining need.

use std::time::Duration;

use rig_core::ProviderError;
use rig_core::http_client::Error as HttpError;

/// A failed request.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum ModelError {
    /// Nothing listens at the address.
    #[error("the connection was refused")]
    Refused,
    /// The server could not be reached: name, route, TLS, time.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// The connection was lost while waiting for or reading the reply.
    #[error("the connection was lost: {0}")]
    Lost(String),
    /// The server closed the connection before the reply was over.
    #[error("the server closed the connection")]
    Closed,
    /// The account that the key belongs to can't pay for an answer.
    #[error("status {status}: {text}")]
    Unpaid {
        /// The HTTP status.
        status: u16,
        /// The server's own words, as they came.
        text: String,
    },
    /// The server answered with an error status.
    #[error("status {status}: {text}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// The server's own words, as they came.
        text: String,
        /// What it asked us to wait.
        retry_after: Option<RetryAfter>,
        /// Where a redirect pointed.
        location: Option<String>,
    },
    /// The server reported an error in a stream that had begun well.
    #[error("the server reported an error: {0}")]
    InStream(String),
    /// The stream ended without its end.
    #[error("the stream ended before the reply did")]
    Truncated,
    /// The answer is not what was asked for.
    #[error("{0}")]
    Garbled(String),
    /// The request could not even be made.
    #[error("{0}")]
    Setup(String),
    /// Nothing arrived for that long.
    #[error("nothing arrived for {} s", .0.as_secs_f64())]
    Silent(Duration),
    /// The server did no more than keep the connection alive for that long.
    #[error("for {} s nothing arrived but signs of life, and no word of the reply", .0.as_secs_f64())]
    Wordless(Duration),
}

/// What a `Retry-After` header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetryAfter(pub(crate) Duration);

/// A failure of the transport, as our HTTP client reports it through the library.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{cause}")]
pub(super) struct Transport {
    kind: Kind,
    /// The chain of causes, without the URL.
    pub(super) cause: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Refused,
    Unreachable,
    Lost,
    Closed,
    TooLarge,
}

impl Transport {
    pub(super) fn from_reqwest(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let mut kind = if error.is_connect() || error.is_builder() { Kind::Unreachable } else { Kind::Lost };
        let mut words: Vec<String> = Vec::new();
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&error);
        while let Some(link) = next {
            let io = link.downcast_ref::<std::io::Error>();
            if kind == Kind::Unreachable
                && io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused)
            {
                kind = Kind::Refused;
            }
            let word = link.to_string();
            if kind == Kind::Lost && (io.is_some_and(is_closed) || word.contains("closed before message")) {
                kind = Kind::Closed;
            }
            if !words.iter().any(|known| known.contains(&word)) {
                words.push(word);
            }
            next = link.source();
        }
        Transport { kind, cause: words.join(": ") }
    }

    pub(super) fn too_large(limit: usize) -> Self {
        Transport {
            kind: Kind::TooLarge,
            cause: format!("the server sent more than {} MiB at once", limit >> 20),
        }
    }

    pub(super) fn into_error(self) -> ModelError {
        match self.kind {
            Kind::Refused => ModelError::Refused,
            Kind::Unreachable => ModelError::Unreachable(self.cause),
            Kind::Lost => ModelError::Lost(self.cause),
            Kind::Closed => ModelError::Closed,
            Kind::TooLarge => ModelError::Garbled(self.cause),
        }
    }
}

impl ModelError {
    pub(super) fn from_http(error: &HttpError) -> Self {
        match error {
            HttpError::Instance(inner) => match inner.downcast_ref::<Transport>() {
                Some(transport) => transport.clone().into_error(),
                None => ModelError::Lost(inner.to_string()),
            },
            HttpError::InvalidStatusCodeWithDetails { status, body, headers } => {
                ModelError::rejected(status.as_u16(), body, headers)
            }
            HttpError::InvalidContentType(kind) => ModelError::Garbled(format!(
                "it answered with the content type {}, not with a stream of events",
                kind.to_str().unwrap_or("(unreadable)")
            )),
            HttpError::StreamEnded => ModelError::Truncated,
            HttpError::InvalidHeaderValue(_) => {
                ModelError::Setup("the key has characters that no HTTP header can carry".to_owned())
            }
            HttpError::Protocol(error) => ModelError::Setup(error.to_string()),
            HttpError::NoHeaders => ModelError::Setup(error.to_string()),
        }
    }

    /// An answer with an error status.
    fn rejected(status: u16, body: &str, headers: &http::HeaderMap) -> Self {
        let text = server_words(body);
        if is_unpaid(status, body) {
            return ModelError::Unpaid { status, text };
        }
        ModelError::Status {
            status,
            text,
            retry_after: retry_after(headers, chrono::Utc::now()),
            location: headers
                .get(http::header::LOCATION)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned),
        }
    }

    /// `begun` says whether the server had already accepted the request.
    pub(super) fn from_library(error: &ProviderError, begun: bool) -> Self {
        if let Some(response) = error.provider_response() {
            let empty = http::HeaderMap::new();
            let headers = response.headers.as_ref().unwrap_or(&empty);
            return match response.status {
                Some(status) if !begun && !status.is_success() => {
                    ModelError::rejected(status.as_u16(), &response.body, headers)
                }
                _ => ModelError::InStream(server_words(&response.body)),
            };
        }
        match error {
            ProviderError::Http(inner) => ModelError::from_http(inner),
            ProviderError::Truncated => ModelError::Truncated,
            ProviderError::Json(inner) => {
                ModelError::Garbled(format!("a part of the stream is not valid JSON: {inner}"))
            }
            ProviderError::Provider(text) => ModelError::InStream(server_words(text)),
            ProviderError::Response(text) => ModelError::Garbled(text.clone()),
            ProviderError::Request(inner) if !begun => ModelError::Setup(inner.to_string()),
            other => ModelError::Garbled(other.to_string()),
        }
    }

    /// The server's own words, when there are any.
    pub(crate) fn words(&self) -> &str {
        match self {
            ModelError::Status { text, .. }
            | ModelError::Unpaid { text, .. }
            | ModelError::InStream(text) => text,
            _ => "",
        }
    }

    /// Whether the same request may well succeed a little later, as far as nothing was shown yet.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            ModelError::Status { status, .. } => matches!(status, 408 | 425 | 429 | 500..=599),
            ModelError::Lost(_) | ModelError::Closed | ModelError::Truncated => true,
            _ => false,
        }
    }
}

/// Whether an error of the system is the other side's end of the connection.
fn is_closed(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// Whether a refusal is for want of money, in the codes and words of the providers that there are: waiting does not mend
/// it, though some answer with the status of a server that is busy.
fn is_unpaid(status: u16, body: &str) -> bool {
    const SIGNS: &[&str] = &[
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "insufficient_balance",
        "insufficient balance",
        "insufficient credits",
        "credit balance is too low",
        "does not have any credits",
    ];
    let body = body.to_lowercase();
    status == 402 || (matches!(status, 400 | 403 | 429) && SIGNS.iter().any(|sign| body.contains(sign)))
}

/// The human part of an error's body: servers wrap it in half a dozen ways.
fn server_words(body: &str) -> String {
    const PLACES: &[&str] = &[
        "/error/message",
        "/0/error/message",
        "/error/error/message",
        "/message",
        "/detail",
        "/detail/0/msg",
        "/error_description",
        "/error",
    ];
    let body = body.trim();
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(body) {
        for place in PLACES {
            if let Some(text) = value.pointer(place).and_then(serde_json::Value::as_str)
                && !text.trim().is_empty()
            {
                return text.trim().to_owned();
            }
        }
        return body.to_owned();
    }
    if body.starts_with('<') {
        return "(a web page)".to_owned();
    }
    body.to_owned()
}

/// Reads `Retry-After`: seconds, or a date. Nonsense is as good as nothing.
fn retry_after(headers: &http::HeaderMap, now: chrono::DateTime<chrono::Utc>) -> Option<RetryAfter> {
    let value = headers.get(http::header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok().map(RetryAfter);
    }
    let date = chrono::DateTime::parse_from_rfc2822(value).ok()?;
    // A date that has passed means now.
    Some(RetryAfter(date.signed_duration_since(now).to_std().unwrap_or(Duration::ZERO)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn header(value: &str) -> http::HeaderMap {
        let mut headers = http::HeaderMap::new();
        headers.insert(http::header::RETRY_AFTER, value.parse().unwrap());
        headers
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let now = chrono::DateTime::parse_from_rfc3339("2026-11-06T08:49:30Z").unwrap().to_utc();
        let after = |value| retry_after(&header(value), now).map(|after| after.0.as_secs());
        assert_eq!(after("7"), Some(7));
        assert_eq!(after("Fri, 06 Nov 2026 08:49:37 GMT"), Some(7));
        assert_eq!(after("Fri, 06 Nov 2020 08:49:37 GMT"), Some(0));
        assert_eq!(after("-3"), None);
        assert_eq!(after("1e300"), None);
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn a_refusal_for_want_of_money_is_told_from_a_busy_server() {
        for (status, body, unpaid) in [
            (429, r#"{"error":{"message":"You exceeded it.","code":"insufficient_quota"}}"#, true),
            (400, r#"{"error":{"message":"Your credit balance is too low to access the API."}}"#, true),
            (402, "", true),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED"}}"#,
                false,
            ),
            (429, "slow down", false),
            (500, "insufficient_quota", false),
        ] {
            assert_eq!(is_unpaid(status, body), unpaid, "{status} {body}");
        }
    }

    #[test]
    fn the_servers_words_are_found_where_servers_put_them() {
        for (body, words) in [
            (r#"{"error":{"message":"no such model","code":1}}"#, "no such model"),
            (r#"{"error":"nope"}"#, "nope"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (r#"[{"error":{"message":"bad key"}}]"#, "bad key"),
            ("  plain words\n", "plain words"),
            ("<!doctype html><p>x", "(a web page)"),
            (r#"{"odd":1}"#, r#"{"odd":1}"#),
            ("", ""),
        ] {
            assert_eq!(server_words(body), words);
        }
    }
}
