//! What always holds of the engine, by name.
//!
//! An [`Invariant`] is a sentence and a predicate over an observation: what an onlooker sees who knows what went in and
//! what came out. [`AT_REST`] costs so little that debug builds check it whenever the engine has nothing more to do; the
//! model test of flow control checks all of them at every step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Engine;
use super::flow::active::Place;
use super::flow::plan::GlobalLimits;
use super::flow::{FlowControl, Load};
use super::request::RequestId;
use super::time::Timestamp;

/// Something that holds of every observation of some kind.
#[derive(Debug)]
pub struct Invariant<T> {
    /// A short name, which is stable.
    pub name: &'static str,
    /// What holds.
    pub sentence: &'static str,
    /// Says whether it does.
    pub holds: fn(&T) -> bool,
}

/// An invariant that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` does not hold: {sentence}")]
pub struct Broken {
    /// Which one.
    pub name: &'static str,
    /// What should have held.
    pub sentence: &'static str,
}

/// Looks whether all of `invariants` hold of what was `seen`.
///
/// # Errors
///
/// The first one that does not.
pub fn check<T>(invariants: &[Invariant<T>], seen: &T) -> Result<(), Broken> {
    match invariants.iter().find(|invariant| !(invariant.holds)(seen)) {
        None => Ok(()),
        Some(&Invariant { name, sentence, .. }) => Err(Broken { name, sentence }),
    }
}

/// What an engine that has nothing to do counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Requests taken in.
    pub submitted: u64,
    /// Requests that ended.
    pub ended: u64,
    /// What waits, as it is counted for the global limits.
    pub held: Load,
    /// The sum of what is counted for the limits of the bands.
    pub in_bands: Load,
    /// Requests that were routed and have not ended.
    pub in_flight: u64,
    /// The sum of what is counted as load of the endpoints.
    pub on_endpoints: u64,
}

impl Figures {
    /// The figures of `engine`, in time proportional to the number of bands and endpoints.
    pub fn of(engine: &Engine) -> Self {
        let mut in_bands = Load::default();
        for (_, load) in engine.flow().into_iter().flat_map(FlowControl::bands) {
            in_bands.requests += load.requests;
            in_bands.bytes += load.bytes;
        }
        let on_endpoints = engine.pool().iter().map(|(_, member)| member.in_flight.requests);
        Self {
            submitted: engine.tally().submitted,
            ended: engine.tally().ended(),
            held: engine.flow().map(FlowControl::held).unwrap_or_default(),
            in_bands,
            in_flight: engine.in_flight() as u64,
            on_endpoints: on_endpoints.map(u64::from).sum(),
        }
    }
}

/// What holds of an engine that has nothing to do.
pub const AT_REST: &[Invariant<Figures>] = &[
    Invariant {
        name: "conservation",
        sentence: "each request that was submitted waits, is in flight or has ended",
        holds: |seen| seen.submitted == seen.held.requests + seen.in_flight + seen.ended,
    },
    Invariant {
        name: "tallies",
        sentence: "what waits in all is the sum of what waits in the bands, in requests and in bytes",
        holds: |seen| seen.held == seen.in_bands,
    },
    Invariant {
        name: "no-load-without-a-request",
        sentence: "no more is counted as load of the endpoints than is in flight",
        holds: |seen| seen.on_endpoints <= seen.in_flight,
    },
];

/// What became of every request that was submitted.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// How often each was answered: routed, refused, or cancelled while it waited.
    pub counts: BTreeMap<RequestId, u32>,
    /// Those that wait.
    pub waiting: BTreeSet<RequestId>,
}

/// What holds of the answers while the engine has nothing to do.
pub const OF_ANSWERS: &[Invariant<Answers>] = &[Invariant {
    name: "one-outcome-each",
    sentence: "a request that waits has no answer, and any other has exactly one",
    holds: |seen| {
        let expected = |id| u32::from(!seen.waiting.contains(id));
        seen.counts.iter().all(|(id, &count)| count == expected(id))
    },
}];

