//! What flow control promises, one sentence each, through the engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::config::{LoadOptions, SourceName, load};
use super::super::outcome::{Outcome, Refusal};
use super::super::pool::{Endpoint, EndpointId, PoolChange, SignalUpdate};
use super::super::request::{Kind, Request, RequestId, Slo};
use super::super::scheduling::{Explain, NoProbe};
use super::super::seed::Seed;
use super::super::time::Timestamp;
use super::super::{Effect, Engine, Input, Progress, Refused};
use super::fairness::Used;

/// Each endpoint takes one request at a time.
const ONE_AT_A_TIME: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
featureGates: [flowControl]
plugins:
- {type: round-robin-fairness-policy}
- {type: concurrency-detector, parameters: {maxConcurrency: 1}}
";

struct World {
    engine: Engine,
    now: Timestamp,
    last_id: u64,
}

impl World {
    fn new(flow_control: &str) -> Self {
        let text = format!("{ONE_AT_A_TIME}{flow_control}");
        let loaded =
            load(&text, &SourceName::Flag, &LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors}"));
        Self {
            engine: Engine::new(loaded.plan.engine, Seed(1), Box::new(NoProbe), Explain::default()),
            now: Timestamp::ZERO,
            last_id: 0,
        }
    }

    fn with_endpoint(flow_control: &str) -> Self {
        let mut world = Self::new(flow_control);
        world.join("a");
        world
    }

    fn objectives(mut self, objectives: &[(&str, i32)]) -> Self {
        let objectives = objectives.iter().map(|&(name, priority)| (name.into(), priority));
        let priorities = objectives.collect();
        self.tell(Input::ObjectivesChanged { priorities });
        self
    }

    fn join(&mut self, name: &str) {
        let endpoint = Endpoint {
            id: EndpointId::new("default", name),
            name: name.into(),
            address: [127, 0, 0, 1].into(),
            port: 8000,
            labels: BTreeMap::new(),
            rank: 0,
        };
        let changes = vec![PoolChange::Upsert(Arc::new(endpoint))];
        self.tell(Input::PoolChanged { changes });
    }

    fn leave(&mut self, name: &str) {
        let id = EndpointId::new("default", name);
        let changes = vec![PoolChange::Remove(id)];
        self.tell(Input::PoolChanged { changes });
    }

    fn tell(&mut self, input: Input) {
        self.engine.apply(self.now, input);
    }

    fn at(&mut self, seconds: f64) -> &mut Self {
        self.now = Timestamp::ZERO + Duration::from_secs_f64(seconds);
        self
    }

    fn submit(&mut self, tenant: &str, objective: &str) -> u64 {
        self.submit_as(Request {
            fairness_id: tenant.into(),
            objective: Some(objective.into()),
            size_bytes: 100,
            ..Request::unknown(Kind::Inference)
        })
    }

    fn submit_as(&mut self, request: Request) -> u64 {
        self.last_id += 1;
        let id = RequestId(self.last_id);
        self.tell(Input::Submit { id, request });
        self.last_id
    }

    fn finish(&mut self, id: u64) {
        self.finish_using(id, Used::default());
    }

    fn finish_using(&mut self, id: u64, used: Used) {
        let progress = Progress::Ended(Outcome::Completed, used);
        let id = RequestId(id);
        self.tell(Input::Progress { id, progress });
    }

    /// What is to be done now: the ids that are routed, and those that are refused and why.
    fn effects(&mut self) -> Vec<(u64, Option<Refused>)> {
        std::iter::from_fn(|| self.engine.poll(self.now))
            .map(|effect| match effect {
                Effect::Route { id, .. } => (id.0, None),
                Effect::Refuse { id, refused } => (id.0, Some(refused)),
                Effect::Evict { id, .. } => panic!("{id:?} is cut off though nobody asked for that"),
            })
            .collect()
    }

    fn routed(&mut self) -> Vec<u64> {
        let effects = self.effects();
        let refused: Vec<_> = effects.iter().filter(|(_, refused)| refused.is_some()).collect();
        assert!(refused.is_empty(), "refused: {refused:?}");
        effects.into_iter().map(|(id, _)| id).collect()
    }

