//! Prefers the endpoint with the most load.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::super::pool::{Candidates, Member};
use super::super::{Cycle, Scorer};
use super::least::prefer_most;

/// `(load - min) / (max - min)` over the candidates; 1 for all if they are equal. The worst that a scorer can do, as a
/// measure for others (spec, simulator 10.2).
#[derive(Debug)]
pub(super) struct BusiestScorer;

impl Plugin for BusiestScorer {
    const TYPE: &'static str = "busiest-scorer";
    const SUMMARY: &'static str = "prefers the endpoint with the most load, to see how bad it can get; not for use";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl Scorer for BusiestScorer {
    fn score(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        prefer_most(candidates, Member::effective_load, scores);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    #[test]
    fn the_most_loaded_scores_one_and_the_least_loaded_zero() {
        let scene = Scene::new().waiting(&[4, 0, 3]).running(&[0, 0, 5]);

        assert_eq!(scores_by(&mut BusiestScorer, &scene), [0.5, 0.0, 1.0]);
    }
}
