//! Keeps a prompt with the endpoints that have it cached, until they are too busy.

use rand::RngExt;
use serde::Deserialize;
use serde_json::Value;

use super::super::super::plugin::{DEFAULT_PREFIX_PRODUCER, Needs, Parameter, Plugin, PrefixRef};
use super::super::super::pool::{Candidates, Slot};
use super::super::super::seed::Chance;
use super::super::{Cycle, Filter};

/// Keeps the *sticky* endpoints: those that have at least `affinityThreshold` of the prompt. It keeps all if there is no
/// such one, if the best of the others would answer sooner by more than `maxTTFTPenaltyMs`, or, with
/// `explorationProbability`, by chance.
#[derive(Debug)]
pub(super) struct PrefixAffinityFilter {
    producer: PrefixRef,
    threshold: f64,
    exploration: f64,
    gate: Option<LoadGate>,
}

/// When busy endpoints lose what sticks to them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LoadGate {
    /// By how many more tokens in flight the best sticky endpoint may be busier than the best other one.
    tokens: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Params {
    #[serde(rename = "affinityThreshold")]
    threshold: f64,
    #[serde(rename = "explorationProbability")]
    exploration: f64,
    #[serde(rename = "maxTTFTPenaltyMs")]
    penalty_ms: f64,
    #[serde(rename = "maxTokensInFlightPenalty")]
    penalty_tokens: i64,
    #[serde(rename = "ttftSource")]
    source: TtftSource,
    #[serde(rename = "peakPrefillThroughput")]
    throughput: f64,
    #[serde(rename = "prefixMatchInfoProducerName")]
    prefix_producer: String,
    #[serde(rename = "inFlightLoadProducerName")]
    load_producer: String,
    #[serde(rename = "latencyPredictionInfoProducerName")]
    prediction_producer: Option<Value>,
    #[serde(rename = "prefillCalibrationFile")]
    calibration_file: Option<Value>,
    #[serde(rename = "prefillCalibrationFingerprint")]
    calibration_fingerprint: Option<Value>,
    #[serde(rename = "prefillCalibrationRequired")]
    calibration_required: bool,
}

/// Where it is known from how soon an endpoint would answer.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
enum TtftSource {
    /// From the tokens in flight to it, and how many it processes in a second.
    #[default]
    PrefillThroughput,
    /// From a model that learns.
    LatencyPredictor,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            threshold: 0.8,
            exploration: 0.0,
            penalty_ms: 18_000.0,
            penalty_tokens: 0,
            source: TtftSource::PrefillThroughput,
            throughput: 15_928.0,
            prefix_producer: String::new(),
            load_producer: String::new(),
            prediction_producer: None,
            calibration_file: None,
            calibration_fingerprint: None,
            calibration_required: false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("`affinityThreshold` must be at most 1, found `{0}`; it is a share, so write 0.8 for 80 %")]
    Threshold(f64),
    #[error("`explorationProbability` must be within 0 and 1, found `{0}`; write 0.01 for 1 %")]
    Exploration(f64),
    #[error("`{name}` must not be negative, found `{value}`")]
    Negative { name: &'static str, value: f64 },
    #[error("`maxTokensInFlightPenalty` must not be negative, found `{0}`")]
    NegativeTokens(i64),
    #[error(
        "`prefillCalibrationRequired`: this version of forebay does not read calibration records; leave it out, and write \
         what was measured as `peakPrefillThroughput`"
    )]
    Calibration,
    #[error("`peakPrefillThroughput` must be above 0 while `maxTTFTPenaltyMs` is, found `{0}`")]
    Throughput(f64),
    #[error(
        "`ttftSource`: this version of forebay has no latency predictor; write `prefillThroughput`, or \
         `maxTTFTPenaltyMs: 0` to do without the gate"
    )]
    Predictor,
}