    fn refused(&mut self) -> Vec<(u64, Refusal)> {
        let refusal = |(id, refused): (u64, Option<Refused>)| (id, refused.expect("nothing is routed").refusal);
        self.effects().into_iter().map(refusal).collect()
    }

    /// Ends the request in flight and says who comes next, until nobody waits.
    fn order(&mut self, first: u64) -> Vec<u64> {
        let mut order = vec![first];
        loop {
            self.finish(*order.last().unwrap());
            match self.routed()[..] {
                [] => return order,
                [next] => order.push(next),
                ref more => panic!("one place became free, and {more:?} were released"),
            }
        }
    }
}

const ROUND_ROBIN: &str = "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultPriorityBand: {fairnessPolicyRef: round-robin-fairness-policy}
";

const STRICT: &str = "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
";

#[test]
fn a_request_passes_at_once_while_there_is_room_and_waits_while_there_is_none() {
    let mut world = World::with_endpoint(STRICT);
    let first = world.submit("t", "");
    assert_eq!(world.routed(), [first]);

    let second = world.submit("t", "");
    assert!(world.routed().is_empty());
    world.finish(first);

    assert_eq!(world.routed(), [second]);
}

#[test]
fn an_open_gate_lets_through_what_there_is_room_for_and_no_more() {
    let mut world = World::with_endpoint(STRICT);
    let ids: Vec<_> = (0..5).map(|_| world.submit("t", "")).collect();
    assert_eq!(world.routed(), [ids[0]]);

    world.join("b");
    world.join("c");

    assert_eq!(world.routed(), [ids[1], ids[2]]);
}

#[test]
fn a_higher_priority_goes_first_whenever_it_came() {
    let mut world = World::with_endpoint(STRICT).objectives(&[("low", -5), ("high", 10)]);
    let first = world.submit("t", "");
    assert_eq!(world.routed(), [first]);
    let low = world.submit("t", "low");
    let none = world.submit("t", "");
    let high = world.submit("t", "high");

    assert_eq!(world.order(first), [first, high, none, low]);
}

#[test]
fn an_objective_that_nobody_knows_has_priority_zero() {
    let mut world = World::with_endpoint(STRICT).objectives(&[("low", -5)]);
    let first = world.submit("t", "");
    let low = world.submit("t", "low");
    let unknown = world.submit("t", "no-such-objective");
    assert_eq!(world.routed(), [first]);

    assert_eq!(world.order(first), [first, unknown, low]);
}

#[test]
fn tenants_take_turns_though_one_of_them_came_with_many() {
    let mut world = World::with_endpoint(ROUND_ROBIN);
    let noisy: Vec<_> = (0..4).map(|_| world.submit("noisy", "")).collect();
    let quiet: Vec<_> = (0..2).map(|_| world.submit("quiet", "")).collect();
    assert_eq!(world.routed(), [noisy[0]]);

    let order = world.order(noisy[0]);

    assert_eq!(order, [noisy[0], quiet[0], noisy[1], quiet[1], noisy[2], noisy[3]]);
}

#[test]
fn without_fairness_the_one_that_came_first_goes_first() {
    let mut world = World::with_endpoint(STRICT);
    let ids = [
        world.submit("noisy", ""),
        world.submit("noisy", ""),
        world.submit("quiet", ""),
        world.submit("noisy", ""),
    ];
    assert_eq!(world.routed(), [ids[0]]);

    assert_eq!(world.order(ids[0]), ids);
}

#[test]
fn a_full_band_turns_away_what_comes_and_says_when_to_come_again() {
    let mut world = World::with_endpoint(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  priorityBands: [{priority: 0, maxRequests: 2}]
",
    );
    let first = world.submit("t", "");
    assert_eq!(world.routed(), [first]);
    let _two_wait = [world.submit("t", ""), world.submit("t", "")];
    let too_many = world.submit("t", "");

    let effects = world.effects();

    let (id, refused) = (effects[0].0, effects[0].1.clone().unwrap());
    assert_eq!((id, refused.refusal), (too_many, Refusal::QueueFull));
    assert_eq!(refused.position, Some(3));
    assert!(refused.retry_after.is_some_and(|after| after >= Duration::from_secs(1)));
}

/// Three may wait in all.
const SHEDDING: &str = "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  maxRequests: 3
  maxBytes: 1000
  shedWhenFull: true
  priorityBands: [{priority: 10, maxRequests: 2}, {priority: 0}, {priority: -1}, {priority: -5}]
