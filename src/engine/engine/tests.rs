use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::config::{LoadOptions, SourceName, load};
use super::super::pool::{Endpoint, EndpointId, SignalUpdate};
use super::super::prefix::{BlockHasher, PromptBlocks};
use super::super::scheduling::NoProbe;
use super::*;

const NOW: Timestamp = Timestamp::ZERO;

const COMPLETED: Progress = Progress::Ended(
    Outcome::Completed,
    Used {
        prompt_tokens: 0,
        completion_tokens: 0,
    },
);

fn plan() -> EnginePlan {
    let built_in = load("", &SourceName::BuiltIn, &LoadOptions::default());
    built_in.expect("the built-in default is right").plan.engine
}

fn engine_with(endpoints: &[&str]) -> Engine {
    let mut engine = Engine::new(plan(), Seed(1), Box::new(NoProbe), Explain::All);
    engine.pool_changed(NOW, endpoints.iter().map(|name| join(name)).collect());
    engine
}

fn id_of(name: &str) -> EndpointId {
    EndpointId::new("default", name)
}

fn join(name: &str) -> PoolChange {
    PoolChange::Upsert(Arc::new(Endpoint {
        id: id_of(name),
        name: name.into(),
        address: [127, 0, 0, 1].into(),
        port: 8000,
        labels: BTreeMap::new(),
        rank: 0,
    }))
}

fn waiting(name: &str, waiting: u32) -> PoolChange {
    PoolChange::Report(
        id_of(name),
        SignalUpdate {
            waiting: Some(waiting),
            ..SignalUpdate::default()
        },
    )
}

fn prompt(text: &str) -> Request {
    let mut hasher = BlockHasher::new("m", "", BlockLayout::default());
    hasher.text(text.as_bytes());
    hasher.end_prompt();
    let (prompt_tokens, prompt_blocks) = hasher.finish();
    Request {
        prompt_tokens,
        prompt_blocks,
        ..Request::unknown(Kind::Inference)
    }
}

fn ask(engine: &mut Engine, id: u64, request: &Request) -> Result<Decision, Refusal> {
    engine.submit(NOW, RequestId(id), request.clone());
    let effect = engine.poll(NOW).expect("nothing makes a request wait");
    assert_eq!(effect.id(), RequestId(id));
    match effect {
        Effect::Route { decision, .. } => Ok(decision),
        Effect::Refuse { refused, .. } => Err(refused.refusal),
        Effect::Evict { .. } => panic!("nobody asked for eviction"),
    }
}

fn chosen(decision: &Decision) -> &str {
    &decision.endpoints[0].name
}

fn in_flight(engine: &Engine, name: &str) -> (u32, u64) {
    let slot = engine.pool().slot(&id_of(name)).expect("the endpoint is there");
    let in_flight = engine.pool()[slot].in_flight;
    (in_flight.requests, in_flight.tokens)
}

#[test]
fn an_empty_pool_serves_nobody() {
    let mut engine = engine_with(&[]);

    assert_eq!(ask(&mut engine, 1, &prompt("hello")).unwrap_err(), Refusal::NoEndpoints);
    assert_eq!(engine.tally().ended_in(Outcome::Refused(Refusal::NoEndpoints)), 1);
}

#[test]
fn an_empty_pool_sheds_nobody_for_want_of_room() {
    let sheddable = Request {
        priority: -1,
        ..prompt("hello")
    };

    let refusal = ask(&mut engine_with(&[]), 1, &sheddable).unwrap_err();

    assert_eq!(refusal, Refusal::NoEndpoints);
}

#[test]
fn a_prompt_goes_where_its_prefix_was_served() {
    let mut engine = engine_with(&["a", "b", "c"]);
    let system = "x".repeat(4096);
    let first = ask(&mut engine, 1, &prompt(&system)).unwrap();
    let second = ask(&mut engine, 2, &prompt(&format!("{system} and a question"))).unwrap();

    assert_eq!(chosen(&first), chosen(&second));
    assert_eq!((second.prefix[0].matched, second.prefix[0].total), (16, 17));
}

