//! Step time as a weighted sum of what physics says a step costs; the weights are trained on measurements of vLLM.

use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use super::error::Error;
use super::hardware::Hardware;
use super::resolve::Backend;
use super::shape::{Model, StepShape};
use super::work::Work;
use super::{LatencyModel, step_microseconds, whole_microseconds};
use crate::engine::config::suggest;
use crate::sim::instance::{ScheduledTokens, StepTime};

/// The bundled overheads in microseconds: queueing, completion, and each output token.
const ALPHA: [f64; 3] = [15563.199579, 777.3455, 45.907545];

/// The bundled weights, in the order of [`Beta`].
const BETA: [f64; 11] = [
    0.152128,
    0.0,
    1.36252915,
    0.752037,
    32.09546717,
    4.41684444,
    126.024825,
    481.8613888,
    0.0,
    1.94710771,
    0.752037,
];

/// Bytes of a number in the KV cache, which this back end takes to be the same for every model.
const KV_BYTES: f64 = 2.0;

/// How a model is spread over GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// GPUs that share each layer.
    pub tp: NonZeroU32,
    /// Groups of them that share the experts and have their own requests.
    pub dp: NonZeroU32,
    /// How tokens travel to their experts between groups.
    pub moe_communication: MoeCommunication,
}

impl Parallelism {
    /// `tp` GPUs in one group.
    pub const fn tensor(tp: NonZeroU32) -> Self {
        Self {
            tp,
            dp: NonZeroU32::MIN,
            moe_communication: MoeCommunication::AllGather,
        }
    }
}

/// How tokens travel to their experts. Parsed from the names that vLLM has for its back ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoeCommunication {
    /// Every token to every GPU: `allgather_reducescatter`, the default, and `naive`.
    #[default]
    AllGather,
    /// Every token to the GPUs of its experts: `pplx`, `deepep_high_throughput`, `deepep_low_latency`, `mori`,
    /// `flashinfer_all2allv`.
    AllToAll,
}

impl MoeCommunication {
    /// The names, and what they stand for.
    pub const NAMES: [(&'static str, Self); 7] = [
        ("allgather_reducescatter", Self::AllGather),
        ("naive", Self::AllGather),
        ("pplx", Self::AllToAll),
        ("deepep_high_throughput", Self::AllToAll),
        ("deepep_low_latency", Self::AllToAll),
        ("mori", Self::AllToAll),
        ("flashinfer_all2allv", Self::AllToAll),
    ];
}

impl FromStr for MoeCommunication {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::NAMES.iter().find(|(known, _)| *known == name);
        known.map(|(_, family)| *family).ok_or_else(|| Error::Unknown {
            what: "MoE communication back end",
            name: name.to_owned(),
            known: suggest::or_known(name, "known ones", Self::NAMES.iter().map(|(known, _)| *known)),
        })
    }
}

/// The back end `trained-physics` (spec, simulator 16.2).
///
/// The fields are the formula of the specification with everything about model, GPU and weights multiplied out, in
/// microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainedPhysics {
    /// What every step takes: reading the weights, and overheads of its layers and of itself.
    base: f64,
    /// For each sequence.
    sequence: f64,
    /// For each new token: communication.
    token: f64,
    prefill: Bounds,
    /// Arithmetic of a token of prefill, its attention left out.
    prefill_token: f64,
    /// Arithmetic of the attention of a token of prefill to half a token.
    prefill_attention: f64,
    /// Memory traffic of a token of prefill.
    prefill_traffic: f64,
    decode: Bounds,
    /// Arithmetic of a token of decode, its attention left out.
    decode_token: f64,
    /// Arithmetic of the attention of a token of decode to one token.
    decode_attention: f64,
    /// Memory traffic of a token of context of a decode, and of its own.
    decode_traffic: f64,
    queueing: Duration,
    output_token: Duration,
    completion: Duration,
}

/// How arithmetic and memory traffic make one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bounds {
    /// They have weights of their own and are added.
    Added,
    /// They share a weight, and the larger counts.
    Larger,
}

impl Bounds {
    #[inline]
    fn join(self, arithmetic: f64, traffic: f64) -> f64 {
        match self {
            Self::Added => arithmetic + traffic,
            Self::Larger => arithmetic.max(traffic),
        }
    }
}

