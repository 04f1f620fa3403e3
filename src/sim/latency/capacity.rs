//! How many KV blocks fit beside the weights of a model (spec, simulator 17.3).

use std::num::NonZeroU32;

use super::error::Error;
use super::hardware::Hardware;
use super::shape::{Experts, Model, Shape};

const GIB: f64 = (1_u64 << 30) as f64;

/// Memory that activations take, in GiB.
const ACTIVATIONS_GIB: f64 = 5.5;
/// The same for a model with experts.
const EXPERT_ACTIVATIONS_GIB: f64 = 8.0;
/// Memory that a GPU alone takes beside that, in GiB.
const ALONE_GIB: f64 = 0.15;
/// What each of several GPUs takes, in GiB.
const TOGETHER_GIB: f64 = 0.6;

/// The most GPUs that are looked at for a model that does not fit.
const MOST_GPUS: u32 = 1024;

/// Where a model is to fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room<'a> {
    pub(super) hardware: &'a Hardware,
    pub(super) tp: NonZeroU32,
    pub(super) dp: NonZeroU32,
    /// The share of memory that is used.
    pub(super) utilization: f64,
    /// What is set aside for adapters, in GiB.
    pub(super) reserved_gib: f64,
    pub(super) block_tokens: NonZeroU32,
}

/// Bytes of a token in the KV cache of one GPU. With latent attention each GPU keeps all of it.
pub(super) fn kv_bytes_per_token(shape: &Shape, tp: NonZeroU32) -> f64 {
    let layers = f64::from(shape.layers);
    match shape.latent_width {
        Some(width) => layers * f64::from(width) * shape.value_bytes,
        None => layers * 2.0 * kv_width(shape) * shape.value_bytes / f64::from(tp.get()),
    }
}

/// The KV blocks of an instance.
pub(super) fn kv_blocks(model: &Model, room: Room<'_>) -> Result<NonZeroU32, Error> {
    let shape = &model.shape;
    let known = ["", "silu", "swiglu", "geglu", "situ"];
    if !known.iter().any(|known| known.eq_ignore_ascii_case(&model.activation)) {
        return Err(Error::Activation {
            model: model.name.clone(),
            activation: model.activation.clone(),
        });
    }
    if !(room.utilization > 0.0 && room.utilization <= 1.0) {
        return Err(Error::MemoryUtilization(room.utilization));
    }
    if !(room.reserved_gib >= 0.0 && room.reserved_gib.is_finite()) {
        return Err(Error::Reservation(room.reserved_gib));
    }
    if !shares_kv_heads(shape, room.tp) {
        return Err(Error::UnevenHeads {
            model: model.name.clone(),
            what: "KV heads",
            heads: shape.kv_heads,
            tp: room.tp,
        });
    }
    let blocks = blocks(shape, room);
    let replicas = if shape.experts.is_some() {
        u64::from(room.dp.get())
    } else {
        1
    };
    let blocks = u32::try_from(blocks.saturating_mul(replicas)).unwrap_or(u32::MAX);
    NonZeroU32::new(blocks).ok_or_else(|| does_not_fit(model, room))
}

/// The blocks of one replica. Zero if the model does not fit.
fn blocks(shape: &Shape, room: Room<'_>) -> u64 {
    let block_bytes = kv_bytes_per_token(shape, room.tp) * f64::from(room.block_tokens.get());
    // The cast cuts a budget below zero to zero.
    let budget_bytes = (budget_gib(shape, room) * GIB) as u64;
    budget_bytes / (block_bytes as u64).max(1)
}

/// Memory left for the KV cache, in GiB.
fn budget_gib(shape: &Shape, room: Room<'_>) -> f64 {
    let gpus = f64::from(room.tp.get());
    let activations = if shape.experts.is_some() {
        EXPERT_ACTIVATIONS_GIB
    } else {
        ACTIVATIONS_GIB
    };
    let rest = if room.tp.get() == 1 {
        ALONE_GIB
    } else {
        TOGETHER_GIB * gpus
    };
    room.hardware.gib() * room.utilization * gpus - weights_gib(shape) - activations - rest - room.reserved_gib
}

fn weights_gib(shape: &Shape) -> f64 {
    parameters(shape) * shape.weight_bytes / GIB
}

/// All weights of a model, in numbers.
fn parameters(shape: &Shape) -> f64 {
    let layers = f64::from(shape.layers);
    let hidden = f64::from(shape.hidden);
    let embeddings = f64::from(shape.vocabulary) * hidden * if shape.tied_embeddings { 1.0 } else { 2.0 };
    let attention = hidden * (hidden + 2.0 * kv_width(shape)) + hidden * hidden;
    let norms = 2.0 * hidden;
    let dense = 3.0 * hidden * f64::from(shape.dense_width);
    let feed_forward = match shape.experts {
        None => layers * dense,
        Some(experts) => {
            let dense_layers = f64::from(experts.leading_dense.min(shape.layers));
            dense_layers * dense + (layers - dense_layers) * expert_parameters(hidden, experts)
        }
    };
    embeddings + hidden + layers * (attention + norms) + feed_forward
}

/// The weights of a layer of experts and of the router before them.
fn expert_parameters(hidden: f64, experts: Experts) -> f64 {
    let count = f64::from(experts.count);
    let widths = f64::from(experts.width) * count + f64::from(experts.shared_width);
    3.0 * hidden * widths + count * hidden
}

/// Width of the keys of a token in one layer, and of its values.
fn kv_width(shape: &Shape) -> f64 {
    let head_dim = shape.head_dim.unwrap_or(shape.hidden / shape.heads);
    f64::from(head_dim) * f64::from(shape.kv_heads)
}

/// GPUs share KV heads evenly; if there are more GPUs than heads, several have the same.
fn shares_kv_heads(shape: &Shape, tp: NonZeroU32) -> bool {
    shape.kv_heads < tp.get() || shape.kv_heads.is_multiple_of(tp.get())
}

/// The error that says how many GPUs would do.
fn does_not_fit(model: &Model, room: Room<'_>) -> Error {
    let shape = &model.shape;
    let fits = |&tp: &NonZeroU32| {
        shape.heads.is_multiple_of(tp.get()) && shares_kv_heads(shape, tp) && blocks(shape, Room { tp, ..room }) > 0
    };
    let enough = (1..=MOST_GPUS).filter_map(NonZeroU32::new).find(fits);
    Error::DoesNotFit {
        model: model.name.clone(),
        weights_gib: weights_gib(shape),
        hardware: room.hardware.name.clone(),
        tp: room.tp,
        budget_gib: budget_gib(shape, room),
        remedy: match enough {
            Some(tp) => format!("it needs at least {tp} of them (`--tp {tp}`)"),
            None => "no number of them that can share its attention heads would do".to_owned(),
        },
    }
}
