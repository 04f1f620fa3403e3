//! Serves the program that the pool has done least for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::super::time::Timestamp;
use super::super::active::ActiveFlows;
use super::{Account, Accounts, FairnessPolicy, FlowOrder, FlowRef, Used};

/// Least attained service (spec, flow control 10.3). A program is a fairness id. Its service is what its requests used,
/// `prompt + 2·completion` tokens, halved with every half-life that passes. Of the flows that have requests the one is
/// served with the largest
///
/// ```text
/// lasWeightService · (1 - norm(service)) + lasWeightHeadWait · norm(wait of its first request)
/// ```
///
/// where `norm` maps the smallest of the flows to 0 and the largest to 1, and all to ½ if they are equal. Among equals
/// the flow goes first whose first request does. A choice takes a look at every flow of the band that has requests.
///
/// Programs are kept by id, for all bands that use the instance. One that has nothing in flight is forgotten after
/// `evictionTtlSeconds`, and earlier if there are more than [`MAX_PROGRAMS`].
#[derive(Debug)]
pub(super) struct ProgramAware {
    weights: Weights,
    half_life: Duration,
    ttl: Duration,
    sweep_every: Duration,
    swept: Timestamp,
    programs: BTreeMap<Arc<str>, Program>,
    /// Service and wait of each flow, while one is chosen.
    standings: Vec<(FlowRef, f64, f64)>,
}

/// Programs that are kept, apart from those with requests in flight.
const MAX_PROGRAMS: usize = 16_384;

#[derive(Debug)]
struct Weights {
    service: f64,
    head_wait: f64,
}

impl Weights {
    fn score(&self, service: f64, wait: f64) -> f64 {
        self.service * (1.0 - service) + self.head_wait * wait
    }
}

/// What is known of one program.
#[derive(Clone, Copy, Debug)]
struct Program {
    in_flight: u64,
    /// As of `charged`.
    service: f64,
    charged: Timestamp,
    releases: u64,
    mean_wait_ms: f64,
    /// When it was last heard of.
    seen: Timestamp,
}

impl Program {
    fn new(now: Timestamp) -> Self {
        Self {
            in_flight: 0,
            service: 0.0,
            charged: now,
            releases: 0,
            mean_wait_ms: 0.0,
            seen: now,
        }
    }

    fn service_at(&self, now: Timestamp, half_life: Duration) -> f64 {
        if half_life.is_zero() {
            return self.service;
        }
        let half_lives = now.since(self.charged).as_secs_f64() / half_life.as_secs_f64();
        self.service * (-half_lives).exp2()
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    strategy: Strategy,
    eviction_ttl_seconds: f64,
    eviction_sweep_seconds: f64,
    las_weight_service: f64,
    las_weight_head_wait: f64,
    las_half_life_seconds: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Strategy {
    #[default]
    Las,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            strategy: Strategy::Las,
            eviction_ttl_seconds: 3600.0,
            eviction_sweep_seconds: 300.0,
            las_weight_service: 0.8,
            las_weight_head_wait: 0.2,
            las_half_life_seconds: 60.0,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("`{name}` must be a number of seconds and not negative, found `{value}`")]
    Seconds { name: &'static str, value: f64 },
    #[error("`evictionSweepSeconds` must be above 0, found `{0}`")]
    Sweep(f64),
    #[error("`{name}` must be a number and not negative, found `{value}`")]
    Weight { name: &'static str, value: f64 },
}

impl Plugin for ProgramAware {
    const TYPE: &'static str = "program-aware-fairness";
    const SUMMARY: &'static str = "serves the program that has attained the least service, and lets long waits count";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "strategy",
            default: "\"las\"",
            summary: "how programs are compared; only `las`, least attained service",
        },
        Parameter {
            name: "evictionTtlSeconds",
            default: "3600",
            summary: "seconds after which an idle program is forgotten; 0 for never, as long as there are few; not \
                      negative",
        },
        Parameter {
            name: "evictionSweepSeconds",
            default: "300",
            summary: "seconds between two searches for idle programs; above 0",
        },
        Parameter {
            name: "lasWeightService",
            default: "0.8",
            summary: "how much little service counts; not negative",
        },
        Parameter {
            name: "lasWeightHeadWait",
            default: "0.2",
            summary: "how much the wait of a flow's first request counts; not negative",
        },
        Parameter {
            name: "lasHalfLifeSeconds",
            default: "60",
            summary: "seconds in which service counts half; 0 if it never fades; not negative",
        },
    ];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, _: &mut Needs) -> Result<Self, Error> {
        let seconds = |name, value| Duration::try_from_secs_f64(value).map_err(|_| Error::Seconds { name, value });
        let weight = |name, value: f64| match value {
            sound if sound >= 0.0 && sound.is_finite() => Ok(sound),
            value => Err(Error::Weight { name, value }),
        };
        let Params {
            strategy: Strategy::Las,
            eviction_ttl_seconds,
            eviction_sweep_seconds,
            las_weight_service,
            las_weight_head_wait,
            las_half_life_seconds,
        } = params;
        let sweep_every = seconds("evictionSweepSeconds", eviction_sweep_seconds)?;
        if sweep_every.is_zero() {
            return Err(Error::Sweep(eviction_sweep_seconds));
        }
        Ok(Self {
            weights: Weights {
                service: weight("lasWeightService", las_weight_service)?,
                head_wait: weight("lasWeightHeadWait", las_weight_head_wait)?,
            },
            half_life: seconds("lasHalfLifeSeconds", las_half_life_seconds)?,
            ttl: seconds("evictionTtlSeconds", eviction_ttl_seconds)?,
            sweep_every,
            swept: Timestamp::ZERO,
            programs: BTreeMap::new(),
            standings: Vec::new(),
        })
    }
}

