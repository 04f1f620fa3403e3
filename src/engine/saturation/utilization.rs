//! A pool is as full as its endpoints report to be, and as what was sent to them since.

use std::time::Duration;

use serde::Deserialize;

use super::super::plugin::{Needs, Parameter, Plugin};
use super::super::pool::{Candidates, Member, Slot, age_of};
use super::super::scheduling::{Cycle, Filter};
use super::super::seed::Chance;
use super::super::time::Timestamp;
use super::SaturationDetector;
use super::faults::{Faults, HEADROOM};

/// The mean over the endpoints of `max((waiting + unreported) / queueDepthThreshold, kv / kvCacheUtilThreshold)`, and
/// 1 for an endpoint whose metrics are stale (spec, flow control 12.1).
///
/// `unreported` is ours: what was released counts before a scrape shows it, so that one look at an idle pool does not
/// let a whole backlog through. So is what happens when the metrics of *every* endpoint are stale. The reference counts
/// them all full then, and a failure to scrape stops the pool for ever; here each is as full as the requests in flight
/// to it, of which it may have `staleMaxInFlight`: the pool goes on at a walk, whatever its size.
///
/// As a filter it keeps the fresh endpoints that are below both thresholds by their own report. If it would keep none,
/// it keeps all.
#[derive(Clone, Debug, PartialEq)]
pub struct UtilizationDetector {
    queue_depth: f64,
    kv_cache: f64,
    staleness: Duration,
    stale_max_in_flight: f64,
    count_unreported: bool,
    headroom: f64,
}

/// What the user may write.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UtilizationParams {
    queue_depth_threshold: i64,
    kv_cache_util_threshold: f64,
    metrics_staleness_threshold: String,
    stale_max_in_flight: i64,
    count_unreported: bool,
    headroom: f64,
}

impl Default for UtilizationParams {
    fn default() -> Self {
        Self {
            queue_depth_threshold: 5,
            kv_cache_util_threshold: 0.8,
            metrics_staleness_threshold: "200ms".to_owned(),
            stale_max_in_flight: 5,
            count_unreported: true,
            headroom: 0.0,
        }
    }
}

impl Plugin for UtilizationDetector {
    const TYPE: &'static str = "utilization-detector";
    const SUMMARY: &'static str = "finds a pool full by the queues and caches that its endpoints report; as a filter, \
                                   keeps the endpoints that are not full, or all if all are";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "queueDepthThreshold",
            default: "5",
            summary: "waiting requests at which an endpoint is full; above 0",
        },
        Parameter {
            name: "kvCacheUtilThreshold",
            default: "0.8",
            summary: "share of the KV cache at which an endpoint is full; above 0, at most 1",
        },
        Parameter {
            name: "metricsStalenessThreshold",
            default: "\"200ms\"",
            summary: "an endpoint whose metrics are older counts as full, unless those of all are; above 0. A long \
                      one, such as 100000h, takes reports for as good as they are",
        },
        Parameter {
            name: "staleMaxInFlight",
            default: "5",
            summary: "requests in flight at which an endpoint is full while the metrics of every endpoint are stale, \
                      so that a pool that cannot be scraped neither stops nor is flooded; above 0",
        },
        Parameter {
            name: "countUnreported",
            default: "true",
            summary: "counts requests that were sent after the last report of an endpoint as waiting there",
        },
        HEADROOM,
    ];
    type Params = UtilizationParams;
    type Error = Faults;

    fn from_params(params: UtilizationParams, needs: &mut Needs) -> Result<Self, Faults> {
        let mut faults = Faults::default();
        let detector = Self {
            queue_depth: faults.positive("queueDepthThreshold", params.queue_depth_threshold) as f64,
            kv_cache: faults.share("kvCacheUtilThreshold", params.kv_cache_util_threshold),
            staleness: faults.span("metricsStalenessThreshold", &params.metrics_staleness_threshold),
            stale_max_in_flight: faults.positive("staleMaxInFlight", params.stale_max_in_flight) as f64,
            count_unreported: params.count_unreported,
            headroom: faults.headroom(params.headroom, needs),
        };
        needs.fresh_signals(detector.staleness);
        faults.none_or(detector)
    }
}

impl UtilizationDetector {
    /// The detector with the default thresholds that takes reports for as good as they are, however old, and counts
    /// nothing beside them.
    pub fn of_reports() -> Self {
        let UtilizationParams {
            queue_depth_threshold,
            kv_cache_util_threshold,
            stale_max_in_flight,
            headroom,
            ..
        } = UtilizationParams::default();
        Self {
            queue_depth: queue_depth_threshold as f64,
            kv_cache: kv_cache_util_threshold,
            staleness: Duration::MAX,
            stale_max_in_flight: stale_max_in_flight as f64,
            count_unreported: false,
            headroom,
        }
    }

    fn is_stale(&self, now: Timestamp, member: &Member) -> bool {
        age_of(member.signals.at, now) > self.staleness
    }