#[test]
fn a_request_for_cached_prompts_only_goes_where_a_part_of_it_is_cached_or_nowhere() {
    let mut engine = engine_with(&["a", "b", "c"]);
    let system = "x".repeat(4096);
    let conditional = |text: &str| Request {
        only_if_cached: true,
        ..prompt(text)
    };

    assert_eq!(
        ask(&mut engine, 1, &conditional(&system)).unwrap_err(),
        Refusal::NotCached
    );
    let first = ask(&mut engine, 2, &prompt(&system)).unwrap();
    let holder = chosen(&first).to_owned();
    // Even a long queue does not lead it to an endpoint that has nothing of it.
    engine.pool_changed(NOW, vec![waiting(&holder, 100)]);
    let second = ask(&mut engine, 3, &conditional(&format!("{system} and a question"))).unwrap();

    assert_eq!(chosen(&second), holder);
    assert_eq!(
        ask(&mut engine, 4, &conditional(&"y".repeat(4096))).unwrap_err(),
        Refusal::NotCached
    );
    assert_eq!(engine.tally().ended_in(Outcome::Refused(Refusal::NotCached)), 2);
    assert_eq!(engine.in_flight(), 2);
}

#[test]
fn a_long_queue_outweighs_a_cached_prefix_and_the_decision_says_so() {
    let mut engine = engine_with(&["a", "b"]);
    let system = "x".repeat(4096);
    let first = ask(&mut engine, 1, &prompt(&system)).unwrap();
    let (cached, other) = if chosen(&first) == "a" { ("a", "b") } else { ("b", "a") };
    let full = PoolChange::Report(
        id_of(cached),
        SignalUpdate {
            waiting: Some(9),
            kv_usage: Some(1.0),
            ..SignalUpdate::default()
        },
    );
    engine.pool_changed(NOW, vec![full, waiting(other, 0)]);
    let second = ask(&mut engine, 2, &prompt(&system)).unwrap();

    assert_eq!(chosen(&second), other);
    let why: Vec<_> = second
        .why
        .scores(0)
        .map(|(name, weight, score)| (&**name, weight, score))
        .collect();
    assert_eq!(
        why,
        [
            ("queue-scorer", 2.0, 1.0),
            ("kv-cache-utilization-scorer", 2.0, 1.0),
            ("prefix-cache-scorer", 3.0, 0.0),
        ]
    );
    assert_eq!(
        second.why.scored.iter().map(|s| s.total).collect::<Vec<_>>(),
        [4.0, 3.0]
    );
}

#[test]
fn a_request_in_flight_counts_until_it_ends_and_its_prompt_until_the_answer_begins() {
    let mut engine = engine_with(&["a"]);
    ask(&mut engine, 1, &prompt(&"x".repeat(400))).unwrap();
    ask(&mut engine, 2, &prompt(&"y".repeat(40))).unwrap();

    assert_eq!(in_flight(&engine, "a"), (2, 110));
    engine.progress(NOW, RequestId(1), Progress::AnswerBegan);
    engine.progress(NOW, RequestId(1), Progress::AnswerBegan);
    assert_eq!(in_flight(&engine, "a"), (2, 10));
    engine.progress(NOW, RequestId(1), COMPLETED);
    engine.cancel(NOW, RequestId(2));
    engine.cancel(NOW, RequestId(2));
    assert_eq!(in_flight(&engine, "a"), (0, 0));
    assert_eq!(engine.tally().ended_in(Outcome::Completed), 1);
    assert_eq!(engine.tally().ended_in(Outcome::Disconnected), 1);
}

#[test]
fn what_an_endpoint_has_cached_of_a_prompt_is_no_load() {
    let mut engine = engine_with(&["a"]);
    ask(&mut engine, 1, &prompt(&"x".repeat(4096))).unwrap();
    engine.progress(NOW, RequestId(1), COMPLETED);
    ask(
        &mut engine,
        2,
        &prompt(&format!("{}{}", "x".repeat(4096), "y".repeat(400))),
    )
    .unwrap();

    assert_eq!(in_flight(&engine, "a"), (1, 100));
}

