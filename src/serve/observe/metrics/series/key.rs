//! The labels of series that come from requests.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::engine::pool::EndpointId;

/// What label values are called that are not told apart.
pub(in super::super) const OTHER: &str = "other";

/// The longest label value, in bytes. Longer ones are `other`.
pub(in super::super) const MAX_VALUE_BYTES: usize = 256;

/// Which labels a row has. Each schema has a share of the bytes of all series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in super::super) enum Schema {
    /// Counters and gauges by model, target model, tenant and priority.
    Counts,
    /// Histograms by the same labels. Apart from the counters because they take fifty times as much.
    Distributions,
    /// Counters and histograms under their older names, by model and target model.
    Models,
    /// Scheduling attempts, by target model and endpoint.
    Attempts,
    /// Choices of a model, by rewrite, model and target model.
    Rewrites,
    /// Histograms of flow control by tenant and priority.
    Enqueues,
}

/// The labels of one row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in super::super) enum Key {
    Counts(Flow),
    Distributions(Flow),
    Models {
        model: Arc<str>,
        target_model: Arc<str>,
    },
    Attempts {
        target_model: Arc<str>,
        /// None if no endpoint was found.
        endpoint: Option<AttemptedEndpoint>,
    },
    Rewrites {
        rewrite: Arc<str>,
        model: Arc<str>,
        target_model: Arc<str>,
    },
    Enqueues {
        fairness_id: Arc<str>,
        priority: i32,
    },
}

/// Whose request it is, for what.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in super::super) struct Flow {
    pub(in super::super) model: Arc<str>,
    pub(in super::super) target_model: Arc<str>,
    pub(in super::super) fairness_id: Arc<str>,
    pub(in super::super) priority: i32,
}

/// An endpoint, as far as labels tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in super::super) struct AttemptedEndpoint {
    pub(in super::super) id: EndpointId,
    pub(in super::super) name: Arc<str>,
    pub(in super::super) port: u16,
}

/// The label of a series that is not among those of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Extra {
    /// There is none.
    None,
    /// One of a few words.
    Word(&'static str),
    /// A priority.
    Number(i32),
}

/// Which names are told apart whatever clients ask for, and how others are called.
#[derive(Debug)]
pub(in super::super) struct Names {
    other: Arc<str>,
    /// Models that the operator named.
    pinned: FxHashSet<Arc<str>>,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            other: OTHER.into(),
            pinned: FxHashSet::default(),
        }
    }
}

impl Names {
    /// Replaces the models that are told apart in any case.
    pub(super) fn pin(&mut self, models: impl Iterator<Item = Arc<str>>) {
        self.pinned = models.filter(|model| model.len() <= MAX_VALUE_BYTES).collect();
    }

    fn bounded(&self, value: &Arc<str>) -> Arc<str> {
        match value.len() <= MAX_VALUE_BYTES {
            true => value.clone(),
            false => self.other.clone(),
        }
    }

    /// The model, if it is told apart even if there is no room. So is that of a request without one.
    fn widest(&self, model: &Arc<str>) -> Arc<str> {
        match model.is_empty() || self.pinned.contains(model) {
            true => model.clone(),
            false => self.other.clone(),
        }
    }
}

impl Key {
    /// The same labels, with each value that is too long as `other`.
    pub(super) fn bounded(mut self, names: &Names) -> Self {
        let cut = |value: &mut Arc<str>| *value = names.bounded(value);
        match &mut self {
            Self::Counts(flow) | Self::Distributions(flow) => {
                cut(&mut flow.model);
                cut(&mut flow.target_model);
                cut(&mut flow.fairness_id);
            }
            Self::Models { model, target_model }
            | Self::Rewrites {
                model, target_model, ..
            } => {
                cut(model);
                cut(target_model);
            }
            Self::Attempts { target_model, .. } => cut(target_model),
            Self::Enqueues { fairness_id, .. } => cut(fairness_id),
        }
        self
    }

    pub(in super::super) const fn schema(&self) -> Schema {
        match self {
            Self::Counts(_) => Schema::Counts,
            Self::Distributions(_) => Schema::Distributions,
            Self::Models { .. } => Schema::Models,
            Self::Attempts { .. } => Schema::Attempts,
            Self::Rewrites { .. } => Schema::Rewrites,
            Self::Enqueues { .. } => Schema::Enqueues,
        }
    }

