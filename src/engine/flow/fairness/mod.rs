//! Fairness policies: which flow of a band goes next.

mod global_strict;
mod program_aware;
mod round_robin;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::plugin::{Entry, Plugin, instance};
use super::super::time::Timestamp;
use super::active::ActiveFlows;

/// Chooses the next flow of a band. One instance may serve several bands.
pub trait FairnessPolicy: Debug + Send {
    /// The order in which the flows are to be kept for it.
    fn order(&self) -> FlowOrder;

    /// The flow to serve, one of `flows`, which is not empty. `last` is the flow that this band served last, whether or
    /// not it still has requests.
    fn pick(&mut self, now: Timestamp, last: Option<&Arc<str>>, flows: &ActiveFlows) -> FlowRef;

    /// True if each flow is owed a part of the releases. Then it is owed a part of the room to wait as well: in a full
    /// band, a flow that has less takes the place of one that has more.
    fn tells_flows_apart(&self) -> bool {
        true
    }

    /// How many turns `other` has before `flow` has had this many, if both have requests all the while; `last` is the flow
    /// that was served last. For policies that tell flows apart.
    fn turns_before(&self, _last: Option<&Arc<str>>, _flow: &Arc<str>, turns: u64, _other: &Arc<str>) -> u64 {
        turns
    }

    /// A request of `flow` was released after it waited for `waited`.
    fn released(&mut self, _now: Timestamp, _flow: &Arc<str>, _waited: Duration) {}

    /// A request of `flow` that was released has ended.
    fn ended(&mut self, _now: Timestamp, _flow: &Arc<str>, _used: Used) {}

    /// What it has noted of the flows so far, for measurements. `None` if it keeps no accounts.
    fn accounts(&self, _now: Timestamp) -> Option<Accounts> {
        None
    }
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

/// What a request used, as the model server counted it, or an estimate where it did not. Zero if nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
}

/// What a policy that keeps accounts has noted.
#[derive(Clone, Debug, PartialEq)]
pub struct Accounts {
    /// Jain's index over the mean waits: 1 if all wait alike, one over their number if only one waits. 1 if there are
    /// less than two.
    pub fairness_index: f64,
    /// The accounts, in the order of their ids. Bounded by the policy.
    pub programs: Vec<Account>,
}

/// What a policy has noted of one program.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// The fairness id.
    pub id: Arc<str>,
    /// Milliseconds that its requests waited on average before they were released.
    pub mean_wait_ms: f64,
    /// Weighted tokens that it got, of which the older ones count less.
    pub attained_service: f64,
}

/// Every fairness policy. To add one: a file beside this one, and a line here.
pub const TABLE: &[Entry<dyn FairnessPolicy>] = &[
    entry::<global_strict::GlobalStrict>(),
    entry::<round_robin::RoundRobin>(),
    entry::<program_aware::ProgramAware>(),
];

const fn entry<P: Plugin + FairnessPolicy + 'static>() -> Entry<dyn FairnessPolicy> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod testing;
