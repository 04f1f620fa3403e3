//! Prefix producers: what scorers need and nobody declared (spec, config 5).

use super::super::super::plugin::{DEFAULT_PREFIX_PRODUCER, Plugin};
use super::super::plan::PrefixProducer;
use super::super::report::Report;
use super::super::settings::{ApproxPrefixParams, Producer, TokenProducer};
use super::registry::{Declared, Part, Registry, Resolved};

/// The producers that plugins read, in the order of their references; the default one and what it needs are added.
pub(super) fn planned(registry: &mut Registry, report: &mut Report) -> Vec<PrefixProducer> {
    let needed = registry.prefix_producers();
    let producers = needed
        .iter()
        .filter_map(|(name, consumer)| producer(name, *consumer, registry, report));
    let producers: Vec<PrefixProducer> = producers.collect();
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
    producers
}

fn producer(name: &str, consumer: usize, registry: &mut Registry, report: &mut Report) -> Option<PrefixProducer> {
    if name == DEFAULT_PREFIX_PRODUCER {
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
    match registry.resolve(name, report) {
        Resolved::Plugin(plugin) => match &plugin.part {
            Part::Producer(Producer::ApproxPrefix(params)) => {
                return Some(PrefixProducer {
                    name: plugin.name.clone(),
                    params: params.clone(),
                });
            }
            _ if name == DEFAULT_PREFIX_PRODUCER => {
                let message = format!(
                    "`{name}` is the name of the default prefix producer, and this is {}; prefix matches come from a \
                     default one all the same",
                    plugin.a_kind()
                );
                report.warning(plugin.path(), message);
                return Some(PrefixProducer {
                    name: plugin.name.clone(),
                    params: ApproxPrefixParams::default(),
                });
            }
            _ => {
                let message = format!("{missing}; `{name}` is {}, and knows no prefixes", plugin.a_kind());
                report.error(&path, message);
            }
        },
        Resolved::Undefined => {
            let meant = registry.meant(name);
            report.error(&path, format!("{missing}; {meant}"));
        }
        Resolved::Reported => {}
    }
    None
}
