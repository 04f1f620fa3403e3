//! Serves the flows in turn.

use std::convert::Infallible;
use std::sync::Arc;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::super::time::Timestamp;
use super::super::active::ActiveFlows;
use super::{FairnessPolicy, FlowOrder, FlowRef};

/// The flow after the one that was served last, by id, and after the last one the first again (spec, flow control
/// 10.2). A flow that has run dry keeps its place: whoever comes after it is next.
#[derive(Debug)]
pub(super) struct RoundRobin;

impl Plugin for RoundRobin {
    const TYPE: &'static str = "round-robin-fairness-policy";
    const SUMMARY: &'static str = "serves a band's flows in turn, one request each";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl FairnessPolicy for RoundRobin {
    fn order(&self) -> FlowOrder {
        FlowOrder::ById
    }

    fn pick(&mut self, _: Timestamp, last: Option<&Arc<str>>, flows: &ActiveFlows) -> FlowRef {
        let next = last.and_then(|last| flows.after(last));
        next.or_else(|| flows.first()).expect("there is a flow to serve")
    }

    fn turns_before(&self, last: Option<&Arc<str>>, flow: &Arc<str>, turns: u64, other: &Arc<str>) -> u64 {
        // Flows up to the last one have had their turns in this round.
        let has_had = |id| last.is_some_and(|last| id <= last);
        match (has_had(other), other) < (has_had(flow), flow) {
            true => turns,
            false => turns - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::testing::Band;
    use super::*;

    #[test]
    fn flows_take_turns_and_who_has_nothing_is_passed_over() {
        let mut band = Band::new(Box::new(RoundRobin));
        for flow in ["a", "a", "b", "c", "c"] {
            band.arrive(flow);
        }

        assert_eq!(band.drain(), ["a", "b", "c", "a", "c"]);
    }

    #[test]
    fn a_flow_that_ran_dry_keeps_its_place() {
        let mut band = Band::new(Box::new(RoundRobin));
        for flow in ["a", "b", "c"] {
            band.arrive(flow);
        }
        let first = [band.release(), band.release()];
        band.arrive("a");

        assert_eq!(first, ["a", "b"]);
        assert_eq!(band.drain(), ["c", "a"]);
    }

    proptest! {
        #[test]
        fn of_flows_that_always_have_requests_none_is_served_twice_more_than_another_in_any_window(
            backlogged in 1_usize..8,
            others in proptest::collection::vec(0_usize..8, 0..60),
        ) {
            let steady: Vec<_> = (0..backlogged).map(|at| format!("f{at}s")).collect();
            let mut band = Band::new(Box::new(RoundRobin));
            steady.iter().for_each(|flow| band.arrive(flow));

            let mut released = Vec::new();
            for step in 0..60 {
                if let Some(other) = others.get(step) {
                    band.arrive(&format!("f{other}"));
                }
                let flow = band.release();
                if steady.contains(&flow) {
                    band.arrive(&flow);
                }
                released.push(flow);
            }

            for from in 0..released.len() {
                let mut counts: BTreeMap<_, u32> = steady.iter().map(|flow| (flow, 0)).collect();
                for flow in &released[from..] {
                    if let Some(count) = counts.get_mut(flow) {
                        *count += 1;
                    }
                    let (most, least) = (counts.values().max().unwrap(), counts.values().min().unwrap());
                    prop_assert!(most - least <= 1, "{released:?}");
                }
            }
        }
    }
}
