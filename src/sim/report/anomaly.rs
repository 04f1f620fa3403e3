//! Things that a run should have few of (spec, simulator 28.3).

use std::collections::BTreeMap;

use super::metrics::class_name;
use super::options::ReportOptions;
use super::tally::Tally;
use crate::sim::classes::STANDARD;
use crate::sim::record::{End, InstanceTotals, RequestRecord, RunRecord};

/// The scheduler for which priority inversions are counted.
const SCHEDULER_WITH_INVERSIONS: &str = "priority-fcfs";
/// A wait queue this many times longer than the mean is one that blocks.
const BLOCKING_FACTOR: f64 = 2.0;

/// What a counter is called, and where it stands.
type Counter = (&'static str, u64);

/// Things that a run should have few of.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Anomalies {
    /// Pairs of completed requests of one class on one instance, of which the earlier took more than twice as long.
    pub priority_inversions: u64,
    /// Instances whose queue was on average more than twice as long as the mean of all.
    pub hol_blocking_events: u64,
    /// Requests that admission rejected.
    pub rejected_admission: u64,
    /// Requests that admission rejected, that the gateway turned out, that waited there for as long as they might, or that
    /// were cut off for others, by SLO class (spec, simulator 8.2: those for which the gateway had no room are not
    /// counted). Those without a class are counted as `standard`, whose priority they have.
    pub shed_by_class: BTreeMap<String, u64>,
    /// Requests for which there was no instance.
    pub rejected_routing: u64,
    /// Requests that their instance could never serve.
    pub dropped_unservable: u64,
    /// Requests whose client gave up.
    pub timed_out: u64,
    /// Answers that the context length cut short.
    pub length_capped: u64,
    /// Requests that still waited at the gateway.
    pub gateway_depth: u64,
    /// Requests that the gateway turned out for more urgent ones.
    pub gateway_shed: u64,
    /// Requests for which the gateway had no room.
    pub gateway_rejected: u64,
    /// Requests that were cut off on their instance for more urgent ones.
    pub gateway_evicted: u64,
    /// Requests that waited at the gateway for as long as they might.
    pub gateway_expired: u64,
    /// Requests whose instance failed.
    pub failed: u64,
}

impl Anomalies {
    /// Counts those of a run.
    pub fn of(record: &RunRecord, tally: &Tally, options: &ReportOptions) -> Self {
        let shed = |end| {
            matches!(
                end,
                End::Rejected | End::GatewayShed | End::GatewayEvicted | End::GatewayExpired
            )
        };
        let mut shed_by_class = BTreeMap::new();
        for request in record.requests.iter().filter(|request| shed(request.end)) {
            let class = match &*request.client.slo_class {
                "" => STANDARD,
                class => class,
            };
            *shed_by_class.entry(class.to_owned()).or_default() += 1;
        }
        let counts_inversions = options.scheduler == SCHEDULER_WITH_INVERSIONS;
        Self {
            priority_inversions: if counts_inversions {
                priority_inversions(&record.requests)
            } else {
                0
            },
            hol_blocking_events: blocking_instances(&record.instances),
            rejected_admission: tally[End::Rejected],
            shed_by_class,
            rejected_routing: tally[End::RoutingRejected],
            dropped_unservable: tally[End::Dropped],
            timed_out: tally[End::TimedOut],
            length_capped: record.requests.iter().filter(|r| r.length_capped).count() as u64,
            gateway_depth: tally[End::InGateway],
            gateway_shed: tally[End::GatewayShed],
            gateway_rejected: tally[End::GatewayRejected],
            gateway_evicted: tally[End::GatewayEvicted],
            gateway_expired: tally[End::GatewayExpired],
            failed: tally[End::Failed],
        }
    }

    /// The counters with their names for people, in the order of the report. The second group is shown only where it
    /// is not zero.
    pub fn named(&self) -> ([Counter; 6], [Counter; 6]) {
        (
            [
                ("Priority Inversions", self.priority_inversions),
                ("HOL Blocking Events", self.hol_blocking_events),
                ("Rejected Requests (Routing)", self.rejected_routing),
                ("Dropped Unservable", self.dropped_unservable),
                ("Timed Out Requests", self.timed_out),
                ("Length-Capped Requests", self.length_capped),
            ],
            [
                ("Gateway Queue Depth (horizon)", self.gateway_depth),
                ("Gateway Queue Shed", self.gateway_shed),
                ("Gateway Queue Rejected", self.gateway_rejected),
                ("Gateway Evicted (in-flight)", self.gateway_evicted),
                ("Gateway Expired (TTL)", self.gateway_expired),
                ("Failed (Instance Faults)", self.failed),
            ],
        )
    }

    /// True if nothing was counted.
    pub fn is_empty(&self) -> bool {
        let (always, sometimes) = self.named();
        self.rejected_admission == 0 && always.iter().chain(&sometimes).all(|&(_, count)| count == 0)
    }
}

