//! What is counted by labels that come from requests, and under which names it is shown.

use super::super::family::{self, Family, Kind};
use super::key::Schema;

/// One family, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Measure {
    Requests,
    Errors,
    EstimatedTokens,
    /// A gauge that rows keep by themselves.
    Running,
    Duration,
    RequestSize,
    ResponseSize,
    InputTokens,
    OutputTokens,
    CachedTokens,
    Ntpot,
    Ttft,
    Tpot,
    Itl,
    QueueDuration,
    EnqueueDuration,
    Attempts,
    Rewrites,
}

impl Measure {
    pub(in super::super) const ALL: [Self; 18] = [
        Self::Requests,
        Self::Errors,
        Self::EstimatedTokens,
        Self::Running,
        Self::Duration,
        Self::RequestSize,
        Self::ResponseSize,
        Self::InputTokens,
        Self::OutputTokens,
        Self::CachedTokens,
        Self::Ntpot,
        Self::Ttft,
        Self::Tpot,
        Self::Itl,
        Self::QueueDuration,
        Self::EnqueueDuration,
        Self::Attempts,
        Self::Rewrites,
    ];

    pub(in super::super) const fn family(self) -> &'static Family {
        match self {
            Self::Requests => &family::REQUESTS,
            Self::Errors => &family::REQUEST_ERRORS,
            Self::EstimatedTokens => &family::ESTIMATED_TOKENS,
            Self::Running => &family::RUNNING,
            Self::Duration => &family::REQUEST_DURATION,
            Self::RequestSize => &family::REQUEST_SIZE,
            Self::ResponseSize => &family::RESPONSE_SIZE,
            Self::InputTokens => &family::INPUT_TOKENS,
            Self::OutputTokens => &family::OUTPUT_TOKENS,
            Self::CachedTokens => &family::CACHED_TOKENS,
            Self::Ntpot => &family::NTPOT,
            Self::Ttft => &family::TTFT,
            Self::Tpot => &family::TPOT,
            Self::Itl => &family::ITL,
            Self::QueueDuration => &family::QUEUE_DURATION,
            Self::EnqueueDuration => &family::ENQUEUE_DURATION,
            Self::Attempts => &family::SCHEDULER_ATTEMPTS,
            Self::Rewrites => &family::MODEL_REWRITES,
        }
    }

    /// The upper bounds of its buckets. `None` for a counter or gauge.
    pub(super) const fn buckets(self) -> Option<&'static [f64]> {
        match self.family().kind {
            Kind::Histogram(bounds) => Some(bounds),
            Kind::Counter | Kind::Gauge => None,
        }
    }

    /// Where it is counted under its present name.
    pub(in super::super) const fn schema(self) -> Schema {
        match self {
            Self::Requests | Self::Errors | Self::EstimatedTokens | Self::Running => Schema::Counts,
            Self::EnqueueDuration => Schema::Enqueues,
            Self::Attempts => Schema::Attempts,
            Self::Rewrites => Schema::Rewrites,
            _ => Schema::Distributions,
        }
    }

    /// Where it is counted under its older name, if it has one: by model if that name does not tell tenants apart, and
    /// else where it is counted anyway. What runs is added up for the page.
    fn older_schema(self) -> Option<Schema> {
        let older = self.family().old.as_ref()?;
        let tells_tenants = older.labels.iter().any(|(_, label)| *label == "fairness_id");
        let by_tenant = matches!(self.schema(), Schema::Counts | Schema::Distributions);
        match by_tenant && !tells_tenants && self != Self::Running {
            true => Some(Schema::Models),
            false => Some(self.schema()),
        }
    }

    /// True if it is counted by model too, for its older name.
    pub(in super::super) fn has_sums_by_model(self) -> bool {
        self.older_schema() == Some(Schema::Models)
    }
}

/// A family on the page.
#[derive(Clone, Debug)]
pub(in super::super) struct Shown {
    pub(in super::super) name: &'static str,
    pub(in super::super) help: String,
    pub(in super::super) kind: Kind,
    pub(in super::super) measure: Measure,
    /// The rows in which it is counted.
    pub(in super::super) schema: Schema,
    /// Each label, and what it is called in the family under its present name. In the order of the page.
    pub(in super::super) labels: Vec<(&'static str, &'static str)>,
    /// It is the older name.
    pub(in super::super) is_older: bool,
}

impl Shown {
    /// All of them, with the older names if they are wanted.
    pub(in super::super) fn all(older_names: bool) -> Vec<Self> {
        let present = Measure::ALL.into_iter().map(Self::present);
        let older = Measure::ALL.into_iter().filter(|_| older_names).filter_map(Self::older);
        present.chain(older).collect()
    }

    fn present(measure: Measure) -> Self {
        let family = measure.family();
        Self {
            name: family.name,
            help: family.page_help(),
            kind: family.kind,
            measure,
            schema: measure.schema(),
            labels: sorted(family.labels.iter().map(|label| (*label, *label)).collect()),
            is_older: false,
        }
    }

    fn older(measure: Measure) -> Option<Self> {
        let family = measure.family();
        let older = family.old.as_ref()?;
        Some(Self {
            name: older.name,
            help: family.older_help(),
            kind: family.kind,
            measure,
            schema: measure.older_schema()?,
            labels: sorted(older.labels.to_vec()),
            is_older: true,
        })
    }

    /// Bytes that one series takes on the page if the values of its labels have so many.
    pub(super) fn bytes(&self, value_bytes: usize) -> usize {
        /// Of `{}`, the space, the value and the end of the line.
        const AROUND: usize = 10;
        /// Of `_bucket` and the label `le`.
        const OF_A_BUCKET: usize = 20;
        let names: usize = self.labels.iter().map(|(label, _)| label.len() + r#"="","#.len()).sum();
        let line = self.name.len() + names + value_bytes + AROUND;
        match self.kind {
            Kind::Histogram(bounds) => (bounds.len() + 3) * (line + OF_A_BUCKET),
            Kind::Counter | Kind::Gauge => line,
        }
    }
}

fn sorted(mut labels: Vec<(&'static str, &'static str)>) -> Vec<(&'static str, &'static str)> {
    labels.sort_unstable();
    labels
}