#[test]
fn an_answer_that_counts_is_in_flight_with_its_prompt_until_it_ends() {
    let text = "plugins:\n- type: token-load-scorer\n- type: inflight-load-producer\n  parameters: \
                {addEstimatedOutputTokens: true, outputRatio: 2, maxEstimatedOutputTokens: 150}\n";
    let plan = load(text, &SourceName::Flag, &LoadOptions::default()).unwrap().plan;
    let mut engine = Engine::new(plan.engine, Seed(1), Box::new(NoProbe), Explain::All);
    engine.pool_changed(NOW, vec![join("a")]);
    ask(&mut engine, 1, &prompt(&"x".repeat(400))).unwrap();

    assert_eq!(in_flight(&engine, "a"), (1, 250));
    engine.progress(NOW, RequestId(1), Progress::AnswerBegan);
    assert_eq!(in_flight(&engine, "a"), (1, 250));
    engine.progress(NOW, RequestId(1), COMPLETED);
    assert_eq!(in_flight(&engine, "a"), (0, 0));
}

#[test]
fn a_busy_endpoint_is_left_by_the_prompts_that_it_has_cached() {
    let text = "plugins:\n- type: prefix-cache-affinity-filter\n  parameters: {peakPrefillThroughput: 100, \
                maxTTFTPenaltyMs: 20000}\n- type: token-load-scorer\n";
    let plan = load(text, &SourceName::Flag, &LoadOptions::default()).unwrap().plan;
    let mut engine = Engine::new(plan.engine, Seed(1), Box::new(NoProbe), Explain::All);
    engine.pool_changed(NOW, vec![join("a"), join("b")]);
    let system = "x".repeat(4096);
    let first = ask(&mut engine, 1, &prompt(&system)).unwrap();
    engine.progress(NOW, RequestId(1), COMPLETED);
    let mut seen = Vec::new();
    // Each adds some 700 tokens of its own to what the endpoint has: the third finds it 20 s behind the other one.
    for id in 2..6 {
        let question = format!("{system}{}", id.to_string().repeat(2800));
        seen.push(chosen(&ask(&mut engine, id, &prompt(&question)).unwrap()) == chosen(&first));
    }

    assert!(seen[0], "{seen:?}");
    assert!(seen.contains(&false), "{seen:?}");
}

#[test]
fn an_endpoint_that_left_and_came_back_owes_nothing_for_its_former_requests() {
    let mut engine = engine_with(&["a"]);
    ask(&mut engine, 1, &prompt("hello")).unwrap();
    engine.pool_changed(NOW, vec![PoolChange::Remove(id_of("a")), join("a")]);
    ask(&mut engine, 2, &prompt("hello")).unwrap();
    engine.progress(NOW, RequestId(1), COMPLETED);

    assert_eq!(in_flight(&engine, "a"), (1, 2));
}

#[test]
fn a_request_without_a_body_goes_anywhere_it_may_and_is_no_load() {
    let mut engine = engine_with(&["a", "b"]);
    let anywhere = Request::unknown(Kind::Bodiless);
    let nowhere = Request {
        subset: Subset::Only(Vec::new()),
        ..Request::unknown(Kind::Bodiless)
    };
    let picks: BTreeSet<_> = (0..50)
        .map(|id| chosen(&ask(&mut engine, id, &anywhere).unwrap()).to_owned())
        .collect();

    assert_eq!(picks.len(), 2);
    assert_eq!(in_flight(&engine, "a").0 + in_flight(&engine, "b").0, 0);
    assert_eq!(ask(&mut engine, 99, &nowhere).unwrap_err(), Refusal::NoEndpoints);
}

