//! The policies that the reference adds to every configuration. They wait for flow control.

use std::convert::Infallible;

use serde::Deserialize;

use super::super::super::plugin::{Needs, Parameter, Plugin};

/// A policy of flow control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// Within a flow, the oldest request goes first.
    FirstComeFirstServed,
    /// Of a band's flows, the one whose next request goes first is served.
    GlobalStrict,
    /// Every priority may fill the pool up to the same point.
    StaticUsageLimit {
        /// That point; 1 is full.
        threshold: f64,
    },
}

/// The policies that every configuration has.
pub(in super::super) const DEFAULTS: &[&str] =
    &[FirstComeFirstServed::TYPE, GlobalStrict::TYPE, StaticUsageLimit::TYPE];

choice!(
    Policy,
    FirstComeFirstServed,
    "fcfs-ordering-policy",
    "within a flow, the oldest request goes first"
);
choice!(
    Policy,
    GlobalStrict,
    "global-strict-fairness-policy",
    "of a band's flows, serves the one whose next request goes first"
);

/// The same ceiling for every priority.
#[derive(Debug)]
pub(super) struct StaticUsageLimit(Params);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    threshold: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self { threshold: 1.0 }
    }
}

impl Plugin for StaticUsageLimit {
    const TYPE: &'static str = "static-usage-limit-policy";
    const SUMMARY: &'static str = "lets every priority fill the pool up to the same point";
    const PARAMETERS: &'static [Parameter] = &[Parameter {
        name: "threshold",
        default: "1.0",
        summary: "saturation at which nothing more is sent; 1 is full",
    }];
    type Params = Params;
    type Error = Infallible;

    fn from_params(params: Params, _: &mut Needs) -> Result<Self, Infallible> {
        Ok(Self(params))
    }
}

impl From<StaticUsageLimit> for Policy {
    fn from(StaticUsageLimit(Params { threshold }): StaticUsageLimit) -> Self {
        Self::StaticUsageLimit { threshold }
    }
}
