//! The HTTP client under the provider library: `reqwest`, with what hostile or broken servers make
//! necessary.
//!
//! - **No redirects**: a key is sent to the configured host and to no other; a redirect is an error
//!   that names where it pointed.
//! - **TLS** is rustls with the platform's certificate verifier, which trusts the system's roots and
//!   honours `SSL_CERT_FILE` and `SSL_CERT_DIR`, so a company's own authority works. Plain `http://`
//!   addresses load no roots, and loopback addresses never go through a proxy.
//! - **Bounds**: error bodies, single lines of a stream and whole replies are limited in size.
//! - **Leniency**: a server that answers a streaming request with one JSON document is read as a stream
//!   of one event; a missing content type is taken for the one that was asked for.
//! - Errors never contain the URL, since one provider carries its key there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use rig_core::http_client::{
    Error, HttpClientExt, LazyBody, MultipartForm, Request, Response, Result as HttpResult, StatusCode,
    StreamingResponse,
};
use rig_core::wasm_compat::WasmCompatSend;

use super::error::{ModelError, Transport};
use super::turns::Turns;

/// The most of an error's body that is read.
const ERROR_BODY: usize = 64 * 1024;
/// The most of a body that is not streamed.
const WHOLE_BODY: usize = 16 * 1024 * 1024;
/// The longest line of a stream; without a limit a server that never ends one would fill the memory.
const STREAM_LINE: usize = 4 * 1024 * 1024;
/// The longest stream.
const STREAM_TOTAL: usize = 64 * 1024 * 1024;
/// How long an error's body may take.
const ERROR_BODY_TIME: Duration = Duration::from_secs(5);

/// Checks an address before anything is sent to it, and brings it into one form (no trailing slash,
/// no `/chat/completions`).
///
/// The error says what is wrong with it, without repeating a password it may contain.
pub(crate) fn check_base_url(url: &str) -> Result<String, String> {
    let parsed = reqwest::Url::parse(url.trim()).map_err(|e| {
        format!("the model's base_url is not a URL ({e}); it looks like http://127.0.0.1:8080/v1")
    })?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(format!(
            "the model's base_url has the scheme {}:, but only http: and https: are spoken",
            parsed.scheme()
        ));
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(
            "the model's base_url contains a user name or password, which would show up in messages; \
                    give the key in CELLBLOCK_MODEL__API_KEY instead"
                .to_owned(),
        );
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err("the model's base_url must not have a query or a fragment; \
                    give it up to and without /chat/completions"
            .to_owned());
    }
    let url = parsed.as_str().trim_end_matches('/');
    Ok(url.strip_suffix("/chat/completions").unwrap_or(url).trim_end_matches('/').to_owned())
}

/// Whether an address leads to this machine.
fn is_loopback(url: &reqwest::Url) -> bool {
    url.host_str().is_some_and(|host| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || host.ends_with(".localhost")
            || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    })
}

/// The connections of one kernel: the client that was used last, so that a dialogue neither connects
/// nor reads the system's certificates with every question. Empty until the first.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    last: Mutex<Option<(String, Http)>>,
    /// When a server was last heard from.
    pub(super) heard: Heard,
    /// What providers want to see again.
    pub(super) turns: Turns,
}

impl Connections {
    /// A client for requests to `base_url`.
    pub(super) fn to(&self, base_url: &str, connect_timeout: Duration) -> Result<Http, ModelError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((address, http)) = last.as_ref()
            && address == base_url
        {
            return Ok(http.clone());
        }
        let http = Http { heard: self.heard.clone(), ..Http::new(base_url, connect_timeout)? };
        *last = Some((base_url.to_owned(), http.clone()));
        Ok(http)
    }
}

/// When a byte last came: what the library passes over (comments that keep a stream alive) is a sign of life, too.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard(Arc<Mutex<Option<Instant>>>);