#[test]
fn a_request_without_a_body_goes_to_the_least_loaded_endpoint_and_to_any_of_equal_ones() {
    let mut engine = engine_with(&["a", "b", "c"]);
    let queues = [("a", 2), ("b", 1), ("c", 1)];
    engine.pool_changed(NOW, queues.map(|(name, queue)| waiting(name, queue)).into());
    let mut picks = |ids: std::ops::Range<u64>| -> BTreeSet<String> {
        let pick = |id| chosen(&ask(&mut engine, id, &Request::unknown(Kind::Bodiless)).unwrap()).to_owned();
        ids.map(pick).collect()
    };

    assert_eq!(picks(0..50), BTreeSet::from(["b", "c"].map(str::to_owned)));

    // What is in flight counts as much as what is reported.
    let sent = chosen(&ask(&mut engine, 100, &prompt("hello")).unwrap()).to_owned();
    let other = if sent == "b" { "c" } else { "b" };
    let pick = |id| chosen(&ask(&mut engine, id, &Request::unknown(Kind::Bodiless)).unwrap()).to_owned();
    let picks: BTreeSet<_> = (101..150).map(pick).collect();
    assert_eq!(picks, BTreeSet::from([other.to_owned()]));
}

#[test]
fn a_request_without_a_body_goes_to_an_endpoint_with_room_before_a_less_loaded_one_without() {
    let mut engine = engine_with(&["full", "roomy"]);
    let report = |name, running, kv_usage| {
        let update = SignalUpdate {
            waiting: Some(0),
            running: Some(running),
            kv_usage: Some(kv_usage),
            ..SignalUpdate::default()
        };
        PoolChange::Report(id_of(name), update)
    };
    engine.pool_changed(NOW, vec![report("full", 1, 0.95), report("roomy", 20, 0.1)]);

    let pick = |id| chosen(&ask(&mut engine, id, &Request::unknown(Kind::Bodiless)).unwrap()).to_owned();
    let picks: BTreeSet<_> = (0..50).map(pick).collect();

    assert_eq!(picks, BTreeSet::from(["roomy".to_owned()]));
}

#[test]
fn fallbacks_stand_in_the_order_of_their_totals() {
    let mut engine = engine_of(
        "plugins: [{type: queue-scorer}, {type: max-score-picker, parameters: {maxNumOfEndpoints: 4}}]",
        &["a", "b", "c", "d", "e"],
    );
    let queues = [("a", 3), ("b", 0), ("c", 4), ("d", 1), ("e", 2)];
    engine.pool_changed(NOW, queues.map(|(name, queue)| waiting(name, queue)).into());

    let decision = ask(&mut engine, 1, &prompt("x")).unwrap();

    let names: Vec<_> = decision.endpoints.iter().map(|endpoint| &*endpoint.name).collect();
    assert_eq!(names, ["b", "d", "e", "a"]);
}

#[test]
fn a_service_that_ends_takes_nothing_in_without_queues_either() {
    let mut engine = engine_with(&["a"]);
    ask(&mut engine, 1, &prompt("x")).unwrap();
    engine.apply(NOW, Input::Close);

    for (id, request) in [(2, prompt("x")), (3, Request::unknown(Kind::Bodiless))] {
        assert_eq!(ask(&mut engine, id, &request).unwrap_err(), Refusal::ShuttingDown);
    }
    engine.progress(NOW, RequestId(1), COMPLETED);
    assert_eq!((engine.tally().ended(), engine.in_flight()), (3, 0));
}

#[test]
fn a_new_plan_keeps_requests_in_flight_and_what_its_producers_remember() {
    let mut engine = engine_with(&["a", "b"]);
    let text = "x".repeat(4096);
    let before = ask(&mut engine, 1, &prompt(&text)).unwrap();
    engine.replan(NOW, plan());
    let after = ask(&mut engine, 2, &prompt(&text)).unwrap();

    assert_eq!(chosen(&before), chosen(&after));
    assert_eq!(after.prefix[0].matched, 16);
    assert_eq!(in_flight(&engine, chosen(&after)).0, 2);
}

#[test]
fn prompts_are_cut_as_the_first_endpoint_reports_but_not_finer_than_the_floor() {
    let mut engine = engine_with(&["a"]);
    let report = |block_tokens| {
        vec![PoolChange::Report(
            id_of("a"),
            SignalUpdate {
                block_tokens: Some(block_tokens),
                ..SignalUpdate::default()
            },
        )]
    };

    assert_eq!(engine.block_layout().unwrap().block_tokens, 64);
    engine.pool_changed(NOW, report(128));
    assert_eq!(engine.block_layout().unwrap().block_tokens, 128);
}

