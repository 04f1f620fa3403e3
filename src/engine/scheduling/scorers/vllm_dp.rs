//! Prefers the endpoint that vLLM's own balancer between data-parallel ranks would choose.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};
use super::least::prefer_least;

/// `(max - r) / (max - min)` with `r = 4·waiting + running`; 1 for all if they are equal (spec, simulator 10.4).
#[derive(Debug)]
pub(super) struct VllmDpScorer;

/// What a request that waits counts, in requests that run.
const WAITING_WEIGHT: u64 = 4;

impl Plugin for VllmDpScorer {
    const TYPE: &'static str = "vllm-dp-scorer";
    const SUMMARY: &'static str = "prefers the endpoint with the least load, where a waiting request counts as much as \
                                   four running ones, as between the data-parallel ranks of vLLM";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, needs: &mut Needs) -> Result<Self, Infallible> {
        needs.signals();
        Ok(Self)
    }
}

impl Scorer for VllmDpScorer {
    fn score(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        prefer_least(
            candidates,
            |member| WAITING_WEIGHT * u64::from(member.signals.waiting) + u64::from(member.signals.running),
            scores,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    #[test]
    fn a_waiting_request_counts_as_much_as_four_running_ones() {
        let scene = Scene::new().waiting(&[1, 0, 2]).running(&[0, 4, 0]);

        assert_eq!(scores_by(&mut VllmDpScorer, &scene), [1.0, 1.0, 0.0]);
    }
}
