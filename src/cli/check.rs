//! `forebay check`: says whether a configuration can run, what is wrong with it, and what it comes to.

use std::fmt::Write as _;
use std::iter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use forebay::engine::config::responses::{ErrorFormat, ResponsePlan};
use forebay::engine::config::{LoadOptions, Loaded, Plan, SourceName, load};
use forebay::engine::flow::plan::{BandPlan, FlowPlan, GlobalLimits};
use forebay::engine::pool::health::OutlierDetection;
use forebay::engine::scheduling::{InstanceRef, Named, PluginName, Profile};

use super::print::print;
use super::source;

/// Checks a configuration file without running anything
///
/// Prints everything that is wrong as `file:line: error: field: message`, or else what the configuration comes to.
/// Ends with status 0 if it can run, and 1 if not.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The file; `-` reads standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Accept plugins of alpha stability
    #[arg(long)]
    allow_experimental_plugins: bool,
}

pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    checked(args).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn checked(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let (text, source) = source::configuration(&args.file)?;
    let options = LoadOptions {
        allow_experimental_plugins: args.allow_experimental_plugins,
        ..LoadOptions::default()
    };
    let (answer, code) = answer(&text, &source, options);
    print(&answer)?;
    Ok(code)
}

/// What is printed for `text`, and how the process ends.
fn answer(text: &str, source: &SourceName, options: LoadOptions) -> (String, ExitCode) {
    match load(text, source, &options) {
        Ok(Loaded { plan, warnings }) => {
            let mut answer: String = warnings.iter().map(|warning| format!("{warning}\n")).collect();
            answer.push_str(&format!("{source}: ok\n"));
            answer.push_str(&summary(&plan));
            (answer, ExitCode::SUCCESS)
        }
        Err(errors) => (format!("{errors}\n"), ExitCode::FAILURE),
    }
}

/// What a plan comes to, for people.
fn summary(plan: &Plan) -> String {
    let mut text = String::new();
    let mut line = |words: String| {
        writeln!(text, "{words}").expect("text can always be written to a string");
    };
    let scheduling = &plan.engine.scheduling;
    line(format!("profile handler: {}", full(&scheduling.handler.name)));
    for profile in &scheduling.profiles {
        line(format!("profile {}:", profile.name));
        profile_lines(profile, plan).for_each(&mut line);
    }
    for producer in &scheduling.prefix {
        line(format!("prefix matches from: {}", full(&producer.name)));
    }
    line(format!(
        "parsers: {}",
        joined(plan.parsers.iter().map(|parser| parser.type_name().to_owned()))
    ));
    for source in &plan.data_layer.sources {
        let extractors = joined(source.extractors.iter().map(|extractor| extractor.name.to_string()));
        line(format!("metrics from: {}, read by {extractors}", source.name));
    }
    line(match &plan.data_layer.discovery {
        Some(file) => format!("endpoints from: the file {}", file.path),
        None => "endpoints from: Kubernetes".to_owned(),
    });
    if let Some(file) = &plan.data_layer.discovery
        && !file.objectives_path.is_empty()
    {
        line(format!("objectives from: the file {}", file.objectives_path));
    }
    line(format!("admission: {}", full(&plan.engine.admission.name)));
    line(format!("saturation by: {}", full(&plan.engine.detector.name)));
    line(format!("outlier detection: {}", outliers(&plan.engine.outliers)));
    match &plan.engine.flow {
        Some(flow) => flow_lines(flow).for_each(&mut line),
        None => line("flow control: off".to_owned()),
    }
    response_lines(&plan.responses).for_each(&mut line);
    line(format!("added: {}", joined(plan.added.iter().map(full))));
    text
}

fn profile_lines(profile: &Profile, plan: &Plan) -> impl Iterator<Item = String> {
    let instances = &plan.engine.scheduling.instances;
    let filters = profile
        .filters()
        .iter()
        .map(|filter| format!("  filter  {}", at(&instances.filters, *filter)));
    let scorers = profile.scorers().iter().map(|scorer| {
        let name = at(&instances.scorers, scorer.scorer);
        format!("  scorer  {name}, weight {}", scorer.weight)
    });
    let picker = format!("  picker  {}", at(&instances.pickers, profile.picker()));
    filters.chain(scorers).chain(iter::once(picker))
}

