//! Questions to the user, and their answers. A question is not an [`Event`](super::Event): it waits.

use std::sync::Arc;

use futures_util::future::BoxFuture;

/// A question for the person at the front end (`input_request`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What to show before the input field.
    pub prompt: String,
    /// Whether what is typed must not be shown.
    pub password: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The front end takes no input (`allow_stdin` false), as nbclient and papermill do.
    #[error("this front end does not support input requests")]
    Unavailable,
    /// The user ended the input (Ctrl-D, `\x04`).
    #[error("end of input")]
    EndOfInput,
    /// The run was interrupted, or the front end went away, while the question was open.
    #[error("the question was interrupted")]
    Interrupted,
}

/// Puts questions to the user of one run.
pub trait Ask: Send + Sync {
    /// Whether a question can be answered at all.
    fn available(&self) -> bool;

    /// Asks and waits for the answer.
    fn ask(&self, question: Question) -> BoxFuture<'_, Result<String, AskError>>;
}

/// Nobody to ask.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Ask for Nobody {
    fn available(&self) -> bool {
        false
    }

    fn ask(&self, _: Question) -> BoxFuture<'_, Result<String, AskError>> {
        Box::pin(async { Err(AskError::Unavailable) })
    }
}

/// Whoever answers, with questions that say first whose they are, or may be.
pub struct Marked {
    /// Who answers.
    pub ask: Arc<dyn Ask>,
    /// What goes before each prompt.
    pub mark: &'static str,
}

impl Ask for Marked {
    fn available(&self) -> bool {
        self.ask.available()
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<String, AskError>> {
        // In a terminal these two would draw over the mark.
        let prompt = question.prompt.replace(['\r', '\u{8}'], "");
        let prompt = format!("{} {prompt}", self.mark);
        self.ask.ask(Question { prompt, ..question })
    }
}
