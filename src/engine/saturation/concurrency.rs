//! A pool is as full as what is in flight to its endpoints.

use std::time::Duration;

use serde::Deserialize;

use super::super::plugin::{Needs, Parameter, Plugin};
use super::super::pool::{Candidates, InFlight, Slot};
use super::super::scheduling::{Cycle, Filter};
use super::super::seed::Chance;
use super::super::time::Timestamp;
use super::SaturationDetector;
use super::faults::{Faults, HEADROOM};

/// What is in flight, as a share of what the endpoints can take (spec, flow control 12.2). It is exact at every moment,
/// and so never stale.
///
/// As a filter it keeps the endpoints with less in flight than `floor(limit · (1 + headroom))`, and that may be none.
#[derive(Clone, Debug, PartialEq)]
pub struct ConcurrencyDetector {
    mode: Mode,
    max_requests: u64,
    max_tokens: u64,
    headroom: f64,
}

/// What is counted of the load in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// Requests.
    #[default]
    Requests,
    /// Tokens.
    Tokens,
    /// For each endpoint, whichever is closer to its limit.
    Hybrid,
}

/// What the user may write.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConcurrencyParams {
    max_concurrency: i64,
    headroom: f64,
    concurrency_mode: Mode,
    max_token_concurrency: i64,
    #[serde(rename = "inFlightLoadProducerName")]
    producer: String,
}

impl Default for ConcurrencyParams {
    fn default() -> Self {
        Self {
            max_concurrency: 100,
            headroom: 0.0,
            concurrency_mode: Mode::Requests,
            max_token_concurrency: 1_000_000,
            producer: String::new(),
        }
    }
}

impl Plugin for ConcurrencyDetector {
    const TYPE: &'static str = "concurrency-detector";
    const SUMMARY: &'static str = "finds a pool full by the requests and tokens in flight; as a filter, keeps the \
                                   endpoints that are not full";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "concurrencyMode",
            default: "\"requests\"",
            summary: "what is counted: `requests`, `tokens`, or `hybrid` for whichever is closer to its limit",
        },
        Parameter {
            name: "maxConcurrency",
            default: "100",
            summary: "requests that an endpoint can take; above 0",
        },
        Parameter {
            name: "maxTokenConcurrency",
            default: "1000000",
            summary: "tokens that an endpoint can take; above 0",
        },
        HEADROOM,
        Parameter {
            name: "inFlightLoadProducerName",
            default: "\"inflight-load-producer\"",
            summary: "instance name of the data producer that says what counts as load in flight",
        },
    ];
    type Params = ConcurrencyParams;
    type Error = Faults;

    fn from_params(params: ConcurrencyParams, needs: &mut Needs) -> Result<Self, Faults> {
        needs.load_in_flight(&params.producer);
        let mut faults = Faults::default();
        let detector = Self {
            mode: params.concurrency_mode,
            max_requests: faults.positive("maxConcurrency", params.max_concurrency),
            max_tokens: faults.positive("maxTokenConcurrency", params.max_token_concurrency),
            headroom: faults.headroom(params.headroom, needs),
        };
        faults.none_or(detector)
    }
}

impl ConcurrencyDetector {
    /// How full one endpoint is.
    fn load(&self, in_flight: InFlight) -> f64 {
        let requests = f64::from(in_flight.requests) / self.max_requests as f64;
        let tokens = in_flight.tokens as f64 / self.max_tokens as f64;
        match self.mode {
            Mode::Requests => requests,
            Mode::Tokens => tokens,
            Mode::Hybrid => requests.max(tokens),
        }
    }

    fn has_room(&self, in_flight: InFlight) -> bool {
        let stretched = |limit: u64| (limit as f64 * (1.0 + self.headroom)).floor() as u64;
        let requests = u64::from(in_flight.requests) < stretched(self.max_requests);
        let tokens = in_flight.tokens < stretched(self.max_tokens);
        match self.mode {
            Mode::Requests => requests,
            Mode::Tokens => tokens,
            Mode::Hybrid => requests && tokens,
        }
    }

    /// The mean of the loads. With one limit for all it is the sum of what is in flight over the sum of the limits,
    /// and is taken so: a sum of whole numbers reaches 1 exactly when the last place is taken.
    fn mean(&self, endpoints: Candidates<'_>) -> f64 {
        let in_flight = endpoints.iter().map(|(_, member)| member.in_flight);
        let count = endpoints.len() as f64;
        match self.mode {
            Mode::Requests => {
                let requests: u64 = in_flight.map(|load| u64::from(load.requests)).sum();
                requests as f64 / (count * self.max_requests as f64)
            }
            Mode::Tokens => {
                let tokens = in_flight.fold(0_u64, |sum, load| sum.saturating_add(load.tokens));
                tokens as f64 / (count * self.max_tokens as f64)
            }
            Mode::Hybrid => in_flight.map(|load| self.load(load)).sum::<f64>() / count,
        }
    }
}

