//! What a run leaves behind: a record of each request, and what was seen on the way.

use std::fmt::Display;
use std::sync::Arc;

use super::request::{Client, RequestName, SessionRound};

/// What the instance at an index is called, where it has no name of its own.
pub fn instance_name(index: impl Display) -> String {
    format!("instance_{index}")
}

/// What became of one request. Times are microseconds; those with a date count from the start of the run.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// What it is called.
    pub name: RequestName,
    /// Who sent it.
    pub client: Arc<Client>,
    /// The conversation that it is a part of.
    pub session: Option<SessionRound>,
    /// When it reached the gateway.
    pub arrival_us: u64,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Tokens of its answer so far.
    pub output_tokens: u32,
    /// Tokens of its prompt that were found in the KV cache when it was first admitted to a batch.
    pub cached_tokens: u32,
    /// How it ended, or where it was when the run ended.
    pub end: End,
    /// The instance that it was sent to, by index.
    pub instance: Option<u32>,
    /// How long it waited at the gateway, if requests wait there.
    pub gateway_delay_us: Option<u64>,
    /// From arrival to the last time it entered a batch.
    pub scheduling_delay_us: Option<u64>,
    /// From arrival to its first token.
    pub ttft_us: Option<u64>,
    /// The sum of the times between its tokens.
    pub itl_sum_us: u64,
    /// From arrival to its end, once it is completed.
    pub e2e_us: Option<u64>,
    /// Its answer was cut short by the model's context length.
    pub length_capped: bool,
}

impl RequestRecord {
    /// The mean of the times between its tokens, in microseconds. Zero for a single token.
    pub fn itl_mean_us(&self) -> f64 {
        self.itl_sum_us as f64 / f64::from(self.output_tokens.saturating_sub(1).max(1))
    }
}

/// The bucket in which a request is counted. Every request of a run is in exactly one of them (spec, simulator 28.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// Its last token came out.
    Completed,
    /// It waits in the queue of its instance, or is on its way there.
    StillQueued,
    /// It is in the batch of its instance.
    StillRunning,
    /// Its instance cannot ever serve it.
    Dropped,
    /// Its client gave up.
    TimedOut,
    /// Admission did not let it in.
    Rejected,
    /// There was no instance for it.
    RoutingRejected,
    /// It waits at the gateway.
    InGateway,
    /// It waited at the gateway and was turned out for a more urgent one.
    GatewayShed,
    /// There was no room for it at the gateway.
    GatewayRejected,
    /// It was cut off on its instance for a more urgent one.
    GatewayEvicted,
    /// It waited at the gateway for as long as it may.
    GatewayExpired,
    /// Its instance failed.
    Failed,
}

impl End {
    /// Every end, in the order of this page.
    pub const ALL: [Self; 13] = [
        Self::Completed,
        Self::StillQueued,
        Self::StillRunning,
        Self::Dropped,
        Self::TimedOut,
        Self::Rejected,
        Self::RoutingRejected,
        Self::InGateway,
        Self::GatewayShed,
        Self::GatewayRejected,
        Self::GatewayEvicted,
        Self::GatewayExpired,
        Self::Failed,
    ];

    /// A stable name for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::StillQueued => "still-queued",
            Self::StillRunning => "still-running",
            Self::Dropped => "dropped",
            Self::TimedOut => "timed-out",
            Self::Rejected => "rejected",
            Self::RoutingRejected => "routing-rejected",
            Self::InGateway => "in-gateway",
            Self::GatewayShed => "gateway-shed",
            Self::GatewayRejected => "gateway-rejected",
            Self::GatewayEvicted => "gateway-evicted",
            Self::GatewayExpired => "gateway-expired",
            Self::Failed => "failed",
        }
    }
}

/// What one instance did in a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InstanceTotals {
    /// Preemptions.
    pub preemptions: u64,
    /// KV blocks that were asked for and found.
    pub block_hits: u64,
    /// KV blocks that were asked for and not found.
    pub block_misses: u64,
    /// Prompt tokens of the requests that it took in.
    pub input_tokens: u64,
    /// Steps.
    pub steps: u64,
    /// The sum over its steps of the requests that waited when the step began.
    pub waiting_sum: u64,
    /// How often a request was refused KV blocks because too few were free.
    pub kv_allocations_refused: u64,
    /// The most KV blocks in use at once.
    pub peak_kv_blocks: u32,
}

impl InstanceTotals {
    /// Share of the KV blocks asked for that were found, 0 to 1. Zero if none was asked for.
    pub fn cache_hit_rate(&self) -> f64 {
        match self.block_hits + self.block_misses {
            0 => 0.0,
            asked => self.block_hits as f64 / asked as f64,
        }
    }

    /// How many requests waited, on average over the steps. Zero if there was no step.
    pub fn mean_waiting(&self) -> f64 {
        match self.steps {
            0 => 0.0,
            steps => self.waiting_sum as f64 / steps as f64,
        }
    }
}

