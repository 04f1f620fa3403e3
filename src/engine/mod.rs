//! The engine: what to admit, how long it waits, and which endpoint serves it.
//!
//! Everything here is synchronous and pure. There is no clock, socket, thread or global state, no chance without a
//! seed, and no order that depends on a hash. Time comes in as an argument ([`time::Timestamp`]), effects go out as
//! values. That is what lets the simulator run the very code that serves. The engine imports nothing from `serve` or
//! `sim`, and builds without them.
//!
//! Read [`pool`] (what is known of endpoints), [`request`] (what is known of requests) and [`prefix`]; then what happens
//! to a request, in this order: [`admission`] (may it come in), [`flow`] (how long it waits and behind whom, with
//! [`saturation`] as the gate) and [`scheduling`] (which endpoint serves it); then [`config`] (how users say what they
//! want) and last [`input`] (what the engine can be told), `engine.rs`, which holds the parts together, and
//! [`invariant`], which says what must hold of them.

pub mod admission;
mod attempts;
pub mod config;
mod decode;
#[expect(clippy::module_inception, reason = "the engine is what this room is named for")]
mod engine;
pub mod flow;
pub mod input;
pub mod invariant;
pub mod journal;
pub mod load;
pub mod outcome;
pub mod plugin;
pub mod pool;
pub mod prefix;
pub mod request;
mod router;
pub mod saturation;
pub mod scheduling;
pub mod seed;
pub mod time;

pub use engine::{Effect, Engine, Refused, TenantLoadAt, Wait};
pub use input::{Answered, Input, Progress};
