//! Who gives up its place to a request of a flow that has less, in a queue that is full.
//!
//! Without this, a tenant that sends more than its part fills the queue, and then a tenant that sends little is turned
//! away as often as anybody else, however fair the order of release is. So a request that finds no room takes the place
//! of the newest request of the longest flow, as long as its own flow, this request included, stays shorter than that
//! one. It is the rule of longest queue drop, and it leads to what is called max-min fairness:
//!
//! - The request that goes is always of a flow that has more than an equal part of the room: of what the limit leaves to
//!   the flows that can give way, divided by their number, the flow of the new request included.
//! - A request with which its flow stays within an equal part always finds room.
//! - No two flows take places from each other in turn: the one that gives way was longer before.
//!
//! A limit of one band is shared by the flows of the band. The limits of all bands together are shared by the flows of
//! the band of the new request and of the bands below it: a less urgent request never takes the place of a more urgent one.

use std::collections::BinaryHeap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::band::{Band, Load};
use super::fairness::FlowRef;
use super::longest::{Length, Longest};
use super::plan::GlobalLimits;

/// What a length or a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    Requests,
    Bytes,
}

impl Measure {
    pub(super) fn of(self, load: Load) -> u64 {
        match self {
            Self::Requests => load.requests,
            Self::Bytes => load.bytes,
        }
    }
}

/// A request for which there is no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newcomer<'a> {
    /// Where its band is among the bands.
    pub(super) band: usize,
    pub(super) fairness_id: &'a Arc<str>,
    pub(super) size: u64,
}

/// Looks for the requests that give up their places. Nothing changes in the bands meanwhile.
pub(super) struct Search<'a, S> {
    /// All bands, the highest priority first.
    bands: &'a [Band],
    /// The size of a request, by its key.
    size: S,
    newcomer: Newcomer<'a>,
    /// What would still wait in all bands, and in that of the newcomer.
    held: Load,
    in_band: Load,
    gone: FxHashMap<Flow, Gone>,
    keys: Vec<usize>,
}

/// A flow: its band, and its reference in it.
type Flow = (usize, FlowRef);

/// What a flow would give up.
#[derive(Debug)]
struct Gone {
    load: Load,
    /// The arrival number of the newest request that it would keep.
    newest: Option<u64>,
}

impl<'a, S: Fn(usize) -> u64> Search<'a, S> {
    pub(super) fn new(bands: &'a [Band], held: Load, newcomer: Newcomer<'a>, size: S) -> Self {
        Self {
            bands,
            size,
            newcomer,
            held,
            in_band: bands[newcomer.band].load,
            gone: FxHashMap::default(),
            keys: Vec::new(),
        }
    }

    /// The keys of the requests that give up their places so that the new one fits within all limits. `None` if its flow
    /// is owed too little room for that; then nobody has to go.
    ///
    /// Takes time in the number of those that go and of the flows that they are of, and in the logarithm of what waits.
    pub(super) fn run(mut self, limits: GlobalLimits) -> Option<Vec<usize>> {
        let Newcomer { band: at, size, .. } = self.newcomer;
        let band = &self.bands[at];
        if !band.displaces() {
            return None;
        }
        // One limit after the other: each has its own measure and its own flows that share it. What was found for one
        // counts for the next.
        let (own, lower) = (at..at + 1, at..self.bands.len());
        let plan = &band.plan;
        self.search(own.clone(), Measure::Bytes, |seen| {
            seen.in_band.bytes + size <= plan.max_bytes
        })?;
        self.search(own, Measure::Requests, |seen| seen.in_band.requests < plan.max_requests)?;
        self.search(lower.clone(), Measure::Bytes, |seen| {
            limits.bytes.is_none_or(|limit| seen.held.bytes + size <= limit)
        })?;
        self.search(lower, Measure::Requests, |seen| {
            limits.requests.is_none_or(|limit| seen.held.requests < limit)
        })?;
        Some(self.keys)
    }

    /// Finds requests of some of the bands until there is room: the newest of the longest flow, again and again, while that
    /// flow is longer than the one of the newcomer will be.
    fn search(
        &mut self,
        range: std::ops::Range<usize>,
        measure: Measure,
        has_room: impl Fn(&Self) -> bool,
    ) -> Option<()> {
        if has_room(self) {
            return Some(());
        }
        let mut grown = self.bands[self.newcomer.band].load_of(self.newcomer.fairness_id);
        grown.add(self.newcomer.size);
        let grown = measure.of(grown);
        // The heap of each band is entered from the top: a flow becomes a candidate when the one above it in the heap has
        // been looked at.
        let mut candidates = BinaryHeap::new();
        let bands = self.bands;
        let enter = |band: usize, node: usize| {
            let (length, flow) = bands[band].longest(measure)?.at(node)?;
            Some((length, (band, flow), Some(node)))
        };
        candidates.extend(range.filter_map(|band| enter(band, 0)));
        while !has_room(self) {
            let (length, flow, node) = candidates.pop().filter(|(length, ..)| length.amount > grown)?;
            if let Some(node) = node {
                candidates.extend(Longest::below(node).into_iter().filter_map(|node| enter(flow.0, node)));
            }
            let left = match (node, self.gone.get(&flow)) {
                // It gave up something for another limit, and is shorter than its heap says.
                (Some(_), Some(gone)) => gone.newest.map(|newest| Length {
                    amount: length.amount - measure.of(gone.load),
                    newest,
                }),
                _ => self.give_up(flow, length, measure),
            };
            candidates.extend(left.map(|left| (left, flow, None)));
        }
        Some(())
    }

    /// The newest request of `flow`, which has this length, goes. Says what is left of it.
    fn give_up(&mut self, flow: Flow, length: Length, measure: Measure) -> Option<Length> {
        let (key, newest) = self.bands[flow.0].newest_of(flow.1, length.newest);
        let size = (self.size)(key);
        self.keys.push(key);
        self.held.subtract(size);
        if flow.0 == self.newcomer.band {
            self.in_band.subtract(size);
        }
        let gone = self.gone.entry(flow).or_insert(Gone {
            load: Load::default(),
            newest,
        });
        gone.load.add(size);
        gone.newest = newest;
        let taken = Load {
            requests: 1,
            bytes: size,
        };
        Some(Length {
            amount: length.amount - measure.of(taken),
            newest: newest?,
        })
    }
}