    fn load(&self, member: &Member) -> f64 {
        let unreported = match self.count_unreported {
            true => member.in_flight.unreported,
            false => 0,
        };
        let queued = f64::from(member.signals.waiting) + f64::from(unreported);
        (queued / self.queue_depth).max(member.signals.kv_usage / self.kv_cache)
    }

    fn blind_load(&self, member: &Member) -> f64 {
        f64::from(member.in_flight.requests) / self.stale_max_in_flight
    }

    fn has_room(&self, member: &Member) -> bool {
        let stretch = 1.0 + self.headroom;
        f64::from(member.signals.waiting) < self.queue_depth * stretch
            && member.signals.kv_usage < self.kv_cache * stretch
    }
}

impl SaturationDetector for UtilizationDetector {
    fn saturation(&self, now: Timestamp, endpoints: Candidates<'_>) -> f64 {
        if endpoints.is_empty() {
            return 1.0;
        }
        let members = endpoints.iter().map(|(_, member)| member);
        let sum: f64 = if self.stale(now, endpoints) == endpoints.len() {
            members.map(|member| self.blind_load(member)).sum()
        } else {
            let known = |member| {
                if self.is_stale(now, member) {
                    1.0
                } else {
                    self.load(member)
                }
            };
            members.map(known).sum()
        };
        sum / endpoints.len() as f64
    }

    /// A report may be as old as the threshold, beyond which its endpoint counts as full anyway. Where reports of any age are
    /// taken, two seconds are the age at which others call them old. The server takes a moment to notice, and the scrape
    /// that shows it takes another.
    fn settles_in(&self) -> Duration {
        const OLD: Duration = Duration::from_secs(2);
        const SERVER: Duration = Duration::from_millis(250);
        const SCRAPE: Duration = Duration::from_millis(50);

        self.staleness.min(OLD) + SERVER + SCRAPE
    }

    fn stale(&self, now: Timestamp, endpoints: Candidates<'_>) -> usize {
        endpoints
            .iter()
            .filter(|(_, member)| self.is_stale(now, member))
            .count()
    }

    /// When the next endpoint gets stale: it may be the last one that was fresh, or have been more than full.
    fn falls_at(&self, now: Timestamp, endpoints: Candidates<'_>) -> Option<Timestamp> {
        let fresh = endpoints.iter().filter(|(_, member)| !self.is_stale(now, member));
        let stale_at = |at: Timestamp| at + self.staleness + Duration::from_nanos(1);
        fresh.filter_map(|(_, member)| member.signals.at).map(stale_at).min()
    }
}

