//! Picks at random, in proportion to the totals.

use std::convert::Infallible;

use rand::RngExt;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::super::pool::Slot;
use super::super::super::seed::Chance;
use super::super::{Picker, Scored};
use super::{Params, shuffled};

/// Weighted sampling without replacement (Efraimidis and Spirakis, 2006): each endpoint draws `U^(1/total)`, and the
/// largest draws win. A total of zero or less draws zero. If no total is above zero, all are alike.
#[derive(Debug)]
pub(super) struct WeightedRandomPicker {
    limit: usize,
}

impl Plugin for WeightedRandomPicker {
    const TYPE: &'static str = "weighted-random-picker";
    const SUMMARY: &'static str = "picks at random, in proportion to the totals";
    const PARAMETERS: &'static [Parameter] = Params::DESCRIBED;
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self {
            limit: params.limit(needs),
        })
    }
}

impl Picker for WeightedRandomPicker {
    fn pick(&mut self, scored: &[Scored], chance: &mut Chance, picked: &mut Vec<Slot>) {
        let mut order = shuffled(scored, chance);
        if scored.iter().any(|candidate| candidate.total > 0.0) {
            let draws: Vec<f64> = scored.iter().map(|candidate| draw(candidate.total, chance)).collect();
            order.sort_by(|&a, &b| draws[b].total_cmp(&draws[a]));
        }
        picked.extend(order.into_iter().take(self.limit).map(|at| scored[at].slot));
    }
}

/// The logarithm of `U^(1/total)`: it orders alike, and does not run out of digits for small totals.
fn draw(total: f64, chance: &mut Chance) -> f64 {
    let u: f64 = chance.random();
    if total > 0.0 {
        u.max(f64::MIN_POSITIVE).ln() / total
    } else {
        f64::NEG_INFINITY
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::seed::Seed;
    use super::super::super::testing::{pick_often, scored};
    use super::*;

    #[test]
    fn picks_are_in_proportion_to_totals() {
        let picks = pick_often(&mut WeightedRandomPicker { limit: 1 }, &scored(&[1.0, 3.0, 0.0, -1.0]));

        assert!((200..300).contains(&picks[0]), "{picks:?}");
        assert!((700..800).contains(&picks[1]), "{picks:?}");
        assert_eq!(picks[2..], [0, 0]);
    }

    #[test]
    fn the_larger_a_total_the_earlier_a_fallback_comes_on_average() {
        let mut chance = Seed(1).stream("t");
        let totals = [1.0, 8.0, 2.0, 4.0];
        let mut places = [0; 4];
        let mut last_two_in_order = 0;
        for _ in 0..1000 {
            let mut picked = Vec::new();
            WeightedRandomPicker { limit: 4 }.pick(&scored(&totals), &mut chance, &mut picked);
            picked
                .iter()
                .zip(1..)
                .for_each(|(slot, place)| places[slot.index()] += place);
            last_two_in_order += u32::from(totals[picked[2].index()] > totals[picked[3].index()]);
        }

        let [one, eight, two, four] = places;
        assert!(eight < four && four < two && two < one, "{places:?}");
        assert!(last_two_in_order > 600, "{last_two_in_order} of 1000");
    }

    #[test]
    fn without_a_positive_total_all_are_alike() {
        let picks = pick_often(&mut WeightedRandomPicker { limit: 1 }, &scored(&[0.0, -2.0]));

        assert!(picks.iter().all(|picks| (430..570).contains(picks)), "{picks:?}");
    }
}