/// `requests` are in order of arrival. Takes `n log n` steps.
fn priority_inversions(requests: &[RequestRecord]) -> u64 {
    let mut groups: BTreeMap<(u32, &str), Vec<u64>> = BTreeMap::new();
    for request in requests {
        if let (Some(instance), Some(e2e)) = (request.instance, request.e2e_us) {
            let class = class_name(&request.client.slo_class);
            groups.entry((instance, class)).or_default().push(e2e);
        }
    }
    groups.into_values().map(|latencies| inverted_pairs(&latencies)).sum()
}

/// Pairs of which the former is more than twice the latter.
fn inverted_pairs(latencies: &[u64]) -> u64 {
    let mut sorted = latencies.to_vec();
    sorted.sort_unstable();
    // A Fenwick tree over the ranks: how many of those seen so far are at most as large as the one of that rank.
    let mut seen = vec![0_u64; sorted.len() + 1];
    let mut pairs = 0;
    for (before, &latency) in (0_u64..).zip(latencies) {
        let mut at = sorted.partition_point(|&other| other <= latency.saturating_mul(2));
        let mut at_most_twice = 0;
        while at > 0 {
            at_most_twice += seen[at];
            at &= at - 1;
        }
        pairs += before - at_most_twice;
        let mut at = sorted.partition_point(|&other| other < latency) + 1;
        while at < seen.len() {
            seen[at] += 1;
            at += at & at.wrapping_neg();
        }
    }
    pairs
}

/// Instances at whose door far more requests wait than elsewhere. One that never made a step has an empty queue.
fn blocking_instances(instances: &[InstanceTotals]) -> u64 {
    if instances.len() < 2 {
        return 0;
    }
    let lengths = instances.iter().map(InstanceTotals::mean_waiting);
    let mean = lengths.clone().sum::<f64>() / instances.len() as f64;
    lengths.filter(|&length| length > BLOCKING_FACTOR * mean).count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sim::report::testing::{completed, of_class, on_instance};

    fn instance(steps: u64, waiting_sum: u64) -> InstanceTotals {
        InstanceTotals {
            steps,
            waiting_sum,
            ..InstanceTotals::default()
        }
    }

    #[test]
    fn an_instance_with_most_of_the_waiting_is_counted() {
        // Mean queues 6, 0, 0: the mean of means is 2.
        assert_eq!(
            blocking_instances(&[instance(10, 60), instance(10, 0), instance(0, 0)]),
            1
        );
        // Mean queues 2, 1: neither is more than twice 1.5.
        assert_eq!(blocking_instances(&[instance(10, 20), instance(10, 10)]), 0);
        assert_eq!(blocking_instances(&[instance(10, 60)]), 0, "one instance has no other");
    }

    #[test]
    fn what_was_let_in_and_lost_at_the_gateway_is_counted_by_class_except_for_want_of_room() {
        let record = RunRecord {
            requests: End::ALL
                .into_iter()
                .zip(0..)
                .map(|(end, number)| RequestRecord {
                    end,
                    ..of_class(completed(number, 1, 1), end.name())
                })
                .collect(),
            ..RunRecord::default()
        };

        let anomalies = Anomalies::of(&record, &Tally::default(), &ReportOptions::default());

        let counted: Vec<_> = anomalies
            .shed_by_class
            .iter()
            .map(|(class, count)| (&**class, *count))
            .collect();
        assert_eq!(
            counted,
            [
                ("gateway-evicted", 1),
                ("gateway-expired", 1),
                ("gateway-shed", 1),
                ("rejected", 1)
            ]
        );
    }

    #[test]
    fn inversions_are_counted_within_an_instance_and_a_class() {
        let requests = [
            of_class(on_instance(completed(0, 1, 500), 0), "batch"),
            of_class(on_instance(completed(1, 1, 200), 1), "batch"),
            of_class(on_instance(completed(2, 1, 200), 0), "critical"),
            of_class(on_instance(completed(3, 1, 250), 0), "batch"),
            of_class(on_instance(completed(4, 1, 249), 0), "batch"),
        ];

        // 500 is not more than twice 250, and is more than twice 249.
        assert_eq!(priority_inversions(&requests), 1);
    }

    proptest! {
        #[test]
        fn inverted_pairs_are_those_that_looking_at_every_pair_finds(
            latencies in prop::collection::vec(0..60_u64, 0..60),
        ) {
            let earlier = |at: usize| latencies[..at].iter();
            let pairs: usize = (0..latencies.len())
                .map(|at| earlier(at).filter(|&&before| before > 2 * latencies[at]).count())
                .sum();

            prop_assert_eq!(inverted_pairs(&latencies), pairs as u64);
        }
    }
}
