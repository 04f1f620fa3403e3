//! The signals that end the service, and the one that does not.

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
    hangup: Signal,
}

impl Signals {
    /// Takes SIGTERM, SIGINT and SIGHUP over from their default, which ends the process at once. Needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// If the system does not allow it.
    pub fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal that ends the service. SIGHUP has files read again, by those who follow them
    /// (`DirectoryWatch`), and is only told of here.
    pub async fn next(&mut self) -> Stop {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Stop::Terminate,
                _ = self.interrupt.recv() => return Stop::Interrupt,
                _ = self.hangup.recv() => {
                    tracing::info!("SIGHUP: configuration, endpoints, objectives and certificates are read again");
                }
            }
        }
    }
}
