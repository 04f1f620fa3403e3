//! What runs: references resolved, defaults filled in, ranges checked.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::admission::AdmissionPolicy;
use super::super::flow::plan::FlowPlan;
use super::super::load::TokenLoad;
use super::super::pool::health::OutlierDetection;
use super::super::saturation::SaturationDetector;
use super::super::scheduling::{Instances, Named, PluginName, Profile, ProfileHandler};
use super::data_layer::{FileDiscoveryParams, MetricsSource};
use super::engine_metrics::EngineMapping;
use super::gates::FeatureGates;
use super::responses::ResponsePlan;
use super::settings::{ApproxPrefixParams, ParserKind, PrecisePrefixParams, PrefixAffinityParams, TokenEstimate};

/// Everything that a configuration decides.
#[derive(Debug)]
pub struct Plan {
    /// What the engine runs.
    pub engine: EnginePlan,
    /// Who understands requests, in order. Nothing comes after a fallback.
    pub parsers: Vec<ParserKind>,
    /// How media in prompts are counted, if anything is said of it: the settings of the first token producer.
    pub tokens: TokenEstimate,
    /// Where metrics and endpoints come from.
    pub data_layer: DataLayerPlan,
    /// What clients are told.
    pub responses: ResponsePlan,
    /// Which features are on.
    pub gates: FeatureGates,
    /// Plugins that nobody declared, in the order in which they were added.
    pub added: Vec<PluginName>,
}

impl Plan {
    /// The plugins that take part, each once, in the order in which a request meets them.
    pub fn plugins(&self) -> Vec<&PluginName> {
        let EnginePlan {
            admission,
            detector,
            flow,
            outliers: _,
            scheduling,
        } = &self.engine;
        let mut names = vec![&admission.name, &detector.name];
        if let Some(flow) = flow {
            names.push(&flow.usage.name);
            names.extend(flow.fairness.iter().map(|policy| &policy.name));
            names.extend(flow.ordering.iter().map(|policy| &policy.name));
        }
        names.push(&scheduling.handler.name);
        let Instances {
            filters,
            scorers,
            pickers,
        } = &scheduling.instances;
        names.extend(scheduling.prefix.iter().map(|producer| &producer.name));
        names.extend(filters.iter().map(|filter| &filter.name));
        names.extend(scorers.iter().map(|scorer| &scorer.name));
        names.extend(pickers.iter().map(|picker| &picker.name));
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(&name.name));
        names
    }
}

/// What the engine runs.
#[derive(Debug)]
pub struct EnginePlan {
    /// What may come in.
    pub admission: Named<dyn AdmissionPolicy>,
    /// How full the pool is.
    pub detector: Named<dyn SaturationDetector>,
    /// How requests wait. Without it they never do: what has a priority below zero is shed when the pool is full.
    pub flow: Option<FlowPlan>,
    /// When endpoints are ejected that fail requests.
    pub outliers: OutlierDetection,
    /// How endpoints are chosen.
    pub scheduling: SchedulingPlan,
}

/// How endpoints are chosen.
#[derive(Debug)]
pub struct SchedulingPlan {
    /// Decides which profiles run. It can work with as many as there are.
    pub handler: Named<dyn ProfileHandler>,
    /// The profiles, in order. At least one.
    pub profiles: Vec<Profile>,
    /// The instances that the profiles refer to. What several profiles name is one instance.
    pub instances: Instances,
    /// The prefix producers that plugins read, by [`PrefixRef`](super::super::plugin::PrefixRef).
    pub prefix: Vec<PrefixProducer>,
    /// What counts as the load of a request.
    pub load: TokenLoad,
}

/// Knows, or guesses, who has which prefix cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixProducer {
    /// What it is called.
    pub name: PluginName,
    /// Where it knows it from.
    pub source: PrefixSource,
}

/// Where it is known from who has which prefix cached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixSource {
    /// From who served what, in the way of the reference.
    Approx(ApproxPrefixParams),
    /// From who served what, in full blocks from the start of a prompt.
    Affinity(PrefixAffinityParams),
    /// From the endpoints.
    Caches {
        /// What it is set to.
        params: PrecisePrefixParams,
        /// Somebody tells what they have cached ([`Input::CacheChanged`](super::super::Input::CacheChanged)).
        is_fed: bool,
    },
}

impl PrefixSource {
    /// Tokens of a block, where this and not the endpoints decide.
    pub fn block_tokens(&self) -> u32 {
        match self {
            Self::Approx(params) => params.block_size_tokens,
            Self::Affinity(params) => params.block_size_tokens.get(),
            Self::Caches { params, .. } => params.block_size_tokens.get(),
        }
    }

    /// True if blocks of another size would not do. An approximate index can go by any.
    pub fn is_exact(&self) -> bool {
        !matches!(self, Self::Approx(_))
    }
}

/// Where metrics and endpoints come from.
#[derive(Clone, Debug)]
pub struct DataLayerPlan {
    /// What is fetched from each endpoint. At least one.
    pub sources: Vec<SourcePlan>,
    /// The files with endpoints and objectives; without them both come from Kubernetes.
    pub discovery: Option<FileDiscoveryParams>,
}

/// Something that is fetched from each endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcePlan {
    /// Its instance name.
    pub name: Arc<str>,
    /// Where it is.
    pub source: MetricsSource,
    /// Who reads it.
    pub extractors: Vec<ExtractorPlan>,
}

/// Who reads what a source fetched.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtractorPlan {
    /// Its instance name.
    pub name: Arc<str>,
    /// Which metric says what.
    pub mapping: EngineMapping,
}