impl SaturationDetector for ConcurrencyDetector {
    fn saturation(&self, _: Timestamp, endpoints: Candidates<'_>) -> f64 {
        if endpoints.is_empty() {
            1.0
        } else {
            self.mean(endpoints)
        }
    }

    /// The end of a request counts at once. A moment more lets those go that wait for it before anybody else is cut off.
    fn settles_in(&self) -> Duration {
        Duration::from_millis(10)
    }
}

impl Filter for ConcurrencyDetector {
    fn filter(&mut self, _: &Cycle<'_>, candidates: Candidates<'_>, _: &mut Chance, kept: &mut Vec<Slot>) {
        let free = candidates.iter().filter(|(_, member)| self.has_room(member.in_flight));
        kept.extend(free.map(|(slot, _)| slot));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::plugin::instance;
    use super::super::super::scheduling::testing::{Scene, kept_by, saturation_by};
    use super::*;

    fn detector(params: &Value) -> ConcurrencyDetector {
        instance(Some(params), &mut Needs::default()).unwrap()
    }

    /// Endpoints with so many requests and tokens in flight.
    fn scene(loads: &[(u32, u64)]) -> Scene {
        let load = |&(requests, tokens)| InFlight {
            requests,
            tokens,
            unreported: 0,
        };
        Scene::new().in_flight(&loads.iter().map(load).collect::<Vec<_>>())
    }

    #[test]
    fn by_requests_a_pool_is_as_full_as_its_share_of_places_taken() {
        let detector = detector(&json!({"maxConcurrency": 10}));

        assert_eq!(saturation_by(&detector, &scene(&[(10, 0), (5, 0), (0, 0)])), 0.5);
    }

    #[test]
    fn by_tokens_requests_do_not_count() {
        let detector = detector(&json!({"concurrencyMode": "tokens", "maxTokenConcurrency": 1000}));

        assert_eq!(saturation_by(&detector, &scene(&[(900, 500), (900, 0)])), 0.25);
    }

    #[test]
    fn in_hybrid_mode_each_endpoint_counts_by_what_is_closer_to_its_limit() {
        let params = json!({"concurrencyMode": "hybrid", "maxConcurrency": 10, "maxTokenConcurrency": 1000});

        let saturation = saturation_by(&detector(&params), &scene(&[(5, 900), (2, 100)]));

        assert!((saturation - 0.55).abs() < 1e-12, "{saturation}");
    }

    #[test]
    fn the_last_free_place_makes_the_difference_to_full() {
        let detector = detector(&json!({"maxConcurrency": 1}));
        let taken = |taken: usize| scene(&[vec![(1, 0); taken], vec![(0, 0); 49 - taken]].concat());

        assert!(saturation_by(&detector, &taken(48)) < 1.0);
        assert_eq!(saturation_by(&detector, &taken(49)), 1.0);
    }

    #[test]
    fn a_pool_without_endpoints_is_full() {
        assert_eq!(saturation_by(&detector(&json!({})), &scene(&[])), 1.0);
    }

    #[test]
    fn as_a_filter_it_keeps_what_is_below_the_stretched_limit_rounded_down() {
        let mut detector = detector(&json!({"maxConcurrency": 3, "headroom": 0.25}));

        assert_eq!(kept_by(&mut detector, &scene(&[(2, 0), (3, 0), (4, 0)])), [0]);
    }

    #[test]
    fn as_a_filter_in_hybrid_mode_both_limits_hold() {
        let params = json!({"concurrencyMode": "hybrid", "maxConcurrency": 10, "maxTokenConcurrency": 1000});
        let mut detector = detector(&params);

        assert_eq!(kept_by(&mut detector, &scene(&[(9, 999), (10, 0), (0, 1000)])), [0]);
    }

    #[test]
    fn as_a_filter_it_may_keep_none() {
        let mut detector = detector(&json!({"concurrencyMode": "tokens", "maxTokenConcurrency": 10}));

        assert_eq!(kept_by(&mut detector, &scene(&[(0, 10), (0, 11)])), [] as [usize; 0]);
    }

    #[test]
    fn parameters_outside_their_ranges_are_refused_all_at_once() {
        let params = json!({"maxConcurrency": 0, "maxTokenConcurrency": -4, "headroom": -0.5});

        let refused = instance::<ConcurrencyDetector>(Some(&params), &mut Needs::default());

        assert_eq!(
            refused.unwrap_err().message,
            "`maxConcurrency` must be above 0, found `0`; \
             `maxTokenConcurrency` must be above 0, found `-4`; \
             `headroom` must not be negative, found `-0.5`"
        );
    }
}
