//! Picks the endpoints in turn.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::super::pool::Slot;
use super::super::super::seed::Chance;
use super::super::{Picker, Scored};
use super::Params;

/// The n-th choice is the candidate at place `n` modulo their number, in order of endpoint id; the fallbacks are those
/// after it (spec, simulator 10.2). Ids are ordered as text, so `instance_10` has its turn before `instance_2`.
#[derive(Debug)]
pub(super) struct RoundRobinPicker {
    limit: usize,
    choices: usize,
}

impl Plugin for RoundRobinPicker {
    const TYPE: &'static str = "round-robin-picker";
    const SUMMARY: &'static str = "picks the endpoints in turn, in order of the text of their ids (`instance_10` before \
                                   `instance_2`), without looking at the scores";
    const PARAMETERS: &'static [Parameter] = Params::DESCRIBED;
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self {
            limit: params.limit(needs),
            choices: 0,
        })
    }
}

impl Picker for RoundRobinPicker {
    fn pick(&mut self, scored: &[Scored], _: &mut Chance, picked: &mut Vec<Slot>) {
        let turn = self.choices % scored.len();
        self.choices = self.choices.wrapping_add(1);
        let (after, first) = scored.split_at(turn);
        let in_turn = first.iter().chain(after);
        picked.extend(in_turn.take(self.limit).map(|candidate| candidate.slot));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::seed::Seed;
    use super::super::super::testing::{pick_often, scored};
    use super::*;

    fn picker(limit: usize) -> RoundRobinPicker {
        RoundRobinPicker { limit, choices: 0 }
    }

    #[test]
    fn each_has_its_turn_whatever_it_scores() {
        let picks = pick_often(&mut picker(1), &scored(&[0.0, 9.0, 1.0, 1.0]));

        assert_eq!(picks, [250; 4]);
    }

    #[test]
    fn the_next_ones_in_turn_are_the_fallbacks() {
        let (mut picker, mut chance) = (picker(2), Seed(1).stream("t"));
        let mut picks = || {
            let mut picked = Vec::new();
            picker.pick(&scored(&[0.0; 3]), &mut chance, &mut picked);
            picked
        };

        assert_eq!(picks(), [Slot(0), Slot(1)]);
        assert_eq!(picks(), [Slot(1), Slot(2)]);
        assert_eq!(picks(), [Slot(2), Slot(0)]);
    }

    #[test]
    fn the_count_goes_on_when_the_number_of_candidates_changes() {
        let (mut picker, mut chance) = (picker(1), Seed(1).stream("t"));
        let mut pick = |candidates: usize| {
            let mut picked = Vec::new();
            picker.pick(&scored(&vec![0.0; candidates]), &mut chance, &mut picked);
            picked[0]
        };

        assert_eq!([pick(3), pick(2), pick(3)], [Slot(0), Slot(1), Slot(2)]);
    }
}
