//! How long a step takes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Predicts the duration of a step.
pub trait StepTime: fmt::Debug + Send {
    /// The duration of a step that computes `batch`, which is not empty and in the order of the running sequences.
    fn step_time(&self, batch: &[ScheduledTokens]) -> Duration;
}

/// Instances that are alike share one.
impl<S: StepTime + Sync + ?Sized> StepTime for Arc<S> {
    fn step_time(&self, batch: &[ScheduledTokens]) -> Duration {
        (**self).step_time(batch)
    }
}

/// The part of one sequence in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduledTokens {
    /// Whether the tokens are known ones or the last that came out.
    pub phase: Phase,
    /// Tokens of the whole prompt.
    pub prompt: u32,
    /// Tokens computed in earlier steps, which the new ones attend to.
    pub context: u32,
    /// Tokens that this step computes. At least one.
    pub new: u32,
}

/// What a sequence does in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Computes known tokens: the prompt, or after a preemption the prompt and the answer so far.
    Prefill,
    /// Computes the token that came out last.
    Decode,
}

/// A step time that is linear in the work:
///
/// ```text
/// step = base + prefill_token · (new prefill tokens) + decode_sequence · (decoding sequences)
/// ```
///
/// `base` stands for reading the weights, which every step does once. Attention to a long context is not charged for.
/// The defaults (8 ms, 40 µs, 50 µs) resemble a model of eight billion parameters on one data-centre GPU: 25,000 tokens
/// of prompt a second, 8 ms between tokens when alone, and 21 ms at 256 sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearStepTime {
    /// Time of a step beside its tokens. Default: 8 ms.
    pub base: Duration,
    /// Time for each token of prefill. Default: 40 µs.
    pub prefill_token: Duration,
    /// Time for each decoding sequence. Default: 50 µs.
    pub decode_sequence: Duration,
}

impl LinearStepTime {
    /// The same server, `factor` times as fast. `factor` is positive; above one is faster.
    pub fn faster(self, factor: f64) -> Self {
        let scale = |time: Duration| Duration::try_from_secs_f64(time.as_secs_f64() / factor).unwrap_or(Duration::MAX);
        Self {
            base: scale(self.base),
            prefill_token: scale(self.prefill_token),
            decode_sequence: scale(self.decode_sequence),
        }
    }
}

impl Default for LinearStepTime {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(8),
            prefill_token: Duration::from_micros(40),
            decode_sequence: Duration::from_micros(50),
        }
    }
}

impl StepTime for LinearStepTime {
    fn step_time(&self, batch: &[ScheduledTokens]) -> Duration {
        batch.iter().fold(self.base, |time, part| {
            time.saturating_add(match part.phase {
                Phase::Prefill => self.prefill_token.saturating_mul(part.new),
                Phase::Decode => self.decode_sequence,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(phase: Phase, new: u32) -> ScheduledTokens {
        ScheduledTokens {
            phase,
            prompt: new,
            context: 0,
            new,
        }
    }

    #[test]
    fn prefill_is_charged_by_the_token_and_decode_by_the_sequence() {
        let batch = [
            part(Phase::Decode, 1),
            part(Phase::Prefill, 100),
            part(Phase::Decode, 1),
        ];

        let time = LinearStepTime::default().step_time(&batch);

        assert_eq!(time, Duration::from_micros(8000 + 100 * 40 + 2 * 50));
    }

    #[test]
    fn a_server_twice_as_fast_takes_half_the_time() {
        let batch = [part(Phase::Prefill, 50)];
        let server = LinearStepTime::default();

        assert_eq!(server.faster(2.0).step_time(&batch) * 2, server.step_time(&batch));
    }
}
