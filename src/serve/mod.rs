//! Everything that waits: sockets, files, timers and signals.
//!
//! The service is a thin shell around the engine. Streams from the gateway become requests ([`ext_proc`], [`parse`],
//! [`driver`]), and verdicts become replies. The stand-in for a model server lives here too: it answers sockets, with
//! the instance model of the simulator behind it. And so does the other end of the wire: the observer, which sends a
//! workload of the simulator to a real server and writes down what it did.

pub mod admin;
pub mod app;
mod causes;
#[cfg(feature = "sim")]
pub mod client;
pub mod clock;
pub mod configuration;
pub mod connections;
pub mod datalayer;
#[cfg(feature = "sim")]
pub mod demo;
pub mod driver;
pub mod ext_proc;
pub mod journal;
pub mod kube;
pub mod limits;
pub mod logs;
pub mod memory;
#[cfg(feature = "sim")]
pub mod model_server;
pub mod observe;
#[cfg(feature = "sim")]
pub mod observer;
pub mod panics;
pub mod parse;
pub mod shutdown;
