//! A pool is never full.

use std::convert::Infallible;
use std::time::Duration;

use super::super::plugin::{Needs, NoParams, Plugin};
use super::super::pool::Candidates;
use super::super::time::Timestamp;
use super::SaturationDetector;

/// 0 as long as there is an endpoint (spec, simulator 9). Without one even this pool is full, so that requests wait for
/// the first.
#[derive(Debug)]
pub(super) struct NeverSaturated;

impl Plugin for NeverSaturated {
    const TYPE: &'static str = "never-saturated";
    const SUMMARY: &'static str = "never finds a pool full that has an endpoint: nothing waits, and nothing is shed";
    type Params = NoParams;
    type Error = Infallible;

    fn from_params(_: NoParams, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

impl SaturationDetector for NeverSaturated {
    fn saturation(&self, _: Timestamp, endpoints: Candidates<'_>) -> f64 {
        if endpoints.is_empty() { 1.0 } else { 0.0 }
    }

    fn discerns(&self) -> bool {
        false
    }

    fn settles_in(&self) -> Duration {
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::scheduling::testing::{Scene, saturation_by};
    use super::*;

    #[test]
    fn the_fullest_pool_has_room() {
        let full = Scene::new()
            .waiting(&[100])
            .kv_usage(&[1.0])
            .requests_in_flight(&[1000]);

        assert_eq!(saturation_by(&NeverSaturated, &full), 0.0);
    }
}