fn engine_of(config: &str, endpoints: &[&str]) -> Engine {
    let options = LoadOptions {
        cache_source: true,
        ..LoadOptions::default()
    };
    let loaded = load(config, &SourceName::Flag, &options).unwrap_or_else(|errors| panic!("{errors}"));
    let mut engine = Engine::new(loaded.plan.engine, Seed(1), Box::new(NoProbe), Explain::All);
    engine.pool_changed(NOW, endpoints.iter().map(|name| join(name)).collect());
    engine
}

fn chain(blocks: impl IntoIterator<Item = u64>) -> Request {
    Request {
        prompt_blocks: PromptBlocks::from_chain(16, blocks.into_iter().collect()),
        ..Request::unknown(Kind::Inference)
    }
}

/// What the only scorer said of each endpoint, in order of their names.
fn scores(decision: &Decision) -> Vec<f64> {
    let why = &decision.why;
    let mut scores: Vec<_> = (0..why.scored.len())
        .map(|rank| {
            (
                why.scored[rank].endpoint.name.clone(),
                why.scores(rank).next().unwrap().2,
            )
        })
        .collect();
    scores.sort_by(|a, b| a.0.cmp(&b.0));
    scores.into_iter().map(|(_, score)| score).collect()
}

#[test]
fn prompts_are_cut_exactly_as_a_producer_says_that_needs_it_so() {
    let layout = |config| engine_of(config, &["a"]).block_layout().unwrap();
    let whole_prompt = |block_tokens| BlockLayout {
        block_tokens,
        max_blocks: u32::MAX,
    };

    assert_eq!(layout("plugins: [{type: prefix-affinity-scorer}]"), whole_prompt(16));
    assert_eq!(
        layout("plugins: [{type: prefix-cache-scorer}, {type: prefix-affinity-scorer}]"),
        whole_prompt(16)
    );
    assert_eq!(
        layout(
            "plugins: [{type: precise-prefix-cache-scorer}, {type: precise-prefix-cache-producer, \
             parameters: {tokenProcessorConfig: {blockSizeTokens: 8}}}]"
        ),
        whole_prompt(8)
    );
}

#[test]
fn the_start_of_a_prompt_that_was_served_before_is_the_share_that_scores() {
    let mut engine = engine_of("plugins: [{type: prefix-affinity-scorer}]", &["a"]);

    assert_eq!(scores(&ask(&mut engine, 1, &chain([1, 2, 3])).unwrap()), [0.0]);
    assert_eq!(scores(&ask(&mut engine, 2, &chain([1, 2, 3, 4, 5])).unwrap()), [0.6]);
    assert_eq!(scores(&ask(&mut engine, 3, &chain([])).unwrap()), [0.0]);
}

#[test]
fn prompts_that_nobody_has_go_to_each_endpoint_in_turn() {
    let mut engine = engine_of(
        "plugins: [{type: prefix-affinity-scorer}, {type: no-hit-lru-scorer}]",
        &["a", "b", "c"],
    );
    let mut goes_to = |id: u64, blocks: [u64; 2]| {
        let decision = ask(&mut engine, id, &chain(blocks)).unwrap();
        assert_eq!(decision.prefix.len(), 1, "both scorers read one producer");
        chosen(&decision).to_owned()
    };

    assert_eq!([1, 2, 3, 4].map(|id| goes_to(id, [id * 10, 0])), ["a", "b", "c", "a"]);
    // The one that has its start gets it, and the line is as before.
    assert_eq!(goes_to(5, [30, 1]), "c");
    assert_eq!(goes_to(6, [60, 0]), "b");
}

const PRECISE: &str = "plugins: [{type: precise-prefix-cache-scorer}]";

