//! The sequences that wait for a place in the batch.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Bound;

use super::scheduler::Scheduler;
use super::sequence::SequenceRequest;
use crate::engine::request::RequestId;
use crate::engine::time::Timestamp;

/// Always in the order of its scheduler; with a bound.
#[derive(Debug)]
pub(super) struct WaitQueue {
    scheduler: Scheduler,
    limit: usize,
    /// The slots of the sequences.
    waiting: BTreeMap<Place, usize>,
    /// The ranks of the first and behind the last one, where the order is that of coming.
    front: i64,
    back: i64,
}

/// Where a sequence stands in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    rank: i64,
    arrival: Timestamp,
    id: RequestId,
}

impl WaitQueue {
    pub(super) fn new(scheduler: Scheduler, limit: NonZeroU32) -> Self {
        Self {
            scheduler,
            limit: limit.get() as usize,
            waiting: BTreeMap::new(),
            front: 0,
            back: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < self.limit
    }

    /// Takes in one that arrives.
    pub(super) fn push(&mut self, request: &SequenceRequest, slot: usize) -> Place {
        let rank = self.scheduler.rank(request).unwrap_or_else(|| {
            self.back += 1;
            self.back - 1
        });
        self.insert(rank, request, slot)
    }

    /// Takes back one that was preempted: ahead of all others, unless the scheduler has another order. The bound is for
    /// those that arrive; these were let in.
    pub(super) fn take_back(&mut self, request: &SequenceRequest, slot: usize) -> Place {
        let rank = self.scheduler.rank(request).unwrap_or_else(|| {
            self.front -= 1;
            self.front
        });
        self.insert(rank, request, slot)
    }

    fn insert(&mut self, rank: i64, request: &SequenceRequest, slot: usize) -> Place {
        let place = Place {
            rank,
            arrival: request.arrival,
            id: request.id,
        };
        self.waiting.insert(place, slot);
        place
    }

    /// The first one, or the first one behind `place`.
    pub(super) fn first_behind(&self, place: Option<Place>) -> Option<(Place, usize)> {
        let first = match place {
            None => self.waiting.first_key_value(),
            Some(place) => self.waiting.range((Bound::Excluded(place), Bound::Unbounded)).next(),
        };
        first.map(|(&place, &slot)| (place, slot))
    }

    pub(super) fn remove(&mut self, place: Place) {
        self.waiting.remove(&place);
    }

    /// The slots, in order.
    pub(super) fn slots(&self) -> impl Iterator<Item = usize> {
        self.waiting.values().copied()
    }
}
