//! The data layer: where metrics and endpoints come from.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::super::plugin::Plugin;
use super::super::data_layer::{FileDiscoveryParams, MetricsSource};
use super::super::document::{DataLayer, DataSource, Document, Reference};
use super::super::engine_metrics::EngineMapping;
use super::super::plan::{DataLayerPlan, ExtractorPlan, SourcePlan};
use super::super::report::Report;
use super::super::suggest;
use super::registry::{Part, Registry, Resolved};
use super::version::Version;

/// The section on the data layer, whatever it is called.
pub(super) fn of<'d>(document: &'d Document, report: &mut Report) -> &'d DataLayer {
    let Some(data) = &document.data else {
        return &document.data_layer;
    };
    if document.data_layer == DataLayer::default() {
        report.warning("data", "`data` is deprecated; write `dataLayer`");
        data
    } else {
        report.warning("data", "`data` is deprecated, and has no effect beside `dataLayer`");
        &document.data_layer
    }
}

/// The data layer (spec, config 4, D5).
pub(super) fn planned(
    layer: &DataLayer,
    version: Version,
    registry: &mut Registry,
    report: &mut Report,
) -> DataLayerPlan {
    warn_of_the_unsynchronised(layer, report);
    let mut sources: Vec<(String, &DataSource)> = Vec::new();
    for (at, source) in layer.sources.iter().enumerate() {
        sources.push((format!("dataLayer.sources[{at}]"), source));
    }
    let usual = DataSource {
        plugin_ref: MetricsSource::TYPE.to_owned(),
        extractors: vec![Reference {
            plugin_ref: EngineMapping::TYPE.to_owned(),
        }],
    };
    let has_usual = layer.sources.iter().any(|source| source.plugin_ref == usual.plugin_ref);
    if layer.inject_defaults.unwrap_or(true) && !has_usual {
        registry.ensure(MetricsSource::TYPE, report);
        registry.ensure(EngineMapping::TYPE, report);
        sources.push(("dataLayer".to_owned(), &usual));
    }
    let sources = sources
        .iter()
        .filter_map(|(path, source)| source_plan(path, source, registry, report));
    let sources = sources.collect();
    DataLayerPlan {
        sources,
        discovery: discovery(layer, version, registry, report),
    }
}

/// Warns if nothing is learnt from endpoints. To be called when it is known which plugins are at work.
pub(super) fn warn_of_the_blind(layer: &DataLayer, plan: &DataLayerPlan, registry: &Registry, report: &mut Report) {
    if !plan.sources.is_empty() || report.has_errors() {
        return;
    }
    let path = match layer.inject_defaults {
        Some(_) => "dataLayer.injectDefaults",
        None => "dataLayer",
    };
    let readers = registry.readers_of_signals();
    let consequence = match readers.as_slice() {
        [] => "no plugin at work reads them".to_owned(),
        readers => format!(
            "{} go by them, and see endpoints that were never scraped",
            suggest::listed(readers.iter().copied())
        ),
    };
    report.warning(
        path,
        format!("no data sources configured; metrics collection is disabled: {consequence}"),
    );
}

/// Warns if metrics are too old between two scrapes for a plugin that reads them. `refresh` is the time between two looks
/// where a source has none of its own, if that is known.
pub(super) fn warn_of_the_stale(
    plan: &DataLayerPlan,
    refresh: Option<Duration>,
    registry: &Registry,
    report: &mut Report,
) {
    let intervals = plan.sources.iter().filter(|source| !source.extractors.is_empty());
    let intervals = intervals.filter_map(|source| Some((source.source.interval.or(refresh)?, source)));
    let Some((interval, source)) = intervals.min_by_key(|(interval, _)| *interval) else {
        return;
    };
    for (reader, age) in registry.readers_of_fresh_signals().filter(|(_, age)| *age <= interval) {
        let path = match &reader.path {
            Some(path) => format!("{path}.parameters.metricsStalenessThreshold"),
            None => "dataLayer".to_owned(),
        };
        let from = match source.source.interval {
            Some(_) => format!("`interval` of `{}`", source.name),
            None => "`--refresh-metrics-interval`".to_owned(),
        };
        let message = format!(
            "`{}` takes metrics that are older than {age:?} for stale, and they come every {interval:?} ({from}): between \
             two scrapes every endpoint counts as full; raise `metricsStalenessThreshold` to several intervals",
            reader.name
        );
        report.warning(&path, message);
    }
}

/// Says what is accepted for the sake of configurations that have it, and does nothing.
fn warn_of_the_unsynchronised(layer: &DataLayer, report: &mut Report) {
    let nested = layer.cross_replica.as_ref();
    let syncers = [
        (
            "dataLayer.crossReplicaSyncerPluginRef",
            Some(&layer.cross_replica_syncer_plugin_ref),
        ),
        (
            "dataLayer.crossReplica.syncerPluginRef",
            nested.map(|nested| &nested.syncer_plugin_ref),
        ),
    ];
    for (path, syncer) in syncers {
        if let Some(syncer) = syncer.filter(|name| !name.is_empty()) {
            let message =
                format!("the plugin {syncer} is not a fwkdl.CrossReplicaSyncer; no plugin is, so leave this out");
            report.error(path, message);
        }
    }
    let peers = layer.discovery.as_ref().and_then(|discovery| discovery.peers.as_ref());
    let without_effect = [
        (
            "crossReplicaSyncInterval",
            layer.cross_replica_sync_interval.is_some(),
            SYNCHRONISED,
        ),
        (
            "crossReplicaPublishTimeout",
            layer.cross_replica_publish_timeout.is_some(),
            SYNCHRONISED,
        ),
        (
            "crossReplica.syncInterval",
            nested.is_some_and(|nested| nested.sync_interval.is_some()),
            SYNCHRONISED,
        ),
        (
            "crossReplica.publishTimeout",
            nested.is_some_and(|nested| nested.publish_timeout.is_some()),
            SYNCHRONISED,
        ),
        ("peerDiscovery", layer.peer_discovery.is_some(), PEERS),
        ("discovery.peers", peers.is_some(), PEERS),
    ];
    for (field, _, message) in without_effect.into_iter().filter(|(_, given, _)| *given) {
        report.warning(&format!("dataLayer.{field}"), message);
    }
}