/// The books of an onlooker, beside those of an engine that has nothing to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Books {
    /// Requests that were seen to be routed.
    pub released: u64,
    /// Those of them that have ended.
    pub finished: u64,
    /// Those of them that have not ended, and whose endpoint has not left the pool since.
    pub served: u64,
    /// Bytes of the requests that were held.
    pub bytes_in: u64,
    /// Bytes of those that left the queue, however they did.
    pub bytes_out: u64,
    /// Requests in flight, as the engine counts them.
    pub in_flight: u64,
    /// The load of the endpoints, as the engine counts it.
    pub on_endpoints: u64,
    /// Bytes that wait, as the engine counts them.
    pub bytes_held: u64,
}

/// What holds of the books.
pub const OF_BOOKS: &[Invariant<Books>] = &[
    Invariant {
        name: "in-flight-is-released-minus-finished",
        sentence: "what was released and has not finished is in flight",
        holds: |seen| seen.in_flight == seen.released - seen.finished,
    },
    Invariant {
        name: "load-is-what-is-served",
        sentence: "endpoints carry the load of what is in flight to them, and none for those that left",
        holds: |seen| seen.on_endpoints == seen.served,
    },
    Invariant {
        name: "bytes-booked-are-bytes-released",
        sentence: "bytes that were booked for a request are given back when it leaves the queue",
        holds: |seen| seen.bytes_held == seen.bytes_in - seen.bytes_out,
    },
];

/// A request that came to wait.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// Bytes of its body.
    pub size: u64,
    /// What waited in all.
    pub held: Load,
    /// What may wait in all.
    pub limits: GlobalLimits,
    /// What waited in its band.
    pub in_band: Load,
    /// What may wait in its band.
    pub band_limits: Load,
    /// True if it was held.
    pub was_held: bool,
}

impl Arrived {
    fn fits(&self) -> bool {
        let fits = |held: u64, more: u64, limit: Option<u64>| limit.is_none_or(|limit| held + more <= limit);
        fits(self.held.requests, 1, self.limits.requests)
            && fits(self.held.bytes, self.size, self.limits.bytes)
            && fits(self.in_band.requests, 1, Some(self.band_limits.requests))
            && fits(self.in_band.bytes, self.size, Some(self.band_limits.bytes))
    }
}

/// What holds of every arrival.
pub const ON_ARRIVAL: &[Invariant<Arrived>] = &[
    Invariant {
        name: "limits-never-exceeded",
        sentence: "no request is held that makes more than a limit allows",
        holds: |seen| seen.fits() || !seen.was_held,
    },
    Invariant {
        name: "no-needless-refusal",
        sentence: "no request is turned away that fits within the limits",
        holds: |seen| seen.was_held || !seen.fits(),
    },
];

/// A request that gives its place to one of a flow that has less. Lengths are in requests or in bytes, whichever there is
/// no room for.
#[derive(Clone, Copy, Debug)]
pub struct Displacement {
    /// The length of its flow, itself included.
    pub length: u64,
    /// The length that the flow of the new request will have.
    pub newcomers: u64,
    /// What the limit leaves to the flows that share it.
    pub room: u64,
    /// The number of these flows, with that of the new request.
    pub flows: u64,
    /// True if it is the newest of its flow.
    pub is_newest: bool,
}

/// What holds of every displacement.
pub const ON_DISPLACEMENT: &[Invariant<Displacement>] = &[
    Invariant {
        name: "only-above-its-part",
        sentence: "no flow gives way that has an equal part of the room or less",
        holds: |seen| seen.length * seen.flows > seen.room,
    },
    Invariant {
        name: "only-to-a-shorter-one",
        sentence: "no flow gives way to one that will be as long as itself",
        holds: |seen| seen.length > seen.newcomers,
    },
    Invariant {
        name: "the-newest-gives-way",
        sentence: "of a flow, the request gives way that came last",
        holds: |seen| seen.is_newest,
    },
];

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which one.
    pub id: RequestId,
    /// The priority of its band.
    pub band: i32,
    /// Its fairness id.
    pub flow: Arc<str>,
    /// Its place, by the ordering policy of its band.
    pub place: Place,
}

