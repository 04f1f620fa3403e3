//! Prefix producers: what scorers need and nobody declared (spec, config 5).

use super::super::super::plugin::{DEFAULT_PREFIX_PRODUCER, PRECISE_PREFIX_PRODUCER, PREFIX_AFFINITY_PRODUCER, Plugin};
use super::super::super::scheduling::PluginName;
use super::super::plan::{PrefixProducer, PrefixSource};
use super::super::report::Report;
use super::super::settings::{ApproxPrefixParams, PrecisePrefixParams, PrefixAffinityParams, Producer, TokenProducer};
use super::registry::{Declared, Part, Registry, Resolved};

/// The producers that plugins read, in the order of their references; the default ones and what they need are added.
/// `cache_source` says whether somebody tells what endpoints have cached.
pub(super) fn planned(registry: &mut Registry, cache_source: bool, report: &mut Report) -> Vec<PrefixProducer> {
    let needed = registry.prefix_producers();
    let mut producers = Vec::new();
    for (name, consumer) in &needed {
        if let Some((path, producer)) = producer(name, *consumer, registry, cache_source, report) {
            if matches!(producer.source, PrefixSource::Caches { is_fed: false, .. }) {
                warn_of_ignorance(&producer, registry.at(*consumer), report);
            }
            producers.push((path, producer));
        }
    }
    warn_of_other_blocks(&producers, report);
    if !needed.is_empty() {
        let is_token = |declared: &Declared| matches!(declared.part, Part::Producer(Producer::Token(_)));
        let declared = registry.iter().find(|declared| is_token(declared));
        match declared.map(|declared| declared.name.clone()) {
            // Any token producer will do, whatever its name.
            Some(name) => {
                registry.resolve(&name, report);
            }
            None => registry.ensure(TokenProducer::TYPE, report),
        }
    }
    producers.into_iter().map(|(_, producer)| producer).collect()
}

/// What stands under this name when nobody declared it.
fn default_source(name: &str, is_fed: bool) -> Option<(&'static str, PrefixSource)> {
    Some(match name {
        DEFAULT_PREFIX_PRODUCER => (
            ApproxPrefixParams::TYPE,
            PrefixSource::Approx(ApproxPrefixParams::default()),
        ),
        PREFIX_AFFINITY_PRODUCER => (
            PrefixAffinityParams::TYPE,
            PrefixSource::Affinity(PrefixAffinityParams::default()),
        ),
        PRECISE_PREFIX_PRODUCER => {
            let params = PrecisePrefixParams::default();
            (PrecisePrefixParams::TYPE, PrefixSource::Caches { params, is_fed })
        }
        _ => return None,
    })
}

fn source_of(producer: &Producer, is_fed: bool) -> Option<(&'static str, PrefixSource)> {
    Some(match producer {
        Producer::ApproxPrefix(params) => (ApproxPrefixParams::TYPE, PrefixSource::Approx(params.clone())),
        Producer::PrefixAffinity(params) => (PrefixAffinityParams::TYPE, PrefixSource::Affinity(*params)),
        Producer::PrecisePrefix(params) => {
            let params = *params;
            (PrecisePrefixParams::TYPE, PrefixSource::Caches { params, is_fed })
        }
        Producer::Token(_) | Producer::InflightLoad(_) => return None,
    })
}

/// A producer, and where it was declared.
fn producer(
    name: &str,
    consumer: usize,
    registry: &mut Registry,
    is_fed: bool,
    report: &mut Report,
) -> Option<(String, PrefixProducer)> {
    let default = default_source(name, is_fed);
    if default.is_some() {
        registry.ensure(name, report);
    }
    let path = format!(
        "{}.parameters.prefixMatchInfoProducerName",
        registry.at(consumer).path()
    );
    let missing = format!(
        "no default producer found for missing data key PrefixCacheMatchInfoDataKey/{name}, consumed by {}",
        registry.at(consumer).full_name()
    );
    let plugin = match registry.resolve(name, report) {
        Resolved::Plugin(plugin) => plugin,
        Resolved::Undefined => {
            let meant = registry.meant(name);
            report.error(&path, format!("{missing}; {meant}"));
            return None;
        }
        Resolved::Reported => return None,
    };
    let declared = match &plugin.part {
        Part::Producer(producer) => source_of(producer, is_fed),
        _ => None,
    };
    let (type_name, source) = match (declared, default) {
        (Some(declared), _) => declared,
        (None, Some(default)) => {
            let message = format!(
                "`{name}` is the name of a default prefix producer, and this is {}; prefix matches come from a \
                 default one all the same",
                plugin.a_kind()
            );
            report.warning(plugin.path(), message);
            default
        }
        (None, None) => {
            let message = format!("{missing}; `{name}` is {}, and knows no prefixes", plugin.a_kind());
            report.error(&path, message);
            return None;
        }
    };
    let producer = PrefixProducer {
        name: PluginName {
            name: plugin.name.clone(),
            type_name,
        },
        source,
    };
    Some((plugin.path().to_owned(), producer))
}

fn warn_of_ignorance(producer: &PrefixProducer, consumer: &Declared, report: &mut Report) {
    let message = format!(
        "nothing tells `{}` what endpoints have cached: this version does not listen to their events. By what it knows \
         all endpoints are alike, and `{}` scores them the same",
        producer.name.name, consumer.name
    );
    report.warning(consumer.path(), message);
}

/// Prompts are cut in blocks once for all producers, as one of them says.
fn warn_of_other_blocks(producers: &[(String, PrefixProducer)], report: &mut Report) {
    let exact = producers.iter().find(|(_, producer)| producer.source.is_exact());
    let Some((_, first)) = exact.or(producers.first()) else {
        return;
    };
    let block_tokens = first.source.block_tokens();
    for (path, other) in producers {
        if other.source.block_tokens() != block_tokens {
            let message = format!(
                "`{}` is set to blocks of {} tokens, and `{}` to blocks of {block_tokens}; prompts are cut in blocks \
                 once for both, of {block_tokens} tokens",
                other.name.name,
                other.source.block_tokens(),
                first.name.name
            );
            report.warning(path, message);
        }
    }
}
