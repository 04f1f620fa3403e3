//! Everything that waits: sockets, files, timers and signals.
//!
//! The service is a thin shell around the engine. Streams from the gateway ([`driver`]) become requests, and verdicts
//! become replies.

pub mod clock;
pub mod driver;
