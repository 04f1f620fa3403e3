//! One number for how well a run went, from weighted parts (spec, simulator 29).
//!
//! The parts are compressed strongly: a third less latency may move the score by a few per cent. To compare runs, see
//! [`super::compare`].

use std::collections::BTreeMap;

use super::metrics::Block;

/// Latency at which a latency part is one half, in microseconds.
const REFERENCE_US: f64 = 1_000.0;
/// Requests per second at which `throughput` is one half.
const REFERENCE_RPS: f64 = 100.0;
/// Tokens per second at which `tokens_per_sec` is one half.
const REFERENCE_TPS: f64 = 10_000.0;

/// A part of the score: between 0 and 1, and the higher the better.
#[derive(Clone, Copy, Debug)]
struct Component {
    name: &'static str,
    value: fn(&Block) -> f64,
}

/// Every part of which a score can be made.
const COMPONENTS: &[Component] = &[
    component("throughput", |block| share(block.responses_per_sec, REFERENCE_RPS)),
    component("tokens_per_sec", |block| share(block.tokens_per_sec, REFERENCE_TPS)),
    component("p99_ttft", |block| quickness(block.ttft.p99.us())),
    component("p50_ttft", |block| quickness(block.ttft.p50.us())),
    component("mean_ttft", |block| quickness(block.ttft.mean.us())),
    component("p99_e2e", |block| quickness(block.e2e.p99.us())),
    component("p50_e2e", |block| quickness(block.e2e.p50.us())),
    component("mean_e2e", |block| quickness(block.e2e.mean.us())),
];

const fn component(name: &'static str, value: fn(&Block) -> f64) -> Component {
    Component { name, value }
}

/// `1 / (1 + v / 1000)`, of microseconds.
fn quickness(us: f64) -> f64 {
    1.0 / (1.0 + us / REFERENCE_US)
}

/// `v / (v + reference)`.
fn share(value: f64, reference: f64) -> f64 {
    value / (value + reference)
}

/// How much each part of the score counts. They need not add up to one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FitnessWeights(BTreeMap<&'static str, f64>);

/// Why text is no list of weights.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FitnessError {
    /// An item is not a pair.
    #[error("fitness weight `{0}` is not of the form `key:weight`, such as `throughput:0.5`")]
    NotAPair(String),
    /// There is no such part.
    #[error("unknown fitness key `{key}`; known keys: {known}")]
    UnknownKey {
        /// What was given.
        key: String,
        /// What there is.
        known: String,
    },
    /// A part is named twice.
    #[error("fitness key `{0}` is given more than once")]
    Repeated(String),
    /// The weight is no number, not finite, or less than zero.
    #[error("fitness weight `{weight}` of `{key}` is not a finite number of at least 0")]
    BadWeight {
        /// The part.
        key: String,
        /// What was given.
        weight: String,
    },
}

impl std::str::FromStr for FitnessWeights {
    type Err = FitnessError;

    /// Reads `key:weight,key:weight`. Empty text has no weights.
    fn from_str(text: &str) -> Result<Self, FitnessError> {
        let mut weights = BTreeMap::new();
        if text.trim().is_empty() {
            return Ok(Self(weights));
        }
        for item in text.split(',').map(str::trim) {
            let Some((key, weight)) = item.split_once(':') else {
                return Err(FitnessError::NotAPair(item.to_owned()));
            };
            let (key, weight) = (key.trim(), weight.trim());
            let Some(component) = COMPONENTS.iter().find(|component| component.name == key) else {
                let known: Vec<_> = COMPONENTS.iter().map(|component| component.name).collect();
                return Err(FitnessError::UnknownKey {
                    key: key.to_owned(),
                    known: known.join(", "),
                });
            };
            let number = match weight.parse::<f64>() {
                Ok(number) if number.is_finite() && number >= 0.0 => number,
                _ => {
                    return Err(FitnessError::BadWeight {
                        key: key.to_owned(),
                        weight: weight.to_owned(),
                    });
                }
            };
            if weights.insert(component.name, number).is_some() {
                return Err(FitnessError::Repeated(key.to_owned()));
            }
        }
        Ok(Self(weights))
    }
}

/// The score of a run.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Fitness {
    /// The sum of the parts, each times its weight.
    pub score: f64,
    /// The parts before weighting, by name.
    pub components: BTreeMap<&'static str, f64>,
}

impl Fitness {
    /// Scores the figures of a whole run.
    pub fn of(block: &Block, weights: &FitnessWeights) -> Self {
        let wanted = COMPONENTS.iter().filter(|part| weights.0.contains_key(part.name));
        let components: BTreeMap<_, _> = wanted.map(|part| (part.name, (part.value)(block))).collect();
        let weighted = components.iter().map(|(name, value)| weights.0[name] * value);
        Self {
            score: weighted.fold(0.0, |sum, part| sum + part),
            components,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::report::distribution::Distribution;

    fn refused(text: &str) -> String {
        text.parse::<FitnessWeights>().unwrap_err().to_string()
    }

    #[test]
    fn fifty_milliseconds_are_a_fifty_first() {
        let block = Block {
            ttft: Distribution::of(vec![50_000]),
            responses_per_sec: 100.0,
            tokens_per_sec: 30_000.0,
            ..Block::default()
        };
        let weights = "p99_ttft:1, throughput:2,tokens_per_sec:0.5".parse().unwrap();
        let fitness = Fitness::of(&block, &weights);

        assert_eq!(format!("{:.4}", fitness.components["p99_ttft"]), "0.0196");
        assert_eq!(fitness.components["throughput"], 0.5);
        assert_eq!(fitness.components["tokens_per_sec"], 0.75);
        assert!((fitness.score - (1.0 / 51.0 + 1.0 + 0.375)).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_weight_is_refused_with_what_would_be() {
        insta::assert_snapshot!(
            ["throughput", "p98_ttft:1", "p99_e2e:1,p99_e2e:2", "mean_e2e:-1", "mean_e2e:inf"].map(refused).join("\n"),
            @r"
        fitness weight `throughput` is not of the form `key:weight`, such as `throughput:0.5`
        unknown fitness key `p98_ttft`; known keys: throughput, tokens_per_sec, p99_ttft, p50_ttft, mean_ttft, p99_e2e, p50_e2e, mean_e2e
        fitness key `p99_e2e` is given more than once
        fitness weight `-1` of `mean_e2e` is not a finite number of at least 0
        fitness weight `inf` of `mean_e2e` is not a finite number of at least 0
        "
        );
    }
}
