//! One pass of filters, scorers and a picker.

use std::sync::Arc;

use super::super::pool::{Candidates, Pool, Slot};
use super::super::seed::Chance;
use super::{
    Cycle, Explain, ExtensionPoint, Filter, InstanceRef, Instances, Named, Probe, ProfileResult, Scored,
    ScoredEndpoint, Why,
};

/// A list of plugins that together choose endpoints.
#[derive(Debug)]
pub struct Profile {
    /// Its name in the configuration.
    pub name: Arc<str>,
    filters: Vec<InstanceRef>,
    scorers: Vec<WeightedScorer>,
    picker: InstanceRef,
    /// Names and weights of the scorers, shared by the explanations of all decisions.
    labels: Arc<[(Arc<str>, f64)]>,
    /// What the weights are divided by, so that only their ratios count: their sum, or 1 if that is not above 0.
    whole: f64,
}

/// A scorer, and how much its opinion counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedScorer {
    /// The scorer.
    pub scorer: InstanceRef,
    /// What its scores are multiplied with.
    pub weight: f64,
}

impl Profile {
    /// A profile of plugins of `instances`; filters and scorers work in the order given.
    pub fn new(
        name: Arc<str>,
        filters: Vec<InstanceRef>,
        scorers: Vec<WeightedScorer>,
        picker: InstanceRef,
        instances: &Instances,
    ) -> Self {
        let label = |s: &WeightedScorer| (instances.scorers[s.scorer.0].name.name.clone(), s.weight);
        let labels = scorers.iter().map(label).collect();
        let sum: f64 = scorers.iter().map(|scorer| scorer.weight).sum();
        Self {
            name,
            filters,
            scorers,
            picker,
            labels,
            whole: if sum > 0.0 && sum.is_finite() { sum } else { 1.0 },
        }
    }

    /// The filters, in the order in which they work.
    pub fn filters(&self) -> &[InstanceRef] {
        &self.filters
    }

    /// The scorers and what they count.
    pub fn scorers(&self) -> &[WeightedScorer] {
        &self.scorers
    }

    /// The picker.
    pub fn picker(&self) -> InstanceRef {
        self.picker
    }
}

/// The last run of a profile. Its buffers are used again by the next one, so that a run allocates nothing for each
/// endpoint.
#[derive(Debug, Default)]
pub(super) struct Run {
    left: Vec<Slot>,
    kept: Vec<Slot>,
    /// Candidates that were left out because others are in a better tier.
    passed_over: usize,
    /// What each filter of the profile keeps that goes by labels and was asked ahead of its turn. Empty if none was.
    by_labels: Vec<Labelled>,
    after_filters: Vec<usize>,
    /// Clamped scores, one column after the other: those of all endpoints by the first scorer, then by the second.
    scores: Vec<f64>,
    scored: Vec<Scored>,
    ranking: Vec<u32>,
}

/// The candidates that a filter by labels keeps.
#[derive(Debug)]
struct Labelled {
    /// The place of the filter in the profile.
    place: usize,
    /// In order of slots.
    kept: Vec<Slot>,
}

impl Labelled {
    fn has(&self, slot: Slot) -> bool {
        self.kept.binary_search(&slot).is_ok()
    }
}