";

fn full_queue() -> (World, [u64; 4]) {
    let mut world = World::with_endpoint(SHEDDING).objectives(&[("high", 10), ("low", -1), ("lowest", -5)]);
    let first = world.submit("t", "");
    assert_eq!(world.routed(), [first]);
    let waiting = ["lowest", "low", "lowest"].map(|objective| world.submit("t", objective));
    assert_eq!(world.effects(), []);
    (world, [first, waiting[0], waiting[1], waiting[2]])
}

#[test]
fn in_a_full_queue_the_lowest_that_came_last_makes_room_for_what_is_more_urgent() {
    let (mut world, [first, early, low, late]) = full_queue();
    world.at(2.0);
    let high = world.submit("t", "high");

    let effects = world.effects();
    let shed = effects[0].1.clone().unwrap();
    assert_eq!((effects.len(), effects[0].0, shed.refusal), (1, late, Refusal::Shed));
    assert_eq!((shed.priority, shed.waited), (-5, Some(Duration::from_secs(2))));
    assert!(shed.retry_after.is_some());
    let normal = world.submit("t", "");
    assert_eq!(world.refused(), [(early, Refusal::Shed)]);
    assert_eq!(world.order(first), [first, high, normal, low]);
}

#[test]
fn nobody_makes_room_for_an_equal_or_in_a_band_that_is_full() {
    let (mut world, _) = full_queue();
    let equal = world.submit("t", "lowest");
    assert_eq!(world.refused(), [(equal, Refusal::QueueFull)]);
    let _high = [world.submit("t", "high"), world.submit("t", "high")];
    assert_eq!(world.effects().len(), 2);
    let one_too_many = world.submit("t", "high");

    assert_eq!(world.refused(), [(one_too_many, Refusal::QueueFull)]);
}

#[test]
fn as_many_make_room_as_the_bytes_take_and_none_if_it_would_not_be_enough() {
    let (mut world, [_, early, low, late]) = full_queue();
    let large = |size_bytes| Request {
        objective: Some("high".into()),
        size_bytes,
        ..Request::unknown(Kind::Inference)
    };
    let too_large = world.submit_as(large(1001));
    assert_eq!(world.refused(), [(too_large, Refusal::Oversized)]);

    world.submit_as(large(950));
    assert_eq!(
        world.refused(),
        [late, early, low].map(|id| (id, Refusal::Shed)),
        "only fifty bytes are left"
    );
}

const TWO_TENANTS: &str = "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  priorityBands: [{priority: 0, maxRequests: 3, maxBytes: 1000, fairnessPolicyRef: round-robin-fairness-policy}]
";

#[test]
fn in_a_full_band_the_newest_of_the_longest_flow_gives_its_place_to_a_flow_with_less() {
    let mut world = World::with_endpoint(TWO_TENANTS);
    let first = world.submit("noisy", "");
    assert_eq!(world.routed(), [first]);
    let noisy: Vec<_> = (0..3).map(|_| world.submit("noisy", "")).collect();
    assert!(world.effects().is_empty());
    world.at(2.0);
    let quiet = world.submit("quiet", "");

    let effects = world.effects();
    let displaced = effects[0].1.clone().unwrap();
    assert_eq!(
        (effects.len(), effects[0].0, displaced.refusal),
        (1, noisy[2], Refusal::Displaced)
    );
    assert_eq!(displaced.waited, Some(Duration::from_secs(2)));
    assert!(displaced.retry_after.is_some());
    let displaced = Outcome::Refused(Refusal::Displaced);
    assert_eq!(world.engine.tally().ended_in(displaced), 1, "it is counted once");
    assert_eq!(world.order(first), [first, quiet, noisy[0], noisy[1]]);
}

#[test]
fn a_flow_that_would_be_as_long_as_the_longest_displaces_nobody() {
    let mut world = World::with_endpoint(TWO_TENANTS);
    let first = world.submit("noisy", "");
    assert_eq!(world.routed(), [first]);
    let _noisy = [world.submit("noisy", ""), world.submit("noisy", "")];
    let _quiet = world.submit("quiet", "");
    assert!(world.effects().is_empty());

    let [noisy, quiet] = [world.submit("noisy", ""), world.submit("quiet", "")];

    let full = Refusal::QueueFull;
    assert_eq!(world.refused(), [(noisy, full), (quiet, full)]);
}