#[test]
fn what_endpoints_tell_of_their_caches_is_what_the_precise_scorer_goes_by() {
    let mut engine = engine_of(PRECISE, &["a", "b", "c"]);
    let slot = |engine: &Engine, name| engine.pool().slot(&id_of(name)).unwrap();
    let (b, c) = (slot(&engine, "b"), slot(&engine, "c"));
    let request = chain([1, 2, 3, 4]);

    assert!(engine.wants_cache());
    assert_eq!(scores(&ask(&mut engine, 1, &request).unwrap()), [1.0, 1.0, 1.0]);
    engine.cache_changed(b, &[1, 2], &[]);
    engine.cache_changed(c, &[1, 2, 3, 4], &[]);
    let second = ask(&mut engine, 2, &request).unwrap();
    assert_eq!(scores(&second), [0.0, 0.5, 1.0]);
    assert_eq!((second.prefix[0].matched, second.prefix[0].total), (4, 4));
    engine.cache_changed(c, &[3], &[2, 3]);
    assert_eq!(scores(&ask(&mut engine, 3, &request).unwrap()), [0.0, 1.0, 0.5]);
    engine.pool_changed(NOW, vec![PoolChange::Remove(id_of("b")), join("b")]);
    assert_eq!(scores(&ask(&mut engine, 4, &request).unwrap()), [0.0, 0.0, 1.0]);
}

#[test]
fn caches_are_remembered_by_a_plan_that_reads_them_and_by_no_other() {
    let mut engine = engine_of(PRECISE, &["a", "b"]);
    let b = engine.pool().slot(&id_of("b")).unwrap();
    let again = |config| {
        load(
            config,
            &SourceName::Flag,
            &LoadOptions {
                cache_source: true,
                ..LoadOptions::default()
            },
        )
    };
    let again = |config| again(config).unwrap().plan.engine;
    engine.cache_changed(b, &[1], &[]);

    engine.replan(NOW, again(PRECISE));
    assert_eq!(scores(&ask(&mut engine, 1, &chain([1])).unwrap()), [0.0, 1.0]);
    engine.replan(NOW, again("plugins: [{type: queue-scorer}]"));
    engine.cache_changed(b, &[1], &[]);
    assert!(!engine.wants_cache());
    engine.replan(NOW, again(PRECISE));
    assert_eq!(scores(&ask(&mut engine, 2, &chain([1])).unwrap()), [1.0, 1.0]);
}

#[test]
fn without_a_driver_that_tells_of_caches_nobody_is_asked_to() {
    let loaded = load(PRECISE, &SourceName::Flag, &LoadOptions::default()).unwrap();
    let engine = Engine::new(loaded.plan.engine, Seed(1), Box::new(NoProbe), Explain::All);

    assert!(!engine.wants_cache());
}

#[derive(Clone, Debug)]
enum Step {
    Submit(u8),
    Begin(usize),
    End(usize),
    Cancel(usize),
    Join(u8),
    Leave(u8),
    Report(u8, u32),
    Replan,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<u8>().prop_map(Step::Submit),
        1 => any::<usize>().prop_map(Step::Begin),
        2 => any::<usize>().prop_map(Step::End),
        1 => any::<usize>().prop_map(Step::Cancel),
        1 => (0_u8..5).prop_map(Step::Join),
        1 => (0_u8..5).prop_map(Step::Leave),
        1 => (0_u8..5, 0_u32..9).prop_map(|(e, w)| Step::Report(e, w)),
        1 => Just(Step::Replan),
    ]
}

