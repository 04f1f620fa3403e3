//! What a step computes, added up.

use crate::sim::instance::{Phase, ScheduledTokens};

/// The sums over a batch that models of time are made of. Counts are exact.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// Sequences that compute known tokens.
    pub(super) prefills: u64,
    /// Tokens that they compute.
    pub(super) prefill_tokens: u64,
    /// Tokens that they computed before.
    pub(super) prefill_context: u64,
    /// The sum over them of what their attention costs, in the caller's measure.
    pub(super) prefill_attention: f64,
    /// Sequences that compute the token that came out last.
    pub(super) decodes: u64,
    /// Tokens that they computed before.
    pub(super) decode_context: u64,
}

impl Work {
    /// Adds up `batch` in one pass. Decoding sequences, which are most of any batch, cost one addition each.
    #[inline]
    pub(super) fn of(batch: &[ScheduledTokens], attention: impl Fn(&ScheduledTokens) -> f64) -> Self {
        let mut work = Self::default();
        for part in batch {
            match part.phase {
                Phase::Decode => work.decode_context += u64::from(part.context),
                Phase::Prefill => {
                    work.prefills += 1;
                    work.prefill_tokens += u64::from(part.new);
                    work.prefill_context += u64::from(part.context);
                    work.prefill_attention += attention(part);
                }
            }
        }
        work.decodes = batch.len() as u64 - work.prefills;
        work
    }
}