#[test]
fn as_many_are_displaced_as_the_bytes_take_and_none_if_the_flow_would_be_the_longest() {
    let mut world = World::with_endpoint(TWO_TENANTS);
    let of = |tenant: &str, size_bytes| Request {
        fairness_id: tenant.into(),
        size_bytes,
        ..Request::unknown(Kind::Inference)
    };
    let first = world.submit("noisy", "");
    assert_eq!(world.routed(), [first]);
    let noisy = [330, 330, 330].map(|size| world.submit_as(of("noisy", size)));
    assert!(world.effects().is_empty());

    let too_large = world.submit_as(of("quiet", 990));
    assert_eq!(world.refused(), [(too_large, Refusal::QueueFull)]);
    world.submit_as(of("quiet", 400));

    let displaced = Refusal::Displaced;
    assert_eq!(world.refused(), [(noisy[2], displaced), (noisy[1], displaced)]);
}

#[test]
fn at_the_limit_of_all_bands_less_urgent_flows_give_way_and_more_urgent_ones_do_not() {
    let mut world = World::with_endpoint(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  maxRequests: 3
  defaultPriorityBand: {fairnessPolicyRef: round-robin-fairness-policy}
  priorityBands: [{priority: 0, fairnessPolicyRef: round-robin-fairness-policy}]
",
    )
    .objectives(&[("high", 10), ("low", -1)]);
    let first = world.submit("t", "");
    assert_eq!(world.routed(), [first]);
    let normal: Vec<_> = (0..3).map(|_| world.submit("noisy", "")).collect();
    let low = world.submit("quiet", "low");
    assert_eq!(world.refused(), [(low, Refusal::QueueFull)]);

    let high = world.submit("quiet", "high");

    assert_eq!(world.refused(), [(normal[2], Refusal::Displaced)]);
    assert_eq!(world.order(first), [first, high, normal[0], normal[1]]);
}

#[test]
fn what_is_too_large_for_an_empty_queue_is_not_told_to_come_again() {
    for limit in ["maxBytes: 1000", "priorityBands: [{priority: 0, maxBytes: 1000}]"] {
        let config = format!("\nflowControl: {{saturationDetector: {{pluginRef: concurrency-detector}}, {limit}}}");
        let mut world = World::with_endpoint(&config);
        world.submit_as(Request {
            size_bytes: 1001,
            ..Request::unknown(Kind::Inference)
        });

        let effects = world.effects();
        let refused = effects[0].1.clone().expect("it is refused");

        assert_eq!(refused.refusal, Refusal::Oversized);
        assert_eq!((refused.retry_after, refused.position), (None, None));
        let reason = "its body has 1001 bytes, and no more than 1000 may wait";
        assert_eq!(refused.reason.as_deref(), Some(reason));
    }
}

#[test]
fn a_tenant_with_little_is_told_its_place_in_the_order_of_turns() {
    let mut world = World::with_endpoint(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  displaceWhenFull: false
  priorityBands: [{priority: 0, maxRequests: 40, fairnessPolicyRef: round-robin-fairness-policy}]
",
    );
    let first = world.submit("noisy", "");
    assert_eq!(world.routed(), [first]);
    let _noisy: Vec<_> = (0..40).map(|_| world.submit("noisy", "")).collect();
    assert!(world.effects().is_empty());
    let place = |world: &mut World, tenant| {
        world.submit(tenant, "");
        let effects = world.effects();
        effects[0].1.as_ref().and_then(|refused| refused.position)
    };

    assert_eq!(place(&mut world, "quiet"), Some(1), "the noisy one was served last");
    assert_eq!(place(&mut world, "noisy"), Some(41));
}

#[test]
fn a_full_band_leaves_the_room_of_other_bands_alone() {
    let mut world = World::with_endpoint(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  priorityBands: [{priority: 0, maxRequests: 1}, {priority: 10}]
",
    )
    .objectives(&[("high", 10)]);
    let first = world.submit("t", "");
    assert_eq!(world.routed(), [first]);
    world.submit("t", "");
    let too_many = world.submit("t", "");
    let high = world.submit("t", "high");

    assert_eq!(world.refused(), [(too_many, Refusal::QueueFull)]);
    world.finish(first);
    assert_eq!(world.routed(), [high]);
}

