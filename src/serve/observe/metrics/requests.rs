//! Families about requests and responses (spec, metrics 3 and 12).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry};
use smallvec::SmallVec;

use super::family;
use super::flow;
use super::series::{AttemptedEndpoint, Extra, Flow, Key, Measure, SeriesTable};
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::request::Kind;
use crate::engine::scheduling::Decision;
use crate::engine::time::Timestamp;
use crate::serve::clock::Clock;
use crate::serve::observe::record::RequestRecord;
use crate::serve::parse::UsageSource;

#[derive(Debug)]
pub(super) struct RequestMetrics {
    clock: Clock,
    series: Arc<Mutex<SeriesTable>>,
    /// The name of the pool, and what left flow control, if requests may wait.
    flow: Option<(String, IntCounterVec)>,
    outcomes: BTreeMap<Outcome, IntCounter>,
    local_replies: IntCounterVec,
    request_processing: Histogram,
    response_processing: Histogram,
    prefix_hit_ratio: HistogramVec,
    prefix_hit_bytes: HistogramVec,
}

/// What is counted of one request at one moment.
struct Counting<'t> {
    now: Timestamp,
    series: &'t mut SeriesTable,
    flow: Flow,
}

impl RequestMetrics {
    pub(super) fn register(
        registry: &Registry,
        clock: Clock,
        series: Arc<Mutex<SeriesTable>>,
        flow_control: Option<String>,
    ) -> prometheus::Result<Self> {
        let no_labels: &[&str] = &[];
        Ok(Self {
            clock,
            series,
            flow: match flow_control {
                Some(pool) => Some((pool, family::QUEUE_OUTCOMES.counter(registry)?)),
                None => None,
            },
            outcomes: {
                let outcomes = family::OUTCOMES.counter(registry)?;
                // A rate can only be taken of what was there before its first count.
                let series = |outcome: Outcome| (outcome, outcomes.with_label_values(&[outcome.name()]));
                Outcome::all().map(series).collect()
            },
            local_replies: family::LOCAL_REPLIES.counter(registry)?,
            request_processing: family::REQUEST_PROCESSING
                .histogram(registry)?
                .with_label_values(no_labels),
            response_processing: family::RESPONSE_PROCESSING
                .histogram(registry)?
                .with_label_values(no_labels),
            prefix_hit_ratio: family::PREFIX_HIT_RATIO.histogram(registry)?,
            prefix_hit_bytes: family::PREFIX_HIT_BYTES.histogram(registry)?,
        })
    }

    pub(super) fn routed(&self, record: &RequestRecord, decision: &Decision) {
        if record.kind == Kind::Bodiless {
            return;
        }
        for hit in decision.prefix.iter().filter(|hit| hit.total > 0) {
            let labels = [&*hit.producer.name, hit.producer.type_name];
            let matched = f64::from(hit.matched);
            self.prefix_hit_ratio
                .with_label_values(&labels)
                .observe(matched / f64::from(hit.total));
            let bytes = matched * f64::from(hit.block_tokens) * 4.0;
            self.prefix_hit_bytes.with_label_values(&labels).observe(bytes);
        }
        let endpoint = &decision.endpoints[0];
        let endpoint = AttemptedEndpoint {
            id: endpoint.id.clone(),
            name: endpoint.name.clone(),
            port: endpoint.port,
        };
        let series = &mut *self.series.lock();
        let mut counting = self.counting(series, record);
        counting.requested(record.request_bytes);
        counting.attempted(Some(endpoint));
        self.left_flow(&mut counting, record, flow::RELEASED);
    }

    pub(super) fn chunks(&self, record: &RequestRecord, gaps: &[Duration]) {
        let (now, flow) = (self.clock.now(), flow_of(record));
        let mut series = self.series.lock();
        let mut row = series.row(now, Key::Distributions(flow));
        for gap in gaps {
            row.observe(Measure::Itl, Extra::None, gap.as_secs_f64());
        }
    }

    pub(super) fn ended(&self, record: &RequestRecord) {
        let Some(outcome) = record.outcome else {
            debug_assert!(false, "a request that ended has an outcome");
            return;
        };
        self.outcomes[&outcome].inc();
        if let Some(decided) = record.decided {
            self.request_processing
                .observe(decided.since(record.received).as_secs_f64());
        }
        let is_inference = record.kind != Kind::Bodiless;
        if is_inference && record.endpoint.is_some() && record.status.is_some() {
            self.response_processing
                .observe(record.response_processing.as_secs_f64());
        }
        let series = &mut *self.series.lock();
        let mut counting = self.counting(series, record);
        if let Some(rewrite) = &record.rewrite {
            counting.rewritten(rewrite);
        }
        if let Outcome::Refused(Refusal::FilteredOut | Refusal::Unschedulable) = outcome {
            counting.attempted(None);
        }
        if record.endpoint.is_none()
            && let Some(outcome) = flow::outcome_of(outcome, record.waited)
        {
            self.left_flow(&mut counting, record, outcome);
        }
        // What an endpoint answers to a request without a body, such as 404, says nothing about inference.
        if !is_inference && record.endpoint.is_some() {
            return;
        }
        if let Some(error) = record.error {
            counting.count(Measure::Errors, Extra::Word(error.name()), 1);
        }
        if record.endpoint.is_none() {
            return;
        }
        counting.ended();
        if record.usage_source == UsageSource::Estimate {
            let usage = &record.usage;
            counting.count(Measure::EstimatedTokens, Extra::Word("input"), usage.prompt);
            counting.count(Measure::EstimatedTokens, Extra::Word("output"), usage.completion);
        }
        if outcome == Outcome::Completed && record.is_measured {
            counting.completed(record);
        }
    }

