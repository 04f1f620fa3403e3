//! What holds for every picker in the table.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::json;

use super::super::super::plugin::Needs;
use super::super::super::seed::Seed;
use super::super::testing::{params_conform, scored};
use super::TABLE;

#[test]
fn described_parameters_are_the_ones_that_are_accepted() {
    TABLE.iter().for_each(params_conform);
}

proptest! {
    #[test]
    fn picks_are_different_candidates_as_many_as_asked_for(
        totals in proptest::collection::vec(-2.0_f64..5.0, 1..20),
        limit in -1_i64..25,
        seed: u64,
    ) {
        for entry in TABLE {
            let params = json!({"maxNumOfEndpoints": limit});
            let mut picker = entry.instance(Some(&params), &mut Needs::default()).unwrap();
            let mut picked = Vec::new();
            picker.pick(&scored(&totals), &mut Seed(seed).stream("picker"), &mut picked);

            let different: BTreeSet<_> = picked.iter().copied().collect();
            let wanted = usize::try_from(limit).unwrap_or(1).clamp(1, totals.len());
            prop_assert_eq!(picked.len(), wanted, "{}", entry.type_name);
            prop_assert_eq!(different.len(), picked.len());
            prop_assert!(picked.iter().all(|slot| slot.index() < totals.len()));
        }
    }

    #[test]
    fn equal_seeds_give_equal_picks(totals in proptest::collection::vec(0.0_f64..5.0, 1..20), seed: u64) {
        for entry in TABLE {
            let pick = || {
                let mut picked = Vec::new();
                let mut picker = entry.instance(None, &mut Needs::default()).unwrap();
                picker.pick(&scored(&totals), &mut Seed(seed).stream("picker"), &mut picked);
                picked
            };

            prop_assert_eq!(pick(), pick());
        }
    }
}
