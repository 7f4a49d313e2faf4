//! The signals that concern a kernel: SIGINT interrupts the cell, SIGTERM ends the kernel in order.
//!
//! Imports nothing of ours.

use tokio::signal::unix::{self, SignalKind};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Stop what runs; a client with `interrupt_mode: signal` sends this.
    Interrupt,
    /// End the kernel.
    Terminate,
}

/// The stream of signals; nothing arrives when they were not installed.
#[derive(Debug)]
pub(crate) struct Signals(Option<Pair>);

#[derive(Debug)]
struct Pair {
    interrupt: unix::Signal,
    terminate: unix::Signal,
}

impl Signals {
    /// Takes the signals over from the process's defaults.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub(crate) fn install(wanted: bool) -> std::io::Result<Self> {
        if !wanted {
            return Ok(Signals(None));
        }
        let interrupt = unix::signal(SignalKind::interrupt())?;
        let terminate = unix::signal(SignalKind::terminate())?;
        Ok(Signals(Some(Pair { interrupt, terminate })))
    }

    /// The next signal.
    pub(crate) async fn recv(&mut self) -> Signal {
        let Some(Pair { interrupt, terminate }) = &mut self.0 else { return std::future::pending().await };
        tokio::select! {
            _ = interrupt.recv() => Signal::Interrupt,
            _ = terminate.recv() => Signal::Terminate,
        }
    }
}
