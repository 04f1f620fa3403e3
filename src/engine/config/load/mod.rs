//! From text to plan (spec, config 4).

mod admission;
mod data_layer;
mod flow;
mod in_flight;
mod moved;
mod outliers;
mod parsers;
mod prefix;
mod profiles;
mod reference;
mod registry;
mod saturation;
mod version;

use std::time::Duration;

use super::document::Document;
use super::finding::{ConfigErrors, Finding, SourceName};
use super::gates;
use super::plan::{EnginePlan, Plan, SchedulingPlan};
use super::report::Report;
use super::responses;
use super::strict;
use registry::Registry;
use version::Version;

/// The configuration that is used when none is given: the reference's default (spec, config 8.1).
pub const DEFAULT: &str = include_str!("../../../../examples/configs/default.yaml");

/// What the process allows, whatever the configuration says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Plugins of alpha stability may be used.
    pub allow_experimental_plugins: bool,
    /// The driver tells what endpoints have cached, to plugins that read it. Without, such plugins know nothing.
    pub cache_source: bool,
    /// The time between two looks at an endpoint's metrics where a source has none of its own, if that is known.
    pub refresh: Option<Duration>,
}

/// A configuration that can run.
#[derive(Debug)]
pub struct Loaded {
    /// What runs.
    pub plan: Plan,
    /// What is probably not meant so, in the order of the lines.
    pub warnings: Vec<Finding>,
}

/// Makes a plan of the text of an `EndpointPickerConfig`. Empty text stands for [`DEFAULT`].
///
/// # Errors
///
/// All errors in the text, not only the first.
pub fn load(text: &str, source: &SourceName, options: &LoadOptions) -> Result<Loaded, ConfigErrors> {
    let (text, read) = match text {
        "" => (DEFAULT, &SourceName::BuiltIn),
        text => (text, source),
    };
    let (document, mut report) = strict::read_strictly(text, read)?;
    if read != source {
        report.is_about(source.clone());
        report.warning("", "there is nothing in it: the built-in default is used");
    }
    let plan = document.and_then(|document| planned(&document, *options, &mut report));
    let warnings = report.finish()?;
    Ok(Loaded {
        plan: plan.expect("what has no plan has an error"),
        warnings,
    })
}

fn planned(document: &Document, options: LoadOptions, report: &mut Report) -> Option<Plan> {
    let version = Version::of(document, report);
    let gates = gates::read(&document.feature_gates, report);
    let mut registry = Registry::new(options);
    registry.declare(&document.plugins, report);

    profiles::add_defaults(&document.scheduling_profiles, &mut registry, report);
    for policy in flow::DEFAULTS {
        registry.ensure(policy, report);
    }
    let parsers = parsers::planned(document, &mut registry, report);
    let admission = admission::planned(document, &mut registry, report);
    let detector = saturation::planned(document, &mut registry, report);
    let flow = if gates.flow_control {
        flow::planned(&document.flow_control, &mut registry, report)
    } else {
        warn_of_the_gated(document, report);
        None
    };
    let outliers = outliers::planned(&document.outlier_detection, report);
    let layer = data_layer::of(document, report);
    let data_layer = data_layer::planned(layer, version, &mut registry, report);
    let profiles = profiles::planned(&document.scheduling_profiles, &mut registry, report);
    let load = in_flight::planned(&mut registry, report);
    let prefix = prefix::planned(&mut registry, options.cache_source, report);
    let responses = responses::planned(&document.responses, report);
    data_layer::warn_of_the_stale(&data_layer, options.refresh, &registry, report);
    data_layer::warn_of_the_blind(layer, &data_layer, &registry, report);
    if report.has_errors() {
        // Who looks unused may only be misspelt elsewhere.
        return None;
    }
    registry.warn_of_the_unused(gates.flow_control, report);

    let tokens = registry.token_estimate();
    let added = registry.added();
    let (handler, mut plugins) = registry.finish();
    let detector = plugins.detectors.swap_remove(detector?.0);
    Some(Plan {
        engine: EnginePlan {
            admission: plugins.admission.swap_remove(admission?.0),
            flow: flow.map(|draft| draft.with(&mut plugins)),
            detector,
            outliers,
            scheduling: SchedulingPlan {
                handler: handler?,
                profiles: profiles?,
                instances: plugins.scheduling,
                prefix,
                load,
            },
        },
        parsers,
        tokens,
        data_layer,
        responses,
        gates,
        added,
    })
}

fn warn_of_the_gated(document: &Document, report: &mut Report) {
    if let Some(field) = document.flow_control.first_gated() {
        report.warning(
            &format!("flowControl.{field}"),
            "the settings of `flowControl` have no effect while its feature gate is off",
        );
    }
}