impl Filter for UtilizationDetector {
    fn filter(&mut self, cycle: &Cycle<'_>, candidates: Candidates<'_>, _: &mut Chance, kept: &mut Vec<Slot>) {
        let free = |member| !self.is_stale(cycle.now, member) && self.has_room(member);
        kept.extend(
            candidates
                .iter()
                .filter(|(_, member)| free(member))
                .map(|(slot, _)| slot),
        );
        if kept.is_empty() {
            kept.extend(candidates.slots());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::plugin::instance;
    use super::super::super::pool::InFlight;
    use super::super::super::scheduling::testing::{Scene, kept_by, saturation_by};
    use super::*;

    fn detector(params: &Value) -> UtilizationDetector {
        instance(Some(params), &mut Needs::default()).unwrap()
    }

    fn saturation(scene: &Scene) -> f64 {
        saturation_by(&detector(&json!({})), scene)
    }

    fn millis(millis: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn an_endpoint_is_as_full_as_its_queue_or_its_cache_whichever_is_fuller() {
        assert_eq!(saturation(&Scene::new().waiting(&[5]).kv_usage(&[0.1])), 1.0);
        assert_eq!(saturation(&Scene::new().waiting(&[0]).kv_usage(&[0.4])), 0.5);
    }

    #[test]
    fn by_report_alone_the_pool_is_as_full_as_its_endpoints_said_however_long_ago() {
        let params = json!({"countUnreported": false, "metricsStalenessThreshold": "100000h"});
        let sent = InFlight {
            requests: 9,
            tokens: 900,
            unreported: 9,
        };
        let scene = Scene::new()
            .waiting(&[7, 0])
            .kv_usage(&[0.1, 0.8])
            .in_flight(&[sent, sent])
            .now(millis(3_600_000));

        assert_eq!(saturation_by(&detector(&params), &scene), f64::midpoint(7.0 / 5.0, 1.0));
    }

    #[test]
    fn it_settles_when_reports_from_before_have_become_stale_or_old() {
        let settles_in = |threshold: &str| detector(&json!({"metricsStalenessThreshold": threshold})).settles_in();

        assert_eq!(settles_in("200ms"), Duration::from_millis(500));
        assert_eq!(settles_in("1s"), Duration::from_millis(1300));
        assert_eq!(settles_in("100000h"), Duration::from_millis(2300));
    }

    #[test]
    fn the_pool_is_as_full_as_the_mean_of_its_endpoints() {
        let scene = Scene::new().waiting(&[10, 0]);

        assert_eq!(saturation(&scene), 1.0);
    }

    #[test]
    fn an_endpoint_that_was_not_heard_of_counts_as_full() {
        let scene = Scene::new().labels(&[&[], &[]]).kv_usage(&[0.08]);

        assert_eq!(saturation(&scene), 0.55);
        assert_eq!(scene.with(|cycle, pool| detector(&json!({})).stale(cycle.now, pool)), 1);
    }

    #[test]
    fn a_report_is_stale_once_it_is_older_than_the_threshold() {
        let stale = |age: u64| {
            let scene = Scene::new().waiting(&[1]).now(millis(age));
            scene.with(|cycle, pool| detector(&json!({})).stale(cycle.now, pool))
        };

        let one_went_silent = Scene::new().waiting(&[0, 0]).now(millis(201)).waiting(&[0]);

        assert_eq!((stale(200), stale(201)), (0, 1));
        assert_eq!(saturation(&one_went_silent), 0.5);
    }

    #[test]
    fn a_pool_without_endpoints_is_full() {
        assert_eq!(saturation(&Scene::new()), 1.0);
    }

    #[test]
    fn what_was_sent_counts_before_a_report_shows_it() {
        let sent = InFlight {
            requests: 7,
            tokens: 70,
            unreported: 3,
        };
        let scene = Scene::new().waiting(&[1]).in_flight(&[sent]);

        assert_eq!(saturation(&scene), 0.8, "1 waits and 3 were sent, of 5");
    }

    #[test]
    fn a_pool_that_went_stale_as_a_whole_is_neither_stopped_nor_flooded() {
        let requests = |requests| InFlight {
            requests,
            ..InFlight::default()
        };
        let stale = |in_flight: &[InFlight]| {
            let scene = Scene::new().waiting(&[50, 50]).in_flight(in_flight);
            scene.now(millis(10_000))
        };

        assert_eq!(saturation(&stale(&[requests(0), requests(0)])), 0.0);
        assert_eq!(saturation(&stale(&[requests(4), requests(5)])), 0.9);
        assert_eq!(saturation(&stale(&[requests(5), requests(5)])), 1.0);
        assert_eq!(
            saturation_by(
                &detector(&json!({"staleMaxInFlight": 1})),
                &stale(&[requests(1), requests(0)])
            ),
            0.5
        );
    }

    #[test]
    fn as_a_filter_it_keeps_fresh_endpoints_below_both_thresholds() {
        let scene = Scene::new()
            .labels(&[&[], &[], &[], &[]])
            .waiting(&[4, 5, 0])
            .kv_usage(&[0.1, 0.1, 0.8]);

        assert_eq!(kept_by(&mut detector(&json!({})), &scene), [0]);
        assert_eq!(kept_by(&mut detector(&json!({"headroom": 0.1})), &scene), [0, 1, 2]);
    }

    #[test]
    fn as_a_filter_it_keeps_all_rather_than_none() {
        let full = Scene::new().waiting(&[9, 9]);
        let stale = Scene::new().waiting(&[0, 9]).now(millis(10_000));

        assert_eq!(kept_by(&mut detector(&json!({})), &full), [0, 1]);
        assert_eq!(kept_by(&mut detector(&json!({})), &stale), [0, 1]);
    }

    #[test]
    fn parameters_outside_their_ranges_are_refused_all_at_once() {
        let refusal = |params: Value| {
            let refused = instance::<UtilizationDetector>(Some(&params), &mut Needs::default());
            refused.unwrap_err().message
        };

        assert_eq!(
            refusal(json!({"queueDepthThreshold": 0, "kvCacheUtilThreshold": 1.2, "headroom": -1})),
            "`queueDepthThreshold` must be above 0, found `0`; \
             `kvCacheUtilThreshold` must be above 0 and at most 1, found `1.2`; write 0.8 for 80 %; \
             `headroom` must not be negative, found `-1`"
        );
        assert_eq!(
            refusal(json!({"metricsStalenessThreshold": "0s"})),
            "`metricsStalenessThreshold` must be above 0, found `0s`"
        );
        assert_eq!(
            refusal(json!({"metricsStalenessThreshold": "-1s"})),
            "`metricsStalenessThreshold` must be above 0, found `-1s`"
        );
        assert_eq!(
            refusal(json!({"staleMaxInFlight": 0})),
            "`staleMaxInFlight` must be above 0, found `0`"
        );
    }

    #[test]
    fn the_pool_may_get_less_full_when_the_next_endpoint_gets_stale() {
        let falls_at = |now: u64| {
            let scene = Scene::new().waiting(&[9, 9]).now(millis(now));
            scene.with(|cycle, pool| detector(&json!({})).falls_at(cycle.now, pool))
        };

        assert_eq!(falls_at(200), Some(millis(200) + Duration::from_nanos(1)));
        assert_eq!(falls_at(201), None);
    }
}
