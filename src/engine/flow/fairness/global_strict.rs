//! Serves the flow whose first request goes first.

use std::convert::Infallible;
use std::sync::Arc;

use super::super::super::plugin::{Needs, NoParams, Plugin};
use super::super::super::time::Timestamp;
use super::super::active::ActiveFlows;
use super::{FairnessPolicy, FlowOrder, FlowRef};

/// As if the band had one queue: of the first requests of all flows, the one that the ordering policy puts first, and
/// of equal ones that which came first (spec, flow control 10.1).
#[derive(Debug)]
pub(super) struct GlobalStrict;

impl Plugin for GlobalStrict {
    const TYPE: &'static str = "global-strict-fairness-policy";
    const SUMMARY: &'static str = "of a band's flows, serves the one whose next request goes first";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl FairnessPolicy for GlobalStrict {
    fn order(&self) -> FlowOrder {
        FlowOrder::ByHead
    }

    fn tells_flows_apart(&self) -> bool {
        false
    }

    fn pick(&mut self, _: Timestamp, _: Option<&Arc<str>>, flows: &ActiveFlows) -> FlowRef {
        flows.first().expect("there is a flow to serve")
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Band;
    use super::*;

    #[test]
    fn requests_go_in_their_order_whatever_flow_they_are_of() {
        let mut band = Band::new(Box::new(GlobalStrict));
        for flow in ["b", "a", "a", "c", "b"] {
            band.arrive(flow);
        }

        assert_eq!(band.drain(), ["b", "a", "a", "c", "b"]);
    }

    #[test]
    fn the_ordering_policy_decides_between_flows_and_the_arrival_between_equals() {
        let mut band = Band::new(Box::new(GlobalStrict));
        for (flow, key) in [("a", 5), ("b", 3), ("c", 3), ("d", 9)] {
            band.arrive_with_key(flow, key);
        }

        assert_eq!(band.drain(), ["b", "c", "a", "d"]);
    }
}