/// A release.
#[derive(Clone, Debug)]
pub struct Released {
    /// Who went.
    pub request: Held,
    /// Who stayed.
    pub others: Vec<Held>,
    /// How full the pool was.
    pub saturation: f64,
    /// How full it was allowed to be for the band.
    pub ceiling: f64,
    /// When it went.
    pub now: Timestamp,
    /// When it would have waited too long.
    pub due: Option<Timestamp>,
}

/// What holds of every release.
pub const ON_RELEASE: &[Invariant<Released>] = &[
    Invariant {
        name: "strict-priority",
        sentence: "nobody is released while a request of a higher priority waits",
        holds: |seen| seen.others.iter().all(|other| other.band <= seen.request.band),
    },
    Invariant {
        name: "order-within-a-flow",
        sentence: "of a flow, the request goes that its ordering policy puts first, and of equal ones the oldest",
        holds: |seen| {
            let request = &seen.request;
            let mut others = seen.others.iter();
            others
                .all(|other| (other.band, &other.flow) != (request.band, &request.flow) || other.place > request.place)
        },
    },
    Invariant {
        name: "no-overshoot",
        sentence: "nobody is released into a pool that is as full as the ceiling of the band",
        holds: |seen| seen.saturation < seen.ceiling,
    },
    Invariant {
        name: "nobody-goes-too-late",
        sentence: "nobody is released who has waited for longer than it may",
        holds: |seen| seen.due.is_none_or(|due| due >= seen.now),
    },
];

/// A request that was refused because it had waited for too long.
#[derive(Clone, Copy, Debug)]
pub struct Expired {
    /// When it was refused.
    pub now: Timestamp,
    /// When it had waited too long.
    pub due: Option<Timestamp>,
    /// True if there was room for it.
    pub could_go: bool,
}

/// What holds of every request that expires.
pub const ON_EXPIRY: &[Invariant<Expired>] = &[
    Invariant {
        name: "nobody-expires-early",
        sentence: "nobody is refused for waiting too long before it has",
        holds: |seen| seen.due.is_some_and(|due| due <= seen.now),
    },
    Invariant {
        name: "the-last-moment-counts",
        sentence: "a request whose time is up at this moment goes if there is room for it",
        holds: |seen| !(seen.could_go && seen.due == Some(seen.now)),
    },
];

/// What was served of one band while others had requests.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    /// For each flow that has requests, how often each flow was served since it was served itself, or came.
    passed: BTreeMap<Arc<str>, BTreeMap<Arc<str>, u32>>,
}

impl Turns {
    /// Notes that `served` was served, and that these are the flows that have requests after it.
    pub fn serve(&mut self, served: &Arc<str>, backlogged: &BTreeSet<Arc<str>>) {
        self.passed.remove(served);
        self.keep(backlogged);
        for (flow, passed) in &mut self.passed {
            if flow != served {
                *passed.entry(served.clone()).or_default() += 1;
            }
        }
    }

    /// Notes that these are the flows that have requests.
    pub fn keep(&mut self, backlogged: &BTreeSet<Arc<str>>) {
        self.passed.retain(|flow, _| backlogged.contains(flow));
        for flow in backlogged {
            self.passed.entry(flow.clone()).or_default();
        }
    }
}

/// What holds of a band whose flows are served in turn.
pub const IN_TURN: &[Invariant<Turns>] = &[Invariant {
    name: "round-robin-bound",
    sentence: "no flow that has requests is passed over twice while another one is served",
    holds: |seen| seen.passed.values().flat_map(BTreeMap::values).all(|&times| times <= 1),
}];

/// An engine that says that it has nothing to do.
#[derive(Clone, Copy, Debug)]
pub struct Idle {
    /// The time.
    pub now: Timestamp,
    /// How full the pool is.
    pub saturation: f64,
    /// How full it may be for the highest band that has requests. `None` if nothing waits.
    pub ceiling: Option<f64>,
    /// When the next request will have waited too long, if the pool stays as it is.
    pub due: Option<Timestamp>,
    /// When the engine wants to be polled again.
    pub wakes: Option<Timestamp>,
}

