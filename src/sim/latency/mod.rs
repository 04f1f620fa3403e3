//! How long a model server takes, told from the shape of its model and the figures of its GPU (spec, simulator 16 and
//! 17).
//!
//! [`resolve()`] is the door. It takes what a user says ([`Spec`]: a model, a GPU, how many of them) and gives what a
//! simulated instance needs ([`Resolved`]): a [`LatencyModel`], the KV blocks that fit beside the weights, and the
//! longest sequence. Files are the caller's to read; their text comes in.
//!
//! What always holds:
//!
//! - a step takes a whole number of microseconds, at least one, whatever the numbers;
//! - everything about model and GPU is worked out when a model of time is built, so that a step costs one pass over its
//!   batch and no allocation;
//! - the arithmetic is plain IEEE (no library functions whose last digit depends on the machine), so that a run is the
//!   same everywhere.
//!
//! Read `resolve.rs` first, then `trained_physics.rs` and `roofline.rs` (the models of time), `shape.rs` with
//! `catalog.rs` and `config_json.rs` (models), `hardware.rs` and `capacity.rs`.

mod capacity;
mod catalog;
mod config_json;
mod error;
mod hardware;
mod linear;
mod resolve;
mod roofline;
mod shape;
mod trained_physics;
mod work;

use std::time::Duration;

pub use catalog::known_models;
pub use error::Error;
pub use hardware::Hardware;
pub use linear::Linear;
pub use resolve::{Backend, Resolved, Server, Spec, resolve};
pub use roofline::Roofline;
pub use shape::Model;
pub use trained_physics::{MoeCommunication, Parallelism, TrainedPhysics};

use super::instance::StepTime;

/// Predicts every duration that a simulated model server causes. How long a step takes is the [`StepTime`] that it also
/// is; so it can be handed to an instance, alone or shared in an `Arc`.
pub trait LatencyModel: StepTime + Sync {
    /// From the arrival of a request at its instance to its place in the wait queue.
    fn queueing_time(&self, prompt_tokens: u32) -> Duration;

    /// What each token of an answer takes beside the step that computes it.
    fn output_token_time(&self) -> Duration;

    /// What the end of a request takes, once, if it had an answer.
    fn completion_time(&self) -> Duration;
}

/// The longest time there is: 2^63 - 1 microseconds (spec, simulator 2).
const LONGEST_MICROSECONDS: u64 = i64::MAX as u64;

/// Microseconds, cut to whole ones. What is not a number or too large is the longest time there is.
fn whole_microseconds(value: f64) -> Duration {
    Duration::from_micros(if value.is_nan() {
        LONGEST_MICROSECONDS
    } else {
        (value as u64).min(LONGEST_MICROSECONDS)
    })
}

/// The same for a step, which takes at least one microsecond.
fn step_microseconds(value: f64) -> Duration {
    whole_microseconds(value.max(1.0))
}

#[cfg(test)]
mod tests;
