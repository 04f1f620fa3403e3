//! Families about requests and responses (spec, metrics 3 and 12).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};
use rustc_hash::FxHashMap;

use super::bound::{self, Bounds, MAX_VALUES};
use super::family;
use super::flow::{self, FlowMetrics};
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::request::Kind;
use crate::engine::scheduling::Decision;
use crate::serve::observe::record::RequestRecord;
use crate::serve::parse::UsageSource;

#[derive(Debug)]
pub(super) struct RequestMetrics {
    families: Families,
    bounds: Bounds,
    /// The name of the pool, and what is counted of flow control, if requests may wait.
    flow: Option<(String, FlowMetrics)>,
    /// The series of each combination of labels that was seen.
    flows: RwLock<FxHashMap<FlowKey, Arc<Flow>>>,
    outcomes: BTreeMap<Outcome, IntCounter>,
    local_replies: IntCounterVec,
    attempts: IntCounterVec,
    request_processing: Histogram,
    response_processing: Histogram,
    rewrites: IntCounterVec,
    prefix_hit_ratio: HistogramVec,
    prefix_hit_bytes: HistogramVec,
}

#[derive(Debug)]
struct Families {
    requests: IntCounterVec,
    errors: IntCounterVec,
    running: IntGaugeVec,
    duration: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    input_tokens: HistogramVec,
    output_tokens: HistogramVec,
    cached_tokens: HistogramVec,
    ntpot: HistogramVec,
    ttft: HistogramVec,
    tpot: HistogramVec,
    itl: HistogramVec,
    estimated: IntCounterVec,
}

/// Model, target model, fairness id and priority, as they came.
type FlowKey = (Arc<str>, Arc<str>, Arc<str>, i32);

/// The series of one flow, so that a request looks its labels up once.
#[derive(Debug)]
struct Flow {
    requests: IntCounter,
    running: IntGauge,
    duration: Histogram,
    request_size: Histogram,
    response_size: Histogram,
    input_tokens: Histogram,
    output_tokens: Histogram,
    cached_tokens: Histogram,
    ntpot: Histogram,
    ttft: [Histogram; 2],
    tpot: Histogram,
    itl: Histogram,
    /// Of input and of output.
    estimated: [IntCounter; 2],
}

impl RequestMetrics {
    pub(super) fn register(
        registry: &Registry,
        bounds: Bounds,
        flow: Option<(String, FlowMetrics)>,
    ) -> prometheus::Result<Self> {
        let no_labels: &[&str] = &[];
        Ok(Self {
            families: Families {
                requests: family::REQUESTS.counter(registry)?,
                errors: family::REQUEST_ERRORS.counter(registry)?,
                running: family::RUNNING.gauge(registry)?,
                duration: family::REQUEST_DURATION.histogram(registry)?,
                request_size: family::REQUEST_SIZE.histogram(registry)?,
                response_size: family::RESPONSE_SIZE.histogram(registry)?,
                input_tokens: family::INPUT_TOKENS.histogram(registry)?,
                output_tokens: family::OUTPUT_TOKENS.histogram(registry)?,
                cached_tokens: family::CACHED_TOKENS.histogram(registry)?,
                ntpot: family::NTPOT.histogram(registry)?,
                ttft: family::TTFT.histogram(registry)?,
                tpot: family::TPOT.histogram(registry)?,
                itl: family::ITL.histogram(registry)?,
                estimated: family::ESTIMATED_TOKENS.counter(registry)?,
            },
            bounds,
            flow,
            flows: RwLock::default(),
            outcomes: {
                let outcomes = family::OUTCOMES.counter(registry)?;
                // A rate can only be taken of what was there before its first count.
                let series = |outcome: Outcome| (outcome, outcomes.with_label_values(&[outcome.name()]));
                Outcome::all().map(series).collect()
            },
            local_replies: family::LOCAL_REPLIES.counter(registry)?,
            attempts: family::SCHEDULER_ATTEMPTS.counter(registry)?,
            request_processing: family::REQUEST_PROCESSING
                .histogram(registry)?
                .with_label_values(no_labels),
            response_processing: family::RESPONSE_PROCESSING
                .histogram(registry)?
                .with_label_values(no_labels),
            rewrites: family::MODEL_REWRITES.counter(registry)?,
            prefix_hit_ratio: family::PREFIX_HIT_RATIO.histogram(registry)?,
            prefix_hit_bytes: family::PREFIX_HIT_BYTES.histogram(registry)?,
        })
    }

