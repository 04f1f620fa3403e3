//! Prefers the endpoint with the fewest waiting requests.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};
use super::least::prefer_least;

/// `(max - waiting) / (max - min)` over the candidates; 1 for all if they are equal (spec, scheduling 8.1).
#[derive(Debug)]
pub(super) struct QueueScorer;

impl Plugin for QueueScorer {
    const TYPE: &'static str = "queue-scorer";
    const SUMMARY: &'static str = "prefers the endpoint with the fewest waiting requests";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, needs: &mut Needs) -> Result<Self, Infallible> {
        needs.signals();
        Ok(Self)
    }
}

impl Scorer for QueueScorer {
    fn score(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        prefer_least(candidates, |member| member.signals.waiting.into(), scores);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    #[test]
    fn the_shortest_queue_scores_one_and_the_longest_zero() {
        let scene = Scene::new().waiting(&[4, 0, 3]);

        assert_eq!(scores_by(&mut QueueScorer, &scene), [0.0, 1.0, 0.25]);
    }

    #[test]
    fn equal_queues_score_one() {
        let scene = Scene::new().waiting(&[7, 7]);

        assert_eq!(scores_by(&mut QueueScorer, &scene), [1.0, 1.0]);
    }
}
