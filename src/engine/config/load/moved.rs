//! Parameters that scorers had before what they read became plugins of its own.

use serde_json::{Map, Value};

use super::super::super::plugin::{DEFAULT_PREFIX_PRODUCER, PRECISE_PREFIX_PRODUCER};
use super::super::super::scheduling::scorers::PRECISE_PREFIX_SCORER;
use super::super::document::PluginSpec;
use super::super::report::Report;
use super::registry::Registry;

/// Parameters that went from one type to another.
struct Move {
    from: &'static str,
    to: &'static str,
    /// What they were called, and what they are called.
    parameters: &'static [(&'static str, &'static str)],
}

const MOVES: [Move; 2] = [
    Move {
        from: "prefix-cache-scorer",
        to: DEFAULT_PREFIX_PRODUCER,
        parameters: &[
            ("autoTune", "autoTune"),
            ("hashBlockSize", "blockSizeTokens"),
            ("blockSize", "blockSizeTokens"),
            ("blockSizeTokens", "blockSizeTokens"),
            ("maxPrefixBlocksToMatch", "maxPrefixBlocksToMatch"),
            ("maxPrefixTokensToMatch", "maxPrefixTokensToMatch"),
            ("lruCapacityPerServer", "lruCapacityPerServer"),
        ],
    },
    Move {
        from: PRECISE_PREFIX_SCORER,
        to: PRECISE_PREFIX_PRODUCER,
        parameters: &[
            ("tokenProcessorConfig", "tokenProcessorConfig"),
            ("indexerConfig", "indexerConfig"),
            ("kvEventsConfig", "kvEventsConfig"),
            ("speculativeIndexing", "speculativeIndexing"),
            ("speculativeTTL", "speculativeTTL"),
        ],
    },
];

/// What was found at the old places.
#[derive(Debug, Default)]
pub(super) struct Moved(Vec<Found>);

#[derive(Debug)]
struct Found {
    to: &'static str,
    /// The entry of `plugins`.
    path: String,
    /// As they were called.
    old_names: Vec<String>,
    parameters: Map<String, Value>,
}

impl Moved {
    /// Takes parameters that went elsewhere out of `spec`, which stands at `path`.
    pub(super) fn taken_from(&mut self, spec: &PluginSpec, path: &str) -> PluginSpec {
        let mut left = spec.clone();
        let Some(moves) = MOVES.iter().find(|moves| moves.from == spec.type_name) else {
            return left;
        };
        let Some(given) = left.parameters.as_mut().and_then(Value::as_object_mut) else {
            return left;
        };
        let mut found = Found {
            to: moves.to,
            path: path.to_owned(),
            old_names: Vec::new(),
            parameters: Map::new(),
        };
        for (old, new) in moves.parameters {
            if let Some(value) = given.remove(*old) {
                found.old_names.push((*old).to_owned());
                found.parameters.insert((*new).to_owned(), value);
            }
        }
        // It used to be the only limit.
        let limit = "maxPrefixTokensToMatch";
        if found.parameters.contains_key("maxPrefixBlocksToMatch") && !found.parameters.contains_key(limit) {
            found.parameters.insert(limit.to_owned(), 0.into());
        }
        if !found.old_names.is_empty() {
            self.0.push(found);
        }
        left
    }

    /// Makes the plugin that has them now, unless it is declared.
    pub(super) fn add_to(self, registry: &mut Registry, report: &mut Report) {
        for Found {
            to,
            path,
            old_names,
            parameters,
        } in self.0
        {
            let declared = registry.iter().find(|declared| declared.type_name == to);
            let declared = declared.map(|declared| declared.name.clone());
            let below = format!("{path}.parameters");
            for name in old_names {
                let message = match &declared {
                    Some(declared) => format!("`{name}` has no effect here: it is a parameter of `{declared}` now"),
                    None => format!(
                        "`{name}` is a parameter of `{to}` now, and is used for the one that is added; declare it with \
                         `- type: {to}` under `plugins`"
                    ),
                };
                report.warning(&format!("{below}.{name}"), message);
            }
            if declared.is_none() {
                registry.add(to, &Value::Object(parameters), &below, report);
            }
        }
    }
}