impl TrainedPhysics {
    /// The times of `model` on these GPUs, with the bundled coefficients where none are given.
    ///
    /// `alpha` is three overheads in microseconds: queueing, completion, each output token. `beta` is 7 to 11 weights.
    ///
    /// # Errors
    ///
    /// If heads cannot be shared evenly, there are data-parallel groups of a model without experts, or coefficients
    /// are too few, too many, negative or no numbers.
    pub fn new(
        model: &Model,
        hardware: &Hardware,
        parallelism: Parallelism,
        alpha: Option<&[f64]>,
        beta: Option<&[f64]>,
    ) -> Result<Self, Error> {
        let Parallelism { tp, dp, .. } = parallelism;
        let uneven = [
            ("attention heads", model.shape.heads),
            ("KV heads", model.shape.kv_heads),
        ];
        if let Some((what, heads)) = uneven.into_iter().find(|(_, heads)| heads % tp.get() != 0) {
            return Err(Error::UnevenHeads {
                model: model.name.clone(),
                what,
                heads,
                tp,
            });
        }
        if dp.get() > 1 && model.shape.experts.is_none() {
            return Err(Error::DataParallel {
                dp,
                found: format!("model `{}` has no experts", model.name),
            });
        }
        let alpha = alpha.unwrap_or(&ALPHA);
        coefficients(alpha, "--alpha-coeffs")?;
        let &[queueing, completion, output_token] = alpha else {
            return Err(Error::CoefficientCount {
                backend: Backend::TrainedPhysics,
                flag: "--alpha-coeffs",
                wanted: "3",
                found: alpha.len(),
            });
        };
        let beta = Beta::new(beta.unwrap_or(&BETA))?;

        let shape = model.shape.for_steps();
        let peak = hardware.figures.flops_per_microsecond(shape.weight_bytes);
        let bandwidth = hardware.figures.bytes_per_microsecond();
        let costs = Costs::new(&shape, parallelism);
        let decode_attention = costs.attention_flops / peak;
        let traffic = costs.kv_bytes / bandwidth;
        Ok(Self {
            base: beta.weights * (costs.weight_bytes / bandwidth)
                + beta.layer * shape.layers
                + beta.step
                + beta.interleaved_layer * if shape.interleaved { shape.moe_layers } else { 0.0 },
            sequence: beta.sequence,
            token: (beta.tensor * costs.tensor_bytes + beta.expert * costs.expert_bytes) / bandwidth,
            prefill: beta.prefill,
            prefill_token: beta.prefill_arithmetic * (costs.token_flops / peak),
            prefill_attention: beta.prefill_arithmetic * (decode_attention / 2.0),
            prefill_traffic: beta.prefill_traffic * traffic,
            decode: beta.decode,
            decode_token: beta.decode_arithmetic * (costs.token_flops / peak),
            decode_attention: beta.decode_arithmetic * decode_attention,
            decode_traffic: beta.decode_traffic * traffic,
            queueing: whole_microseconds(queueing),
            output_token: whole_microseconds(output_token),
            completion: whole_microseconds(completion),
        })
    }
}

impl StepTime for TrainedPhysics {
    fn step_time(&self, batch: &[ScheduledTokens]) -> Duration {
        if batch.is_empty() {
            return Duration::from_micros(1);
        }
        // A chunk is charged as if it came behind the whole prompt: t · (prompt + t / 2), here doubled.
        let work = Work::of(batch, |part| {
            f64::from(part.new) * (2.0 * f64::from(part.prompt) + f64::from(part.new))
        });
        let prefill_tokens = work.prefill_tokens as f64;
        let decodes = work.decodes as f64;
        let decode_context = work.decode_context as f64;

        let prefill = self.prefill.join(
            self.prefill_token * prefill_tokens + self.prefill_attention * work.prefill_attention,
            self.prefill_traffic * prefill_tokens,
        );
        let decode = self.decode.join(
            self.decode_token * decodes + self.decode_attention * decode_context,
            self.decode_traffic * (decode_context + decodes),
        );
        step_microseconds(
            prefill + decode + self.token * (prefill_tokens + decodes) + self.sequence * batch.len() as f64 + self.base,
        )
    }
}

impl LatencyModel for TrainedPhysics {
    fn queueing_time(&self, _prompt_tokens: u32) -> Duration {
        self.queueing
    }

    fn output_token_time(&self) -> Duration {
        self.output_token
    }

    fn completion_time(&self) -> Duration {
        self.completion
    }
}

/// What one GPU has to do: operations, and bytes that it reads, writes or sends.
struct Costs {
    /// Operations of a new token, its attention left out.
    token_flops: f64,
    /// Operations of the attention of one token to another.
    attention_flops: f64,
    /// Bytes of a token in the KV cache.
    kv_bytes: f64,
    /// Bytes of all weights.
    weight_bytes: f64,
    /// Bytes that a token sends between the GPUs of a group.
    tensor_bytes: f64,
    /// Bytes that a token sends between groups.
    expert_bytes: f64,
}

