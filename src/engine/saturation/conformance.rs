//! What holds for every saturation detector in the table.

use proptest::prelude::*;

use super::super::plugin::Needs;
use super::super::pool::InFlight;
use super::super::scheduling::testing::{Scene, any_scene, params_conform, saturation_by};
use super::TABLE;

#[test]
fn described_parameters_are_the_ones_that_are_accepted() {
    TABLE.iter().for_each(params_conform);
}

#[test]
fn a_pool_without_endpoints_is_full_and_not_stale() {
    for entry in TABLE {
        let detector = entry.instance(None, &mut Needs::default()).unwrap();

        assert!(
            saturation_by(detector.as_ref(), &Scene::new()) >= 1.0,
            "{}",
            entry.type_name
        );
        assert_eq!(Scene::new().with(|cycle, none| detector.stale(cycle.now, none)), 0);
    }
}

#[test]
fn an_idle_pool_has_room() {
    for entry in TABLE {
        let detector = entry.instance(None, &mut Needs::default()).unwrap();

        assert_eq!(
            saturation_by(detector.as_ref(), &Scene::new().waiting(&[0, 0])),
            0.0,
            "{}",
            entry.type_name
        );
    }
}

#[test]
fn a_pool_of_which_nothing_is_known_has_room_at_first_and_is_full_in_the_end() {
    // But for the detector to which no pool ever is.
    for entry in TABLE.iter().filter(|entry| entry.type_name != "never-saturated") {
        let detector = entry.instance(None, &mut Needs::default()).unwrap();
        let unheard = |requests| {
            let sent = InFlight {
                requests,
                tokens: u64::from(requests) * 100,
                unreported: requests,
            };
            Scene::new().in_flight(&[sent, sent])
        };

        assert!(
            saturation_by(detector.as_ref(), &unheard(0)) < 1.0,
            "{}",
            entry.type_name
        );
        assert!(
            saturation_by(detector.as_ref(), &unheard(1000)) >= 1.0,
            "{}",
            entry.type_name
        );
    }
}

proptest! {
    #[test]
    fn saturation_is_a_number_that_is_not_negative(scene in any_scene()) {
        for entry in TABLE {
            let detector = entry.instance(None, &mut Needs::default()).unwrap();
            let saturation = saturation_by(detector.as_ref(), &scene);

            prop_assert!(saturation.is_finite() && saturation >= 0.0, "{}: {saturation}", entry.type_name);
        }
    }

    #[test]
    fn what_is_sent_never_makes_a_pool_look_emptier(scene in any_scene(), sent in 1_u32..100) {
        let more: Vec<_> = scene.with(|_, pool| {
            let in_flight = pool.iter().map(|(_, member)| member.in_flight);
            let more = in_flight.map(|before| InFlight {
                requests: before.requests + sent,
                tokens: before.tokens + u64::from(sent),
                unreported: before.unreported + sent,
            });
            more.collect()
        });
        let saturations = |scene: &Scene| TABLE.iter().map(|entry| {
            let detector = entry.instance(None, &mut Needs::default()).unwrap();
            saturation_by(detector.as_ref(), scene)
        }).collect::<Vec<_>>();

        let before = saturations(&scene);
        let after = saturations(&scene.in_flight(&more));

        prop_assert!(before.iter().zip(&after).all(|(before, after)| before <= after), "{before:?}, then {after:?}");
    }
}
