//! Prefers the endpoint that has the request's LoRA adapter loaded.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::super::pool::Candidates;
use super::super::{Cycle, Scorer};

/// 1 where the target model is active; else 0.8 where there is room for one more adapter; else 0.6 where it waits to
/// be loaded; else 0. In this order: a waiting adapter on a server with room scores 0.8 (spec, scheduling 8.4).
#[derive(Debug)]
pub(super) struct LoraAffinityScorer;

impl Plugin for LoraAffinityScorer {
    const TYPE: &'static str = "lora-affinity-scorer";
    const SUMMARY: &'static str = "prefers the endpoint that has the request's LoRA adapter loaded, or room for it";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, needs: &mut Needs) -> Result<Self, Infallible> {
        needs.signals();
        Ok(Self)
    }
}

impl Scorer for LoraAffinityScorer {
    fn score(&mut self, cycle: &Cycle<'_>, candidates: Candidates<'_>, scores: &mut [f64]) {
        let model = &*cycle.request.target_model;
        for (score, signals) in scores.iter_mut().zip(candidates.signals()) {
            let lora = &signals.lora;
            let has = |adapters: &[Box<str>]| adapters.iter().any(|adapter| **adapter == *model);
            *score = if has(&lora.active) {
                1.0
            } else if lora.active.len() + lora.waiting.len() < lora.max as usize {
                0.8
            } else if has(&lora.waiting) {
                0.6
            } else {
                0.0
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Scene, scores_by};
    use super::*;

    #[test]
    fn an_active_adapter_beats_room_for_it_beats_waiting_beats_nothing() {
        let scene = Scene::new().target_model("tuned").lora(&[
            (&["tuned", "a"], &[], 2),
            (&["a"], &[], 2),
            (&["a", "b"], &["tuned"], 2),
            (&["a", "b"], &[], 2),
        ]);

        assert_eq!(scores_by(&mut LoraAffinityScorer, &scene), [1.0, 0.8, 0.6, 0.0]);
    }

    #[test]
    fn a_waiting_adapter_on_a_server_with_room_scores_as_room() {
        let scene = Scene::new().target_model("tuned").lora(&[(&["a"], &["tuned"], 4)]);

        assert_eq!(scores_by(&mut LoraAffinityScorer, &scene), [0.8]);
    }

    #[test]
    fn a_server_that_reports_no_adapters_scores_zero() {
        let scene = Scene::new().target_model("tuned").waiting(&[0]);

        assert_eq!(scores_by(&mut LoraAffinityScorer, &scene), [0.0]);
    }
}