impl Costs {
    fn new(shape: &StepShape, parallelism: Parallelism) -> Self {
        let StepShape {
            layers,
            moe_layers,
            dense_layers,
            hidden,
            ..
        } = *shape;
        let has_experts = shape.experts > 0.0;
        let tp = f64::from(parallelism.tp.get());
        let dp = f64::from(parallelism.dp.get());
        let gpus = tp * dp;
        let sharers_of_experts = if has_experts { gpus } else { tp };
        let experts_per_token = shape.per_token.max(1.0);
        let projections = hidden * (2.0 * hidden + 2.0 * shape.kv_width);

        let all_reduce = |layers: f64| layers * hidden * shape.value_bytes * 2.0 * (tp - 1.0) / tp;
        let dispatches = match parallelism.moe_communication {
            MoeCommunication::AllGather => 1.0,
            MoeCommunication::AllToAll => experts_per_token,
        };
        Self {
            token_flops: layers * 2.0 * projections / gpus
                + moe_layers * (experts_per_token / sharers_of_experts) * 6.0 * hidden * shape.expert_width
                + moe_layers * 6.0 * hidden * shape.shared_width / gpus
                + dense_layers * 6.0 * hidden * shape.dense_width / gpus,
            attention_flops: layers * 4.0 * (shape.heads / tp) * shape.head_dim / dp,
            kv_bytes: layers * 2.0 * (shape.kv_width / gpus) * KV_BYTES,
            weight_bytes: shape.weight_bytes
                * (layers * projections / tp
                    + moe_layers * (shape.experts / sharers_of_experts) * 3.0 * hidden * shape.expert_width
                    + moe_layers * 3.0 * hidden * shape.shared_width / tp
                    + dense_layers * 3.0 * hidden * shape.dense_width / tp),
            tensor_bytes: (all_reduce(layers) + all_reduce(dense_layers)) / dp
                + if dp == 1.0 { all_reduce(moe_layers) } else { 0.0 },
            expert_bytes: if has_experts && dp > 1.0 {
                moe_layers * dispatches * (gpus - 1.0) / gpus * 2.0 * hidden * shape.value_bytes / dp
            } else {
                0.0
            },
        }
    }
}

/// The weights by what they weigh.
struct Beta {
    prefill: Bounds,
    prefill_arithmetic: f64,
    prefill_traffic: f64,
    decode: Bounds,
    decode_arithmetic: f64,
    decode_traffic: f64,
    weights: f64,
    tensor: f64,
    expert: f64,
    layer: f64,
    sequence: f64,
    step: f64,
    interleaved_layer: f64,
}

impl Beta {
    /// Reads 7 to 11 weights: b1a, b2a, b3, b4, b5, b6, b7, b8, b1b, b2b, bEP.
    fn new(given: &[f64]) -> Result<Self, Error> {
        coefficients(given, "--beta-coeffs")?;
        let &[b1, b2, b3, b4, b5, b6, b7, ref more @ ..] = given else {
            return Err(Self::miscounted(given));
        };
        if more.len() > 4 {
            return Err(Self::miscounted(given));
        }
        let separate = |weight: Option<&f64>, shared| match weight {
            Some(&weight) => (Bounds::Added, weight),
            None => (Bounds::Larger, shared),
        };
        let (prefill, prefill_traffic) = separate(more.get(1), b1);
        let (decode, decode_traffic) = separate(more.get(2), b2);
        Ok(Self {
            prefill,
            prefill_arithmetic: b1,
            prefill_traffic,
            decode,
            decode_arithmetic: b2,
            decode_traffic,
            weights: b3,
            tensor: b4,
            expert: more.get(3).copied().unwrap_or(b4),
            layer: b5,
            sequence: b6,
            step: b7,
            interleaved_layer: more.first().copied().unwrap_or(0.0),
        })
    }

    fn miscounted(given: &[f64]) -> Error {
        Error::CoefficientCount {
            backend: Backend::TrainedPhysics,
            flag: "--beta-coeffs",
            wanted: "7 to 11",
            found: given.len(),
        }
    }
}

/// Refuses coefficients that are negative or no numbers.
pub(super) fn coefficients(given: &[f64], flag: &'static str) -> Result<(), Error> {
    match given.iter().position(|value| !(value.is_finite() && *value >= 0.0)) {
        None => Ok(()),
        Some(at) => Err(Error::Coefficient {
            flag,
            position: at + 1,
            value: given[at],
        }),
    }
}
