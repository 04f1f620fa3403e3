//! Picks the endpoints with the highest totals.

use std::convert::Infallible;

use rand::RngExt;
use serde::Deserialize;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::super::pool::Slot;
use super::super::super::seed::Chance;
use super::super::{Picker, Scored};
use super::{MAX_NUM_OF_ENDPOINTS, limit_of, shuffled};

/// The highest totals. Among equal ones each is as likely as the others (spec, scheduling 5), or the first in order of
/// endpoint id is preferred. Totals are equal if they are the same number to the last bit (spec, simulator 10.3).
#[derive(Debug)]
pub(super) struct MaxScorePicker {
    limit: usize,
    ties: Ties,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    max_num_of_endpoints: i64,
    ties: Ties,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            max_num_of_endpoints: 1,
            ties: Ties::default(),
        }
    }
}

/// Who is picked among equals.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ties {
    /// Any of them.
    #[default]
    Random,
    /// The first.
    First,
}

impl Plugin for MaxScorePicker {
    const TYPE: &'static str = "max-score-picker";
    const SUMMARY: &'static str = "picks the endpoint with the highest total";
    const PARAMETERS: &'static [Parameter] = &[
        MAX_NUM_OF_ENDPOINTS,
        Parameter {
            name: "ties",
            default: "\"random\"",
            summary: "who is picked among equals: `random` for any of them, `first` for the first in order of the text \
                      of their ids, in which `instance_10` comes before `instance_2`",
        },
    ];
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self {
            limit: limit_of(params.max_num_of_endpoints, needs),
            ties: params.ties,
        })
    }
}

impl Picker for MaxScorePicker {
    fn pick(&mut self, scored: &[Scored], chance: &mut Chance, picked: &mut Vec<Slot>) {
        if self.limit == 1 {
            picked.extend(self.one_of_the_best(scored, chance));
            return;
        }
        let mut order: Vec<usize> = match self.ties {
            Ties::Random => shuffled(scored, chance),
            Ties::First => (0..scored.len()).collect(),
        };
        order.sort_by(|&a, &b| scored[b].total.total_cmp(&scored[a].total));
        picked.extend(order.into_iter().take(self.limit).map(|at| scored[at].slot));
    }
}

impl MaxScorePicker {
    /// Draws only if there is something to draw for.
    fn one_of_the_best(&self, scored: &[Scored], chance: &mut Chance) -> Option<Slot> {
        let totals = scored.iter().map(|candidate| candidate.total);
        let highest = totals.max_by(f64::total_cmp)?;
        let mut best = scored.iter().filter(|candidate| candidate.total == highest);
        let place = match (self.ties, best.clone().count()) {
            (Ties::First, _) | (_, 1) => 0,
            (Ties::Random, equals) => chance.random_range(0..equals),
        };
        best.nth(place).map(|candidate| candidate.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::seed::Seed;
    use super::super::super::testing::{pick_often, scored};
    use super::*;

    fn picker(limit: usize, ties: Ties) -> MaxScorePicker {
        MaxScorePicker { limit, ties }
    }

    #[test]
    fn the_highest_total_wins() {
        let picks = pick_often(&mut picker(1, Ties::Random), &scored(&[1.0, 3.0, 2.0]));

        assert_eq!(picks, [0, 1000, 0]);
    }

    #[test]
    fn equal_totals_share_the_picks() {
        let picks = pick_often(&mut picker(1, Ties::Random), &scored(&[2.0, 2.0, 1.0, 2.0]));

        assert_eq!(picks[2], 0);
        assert!([0, 1, 3].iter().all(|&at| (270..400).contains(&picks[at])), "{picks:?}");
    }

    #[test]
    fn fallbacks_come_in_order_of_their_totals() {
        let mut picked = Vec::new();
        let mut picker = picker(2, Ties::Random);
        picker.pick(&scored(&[1.0, 3.0, 2.0]), &mut Seed(1).stream("t"), &mut picked);

        assert_eq!(picked, [Slot(1), Slot(2)]);
    }

    #[test]
    fn each_of_four_fallbacks_comes_before_those_with_lower_totals() {
        for ties in [Ties::Random, Ties::First] {
            let mut picked = Vec::new();
            let totals = scored(&[1.0, 4.0, 2.0, 0.5, 3.0]);
            picker(4, ties).pick(&totals, &mut Seed(1).stream("t"), &mut picked);

            assert_eq!(picked, [Slot(1), Slot(4), Slot(2), Slot(0)], "{ties:?}");
        }
    }

    #[test]
    fn the_first_of_equals_is_picked_where_that_is_asked_for() {
        let picks = pick_often(&mut picker(1, Ties::First), &scored(&[1.0, 2.0, 2.0]));
        let mut picked = Vec::new();
        picker(3, Ties::First).pick(&scored(&[1.0, 2.0, 2.0]), &mut Seed(1).stream("t"), &mut picked);

        assert_eq!(picks, [0, 1000, 0]);
        assert_eq!(picked, [Slot(1), Slot(2), Slot(0)]);
    }

    #[test]
    fn without_a_tie_nothing_is_drawn() {
        let mut chance = Seed(1).stream("t");
        let fresh = chance.clone();
        picker(1, Ties::Random).pick(&scored(&[2.0, 2.0, 3.0]), &mut chance, &mut Vec::new());

        assert_eq!(chance, fresh);
    }
}
