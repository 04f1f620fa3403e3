//! The models that are asked for in the place of others (spec, ext-proc 4.3 and kubernetes 5).

use std::collections::BTreeMap;
use std::sync::Arc;

/// Rules by the model that the client names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrites {
    exact: BTreeMap<Arc<str>, Arc<Rule>>,
    /// For every model without a rule of its own.
    any: Option<Arc<Rule>>,
}

/// What is asked for in the place of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name of the object that says so.
    pub object: Arc<str>,
    /// Models and their parts of the requests. If no part is more than nothing, all are equal.
    pub targets: Vec<(Arc<str>, u32)>,
}

impl Rewrites {
    /// Adds a rule for `models`, or for all if there are none. The first rule for a model counts.
    pub fn add(&mut self, models: Vec<Arc<str>>, rule: Rule) {
        let rule = Arc::new(rule);
        if models.is_empty() {
            self.any.get_or_insert(rule);
            return;
        }
        for model in models {
            self.exact.entry(model).or_insert_with(|| Arc::clone(&rule));
        }
    }

    /// The rule for the model that a client names.
    pub fn rule(&self, model: &str) -> Option<&Arc<Rule>> {
        self.exact.get(model).or(self.any.as_ref())
    }

    /// Every model that a rule names, on either side.
    pub fn models(&self) -> impl Iterator<Item = &Arc<str>> {
        let rules = self.exact.values().chain(&self.any);
        let targets = rules.flat_map(|rule| rule.targets.iter().map(|(name, _)| name));
        self.exact.keys().chain(targets)
    }

    /// How many models have a rule of their own.
    pub fn len(&self) -> usize {
        self.exact.len() + usize::from(self.any.is_some())
    }

    /// True if there is no rule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Rule {
    /// The target for a request that drew `lot`, any number being equally likely. Empty if there is no target.
    pub fn target(&self, lot: u64) -> Arc<str> {
        let total: u64 = self.targets.iter().map(|(_, weight)| u64::from(*weight)).sum();
        if total == 0 {
            let at = scaled(lot, self.targets.len() as u64);
            return self
                .targets
                .get(at as usize)
                .map_or_else(Arc::default, |(name, _)| Arc::clone(name));
        }
        let mut left = scaled(lot, total);
        for (name, weight) in &self.targets {
            match left.checked_sub(u64::from(*weight)) {
                Some(rest) => left = rest,
                None => return Arc::clone(name),
            }
        }
        // What was drawn is less than the sum of the weights, so one of them was reached.
        Arc::default()
    }
}

/// `lot` out of 2^64 as a number below `bound`.
fn scaled(lot: u64, bound: u64) -> u64 {
    ((u128::from(lot) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rule(object: &str, targets: &[(&str, u32)]) -> Rule {
        Rule {
            object: object.into(),
            targets: targets
                .iter()
                .map(|(name, weight)| (Arc::from(*name), *weight))
                .collect(),
        }
    }

    #[test]
    fn a_rule_of_its_own_goes_before_that_for_all_and_the_first_counts() {
        let mut rewrites = Rewrites::default();
        rewrites.add(vec![], rule("all", &[("x", 0)]));
        rewrites.add(vec![], rule("late", &[("y", 0)]));
        rewrites.add(vec!["base".into()], rule("own", &[("z", 0)]));
        rewrites.add(vec!["base".into()], rule("late", &[("y", 0)]));

        let object = |model: &str| rewrites.rule(model).map(|rule| rule.object.to_string());
        assert_eq!(object("base").unwrap(), "own");
        assert_eq!(object("other").unwrap(), "all");
        assert_eq!(Rewrites::default().rule("base"), None);
    }

    /// Of 1000 lots that are spread evenly, how many fall to each target.
    fn shares(rule: &Rule) -> BTreeMap<String, u32> {
        let mut shares = BTreeMap::new();
        for lot in 0..1000 {
            *shares
                .entry(rule.target(lot * (u64::MAX / 1000)).to_string())
                .or_default() += 1;
        }
        shares
    }

    #[test]
    fn targets_get_requests_by_their_weights() {
        let weighted = shares(&rule("r", &[("a", 90), ("b", 10), ("none", 0)]));
        assert_eq!(weighted.len(), 2, "{weighted:?}");
        assert!(weighted["a"].abs_diff(900) <= 1, "{weighted:?}");

        let equal = shares(&rule("r", &[("a", 0), ("b", 0)]));
        assert!(equal["a"].abs_diff(500) <= 1, "{equal:?}");
    }

    #[test]
    fn without_targets_nothing_is_asked_for() {
        assert_eq!(&*rule("r", &[]).target(7), "");
    }

    proptest! {
        #[test]
        fn every_lot_falls_to_a_target_that_has_a_part(
            lot in any::<u64>(),
            weights in prop::collection::vec(0_u32..=1_000_000, 1..8),
        ) {
            let names: Vec<String> = (0..weights.len()).map(|at| at.to_string()).collect();
            let targets: Vec<_> = names.iter().map(String::as_str).zip(weights.iter().copied()).collect();

            let target: usize = rule("r", &targets).target(lot).parse().unwrap();

            prop_assert!(weights[target] > 0 || weights.iter().all(|weight| *weight == 0));
        }
    }
}
