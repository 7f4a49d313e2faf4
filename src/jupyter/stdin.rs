//! Questions to the user: `input_request` and its reply.
//!
//! May import `event`. A question goes to the client that sent the cell, and only when that client
//! allows it. It ends with its reply, with the end of input (`\x04`), or with an interrupt. A reply to
//! an earlier question, or to none, is ignored.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::event::{Ask, AskError, Question};

use super::sockets::{Outbound, Peer};
use super::wire::{Header, Signed};

/// What clients send for Ctrl-D.
const END_OF_INPUT: &str = "\u{4}";

/// The question that waits for its reply; at most one at any time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stdin {
    open: Arc<Mutex<Option<Open>>>,
    /// Asking takes turns: two questions at once would get each other's replies.
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Open {
    msg_id: String,
    reply: oneshot::Sender<String>,
}

impl Stdin {
    /// Takes a message of the stdin channel.
    pub(crate) fn take(&self, message: &Signed) {
        if message.header.msg_type != "input_reply" {
            tracing::warn!(msg_type = message.header.msg_type, "not an input_reply on the stdin channel");
            return;
        }
        let Some(value) = message.content.get("value").and_then(Value::as_str) else {
            tracing::warn!("an input_reply without a value");
            return;
        };
        let mut open = self.lock();
        // Some clients do not say which question they answer.
        let answered =
            message.parent_header.get("msg_id").and_then(Value::as_str).filter(|id| !id.is_empty());
        match (&*open, answered) {
            (None, _) => {
                tracing::debug!("a reply to no question");
            }
            (Some(question), Some(id)) if id != question.msg_id => {
                tracing::debug!("a reply to an earlier question");
            }
            (Some(_), _) => {
                if let Some(question) = open.take() {
                    // Whoever asked may just have been interrupted.
                    let _ = question.reply.send(value.to_owned());
                }
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets a question that nobody waits for any more.
struct Forget<'a>(&'a Stdin);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.lock().take();
    }
}

/// Asks on behalf of one cell.
#[derive(Debug)]
pub(crate) struct Prompt {
    pub(crate) stdin: Stdin,
    pub(crate) outbound: Outbound,
    /// Who sent the cell.
    pub(crate) peer: Peer,
    pub(crate) parent: Arc<Header>,
    /// The cell's `allow_stdin`.
    pub(crate) allowed: bool,
    pub(crate) cancel: CancellationToken,
    /// Shows everything that came before the question, then drops what it was sent.
    pub(crate) settle: mpsc::Sender<oneshot::Sender<()>>,
}

impl Ask for Prompt {
    fn available(&self) -> bool {
        self.allowed
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<String, AskError>> {
        Box::pin(async move {
            if !self.allowed {
                return Err(AskError::Unavailable);
            }
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => Err(AskError::Interrupted),
                answer = self.exchange(question) => answer,
            }
        })
    }
}

impl Prompt {
    async fn exchange(&self, question: Question) -> Result<String, AskError> {
        let _turn = self.stdin.turn.lock().await;
        self.settled().await;
        let signer = self.outbound.signer();
        let header = signer.header("input_request");
        let content = json!({"prompt": question.prompt, "password": question.password});
        let (reply, answer) = oneshot::channel();
        *self.stdin.lock() = Some(Open { msg_id: header.msg_id.clone(), reply });
        let _forget = Forget(&self.stdin);
        let frames = signer.seal_with(&header, Some(&self.parent), &content, &Map::new(), Vec::new());
        if let Err(error) = self.outbound.send_stdin(&self.peer, frames).await {
            tracing::warn!(%error, "a question could not be asked");
            return Err(AskError::Unavailable);
        }
        match answer.await {
            Ok(value) if value == END_OF_INPUT => Err(AskError::EndOfInput),
            Ok(value) => Ok(value),
            Err(_) => Err(AskError::Interrupted),
        }
    }

    /// What the run showed before the question is seen before it.
    async fn settled(&self) {
        let (done, settled) = oneshot::channel();
        if self.settle.send(done).await.is_ok() {
            // An error: the run is over, there is nothing left to show.
            let _ = settled.await;
        }
    }
}
