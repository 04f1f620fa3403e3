//! Expressions of Prometheus, and the metrics and labels in them.

use std::collections::{BTreeMap, BTreeSet};

use super::{table, text_of};

/// Labels that Prometheus adds.
const ADDED: [&str; 4] = ["namespace", "job", "pod", "le"];

/// Metrics of the page that are not families of Forebay's own, and that of Prometheus itself.
const OTHERS: [&str; 4] = [
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "up",
];

/// The metrics that docs/metrics.md lists, and the labels of each.
pub(super) struct Known(BTreeMap<String, BTreeSet<String>>);

impl Known {
    pub(super) fn new() -> Self {
        let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for row in table(&text_of("docs/metrics.md"), "| Name, and older name |") {
            let labels: BTreeSet<_> = row[2]
                .split(", ")
                .map(|label| label.trim_matches('`').to_owned())
                .collect();
            let name = row[0].split('`').nth(1).unwrap();
            let endings: &[&str] = if row[1] == "histogram" {
                &["_bucket", "_sum", "_count"]
            } else {
                &[""]
            };
            for ending in endings {
                known.insert(format!("{name}{ending}"), labels.clone());
            }
        }
        for name in OTHERS {
            known.insert(name.to_owned(), BTreeSet::new());
        }
        Self(known)
    }

    /// What is wrong with the metrics of an expression.
    pub(super) fn complaints(&self, expression: &str) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut metrics = 0;
        for (name, selector) in selectors(expression) {
            metrics += 1;
            let Some(labels) = self.0.get(name) else {
                complaints.push(format!("`{name}` is not a metric of Forebay"));
                continue;
            };
            for label in label_names(selector) {
                if !labels.contains(label) && !ADDED.contains(&label) {
                    complaints.push(format!("`{name}` has no label `{label}`"));
                }
            }
        }
        if metrics == 0 {
            complaints.push("there is no metric".to_owned());
        }
        complaints
    }
}

/// Each `name{…}` of an expression, as name and what is in the braces.
fn selectors(expression: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some((before, after)) = rest.split_once('{') {
        let (inside, after) = after.split_once('}').unwrap();
        let begin = before
            .rfind(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_' && letter != ':')
            .map_or(0, |at| at + 1);
        found.push((&before[begin..], inside));
        rest = after;
    }
    found
}

/// The labels of `a="x", b=~"y"`. No value has a comma in it.
fn label_names(selector: &str) -> Vec<&str> {
    let pairs = selector.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split(['=', '!']).next().unwrap().trim())
        .collect()
}

#[test]
fn a_metric_or_a_label_that_is_not_there_is_noticed() {
    let known = Known::new();

    let of = |expression| known.complaints(expression);

    assert!(of(r#"sum(rate(llm_d_epp_request_total{job="x", model_name="y"}[5m]))"#).is_empty());
    assert!(of(r#"llm_d_epp_request_ttft_seconds_bucket{le="1"}"#).is_empty());
    assert_eq!(
        of("llm_d_epp_requests_total{}"),
        ["`llm_d_epp_requests_total` is not a metric of Forebay"]
    );
    assert_eq!(of("llm_d_epp_request_ttft_seconds{}").len(), 1, "a histogram has parts");
    assert_eq!(
        of(r#"llm_d_epp_request_total{outcome="x"}"#),
        ["`llm_d_epp_request_total` has no label `outcome`"]
    );
    assert_eq!(of("1 + 1"), ["there is no metric"]);
}