fn flow_lines(flow: &FlowPlan) -> impl Iterator<Item = String> {
    let GlobalLimits { bytes, requests } = flow.limits;
    let mut bands = flow.bands.iter().chain([&flow.template, &flow.negative_template]);
    let displaces =
        flow.displace_when_full && bands.any(|band| flow.fairness[band.fairness.0].plugin.tells_flows_apart());
    let limit = |limit: Option<u64>| limit.map_or("any number of".to_owned(), |limit| format!("up to {limit}"));
    let band = |name: String, band: &BandPlan| {
        format!(
            "  {name}: {} requests, {} bytes, {}, {}, TTL {}",
            band.max_requests,
            band.max_bytes,
            at(&flow.fairness, band.fairness),
            at(&flow.ordering, band.ordering),
            ttl(band.ttl)
        )
    };
    let bands = flow.bands.iter();
    let bands = bands.map(|plan| band(format!("band {}", plan.priority), plan));
    [
        format!(
            "flow control: {} requests, {} bytes{}",
            limit(requests),
            limit(bytes),
            match (flow.shed_when_full, displaces) {
                (true, true) => ", where less urgent ones and tenants with more make room",
                (true, false) => ", where less urgent ones make room",
                (false, true) => ", where tenants with more make room",
                (false, false) => "",
            }
        ),
        format!("  usage limits by: {}", full(&flow.usage.name)),
        format!("  TTL without endpoints: {}", ttl(flow.without_endpoints)),
    ]
    .into_iter()
    .chain(bands.collect::<Vec<_>>())
    .chain([
        band("other bands".to_owned(), &flow.template),
        band("other bands below 0".to_owned(), &flow.negative_template),
    ])
}

fn outliers(outliers: &OutlierDetection) -> String {
    let OutlierDetection {
        consecutive_failures,
        base_ejection_time,
        max_ejection_time,
        max_ejection_percent,
    } = outliers;
    if *consecutive_failures == 0 || *max_ejection_percent == 0 {
        return "off".to_owned();
    }
    format!(
        "after {consecutive_failures} consecutive failures, for {base_ejection_time:?} to {max_ejection_time:?}, \
         {max_ejection_percent} % of the pool at most"
    )
}

/// What clients are told beyond what the reference tells them.
fn response_lines(responses: &ResponsePlan) -> impl Iterator<Item = String> {
    let errors = match responses.error_format {
        ErrorFormat::Text => None,
        ErrorFormat::OpenAi => Some("errors: as OpenAI's API writes them".to_owned()),
    };
    let header = |what: &str, name: &Option<Arc<str>>| {
        let name = name.as_ref()?;
        Some(format!("responses get: {what} as `{name}`"))
    };
    [
        errors,
        header("the id of the request", &responses.request_id_header),
        header("the milliseconds in the queue", &responses.queue_wait_header),
    ]
    .into_iter()
    .flatten()
}

fn ttl(ttl: Option<Duration>) -> String {
    ttl.map_or("none".to_owned(), |ttl| format!("{ttl:?}"))
}

fn at<T: ?Sized>(list: &[Named<T>], place: InstanceRef) -> String {
    full(&list[place.0].name)
}

/// The name, and the type where it says more.
fn full(plugin: &PluginName) -> String {
    let PluginName { name, type_name } = plugin;
    if **name == **type_name {
        name.to_string()
    } else {
        format!("{name} ({type_name})")
    }
}

