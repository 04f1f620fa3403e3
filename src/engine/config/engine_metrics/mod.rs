//! Which metrics of which engine say what.
//!
//! Five engines are built in; users add others or replace those. A mapping is checked when it is made, and after that
//! an endpoint always has an engine: the one that its labels name, or the default one.

mod builtin;
mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;

pub use spec::{MetricSpec, MetricSpecError};

/// The label that named the engine before `engineLabelKey` could.
pub const LEGACY_ENGINE_LABEL: &str = "inference.networking.k8s.io/engine-type";

/// An engine as a user describes it. Specs are `name` or `name{label=value}`; an empty one is not collected.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Name of the engine. Required; not `default`.
    pub name: String,
    /// Requests in the server's queue.
    pub queued_requests_spec: String,
    /// Requests in the running batch.
    pub running_requests_spec: String,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_usage_spec: String,
    /// Metric whose labels list LoRA adapters.
    pub lora_spec: String,
    /// Metric with the shape of the cache in its labels.
    pub cache_info_spec: String,
    /// Its label with the tokens of a block. Default: `block_size`.
    pub cache_block_size_label_name: String,
    /// Its label with the number of blocks. Default: `num_gpu_blocks`.
    pub cache_num_blocks_label_name: String,
    /// Tokens of a block, as a metric of its own.
    pub cache_block_size_spec: String,
    /// Number of blocks, as a metric of its own.
    pub cache_num_blocks_spec: String,
    /// Metrics that plugins may ask for by name.
    pub custom_metrics: Vec<CustomMetric>,
}

/// A metric that plugins may ask for by name.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomMetric {
    /// The name that plugins know it by. Unique within an engine.
    pub attribute_key: String,
    /// Where it is.
    pub metric_spec: String,
}

/// Where an engine says what. A list holds alternatives, the preferred one first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineMetrics {
    /// Requests in the server's queue.
    pub waiting: Vec<MetricSpec>,
    /// Requests in the running batch.
    pub running: Vec<MetricSpec>,
    /// Share of the KV cache in use.
    pub kv_usage: Vec<MetricSpec>,
    /// Lists of LoRA adapters, in labels.
    pub lora: Option<MetricSpec>,
    /// Shape of the cache, in labels.
    pub cache_info: Option<CacheInfo>,
    /// Tokens of a KV block.
    pub block_tokens: Option<MetricSpec>,
    /// Number of KV blocks.
    pub total_blocks: Option<MetricSpec>,
}

/// A metric with the shape of the cache in its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheInfo {
    /// The metric.
    pub spec: MetricSpec,
    /// Its label with the tokens of a block.
    pub block_tokens_label: String,
    /// Its label with the number of blocks.
    pub total_blocks_label: String,
}

/// Why a mapping cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineMappingError {
    /// The default engine is not there.
    #[error("defaultEngine \"{engine}\" not found in engineConfigs; known engines: {known}")]
    UnknownDefault {
        /// The engine that was named.
        engine: String,
        /// Those that are known.
        known: String,
    },
    /// An engine has no name.
    #[error("engineConfigs[{index}]: `name` is required")]
    Unnamed {
        /// Position in the list, from 0.
        index: usize,
    },
    /// An engine has the name that stands for the default one.
    #[error("engineConfigs[{index}]: the name `default` is reserved; name the engine and set `defaultEngine`")]
    ReservedName {
        /// Position in the list, from 0.
        index: usize,
    },
    /// Two engines have one name.
    #[error("engineConfigs[{index}]: engine `{name}` is described twice")]
    Duplicate {
        /// Position of the second one, from 0.
        index: usize,
        /// The name.
        name: String,
    },
    /// A metric spec is wrong.
    #[error("engineConfigs[{index}] (`{engine}`): {field}: {source}")]
    Spec {
        /// Position in the list, from 0.
        index: usize,
        /// Name of the engine.
        engine: String,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        source: MetricSpecError,
    },
    /// A custom metric lacks its name, or has that of another one.
    #[error("engineConfigs[{index}] (`{engine}`): customMetrics: attributeKey `{key}` is empty or given twice")]
    CustomKey {
        /// Position in the list, from 0.
        index: usize,
        /// Name of the engine.
        engine: String,
        /// The key.
        key: String,
    },
}

