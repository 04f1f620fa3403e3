//! Keeps endpoints whose labels match a Kubernetes label selector.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::super::pool::{Candidates, Slot};
use super::super::super::seed::Chance;
use super::super::{Cycle, Filter};

/// Keeps what matches every label and every expression. An empty selector keeps everything (spec, scheduling 7).
#[derive(Debug)]
pub(super) struct LabelSelectorFilter {
    requirements: Vec<(String, Requirement)>,
}

#[derive(Debug)]
enum Requirement {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
}

impl Requirement {
    fn allows(&self, value: Option<&String>) -> bool {
        match self {
            Self::In(values) => value.is_some_and(|value| values.contains(value)),
            Self::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Self::Exists => value.is_some(),
            Self::DoesNotExist => value.is_none(),
        }
    }
}

/// A `LabelSelector` of Kubernetes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("`matchExpressions`: operator `{operator}` on key `{key}` needs at least one of `values`")]
    NoValues { key: String, operator: &'static str },
    #[error("`matchExpressions`: operator `{operator}` on key `{key}` takes no `values`")]
    Values { key: String, operator: &'static str },
}

impl Plugin for LabelSelectorFilter {
    const TYPE: &'static str = "label-selector-filter";
    const SUMMARY: &'static str = "keeps endpoints whose labels match a Kubernetes label selector";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "matchLabels",
            default: "{}",
            summary: "labels and the values that they must have",
        },
        Parameter {
            name: "matchExpressions",
            default: "[]",
            summary: "list of `{key, operator, values}`, operator one of `In`, `NotIn`, `Exists`, `DoesNotExist`",
        },
    ];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, _: &mut Needs) -> Result<Self, Error> {
        let labels = params.match_labels.into_iter();
        let mut requirements: Vec<_> = labels.map(|(key, value)| (key, Requirement::In(vec![value]))).collect();
        for Expression { key, operator, values } in params.match_expressions {
            let requirement = match (operator, values.is_empty()) {
                (Operator::In, false) => Requirement::In(values),
                (Operator::NotIn, false) => Requirement::NotIn(values),
                (Operator::Exists, true) => Requirement::Exists,
                (Operator::DoesNotExist, true) => Requirement::DoesNotExist,
                (Operator::In, true) => return Err(Error::NoValues { key, operator: "In" }),
                (Operator::NotIn, true) => return Err(Error::NoValues { key, operator: "NotIn" }),
                (Operator::Exists, false) => {
                    return Err(Error::Values {
                        key,
                        operator: "Exists",
                    });
                }
                (Operator::DoesNotExist, false) => {
                    return Err(Error::Values {
                        key,
                        operator: "DoesNotExist",
                    });
                }
            };
            requirements.push((key, requirement));
        }
        Ok(Self { requirements })
    }
}

impl Filter for LabelSelectorFilter {
    fn filter(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, _: &mut Chance, kept: &mut Vec<Slot>) {
        let matches = |labels: &BTreeMap<String, String>| {
            let mut requirements = self.requirements.iter();
            requirements.all(|(key, requirement)| requirement.allows(labels.get(key)))
        };
        let matching = candidates.iter().filter(|(_, m)| matches(&m.endpoint.labels));
        kept.extend(matching.map(|(slot, _)| slot));
    }

    fn goes_by_labels(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::super::plugin::instance;
    use super::super::super::testing::{Scene, kept_by};
    use super::*;

    fn kept(selector: &Value) -> Vec<usize> {
        let scene = Scene::new().labels(&[&[], &[("gpu", "h100")], &[("gpu", "l40s"), ("zone", "a")]]);
        let mut filter: LabelSelectorFilter = instance(Some(selector), &mut Needs::default()).unwrap();
        kept_by(&mut filter, &scene)
    }

    #[test]
    fn labels_and_expressions_must_all_match() {
        let expression = |operator, values: &[&str]| json!({"key": "gpu", "operator": operator, "values": values});
        let expressions = |e| kept(&json!({"matchExpressions": [e]}));

        assert_eq!(kept(&json!({})), [0, 1, 2]);
        assert_eq!(kept(&json!({"matchLabels": {"gpu": "h100"}})), [1]);
        assert_eq!(expressions(expression("In", &["h100", "l40s"])), [1, 2]);
        assert_eq!(expressions(expression("NotIn", &["h100"])), [0, 2]);
        assert_eq!(expressions(expression("Exists", &[])), [1, 2]);
        assert_eq!(expressions(expression("DoesNotExist", &[])), [0]);
        assert_eq!(
            kept(&json!({"matchLabels": {"zone": "a"}, "matchExpressions": [expression("In", &["h100"])]})),
            [] as [usize; 0]
        );
    }

    #[test]
    fn an_operator_with_the_wrong_number_of_values_is_refused() {
        let selector = json!({"matchExpressions": [{"key": "gpu", "operator": "In"}]});
        let refused = instance::<LabelSelectorFilter>(Some(&selector), &mut Needs::default());

        assert_eq!(
            refused.unwrap_err().to_string(),
            "`matchExpressions`: operator `In` on key `gpu` needs at least one of `values`"
        );
    }
}
