//! Models, the conversation and the prompts.
//!
//! May import `event` and `config`.