/// Everything that a run leaves behind for the reports.
#[derive(Debug, Default)]
pub struct RunRecord {
    /// The requests, in order of arrival.
    pub requests: Vec<RequestRecord>,
    /// The instances, by index.
    pub instances: Vec<InstanceTotals>,
    /// The times between tokens of completed requests, for each SLO class that occurs.
    pub itl: Vec<(Arc<str>, Counts)>,
    /// The same times, for each instance, by index. Instances past the end have none.
    pub instance_itl: Vec<Counts>,
    /// When the last thing happened, or the horizon if that came first.
    pub end_us: u64,
    /// Samples of the cluster over time.
    pub series: Series,
}

/// How often each whole number of microseconds occurred. Exact at any size: what comes often is counted, not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    dense: Vec<u32>,
    rare: std::collections::BTreeMap<u64, u64>,
    total: u64,
    sum: u128,
}

impl Counts {
    /// Values from here on are kept in a map.
    const DENSE: usize = 1 << 18;

    /// Counts one value.
    pub fn add(&mut self, value: u64) {
        self.add_many(value, 1);
    }

    /// Counts a value `times` times.
    fn add_many(&mut self, value: u64, times: u64) {
        self.total += times;
        self.sum += u128::from(value) * u128::from(times);
        match usize::try_from(value) {
            Ok(at) if at < Self::DENSE => {
                if at >= self.dense.len() {
                    self.dense.resize((at + 1).next_power_of_two(), 0);
                }
                match u32::try_from(u64::from(self.dense[at]) + times) {
                    Ok(more) => self.dense[at] = more,
                    Err(_) => *self.rare.entry(value).or_default() += times,
                }
            }
            _ => *self.rare.entry(value).or_default() += times,
        }
    }

    /// How many values there are.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Their sum.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Each value that occurred, ascending, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let split = Self::DENSE as u64;
        let dense = self.dense.iter().zip(0..).map(|(&count, value)| {
            let overflown = self.rare.get(&value).copied().unwrap_or(0);
            (value, u64::from(count) + overflown)
        });
        let rare = self.rare.range(split..).map(|(&value, &count)| (value, count));
        dense.filter(|&(_, count)| count > 0).chain(rare)
    }

    /// Adds what another one counted.
    pub fn merge(&mut self, other: &Self) {
        for (value, count) in other.iter() {
            self.add_many(value, count);
        }
    }
}

/// Samples of the cluster at equal distances of time, of bounded number: when there would be more, every second one is
/// dropped and the distance doubles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The distance of two samples, in microseconds.
    pub every_us: u64,
    /// Who says how full the pool and its endpoints are.
    pub judge: Judge,
    /// The samples, in order of time.
    pub samples: Vec<Sample>,
}

/// Who says how full a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Judge {
    /// The saturation detector of the run.
    #[default]
    Detector,
    /// A utilization detector with the default thresholds, whom nobody heeds: that of the run finds room in every pool.
    Onlooker,
}

/// The cluster at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// When.
    pub at_us: u64,
    /// Requests that wait at the gateway.
    pub gateway_waiting: u64,
    /// How full the pool is, as [`Series::judge`] says.
    pub saturation: f64,
    /// The instances, by index.
    pub instances: Vec<InstanceSample>,
}

/// One instance at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InstanceSample {
    /// Requests that wait.
    pub waiting: u32,
    /// Requests in the batch.
    pub running: u32,
    /// Requests that the gateway sent and that have not ended.
    pub in_flight: u32,
    /// Share of the KV blocks in use, 0 to 1.
    pub kv_usage: f64,
    /// How full it is, as [`Series::judge`] says.
    pub saturation: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_back_in_order_however_large_the_values_are() {
        let mut counts = Counts::default();
        for value in [7, 1 << 30, 7, 0, 300_000] {
            counts.add(value);
        }

        assert_eq!(
            counts.iter().collect::<Vec<_>>(),
            [(0, 1), (7, 2), (300_000, 1), (1 << 30, 1)]
        );
        assert_eq!((counts.total(), counts.sum()), (5, 14 + 300_000 + (1 << 30)));
    }

    #[test]
    fn counts_merged_into_none_are_the_same() {
        let mut one = Counts::default();
        one.add(12_209);
        let mut merged = Counts::default();
        merged.merge(&one);

        assert_eq!(merged.iter().collect::<Vec<_>>(), [(12_209, 1)]);
    }

    #[test]
    fn counts_past_the_dense_ones_go_on() {
        let mut counts = Counts::default();
        counts.add_many(7, u64::from(u32::MAX));
        counts.add_many(7, 5);

        assert_eq!(counts.iter().collect::<Vec<_>>(), [(7, u64::from(u32::MAX) + 5)]);
    }

    #[test]
    fn merged_counts_are_those_of_all_values() {
        let (mut one, mut other, mut both) = (Counts::default(), Counts::default(), Counts::default());
        for value in [3, 9, 1 << 20] {
            one.add(value);
            both.add(value);
        }
        for value in [9, 2] {
            other.add(value);
            both.add(value);
        }
        one.merge(&other);

        assert_eq!(one.iter().collect::<Vec<_>>(), both.iter().collect::<Vec<_>>());
        assert_eq!((one.total(), one.sum()), (both.total(), both.sum()));
    }
}
