//! From what a user says to everything that a simulated instance needs.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::LatencyModel;
use super::capacity::{self, Room};
use super::catalog;
use super::error::Error;
use super::hardware::Hardware;
use super::linear::Linear;
use super::roofline::Roofline;
use super::shape::Model;
use super::trained_physics::{MoeCommunication, Parallelism, TrainedPhysics};
use crate::engine::config::suggest;
use crate::sim::instance::{Phase, ScheduledTokens, StepTime};

/// KV blocks where nothing tells how many fit.
const UNSIZED_BLOCKS: NonZeroU32 = NonZeroU32::new(1_000_000).expect("a million is not zero");

/// The step by which back ends are compared: one sequence decodes behind a prompt of 512 tokens.
const SINGLE_DECODE: [ScheduledTokens; 1] = [ScheduledTokens {
    phase: Phase::Decode,
    prompt: 512,
    context: 512,
    new: 1,
}];

/// What a user says about the model servers. Files come as their text.
#[derive(Clone, Debug)]
pub struct Spec<'a> {
    /// The model, such as `qwen/qwen3-14b`. Bundled ones are known by the part after the slash. May be empty for
    /// [`Backend::Linear`].
    pub model: &'a str,
    /// The text of the model's `config.json`, which wins over the bundled shape.
    pub model_config: Option<&'a str>,
    /// The GPU. Default: that of the bundled model.
    pub hardware: Option<&'a str>,
    /// The text of more GPUs, as [`Hardware::named`] describes it.
    pub hardware_rows: Option<&'a str>,
    /// GPUs that share each layer. Default: that of the bundled model.
    pub tp: Option<NonZeroU32>,
    /// Data-parallel groups of them. Default: 1.
    pub dp: NonZeroU32,
    /// The model of time. Default: `trained-physics`.
    pub backend: Backend,
    /// Overheads in place of the bundled ones: three numbers.
    pub alpha: Option<&'a [f64]>,
    /// Weights of step time in place of the bundled ones.
    pub beta: Option<&'a [f64]>,
    /// How tokens travel to their experts. Default: all-gather.
    pub moe_communication: MoeCommunication,
    /// The share of GPU memory that is used, above 0 and up to 1. Default: 0.9.
    pub gpu_memory_utilization: f64,
    /// GPU memory set aside for adapters, in GiB. Default: 0.
    pub reserved_gib: f64,
    /// Tokens of a KV block. Default: 16.
    pub block_tokens: NonZeroU32,
    /// The longest sequence. Default: what the model and the KV cache allow.
    pub max_model_len: Option<NonZeroU32>,
    /// The KV blocks of an instance. Default: as many as fit.
    pub total_kv_blocks: Option<NonZeroU32>,
}

impl Default for Spec<'_> {
    fn default() -> Self {
        Self {
            model: "",
            model_config: None,
            hardware: None,
            hardware_rows: None,
            tp: None,
            dp: NonZeroU32::MIN,
            backend: Backend::default(),
            alpha: None,
            beta: None,
            moe_communication: MoeCommunication::default(),
            gpu_memory_utilization: 0.9,
            reserved_gib: 0.0,
            block_tokens: const { NonZeroU32::new(16).expect("16 is not zero") },
            max_model_len: None,
            total_kv_blocks: None,
        }
    }
}

/// Which model of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// [`TrainedPhysics`].
    #[default]
    TrainedPhysics,
    /// [`Roofline`].
    Roofline,
    /// [`Linear`].
    Linear,
}

impl Backend {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::TrainedPhysics, Self::Roofline, Self::Linear];

    /// What users call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TrainedPhysics => "trained-physics",
            Self::Roofline => "roofline",
            Self::Linear => "linear",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Backend {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|backend| backend.name() == name);
        known.ok_or_else(|| Error::Unknown {
            what: "latency model",
            name: name.to_owned(),
            known: suggest::or_known(name, "known ones", Self::ALL.map(Self::name)),
        })
    }
}

/// Everything that a simulated instance needs to know of its model server.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// How long things take.
    pub latency: Arc<dyn LatencyModel>,
    /// Which model of time that is.
    pub backend: Backend,
    /// KV blocks of an instance.
    pub kv_blocks: NonZeroU32,
    /// The longest sequence. `None` if nothing limits it.
    pub max_model_len: Option<NonZeroU32>,
    /// What it runs on. `None` if the model of time does not ask and the user did not say.
    pub server: Option<Server>,
}

/// A model on its GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// The model.
    pub model: Model,
    /// The GPU.
    pub hardware: Hardware,
    /// How it is spread over them.
    pub parallelism: Parallelism,
}

impl Server {
    /// Bytes of a token in the KV cache of one GPU.
    pub fn kv_bytes_per_token(&self) -> u64 {
        // The cast cuts what eight-bit values on many GPUs leave of a byte.
        capacity::kv_bytes_per_token(&self.model.shape, self.parallelism.tp) as u64
    }

