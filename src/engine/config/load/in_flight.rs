//! Load in flight: what counts as the load of a request until it has been served.

use super::super::super::load::{AnswerEstimate, TokenLoad};
use super::super::super::plugin::{DEFAULT_LOAD_PRODUCER, DEFAULT_PREFIX_PRODUCER};
use super::super::report::Report;
use super::super::settings::{InflightLoadParams, Producer};
use super::registry::{Declared, Part, Registry, Resolved};

/// What the producer of load says that the plugins read. Load is counted once, so that of several producers one counts.
pub(super) fn planned(registry: &mut Registry, report: &mut Report) -> TokenLoad {
    let read: Vec<(String, usize)> = registry.load_producers().to_vec();
    for (name, consumer) in &read {
        check(name, *consumer, registry, report);
    }
    let declared: Vec<usize> = declared(registry).collect();
    let is_read = |at: &&usize| read.iter().any(|(name, _)| *name == *registry.at(**at).name);
    let chosen = declared.iter().find(is_read).or(declared.first()).copied();
    warn_of_the_others(&declared, chosen, registry, report);

    let params = chosen
        .and_then(|at| params_of(registry.at(at)))
        .cloned()
        .unwrap_or_default();
    let consumer = chosen.or(read.first().map(|(_, consumer)| *consumer));
    let producer = match params.prefix_match_info_producer_name.as_str() {
        "" => DEFAULT_PREFIX_PRODUCER,
        named => named,
    };
    let cached = registry.prefix_matches_for(producer, consumer);
    if let (None, Some(at)) = (cached, chosen)
        && producer != DEFAULT_PREFIX_PRODUCER
        && report.names_are_certain()
    {
        let path = format!("{}.parameters.prefixMatchInfoProducerName", registry.at(at).path());
        let meant = registry.meant(producer);
        let message =
            format!("no prefix producer is called `{producer}`, so that whole prompts count as load; {meant}");
        report.warning(&path, message);
    }
    TokenLoad {
        cached,
        answer: params.add_estimated_output_tokens.then(|| AnswerEstimate {
            ratio: params.output_ratio,
            max: params
                .max_estimated_output_tokens
                .and_then(|max| u64::try_from(max).ok()),
        }),
    }
}

/// The places of the declared producers of load.
fn declared(registry: &Registry) -> impl Iterator<Item = usize> {
    let places = registry.iter().enumerate();
    places
        .filter(|(_, declared)| params_of(declared).is_some())
        .map(|(at, _)| at)
}

fn params_of(declared: &Declared) -> Option<&InflightLoadParams> {
    match &declared.part {
        Part::Producer(Producer::InflightLoad(params)) => Some(params),
        _ => None,
    }
}

/// Checks that what a plugin reads is produced. The usual producer need not be declared.
fn check(name: &str, consumer: usize, registry: &mut Registry, report: &mut Report) {
    let path = format!("{}.parameters.inFlightLoadProducerName", registry.at(consumer).path());
    let consumed = format!(
        "InFlightLoadDataKey/{name}, consumed by {}",
        registry.at(consumer).full_name()
    );
    match registry.resolve(name, report) {
        Resolved::Plugin(plugin) if params_of(plugin).is_some() => {}
        Resolved::Plugin(plugin) if name == DEFAULT_LOAD_PRODUCER => {
            let message = format!(
                "`{name}` is the name of the default producer of load, and this is {}; load is counted as by default",
                plugin.a_kind()
            );
            report.warning(plugin.path(), message);
        }
        Resolved::Plugin(plugin) => {
            let message = format!("`{name}` is {}, and does not produce {consumed}", plugin.a_kind());
            report.error(&path, message);
        }
        Resolved::Undefined if name == DEFAULT_LOAD_PRODUCER => {}
        Resolved::Undefined => {
            let meant = registry.meant(name);
            report.error(
                &path,
                format!("no default producer found for missing data key {consumed}; {meant}"),
            );
        }
        Resolved::Reported => {}
    }
}

fn warn_of_the_others(declared: &[usize], chosen: Option<usize>, registry: &mut Registry, report: &mut Report) {
    let Some(chosen) = chosen else { return };
    for &other in declared.iter().filter(|other| **other != chosen) {
        let (name, first) = (registry.at(other).name.clone(), registry.at(chosen).name.clone());
        let path = registry.at(other).path().to_owned();
        registry.resolve(&name, report);
        let message = format!("`{name}` has no effect: load in flight is counted once, as `{first}` says");
        report.warning(&path, message);
    }
}