impl FairnessPolicy for ProgramAware {
    fn order(&self) -> FlowOrder {
        FlowOrder::ByHead
    }

    fn pick(&mut self, now: Timestamp, _: Option<&Arc<str>>, flows: &ActiveFlows) -> FlowRef {
        let Self {
            weights,
            half_life,
            programs,
            standings,
            ..
        } = self;
        standings.clear();
        standings.extend(flows.iter().map(|(flow, active)| {
            let program = programs.get(&active.id);
            let service = program.map_or(0.0, |program| program.service_at(now, *half_life));
            let wait = now.since(active.head_enqueued).as_millis() as f64;
            (flow, service, wait)
        }));
        let services = Range::of(standings.iter().map(|&(_, service, _)| service));
        let waits = Range::of(standings.iter().map(|&(_, _, wait)| wait));
        let scored = standings
            .iter()
            .map(|&(flow, service, wait)| (flow, weights.score(services.norm(service), waits.norm(wait))));
        let best = scored.reduce(|best, other| if other.1 > best.1 { other } else { best });
        best.expect("there is a flow to serve").0
    }

    fn released(&mut self, now: Timestamp, flow: &Arc<str>, waited: Duration) {
        self.sweep(now);
        let program = self.program(now, flow);
        program.in_flight += 1;
        program.releases += 1;
        let waited_ms = waited.as_secs_f64() * 1000.0;
        program.mean_wait_ms += (waited_ms - program.mean_wait_ms) / program.releases as f64;
    }

    fn ended(&mut self, now: Timestamp, flow: &Arc<str>, used: Used) {
        let half_life = self.half_life;
        let program = self.program(now, flow);
        program.in_flight = program.in_flight.saturating_sub(1);
        let charge = used.prompt_tokens as f64 + 2.0 * used.completion_tokens as f64;
        program.service = program.service_at(now, half_life) + charge;
        program.charged = now;
        self.sweep(now);
    }

    fn accounts(&self, now: Timestamp) -> Option<Accounts> {
        let programs = self.programs.iter().map(|(id, program)| Account {
            id: id.clone(),
            mean_wait_ms: program.mean_wait_ms,
            attained_service: program.service_at(now, self.half_life),
        });
        Some(Accounts {
            fairness_index: fairness_index(self.programs.values().map(|program| program.mean_wait_ms)),
            programs: programs.collect(),
        })
    }
}

impl ProgramAware {
    /// The program of this id, which is heard of now.
    fn program(&mut self, now: Timestamp, id: &Arc<str>) -> &mut Program {
        if self.programs.len() >= MAX_PROGRAMS && !self.programs.contains_key(id) {
            self.make_room();
        }
        let program = self.programs.entry(id.clone()).or_insert_with(|| Program::new(now));
        program.seen = now;
        program
    }

    /// Forgets the programs that were idle for too long, if it is time to look for them.
    fn sweep(&mut self, now: Timestamp) {
        if self.ttl.is_zero() || now.since(self.swept) < self.sweep_every {
            return;
        }
        self.swept = now;
        let ttl = self.ttl;
        self.programs
            .retain(|_, program| program.in_flight > 0 || now.since(program.seen) <= ttl);
    }

