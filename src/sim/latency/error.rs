//! What can be wrong with a model, a GPU or the numbers of a model of time.

use std::num::NonZeroU32;

use super::resolve::Backend;

/// Why there is no model of time.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// No model was named.
    #[error(
        "no model is named: give `--model NAME`, such as `qwen/qwen3-14b`, or its `config.json` with `--model-config FILE`"
    )]
    NoModel,
    /// A model is not bundled.
    #[error(
        "unknown model `{name}`: {known}; for any other, give its Hugging Face `config.json` with `--model-config FILE`"
    )]
    UnknownModel {
        /// What was asked for.
        name: String,
        /// What may be meant, and what there is.
        known: String,
    },
    /// Something that has a name has another.
    #[error("unknown {what} `{name}`: {known}")]
    Unknown {
        /// What kind of thing.
        what: &'static str,
        /// What was asked for.
        name: String,
        /// What may be meant, and what there is.
        known: String,
    },
    /// A configuration is not JSON.
    #[error("the configuration of model `{model}` is not JSON: {problem}")]
    ConfigSyntax {
        /// Whose.
        model: String,
        /// What the parser says.
        problem: String,
    },
    /// A field of a configuration is missing or wrong.
    #[error("the configuration of model `{model}`: `{field}` {problem}")]
    ConfigField {
        /// Whose.
        model: String,
        /// Which field, or which fields of which one is needed.
        field: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Rows of hardware cannot be read.
    #[error(
        "the hardware file: {0}; expected an object of GPUs by name, each with `tflops`, `tb_per_second`, `mfu_prefill`, `mfu_decode` and `gib`"
    )]
    HardwareRows(String),
    /// A figure of a GPU makes no sense.
    #[error("hardware `{name}`: `{field}` is {value}, expected {wanted}")]
    HardwareFigure {
        /// Of which GPU.
        name: String,
        /// Which figure.
        field: &'static str,
        /// What it is.
        value: f64,
        /// What would be right.
        wanted: &'static str,
    },
    /// It is not known on which GPUs a model runs.
    #[error("model `{model}` has no default for `{flag}`: give it")]
    NoDefault {
        /// Which model.
        model: String,
        /// What is missing.
        flag: &'static str,
    },
    /// Heads cannot be shared out evenly.
    #[error(
        "model `{model}` has {heads} {what}, which {tp} GPUs cannot share evenly: choose a `--tp` that divides them"
    )]
    UnevenHeads {
        /// Which model.
        model: String,
        /// Which heads.
        what: &'static str,
        /// How many there are.
        heads: u32,
        /// Among how many they would be shared.
        tp: NonZeroU32,
    },
    /// Data parallelism where there is none.
    #[error("`--dp {dp}` needs a model with experts and the latency model `trained-physics`; here {found}")]
    DataParallel {
        /// How many replicas were asked for.
        dp: NonZeroU32,
        /// What is not so.
        found: String,
    },
    /// Coefficients for a back end that has none.
    #[error(
        "the latency model `roofline` has no coefficients: leave `--alpha-coeffs` and `--beta-coeffs` out, or choose `trained-physics`"
    )]
    NoCoefficients,
    /// Too few or too many coefficients.
    #[error("the latency model `{backend}` takes {wanted} `{flag}`, found {found}")]
    CoefficientCount {
        /// Of which back end.
        backend: Backend,
        /// Which coefficients.
        flag: &'static str,
        /// How many it takes.
        wanted: &'static str,
        /// How many there are.
        found: usize,
    },
    /// A coefficient makes no sense.
    #[error("coefficient {position} of `{flag}` is {value}, expected a number that is not negative")]
    Coefficient {
        /// Which coefficients.
        flag: &'static str,
        /// Which of them, from one.
        position: usize,
        /// What it is.
        value: f64,
    },
    /// A share of memory that is none.
    #[error("`--gpu-memory-utilization` is {0}, expected a number above 0 and up to 1")]
    MemoryUtilization(f64),
    /// Memory set aside that is not an amount.
    #[error("the memory set aside for adapters is {0} GiB, expected a number that is not negative")]
    Reservation(f64),
    /// The KV cache of a model cannot be sized.
    #[error(
        "the KV cache of model `{model}` cannot be sized: its activation function is `{activation}`, and only gated ones are known (`silu`, `swiglu`, `geglu`, `situ`); give `--total-kv-blocks`"
    )]
    Activation {
        /// Which model.
        model: String,
        /// What its configuration says.
        activation: String,
    },
    /// A model is larger than its GPUs.
    #[error(
        "model `{model}` does not fit: its weights are {weights_gib:.1} GiB, and {tp} x {hardware} leave {budget_gib:.1} GiB for its KV cache; {remedy}"
    )]
    DoesNotFit {
        /// Which model.
        model: String,
        /// All its weights, in GiB.
        weights_gib: f64,
        /// On which GPU.
        hardware: String,
        /// On how many.
        tp: NonZeroU32,
        /// What is left, in GiB; as a rule less than nothing.
        budget_gib: f64,
        /// How many it needs.
        remedy: String,
    },
}
