//! The request that began to wait first goes first.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::{Arrival, OrderingPolicy};

/// By the time at which the wait began (spec, flow control 11).
#[derive(Debug)]
pub(super) struct FirstComeFirstServed;

impl Plugin for FirstComeFirstServed {
    const TYPE: &'static str = "fcfs-ordering-policy";
    const SUMMARY: &'static str = "within a flow, the request that has waited longest goes first";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl OrderingPolicy for FirstComeFirstServed {
    fn key(&self, arrival: &Arrival<'_>) -> u64 {
        arrival.enqueued.as_nanos()
    }

    fn is_by_arrival(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::request::{Kind, Request};
    use super::super::super::super::time::Timestamp;
    use super::*;

    #[test]
    fn the_key_is_the_begin_of_the_wait_whatever_the_deadline() {
        let request = Request::unknown(Kind::Inference);
        let arrival = Arrival {
            request: &request,
            received: Timestamp::from_nanos(6),
            enqueued: Timestamp::from_nanos(7),
            deadline: Some(Timestamp::from_nanos(8)),
        };

        assert_eq!(FirstComeFirstServed.key(&arrival), 7);
    }
}
