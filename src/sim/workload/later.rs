//! Requests that are made already and come later.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::super::request::SimRequest;

/// Requests in the order of their arrival. Of two that arrive at once, the one that was put in first comes first.
#[derive(Debug, Default)]
pub(super) struct LaterRequests {
    heap: BinaryHeap<Reverse<Later>>,
    put: u64,
}

#[derive(Debug)]
struct Later {
    at_us: u64,
    number: u64,
    request: SimRequest,
}

impl LaterRequests {
    pub(super) fn put(&mut self, request: SimRequest) {
        self.heap.push(Reverse(Later {
            at_us: request.arrival_us,
            number: self.put,
            request,
        }));
        self.put += 1;
    }

    /// When the next one arrives.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(next)| next.at_us)
    }

    pub(super) fn take(&mut self) -> Option<SimRequest> {
        self.heap.pop().map(|Reverse(next)| next.request)
    }

    /// How many were put in so far.
    pub(super) fn total(&self) -> u64 {
        self.put
    }
}

// === impl Later ===

impl Ord for Later {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_us, self.number).cmp(&(other.at_us, other.number))
    }
}

impl PartialOrd for Later {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Later {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Later {}
