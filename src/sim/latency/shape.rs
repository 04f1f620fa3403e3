//! A model, as far as its time and memory depend on it.

use super::catalog;
use super::config_json;
use super::error::Error;

/// A model: what it is called, and its shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub(super) name: String,
    pub(super) shape: Shape,
    /// The activation function of its feed-forward layers, empty if its configuration does not say.
    pub(super) activation: String,
}

impl Model {
    /// The bundled model of that name: the part after the slash, in any case (`qwen/qwen3-14b`).
    ///
    /// # Errors
    ///
    /// If none is called so.
    pub fn bundled(name: &str) -> Result<Self, Error> {
        let entry = catalog::find(name).ok_or_else(|| catalog::unknown(name))?;
        Ok(Self {
            name: entry.name.to_owned(),
            shape: entry.shape,
            activation: "silu".to_owned(),
        })
    }

    /// The model that the text of a Hugging Face `config.json` describes (spec, simulator 17.1). Its name may tell how
    /// its weights are quantised, if its configuration does not.
    ///
    /// # Errors
    ///
    /// If the text is not JSON, or a field that is needed is missing or makes no sense.
    pub fn from_config(name: &str, text: &str) -> Result<Self, Error> {
        config_json::parse(name, text)
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The numbers of a model. Made by the catalog or by the parser of configurations, which see to it that layers, heads
/// and widths are not zero and that there are no more heads than the hidden width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) layers: u32,
    /// Width of the hidden state.
    pub(super) hidden: u32,
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    /// Width of a head, if the configuration says it.
    pub(super) head_dim: Option<u32>,
    /// Width of the feed-forward layers without experts.
    pub(super) dense_width: u32,
    pub(super) vocabulary: u32,
    /// The output layer shares the weights of the token embeddings.
    pub(super) tied_embeddings: bool,
    /// Bytes of an activation, and of a number in the KV cache.
    pub(super) value_bytes: f64,
    /// Bytes of a weight.
    pub(super) weight_bytes: f64,
    pub(super) experts: Option<Experts>,
    /// With multi-head latent attention: the numbers that a token keeps in the KV cache of each layer.
    pub(super) latent_width: Option<u32>,
    /// The longest sequence, rope scaling included. `None` if the configuration does not say.
    pub(super) context: Option<u32>,
}

/// Feed-forward layers made of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Experts {
    /// At least two.
    pub(super) count: u32,
    /// Experts that compute a token, from one to all of them.
    pub(super) per_token: u32,
    /// Width of an expert.
    pub(super) width: u32,
    /// Width of all shared experts together, which compute every token. Zero without.
    pub(super) shared_width: u32,
    /// The first layers that have no experts.
    pub(super) leading_dense: u32,
    /// `interleave_moe_layer_step`. Zero: all layers have experts.
    pub(super) interleave: u32,
}

impl Shape {
    /// What the models of step time need, as numbers to compute with. They do not know an explicit `head_dim`, nor
    /// leading layers without experts (spec, simulator 16).
    pub(super) fn for_steps(&self) -> StepShape {
        let (moe_layers, dense_layers) = match self.experts {
            None => (0, self.layers),
            Some(Experts { interleave: 0, .. }) => (self.layers, 0),
            Some(Experts { interleave, .. }) => {
                let moe_layers = self.layers / interleave.saturating_add(1);
                (moe_layers, self.layers - moe_layers)
            }
        };
        let head_dim = f64::from(self.hidden / self.heads);
        let of_experts = |number: fn(Experts) -> u32| f64::from(self.experts.map_or(0, number));
        StepShape {
            layers: f64::from(self.layers),
            moe_layers: f64::from(moe_layers),
            dense_layers: f64::from(dense_layers),
            hidden: f64::from(self.hidden),
            heads: f64::from(self.heads),
            head_dim,
            kv_width: f64::from(self.kv_heads) * head_dim,
            dense_width: f64::from(self.dense_width),
            expert_width: of_experts(|experts| experts.width),
            shared_width: of_experts(|experts| experts.shared_width),
            experts: of_experts(|experts| experts.count),
            per_token: of_experts(|experts| experts.per_token),
            interleaved: of_experts(|experts| experts.interleave) > 0.0,
            value_bytes: self.value_bytes,
            weight_bytes: self.weight_bytes,
        }
    }
}

/// A [`Shape`] as the models of step time see it. What is of experts is zero without.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepShape {
    pub(super) layers: f64,
    pub(super) moe_layers: f64,
    pub(super) dense_layers: f64,
    pub(super) hidden: f64,
    pub(super) heads: f64,
    pub(super) head_dim: f64,
    pub(super) kv_width: f64,
    pub(super) dense_width: f64,
    pub(super) expert_width: f64,
    pub(super) shared_width: f64,
    pub(super) experts: f64,
    pub(super) per_token: f64,
    pub(super) interleaved: bool,
    pub(super) value_bytes: f64,
    pub(super) weight_bytes: f64,
}