/// What holds of an engine that says that it has nothing to do.
pub const WHEN_IDLE: &[Invariant<Idle>] = &[
    Invariant {
        name: "work-conservation",
        sentence: "nobody waits for whom the pool has room",
        holds: |seen| seen.ceiling.is_none_or(|ceiling| seen.saturation >= ceiling),
    },
    Invariant {
        name: "no-lost-wake-up",
        sentence: "nobody waits too long, and the engine asks to be polled before somebody does",
        holds: |seen| {
            let asks_in_time = |due| due > seen.now && seen.wakes.is_some_and(|wakes| wakes <= due);
            seen.due.is_none_or(asks_in_time)
        },
    },
    Invariant {
        name: "no-idle-turns",
        sentence: "the engine asks to be polled only later, and only while somebody waits",
        holds: |seen| {
            seen.wakes
                .is_none_or(|wakes| wakes > seen.now && seen.ceiling.is_some())
        },
    },
];

/// A client that was turned away for want of room.
#[derive(Clone, Copy, Debug)]
pub struct TurnedAway {
    /// The place in the queue that it was told.
    pub position: u64,
    /// Requests that would be released before it, if no others came.
    pub ahead: u64,
}

/// What holds of what clients are told.
pub const ON_REFUSAL: &[Invariant<TurnedAway>] = &[Invariant {
    name: "position-is-what-is-ahead",
    sentence: "the place in the queue counts the requests that would be released before it",
    holds: |seen| seen.position == seen.ahead + 1,
}];

#[cfg(test)]
mod tests {
    use super::*;

    fn flows(ids: &[&str]) -> BTreeSet<Arc<str>> {
        ids.iter().map(|&id| id.into()).collect()
    }

    #[test]
    fn a_flow_may_be_passed_over_once_by_each_other_one_and_not_twice_by_the_same() {
        let mut turns = Turns::default();
        turns.keep(&flows(&["a", "b", "c"]));
        turns.serve(&"a".into(), &flows(&["a", "b", "c"]));
        turns.serve(&"b".into(), &flows(&["a", "c"]));
        assert_eq!(check(IN_TURN, &turns), Ok(()));

        turns.serve(&"a".into(), &flows(&["a", "c"]));

        assert_eq!(check(IN_TURN, &turns).unwrap_err().name, "round-robin-bound");
    }

    #[test]
    fn a_flow_that_came_back_waits_anew() {
        let mut turns = Turns::default();
        turns.keep(&flows(&["a", "b"]));
        turns.serve(&"a".into(), &flows(&["a", "b"]));
        turns.keep(&flows(&["a"]));
        turns.keep(&flows(&["a", "b"]));

        turns.serve(&"a".into(), &flows(&["a", "b"]));

        assert_eq!(check(IN_TURN, &turns), Ok(()));
    }

    #[test]
    fn a_broken_invariant_says_what_should_have_held() {
        let lost = Figures {
            submitted: 1,
            ended: 0,
            held: Load::default(),
            in_bands: Load::default(),
            in_flight: 0,
            on_endpoints: 0,
        };

        assert_eq!(
            check(AT_REST, &lost).unwrap_err().to_string(),
            "`conservation` does not hold: each request that was submitted waits, is in flight or has ended"
        );
    }

    #[test]
    fn every_invariant_has_a_name_of_its_own() {
        fn names<T>(invariants: &[Invariant<T>]) -> Vec<&'static str> {
            invariants.iter().map(|invariant| invariant.name).collect()
        }
        let all = [
            names(AT_REST),
            names(OF_ANSWERS),
            names(OF_BOOKS),
            names(ON_ARRIVAL),
            names(ON_DISPLACEMENT),
            names(ON_RELEASE),
            names(ON_EXPIRY),
            names(IN_TURN),
            names(WHEN_IDLE),
            names(ON_REFUSAL),
        ]
        .concat();

        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }
}
