//! Every plugin type there is, whatever table it stands in.

use std::fmt;

use super::super::admission::{self, AdmissionPolicy};
use super::super::flow::fairness::{self, FairnessPolicy};
use super::super::flow::ordering::{self, OrderingPolicy};
use super::super::flow::usage::{self, UsageLimitPolicy};
use super::super::plugin::{Entry, Parameter, Stability};
use super::super::saturation::{self, SaturationDetector};
use super::super::scheduling::{Filter, Picker, ProfileHandler, Scorer, filters, handlers, pickers, scorers};
use super::data_layer::{FileDiscoveryParams, MetricsSource};
use super::engine_metrics::EngineMapping;
use super::settings::{self, ParserKind, Producer};

/// What a plugin is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PluginKind {
    /// Decides which profiles run.
    ProfileHandler,
    /// Says who may serve.
    Filter,
    /// Has an opinion on who should serve.
    Scorer,
    /// Chooses.
    Picker,
    /// Learns what scorers read.
    DataProducer,
    /// Understands requests.
    Parser,
    /// Fetches what endpoints report.
    DataSource,
    /// Reads what a source fetched.
    Extractor,
    /// Finds endpoints.
    Discovery,
    /// Says what may come in.
    AdmissionPolicy,
    /// Says how full the pool is, and as a filter, who is not full.
    SaturationDetector,
    /// Chooses between the flows of a band.
    FairnessPolicy,
    /// Orders the requests of a flow.
    OrderingPolicy,
    /// Says how full the pool may be for each band.
    UsageLimitPolicy,
}

impl PluginKind {
    /// Every kind, in the order of the reference page.
    pub const ALL: [Self; 14] = [
        Self::ProfileHandler,
        Self::Filter,
        Self::Scorer,
        Self::Picker,
        Self::DataProducer,
        Self::Parser,
        Self::DataSource,
        Self::Extractor,
        Self::Discovery,
        Self::AdmissionPolicy,
        Self::SaturationDetector,
        Self::FairnessPolicy,
        Self::OrderingPolicy,
        Self::UsageLimitPolicy,
    ];

    /// What it is called in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ProfileHandler => "profile handler",
            Self::Filter => "filter",
            Self::Scorer => "scorer",
            Self::Picker => "picker",
            Self::DataProducer => "data producer",
            Self::Parser => "parser",
            Self::DataSource => "data source",
            Self::Extractor => "extractor",
            Self::Discovery => "discovery",
            Self::AdmissionPolicy => "admission policy",
            Self::SaturationDetector => "saturation detector",
            Self::FairnessPolicy => "fairness policy",
            Self::OrderingPolicy => "ordering policy",
            Self::UsageLimitPolicy => "usage limit policy",
        }
    }
}

impl fmt::Display for PluginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A plugin type, described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// What it is for.
    pub kind: PluginKind,
    /// The `type` in the configuration.
    pub type_name: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// What may stand under `parameters`.
    pub parameters: &'static [Parameter],
    /// How settled it is.
    pub stability: Stability,
}

impl CatalogEntry {
    fn of<T: ?Sized>(kind: PluginKind, entry: &Entry<T>) -> Self {
        Self {
            kind,
            type_name: entry.type_name,
            summary: entry.summary,
            parameters: entry.parameters,
            stability: entry.stability,
        }
    }
}

/// Every plugin type, by kind and then in the order of the tables. What stands in two of them is a detector.
pub fn catalog() -> Vec<CatalogEntry> {
    fn described<T: ?Sized>(kind: PluginKind, table: &[Entry<T>]) -> impl Iterator<Item = CatalogEntry> {
        table.iter().map(move |entry| CatalogEntry::of(kind, entry))
    }
    let is_detector = |entry: &CatalogEntry| saturation::TABLE.iter().any(|line| line.type_name == entry.type_name);
    described(PluginKind::ProfileHandler, handlers::TABLE)
        .chain(described(PluginKind::Filter, filters::TABLE).filter(|entry| !is_detector(entry)))
        .chain(described(PluginKind::Scorer, scorers::TABLE))
        .chain(described(PluginKind::Picker, pickers::TABLE))
        .chain(described(PluginKind::DataProducer, settings::PRODUCERS))
        .chain(described(PluginKind::Parser, settings::PARSERS))
        .chain(described(PluginKind::DataSource, settings::SOURCES))
        .chain(described(PluginKind::Extractor, settings::EXTRACTORS))
        .chain(described(PluginKind::Discovery, settings::DISCOVERIES))
        .chain(described(PluginKind::AdmissionPolicy, admission::TABLE))
        .chain(described(PluginKind::SaturationDetector, saturation::TABLE))
        .chain(described(PluginKind::FairnessPolicy, fairness::TABLE))
        .chain(described(PluginKind::OrderingPolicy, ordering::TABLE))
        .chain(described(PluginKind::UsageLimitPolicy, usage::TABLE))
        .collect()
}

/// Old names of types, and what they are called.
pub const ALIASES: &[(&str, &str)] = &[
    ("by-label-selector", "label-selector-filter"),
    ("kv-cache-scorer", "kv-cache-utilization-scorer"),
    ("model-server-protocol-metrics", "core-metrics-extractor"),
    ("tokenizer", "token-producer"),
];