impl Heard {
    fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// When that was.
    pub(super) fn last(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client for one address.
#[derive(Debug, Clone)]
pub(super) struct Http {
    client: reqwest::Client,
    heard: Heard,
}

impl Http {
    /// A client for requests to `base_url`. Reads the system's certificates when it is `https:`.
    pub(super) fn new(base_url: &str, connect_timeout: Duration) -> Result<Http, ModelError> {
        let url = reqwest::Url::parse(base_url).map_err(|e| ModelError::Setup(e.to_string()))?;
        let mut builder = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .referer(false)
            .user_agent(concat!("cellblock/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(connect_timeout)
            .pool_max_idle_per_host(1)
            .tcp_nodelay(true);
        if url.scheme() == "http" {
            builder = builder.tls_certs_only([]);
        }
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|e| {
            ModelError::Setup(format!(
                "the system's certificates can't be used: {}; install ca-certificates, or name a bundle in SSL_CERT_FILE",
                Transport::from_reqwest(e).cause
            ))
        })?;
        Ok(Http { client, heard: Heard::default() })
    }

    async fn send_bytes(&self, request: Request<Bytes>) -> HttpResult<reqwest::Response> {
        let (parts, body) = request.into_parts();
        let mut headers = parts.headers;
        // The HTTP stack must not show them either, whatever log level is set.
        for name in ["authorization", "x-api-key", "api-key", "x-goog-api-key"] {
            if let Some(value) = headers.get_mut(name) {
                value.set_sensitive(true);
            }
        }
        let response = self
            .client
            .request(parts.method, parts.uri.to_string())
            .headers(headers)
            .body(body)
            .send()
            .await
            .map_err(|e| Error::instance(Transport::from_reqwest(e)))?;
        self.heard.now();
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        Err(rejection(response).await)
    }
}

/// What a response that is not 200 says, its body bounded in size and time.
async fn rejection(response: reqwest::Response) -> Error {
    let (status, headers) = (response.status(), response.headers().clone());
    let body = tokio::time::timeout(ERROR_BODY_TIME, prefix(response, ERROR_BODY)).await.unwrap_or_default();
    Error::non_success_with_details(status, headers, String::from_utf8_lossy(&body).into_owned())
}

/// The first `limit` bytes of a body; what a broken connection still gave, too.
async fn prefix(response: reqwest::Response, limit: usize) -> Vec<u8> {
    let mut body = response.bytes_stream();
    let mut read = Vec::new();
    while let Some(Ok(chunk)) = body.next().await {
        read.extend_from_slice(&chunk[..chunk.len().min(limit - read.len())]);
        if read.len() == limit {
            break;
        }
    }
    read
}

/// A whole body of at most `limit` bytes.
async fn whole(response: reqwest::Response, limit: usize, heard: &Heard) -> HttpResult<Bytes> {
    let mut body = response.bytes_stream();
    let mut read = Vec::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|e| Error::instance(Transport::from_reqwest(e)))?;
        heard.now();
        if read.len() + chunk.len() > limit {
            return Err(Error::instance(Transport::too_large(limit)));
        }
        read.extend_from_slice(&chunk);
    }
    Ok(read.into())
}

/// What kind of body a response to a streaming request has.
fn content(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim())
}

impl HttpClientExt for Http {
    fn send<T, U>(
        &self,
        request: Request<T>,
    ) -> impl Future<Output = HttpResult<Response<LazyBody<U>>>> + WasmCompatSend + 'static
    where
        T: Into<Bytes> + WasmCompatSend,
        U: From<Bytes> + WasmCompatSend + 'static,
    {
        let http = self.clone();
        let request = request.map(Into::into);
        async move {
            let response = http.send_bytes(request).await?;
            let mut head = Response::builder().status(response.status());
            if let Some(headers) = head.headers_mut() {
                *headers = response.headers().clone();
            }
            let body: LazyBody<U> =
                Box::pin(async move { Ok(U::from(whole(response, WHOLE_BODY, &http.heard).await?)) });
            head.body(body).map_err(Error::Protocol)
        }
    }

    fn send_multipart<U>(
        &self,
        _: Request<MultipartForm>,
    ) -> impl Future<Output = HttpResult<Response<LazyBody<U>>>> + WasmCompatSend + 'static
    where
        U: From<Bytes> + WasmCompatSend + 'static,
    {
        // Files are never sent to a model from here.
        std::future::ready(Err(Error::StreamEnded))
    }

    async fn send_streaming<T>(&self, request: Request<T>) -> HttpResult<StreamingResponse>
    where
        T: Into<Bytes> + WasmCompatSend,
    {
        let wants_events = request
            .headers()
            .get(ACCEPT)
            .is_some_and(|accept| accept.as_bytes().starts_with(b"text/event-stream"));
        let response = self.send_bytes(request.map(|body| plain_system(body.into()))).await?;
        let kind = content(response.headers()).map(str::to_ascii_lowercase);
        let mut headers = response.headers().clone();
        let document = wants_events && kind.as_deref() == Some("application/json");
        if wants_events && (kind.is_none() || document) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        }
        let mut head = Response::builder().status(response.status());
        if let Some(into) = head.headers_mut() {
            *into = headers;
        }
        let signs = self.heard.clone();
        let body: rig_core::http_client::BoxedStream = if document {
            Box::pin(stream::once(async move { Ok(one_event(&whole(response, WHOLE_BODY, &signs).await?)) }))
        } else {
            Box::pin(bounded(response.bytes_stream(), signs))
        };
        head.body(body).map_err(Error::Protocol)
    }
}

