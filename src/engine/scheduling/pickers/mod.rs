//! Pickers: from scores to a choice.

mod max_score;
mod random;
mod weighted_random;

use rand::RngExt;
use serde::Deserialize;

use super::super::plugin::{Entry, Parameter, Plugin, instance};
use super::super::seed::Chance;
use super::{Picker, Scored};

/// Every picker. To add one: a file beside this one, and a line here.
pub const TABLE: &[Entry<dyn Picker>] = &[
    entry::<max_score::MaxScorePicker>(),
    entry::<random::RandomPicker>(),
    entry::<weighted_random::WeightedRandomPicker>(),
];

const fn entry<P: Plugin + Picker + 'static>() -> Entry<dyn Picker> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}

/// Parameters of every picker.
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
    const DESCRIBED: &'static [Parameter] = &[Parameter {
        name: "maxNumOfEndpoints",
        default: "1",
        summary: "endpoints named to the gateway, in the order in which it should try them; below 1 counts as 1",
    }];

    fn limit(&self) -> usize {
        usize::try_from(self.max_num_of_endpoints).unwrap_or(1).max(1)
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