    pub(super) fn local_reply(&self, record: &RequestRecord) {
        let status = record.status.filter(|status| (100..600).contains(status));
        let status = status.map(|status| status.to_string()).unwrap_or_default();
        self.local_replies.with_label_values(&[&*status]).inc();
    }

    fn counting<'t>(&self, series: &'t mut SeriesTable, record: &RequestRecord) -> Counting<'t> {
        Counting {
            now: self.clock.now(),
            series,
            flow: flow_of(record),
        }
    }

    fn left_flow(&self, counting: &mut Counting<'_>, record: &RequestRecord, outcome: &'static str) {
        let Some((pool, outcomes)) = &self.flow else { return };
        if outcome == flow::RELEASED && record.waited.is_none() {
            // It did not go through the queues.
            return;
        }
        let labels = [outcome, &*record.priority.to_string(), pool];
        outcomes.with_label_values(&labels).inc();
        if let Some(waited) = record.waited {
            counting.observe(Measure::QueueDuration, Extra::Word(outcome), waited.as_secs_f64());
        }
    }
}

fn flow_of(record: &RequestRecord) -> Flow {
    Flow {
        model: record.model.clone(),
        target_model: record.target_model.clone(),
        fairness_id: record.fairness_id.clone(),
        priority: record.priority,
    }
}

impl Counting<'_> {
    /// Counts by flow, and by model too if that is shown under an older name.
    fn count(&mut self, measure: Measure, extra: Extra, more: u64) {
        let counts = Key::Counts(self.flow.clone());
        self.series.row(self.now, counts).count(measure, extra, more);
        if measure.has_sums_by_model() && self.series.has_older_names() {
            let models = self.by_model();
            self.series.row(self.now, models).count(measure, extra, more);
        }
    }

    fn observe(&mut self, measure: Measure, extra: Extra, value: f64) {
        self.observe_all(&[(measure, extra, value)]);
    }

    fn observe_all(&mut self, observed: &[(Measure, Extra, f64)]) {
        let distributions = Key::Distributions(self.flow.clone());
        let mut row = self.series.row(self.now, distributions);
        for &(measure, extra, value) in observed {
            row.observe(measure, extra, value);
        }
        let mut by_model = observed
            .iter()
            .filter(|(measure, ..)| measure.has_sums_by_model())
            .peekable();
        if by_model.peek().is_some() && self.series.has_older_names() {
            let models = self.by_model();
            let mut row = self.series.row(self.now, models);
            for &(measure, extra, value) in by_model {
                row.observe(measure, extra, value);
            }
        }
    }

    fn by_model(&self) -> Key {
        Key::Models {
            model: self.flow.model.clone(),
            target_model: self.flow.target_model.clone(),
        }
    }

    fn requested(&mut self, bytes: u64) {
        self.series.started(self.now, Key::Counts(self.flow.clone()));
        let counts = Key::Counts(self.flow.clone());
        self.series
            .row(self.now, counts)
            .count(Measure::Requests, Extra::None, 1);
        if self.series.has_older_names() {
            let (models, priority) = (self.by_model(), Extra::Number(self.flow.priority));
            self.series.row(self.now, models).count(Measure::Requests, priority, 1);
        }
        self.observe(Measure::RequestSize, Extra::None, bytes as f64);
    }

    fn ended(&mut self) {
        self.series.ended(self.now, Key::Counts(self.flow.clone()));
    }

    fn attempted(&mut self, endpoint: Option<AttemptedEndpoint>) {
        let attempts = Key::Attempts {
            target_model: self.flow.target_model.clone(),
            endpoint,
        };
        self.series
            .row(self.now, attempts)
            .count(Measure::Attempts, Extra::None, 1);
    }

    fn rewritten(&mut self, rewrite: &Arc<str>) {
        let rewrites = Key::Rewrites {
            rewrite: rewrite.clone(),
            model: self.flow.model.clone(),
            target_model: self.flow.target_model.clone(),
        };
        self.series
            .row(self.now, rewrites)
            .count(Measure::Rewrites, Extra::None, 1);
    }

    fn completed(&mut self, record: &RequestRecord) {
        let Some(ended) = record.ended else { return };
        let duration = ended.since(record.received);
        let usage = &record.usage;
        let mut observed: SmallVec<[(Measure, Extra, f64); 8]> = SmallVec::new();
        let mut observe = |measure, extra, value| observed.push((measure, extra, value));
        observe(Measure::Duration, Extra::None, duration.as_secs_f64());
        observe(Measure::ResponseSize, Extra::None, record.response_bytes as f64);
        if usage.prompt > 0 {
            observe(Measure::InputTokens, Extra::None, usage.prompt as f64);
        }
        if usage.completion > 0 {
            observe(Measure::OutputTokens, Extra::None, usage.completion as f64);
            observe(
                Measure::Ntpot,
                Extra::None,
                duration.as_secs_f64() / usage.completion as f64,
            );
        }
        if let Some(cached) = usage.cached {
            observe(Measure::CachedTokens, Extra::None, cached as f64);
        }
        if let Some(first_byte) = record.first_byte {
            // A response that is not streamed comes all at once: its first token is its last.
            let (first, streaming) = match record.streaming {
                true => (first_byte.since(record.received), "true"),
                false => (duration, "false"),
            };
            observe(Measure::Ttft, Extra::Word(streaming), first.as_secs_f64());
            if record.streaming && usage.completion > 1 && ended > first_byte {
                let rest = ended.since(first_byte).as_secs_f64();
                observe(Measure::Tpot, Extra::None, rest / (usage.completion - 1) as f64);
            }
        }
        self.observe_all(&observed);
    }
}
