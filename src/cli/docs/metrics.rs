//! `docs/metrics.md`, from the families of metrics.

use forebay::serve::observe::metrics::family::{FAMILIES, Family, Kind};

const INTRODUCTION: &str = "\
# Metrics

<!-- Made by `forebay docs metrics`. Change what a family says of itself in its file, and make this page anew. -->

The page `/metrics` on the metrics port (9090) is in the Prometheus text format. Most families have two names: the current
one of llm-d and the older one of the Gateway API Inference Extension, which has fewer labels and shows the sums over the
labels that it lacks. Both are made from the same values when the page is asked for.

Clients choose models and tenants, so the combinations of their label values are bounded: what has no room, and a value of
more than 256 bytes, is counted under the label value `other`, and series are dropped after an hour without use. See
[the bound on series](operations.md#the-bound-on-series). `--metrics-older-names=false` leaves the older names out. Durations
are in seconds. Besides these families the page has the `process_*` ones.

To find out about a single request, ask `/debug/decisions?request_id=ID` on the same port: it shows the endpoints that
were considered and what every scorer said of them. The last 256 decisions are kept. `/debug/endpoints` shows how each endpoint
is: its state, why and since when, the age of its metrics, and what is in flight to it.
";

/// The reference page of all metrics.
pub(super) fn page() -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str("\n| Name, and older name | Type | Labels | Meaning |\n|---|---|---|---|\n");
    text.extend(FAMILIES.iter().copied().map(row));
    text.push_str("\n## Buckets\n\nUpper bounds of the histograms; each has one more bucket without a bound.\n");
    text.push_str("\n| Name | Upper bounds |\n|---|---|\n");
    for family in FAMILIES {
        if let Kind::Histogram(bounds) = family.kind {
            let bounds: Vec<_> = bounds.iter().map(f64::to_string).collect();
            text.push_str(&format!("| `{}` | {} |\n", family.name, bounds.join(" ")));
        }
    }
    text
}

fn row(family: &Family) -> String {
    let mut names = format!("`{}`", family.name);
    if let Some(old) = &family.old {
        names.push_str(&format!(", `{}`{}", old.name, old_labels(family)));
    }
    let labels: Vec<_> = family.labels.iter().map(|label| format!("`{label}`")).collect();
    let (kind, labels) = (family.kind.name(), labels.join(", "));
    format!("| {names} | {kind} | {labels} | {} |\n", family.help)
}

/// The labels of the older name, where they are not the same.
fn old_labels(family: &Family) -> String {
    let Some(old) = &family.old else { return String::new() };
    if old
        .labels
        .iter()
        .map(|(name, _)| *name)
        .eq(family.labels.iter().copied())
    {
        return String::new();
    }
    let labels: Vec<_> = old.labels.iter().map(|(name, _)| format!("`{name}`")).collect();
    match labels.as_slice() {
        [] => " (no labels)".to_owned(),
        labels => format!(" ({})", labels.join(", ")),
    }
}