    pub(super) fn routed(&self, record: &RequestRecord, decision: &Decision) {
        if record.kind == Kind::Bodiless {
            return;
        }
        let flow = self.flow(record);
        flow.requests.inc();
        flow.request_size.observe(record.request_bytes as f64);
        flow.running.inc();

        self.left_flow(record, flow::RELEASED);

        let endpoint = &decision.endpoints[0];
        let port = endpoint.port.to_string();
        let target = self.bounds.models.admit(&record.target_model);
        self.attempts
            .with_label_values(&["success", &target, &endpoint.name, endpoint.id.namespace(), &port])
            .inc();
        for hit in decision.prefix.iter().filter(|hit| hit.total > 0) {
            let labels = [&*hit.producer.name, hit.producer.type_name];
            let matched = f64::from(hit.matched);
            self.prefix_hit_ratio
                .with_label_values(&labels)
                .observe(matched / f64::from(hit.total));
            let bytes = matched * f64::from(hit.block_tokens) * 4.0;
            self.prefix_hit_bytes.with_label_values(&labels).observe(bytes);
        }
    }

    pub(super) fn chunks(&self, record: &RequestRecord, gaps: &[Duration]) {
        let flow = self.flow(record);
        for gap in gaps {
            flow.itl.observe(gap.as_secs_f64());
        }
    }

    pub(super) fn ended(&self, record: &RequestRecord) {
        let Some(outcome) = record.outcome else {
            debug_assert!(false, "a request that ended has an outcome");
            return;
        };
        self.outcomes[&outcome].inc();
        if let Some(rewrite) = &record.rewrite {
            let model = self.bounds.models.admit(&record.model);
            let target = self.bounds.models.admit(&record.target_model);
            self.rewrites.with_label_values(&[rewrite, &*model, &*target]).inc();
        }
        if let Outcome::Refused(Refusal::FilteredOut | Refusal::Unschedulable) = outcome {
            let target = self.bounds.models.admit(&record.target_model);
            self.attempts.with_label_values(&["failure", &target, "", "", ""]).inc();
        }
        if record.endpoint.is_none()
            && let Some(outcome) = flow::outcome_of(outcome, record.waited)
        {
            self.left_flow(record, outcome);
        }
        if let Some(decided) = record.decided {
            self.request_processing
                .observe(decided.since(record.received).as_secs_f64());
        }
        // What an endpoint answers to a request without a body, such as 404, says nothing about inference.
        if record.kind == Kind::Bodiless && record.endpoint.is_some() {
            return;
        }
        if let Some(error) = record.error {
            let [model, target, fairness_id, priority] = self.labels(record);
            self.families
                .errors
                .with_label_values(&[&*model, &*target, &*fairness_id, &*priority, error.name()])
                .inc();
        }
        if record.endpoint.is_none() {
            return;
        }
        let flow = self.flow(record);
        flow.running.dec();
        if record.usage_source == UsageSource::Estimate {
            flow.estimated[0].inc_by(record.usage.prompt);
            flow.estimated[1].inc_by(record.usage.completion);
        }
        if record.status.is_some() {
            self.response_processing
                .observe(record.response_processing.as_secs_f64());
        }
        if outcome == Outcome::Completed && record.is_measured {
            flow.completed(record);
        }
    }

    pub(super) fn local_reply(&self, record: &RequestRecord) {
        let status = record.status.filter(|status| (100..600).contains(status));
        let status = status.map(|status| status.to_string()).unwrap_or_default();
        self.local_replies.with_label_values(&[&*status]).inc();
    }

