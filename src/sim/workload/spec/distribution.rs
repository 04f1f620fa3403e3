//! Distributions, as they are written: of the gaps between requests, and of lengths.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::nullable;

/// How requests follow each other.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ArrivalSpec {
    /// The distribution of the gaps between them.
    pub process: ProcessName,
    /// The ratio of standard deviation and mean. For gamma and weibull. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cv: Option<f64>,
    /// The shape of the distribution, together with `scale` instead of `cv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<f64>,
    /// The scale of the distribution in microseconds. Of `poisson`, which has no shape, it is the mean gap. The client's
    /// share of the rate does not matter then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
}

/// The name of a distribution of gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessName {
    /// Equal gaps.
    #[default]
    Constant,
    /// Exponential gaps.
    Poisson,
    /// Gaps of a gamma distribution.
    Gamma,
    /// Gaps of a Weibull distribution.
    Weibull,
}

impl ProcessName {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Constant, Self::Poisson, Self::Gamma, Self::Weibull];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Poisson => "poisson",
            Self::Gamma => "gamma",
            Self::Weibull => "weibull",
        }
    }
}

/// A distribution of lengths.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DistributionSpec {
    /// Which one.
    #[serde(rename = "type")]
    pub kind: DistributionKind,
    /// Its parameters by name; for empirical ones shares by length.
    #[serde(default, deserialize_with = "nullable")]
    pub params: BTreeMap<String, f64>,
}

/// The name of a distribution of lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DistributionKind {
    /// `mean`, `std_dev`, `min`, `max`.
    Gaussian,
    /// `mean`, and `min` and `max` if wanted.
    Exponential,
    /// `mu`, `sigma`, and `min` and `max` if wanted.
    Lognormal,
    /// `alpha`, `xm`, `mu`, `sigma`, `mix_weight`.
    ParetoLognormal,
    /// `value`.
    Constant,
    /// Lengths and their shares.
    Empirical,
}
