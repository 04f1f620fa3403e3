//! How long prompts and answers are (spec, simulator 18.3).

use super::chance::Stream;

/// The longest text that a workload may have, in tokens: sixteen million. Beyond any model, and small enough that a
/// distribution with a heavy tail does not make a run that never ends.
pub const MOST_TOKENS: u32 = 1 << 24;

/// A distribution of whole numbers from one on.
#[derive(Clone, Debug, PartialEq)]
pub enum Lengths {
    /// A normal distribution, whose tails are moved to its bounds.
    Gaussian {
        /// The mean, before the bounds.
        mean: f64,
        /// The standard deviation, before the bounds.
        std_dev: f64,
        /// No length is below it. If it is `max`, no number is drawn.
        min: f64,
        /// No length is above it.
        max: f64,
    },
    /// An exponential distribution.
    Exponential {
        /// The mean, before the bounds.
        mean: f64,
        /// What lies outside is moved to the nearest bound.
        bounds: Bounds,
    },
    /// The distribution of numbers whose logarithm is normal.
    LogNormal(LogNormal),
    /// A mixture of a Pareto distribution and a log-normal one.
    ParetoLogNormal {
        /// The exponent of the Pareto distribution.
        alpha: f64,
        /// The least number of the Pareto distribution.
        least: f64,
        /// The other distribution.
        log_normal: LogNormal,
        /// The share of the Pareto distribution, 0 to 1.
        mix_weight: f64,
    },
    /// One number.
    Constant(u32),
    /// Given numbers with given shares.
    Empirical(Empirical),
}

/// The distribution of numbers whose logarithm is normal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogNormal {
    /// The mean of the logarithm.
    pub mu: f64,
    /// The standard deviation of the logarithm.
    pub sigma: f64,
    /// What lies outside is moved to the nearest bound.
    pub bounds: Bounds,
}

/// Where a distribution ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bounds {
    /// The least number.
    pub min: Option<f64>,
    /// The largest number.
    pub max: Option<f64>,
}

/// Given numbers, each with the share of draws that do not exceed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Empirical {
    cumulative: Vec<(f64, u32)>,
}

impl Empirical {
    /// `shares` are numbers and their weights, of which at least one is above zero. They need not add up to one.
    pub fn new(mut shares: Vec<(u32, f64)>) -> Self {
        shares.sort_by_key(|&(tokens, _)| tokens);
        let total: f64 = shares.iter().map(|&(_, weight)| weight).sum();
        let mut sum = 0.0;
        let cumulative = shares.into_iter().map(|(tokens, weight)| {
            sum += weight / total;
            (sum, tokens)
        });
        Self {
            cumulative: cumulative.collect(),
        }
    }

    fn at(&self, share: f64) -> u32 {
        let at = self.cumulative.partition_point(|&(sum, _)| sum < share);
        let last = self.cumulative.len().saturating_sub(1);
        self.cumulative.get(at.min(last)).map_or(1, |&(_, tokens)| tokens)
    }
}

impl Bounds {
    fn hold(self, value: f64) -> f64 {
        let value = self.min.map_or(value, |min| value.max(min));
        self.max.map_or(value, |max| value.min(max))
    }
}

impl LogNormal {
    /// One number, within the bounds.
    pub fn sample(&self, chance: &mut Stream) -> f64 {
        self.bounds.hold(libm::exp(self.mu + self.sigma * chance.normal()))
    }
}

impl Lengths {
    /// One length: 1 to [`MOST_TOKENS`].
    pub fn sample(&self, chance: &mut Stream) -> u32 {
        self.count(chance).max(1)
    }

    /// One number of things, of which there may be none: 0 to [`MOST_TOKENS`].
    pub fn count(&self, chance: &mut Stream) -> u32 {
        let value = match self {
            Self::Gaussian { min, max, .. } if min == max => *min,
            Self::Gaussian {
                mean,
                std_dev,
                min,
                max,
            } => (chance.normal() * std_dev + mean).min(*max).max(*min),
            Self::Exponential { mean, bounds } => bounds.hold((chance.exponential() * mean).round()),
            Self::LogNormal(log_normal) => log_normal.bounds.hold(log_normal.sample(chance).round()),
            Self::ParetoLogNormal {
                alpha,
                least,
                log_normal,
                mix_weight,
            } => {
                if chance.uniform() < *mix_weight {
                    least / libm::pow(chance.uniform(), 1.0 / alpha)
                } else {
                    log_normal.sample(chance)
                }
            }
            Self::Constant(tokens) => f64::from(*tokens),
            Self::Empirical(empirical) => f64::from(empirical.at(chance.uniform())),
        };
        // What is not a number, or below zero, becomes zero.
        value.round().min(f64::from(MOST_TOKENS)) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn eight(lengths: &Lengths) -> [u32; 8] {
        let mut chance = Stream::seeded(7);
        [(); 8].map(|()| lengths.sample(&mut chance))
    }

    fn log_normal(mu: f64, sigma: f64) -> LogNormal {
        LogNormal {
            mu,
            sigma,
            bounds: Bounds::default(),
        }
    }

    #[test]
    fn seed_7_gives_the_lengths_of_the_reference() {
        let gaussian = Lengths::Gaussian {
            mean: 512.0,
            std_dev: 256.0,
            min: 2.0,
            max: 7000.0,
        };
        let exponential = Lengths::Exponential {
            mean: 200.0,
            bounds: Bounds::default(),
        };
        let mixture = Lengths::ParetoLogNormal {
            alpha: 1.5,
            least: 50.0,
            log_normal: log_normal(5.5, 1.2),
            mix_weight: 0.3,
        };
        let empirical = Lengths::Empirical(Empirical::new(vec![(200, 0.3), (100, 0.5), (400, 0.2)]));

        assert_eq!(eight(&gaussian), [451, 746, 749, 356, 411, 677, 1185, 810]);
        assert_eq!(eight(&exponential), [167, 162, 59, 302, 249, 118, 118, 204]);
        assert_eq!(
            eight(&Lengths::LogNormal(log_normal(5.0, 1.0))),
            [117, 370, 375, 81, 100, 283, 2060, 476]
        );
        assert_eq!(eight(&mixture), [731, 53, 531, 991, 66, 697, 56, 157]);
        assert_eq!(eight(&empirical), [400, 100, 100, 400, 200, 100, 100, 100]);
    }

    #[test]
    fn equal_bounds_cost_no_draw() {
        let mut chance = Stream::seeded(7);
        let lengths = Lengths::Gaussian {
            mean: 1.0,
            std_dev: 5.0,
            min: 32.0,
            max: 32.0,
        };

        assert_eq!(lengths.sample(&mut chance), 32);
        assert_eq!(chance.bits(), Stream::seeded(7).bits());
    }

    proptest! {
        #[test]
        fn no_parameters_give_a_length_outside_its_range(mu in -1e3..1e3, sigma in 0.0..1e3, seed: i64) {
            let length = Lengths::LogNormal(log_normal(mu, sigma)).sample(&mut Stream::seeded(seed));

            prop_assert!((1..=MOST_TOKENS).contains(&length));
        }
    }
}