impl Plugin for PrefixAffinityFilter {
    const TYPE: &'static str = "prefix-cache-affinity-filter";
    const SUMMARY: &'static str = "keeps the endpoints that have most of the prompt cached, unless they are so busy that \
                                   another one would answer sooner; keeps all if nobody has it";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "affinityThreshold",
            default: "0.8",
            summary: "share of the prompt that an endpoint must have to be kept, at most 1; 0 and below switch the \
                      filter off",
        },
        Parameter {
            name: "explorationProbability",
            default: "0.0",
            summary: "share of the requests that the filter lets pass, so that other caches fill too; 0 to 1",
        },
        Parameter {
            name: "maxTTFTPenaltyMs",
            default: "18000.0",
            summary: "by how many milliseconds the first token may come later from the best endpoint kept than from the \
                      best of the others; beyond that all are kept. 0 keeps to the cache however busy it is",
        },
        Parameter {
            name: "ttftSource",
            default: "\"prefillThroughput\"",
            summary: "how the time to the first token is known: `prefillThroughput`. `latencyPredictor` is refused, since \
                      this version has none",
        },
        Parameter {
            name: "peakPrefillThroughput",
            default: "15928.0",
            summary: "prompt tokens that an endpoint processes in a second; measure it for your model and GPU",
        },
        Parameter {
            name: "prefixMatchInfoProducerName",
            default: "\"approx-prefix-cache-producer\"",
            summary: "instance name of the data producer that knows the matches",
        },
        Parameter {
            name: "inFlightLoadProducerName",
            default: "\"inflight-load-producer\"",
            summary: "instance name of the data producer that says what counts as load in flight",
        },
        Parameter {
            name: "maxTokensInFlightPenalty",
            default: "0",
            summary: "deprecated: the penalty in tokens in flight, which is `maxTTFTPenaltyMs` times \
                      `peakPrefillThroughput`; 0 is none. Of two penalties the smaller one counts",
        },
        Parameter {
            name: "latencyPredictionInfoProducerName",
            default: "null",
            summary: "accepted, without effect; goes with `ttftSource: latencyPredictor`",
        },
        Parameter {
            name: "prefillCalibrationFile",
            default: "null",
            summary: "accepted, without effect: this version does not read calibration records",
        },
        Parameter {
            name: "prefillCalibrationFingerprint",
            default: "null",
            summary: "accepted, without effect, as the file",
        },
        Parameter {
            name: "prefillCalibrationRequired",
            default: "false",
            summary: "`true` is refused, since no calibration record is read",
        },
    ];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, needs: &mut Needs) -> Result<Self, Error> {
        let not_negative = |name, value: f64| match value >= 0.0 {
            true => Ok(value),
            false => Err(Error::Negative { name, value }),
        };
        if params.threshold.is_nan() || params.threshold > 1.0 {
            return Err(Error::Threshold(params.threshold));
        }
        if !(0.0..=1.0).contains(&params.exploration) {
            return Err(Error::Exploration(params.exploration));
        }
        let penalty_ms = not_negative("maxTTFTPenaltyMs", params.penalty_ms)?;
        let throughput = not_negative("peakPrefillThroughput", params.throughput)?;
        if params.calibration_required {
            return Err(Error::Calibration);
        }
        params.remark_on(needs);
        let by_time = match (penalty_ms > 0.0, params.source) {
            (false, _) => None,
            (true, TtftSource::LatencyPredictor) => return Err(Error::Predictor),
            (true, TtftSource::PrefillThroughput) if throughput > 0.0 => Some(penalty_ms / 1000.0 * throughput),
            (true, TtftSource::PrefillThroughput) => return Err(Error::Throughput(throughput)),
        };
        let by_tokens = match params.penalty_tokens {
            0 => None,
            1.. => Some(params.penalty_tokens as f64),
            negative => return Err(Error::NegativeTokens(negative)),
        };
        let gate = by_time.into_iter().chain(by_tokens).reduce(f64::min);
        let gate = gate.map(|tokens| LoadGate { tokens });
        if gate.is_some() {
            needs.load_in_flight(&params.load_producer);
        }
        let producer = match params.prefix_producer.as_str() {
            "" => DEFAULT_PREFIX_PRODUCER,
            named => named,
        };
        Ok(Self {
            producer: needs.prefix_matches(producer),
            threshold: params.threshold,
            exploration: params.exploration,
            gate,
        })
    }
}

impl Params {
    /// Says what is not taken as it is written.
    fn remark_on(&self, needs: &mut Needs) {
        let why = "there is no latency predictor in this version";
        needs.without_effect(
            "latencyPredictionInfoProducerName",
            self.prediction_producer.as_ref(),
            why,
        );
        let why = "calibration records are not read; write what was measured as `peakPrefillThroughput`";
        needs.without_effect("prefillCalibrationFile", self.calibration_file.as_ref(), why);
        needs.without_effect(
            "prefillCalibrationFingerprint",
            self.calibration_fingerprint.as_ref(),
            why,
        );
        if self.penalty_tokens > 0 {
            let ms = self.penalty_tokens as f64 / self.throughput.max(1.0) * 1000.0;
            let message = format!(
                "`maxTokensInFlightPenalty` is deprecated; with a `peakPrefillThroughput` of {} it is `maxTTFTPenaltyMs: \
                 {ms:.0}`",
                self.throughput
            );
            needs.remark("maxTokensInFlightPenalty", message);
        }
        if self.threshold <= 0.0 {
            let message = format!(
                "`affinityThreshold` is `{}`, which switches the filter off",
                self.threshold
            );
            needs.remark("affinityThreshold", message);
        }
    }
}