    /// How long one decode behind a prompt of 512 tokens takes by each bundled back end that can say it. They can
    /// disagree by far where a model has experts: one charges for all their weights in each step, the other for those in
    /// use (spec, simulator 35).
    pub fn single_decode(&self) -> Vec<(Backend, Duration)> {
        let physics = TrainedPhysics::new(&self.model, &self.hardware, self.parallelism, None, None);
        let physics = physics.map(|physics| (Backend::TrainedPhysics, physics.step_time(&SINGLE_DECODE)));
        let alone = self.parallelism.dp == NonZeroU32::MIN;
        let roofline = alone.then(|| Roofline::new(&self.model, &self.hardware, self.parallelism.tp));
        let roofline = roofline.map(|roofline| (Backend::Roofline, roofline.step_time(&SINGLE_DECODE)));
        physics.into_iter().chain(roofline).collect()
    }
}

/// Works out everything that a simulated instance needs.
///
/// The back end `linear` needs neither model nor GPU. If it is given both, they size its KV cache; else the cache has a
/// million blocks, unless the user says how many.
///
/// # Errors
///
/// If the model, the GPU or the back end is not known, a figure or coefficient makes no sense, or the model does not
/// fit.
pub fn resolve(spec: &Spec<'_>) -> Result<Resolved, Error> {
    let server = match spec.backend {
        Backend::Linear if !is_described(spec) => None,
        _ => Some(server(spec)?),
    };
    let latency: Arc<dyn LatencyModel> = match (spec.backend, &server) {
        (Backend::TrainedPhysics, Some(server)) => Arc::new(TrainedPhysics::new(
            &server.model,
            &server.hardware,
            server.parallelism,
            spec.alpha,
            spec.beta,
        )?),
        (Backend::Roofline, Some(server)) => {
            if spec.alpha.is_some() || spec.beta.is_some() {
                return Err(Error::NoCoefficients);
            }
            Arc::new(Roofline::new(&server.model, &server.hardware, server.parallelism.tp))
        }
        (Backend::Linear, _) | (_, None) => Arc::new(Linear::new(spec.alpha, spec.beta)?),
    };
    if spec.backend != Backend::TrainedPhysics && spec.dp > NonZeroU32::MIN {
        return Err(Error::DataParallel {
            dp: spec.dp,
            found: format!("the latency model is `{}`", spec.backend),
        });
    }
    let kv_blocks = match (spec.total_kv_blocks, &server) {
        (Some(blocks), _) => blocks,
        (None, None) => UNSIZED_BLOCKS,
        (None, Some(server)) => capacity::kv_blocks(
            &server.model,
            Room {
                hardware: &server.hardware,
                tp: server.parallelism.tp,
                dp: spec.dp,
                utilization: spec.gpu_memory_utilization,
                reserved_gib: spec.reserved_gib,
                block_tokens: spec.block_tokens,
            },
        )?,
    };
    let context = server.as_ref().and_then(|server| server.model.shape.context);
    let cache_tokens = kv_blocks.saturating_mul(spec.block_tokens);
    let max_model_len = spec.max_model_len.or_else(|| {
        context
            .and_then(NonZeroU32::new)
            .map(|context| context.min(cache_tokens))
    });
    Ok(Resolved {
        latency,
        backend: spec.backend,
        kv_blocks,
        max_model_len,
        server,
    })
}

/// Whether enough is said to know on what the model runs.
fn is_described(spec: &Spec<'_>) -> bool {
    let is_bundled = catalog::find(spec.model).is_some();
    let has_gpus = spec.hardware.is_some() && spec.tp.is_some();
    is_bundled || (spec.model_config.is_some() && has_gpus)
}

fn server(spec: &Spec<'_>) -> Result<Server, Error> {
    let model = match spec.model_config {
        Some(text) => Model::from_config(spec.model, text)?,
        None if spec.model.is_empty() => return Err(Error::NoModel),
        None => Model::bundled(spec.model)?,
    };
    let default = catalog::find(spec.model);
    let no_default = |flag| Error::NoDefault {
        model: model.name.clone(),
        flag,
    };
    let hardware = spec
        .hardware
        .or(default.map(|_| catalog::DEFAULT_HARDWARE))
        .ok_or_else(|| no_default("--hardware"))?;
    let tp = spec
        .tp
        .or(default.map(|entry| entry.tp))
        .ok_or_else(|| no_default("--tp"))?;
    Ok(Server {
        hardware: Hardware::named(hardware, spec.hardware_rows)?,
        parallelism: Parallelism {
            tp,
            dp: spec.dp,
            moe_communication: spec.moe_communication,
        },
        model,
    })
}