#[test]
fn bytes_are_limited_to_the_byte_and_given_back_by_those_who_leave() {
    let mut world = World::with_endpoint(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  maxBytes: 200
",
    );
    let first = world.submit("t", "");
    assert_eq!(world.routed(), [first]);
    let fits = [world.submit("t", ""), world.submit("t", "")];
    let too_many = world.submit("t", "");
    assert_eq!(world.refused(), [(too_many, Refusal::QueueFull)]);

    world.tell(Input::Cancel { id: RequestId(fits[0]) });
    let fits_again = world.submit("t", "");

    assert!(world.effects().is_empty());
    assert_eq!(world.order(first), [first, fits[1], fits_again]);
}

#[test]
fn a_request_expires_at_its_deadline_to_the_nanosecond() {
    let mut world = World::with_endpoint(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: 10s
",
    );
    world.submit("t", "");
    assert_eq!(world.routed().len(), 1);
    let waits = world.submit("t", "");
    assert!(world.effects().is_empty());
    let deadline = Timestamp::ZERO + Duration::from_secs(10);
    assert_eq!(world.engine.deadline(), Some(deadline));

    world.now = Timestamp::from_nanos(deadline.as_nanos() - 1);
    assert!(world.effects().is_empty());
    world.now = deadline;

    assert_eq!(world.refused(), [(waits, Refusal::Expired)]);
    assert_eq!(world.engine.deadline(), None);
}

#[test]
fn a_client_can_shorten_its_wait_and_not_lengthen_it() {
    let mut world = World::with_endpoint(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: 10s
",
    );
    world.submit("t", "");
    assert_eq!(world.routed().len(), 1);
    let mut with_ttl = |seconds| {
        world.submit_as(Request {
            ttl: Some(Duration::from_secs(seconds)),
            ..Request::unknown(Kind::Inference)
        })
    };
    let (short, long) = (with_ttl(1), with_ttl(99));

    assert_eq!(world.at(1.0).refused(), [(short, Refusal::Expired)]);
    assert_eq!(world.at(10.0).refused(), [(long, Refusal::Expired)]);
}

#[test]
fn a_fresh_budget_begins_when_the_pool_gets_its_first_endpoint() {
    let mut world = World::new(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: 10s
  noEndpointRequestTTL: 60s
",
    );
    let (first, waits) = (world.submit("t", ""), world.submit("t", ""));
    assert!(world.at(49.0).effects().is_empty());

    world.at(50.0).join("a");
    assert_eq!(world.routed(), [first]);
    assert!(world.at(59.9).effects().is_empty());

    assert_eq!(world.at(60.0).refused(), [(waits, Refusal::Expired)]);
}

#[test]
fn without_endpoints_the_other_budget_counts_and_the_answer_says_so() {
    let mut world = World::new(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: 10s
  noEndpointRequestTTL: 60s
",
    );
    let waits = world.submit("t", "");
    assert!(world.at(59.0).effects().is_empty());

    assert_eq!(world.at(60.0).refused(), [(waits, Refusal::ExpiredNoEndpoints)]);
}

#[test]
fn a_budget_of_zero_never_ends() {
    let mut world = World::new(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: 0s
  noEndpointRequestTTL: 0s
",
    );
    world.submit("t", "");

    assert!(world.at(1e6).effects().is_empty());
    assert_eq!(world.engine.deadline(), None);
}

#[test]
fn a_client_that_leaves_the_queue_is_gone_at_once() {
    let mut world = World::with_endpoint(STRICT);
    let first = world.submit("t", "");
    assert_eq!(world.routed(), [first]);
    let (leaves, stays) = (world.submit("t", ""), world.submit("t", ""));
    world.tell(Input::Cancel { id: RequestId(leaves) });

    assert_eq!(world.engine.flow().unwrap().held().requests, 1);
    assert_eq!(world.order(first), [first, stays]);
    assert_eq!(world.engine.tally().ended_in(Outcome::Refused(Refusal::Cancelled)), 1);
}

