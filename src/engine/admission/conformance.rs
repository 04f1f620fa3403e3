//! What holds for every admission policy in the table.

use std::time::Duration;

use proptest::prelude::*;

use super::super::plugin::Needs;
use super::super::request::{Kind, Request};
use super::super::scheduling::testing::{any_scene, params_conform};
use super::super::time::Timestamp;
use super::{Admission, TABLE};

#[test]
fn described_parameters_are_the_ones_that_are_accepted() {
    TABLE.iter().for_each(params_conform);
}

fn prompt(tokens: u32) -> Request {
    Request {
        prompt_tokens: tokens,
        ..Request::unknown(Kind::Inference)
    }
}

proptest! {
    #[test]
    fn who_comes_back_when_told_to_is_admitted(
        scene in any_scene(),
        arrivals in proptest::collection::vec((0_u64..5_000_000_000, 0_u32..20_000), 1..40),
    ) {
        for entry in TABLE {
            let mut policy = entry.instance(None, &mut Needs::default()).unwrap();
            let mut now = Timestamp::ZERO;
            for &(pause, tokens) in &arrivals {
                now = now + Duration::from_nanos(pause);
                let request = prompt(tokens);
                let first = scene.admits_at(now, policy.as_mut(), &request);
                if let Admission::Reject { retry_after: Some(span), .. } = first {
                    now = now + span;
                    let second = scene.admits_at(now, policy.as_mut(), &request);

                    prop_assert_eq!(second, Admission::Admit, "{}", entry.type_name);
                }
            }
        }
    }

    #[test]
    fn equal_arrivals_get_equal_answers(
        scene in any_scene(),
        arrivals in proptest::collection::vec((0_u64..5_000_000_000, 0_u32..20_000), 1..40),
    ) {
        for entry in TABLE {
            let mut a = entry.instance(None, &mut Needs::default()).unwrap();
            let mut b = entry.instance(None, &mut Needs::default()).unwrap();
            let mut now = Timestamp::ZERO;
            for &(pause, tokens) in &arrivals {
                now = now + Duration::from_nanos(pause);
                let [a, b] = [&mut a, &mut b].map(|policy| scene.admits_at(now, policy.as_mut(), &prompt(tokens)));

                prop_assert_eq!(a, b);
            }
        }
    }
}