/// The library sends the system prompt as a list of parts, which the chat templates of many compatible
/// servers can't read; as a string it is read everywhere.
fn plain_system(body: Bytes) -> Bytes {
    use serde_json::Value;
    let Ok(mut request) = serde_json::from_slice::<Value>(&body) else { return body };
    let messages = request.get_mut("messages").and_then(Value::as_array_mut);
    for message in messages.into_iter().flatten() {
        if message.get("role").and_then(Value::as_str) == Some("system")
            && let Some(parts) = message.get("content").and_then(Value::as_array)
        {
            let texts = parts.iter().map(|part| part.get("text").and_then(Value::as_str));
            if let Some(texts) = texts.collect::<Option<Vec<_>>>() {
                message["content"] = Value::String(texts.join("\n"));
            }
        }
    }
    Bytes::from(request.to_string())
}

/// A JSON document as a stream of one event. JSON has no raw line breaks that matter, an event's
/// data can't have any.
fn one_event(document: &Bytes) -> Bytes {
    let text = String::from_utf8_lossy(document);
    let line = text.lines().collect::<Vec<_>>().join(" ");
    Bytes::from(format!("data: {line}\n\n"))
}

#[allow(clippy::result_large_err, reason = "the error type is the library's")]
/// The chunks of a stream, until a line or the whole of it is too long.
fn bounded(
    chunks: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
    heard: Heard,
) -> impl Stream<Item = HttpResult<Bytes>> + Send + 'static {
    let (mut line, mut total) = (0_usize, 0_usize);
    chunks.map(move |chunk| {
        let chunk = chunk.map_err(|e| Error::instance(Transport::from_reqwest(e)))?;
        heard.now();
        total += chunk.len();
        line = match chunk.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => chunk.len() - at - 1,
            None => line + chunk.len(),
        };
        if line > STREAM_LINE {
            return Err(Error::instance(Transport::too_large(STREAM_LINE)));
        }
        if total > STREAM_TOTAL {
            return Err(Error::instance(Transport::too_large(STREAM_TOTAL)));
        }
        Ok(chunk)
    })
}

/// Asks for a JSON document, within `timeout` for everything.
pub(crate) async fn get_json(
    url: &str,
    bearer: Option<&str>,
    timeout: Duration,
) -> Result<serde_json::Value, ModelError> {
    let http = Http::new(url, timeout)?;
    let mut request = http.client.get(url).timeout(timeout);
    if let Some(key) = bearer {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| {
            ModelError::Setup("the key has characters that no HTTP header can carry".to_owned())
        })?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    let response = request.send().await.map_err(|e| Transport::from_reqwest(e).into_error())?;
    if response.status() != StatusCode::OK {
        return Err(ModelError::from_http(&rejection(response).await));
    }
    let body = whole(response, WHOLE_BODY, &http.heard).await.map_err(|e| ModelError::from_http(&e))?;
    serde_json::from_slice(&body).map_err(|e| ModelError::Garbled(format!("the answer is not JSON: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_brought_into_one_form() {
        assert_eq!(check_base_url("http://h:1/v1/").as_deref(), Ok("http://h:1/v1"));
        assert_eq!(check_base_url(" https://h/v1/chat/completions ").as_deref(), Ok("https://h/v1"));
        assert_eq!(check_base_url("http://h").as_deref(), Ok("http://h"));
    }

    #[test]
    fn an_address_with_a_password_is_refused_without_repeating_it() {
        let error = check_base_url("http://me:hunter2@h/v1").err().unwrap_or_default();
        assert!(error.contains("password") && !error.contains("hunter2"), "{error}");
        assert!(check_base_url("ftp://h").is_err_and(|e| e.contains("ftp")));
        assert!(check_base_url("localhost:8080").is_err());
        assert!(check_base_url("http://h/v1?x=1").is_err());
    }

    #[test]
    fn loopback_is_recognised_in_all_its_spellings() {
        for (url, expected) in [
            ("http://127.0.0.1:1", true),
            ("http://127.8.0.1", true),
            ("http://[::1]:2/v1", true),
            ("http://localhost", true),
            ("http://localhost.example.com", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(reqwest::Url::parse(url).is_ok_and(|u| is_loopback(&u)), expected, "{url}");
        }
    }

    #[test]
    fn the_system_prompt_is_sent_as_a_string() {
        let body = r#"{"model":"m","messages":[{"role":"system","content":[{"type":"text","text":"a"}]},{"role":"user","content":[{"type":"image_url"}]}]}"#;
        let expected = r#"{"model":"m","messages":[{"role":"system","content":"a"},{"role":"user","content":[{"type":"image_url"}]}]}"#;
        assert_eq!(plain_system(Bytes::from(body)), expected);
        assert_eq!(plain_system(Bytes::from_static(b"not json")), "not json");
    }

    #[test]
    fn a_document_becomes_one_event() {
        assert_eq!(one_event(&Bytes::from_static(b"{\r\n \"a\": 1\n}")), "data: {  \"a\": 1 }\n\n");
    }
}