#[test]
fn a_tenant_whose_requests_used_much_waits_behind_one_whose_requests_used_little() {
    let mut world = World::with_endpoint(
        "- {type: program-aware-fairness}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultPriorityBand: {fairnessPolicyRef: program-aware-fairness}
",
    );
    let used = |tokens| Used {
        prompt_tokens: tokens,
        completion_tokens: tokens,
    };
    let heavy = world.submit("heavy", "");
    assert_eq!(world.routed(), [heavy]);
    world.finish_using(heavy, used(1000));
    let light = world.submit("light", "");
    assert_eq!(world.routed(), [light]);
    let came_first = world.submit("heavy", "");
    let came_second = world.submit("light", "");

    world.finish_using(light, used(1));

    assert_eq!(world.routed(), [came_second]);
    world.finish(came_second);
    assert_eq!(world.routed(), [came_first]);
}

/// Ordered by targets for the first token, with a fairness policy.
fn by_deadline(fairness: &str) -> World {
    World::with_endpoint(&format!(
        "- {{type: slo-deadline-ordering-policy}}
flowControl:
  saturationDetector: {{pluginRef: concurrency-detector}}
  priorityBands:
  - {{priority: 0, maxRequests: 4, fairnessPolicyRef: {fairness}, orderingPolicyRef: slo-deadline-ordering-policy}}
"
    ))
}

impl World {
    /// A request whose first token is due so many seconds from now, if a number is given.
    fn submit_due(&mut self, tenant: &str, ttft: Option<f64>) -> u64 {
        self.submit_as(Request {
            fairness_id: tenant.into(),
            received: self.now,
            slo: Slo {
                ttft: ttft.map(Duration::from_secs_f64),
                tpot: None,
            },
            ..Request::unknown(Kind::Inference)
        })
    }
}

#[test]
fn a_request_whose_deadline_has_passed_goes_behind_those_that_can_still_be_served_in_time() {
    for fairness in ["global-strict-fairness-policy", "round-robin-fairness-policy"] {
        let mut world = by_deadline(fairness);
        let first = world.submit_due("t", None);
        assert_eq!(world.routed(), [first]);
        let due_at_1 = world.submit_due("t", Some(1.0));
        let due_at_9 = world.submit_due("t", Some(9.0));
        let due_at_3 = world.submit_due("t", Some(3.0));

        let order = world.at(2.0).order(first);

        assert_eq!(order, [first, due_at_3, due_at_9, due_at_1], "{fairness}");
    }
}

#[test]
fn a_deadline_of_this_very_moment_is_not_missed_yet() {
    let mut world = by_deadline("global-strict-fairness-policy");
    let first = world.submit_due("t", None);
    assert_eq!(world.routed(), [first]);
    let due_at_1 = world.submit_due("t", Some(1.0));
    let due_at_9 = world.submit_due("t", Some(9.0));

    assert_eq!(world.at(1.0).order(first), [first, due_at_1, due_at_9]);
}

#[test]
fn late_requests_and_those_without_a_deadline_go_in_order_of_arrival() {
    let mut world = by_deadline("global-strict-fairness-policy");
    let first = world.submit_due("t", None);
    assert_eq!(world.routed(), [first]);
    let late = world.submit_due("a", Some(1.0));
    let without = world.submit_due("b", None);
    let later = world.submit_due("c", Some(0.5));
    let in_time = world.submit_due("d", Some(9.0));

    assert_eq!(world.at(2.0).order(first), [first, in_time, late, without, later]);
}

#[test]
fn whoever_is_late_before_it_waits_stands_behind_too() {
    let mut world = by_deadline("global-strict-fairness-policy");
    let first = world.submit_due("t", None);
    assert_eq!(world.at(5.0).routed(), [first]);
    let without = world.submit_due("t", None);
    // Its headers came long ago, and its body only now.
    let late = world.submit_as(Request {
        received: Timestamp::ZERO,
        slo: Slo {
            ttft: Some(Duration::from_secs(1)),
            tpot: None,
        },
        ..Request::unknown(Kind::Inference)
    });

    assert_eq!(world.order(first), [first, without, late]);
}

