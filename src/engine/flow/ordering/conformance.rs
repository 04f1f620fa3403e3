//! What holds for every ordering policy in the table.

use std::time::Duration;

use proptest::prelude::*;

use super::super::super::plugin::Needs;
use super::super::super::request::{Kind, Request, Slo};
use super::super::super::scheduling::testing::params_conform;
use super::super::super::time::Timestamp;
use super::{Arrival, TABLE};

#[test]
fn described_parameters_are_the_ones_that_are_accepted() {
    TABLE.iter().for_each(params_conform);
}

proptest! {
    #[test]
    fn what_comes_later_and_is_otherwise_equal_does_not_go_first(
        received in 0_u64..1_000_000,
        parsed_in in 0_u64..1000,
        ttl in proptest::option::of(0_u64..1_000_000),
        ttft in proptest::option::of(0_u64..1_000_000),
        later in 0_u64..1_000_000,
    ) {
        for entry in TABLE {
            let policy = entry.instance(None, &mut Needs::default()).unwrap();
            let key = |received: u64| {
                let enqueued = Timestamp::from_nanos(received + parsed_in);
                let request = Request {
                    slo: Slo { ttft: ttft.map(Duration::from_nanos), tpot: None },
                    ..Request::unknown(Kind::Inference)
                };
                let deadline = ttl.map(|ttl| enqueued + Duration::from_nanos(ttl));
                let received = Timestamp::from_nanos(received);
                policy.key(&Arrival { request: &request, received, enqueued, deadline })
            };

            prop_assert!(key(received) <= key(received + later), "{}", entry.type_name);
        }
    }
}
