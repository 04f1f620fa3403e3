//! What holds for every scorer in the table.

use proptest::prelude::*;

use super::super::super::plugin::Needs;
use super::super::testing::{Scene, any_scene, params_conform, scores_by};
use super::TABLE;

#[test]
fn described_parameters_are_the_ones_that_are_accepted() {
    TABLE.iter().for_each(params_conform);
}

#[test]
fn an_idle_pool_is_scored_without_surprise() {
    for entry in TABLE {
        let mut scorer = entry.instance(None, &mut Needs::default()).unwrap();
        let scores = scores_by(scorer.as_mut(), &Scene::new().waiting(&[0, 0, 0]));

        assert!(
            scores.iter().all(|&score| score == scores[0]),
            "{}: {scores:?}",
            entry.type_name
        );
    }
}

proptest! {
    #[test]
    fn scores_are_numbers_between_zero_and_one(scene in any_scene()) {
        for entry in TABLE {
            let mut scorer = entry.instance(None, &mut Needs::default()).unwrap();
            let scores = scores_by(scorer.as_mut(), &scene);

            prop_assert!(scores.iter().all(|s| (0.0..=1.0).contains(s)), "{}: {:?}", entry.type_name, scores);
        }
    }

    #[test]
    fn equal_inputs_give_equal_scores(scene in any_scene()) {
        for entry in TABLE {
            let mut a = entry.instance(None, &mut Needs::default()).unwrap();
            let mut b = entry.instance(None, &mut Needs::default()).unwrap();

            prop_assert_eq!(scores_by(a.as_mut(), &scene), scores_by(b.as_mut(), &scene));
        }
    }
}