#[test]
fn what_a_client_with_a_deadline_is_told_counts_those_that_can_be_served_in_time() {
    let mut world = by_deadline("global-strict-fairness-policy");
    let before = world.submit_due("t", None);
    assert_eq!(world.routed(), [before]);
    world.at(1.0).finish(before);
    // A request takes a second, so nobody of these goes in time but the last.
    let first = world.submit_due("t", None);
    assert_eq!(world.routed(), [first]);
    let _waiting = [0.5, 0.5, 0.5, 2.5].map(|ttft| world.submit_due("t", Some(ttft)));
    assert!(world.effects().is_empty());
    let told = |world: &mut World, ttft| {
        world.submit_due("t", ttft);
        let effects = world.effects();
        let refused = effects[0].1.as_ref().expect("the band is full");
        let seconds = refused.retry_after.expect("it may come again").as_secs();
        (refused.position, seconds)
    };

    // Behind the one that is due after 2.5 s.
    assert_eq!(told(&mut world, Some(3.0)), (Some(5), 2));
    // It would be late, and then all others go before it. So would they before one without a deadline.
    for ttft in [Some(0.2), None] {
        let (position, seconds) = told(&mut world, ttft);
        assert_eq!(position, Some(if ttft.is_some() { 1 } else { 5 }));
        assert!((4..=6).contains(&seconds), "{seconds}");
    }
}

#[test]
fn at_the_end_of_the_service_everybody_is_answered() {
    let mut world = World::with_endpoint(STRICT);
    let first = world.submit("t", "");
    assert_eq!(world.routed(), [first]);
    let waits = world.submit("t", "");
    world.tell(Input::Close);

    let closed = Refusal::ShuttingDown;
    assert_eq!(world.refused(), [(waits, closed)]);
    let comes_late = world.submit("t", "");
    assert_eq!(world.refused(), [(comes_late, closed)]);
    world.finish(first);
    assert_eq!(world.engine.tally().ended(), world.engine.tally().submitted);
}

#[test]
fn when_the_last_endpoint_leaves_requests_wait_for_another_one() {
    let mut world = World::with_endpoint(STRICT);
    let first = world.submit("t", "");
    assert_eq!(world.routed(), [first]);
    let waits = world.submit("t", "");
    world.leave("a");
    world.finish(first);
    assert!(world.effects().is_empty());

    world.join("b");

    assert_eq!(world.routed(), [waits]);
}

#[test]
fn a_band_that_no_objective_wants_any_more_goes_when_it_is_empty() {
    let mut world = World::with_endpoint(STRICT).objectives(&[("high", 10)]);
    let first = world.submit("t", "");
    assert_eq!(world.routed(), [first]);
    let high = world.submit("t", "high");
    world = world.objectives(&[]);
    let priorities = |world: &World| -> Vec<i32> {
        let flow = world.engine.flow().unwrap();
        flow.bands().map(|(band, _)| band.priority).collect()
    };
    assert_eq!(priorities(&world), [10, 0]);

    assert_eq!(world.order(first), [first, high]);
    assert_eq!(priorities(&world), [0]);
}

#[test]
fn another_plan_keeps_what_waits_and_serves_it_by_its_own_rules() {
    let mut world = World::with_endpoint(STRICT);
    let noisy: Vec<_> = (0..3).map(|_| world.submit("noisy", "")).collect();
    let quiet = world.submit("quiet", "");
    assert_eq!(world.routed(), [noisy[0]]);

    let text = format!("{ONE_AT_A_TIME}{ROUND_ROBIN}");
    let plan = load(&text, &SourceName::Flag, &LoadOptions::default()).unwrap().plan;
    world.engine.replan(world.now, plan.engine);

    let order = world.order(noisy[0]);
    assert_eq!(order, [noisy[0], quiet, noisy[1], noisy[2]]);
}

#[test]
fn another_plan_leaves_whose_turn_it_is() {
    let mut world = World::with_endpoint(ROUND_ROBIN);
    let (a, b): (Vec<_>, Vec<_>) = (0..2).map(|_| (world.submit("a", ""), world.submit("b", ""))).unzip();
    assert_eq!(world.routed(), [a[0]]);

    let text = format!("{ONE_AT_A_TIME}{ROUND_ROBIN}");
    let plan = load(&text, &SourceName::Flag, &LoadOptions::default()).unwrap().plan;
    world.engine.replan(world.now, plan.engine);

    assert_eq!(world.order(a[0]), [a[0], b[0], a[1], b[1]]);
}