/// All engines, and how to tell which one an endpoint runs.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineMapping {
    label_key: String,
    default: Arc<EngineMetrics>,
    engines: BTreeMap<String, Arc<EngineMetrics>>,
}

impl EngineMapping {
    /// The built-in engines, with `configs` added or in the place of those with the same name.
    ///
    /// # Errors
    ///
    /// See [`EngineMappingError`].
    pub fn new(label_key: &str, default_engine: &str, configs: &[EngineConfig]) -> Result<Self, EngineMappingError> {
        let mut engines: BTreeMap<_, _> = builtin::engines()
            .into_iter()
            .map(|(name, metrics)| (name.to_owned(), Arc::new(metrics)))
            .collect();
        let mut described = BTreeSet::new();
        for (index, config) in configs.iter().enumerate() {
            let name = config.name.clone();
            if name.is_empty() {
                return Err(EngineMappingError::Unnamed { index });
            }
            if name == "default" {
                return Err(EngineMappingError::ReservedName { index });
            }
            if !described.insert(name.clone()) {
                return Err(EngineMappingError::Duplicate { index, name });
            }
            engines.insert(name, Arc::new(config.compile(index)?));
        }
        let Some(default) = engines.get(default_engine).cloned() else {
            return Err(EngineMappingError::UnknownDefault {
                engine: default_engine.to_owned(),
                known: engines.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
            });
        };
        Ok(Self {
            label_key: label_key.to_owned(),
            default,
            engines,
        })
    }

    /// The engine of an endpoint with these labels: that of the label `engineLabelKey`, else of
    /// [`LEGACY_ENGINE_LABEL`], and the default one if neither is there or its engine is not known.
    pub fn engine_of(&self, labels: &BTreeMap<String, String>) -> &Arc<EngineMetrics> {
        let named = labels.get(&self.label_key).or_else(|| labels.get(LEGACY_ENGINE_LABEL));
        named.and_then(|name| self.engines.get(name)).unwrap_or(&self.default)
    }

    /// The engine with this name.
    pub fn engine(&self, name: &str) -> Option<&Arc<EngineMetrics>> {
        self.engines.get(name)
    }
}

impl EngineConfig {
    /// `index` is its position in the list, for errors.
    fn compile(&self, index: usize) -> Result<EngineMetrics, EngineMappingError> {
        let spec = |field, text: &str| match text {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|source| EngineMappingError::Spec {
                index,
                engine: self.name.clone(),
                field,
                source,
            }),
        };
        let or = |label: &str, default: &str| if label.is_empty() { default } else { label }.to_owned();
        let mut keys = BTreeSet::new();
        for custom in &self.custom_metrics {
            if custom.attribute_key.is_empty() || !keys.insert(&custom.attribute_key) {
                return Err(EngineMappingError::CustomKey {
                    index,
                    engine: self.name.clone(),
                    key: custom.attribute_key.clone(),
                });
            }
            if spec("customMetrics", &custom.metric_spec)?.is_none() {
                return Err(EngineMappingError::Spec {
                    index,
                    engine: self.name.clone(),
                    field: "customMetrics",
                    source: MetricSpecError::malformed(""),
                });
            }
        }
        let cache_info = spec("cacheInfoSpec", &self.cache_info_spec)?.map(|spec| CacheInfo {
            spec,
            block_tokens_label: or(&self.cache_block_size_label_name, "block_size"),
            total_blocks_label: or(&self.cache_num_blocks_label_name, "num_gpu_blocks"),
        });
        Ok(EngineMetrics {
            waiting: spec("queuedRequestsSpec", &self.queued_requests_spec)?
                .into_iter()
                .collect(),
            running: spec("runningRequestsSpec", &self.running_requests_spec)?
                .into_iter()
                .collect(),
            kv_usage: spec("kvUsageSpec", &self.kv_usage_spec)?.into_iter().collect(),
            lora: spec("loraSpec", &self.lora_spec)?,
            cache_info,
            block_tokens: spec("cacheBlockSizeSpec", &self.cache_block_size_spec)?,
            total_blocks: spec("cacheNumBlocksSpec", &self.cache_num_blocks_spec)?,
        })
    }
}

#[cfg(test)]
mod tests;
