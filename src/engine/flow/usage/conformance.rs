//! What holds for every usage-limit policy in the table.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::super::plugin::{Entry, Needs};
use super::super::super::scheduling::testing::params_conform_beside;
use super::{TABLE, UsageLimitPolicy};

/// The parameters that an entry cannot do without.
fn required(entry: &Entry<dyn UsageLimitPolicy>) -> Value {
    match entry.type_name {
        "priority-holdback-policy" => json!({"minCeiling": 0.4}),
        _ => json!({}),
    }
}

#[test]
fn described_parameters_are_the_ones_that_are_accepted() {
    for entry in TABLE {
        params_conform_beside(entry, &required(entry));
    }
}

proptest! {
    #[test]
    fn ceilings_are_not_negative_and_do_not_rise_from_band_to_band(
        priorities in proptest::collection::btree_set(any::<i32>(), 0..8),
        saturations in proptest::collection::vec(0.0_f64..3.0, 1..40),
    ) {
        let priorities: Vec<_> = BTreeSet::into_iter(priorities).rev().collect();
        for entry in TABLE {
            let mut policy = entry.instance(Some(&required(entry)), &mut Needs::default()).unwrap();
            for &saturation in &saturations {
                let mut ceilings = vec![1.0; priorities.len()];
                policy.ceilings(saturation, &priorities, &mut ceilings);

                prop_assert!(ceilings.iter().all(|&c| c >= 0.0), "{}: {:?}", entry.type_name, ceilings);
                prop_assert!(ceilings.is_sorted_by(|a, b| a >= b), "{}: {:?}", entry.type_name, ceilings);
            }
        }
    }

    #[test]
    fn the_highest_band_may_use_an_idle_pool(priorities in proptest::collection::btree_set(any::<i32>(), 1..8)) {
        let priorities: Vec<_> = BTreeSet::into_iter(priorities).rev().collect();
        for entry in TABLE {
            let mut policy = entry.instance(Some(&required(entry)), &mut Needs::default()).unwrap();
            let mut ceilings = vec![1.0; priorities.len()];
            policy.ceilings(0.0, &priorities, &mut ceilings);

            prop_assert!(ceilings[0] > 0.0, "{}", entry.type_name);
        }
    }
}