    /// Forgets a quarter of the idle programs, those first that were not heard of for longest.
    fn make_room(&mut self) {
        let idle = self.programs.values().filter(|program| program.in_flight == 0);
        let mut seen: Vec<_> = idle.map(|program| program.seen).collect();
        if seen.is_empty() {
            return;
        }
        let quarter = seen.len() / 4;
        let (_, &mut newest_to_go, _) = seen.select_nth_unstable(quarter);
        self.programs
            .retain(|_, program| program.in_flight > 0 || program.seen > newest_to_go);
    }
}

/// Where values lie.
#[derive(Clone, Copy)]
struct Range {
    min: f64,
    max: f64,
}

impl Range {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let nothing = Self {
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        };
        values.fold(nothing, |Self { min, max }, value| Self {
            min: min.min(value),
            max: max.max(value),
        })
    }

    fn norm(self, value: f64) -> f64 {
        if self.max == self.min {
            0.5
        } else {
            (value - self.min) / (self.max - self.min)
        }
    }
}

/// Jain's index of these values: 1 if all are equal, one over their number if all but one are 0. Of less than two
/// values it is 1.
fn fairness_index(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum, squares) = values.fold((0_u32, 0.0, 0.0), |(count, sum, squares), value| {
        (count + 1, sum + value, squares + value * value)
    });
    if count < 2 || squares == 0.0 {
        1.0
    } else {
        sum * sum / (f64::from(count) * squares)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::super::plugin::instance;
    use super::super::testing::Band;
    use super::*;

    fn policy(params: &Value) -> ProgramAware {
        instance(Some(params), &mut Needs::default()).unwrap()
    }

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn tokens(prompt_tokens: u64, completion_tokens: u64) -> Used {
        Used {
            prompt_tokens,
            completion_tokens,
        }
    }

    /// Charges a program with a request.
    fn serve(policy: &mut ProgramAware, now: Timestamp, program: &str, used: Used) {
        policy.released(now, &program.into(), Duration::ZERO);
        policy.ended(now, &program.into(), used);
    }

    fn service(policy: &ProgramAware, now: Timestamp, program: &str) -> Option<f64> {
        let accounts = policy.accounts(now).unwrap();
        let account = accounts.programs.into_iter().find(|account| &*account.id == program);
        account.map(|account| account.attained_service)
    }

    #[test]
    fn at_equal_waits_the_program_with_less_service_goes_first() {
        let mut policy = policy(&json!({"lasHalfLifeSeconds": 0}));
        serve(&mut policy, Timestamp::ZERO, "much", tokens(300, 0));
        serve(&mut policy, Timestamp::ZERO, "little", tokens(100, 0));
        let mut band = Band::new(Box::new(policy));
        band.arrive_together(&["much", "little"]);

        assert_eq!(band.drain(), ["little", "much"]);
    }

    #[test]
    fn the_wait_of_the_first_request_outweighs_service_as_the_weights_say() {
        let order = |params: &Value| {
            let mut policy = policy(params);
            serve(&mut policy, Timestamp::ZERO, "early", tokens(300, 0));
            let mut band = Band::new(Box::new(policy));
            band.arrive("early");
            band.arrive("late");
            band.drain()
        };

        assert_eq!(order(&json!({})), ["late", "early"]);
        assert_eq!(
            order(&json!({"lasWeightService": 0.2, "lasWeightHeadWait": 0.8})),
            ["early", "late"]
        );
    }

    #[test]
    fn among_equals_the_first_request_decides() {
        let mut band = Band::new(Box::new(policy(&json!({}))));
        band.arrive_together(&["b", "a", "c"]);

        assert_eq!(band.drain(), ["b", "a", "c"]);
    }

    #[test]
    fn a_norm_of_equal_values_is_a_half() {
        let range = Range::of([100.0, 300.0].into_iter());
        let point = Range::of([7.0, 7.0].into_iter());

        assert_eq!((range.norm(100.0), range.norm(300.0)), (0.0, 1.0));
        assert_eq!(point.norm(7.0), 0.5);
    }

    #[test]
    fn a_score_is_the_weighted_sum_of_little_service_and_long_wait() {
        let weights = policy(&json!({})).weights;

        assert_eq!(weights.score(0.0, 0.5), 0.9);
        assert!((weights.score(1.0, 0.5) - 0.1).abs() < 1e-12);
    }

    #[test]
    fn tokens_of_the_answer_count_twice() {
        let mut policy = policy(&json!({}));
        serve(&mut policy, Timestamp::ZERO, "p", tokens(10, 7));

        assert_eq!(service(&policy, Timestamp::ZERO, "p"), Some(24.0));
    }

    #[test]
    fn service_halves_with_every_half_life() {
        let mut fading = policy(&json!({}));
        let mut lasting = policy(&json!({"lasHalfLifeSeconds": 0}));
        for policy in [&mut fading, &mut lasting] {
            serve(policy, Timestamp::ZERO, "p", tokens(80, 0));
            serve(policy, seconds(60), "p", tokens(10, 0));
        }

        assert_eq!(service(&fading, seconds(120), "p"), Some((40.0 + 10.0) / 2.0));
        assert_eq!(service(&lasting, seconds(120), "p"), Some(90.0));
    }

    #[test]
    fn an_idle_program_is_forgotten_after_its_time() {
        let mut policy = policy(&json!({"evictionTtlSeconds": 100, "evictionSweepSeconds": 10}));
        serve(&mut policy, seconds(0), "idle", tokens(1, 0));

        serve(&mut policy, seconds(100), "other", tokens(1, 0));
        let at_its_time = service(&policy, seconds(100), "idle").is_some();
        serve(&mut policy, seconds(110), "other", tokens(1, 0));
        let after_it = service(&policy, seconds(110), "idle").is_some();

        assert!(at_its_time && !after_it);
    }

    #[test]
    fn a_request_that_ended_without_a_count_does_not_hold_its_program() {
        let mut policy = policy(&json!({"evictionTtlSeconds": 100, "evictionSweepSeconds": 10}));
        policy.released(seconds(0), &"failed".into(), Duration::ZERO);
        policy.released(seconds(0), &"running".into(), Duration::ZERO);
        policy.ended(seconds(1), &"failed".into(), Used::default());

        serve(&mut policy, seconds(1000), "other", tokens(1, 0));

        assert_eq!(service(&policy, seconds(1000), "failed"), None);
        assert_eq!(service(&policy, seconds(1000), "running"), Some(0.0));
    }

    #[test]
    fn without_a_time_to_forget_there_is_still_a_bound_and_the_latest_stay() {
        let mut policy = policy(&json!({"evictionTtlSeconds": 0}));
        let programs = u64::try_from(MAX_PROGRAMS).unwrap() + 1000;
        policy.released(seconds(0), &"running".into(), Duration::ZERO);
        for at in 0..programs {
            serve(&mut policy, seconds(at), &at.to_string(), tokens(1, 0));
        }

        let known = policy.accounts(seconds(programs)).unwrap().programs;

        assert!(known.len() <= MAX_PROGRAMS, "{}", known.len());
        assert!(known.len() > MAX_PROGRAMS / 2, "{}", known.len());
        for kept in ["running", &(programs - 1).to_string(), &(programs - 5000).to_string()] {
            assert!(service(&policy, seconds(programs), kept).is_some(), "{kept}");
        }
    }

    #[test]
    fn the_fairness_index_is_one_if_all_wait_alike_and_falls_with_the_share_that_does() {
        let index = |waits: &[u64]| {
            let mut policy = policy(&json!({}));
            for (at, &wait) in waits.iter().enumerate() {
                policy.released(seconds(1), &at.to_string().into(), Duration::from_millis(wait));
            }
            policy.accounts(seconds(1)).unwrap().fairness_index
        };

        assert_eq!(index(&[]), 1.0);
        assert_eq!(index(&[40]), 1.0);
        assert_eq!(index(&[0, 0]), 1.0);
        assert_eq!(index(&[30, 30, 30]), 1.0);
        assert_eq!(index(&[0, 0, 0, 8]), 0.25);
    }

    #[test]
    fn the_mean_wait_is_over_all_releases() {
        let mut policy = policy(&json!({}));
        for wait in [10, 20, 60] {
            policy.released(seconds(1), &"p".into(), Duration::from_millis(wait));
        }

        let accounts = policy.accounts(seconds(1)).unwrap();

        assert!((accounts.programs[0].mean_wait_ms - 30.0).abs() < 1e-9, "{accounts:?}");
    }

    #[test]
    fn parameters_outside_their_ranges_are_refused() {
        let refusal = |params: Value| {
            let refused = instance::<ProgramAware>(Some(&params), &mut Needs::default());
            refused.unwrap_err().message
        };

        assert_eq!(
            refusal(json!({"evictionTtlSeconds": -1})),
            "`evictionTtlSeconds` must be a number of seconds and not negative, found `-1`"
        );
        assert_eq!(
            refusal(json!({"evictionSweepSeconds": 0})),
            "`evictionSweepSeconds` must be above 0, found `0`"
        );
        assert_eq!(
            refusal(json!({"lasWeightService": -0.5})),
            "`lasWeightService` must be a number and not negative, found `-0.5`"
        );
        assert!(refusal(json!({"strategy": "drr"})).contains("expected `las`"));
    }
}
