//! How long it is from one request of a client to the next (spec, simulator 18.4).

use super::chance::Stream;

/// The longest gap, in microseconds: half of what times can hold, so that a sum never overflows.
pub const LONGEST_GAP_US: u64 = 1 << 62;

/// A distribution of the gaps between requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Gaps {
    /// All gaps have this length.
    Constant {
        /// In microseconds.
        gap_us: f64,
    },
    /// Exponential gaps.
    Poisson {
        /// Requests per microsecond.
        rate: f64,
    },
    /// Gaps of a gamma distribution.
    Gamma {
        /// Its shape.
        shape: f64,
        /// Its scale, in microseconds.
        scale_us: f64,
    },
    /// Gaps of a Weibull distribution.
    Weibull {
        /// Its shape.
        shape: f64,
        /// Its scale, in microseconds.
        scale_us: f64,
    },
}

/// What kind of distribution it is, whatever the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Process {
    /// Equal gaps.
    Constant,
    /// Exponential gaps.
    Poisson,
    /// Exponential gaps with this mean; the rate does not matter.
    PoissonOf {
        /// In microseconds.
        mean_gap_us: f64,
    },
    /// Gaps of a gamma distribution.
    Gamma(Form),
    /// Gaps of a Weibull distribution.
    Weibull(Form),
}

/// How even gaps are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// The ratio of standard deviation and mean; 1 is as uneven as exponential gaps.
    Variation(f64),
    /// The parameters of the distribution; the rate does not matter.
    Explicit {
        /// Its shape.
        shape: f64,
        /// Its scale, in microseconds.
        scale_us: f64,
    },
}

/// Below this shape nearly all gaps of a gamma distribution are zero: exponential ones are taken instead.
const LEAST_GAMMA_SHAPE: f64 = 0.01;

impl Process {
    /// Whether nearly all its gaps would be zero, so that exponential ones are taken instead.
    pub fn is_too_uneven(self) -> bool {
        match self {
            Self::Gamma(Form::Explicit { shape, .. }) => shape < LEAST_GAMMA_SHAPE,
            Self::Gamma(Form::Variation(cv)) => 1.0 / (cv * cv) < LEAST_GAMMA_SHAPE,
            _ => false,
        }
    }

    /// The gaps at `rate` requests per microsecond.
    pub fn at(self, rate: f64) -> Gaps {
        match self {
            Self::Constant => Gaps::Constant { gap_us: 1.0 / rate },
            Self::Poisson => Gaps::Poisson { rate },
            Self::PoissonOf { mean_gap_us } => Gaps::Poisson {
                rate: 1.0 / mean_gap_us,
            },
            Self::Gamma(form) => {
                let (shape, scale_us) = match form {
                    Form::Explicit { shape, scale_us } => (shape, scale_us),
                    Form::Variation(cv) => (1.0 / (cv * cv), cv * cv / rate),
                };
                if self.is_too_uneven() {
                    return Gaps::Poisson { rate };
                }
                Gaps::Gamma { shape, scale_us }
            }
            Self::Weibull(form) => {
                let (shape, scale_us) = match form {
                    Form::Explicit { shape, scale_us } => (shape, scale_us),
                    Form::Variation(cv) => {
                        let shape = weibull_shape(cv);
                        (shape, 1.0 / rate / libm::tgamma(1.0 + 1.0 / shape))
                    }
                };
                Gaps::Weibull { shape, scale_us }
            }
        }
    }
}

impl Gaps {
    /// One gap in microseconds: 1 to [`LONGEST_GAP_US`].
    pub fn sample(&self, chance: &mut Stream) -> u64 {
        let gap = match *self {
            Self::Constant { gap_us } => gap_us,
            Self::Poisson { rate } => chance.exponential() / rate,
            Self::Gamma { shape, scale_us } => gamma(shape, chance) * scale_us,
            Self::Weibull { shape, scale_us } => scale_us * libm::pow(-libm::log(chance.uniform()), 1.0 / shape),
        };
        // What is not a number becomes zero, and what is too large the largest number.
        (gap as u64).clamp(1, LONGEST_GAP_US)
    }
}

