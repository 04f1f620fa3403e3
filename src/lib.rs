//! Forebay: an endpoint picker for LLM inference pools behind Envoy, and a simulator that runs the same policies.
//!
//! The rooms, in the order in which to read them:
//!
//! 1. [`engine`]: admission, queueing and scheduling, as pure code. Given the time, it answers what to do.
//! 2. [`serve`]: everything that waits. Sockets, files and timers become calls of the engine, and its answers replies.
//! 3. [`sim`]: the model of a model server, and the cluster made of it, in invented time.

pub mod engine;
#[cfg(feature = "serve")]
pub mod serve;
#[cfg(feature = "sim")]
pub mod sim;
pub mod version;