proptest! {
    #[test]
    fn every_request_ends_once_and_bookings_add_up(steps in proptest::collection::vec(any_step(), 1..120)) {
        let mut engine = engine_with(&["e0", "e1"]);
        let mut live: Vec<RequestId> = Vec::new();
        let mut submitted = 0;

        for step in steps {
            let pick = |at: usize| live.get(at % live.len().max(1)).copied();
            match step {
                Step::Submit(n) => {
                    submitted += 1;
                    let request = prompt(&"z".repeat(usize::from(n) * 10));
                    if ask(&mut engine, submitted, &request).is_ok() {
                        live.push(RequestId(submitted));
                    }
                }
                Step::Begin(at) => {
                    pick(at).into_iter().for_each(|id| engine.progress(NOW, id, Progress::AnswerBegan));
                }
                Step::End(at) | Step::Cancel(at) => {
                    let Some(id) = pick(at) else { continue };
                    match step {
                        Step::End(_) => engine.progress(NOW, id, COMPLETED),
                        _ => engine.cancel(NOW, id),
                    }
                    live.retain(|&other| other != id);
                }
                Step::Join(n) => engine.pool_changed(NOW, vec![join(&format!("e{n}"))]),
                Step::Leave(n) => engine.pool_changed(NOW, vec![PoolChange::Remove(id_of(&format!("e{n}")))]),
                Step::Report(n, queue) => engine.pool_changed(NOW, vec![waiting(&format!("e{n}"), queue)]),
                Step::Replan => engine.replan(NOW, plan()),
            }
            prop_assert_eq!(engine.tally().submitted, engine.tally().ended() + engine.in_flight() as u64);
            prop_assert_eq!(engine.in_flight(), live.len());
            prop_assert_eq!(engine.tenants().total(), live.len() as u64);
            let booked: u32 = engine.pool().iter().map(|(_, member)| member.in_flight.requests).sum();
            prop_assert!(booked as usize <= live.len());
        }
        live.iter().for_each(|&id| engine.cancel(NOW, id));
        let idle = engine.pool().iter().all(|(_, member)| (member.in_flight.requests, member.in_flight.tokens) == (0, 0));
        prop_assert!(idle);
        prop_assert_eq!(engine.tally().submitted, engine.tally().ended());
    }

    /// Polls may be far behind what comes: nothing that was decided in the meantime may outlive its request.
    #[test]
    fn a_request_that_leaves_before_it_is_answered_takes_its_answer_along(
        steps in proptest::collection::vec((0_u8..8, any::<proptest::sample::Index>()), 1..120),
        config in proptest::sample::select(&["", "featureGates: [flowControl]\nflowControl: {maxRequests: 3}"][..]),
    ) {
        let mut engine = engine_of(config, &["e0", "e1"]);
        let (mut untold, mut live): (Vec<RequestId>, Vec<RequestId>) = (Vec::new(), Vec::new());
        let mut submitted = 0;

        for (step, index) in steps {
            match step {
                0..3 => {
                    submitted += 1;
                    untold.push(RequestId(submitted));
                    engine.submit(NOW, RequestId(submitted), prompt("some text"));
                }
                3 | 4 => {
                    let Some(effect) = engine.poll(NOW) else { continue };
                    let at = untold.iter().position(|&id| id == effect.id());
                    untold.remove(at.expect("only requests that wait for an answer have one"));
                    if let Effect::Route { id, .. } = effect {
                        live.push(id);
                    }
                }
                5 if !untold.is_empty() => engine.cancel(NOW, untold.remove(index.index(untold.len()))),
                6 if !live.is_empty() => engine.progress(NOW, live.remove(index.index(live.len())), COMPLETED),
                _ => {
                    let change = match index.index(3) {
                        0 => PoolChange::Remove(id_of("e0")),
                        1 => PoolChange::Remove(id_of("e1")),
                        _ => join("e0"),
                    };
                    engine.pool_changed(NOW, vec![change]);
                }
            }
        }
        untold.into_iter().for_each(|id| engine.cancel(NOW, id));
        prop_assert!(engine.poll(NOW).is_none());
        prop_assert_eq!((engine.in_flight(), engine.tenants().total()), (live.len(), live.len() as u64));
        live.into_iter().for_each(|id| engine.progress(NOW, id, COMPLETED));

        prop_assert_eq!((engine.tally().submitted, engine.tally().ended()), (submitted, submitted));
        let idle = engine.pool().iter().all(|(_, member)| (member.in_flight.requests, member.in_flight.tokens) == (0, 0));
        prop_assert!(idle);
    }

    /// Factors with which the weights stay whole numbers, so that rounding them does not change their ratios.
    #[test]
    fn weights_that_are_all_multiplied_by_the_same_give_the_same_decisions(
        weights in proptest::array::uniform3(1_u32..20),
        factor in 2_u32..1000,
        loads in proptest::collection::vec((0_u32..4, 0_u32..4, 0_u32..5), 1..9),
    ) {
        let decisions = |factor: u32| {
            let [queue, kv, running] = weights.map(|weight| weight * factor);
            let mut engine = engine_of(
                &format!(
                    "plugins: [{{type: queue-depth-scorer}}, {{type: kv-cache-utilization-scorer}}, \
                     {{type: running-requests-size-scorer}}]\n\
                     schedulingProfiles:\n\
                     - name: default\n\
                     \x20 plugins:\n\
                     \x20 - {{pluginRef: queue-depth-scorer, weight: {queue}}}\n\
                     \x20 - {{pluginRef: kv-cache-utilization-scorer, weight: {kv}}}\n\
                     \x20 - {{pluginRef: running-requests-size-scorer, weight: {running}}}\n",
                ),
                &[],
            );
            for (at, &(waiting, running, kv)) in loads.iter().enumerate() {
                let name = format!("e{at}");
                let report = SignalUpdate {
                    waiting: Some(waiting),
                    running: Some(running),
                    kv_usage: Some(f64::from(kv) / 5.0),
                    ..SignalUpdate::default()
                };
                engine.pool_changed(NOW, vec![join(&name), PoolChange::Report(id_of(&name), report)]);
            }
            let decide = |id| chosen(&ask(&mut engine, id, &prompt("x")).unwrap()).to_owned();
            (0..20).map(decide).collect::<Vec<_>>()
        };

        prop_assert_eq!(decisions(1), decisions(factor));
    }

    #[test]
    fn equal_calls_and_seeds_give_equal_decisions(texts in proptest::collection::vec(0_usize..2000, 1..30)) {
        let run = || {
            let mut engine = engine_with(&["a", "b", "c", "d"]);
            let mut picks = Vec::new();
            for (id, length) in (0..).zip(&texts) {
                let decision = ask(&mut engine, id, &prompt(&"q".repeat(*length))).unwrap();
                picks.push(chosen(&decision).to_owned());
            }
            picks
        };

        prop_assert_eq!(run(), run());
    }
}

