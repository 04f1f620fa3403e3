//! The request that would first have waited too long goes first.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::super::time::Timestamp;
use super::{Arrival, LAST, OrderingPolicy};

/// By the end of the time that a request may wait; last, if it may wait without end (spec, flow control 11).
#[derive(Debug)]
pub(super) struct EarliestDeadlineFirst;

impl Plugin for EarliestDeadlineFirst {
    const TYPE: &'static str = "edf-ordering-policy";
    const SUMMARY: &'static str = "within a flow, the request whose time to wait ends first goes first";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl OrderingPolicy for EarliestDeadlineFirst {
    fn key(&self, arrival: &Arrival<'_>) -> u64 {
        arrival.deadline.map_or(LAST, Timestamp::as_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::request::{Kind, Request};
    use super::*;

    fn key(enqueued: u64, deadline: Option<u64>) -> u64 {
        let request = Request::unknown(Kind::Inference);
        EarliestDeadlineFirst.key(&Arrival {
            request: &request,
            received: Timestamp::from_nanos(enqueued),
            enqueued: Timestamp::from_nanos(enqueued),
            deadline: deadline.map(Timestamp::from_nanos),
        })
    }

    #[test]
    fn an_earlier_deadline_overtakes_an_earlier_arrival() {
        assert!(key(5, Some(20)) < key(1, Some(21)));
    }

    #[test]
    fn without_a_deadline_a_request_is_last() {
        assert_eq!(key(0, None), LAST);
    }
}