    /// The labels under which this is counted if it is not told apart: first all tenants of a model together, then all
    /// models. `None` for labels that are always told apart.
    ///
    /// Priorities, endpoints and rewrites are the operator's: no client can invent them.
    pub(super) fn wider(&self, names: &Names) -> Option<Self> {
        let wider = match self {
            Self::Counts(flow) => Self::Counts(flow.wider(names)),
            Self::Distributions(flow) => Self::Distributions(flow.wider(names)),
            Self::Models { model, target_model } => Self::Models {
                model: names.widest(model),
                target_model: names.widest(target_model),
            },
            Self::Attempts { target_model, endpoint } => Self::Attempts {
                target_model: names.widest(target_model),
                endpoint: endpoint.clone(),
            },
            Self::Rewrites {
                rewrite,
                model,
                target_model,
            } => Self::Rewrites {
                rewrite: rewrite.clone(),
                model: names.widest(model),
                target_model: names.widest(target_model),
            },
            Self::Enqueues { priority, .. } => Self::Enqueues {
                fairness_id: names.other.clone(),
                priority: *priority,
            },
        };
        (wider != *self).then_some(wider)
    }

    /// Calls `with` with the value of the label, by its name in a family. `None` if it is not among those of the row.
    pub(in super::super) fn value(&self, label: &str) -> Option<Value<'_>> {
        let value = match (self, label) {
            (Self::Counts(flow) | Self::Distributions(flow), _) => match label {
                "model_name" => Value::Text(&flow.model),
                "target_model_name" => Value::Text(&flow.target_model),
                "fairness_id" => Value::Text(&flow.fairness_id),
                "priority" => Value::Number(flow.priority.into()),
                _ => return None,
            },
            (Self::Models { model, .. } | Self::Rewrites { model, .. }, "model_name") => Value::Text(model),
            (Self::Models { target_model, .. } | Self::Attempts { target_model, .. }, "target_model_name") => {
                Value::Text(target_model)
            }
            (Self::Rewrites { target_model, .. }, "target_model") => Value::Text(target_model),
            (Self::Rewrites { rewrite, .. }, "model_rewrite_name") => Value::Text(rewrite),
            (Self::Attempts { endpoint, .. }, "status") => {
                Value::Text(if endpoint.is_some() { "success" } else { "failure" })
            }
            (Self::Attempts { endpoint, .. }, _) => match (endpoint, label) {
                (Some(endpoint), "endpoint_name") => Value::Text(&endpoint.name),
                (Some(endpoint), "namespace") => Value::Text(endpoint.id.namespace()),
                (Some(endpoint), "port") => Value::Number(endpoint.port.into()),
                (None, _) => Value::Text(""),
                _ => return None,
            },
            (Self::Enqueues { fairness_id, .. }, "fairness_id") => Value::Text(fairness_id),
            (Self::Enqueues { priority, .. }, "priority") => Value::Number((*priority).into()),
            _ => return None,
        };
        Some(value)
    }

    /// Bytes of all values on the page.
    pub(super) fn value_bytes(&self) -> usize {
        /// Of a number, or of `success`.
        const SHORT: usize = 8;
        let text = |value: &str| value.len() + value.matches(['\\', '"', '\n']).count();
        match self {
            Self::Counts(flow) | Self::Distributions(flow) => {
                text(&flow.model) + text(&flow.target_model) + text(&flow.fairness_id) + SHORT
            }
            Self::Models { model, target_model } => text(model) + text(target_model),
            Self::Attempts { target_model, endpoint } => {
                let endpoint = endpoint.as_ref();
                text(target_model)
                    + 2 * SHORT
                    + endpoint.map_or(0, |endpoint| endpoint.id.as_str().len() + endpoint.name.len())
            }
            Self::Rewrites {
                rewrite,
                model,
                target_model,
            } => text(rewrite) + text(model) + text(target_model),
            Self::Enqueues { fairness_id, .. } => text(fairness_id) + SHORT,
        }
    }
}

impl Flow {
    fn wider(&self, names: &Names) -> Self {
        let told_apart = *self.fairness_id != *OTHER;
        let model = |model: &Arc<str>| match told_apart {
            true => model.clone(),
            false => names.widest(model),
        };
        Self {
            model: model(&self.model),
            target_model: model(&self.target_model),
            fairness_id: names.other.clone(),
            priority: self.priority,
        }
    }
}

/// The value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Value<'k> {
    Text(&'k str),
    Number(i64),
}

impl Schema {
    pub(super) const ALL: [Self; 6] = [
        Self::Counts,
        Self::Distributions,
        Self::Models,
        Self::Attempts,
        Self::Rewrites,
        Self::Enqueues,
    ];

    /// The name in metrics.
    pub(in super::super) const fn name(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Distributions => "distributions",
            Self::Models => "older-names",
            Self::Attempts => "attempts",
            Self::Rewrites => "rewrites",
            Self::Enqueues => "enqueues",
        }
    }

    /// Its part of the bytes of all series, in percent. The older names take one combination for all tenants of a model, so
    /// they need less.
    pub(super) const fn percent(self) -> usize {
        match self {
            Self::Counts => 11,
            Self::Distributions => 56,
            Self::Models => 18,
            Self::Attempts => 6,
            Self::Rewrites => 3,
            Self::Enqueues => 6,
        }
    }
}
