//! The last decisions, and why they were made: what an operator asks when a request went to an unexpected endpoint.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::record::RequestRecord;
use crate::engine::scheduling::Decision;

/// Decisions that are kept: some hundred kilobytes at the most.
const KEPT: usize = 256;

/// The last decisions, the newest last.
#[derive(Debug, Default)]
pub struct DecisionLog {
    entries: Mutex<VecDeque<Arc<Entry>>>,
}

#[derive(Debug)]
struct Entry {
    request_id: Arc<str>,
    model: Arc<str>,
    target_model: Arc<str>,
    fairness_id: Arc<str>,
    priority: i32,
    decided_seconds: f64,
    decision: Decision,
}

impl DecisionLog {
    /// Keeps a decision, and drops the oldest if there are too many.
    pub fn add(&self, record: &RequestRecord, decision: &Decision) {
        let entry = Arc::new(Entry {
            request_id: record.request_id.clone(),
            model: record.model.clone(),
            target_model: record.target_model.clone(),
            fairness_id: record.fairness_id.clone(),
            priority: record.priority,
            decided_seconds: record
                .decided
                .map_or(0.0, |decided| decided.since(record.received).as_secs_f64()),
            decision: decision.clone(),
        });
        let mut entries = self.entries.lock();
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(entry);
    }

    /// The decisions on requests with this id, or all that are kept; the newest first.
    pub fn explain(&self, request_id: Option<&str>) -> Vec<Explanation> {
        let entries: Vec<_> = self.entries.lock().iter().rev().cloned().collect();
        let wanted = entries
            .iter()
            .filter(|entry| request_id.is_none_or(|id| *entry.request_id == *id));
        wanted.map(|entry| Explanation::from(&**entry)).collect()
    }
}

/// A decision in words and numbers, for the debug page.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The request's `x-request-id`.
    pub request_id: String,
    /// The model that the client asked for.
    pub model: String,
    /// The model that the endpoint was asked for.
    pub target_model: String,
    /// Whose share it counts against.
    pub fairness_id: String,
    /// Larger is more urgent.
    pub priority: i32,
    /// Seconds from the request's headers to the decision.
    pub decided_seconds: f64,
    /// The endpoints chosen, as `host:port`, the best first.
    pub endpoints: Vec<String>,
    /// The name of the first one.
    pub endpoint: String,
    /// The profile that chose.
    pub profile: String,
    /// Endpoints that the request could have gone to.
    pub candidates: usize,
    /// Each filter, and how many endpoints it left.
    pub filters: Vec<FilterStep>,
    /// What the chosen endpoint has of the prompt.
    pub prefix: Vec<PrefixShare>,
    /// The best endpoints and how they came to their totals.
    pub scored: Vec<Score>,
}

/// A filter, and how many endpoints it left.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct FilterStep {
    /// Its instance name.
    pub filter: String,
    /// Endpoints left.
    pub left: usize,
}

/// What the chosen endpoint has of the prompt, in blocks.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PrefixShare {
    /// The producer that says so.
    pub producer: String,
    /// Blocks that it served before.
    pub matched_blocks: u32,
    /// Blocks of the prompt.
    pub total_blocks: u32,
    /// Tokens of a full block.
    pub block_tokens: u32,
}

/// How an endpoint came to its total.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Score {
    /// Its name.
    pub endpoint: String,
    /// The sum over the scorers of score times weight.
    pub total: f64,
    /// What each scorer said.
    pub by: Vec<Opinion>,
}

/// What one scorer said of one endpoint.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Opinion {
    /// The scorer's instance name.
    pub scorer: String,
    /// How much it counts.
    pub weight: f64,
    /// 0 to 1.
    pub score: f64,
}

impl From<&Entry> for Explanation {
    fn from(entry: &Entry) -> Self {
        let Decision {
            endpoints,
            profile,
            prefix,
            why,
        } = &entry.decision;
        let opinion = |(scorer, weight, score): (&Arc<str>, f64, f64)| Opinion {
            scorer: scorer.to_string(),
            weight,
            score,
        };
        Self {
            request_id: entry.request_id.to_string(),
            model: entry.model.to_string(),
            target_model: entry.target_model.to_string(),
            fairness_id: entry.fairness_id.to_string(),
            priority: entry.priority,
            decided_seconds: entry.decided_seconds,
            endpoints: endpoints.iter().map(|endpoint| endpoint.socket().to_string()).collect(),
            endpoint: endpoints[0].name.to_string(),
            profile: profile.to_string(),
            candidates: why.candidates,
            filters: why
                .filters
                .iter()
                .map(|(filter, left)| FilterStep {
                    filter: filter.to_string(),
                    left: *left,
                })
                .collect(),
            prefix: prefix
                .iter()
                .map(|hit| PrefixShare {
                    producer: hit.producer.to_string(),
                    matched_blocks: hit.matched,
                    total_blocks: hit.total,
                    block_tokens: hit.block_tokens,
                })
                .collect(),
            scored: why
                .scored
                .iter()
                .enumerate()
                .map(|(rank, scored)| Score {
                    endpoint: scored.endpoint.name.to_string(),
                    total: scored.total,
                    by: why.scores(rank).map(opinion).collect(),
                })
                .collect(),
        }
    }
}
