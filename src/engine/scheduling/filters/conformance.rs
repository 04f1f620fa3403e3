//! What holds for every filter in the table.

use proptest::prelude::*;

use super::super::super::plugin::Needs;
use super::super::testing::{any_scene, kept_by, params_conform};
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
}
