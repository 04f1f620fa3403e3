//! What holds for every admission policy in the table.

use std::time::Duration;

use proptest::prelude::*;

use super::super::plugin::Needs;
use super::super::request::{Kind, Request};
use super::super::scheduling::testing::params_conform;
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
        arrivals in proptest::collection::vec((0_u64..5_000_000_000, 0_u32..20_000), 1..40),
    ) {
        for entry in TABLE {
            let mut policy = entry.instance(None, &mut Needs::default()).unwrap();
            let mut now = Timestamp::ZERO;
            for &(pause, tokens) in &arrivals {
                now = now + Duration::from_nanos(pause);
                let request = prompt(tokens);
                if let Admission::Reject { retry_after: Some(span), .. } = policy.admit(now, &request) {
                    now = now + span;

                    prop_assert_eq!(policy.admit(now, &request), Admission::Admit, "{}", entry.type_name);
                }
            }
        }
    }

    #[test]
    fn equal_arrivals_get_equal_answers(
        arrivals in proptest::collection::vec((0_u64..5_000_000_000, 0_u32..20_000), 1..40),
    ) {
        for entry in TABLE {
            let mut a = entry.instance(None, &mut Needs::default()).unwrap();
            let mut b = entry.instance(None, &mut Needs::default()).unwrap();
            let mut now = Timestamp::ZERO;
            for &(pause, tokens) in &arrivals {
                now = now + Duration::from_nanos(pause);

                prop_assert_eq!(a.admit(now, &prompt(tokens)), b.admit(now, &prompt(tokens)));
            }
        }
    }
}
