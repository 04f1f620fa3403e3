//! The last decisions, and why they were made: what an operator asks when a request went to an unexpected endpoint.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::record::RequestRecord;
use crate::engine::scheduling::Decision;

/// Decisions that are kept: some hundred kilobytes, or 100 bytes for each endpoint and decision if all scores are told.
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
    /// Those of them that were left out because they cannot be reached, fail requests or cannot be scraped.
    pub passed_over: usize,
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
            passed_over: why.passed_over,
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
                    producer: hit.producer.name.to_string(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::config::{LoadOptions, SourceName, load};
    use crate::engine::pool::{Endpoint, EndpointId, PoolChange};
    use crate::engine::request::{Kind, Request, RequestId};
    use crate::engine::scheduling::{Explain, NoProbe};
    use crate::engine::seed::Seed;
    use crate::engine::time::Timestamp;
    use crate::engine::{Effect, Engine, Input};

    fn decision() -> Decision {
        let plan = load("", &SourceName::BuiltIn, &LoadOptions::default()).unwrap().plan;
        let mut engine = Engine::new(plan.engine, Seed(1), Box::new(NoProbe), Explain::default());
        let endpoint = |name: &str| {
            PoolChange::Upsert(Arc::new(Endpoint {
                id: EndpointId::new("default", name),
                name: name.into(),
                address: [127, 0, 0, 1].into(),
                port: 8000,
                labels: std::collections::BTreeMap::new(),
                rank: 0,
            }))
        };
        let changes = vec![endpoint("a"), endpoint("b")];
        engine.apply(Timestamp::ZERO, Input::PoolChanged { changes });
        let (id, request) = (RequestId(1), Request::unknown(Kind::Inference));
        engine.apply(Timestamp::ZERO, Input::Submit { id, request });
        match engine.poll(Timestamp::ZERO) {
            Some(Effect::Route { decision, .. }) => decision,
            other => panic!("not routed: {other:?}"),
        }
    }

    fn record(id: &str) -> RequestRecord {
        RequestRecord {
            request_id: id.into(),
            ..RequestRecord::new(Timestamp::ZERO)
        }
    }

    #[test]
    fn an_explanation_has_the_arithmetic_of_the_choice() {
        let log = DecisionLog::default();
        log.add(&record("r1"), &decision());
        log.add(&record("r2"), &decision());

        let explained = log.explain(Some("r1"));

        assert_eq!(explained.len(), 1);
        let best = &explained[0].scored[0];
        let sum: f64 = best.by.iter().map(|opinion| opinion.weight * opinion.score).sum();
        assert_eq!(explained[0].candidates, 2);
        assert_eq!(best.total, sum);
        assert_eq!(best.by.len(), 3);
    }

    #[test]
    fn the_oldest_decisions_go_when_there_are_too_many() {
        let log = DecisionLog::default();
        let decision = decision();
        for n in 0..KEPT + 2 {
            log.add(&record(&n.to_string()), &decision);
        }

        let explained = log.explain(None);

        assert_eq!(explained.len(), KEPT);
        assert_eq!(explained[0].request_id, (KEPT + 1).to_string());
        assert!(log.explain(Some("1")).is_empty());
    }
}
