//! The signals that end the service.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Who wants the service to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// An orchestrator (SIGTERM): requests may still come until it has told everybody.
    Terminate,
    /// A person at a terminal (SIGINT): nobody will come.
    Interrupt,
}

/// Listens to signals.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes SIGTERM and SIGINT over from their default, which ends the process at once. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// If the system does not allow it.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next signal.
    pub async fn next(&mut self) -> Stop {
        tokio::select! {
            _ = self.terminate.recv() => Stop::Terminate,
            _ = self.interrupt.recv() => Stop::Interrupt,
        }
    }
}
