//! Prefers the endpoint with the emptiest KV cache.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};

/// `1 - usage` (spec, scheduling 8.3).
#[derive(Debug)]
pub(super) struct KvCacheUtilizationScorer;

impl Plugin for KvCacheUtilizationScorer {
    const TYPE: &'static str = "kv-cache-utilization-scorer";
    const SUMMARY: &'static str = "prefers the endpoint with the emptiest KV cache";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, needs: &mut Needs) -> Result<Self, Infallible> {
        needs.signals();
        Ok(Self)
    }
}

impl Scorer for KvCacheUtilizationScorer {
    fn score(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        for (score, signals) in scores.iter_mut().zip(candidates.signals()) {
            *score = 1.0 - signals.kv_usage;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    #[test]
    fn a_score_is_the_free_share_of_the_cache() {
        let scene = Scene::new().kv_usage(&[0.0, 0.25, 1.0]);

        assert_eq!(scores_by(&mut KvCacheUtilizationScorer, &scene), [1.0, 0.75, 0.0]);
    }
}
