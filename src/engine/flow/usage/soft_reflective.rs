//! Thins out lower priorities as the pool fills.

use std::convert::Infallible;

use serde::Deserialize;

use super::super::super::plugin::{Needs, Plugin, Stability};
use super::UsageLimitPolicy;

/// The highest band is always open. The reflective ceiling of the band at place `i` of `N` is `1 - i·s/(N-1)` at
/// saturation `s`: below it the band is open, above it only once in a while, and never in a full pool
/// (spec, flow control 13.3).
#[derive(Debug, Default)]
pub(super) struct SoftReflectiveCeiling {
    opportunities: u64,
}

/// None; unlike elsewhere, whatever is written there is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Params {}

impl Plugin for SoftReflectiveCeiling {
    const TYPE: &'static str = "soft-reflective-ceiling-policy";
    const SUMMARY: &'static str = "gives lower bands an ever smaller part of the opportunities as the pool fills";
    const STABILITY: Stability = Stability::Alpha;
    type Params = Params;
    type Error = Infallible;

    fn from_params(_: Params, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self::default())
    }
}

impl SoftReflectiveCeiling {
    /// True if the bands above their reflective ceilings are open this time: once in `round(s / (1 - s))` times.
    fn opens(&mut self, saturation: f64) -> bool {
        if saturation < 1.0 - saturation || saturation >= 1.0 {
            return false;
        }
        // The reference adds a billionth, and so 0.6 rounds to 1.
        let period = (saturation / (1.0 - saturation + 1e-9)).round().max(1.0) as u64;
        self.opportunities = self.opportunities.wrapping_add(1);
        self.opportunities.is_multiple_of(period)
    }
}

impl UsageLimitPolicy for SoftReflectiveCeiling {
    fn ceilings(&mut self, saturation: f64, _: &[i32], ceilings: &mut [f64]) {
        let opens = self.opens(saturation);
        let steps = ceilings.len().saturating_sub(1) as f64;
        for (place, ceiling) in ceilings.iter_mut().enumerate().skip(1) {
            let reflective = 1.0 - place as f64 * saturation / steps;
            let open = saturation < reflective || opens;
            *ceiling = if open { 1.0 } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::super::plugin::instance;
    use super::*;

    /// What the three bands get at `saturation`, time after time.
    fn times<const N: usize>(saturation: f64) -> [[f64; 3]; N] {
        let mut policy = SoftReflectiveCeiling::default();
        std::array::from_fn(|_| {
            let mut ceilings = [1.0; 3];
            policy.ceilings(saturation, &[10, 0, -10], &mut ceilings);
            ceilings
        })
    }

    #[test]
    fn every_band_is_open_while_the_pool_has_much_room() {
        assert_eq!(times(0.3), [[1.0, 1.0, 1.0]; 4]);
    }

    #[test]
    fn the_lowest_band_is_the_first_to_be_gated() {
        let (closed, open) = ([1.0, 1.0, 0.0], [1.0, 1.0, 1.0]);

        assert_eq!(times(0.65), [closed, open, closed, open]);
    }

    #[test]
    fn a_gate_with_a_period_of_one_is_always_open() {
        assert_eq!(times(0.6), [[1.0, 1.0, 1.0]; 4]);
    }

    #[test]
    fn a_gate_opens_more_seldom_the_fuller_the_pool_is() {
        let (closed, open) = ([1.0, 0.0, 0.0], [1.0, 1.0, 1.0]);

        assert_eq!(times(0.8), [closed, closed, closed, open, closed, closed, closed, open]);
    }

    #[test]
    fn a_full_pool_closes_every_band_but_the_highest() {
        assert_eq!(times(1.0), [[1.0, 0.0, 0.0]; 4]);
        assert_eq!(times(1.7), [[1.0, 0.0, 0.0]; 4]);
    }

    #[test]
    fn a_band_alone_is_open() {
        let mut ceilings = [1.0];

        SoftReflectiveCeiling::default().ceilings(0.99, &[0], &mut ceilings);

        assert_eq!(ceilings, [1.0]);
    }

    #[test]
    fn any_parameter_is_refused() {
        let refused = instance::<SoftReflectiveCeiling>(Some(&json!({"period": 2})), &mut Needs::default());

        assert!(refused.unwrap_err().message.contains("unknown field `period`"));
    }
}