    fn left_flow(&self, record: &RequestRecord, outcome: &str) {
        let Some((pool, flow)) = &self.flow else { return };
        if outcome == flow::RELEASED && record.waited.is_none() {
            // It did not go through the queues.
            return;
        }
        let labels = self.labels(record);
        flow.left(record, outcome, labels.each_ref().map(|label| &**label), pool);
    }

    /// Model, target model, fairness id and priority, as they are shown.
    fn labels(&self, record: &RequestRecord) -> [Arc<str>; 4] {
        [
            self.bounds.models.admit(&record.model),
            self.bounds.models.admit(&record.target_model),
            self.bounds.fairness_ids.admit(&record.fairness_id),
            record.priority.to_string().into(),
        ]
    }

    fn flow(&self, record: &RequestRecord) -> Arc<Flow> {
        let key = (
            record.model.clone(),
            record.target_model.clone(),
            record.fairness_id.clone(),
            record.priority,
        );
        if let Some(flow) = self.flows.read().get(&key) {
            return flow.clone();
        }
        let flow = Arc::new(Flow::new(&self.families, &self.labels(record)));
        let values = [&record.model, &record.target_model, &record.fairness_id];
        if values.iter().any(|value| value.len() > bound::MAX_BYTES) {
            return flow;
        }
        let mut flows = self.flows.write();
        // What is shown is bounded by `admit`; what is only remembered for speed is bounded here.
        if flows.len() < MAX_VALUES * 4 {
            flows.insert(key, flow.clone());
        }
        flow
    }
}

impl Flow {
    fn new(families: &Families, labels: &[Arc<str>; 4]) -> Self {
        let [model, target, fairness_id, priority] = labels.each_ref().map(|label| &**label);
        let values = [model, target, fairness_id, priority];
        let ttft = |streaming| {
            let values = [model, target, fairness_id, priority, streaming];
            families.ttft.with_label_values(&values)
        };
        Self {
            requests: families.requests.with_label_values(&values),
            running: families.running.with_label_values(&values),
            duration: families.duration.with_label_values(&values),
            request_size: families.request_size.with_label_values(&values),
            response_size: families.response_size.with_label_values(&values),
            input_tokens: families.input_tokens.with_label_values(&values),
            output_tokens: families.output_tokens.with_label_values(&values),
            cached_tokens: families.cached_tokens.with_label_values(&values),
            ntpot: families.ntpot.with_label_values(&values),
            ttft: [ttft("false"), ttft("true")],
            tpot: families.tpot.with_label_values(&values),
            itl: families.itl.with_label_values(&values),
            estimated: ["input", "output"].map(|direction| {
                let values = [model, target, fairness_id, priority, direction];
                families.estimated.with_label_values(&values)
            }),
        }
    }

    fn completed(&self, record: &RequestRecord) {
        let Some(ended) = record.ended else { return };
        let duration = ended.since(record.received);
        let output_tokens = record.usage.completion;
        self.duration.observe(duration.as_secs_f64());
        self.response_size.observe(record.response_bytes as f64);
        if record.usage.prompt > 0 {
            self.input_tokens.observe(record.usage.prompt as f64);
        }
        if output_tokens > 0 {
            self.output_tokens.observe(output_tokens as f64);
            self.ntpot.observe(duration.as_secs_f64() / output_tokens as f64);
        }
        if let Some(cached) = record.usage.cached {
            self.cached_tokens.observe(cached as f64);
        }
        let Some(first_byte) = record.first_byte else { return };
        // A response that is not streamed comes all at once: its first token is its last.
        let first = if record.streaming {
            first_byte.since(record.received)
        } else {
            duration
        };
        self.ttft[usize::from(record.streaming)].observe(first.as_secs_f64());
        if record.streaming && output_tokens > 1 && ended > first_byte {
            let rest = ended.since(first_byte).as_secs_f64();
            self.tpot.observe(rest / (output_tokens - 1) as f64);
        }
    }
}
