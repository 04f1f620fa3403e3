//! Of the requests that can still be served in time, the one whose first token is due first goes first.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::{Arrival, LAST, OrderingPolicy};

/// By the arrival of the headers plus the time to first token that the client hopes for.
///
/// A request whose deadline has passed goes behind all that can still meet theirs, together with those that name no target:
/// the queue does that, because [`keys_are_deadlines`](OrderingPolicy::keys_are_deadlines). If it stayed in front, the pool
/// would serve nothing but late requests in an overload, and each of them would make the next one late.
#[derive(Debug)]
pub(super) struct SloDeadline;

impl Plugin for SloDeadline {
    const TYPE: &'static str = "slo-deadline-ordering-policy";
    const SUMMARY: &'static str = "within a flow, of the requests that can still be served in time, the one whose first token is \
                                   due first goes first; the others follow in order of arrival";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl OrderingPolicy for SloDeadline {
    fn key(&self, arrival: &Arrival<'_>) -> u64 {
        let ttft = arrival.request.slo.ttft;
        ttft.map_or(LAST, |ttft| (arrival.received + ttft).as_nanos())
    }

    fn keys_are_deadlines(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::super::super::request::{Kind, Request, Slo};
    use super::super::super::super::time::Timestamp;
    use super::*;

    fn key(received: u64, ttft: Option<Duration>) -> u64 {
        let request = Request {
            slo: Slo { ttft, tpot: None },
            ..Request::unknown(Kind::Inference)
        };
        SloDeadline.key(&Arrival {
            request: &request,
            received: Timestamp::from_nanos(received),
            enqueued: Timestamp::from_nanos(received + 100),
            deadline: None,
        })
    }

    #[test]
    fn the_key_is_when_the_first_token_is_due_counted_from_the_headers() {
        assert_eq!(key(3, Some(Duration::from_nanos(40))), 43);
        assert_eq!(key(3, Some(Duration::ZERO)), 3);
    }

    #[test]
    fn without_an_objective_a_request_is_last() {
        assert_eq!(key(3, None), LAST);
    }
}