impl PrefixAffinityFilter {
    fn is_sticky(&self, cycle: &Cycle<'_>, slot: Slot) -> bool {
        let found = cycle.prefix(self.producer);
        found.total > 0 && f64::from(found.matched(slot)) / f64::from(found.total) >= self.threshold
    }
}

impl LoadGate {
    /// True if the best of the sticky endpoints is busier than the best of the others by more than is allowed.
    fn opens(
        self,
        cycle: &Cycle<'_>,
        candidates: Candidates<'_>,
        is_sticky: impl Fn(&Cycle<'_>, Slot) -> bool,
    ) -> bool {
        let least = |sticky: bool| {
            let of_these = candidates.iter().filter(|(slot, _)| is_sticky(cycle, *slot) == sticky);
            of_these.map(|(_, member)| member.in_flight.tokens).min()
        };
        match (least(true), least(false)) {
            (Some(sticky), Some(other)) => sticky as f64 - other as f64 > self.tokens,
            _ => false,
        }
    }
}

impl Filter for PrefixAffinityFilter {
    fn filter(&mut self, cycle: &Cycle<'_>, candidates: Candidates<'_>, chance: &mut Chance, kept: &mut Vec<Slot>) {
        let is_off = candidates.len() <= 1 || self.threshold <= 0.0;
        let explores = !is_off && self.exploration > 0.0 && chance.random_bool(self.exploration);
        if !is_off && !explores {
            kept.extend(candidates.slots().iter().filter(|slot| self.is_sticky(cycle, **slot)));
            let opens = |gate: LoadGate| gate.opens(cycle, candidates, |cycle, slot| self.is_sticky(cycle, slot));
            if self.gate.is_some_and(opens) {
                kept.clear();
            }
        }
        if kept.is_empty() {
            kept.extend_from_slice(candidates.slots());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::super::super::plugin::instance;
    use super::super::super::super::pool::InFlight;
    use super::super::super::super::seed::Seed;
    use super::super::super::testing::{Scene, kept_by};
    use super::*;

    fn filter(params: &Value) -> PrefixAffinityFilter {
        instance(Some(params), &mut Needs::default()).unwrap()
    }

    fn kept(params: &Value, scene: &Scene) -> Vec<usize> {
        kept_by(&mut filter(params), scene)
    }

    fn refusal(params: &Value) -> String {
        let refused = instance::<PrefixAffinityFilter>(Some(params), &mut Needs::default());
        refused.unwrap_err().message
    }

    fn scene(matched: &[u32], tokens: &[u64]) -> Scene {
        let in_flight = tokens.iter().map(|&tokens| InFlight {
            tokens,
            ..InFlight::default()
        });
        let in_flight: Vec<_> = in_flight.collect();
        Scene::new().prefix(matched, 10).in_flight(&in_flight)
    }

    #[test]
    fn endpoints_with_enough_of_the_prompt_are_kept() {
        assert_eq!(kept(&json!({}), &scene(&[8, 7, 10, 0], &[0; 4])), [0, 2]);
        assert_eq!(
            kept(&json!({"affinityThreshold": 0.99}), &scene(&[8, 7, 10, 0], &[0; 4])),
            [2]
        );
    }

    #[test]
    fn all_are_kept_if_nobody_has_enough_of_it() {
        assert_eq!(kept(&json!({}), &scene(&[7, 0], &[0; 2])), [0, 1]);
        assert_eq!(kept(&json!({}), &Scene::new().waiting(&[0, 0])), [0, 1]);
    }

    #[test]
    fn a_cache_is_left_when_its_endpoint_is_busier_by_more_than_the_penalty() {
        let params = json!({"maxTTFTPenaltyMs": 1000, "peakPrefillThroughput": 500});

        assert_eq!(kept(&params, &scene(&[10, 0], &[600, 100])), [0]);
        assert_eq!(kept(&params, &scene(&[10, 0], &[601, 100])), [0, 1]);
        // The least busy of those with the prompt counts.
        assert_eq!(kept(&params, &scene(&[10, 9, 0], &[9000, 600, 100])), [0, 1]);
    }

    #[test]
    fn a_penalty_may_be_in_tokens_as_it_once_was() {
        let by_tokens = json!({"maxTokensInFlightPenalty": 500, "maxTTFTPenaltyMs": 0});
        let both = json!({"maxTokensInFlightPenalty": 500, "maxTTFTPenaltyMs": 1000, "peakPrefillThroughput": 100});

        assert_eq!(kept(&by_tokens, &scene(&[10, 0], &[600, 100])), [0]);
        assert_eq!(kept(&by_tokens, &scene(&[10, 0], &[601, 100])), [0, 1]);
        assert_eq!(kept(&both, &scene(&[10, 0], &[201, 100])), [0, 1]);
    }

    #[test]
    fn without_a_penalty_a_cache_is_never_left() {
        assert_eq!(
            kept(&json!({"maxTTFTPenaltyMs": 0}), &scene(&[10, 0], &[u64::MAX, 0])),
            [0]
        );
    }

    #[test]
    fn some_requests_explore() {
        let scene = scene(&[10, 0], &[0; 2]);
        let mut filter = filter(&json!({"explorationProbability": 0.25}));
        let mut chance = Seed(7).stream("filter");
        let mut explored = 0;
        for _ in 0..1000 {
            let mut kept = Vec::new();
            scene.with(|cycle, candidates| filter.filter(cycle, candidates, &mut chance, &mut kept));
            explored += usize::from(kept.len() == 2);
        }

        assert!((200..300).contains(&explored), "{explored}");
    }

    #[test]
    fn a_threshold_of_zero_switches_the_filter_off() {
        assert_eq!(
            kept(&json!({"affinityThreshold": 0}), &scene(&[10, 0], &[0; 2])),
            [0, 1]
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_would_be_right() {
        assert!(refusal(&json!({"affinityThreshold": 80})).contains("write 0.8 for 80 %"));
        assert!(refusal(&json!({"explorationProbability": -0.1})).contains("within 0 and 1"));
        assert!(refusal(&json!({"maxTTFTPenaltyMs": -1})).contains("must not be negative"));
        assert!(refusal(&json!({"peakPrefillThroughput": 0})).contains("must be above 0 while"));
        assert!(refusal(&json!({"maxTokensInFlightPenalty": -1})).contains("must not be negative"));
        assert!(refusal(&json!({"prefillCalibrationRequired": true})).contains("does not read calibration records"));
        assert!(refusal(&json!({"ttftSource": "latencyPredictor"})).contains("has no latency predictor"));
        // Without the gate, nothing is predicted.
        filter(&json!({"ttftSource": "latencyPredictor", "maxTTFTPenaltyMs": 0}));
        filter(&json!({"peakPrefillThroughput": 0, "maxTTFTPenaltyMs": 0}));
    }

    /// The rule as it is written down for operators of llm-d, of matched blocks, blocks and tokens in flight.
    fn reference(endpoints: &[(u32, u64)], total: u32, threshold: f64, penalty_ms: f64, throughput: f64) -> Vec<usize> {
        let all = (0..endpoints.len()).collect();
        if endpoints.len() <= 1 || threshold <= 0.0 {
            return all;
        }
        let score = |matched: u32| {
            if total == 0 {
                0.0
            } else {
                f64::from(matched) / f64::from(total)
            }
        };
        let (sticky, others): (Vec<usize>, Vec<usize>) =
            (0..endpoints.len()).partition(|&at| score(endpoints[at].0) >= threshold);
        if sticky.is_empty() {
            return all;
        }
        let best = |of: &[usize]| {
            let ttft = of.iter().map(|&at| endpoints[at].1 as f64 / throughput * 1000.0);
            ttft.fold(f64::MAX, f64::min)
        };
        if penalty_ms > 0.0 && !others.is_empty() && best(&sticky) - best(&others) > penalty_ms {
            return all;
        }
        sticky
    }

    proptest! {
        #[test]
        fn it_keeps_what_the_reference_keeps(
            endpoints in proptest::collection::vec((0_u32..11, 0_u64..1_000), 1..8),
            threshold in -1_i32..11,
            penalty_ms in 0_u32..1_500,
        ) {
            let threshold = f64::from(threshold) / 10.0;
            let penalty_ms = f64::from(penalty_ms) + 0.5;
            let (matched, tokens): (Vec<u32>, Vec<u64>) = endpoints.iter().copied().unzip();
            let params = json!({
                "affinityThreshold": threshold, "maxTTFTPenaltyMs": penalty_ms, "peakPrefillThroughput": 1000,
            });

            let expected = reference(&endpoints, 10, threshold, penalty_ms, 1000.0);

            prop_assert_eq!(kept(&params, &scene(&matched, &tokens)), expected);
        }
    }
}