#[test]
fn the_engine_changes_in_no_way_that_a_recorder_is_not_told_of() {
    let (public, ends) = ("pub fn ", '(');
    let text = include_str!("../engine.rs").split("\nimpl Engine {").nth(1).unwrap();
    let functions = text.split("\n    }\n").filter_map(|function| {
        let (signature, body) = function.split_once(public)?.1.split_once('{')?;
        signature
            .contains("&mut self")
            .then(|| (signature.split(ends).next().unwrap(), body))
    });
    let ways: BTreeMap<_, _> = functions.collect();

    let is_told = |body: &str| body.contains("self.record(now, ");
    let names = |told| {
        let ways = ways.iter().filter(move |(_, body)| is_told(body) == told);
        ways.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    assert_eq!(names(true), ["apply", "poll", "replan"]);
    // No decision depends on what these change.
    assert_eq!(names(false), ["next_health_change", "record_with"]);
}

#[test]
fn a_decision_allocates_as_much_among_a_thousand_endpoints_as_among_ten() {
    let allocated = |endpoints: u32| {
        let names: Vec<String> = (0..endpoints).map(|number| format!("e{number:03}")).collect();
        let mut engine = Engine::new(plan(), Seed(1), Box::new(NoProbe), Explain::default());
        engine.pool_changed(NOW, names.iter().map(|name| join(name)).collect());
        let request = prompt(&"shared ".repeat(200));
        let mut decide = |id: u64| {
            let decision = ask(&mut engine, id, &request);
            engine.progress(NOW, RequestId(id), COMPLETED);
            decision
        };
        // The buffers have grown after a few.
        (0..8).for_each(|id| drop(decide(id)));

        let info = allocation_counter::measure(|| (8..16).for_each(|id| drop(decide(id))));
        (info.count_total, info.bytes_total)
    };

    assert_eq!(allocated(1000), allocated(10));
}
