//! What holds for every filter in the table.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::super::plugin::Needs;
use super::super::testing::{any_scene, kept_by, kept_of, params_conform};
use super::TABLE;

#[test]
fn described_parameters_are_the_ones_that_are_accepted() {
    TABLE.iter().for_each(params_conform);
}

proptest! {
    #[test]
    fn what_is_kept_was_there_and_is_kept_once(scene in any_scene()) {
        for entry in TABLE {
            let mut filter = entry.instance(None, &mut Needs::default()).unwrap();
            let mut kept = kept_by(filter.as_mut(), &scene);
            let count = kept.len();
            kept.sort_unstable();
            kept.dedup();

            prop_assert_eq!(kept.len(), count, "{}", entry.type_name);
            prop_assert!(kept.iter().all(|&at| at < scene.len()));
        }
    }

    /// They are asked about all candidates at once, before others are asked.
    #[test]
    fn filters_by_labels_judge_each_candidate_by_itself(scene in any_scene()) {
        for entry in TABLE {
            let mut filter = entry.instance(None, &mut Needs::default()).unwrap();
            if !filter.goes_by_labels() {
                continue;
            }
            let among_all: BTreeSet<_> = kept_by(filter.as_mut(), &scene).into_iter().collect();
            let alone = (0..scene.len()).filter(|&at| kept_of(filter.as_mut(), &scene, &[at]) == [at]);

            prop_assert_eq!(among_all, alone.collect::<BTreeSet<_>>(), "{}", entry.type_name);
        }
    }
}