/// A line of one of the tables.
#[derive(Clone, Copy, Debug)]
pub(super) enum Registered {
    ProfileHandler(&'static Entry<dyn ProfileHandler>),
    Filter(&'static Entry<dyn Filter>),
    Scorer(&'static Entry<dyn Scorer>),
    Picker(&'static Entry<dyn Picker>),
    DataProducer(&'static Entry<Producer>),
    Parser(&'static Entry<ParserKind>),
    DataSource(&'static Entry<MetricsSource>),
    Extractor(&'static Entry<EngineMapping>),
    Discovery(&'static Entry<FileDiscoveryParams>),
    Admission(&'static Entry<dyn AdmissionPolicy>),
    /// A detector, and the filter that it is in a profile.
    Detector(
        &'static Entry<dyn SaturationDetector>,
        Option<&'static Entry<dyn Filter>>,
    ),
    Fairness(&'static Entry<dyn FairnessPolicy>),
    Ordering(&'static Entry<dyn OrderingPolicy>),
    UsageLimit(&'static Entry<dyn UsageLimitPolicy>),
}

impl Registered {
    /// The line of this type, wherever it stands.
    pub(super) fn find(type_name: &str) -> Option<Self> {
        fn line<T: ?Sized>(table: &'static [Entry<T>], type_name: &str) -> Option<&'static Entry<T>> {
            table.iter().find(|entry| entry.type_name == type_name)
        }
        let scheduling = || {
            line(handlers::TABLE, type_name)
                .map(Self::ProfileHandler)
                .or_else(|| line(filters::TABLE, type_name).map(Self::Filter))
                .or_else(|| line(scorers::TABLE, type_name).map(Self::Scorer))
                .or_else(|| line(pickers::TABLE, type_name).map(Self::Picker))
        };
        let flow = || {
            line(fairness::TABLE, type_name)
                .map(Self::Fairness)
                .or_else(|| line(ordering::TABLE, type_name).map(Self::Ordering))
                .or_else(|| line(usage::TABLE, type_name).map(Self::UsageLimit))
        };
        // Before the filters, since detectors stand among them too.
        let detector = || {
            Some(Self::Detector(
                line(saturation::TABLE, type_name)?,
                line(filters::TABLE, type_name),
            ))
        };
        detector()
            .or_else(scheduling)
            .or_else(flow)
            .or_else(|| line(admission::TABLE, type_name).map(Self::Admission))
            .or_else(|| line(settings::PRODUCERS, type_name).map(Self::DataProducer))
            .or_else(|| line(settings::PARSERS, type_name).map(Self::Parser))
            .or_else(|| line(settings::SOURCES, type_name).map(Self::DataSource))
            .or_else(|| line(settings::EXTRACTORS, type_name).map(Self::Extractor))
            .or_else(|| line(settings::DISCOVERIES, type_name).map(Self::Discovery))
    }

    /// What the line says.
    pub(super) fn described(self) -> CatalogEntry {
        match self {
            Self::ProfileHandler(entry) => CatalogEntry::of(PluginKind::ProfileHandler, entry),
            Self::Filter(entry) => CatalogEntry::of(PluginKind::Filter, entry),
            Self::Scorer(entry) => CatalogEntry::of(PluginKind::Scorer, entry),
            Self::Picker(entry) => CatalogEntry::of(PluginKind::Picker, entry),
            Self::DataProducer(entry) => CatalogEntry::of(PluginKind::DataProducer, entry),
            Self::Parser(entry) => CatalogEntry::of(PluginKind::Parser, entry),
            Self::DataSource(entry) => CatalogEntry::of(PluginKind::DataSource, entry),
            Self::Extractor(entry) => CatalogEntry::of(PluginKind::Extractor, entry),
            Self::Discovery(entry) => CatalogEntry::of(PluginKind::Discovery, entry),
            Self::Admission(entry) => CatalogEntry::of(PluginKind::AdmissionPolicy, entry),
            Self::Detector(entry, _) => CatalogEntry::of(PluginKind::SaturationDetector, entry),
            Self::Fairness(entry) => CatalogEntry::of(PluginKind::FairnessPolicy, entry),
            Self::Ordering(entry) => CatalogEntry::of(PluginKind::OrderingPolicy, entry),
            Self::UsageLimit(entry) => CatalogEntry::of(PluginKind::UsageLimitPolicy, entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_type_is_there_once_and_is_found() {
        let types: Vec<_> = catalog().iter().map(|entry| entry.type_name).collect();

        assert_eq!(types.iter().collect::<BTreeSet<_>>().len(), types.len(), "{types:?}");
        for entry in catalog() {
            let found = Registered::find(entry.type_name).map(Registered::described);
            assert_eq!(found, Some(entry));
        }
    }

    #[test]
    fn old_names_lead_to_types_that_are_there() {
        for (old, name) in ALIASES {
            assert!(Registered::find(old).is_none(), "{old}");
            assert!(Registered::find(name).is_some(), "{name}");
        }
    }
}
