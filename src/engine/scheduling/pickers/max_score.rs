//! Picks the endpoints with the highest totals.

use std::convert::Infallible;

use rand::RngExt;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::super::pool::Slot;
use super::super::super::seed::Chance;
use super::super::{Picker, Scored};
use super::{Params, shuffled};

/// The highest totals; among equal ones, each is as likely as the others (spec, scheduling 5).
#[derive(Debug)]
pub(super) struct MaxScorePicker {
    limit: usize,
}

impl Plugin for MaxScorePicker {
    const TYPE: &'static str = "max-score-picker";
    const SUMMARY: &'static str = "picks the endpoint with the highest total; among equals, at random";
    const PARAMETERS: &'static [Parameter] = Params::DESCRIBED;
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self { limit: params.limit() })
    }
}

impl Picker for MaxScorePicker {
    fn pick(&mut self, scored: &[Scored], chance: &mut Chance, picked: &mut Vec<Slot>) {
        if self.limit == 1 {
            picked.extend(one_of_the_best(scored, chance));
            return;
        }
        let mut order = shuffled(scored, chance);
        order.sort_by(|&a, &b| scored[b].total.total_cmp(&scored[a].total));
        picked.extend(order.into_iter().take(self.limit).map(|at| scored[at].slot));
    }
}

/// One pass: the n-th endpoint to reach the highest total takes its place with probability 1/n.
fn one_of_the_best(scored: &[Scored], chance: &mut Chance) -> Option<Slot> {
    let (first, rest) = scored.split_first()?;
    let (mut best, mut equals) = (first, 1_u32);
    for candidate in rest {
        match candidate.total.total_cmp(&best.total) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Greater => (best, equals) = (candidate, 1),
            std::cmp::Ordering::Equal => {
                equals += 1;
                if chance.random_range(0..equals) == 0 {
                    best = candidate;
                }
            }
        }
    }
    Some(best.slot)
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{pick_often, scored};
    use super::*;

    #[test]
    fn the_highest_total_wins() {
        let picks = pick_often(&mut MaxScorePicker { limit: 1 }, &scored(&[1.0, 3.0, 2.0]));

        assert_eq!(picks, [0, 1000, 0]);
    }

    #[test]
    fn equal_totals_share_the_picks() {
        let picks = pick_often(&mut MaxScorePicker { limit: 1 }, &scored(&[2.0, 2.0, 1.0, 2.0]));

        assert_eq!(picks[2], 0);
        assert!([0, 1, 3].iter().all(|&at| (270..400).contains(&picks[at])), "{picks:?}");
    }

    #[test]
    fn fallbacks_come_in_order_of_their_totals() {
        let mut picked = Vec::new();
        let mut picker = MaxScorePicker { limit: 2 };
        picker.pick(
            &scored(&[1.0, 3.0, 2.0]),
            &mut crate::engine::seed::Seed(1).stream("t"),
            &mut picked,
        );

        assert_eq!(picked, [Slot(1), Slot(2)]);
    }
}
