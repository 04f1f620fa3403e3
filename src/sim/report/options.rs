//! What a report is told beside the record of the run.

use serde_json::Value;

use super::super::record::instance_name;
use super::fitness::FitnessWeights;
use super::goodput::GoodputTargets;

/// What a report is told beside the record of the run. The default is that of a run of which nothing is known.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// What the report is called, for people.
    pub title: String,
    /// How many requests the workload gave, as the workload counted them. Every one of them must be in the record.
    pub num_requests: u64,
    /// The scheduler of the instances. Priority inversions are counted for `priority-fcfs` alone.
    pub scheduler: String,
    /// Names of the instances, by index. Those without a name are `instance_<index>`.
    pub instance_names: Vec<String>,
    /// Weights of the fitness score, if one is wanted.
    pub fitness: Option<FitnessWeights>,
    /// When a request counts as good, if that is asked.
    pub goodput: GoodputTargets,
    /// What the decision trace came to, if its summary is wanted.
    pub trace: Option<TraceSummary>,
    /// The settings with which the run was made, defaults included, in the order in which to show them.
    pub settings: Vec<(String, Value)>,
    /// Where the requests came from: flags, defaults included, or files.
    pub workload: Vec<(String, Value)>,
}

impl ReportOptions {
    /// What the instance at `index` is called.
    pub fn instance_name(&self, index: usize) -> String {
        match self.instance_names.get(index) {
            Some(name) => name.clone(),
            None => instance_name(index),
        }
    }
}

/// What the decisions of a run came to (spec, simulator 12).
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct TraceSummary {
    /// Decisions of admission.
    pub decisions: u64,
    /// Requests that admission let in.
    pub admitted: u64,
    /// Requests that it did not.
    pub rejected: u64,
    /// Instances that were chosen at least once.
    pub unique_targets: u64,
    /// How often each instance was chosen, sorted by name.
    #[serde(serialize_with = "super::json::as_map")]
    pub distribution: Vec<(String, u64)>,
    /// By how much the best instance beat the chosen one, on average.
    pub mean_regret: f64,
    /// By how much it did at most.
    pub max_regret: f64,
}