impl Run {
    #[expect(
        clippy::too_many_arguments,
        reason = "a run touches all parts of the scheduler that owns it"
    )]
    pub(super) fn profile(
        &mut self,
        profile: &Profile,
        instances: &mut Instances,
        cycle: &Cycle<'_>,
        pool: &Pool,
        candidates: &[Slot],
        chance: &mut Chance,
        probe: &mut dyn Probe,
    ) -> ProfileResult {
        self.begin_with_the_best(profile, instances, cycle, pool, candidates, chance, probe);
        self.after_filters.clear();
        for (place, filter) in profile.filters.iter().enumerate() {
            if self.left.is_empty() {
                break;
            }
            if let Some(labelled) = self.by_labels.iter().find(|labelled| labelled.place == place) {
                self.left.retain(|&slot| labelled.has(slot));
            } else {
                self.kept.clear();
                let left = Candidates::new(pool, &self.left);
                ask(
                    &mut instances.filters[filter.0],
                    cycle,
                    left,
                    chance,
                    probe,
                    &mut self.kept,
                );
                std::mem::swap(&mut self.left, &mut self.kept);
            }
            self.after_filters.push(self.left.len());
        }
        if self.left.is_empty() {
            return ProfileResult::NobodyLeft;
        }

        let endpoints = self.left.len();
        self.scores.clear();
        self.scores.resize(endpoints * profile.scorers.len(), 0.0);
        self.scored.clear();
        self.scored
            .extend(self.left.iter().map(|&slot| Scored { slot, total: 0.0 }));
        for (weighted, column) in profile.scorers.iter().zip(self.scores.chunks_mut(endpoints)) {
            let scorer = &mut instances.scorers[weighted.scorer.0];
            let share = weighted.weight / profile.whole;
            probe.begins();
            scorer.plugin.score(cycle, Candidates::new(pool, &self.left), column);
            probe.ended(ExtensionPoint::Scorer, &scorer.name);
            for (score, scored) in column.iter_mut().zip(&mut self.scored) {
                // A NaN, which no formula should give, is no reason to pick anybody.
                *score = if score.is_nan() { 0.0 } else { score.clamp(0.0, 1.0) };
                scored.total += *score * share;
            }
        }

        let picker = &mut instances.pickers[profile.picker.0];
        let mut picked = Vec::with_capacity(1);
        probe.begins();
        picker.plugin.pick(&self.scored, chance, &mut picked);
        probe.ended(ExtensionPoint::Picker, &picker.name);
        ProfileResult::Picked(picked)
    }

    /// Leaves the candidates of the best tier that any of them is in. A candidate that the filters by labels take out does
    /// not count: that one can prefill is no help if none can decode. Nor does it count what other filters say: if all that
    /// can be used are full, that does not make one usable that cannot be reached.
    ///
    /// Each filter by labels is asked once, here, about all candidates. It judges each of them by itself, so what it keeps
    /// is right at its turn, too, whoever is left then.
    #[expect(
        clippy::too_many_arguments,
        reason = "a run touches all parts of the scheduler that owns it"
    )]
    fn begin_with_the_best(
        &mut self,
        profile: &Profile,
        instances: &mut Instances,
        cycle: &Cycle<'_>,
        pool: &Pool,
        candidates: &[Slot],
        chance: &mut Chance,
        probe: &mut dyn Probe,
    ) {
        self.left.clear();
        self.left.extend_from_slice(candidates);
        self.passed_over = 0;
        self.by_labels.clear();
        if pool.is_all_usable() && cycle.tried.is_empty() {
            return;
        }
        for (place, filter) in profile.filters.iter().enumerate() {
            let filter = &mut instances.filters[filter.0];
            if filter.plugin.goes_by_labels() {
                let mut kept = Vec::with_capacity(candidates.len());
                ask(
                    filter,
                    cycle,
                    Candidates::new(pool, candidates),
                    chance,
                    probe,
                    &mut kept,
                );
                kept.sort_unstable();
                self.by_labels.push(Labelled { place, kept });
            }
        }
        let Self { left, by_labels, .. } = self;
        left.retain(|&slot| by_labels.iter().all(|labelled| labelled.has(slot)));
        let best = pool.best_tier(left, cycle.tried);
        left.clear();
        let kept = candidates.iter().filter(|&&slot| pool.tier(slot, cycle.tried) <= best);
        left.extend(kept);
        self.passed_over = candidates.len() - self.left.len();
    }

    /// How the last run of `profile` came to its picks.
    pub(super) fn why(
        &mut self,
        profile: &Profile,
        instances: &Instances,
        pool: &Pool,
        candidates: usize,
        explain: Explain,
    ) -> Why {
        let Self { scored, ranking, .. } = self;
        let shown = scored.len().min(explain.limit());
        let order = |&a: &u32, &b: &u32| {
            let total = |at: u32| scored[at as usize].total;
            total(b).total_cmp(&total(a)).then(a.cmp(&b))
        };
        ranking.clear();
        ranking.extend((0..).take(scored.len()));
        if shown > 0 && shown < ranking.len() {
            ranking.select_nth_unstable_by(shown - 1, order);
        }
        ranking.truncate(shown);
        ranking.sort_unstable_by(order);

        let endpoints = self.scored.len();
        let mut scores = Vec::with_capacity(shown * profile.scorers.len());
        let mut best = Vec::with_capacity(shown);
        for &at in &self.ranking {
            let at = at as usize;
            let row = scores.len();
            scores.extend(self.scores.iter().skip(at).step_by(endpoints));
            let weighted = scores[row..].iter().zip(&profile.scorers);
            best.push(ScoredEndpoint {
                endpoint: pool[self.scored[at].slot].endpoint.clone(),
                total: weighted.fold(0.0, |total, (score, scorer)| total + *score * scorer.weight),
            });
        }
        let filter_name = |filter: &InstanceRef| instances.filters[filter.0].name.name.clone();
        Why {
            candidates,
            passed_over: self.passed_over,
            filters: profile
                .filters
                .iter()
                .map(filter_name)
                .zip(self.after_filters.iter().copied())
                .collect(),
            scorers: profile.labels.clone(),
            scored: best,
            scores,
        }
    }
}

/// Has a filter add to `kept` what it keeps of `candidates`.
fn ask(
    filter: &mut Named<dyn Filter>,
    cycle: &Cycle<'_>,
    candidates: Candidates<'_>,
    chance: &mut Chance,
    probe: &mut dyn Probe,
    kept: &mut Vec<Slot>,
) {
    probe.begins();
    filter.plugin.filter(cycle, candidates, chance, kept);
    probe.ended(ExtensionPoint::Filter, &filter.name);
}
