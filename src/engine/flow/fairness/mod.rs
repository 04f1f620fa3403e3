//! Fairness policies: which flow of a band goes next.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::super::plugin::{Entry, Plugin, instance};
use super::super::time::Timestamp;
use super::active::ActiveFlows;

/// Chooses the next flow of a band. One instance may serve several bands.
pub trait FairnessPolicy: Debug + Send {
    /// The order in which the flows are to be kept for it.
    fn order(&self) -> FlowOrder;

    /// The flow to serve, one of `flows`, which is not empty. `last` is the flow that this band served last, whether or
    /// not it still has requests.
    fn pick(&mut self, now: Timestamp, last: Option<&str>, flows: &ActiveFlows) -> FlowRef;

    /// A request of `flow` was released after it waited for `waited`.
    fn released(&mut self, _now: Timestamp, _flow: &Arc<str>, _waited: Duration) {}

    /// A request of `flow` that was released has ended.
    fn ended(&mut self, _now: Timestamp, _flow: &Arc<str>, _used: Used) {}
}

/// The order in which the flows of a band are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowOrder {
    /// By the order of their first requests.
    ByHead,
    /// By id.
    ById,
}

/// Refers to a flow of a band for as long as it has requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowRef(pub(super) u32);

/// What a request used, as the model server counted it. Zero if it did not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
}
