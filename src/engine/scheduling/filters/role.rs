//! Keeps endpoints by their role in a disaggregated pool: the label `llm-d.ai/role`.

use std::convert::Infallible;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::super::pool::{Candidates, Endpoint, Slot};
use super::super::super::seed::Chance;
use super::super::{Cycle, Filter};

const ROLE: &str = Endpoint::ROLE_LABEL;

fn keep(candidates: Candidates<'_>, roles: &[&str], unlabelled: bool, kept: &mut Vec<Slot>) {
    let fits = |role: Option<&String>| role.map_or(unlabelled, |role| roles.contains(&role.as_str()));
    let fitting = candidates.iter().filter(|(_, m)| fits(m.endpoint.labels.get(ROLE)));
    kept.extend(fitting.map(|(slot, _)| slot));
}

/// Keeps endpoints that decode. One without a role does everything (spec, scheduling 7).
#[derive(Debug)]
pub(super) struct DecodeFilter;

impl Plugin for DecodeFilter {
    const TYPE: &'static str = "decode-filter";
    const SUMMARY: &'static str = "keeps endpoints whose `llm-d.ai/role` includes decoding, and those without a role";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl Filter for DecodeFilter {
    fn filter(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, _: &mut Chance, kept: &mut Vec<Slot>) {
        let roles = ["decode", "prefill-decode", "both", "encode-prefill-decode"];
        keep(candidates, &roles, true, kept);
    }

    fn goes_by_labels(&self) -> bool {
        true
    }
}

/// Keeps endpoints that prefill (spec, scheduling 7).
#[derive(Debug)]
pub(super) struct PrefillFilter;

impl Plugin for PrefillFilter {
    const TYPE: &'static str = "prefill-filter";
    const SUMMARY: &'static str = "keeps endpoints whose `llm-d.ai/role` includes prefill";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl Filter for PrefillFilter {
    fn filter(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, _: &mut Chance, kept: &mut Vec<Slot>) {
        let roles = [
            "prefill",
            "encode-prefill",
            "prefill-decode",
            "both",
            "encode-prefill-decode",
        ];
        keep(candidates, &roles, false, kept);
    }

    fn goes_by_labels(&self) -> bool {
        true
    }
}

/// Keeps endpoints that encode images and other media (spec, scheduling 7).
#[derive(Debug)]
pub(super) struct EncodeFilter;

impl Plugin for EncodeFilter {
    const TYPE: &'static str = "encode-filter";
    const SUMMARY: &'static str = "keeps endpoints whose `llm-d.ai/role` includes encoding";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl Filter for EncodeFilter {
    fn filter(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, _: &mut Chance, kept: &mut Vec<Slot>) {
        let roles = ["encode", "encode-prefill", "encode-prefill-decode"];
        keep(candidates, &roles, false, kept);
    }

    fn goes_by_labels(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::{Scene, kept_by};
    use super::*;

    fn scene() -> Scene {
        Scene::new().labels(&[
            &[],
            &[(ROLE, "decode")],
            &[(ROLE, "prefill")],
            &[(ROLE, "both")],
            &[(ROLE, "encode")],
            &[(ROLE, "juggle")],
        ])
    }

    #[test]
    fn an_endpoint_without_a_role_decodes_and_does_nothing_else() {
        assert_eq!(kept_by(&mut DecodeFilter, &scene()), [0, 1, 3]);
        assert_eq!(kept_by(&mut PrefillFilter, &scene()), [2, 3]);
        assert_eq!(kept_by(&mut EncodeFilter, &scene()), [4]);
    }
}