const SYNCHRONISED: &str = "this has no effect: nothing synchronises replicas";
const PEERS: &str = "this has no effect: replicas do not look for each other";

fn source_plan(path: &str, source: &DataSource, registry: &mut Registry, report: &mut Report) -> Option<SourcePlan> {
    let name = source.plugin_ref.as_str();
    let reference = format!("{path}.pluginRef");
    let not_a_source = |reason: String| format!("the plugin {name} is not a fwkdl.DataSource: {reason}");
    let plan = match registry.resolve(name, report) {
        Resolved::Plugin(plugin) if matches!(plugin.part, Part::UnneededSource) => {
            check_readers_of_the_unneeded(path, source, registry, report);
            return None;
        }
        Resolved::Plugin(plugin) => match &plugin.part {
            Part::Source(source) => Some(SourcePlan {
                name: plugin.name.clone(),
                source: source.clone(),
                extractors: Vec::new(),
            }),
            _ => {
                report.error(&reference, not_a_source(format!("it is {}", plugin.a_kind())));
                None
            }
        },
        Resolved::Undefined => {
            let meant = registry.meant(name);
            report.error(&reference, not_a_source(format!("nothing has that name; {meant}")));
            None
        }
        Resolved::Reported => None,
    };
    if source.extractors.is_empty() {
        let message = format!("nothing is learnt from `{name}`: no extractor reads it");
        report.warning(&format!("{path}.extractors"), message);
    }
    let extractors = extractor_plans(path, source, registry, report);
    plan.map(|plan| SourcePlan { extractors, ..plan })
}

/// What reads a source that is not needed may be any plugin, but there has to be one.
fn check_readers_of_the_unneeded(path: &str, source: &DataSource, registry: &mut Registry, report: &mut Report) {
    for (at, reader) in source.extractors.iter().enumerate() {
        let name = reader.plugin_ref.as_str();
        if let Resolved::Undefined = registry.resolve(name, report) {
            let meant = registry.meant(name);
            report.error(
                &format!("{path}.extractors[{at}].pluginRef"),
                format!("the plugin {name} is not registered; {meant}"),
            );
        }
    }
}

fn extractor_plans(
    path: &str,
    source: &DataSource,
    registry: &mut Registry,
    report: &mut Report,
) -> Vec<ExtractorPlan> {
    let mut extractors = Vec::new();
    let mut first_of_type: BTreeMap<String, String> = BTreeMap::new();
    for (at, extractor) in source.extractors.iter().enumerate() {
        let path = format!("{path}.extractors[{at}].pluginRef");
        let name = extractor.plugin_ref.as_str();
        match registry.resolve(name, report) {
            Resolved::Plugin(plugin) => match &plugin.part {
                Part::Extractor(mapping) => {
                    if let Some(first) = first_of_type.insert(plugin.type_name.clone(), name.to_owned()) {
                        let message = format!(
                            "duplicate extractor type configured for the same source: `{first}` and `{name}` are both of \
                             type `{}`",
                            plugin.type_name
                        );
                        report.error(&path, message);
                    }
                    extractors.push(ExtractorPlan {
                        name: plugin.name.clone(),
                        mapping: mapping.clone(),
                    });
                }
                _ => {
                    let message = format!("`{name}` is {}, and an extractor is needed here", plugin.a_kind());
                    report.error(&path, message);
                }
            },
            Resolved::Undefined => {
                let meant = registry.meant(name);
                report.error(&path, format!("the plugin {name} is not registered; {meant}"));
            }
            Resolved::Reported => {}
        }
    }
    extractors
}

/// The plugin that finds endpoints instead of Kubernetes, if one is named.
fn discovery(
    layer: &DataLayer,
    version: Version,
    registry: &mut Registry,
    report: &mut Report,
) -> Option<FileDiscoveryParams> {
    let section = layer.discovery.as_ref()?;
    let (path, name) = match (&section.endpoints, &section.plugin_ref) {
        (Some(endpoints), old) => {
            if old.is_some() {
                let message = "this has no effect beside `dataLayer.discovery.endpoints`";
                report.warning("dataLayer.discovery.pluginRef", message);
            }
            ("dataLayer.discovery.endpoints.pluginRef", endpoints.plugin_ref.as_str())
        }
        (None, Some(name)) => {
            version.warn_of_the_moved("dataLayer.discovery", "pluginRef", "endpoints.pluginRef", report);
            ("dataLayer.discovery.pluginRef", name.as_str())
        }
        // It speaks of peers alone.
        (None, None) if section.peers.is_some() => return None,
        (None, None) => ("dataLayer.discovery", ""),
    };
    match registry.resolve(name, report) {
        Resolved::Plugin(plugin) => match &plugin.part {
            Part::Discovery(params) => return Some(params.clone()),
            _ => {
                let kind = plugin.a_kind();
                let message =
                    format!("discovery: plugin \"{name}\" does not implement EndpointDiscovery; it is {kind}");
                report.error(path, message);
            }
        },
        Resolved::Undefined => {
            let meant = registry.meant(name);
            report.error(
                path,
                format!("discovery: no plugin found with name \"{name}\"; {meant}"),
            );
        }
        Resolved::Reported => {}
    }
    None
}
