//! The formula of the scorers that prefer the endpoint with the least of something.

use super::super::super::pool::{Candidates, Signals};

/// Writes `(max - x) / (max - min)` for each candidate's `x`, or 1 for all if they are equal (spec, scheduling 8.1).
pub(super) fn prefer_least(candidates: Candidates<'_>, x: impl Fn(&Signals) -> u32, scores: &mut [f64]) {
    let values = || candidates.signals().map(&x);
    let (min, max) = values().fold((u32::MAX, u32::MIN), |(min, max), x| (min.min(x), max.max(x)));
    let span = f64::from(max.saturating_sub(min));
    for (score, x) in scores.iter_mut().zip(values()) {
        *score = if max == min { 1.0 } else { f64::from(max - x) / span };
    }
}
