//! Prefers the endpoint with the least load, by how little it is rather than by how it compares.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};

/// `1 / (1 + effective load)` (spec, simulator 10.4).
#[derive(Debug)]
pub(super) struct LoadBalanceScorer;

impl Plugin for LoadBalanceScorer {
    const TYPE: &'static str = "load-balance-scorer";
    const SUMMARY: &'static str = "prefers the endpoint with the least load, waiting, running and in flight together: 1 \
                                   when it is idle, a half with one request, a third with two";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl Scorer for LoadBalanceScorer {
    fn score(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        for (score, (_, member)) in scores.iter_mut().zip(candidates.iter()) {
            *score = 1.0 / (1.0 + member.effective_load() as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    #[test]
    fn what_waits_runs_and_is_in_flight_counts_alike() {
        let scene = Scene::new()
            .waiting(&[1, 0, 3])
            .running(&[2, 0, 4])
            .requests_in_flight(&[1, 0, 1]);

        assert_eq!(scores_by(&mut LoadBalanceScorer, &scene), [0.2, 1.0, 1.0 / 9.0]);
    }
}
