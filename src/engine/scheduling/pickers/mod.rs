//! Pickers: from scores to a choice.

mod max_score;
mod random;
mod round_robin;
mod weighted_random;

use rand::RngExt;
use serde::Deserialize;

use super::super::plugin::{Entry, Needs, Parameter, Plugin, instance};
use super::super::seed::Chance;
use super::{Picker, Scored};

/// Every picker. To add one: a file beside this one, and a line here.
pub const TABLE: &[Entry<dyn Picker>] = &[
    entry::<max_score::MaxScorePicker>(),
    entry::<random::RandomPicker>(),
    entry::<round_robin::RoundRobinPicker>(),
    entry::<weighted_random::WeightedRandomPicker>(),
];

const fn entry<P: Plugin + Picker + 'static>() -> Entry<dyn Picker> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}

/// The parameter that every picker has.
const MAX_NUM_OF_ENDPOINTS: Parameter = Parameter {
    name: "maxNumOfEndpoints",
    default: "1",
    summary: "endpoints named to the gateway, in the order in which it should try them; below 1 counts as 1",
};

/// What `maxNumOfEndpoints` comes to.
fn limit_of(max_num_of_endpoints: i64, needs: &mut Needs) -> usize {
    let limit = needs.positive_or(MAX_NUM_OF_ENDPOINTS.name, max_num_of_endpoints, 1);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Parameters of pickers that have no others.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    max_num_of_endpoints: i64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            max_num_of_endpoints: 1,
        }
    }
}

impl Params {
    const DESCRIBED: &'static [Parameter] = &[MAX_NUM_OF_ENDPOINTS];

    fn limit(&self, needs: &mut Needs) -> usize {
        limit_of(self.max_num_of_endpoints, needs)
    }
}

/// The indexes of `scored`, any order of them as likely as any other.
fn shuffled(scored: &[Scored], chance: &mut Chance) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scored.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, chance.random_range(0..=last));
    }
    order
}

#[cfg(test)]
mod conformance;
