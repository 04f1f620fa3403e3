//! Prefers the endpoint with the fewest running requests.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};
use super::least::prefer_least;

/// `(max - running) / (max - min)` over the candidates; 1 for all if they are equal (spec, scheduling 8.2).
#[derive(Debug)]
pub(super) struct RunningRequestsScorer;

impl Plugin for RunningRequestsScorer {
    const TYPE: &'static str = "running-requests-size-scorer";
    const SUMMARY: &'static str = "prefers the endpoint with the fewest running requests";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, needs: &mut Needs) -> Result<Self, Infallible> {
        needs.signals();
        Ok(Self)
    }
}

impl Scorer for RunningRequestsScorer {
    fn score(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        prefer_least(candidates, |member| member.signals.running.into(), scores);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    #[test]
    fn the_smallest_batch_scores_one_and_the_largest_zero() {
        let scene = Scene::new().running(&[10, 30, 15]);

        assert_eq!(scores_by(&mut RunningRequestsScorer, &scene), [1.0, 0.0, 0.75]);
    }
}