/// A number of a gamma distribution of scale 1, by the method of Marsaglia and Tsang (2000).
fn gamma(shape: f64, chance: &mut Stream) -> f64 {
    if shape < 1.0 {
        let share = chance.uniform();
        return gamma(shape + 1.0, chance) * libm::pow(share, 1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / libm::sqrt(9.0 * d);
    loop {
        let x = chance.normal();
        let root = 1.0 + c * x;
        if root <= 0.0 {
            continue;
        }
        let v = root * root * root;
        let share = chance.uniform();
        if share < 1.0 - 0.0331 * (x * x) * (x * x) || libm::log(share) < 0.5 * x * x + d * (1.0 - v + libm::log(v)) {
            return d * v;
        }
    }
}

/// How far the ratio that was asked for may be missed.
const TOLERANCE: f64 = 0.001;

/// The shape at which a Weibull distribution has this ratio of standard deviation and mean.
fn weibull_shape(cv: f64) -> f64 {
    let variation = |shape: f64| {
        let first = libm::tgamma(1.0 + 1.0 / shape);
        let second = libm::tgamma(1.0 + 2.0 / shape);
        libm::sqrt(second / (first * first) - 1.0)
    };
    let (mut low, mut high) = (0.1, 100.0);
    loop {
        let middle = (low + high) / 2.0;
        let excess = variation(middle) - cv;
        if excess.abs() < TOLERANCE || middle <= low || middle >= high {
            return middle;
        }
        if excess > 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn eight(process: Process) -> [u64; 8] {
        let gaps = process.at(100.0 / 1e6);
        let mut chance = Stream::seeded(7);
        [(); 8].map(|()| gaps.sample(&mut chance))
    }

    #[test]
    fn seed_7_gives_the_gaps_of_the_reference() {
        let expected = [
            (Process::Poisson, [8335, 8086, 2967, 15112, 12468, 5887, 5916, 10182]),
            (
                Process::Gamma(Form::Variation(2.0)),
                [59794, 16254, 1603, 46830, 7, 7, 25280, 196],
            ),
            (
                Process::Gamma(Form::Variation(0.5)),
                [8065, 14353, 7405, 28405, 9686, 27432, 13214, 12840],
            ),
            (
                Process::Gamma(Form::Variation(1.0)),
                [4893, 17447, 3937, 59464, 7575, 56134, 14784, 13942],
            ),
            (
                Process::Weibull(Form::Variation(2.0)),
                [60, 11601, 10998, 71, 872, 19195, 6162, 6529],
            ),
            (
                Process::Weibull(Form::Variation(1.0)),
                [844, 14631, 14212, 924, 3588, 19233, 10375, 10707],
            ),
        ];

        for (process, gaps) in expected {
            assert_eq!(eight(process), gaps, "{process:?}");
        }
    }

    #[test]
    fn constant_gaps_are_cut_off_not_rounded() {
        assert_eq!(Process::Constant.at(10.0 / 1e6).sample(&mut Stream::seeded(1)), 99_999);
    }

    #[test]
    fn a_gamma_distribution_that_is_nearly_all_zeros_becomes_exponential() {
        assert_eq!(
            Process::Gamma(Form::Variation(11.0)).at(1.0),
            Gaps::Poisson { rate: 1.0 }
        );
    }

    proptest! {
        #[test]
        fn every_gap_moves_time_forward(cv in 0.01..10.4, rate in 1e-9..10.0, seed: i64) {
            let mut chance = Stream::seeded(seed);

            for process in [
                Process::Constant,
                Process::Poisson,
                Process::Gamma(Form::Variation(cv)),
                Process::Weibull(Form::Variation(cv)),
            ] {
                let gap = process.at(rate).sample(&mut chance);
                prop_assert!((1..=LONGEST_GAP_US).contains(&gap));
            }
        }
    }
}
