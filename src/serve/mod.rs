//! Everything that waits: sockets, files, timers and signals.
//!
//! The service is a thin shell around the engine. Streams from the gateway become requests ([`parse`], [`driver`]), and
//! verdicts become replies.

pub mod clock;
pub mod driver;
pub mod observe;
pub mod parse;