fn joined(names: impl Iterator<Item = String>) -> String {
    match names.collect::<Vec<_>>().as_slice() {
        [] => "nothing".to_owned(),
        names => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_configuration_is_told_in_short() {
        let text = "plugins:\n\
                    - type: queue-scorer\n\
                    - type: decode-filter\n\
                    - {name: mine, type: prefix-cache-scorer}\n\
                    - type: random-picker\n\
                    schedulingProfiles:\n\
                    - name: main\n\
                    \x20 plugins: [{pluginRef: decode-filter}, {pluginRef: mine, weight: 2.5}, {pluginRef: queue-scorer}]\n\
                    parser: {pluginRef: openai-parser}\n";

        let (answer, code) = answer(text, &SourceName::Stdin, LoadOptions::default());

        assert_eq!(code, ExitCode::SUCCESS);
        insta::assert_snapshot!(answer, @r"
        <stdin>:9: warning: parser.pluginRef: `parser` is deprecated; write it as an entry of `requestHandler.parsers`
        <stdin>: ok
        profile handler: single-profile-handler
        profile main:
          filter  decode-filter
          scorer  mine (prefix-cache-scorer), weight 2.5
          scorer  queue-scorer, weight 1
          picker  random-picker
        prefix matches from: approx-prefix-cache-producer
        parsers: openai-parser
        metrics from: metrics-data-source, read by core-metrics-extractor
        endpoints from: Kubernetes
        admission: always-admit
        saturation by: utilization-detector
        outlier detection: after 5 consecutive failures, for 30s to 300s, 50 % of the pool at most
        flow control: off
        added: single-profile-handler, openai-parser, always-admit, utilization-detector, metrics-data-source, core-metrics-extractor, approx-prefix-cache-producer, token-producer
        ");
    }

    #[test]
    fn flow_control_is_told_band_by_band() {
        let text = include_str!("../../examples/configs/flow-control.yaml");

        let (answer, _) = answer(text, &SourceName::Stdin, LoadOptions::default());

        let start = answer.find("admission:").expect("the plan is told");
        insta::assert_snapshot!(&answer[start..], @r"
        admission: always-admit
        saturation by: concurrency-detector
        outlier detection: after 5 consecutive failures, for 30s to 300s, 50 % of the pool at most
        flow control: up to 1000 requests, up to 1073741824 bytes, where tenants with more make room
          usage limits by: static-usage-limit-policy
          TTL without endpoints: 60s
          band 100: 500 requests, 1000000000 bytes, round-robin-fairness-policy, fcfs-ordering-policy, TTL 60s
          band 0: 200 requests, 1000000000 bytes, round-robin-fairness-policy, fcfs-ordering-policy, TTL 60s
          band -10: 50 requests, 1000000000 bytes, round-robin-fairness-policy, fcfs-ordering-policy, TTL 60s
          other bands: 5000 requests, 1000000000 bytes, global-strict-fairness-policy, fcfs-ordering-policy, TTL 60s
          other bands below 0: 5000 requests, 1000000000 bytes, global-strict-fairness-policy, fcfs-ordering-policy, TTL 60s
        added: single-profile-handler, max-score-picker, global-strict-fairness-policy, static-usage-limit-policy, openai-parser, anthropic-parser, vllmhttp-parser, passthrough-parser, always-admit, metrics-data-source, core-metrics-extractor, approx-prefix-cache-producer, token-producer
        ");
    }

    #[test]
    fn what_clients_are_told_besides_is_told() {
        let text = "responses: {errorFormat: openai, headers: {requestId: x-request-id, queueWait: x-wait}}\n";

        let (answer, _) = answer(text, &SourceName::Stdin, LoadOptions::default());

        let start = answer.find("flow control:").expect("the plan is told");
        let end = answer.find("added:").expect("the plan is told");
        insta::assert_snapshot!(&answer[start..end], @r"
        flow control: off
        errors: as OpenAI's API writes them
        responses get: the id of the request as `x-request-id`
        responses get: the milliseconds in the queue as `x-wait`
        ");
    }

    #[test]
    fn a_bad_configuration_is_told_in_full() {
        let text = "plugins:\n- type: queue-scoerr\nweights: {}\n";

        let (answer, code) = answer(text, &SourceName::File("c.yaml".into()), LoadOptions::default());

        assert_eq!(code, ExitCode::FAILURE);
        let mut lines = answer.lines();
        assert!(
            lines
                .next()
                .is_some_and(|line| line.starts_with("c.yaml:2: error: plugins[0].type: plugin type "))
        );
        assert!(
            lines
                .next()
                .is_some_and(|line| line.starts_with("c.yaml:3: error: weights: unknown field "))
        );
        assert_eq!(lines.next(), None);
    }
}
