//! Saturation detectors: how full the pool is.
//!
//! The gate of flow control and the shedding of negative priorities ask the same detector. A detector may also stand in
//! a profile as a filter, which keeps the endpoints that are not full.

mod concurrency;
mod faults;
mod never;
mod utilization;

use std::fmt::Debug;
use std::time::Duration;

pub use concurrency::ConcurrencyDetector;
pub use utilization::UtilizationDetector;

use super::plugin::{Entry, Plugin, instance};
use super::pool::{Candidates, Pool, Slot};
use super::time::Timestamp;

/// Says how full a pool is.
pub trait SaturationDetector: Debug + Send {
    /// 0 is idle, 1 is full, and it may be more. A pool without endpoints is full.
    fn saturation(&self, now: Timestamp, endpoints: Candidates<'_>) -> f64;

    /// False if it finds room in every pool that has an endpoint, so that what it says tells nothing of the pool.
    fn discerns(&self) -> bool {
        true
    }

    /// How long after a request has ended its load may still count here. Until then a pool that looks full may have room,
    /// and nobody else is cut off for it.
    fn settles_in(&self) -> Duration;

    /// Endpoints of which nothing fresh is known.
    fn stale(&self, _now: Timestamp, _endpoints: Candidates<'_>) -> usize {
        0
    }

    /// When the saturation may next be less by the passing of time alone. `None` if it never will be.
    fn falls_at(&self, _now: Timestamp, _endpoints: Candidates<'_>) -> Option<Timestamp> {
        None
    }
}

/// Every saturation detector. To add one: a file beside this one, and a line here, and one in the table of filters if
/// it is one.
pub const TABLE: &[Entry<dyn SaturationDetector>] = &[
    entry::<UtilizationDetector>(),
    entry::<ConcurrencyDetector>(),
    entry::<never::NeverSaturated>(),
];

const fn entry<P: Plugin + SaturationDetector + 'static>() -> Entry<dyn SaturationDetector> {
    Entry::of::<P>(|params, needs| Ok(Box::new(instance::<P>(params, needs)?)))
}

#[cfg(test)]
mod conformance;

/// How full the pool is, by what its endpoints do (spec, flow control 6).
///
/// In a pool whose endpoints have roles, those that prefill and those that decode are looked at apart, and the fuller of
/// the two groups counts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolSaturation {
    /// Of the endpoints that prefill, if there are any that say so.
    pub prefill: Option<f64>,
    /// Of the endpoints that decode, if there are any.
    pub decode: Option<f64>,
    /// What the gate goes by.
    pub effective: f64,
}

impl PoolSaturation {
    /// The saturation by stage, as metrics name them.
    pub fn stages(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let stages = [
            ("prefill", self.prefill),
            ("decode", self.decode),
            ("effective", Some(self.effective)),
        ];
        stages.into_iter().filter_map(|(stage, value)| Some((stage, value?)))
    }
}

/// The space that it takes to split a pool by stages.
#[derive(Debug, Default)]
pub(super) struct Split {
    prefill: Vec<Slot>,
    decode: Vec<Slot>,
}

impl PoolSaturation {
    /// Asks `detector` about `pool`.
    pub(super) fn of(
        detector: &dyn SaturationDetector,
        now: Timestamp,
        pool: &Pool,
        Split { prefill, decode }: &mut Split,
    ) -> Self {
        prefill.clear();
        decode.clear();
        for (slot, member) in pool.iter() {
            prefill.extend(member.stages.prefill.then_some(slot));
            decode.extend(member.stages.decode.then_some(slot));
        }
        let of = |slots: &[Slot]| (!slots.is_empty()).then(|| saturation(detector, now, pool, slots));
        let (prefill, decode) = (of(prefill), of(decode));
        let fuller = [prefill, decode].into_iter().flatten().reduce(f64::max);
        let effective = fuller.unwrap_or_else(|| {
            let everybody: Vec<Slot> = pool.iter().map(|(slot, _)| slot).collect();
            saturation(detector, now, pool, &everybody)
        });
        Self {
            prefill,
            decode,
            effective,
        }
    }
}

/// How full the endpoints in `slots` are together.
///
/// One that gets no requests, because it is ejected or cannot be reached, counts as full, whatever the detector would say of
/// it: what it last reported is not so any more, and its part of the room must not go to the others on top of their own. If
/// all are ejected, they get requests all the same, and are as full as they are. If none can be reached, there is no room.
pub(super) fn saturation(detector: &dyn SaturationDetector, now: Timestamp, pool: &Pool, slots: &[Slot]) -> f64 {
    if pool.has_none_out() {
        return detector.saturation(now, Candidates::new(pool, slots));
    }
    let those =
        |keep: &dyn Fn(Slot) -> bool| -> Vec<Slot> { slots.iter().copied().filter(|&slot| keep(slot)).collect() };
    let mut served = those(&|slot| !pool[slot].health.is_out());
    if served.is_empty() {
        served = those(&|slot| !pool[slot].health.is_gone());
    }
    if served.is_empty() {
        return 1.0;
    }
    let saturation = detector.saturation(now, Candidates::new(pool, &served));
    match slots.len() - served.len() {
        0 => saturation,
        full => saturation.mul_add(served.len() as f64, full as f64) / slots.len() as f64,
    }
}
