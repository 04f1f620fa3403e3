//! Feature gates: `Name` or `Name=<bool>` (spec, config 7).

use super::report::Report;
use super::suggest;

/// Which features are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    /// Requests wait in queues.
    pub flow_control: bool,
    /// With leader election: replicas that do not lead watch the pool too, so that a new leader starts warm.
    pub ha_populate_non_leader_datastore: bool,
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            flow_control: false,
            ha_populate_non_leader_datastore: true,
        }
    }
}

const FLOW_CONTROL: &str = "flowControl";
const HA_POPULATE: &str = "haPopulateNonLeaderDatastore";

/// Gates that there were once, and what became of them.
pub(super) const RETIRED: [(&str, &str); 4] = [
    ("dataLayer", "the data layer is always on"),
    ("prepareDataPlugins", "data producers are always on"),
    ("enableLegacyMetrics", "metrics come from `dataLayer.sources`"),
    (
        "experimentalPlugins",
        "the flag `--allow-experimental-plugins` allows them",
    ),
];

/// Reads the gates; of several entries for one, the last counts.
pub(super) fn read(entries: &[String], report: &mut Report) -> FeatureGates {
    let mut gates = FeatureGates::default();
    for (at, entry) in entries.iter().enumerate() {
        let path = format!("featureGates[{at}]");
        let (name, value) = match entry.split_once('=') {
            Some((name, rest)) => (name, rest.split('=').next().unwrap_or(rest)),
            None => (entry.as_str(), "true"),
        };
        let on = match value.trim().to_lowercase().as_str() {
            "1" | "t" | "true" => true,
            "0" | "f" | "false" => false,
            _ => {
                let message = format!(
                    "{value} is not a valid value for the feature gate {name}; write `{name}=true` or `{name}=false`"
                );
                report.error(&path, message);
                continue;
            }
        };
        match name {
            FLOW_CONTROL => gates.flow_control = on,
            HA_POPULATE => gates.ha_populate_non_leader_datastore = on,
            _ => {
                if let Some((_, instead)) = RETIRED.iter().find(|(retired, _)| *retired == name) {
                    report.warning(
                        &path,
                        format!("the feature gate '{name}' has no effect any more: {instead}"),
                    );
                    continue;
                }
                let known = suggest::or_known(name.trim(), "known gates", [FLOW_CONTROL, HA_POPULATE]);
                report.error(
                    &path,
                    format!("feature gate '{name}' is unknown or unregistered; {known}"),
                );
            }
        }
    }
    gates
}

#[cfg(test)]
mod tests {
    use super::super::report::testing::report;
    use super::*;

    fn read_all(entries: &[&str]) -> (FeatureGates, Vec<String>) {
        let mut report = report("");
        let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
        let gates = read(&entries, &mut report);
        (gates, report.messages())
    }

    #[test]
    fn a_gate_is_on_when_named_and_the_last_word_counts() {
        let (gates, messages) = read_all(&[
            "flowControl",
            "flowControl= F =ignored",
            "haPopulateNonLeaderDatastore=0",
        ]);

        assert!(!gates.flow_control && !gates.ha_populate_non_leader_datastore);
        assert_eq!(messages, [] as [String; 0]);
    }

    #[test]
    fn queueing_is_off_until_it_is_switched_on() {
        assert!(!read_all(&[]).0.flow_control);
        assert!(read_all(&["flowControl=false", "flowControl"]).0.flow_control);
    }

    #[test]
    fn names_are_not_trimmed_and_values_must_be_boolean() {
        let (_, messages) = read_all(&["flowControl =true", "flowControl=on"]);

        assert!(messages[0].starts_with("feature gate 'flowControl ' is unknown or unregistered; did you mean"));
        assert!(messages[1].starts_with("on is not a valid value for the feature gate flowControl; "));
    }
}