#[test]
fn whoever_could_still_go_at_its_last_moment_goes_if_there_is_room_for_several() {
    let mut world = World::new(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  noEndpointRequestTTL: 10s
  defaultRequestTTL: 0s
",
    );
    let with_ttl = || Request {
        ttl: Some(Duration::from_secs(10)),
        ..Request::unknown(Kind::Inference)
    };
    world.join("a");
    let first = world.submit_as(with_ttl());
    assert_eq!(world.routed(), [first]);
    let waits = [
        world.submit_as(with_ttl()),
        world.submit_as(with_ttl()),
        world.submit_as(with_ttl()),
    ];
    assert!(world.effects().is_empty());

    world.at(10.0).finish(first);
    world.join("b");
    let effects = world.effects();

    let refusals: Vec<_> = effects
        .into_iter()
        .map(|(id, refused)| (id, refused.map(|refused| refused.refusal)))
        .collect();
    assert_eq!(
        refusals,
        [(waits[0], None), (waits[1], None), (waits[2], Some(Refusal::Expired))]
    );
}

#[test]
fn when_the_last_report_gets_stale_those_who_wait_are_looked_at_again() {
    let mut world = World::with_endpoint("flowControl: {saturationDetector: {pluginRef: utilization-detector}}");
    let full = SignalUpdate {
        at: world.now,
        waiting: Some(50),
        ..SignalUpdate::default()
    };
    let id = EndpointId::new("default", "a");
    let changes = vec![PoolChange::Report(id, full)];
    world.tell(Input::PoolChanged { changes });
    let waits = world.submit("t", "");
    assert!(world.effects().is_empty());

    let deadline = world.engine.deadline().unwrap();
    assert_eq!(
        deadline,
        Timestamp::ZERO + Duration::from_millis(200) + Duration::from_nanos(1)
    );
    world.now = deadline;

    assert_eq!(world.routed(), [waits]);
}

#[test]
fn switching_flow_control_off_routes_what_waits() {
    let mut world = World::with_endpoint(STRICT);
    let ids = [world.submit("t", ""), world.submit("t", ""), world.submit("t", "")];
    assert_eq!(world.routed(), ids[..1]);

    let plan = load("", &SourceName::BuiltIn, &LoadOptions::default()).unwrap().plan;
    world.engine.replan(world.now, plan.engine);

    assert_eq!(world.routed(), ids[1..]);
}

#[test]
fn a_request_below_zero_is_cut_off_for_a_more_urgent_one_which_then_goes() {
    let mut world = World::with_endpoint(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  enableEviction: true
",
    )
    .objectives(&[("low", -5)]);
    let low = world.submit("t", "low");
    assert_eq!(world.routed(), [low]);
    let urgent = world.submit("t", "");

    let Some(Effect::Evict { id, .. }) = world.engine.poll(world.now) else {
        panic!("nobody is cut off")
    };
    assert_eq!(id.0, low);
    assert!(world.effects().is_empty());
    let progress = Progress::Ended(Outcome::Evicted, Used::default());
    world.at(0.5);
    world.tell(Input::Progress { id, progress });

    assert_eq!(world.routed(), [urgent]);
}

#[test]
fn a_client_that_is_cut_off_is_told_how_long_an_equal_request_would_wait() {
    let mut world = World::with_endpoint(
        "
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  enableEviction: true
",
    )
    .objectives(&[("low", -5)]);
    // Requests take 2 s.
    for n in 0..5 {
        let low = world.at(f64::from(n) * 2.0).submit("t", "low");
        assert_eq!(world.routed(), [low]);
        world.at(f64::from(n + 1) * 2.0).finish(low);
    }
    let cut_off = world.submit("t", "low");
    assert_eq!(world.routed(), [cut_off]);
    let _low: Vec<_> = (0..5).map(|_| world.submit("t", "low")).collect();
    let _urgent: Vec<_> = (0..10).map(|_| world.submit("t", "")).collect();

    let Some(Effect::Evict { id, retry_after }) = world.engine.poll(world.now) else {
        panic!("nobody is cut off")
    };

    assert_eq!(id.0, cut_off);
    let seconds = retry_after.as_secs();
    assert!(
        (28..=36).contains(&seconds),
        "behind ten more urgent ones and five of its own band, 2 s each: {seconds}"
    );
}
