//! Runs the one profile there is.

use std::convert::Infallible;
use std::ops::RangeInclusive;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::{Cycle, ProfileHandler, ProfileResult};

/// Runs the one profile there is, once (spec, scheduling 6.1).
#[derive(Debug)]
pub(super) struct SingleProfileHandler;

impl Plugin for SingleProfileHandler {
    const TYPE: &'static str = "single-profile-handler";
    const SUMMARY: &'static str = "runs the one profile there is";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl ProfileHandler for SingleProfileHandler {
    fn next(&mut self, _: &Cycle<'_>, results: &[Option<ProfileResult>]) -> Vec<usize> {
        match results.first() {
            Some(None) => vec![0],
            _ => Vec::new(),
        }
    }

    fn primary(&mut self, _: &[Option<ProfileResult>]) -> usize {
        0
    }

    fn profiles_allowed(&self) -> RangeInclusive<usize> {
        1..=1
    }
}
