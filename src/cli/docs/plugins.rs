//! `docs/plugins.md`, from the tables of plugins.

use std::fmt::Write as _;

use forebay::engine::config::catalog::{ALIASES, CatalogEntry, PluginKind, catalog};
use forebay::engine::plugin::Stability;

const INTRODUCTION: &str = "\
# Plugins

<!-- Made by `forebay docs plugins`. Change what a plugin says of itself in its file, and make this page anew. -->

Every `type` that may stand in the list `plugins` of a configuration, with what may stand under `parameters`. How a
configuration is put together is told in [configuration.md](configuration.md).

An unknown parameter is refused. A plugin without parameters ignores what stands there, with a warning. Plugins marked
*alpha* may change or go, and need the flag `--allow-experimental-plugins`.
";

/// The reference page of all plugins.
pub(super) fn page() -> String {
    let catalog = catalog();
    let mut text = INTRODUCTION.to_owned();
    for kind in PluginKind::ALL {
        text.push_str(&format!("\n## {}\n\n{}\n", heading(kind), introduction(kind)));
        for plugin in catalog.iter().filter(|plugin| plugin.kind == kind) {
            text.push_str(&section(plugin));
        }
    }
    text.push_str("\n## Old names\n\nThese still work, with a warning.\n\n| Written | Means |\n|---|---|\n");
    for (old, name) in ALIASES {
        text.push_str(&format!("| `{old}` | `{name}` |\n"));
    }
    text
}

fn section(plugin: &CatalogEntry) -> String {
    let alpha = match plugin.stability {
        Stability::Alpha => " (alpha)",
        Stability::Beta => "",
    };
    let mut text = format!(
        "\n### `{}`{alpha}\n\n{}.\n",
        plugin.type_name,
        capitalised(plugin.summary)
    );
    if !plugin.parameters.is_empty() {
        text.push_str("\n| Parameter | Default | Meaning |\n|---|---|---|\n");
    }
    for parameter in plugin.parameters {
        let default = match parameter.default {
            "null" | "\"\"" => "none".to_owned(),
            value => format!("`{value}`"),
        };
        let summary = capitalised(parameter.summary).replace('|', "\\|");
        writeln!(text, "| `{}` | {default} | {summary} |", parameter.name)
            .expect("text can always be written to a string");
    }
    text
}

fn heading(kind: PluginKind) -> &'static str {
    match kind {
        PluginKind::ProfileHandler => "Profile handlers",
        PluginKind::Filter => "Filters",
        PluginKind::Scorer => "Scorers",
        PluginKind::Picker => "Pickers",
        PluginKind::DataProducer => "Data producers",
        PluginKind::Parser => "Parsers",
        PluginKind::DataSource => "Data sources",
        PluginKind::Extractor => "Extractors",
        PluginKind::Discovery => "Discovery",
        PluginKind::AdmissionPolicy => "Admission policies",
        PluginKind::SaturationDetector => "Saturation detectors",
        PluginKind::FairnessPolicy => "Fairness policies",
        PluginKind::OrderingPolicy => "Ordering policies",
        PluginKind::UsageLimitPolicy => "Usage limit policies",
    }
}

fn introduction(kind: PluginKind) -> &'static str {
    match kind {
        PluginKind::ProfileHandler => "Decides which profiles run for a request. One for each configuration.",
        PluginKind::Filter => {
            "Says which endpoints may serve a request at all. Named in profiles, in order. Saturation detectors may be \
             named there, too."
        }
        PluginKind::Scorer => {
            "Has an opinion on each endpoint, from 0 to 1, that counts as much as its `weight` in the profile says."
        }
        PluginKind::Picker => "Chooses by the sum of the weighted scores. One for each profile.",
        PluginKind::DataProducer => "Learns what scorers read. Added when a scorer needs it and it is not declared.",
        PluginKind::Parser => "Finds model, prompt and limits in requests. Named in `requestHandler.parsers`.",
        PluginKind::DataSource => "Fetches what endpoints report. Named in `dataLayer.sources`.",
        PluginKind::Extractor => "Makes signals of what a source fetched. Named in `dataLayer.sources[].extractors`.",
        PluginKind::Discovery => "Finds the endpoints. Named in `dataLayer.discovery`; without it, Kubernetes knows.",
        PluginKind::AdmissionPolicy => {
            "Says what may come in at all, before it waits or is routed. Named in `admission`."
        }
        PluginKind::SaturationDetector => {
            "Says how full the pool is. Named in `flowControl.saturationDetector`: with flow control requests wait while \
             the pool is full, without it those below priority 0 are refused. Named in a profile, a detector is a \
             filter that keeps the endpoints that are not full."
        }
        PluginKind::FairnessPolicy => {
            "Chooses which flow of a band goes next. Named in the `fairnessPolicyRef` of a band. Bands that name the \
             same instance share it."
        }
        PluginKind::OrderingPolicy => {
            "Says which request of a flow goes first. Named in the `orderingPolicyRef` of a band."
        }
        PluginKind::UsageLimitPolicy => {
            "Says how full the pool may be for each band. Named in `flowControl.usageLimitPolicyPluginRef`."
        }
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
