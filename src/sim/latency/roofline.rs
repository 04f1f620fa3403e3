//! Step time as the larger of two bounds: arithmetic at a share of the GPU's peak, and memory at its full bandwidth.

use std::num::NonZeroU32;
use std::time::Duration;

use super::hardware::Hardware;
use super::shape::Model;
use super::work::Work;
use super::{LatencyModel, step_microseconds};
use crate::sim::instance::{ScheduledTokens, StepTime};

/// The back end `roofline` (spec, simulator 16.1). GPUs that share a model share its work evenly and talk for nothing.
/// Nothing takes time but steps.
///
/// The fields are the formula of the specification with everything about model and GPU multiplied out, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roofline {
    /// Arithmetic of a token of prefill, its attention left out.
    prefill_token: f64,
    /// Arithmetic of the attention of a token of prefill to half a token.
    prefill_attention: f64,
    /// Arithmetic of a token of decode, its attention left out.
    decode_token: f64,
    /// Arithmetic of the attention of a token of decode to one token.
    decode_attention: f64,
    /// Memory traffic of the weights that every step reads.
    weights: f64,
    /// Memory traffic of the weights of all experts.
    expert_weights: f64,
    /// The share of experts that a token leaves idle. One without experts.
    idle_experts: f64,
    /// Memory traffic of a new token: its keys, values and activations.
    token: f64,
    /// Memory traffic of a token of context: its keys and values.
    context: f64,
}

impl Roofline {
    /// The step time of `model` on `tp` of these GPUs.
    pub fn new(model: &Model, hardware: &Hardware, tp: NonZeroU32) -> Self {
        let shape = model.shape.for_steps();
        let figures = &hardware.figures;
        let (layers, hidden) = (shape.layers, shape.hidden);
        let tp = f64::from(tp.get());

        let projections = 2.0 * (hidden * hidden + 2.0 * hidden * shape.kv_width) + 2.0 * hidden * hidden;
        let feed_forward = 4.0
            * hidden
            * (shape.dense_layers * shape.dense_width + shape.moe_layers * shape.expert_width * shape.per_token);
        let token_flops = layers * (projections + 2.0 * hidden) + feed_forward;
        let attention_flops = layers * shape.heads * (4.0 * shape.head_dim + 5.0);
        let peak = figures.flops_per_microsecond(shape.weight_bytes) * tp;
        let (prefill_peak, decode_peak) = (peak * figures.mfu_prefill, peak * figures.mfu_decode);

        let bandwidth = figures.bytes_per_microsecond() * tp;
        let attention_weights = layers * (hidden * (hidden + 2.0 * shape.kv_width) + hidden * hidden);
        let dense_weights = shape.dense_layers * 2.0 * hidden * shape.dense_width;
        let expert_weights = shape.moe_layers * 2.0 * hidden * shape.expert_width * shape.experts;
        let token_kv = 2.0 * layers * shape.kv_width * shape.value_bytes;
        Self {
            prefill_token: token_flops / prefill_peak,
            prefill_attention: attention_flops / 2.0 / prefill_peak,
            decode_token: token_flops / decode_peak,
            decode_attention: attention_flops / decode_peak,
            weights: (attention_weights + dense_weights) * shape.weight_bytes / bandwidth,
            expert_weights: expert_weights * shape.weight_bytes / bandwidth,
            idle_experts: if shape.experts > 0.0 {
                (shape.experts - shape.per_token) / shape.experts
            } else {
                1.0
            },
            token: (token_kv + layers * hidden * shape.value_bytes) / bandwidth,
            context: token_kv / bandwidth,
        }
    }
}

impl StepTime for Roofline {
    fn step_time(&self, batch: &[ScheduledTokens]) -> Duration {
        // Token i of n attends to the context and to i tokens before it: n · context + n · (n - 1) / 2, here doubled.
        let work = Work::of(batch, |part| {
            f64::from(part.new) * (2.0 * f64::from(part.context) + f64::from(part.new) - 1.0)
        });
        let prefill_tokens = work.prefill_tokens as f64;
        let decodes = work.decodes as f64;
        let decode_context = work.decode_context as f64;
        let tokens = work.prefill_tokens + work.decodes;

        let arithmetic = self.prefill_token * prefill_tokens
            + self.prefill_attention * work.prefill_attention
            + self.decode_token * decodes
            + self.decode_attention * decode_context;
        let experts = if self.expert_weights > 0.0 {
            self.expert_weights * (1.0 - power(self.idle_experts, tokens))
        } else {
            0.0
        };
        let memory = self.weights
            + experts
            + self.token * tokens as f64
            + self.context * (work.prefill_context as f64 + decode_context);
        step_microseconds(arithmetic.max(memory))
    }
}

impl LatencyModel for Roofline {
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

/// `base` to the power of `exponent`, by squaring. `f64::powf` may differ from machine to machine in the last digit.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            product *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_by_squaring_is_the_product() {
        let mut product = 1.0;
        for exponent in 0..200 {
            assert!(
                (power(0.9375, exponent) - product).abs() <= 1e-14 * product,
                "{exponent}"
            );
            product *= 0.9375;
        }
        assert_eq!(power(0.0, 3), 0.0);
    }
}
