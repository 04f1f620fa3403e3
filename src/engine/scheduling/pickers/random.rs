//! Picks without looking at the scores.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::super::pool::Slot;
use super::super::super::seed::Chance;
use super::super::{Picker, Scored};
use super::{Params, shuffled};

/// Every endpoint is as likely as any other (spec, scheduling 5).
#[derive(Debug)]
pub(super) struct RandomPicker {
    limit: usize,
}

impl Plugin for RandomPicker {
    const TYPE: &'static str = "random-picker";
    const SUMMARY: &'static str = "picks at random, without looking at the scores";
    const PARAMETERS: &'static [Parameter] = Params::DESCRIBED;
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self {
            limit: params.limit(needs),
        })
    }
}

impl Picker for RandomPicker {
    fn pick(&mut self, scored: &[Scored], chance: &mut Chance, picked: &mut Vec<Slot>) {
        let order = shuffled(scored, chance);
        picked.extend(order.into_iter().take(self.limit).map(|at| scored[at].slot));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{pick_often, scored};
    use super::*;

    #[test]
    fn scores_make_no_difference() {
        let picks = pick_often(&mut RandomPicker { limit: 1 }, &scored(&[0.0, 100.0]));

        assert!(picks.iter().all(|picks| (430..570).contains(picks)), "{picks:?}");
    }
}
