//! The formula of the scorers that prefer the endpoint with the least, or the most, of something.

use super::super::super::pool::{Candidates, Member};

/// Writes `(max - x) / (max - min)` for each candidate's `x`, or 1 for all if they are equal (spec, scheduling 8.1).
pub(super) fn prefer_least(candidates: Candidates<'_>, x: impl Fn(&Member) -> u64, scores: &mut [f64]) {
    prefer(candidates, x, |x, _, max| max - x, scores);
}

/// Writes `(x - min) / (max - min)` for each candidate's `x`, or 1 for all if they are equal.
pub(super) fn prefer_most(candidates: Candidates<'_>, x: impl Fn(&Member) -> u64, scores: &mut [f64]) {
    prefer(candidates, x, |x, min, _| x - min, scores);
}

fn prefer(
    candidates: Candidates<'_>,
    x: impl Fn(&Member) -> u64,
    lead: impl Fn(u64, u64, u64) -> u64,
    scores: &mut [f64],
) {
    let values = || candidates.iter().map(|(_, member)| x(member));
    let (min, max) = values().fold((u64::MAX, u64::MIN), |(min, max), x| (min.min(x), max.max(x)));
    let span = max.saturating_sub(min) as f64;
    for (score, x) in scores.iter_mut().zip(values()) {
        *score = if max == min {
            1.0
        } else {
            lead(x, min, max) as f64 / span
        };
    }
}
