//! A step time that is linear in the work, for tests and for fits of one's own.

use std::time::Duration;

use super::error::Error;
use super::resolve::Backend;
use super::trained_physics::coefficients;
use super::work::Work;
use super::{LatencyModel, step_microseconds, whole_microseconds};
use crate::sim::instance::{LinearStepTime, ScheduledTokens, StepTime};

/// A model of time in six numbers, all in microseconds (spec, simulator 16.3):
///
/// ```text
/// step     = b0 + b1 · (new prefill tokens) + b2 · (decoding sequences)
/// queueing = a0 + a1 · (prompt tokens)
/// an output token beside its step = a2
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    alpha: [f64; 3],
    beta: [f64; 3],
}

impl Linear {
    /// The model with these coefficients. Without `alpha` nothing takes time but steps; without `beta` steps take the
    /// time that they do by [`LinearStepTime::default`].
    ///
    /// # Errors
    ///
    /// If there are not three of either, or one is negative or no number.
    pub fn new(alpha: Option<&[f64]>, beta: Option<&[f64]>) -> Result<Self, Error> {
        let three = |given: Option<&[f64]>, flag, default| match given {
            None => Ok(default),
            Some(given) => {
                coefficients(given, flag)?;
                given.try_into().map_err(|_| Error::CoefficientCount {
                    backend: Backend::Linear,
                    flag,
                    wanted: "3",
                    found: given.len(),
                })
            }
        };
        let steps = LinearStepTime::default();
        let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
        let default_beta = [
            microseconds(steps.base),
            microseconds(steps.prefill_token),
            microseconds(steps.decode_sequence),
        ];
        Ok(Self {
            alpha: three(alpha, "--alpha-coeffs", [0.0; 3])?,
            beta: three(beta, "--beta-coeffs", default_beta)?,
        })
    }
}

impl StepTime for Linear {
    fn step_time(&self, batch: &[ScheduledTokens]) -> Duration {
        let work = Work::of(batch, |_| 0.0);
        let [base, prefill_token, decode_sequence] = self.beta;
        step_microseconds(base + prefill_token * work.prefill_tokens as f64 + decode_sequence * work.decodes as f64)
    }
}

impl LatencyModel for Linear {
    fn queueing_time(&self, prompt_tokens: u32) -> Duration {
        whole_microseconds(self.alpha[0] + self.alpha[1] * f64::from(prompt_tokens))
    }

    fn output_token_time(&self) -> Duration {
        whole_microseconds(self.alpha[2])
    }

    fn completion_time(&self) -> Duration {
        Duration::ZERO
    }
}

/// Nothing takes time but steps.
impl LatencyModel for LinearStepTime {
    fn queueing_time(&self, _prompt_tokens: u32) -> Duration {
        Duration::ZERO
    }

    fn output_token_time(&self) -> Duration {
        Duration::ZERO
    }

    fn completion_time(&self) -> Duration {
        Duration::ZERO
    }
}
