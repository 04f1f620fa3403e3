//! Pools in which something is wrong with an endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::super::config::{LoadOptions, SourceName, load};
use super::super::super::outcome::Refusal;
use super::super::super::pool::health::{EndpointState, Scrape, ScrapeFailure};
use super::super::super::pool::{Endpoint, EndpointId, PoolChange, SignalUpdate};
use super::super::super::prefix::{BlockHasher, BlockLayout};
use super::super::super::request::Kind;
use super::super::super::scheduling::{Decision, Explain, ExtensionPoint, NoProbe, PluginName, Probe};
use super::super::super::seed::Seed;
use super::super::{Effect, Input, Progress};
use super::*;
use crate::engine::flow::fairness::Used;

/// Endpoints `a`, `b`, ... with the ports 8000, 8001, ..., and a clock.
struct World {
    engine: Engine,
    now: Timestamp,
    last_id: u64,
}

const FLOW: &str = "featureGates: [flowControl]\nplugins: [{type: queue-scorer}]\n";
const CONCURRENCY: &str = "featureGates: [flowControl]\n\
    plugins: [{type: queue-scorer}, {type: concurrency-detector, parameters: {maxConcurrency: 2}}]\n\
    flowControl: {saturationDetector: {pluginRef: concurrency-detector}}\n";
const LIST: &str = "plugins: [{type: prefix-cache-scorer}, {type: max-score-picker, parameters: {maxNumOfEndpoints: 3, ties: first}}]\n";

fn id_of(name: char) -> EndpointId {
    EndpointId::new("default", &name.to_string())
}

fn socket(name: char) -> SocketAddr {
    let port = 8000 + (u32::from(name) - u32::from('a'));
    SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).unwrap()))
}

fn joins(name: char) -> PoolChange {
    PoolChange::Upsert(Arc::new(Endpoint {
        id: id_of(name),
        name: name.to_string().into(),
        address: socket(name).ip(),
        port: socket(name).port(),
        labels: BTreeMap::new(),
        rank: 0,
    }))
}

fn prompt(text: &str) -> Request {
    let mut hasher = BlockHasher::new("m", "", BlockLayout::default());
    hasher.text(text.as_bytes());
    hasher.end_prompt();
    let (prompt_tokens, prompt_blocks) = hasher.finish();
    Request {
        prompt_tokens,
        prompt_blocks,
        size_bytes: text.len() as u64,
        ..Request::unknown(Kind::Inference)
    }
}

impl World {
    /// All endpoints of `names` were scraped.
    fn new(config: &str, names: &str) -> Self {
        Self::watched(config, names, Box::new(NoProbe))
    }

    /// The same, and `probe` sees what plugins do.
    fn watched(config: &str, names: &str, probe: Box<dyn Probe>) -> Self {
        let plan = load(config, &SourceName::Flag, &LoadOptions::default()).unwrap().plan;
        let mut world = Self {
            engine: Engine::new(plan.engine, Seed(1), probe, Explain::All),
            now: Timestamp::ZERO,
            last_id: 0,
        };
        world.change(names.chars().map(joins).collect());
        names.chars().for_each(|name| world.reports(name));
        world
    }

    fn change(&mut self, changes: Vec<PoolChange>) {
        self.engine.apply(self.now, Input::PoolChanged { changes });
    }

    fn reports(&mut self, name: char) {
        let update = SignalUpdate {
            at: self.now,
            waiting: Some(0),
            kv_usage: Some(0.0),
            ..SignalUpdate::default()
        };
        let id = id_of(name);
        self.change(vec![
            PoolChange::Report(id.clone(), update),
            PoolChange::Scrape(id, Scrape::Succeeded),
        ]);
    }

    fn cannot_be_scraped(&mut self, name: char, failure: ScrapeFailure) {
        let began = self.now;
        self.change(vec![PoolChange::Scrape(id_of(name), Scrape::Failed { failure, began })]);
    }

    fn passes(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    fn submit(&mut self, request: &Request) -> RequestId {
        self.last_id += 1;
        let id = RequestId(self.last_id);
        let request = request.clone();
        self.engine.apply(self.now, Input::Submit { id, request });
        id
    }

    /// The next decision, if a request may go.
    fn routed(&mut self) -> Option<(RequestId, Decision)> {
        match self.engine.poll(self.now)? {
            Effect::Route { id, decision, .. } => Some((id, decision)),
            other => panic!("not routed: {other:?}"),
        }
    }

    /// Sends a request, and says where it went.
    fn ask(&mut self, request: &Request) -> (RequestId, char) {
        let (id, list) = self.ask_for_all(request);
        (id, list.chars().next().unwrap())
    }

    /// Sends a request, and says which endpoints the gateway is given.
    fn ask_for_all(&mut self, request: &Request) -> (RequestId, String) {
        self.submit(request);
        let (id, decision) = self.routed().expect("there is room");
        (id, decision.endpoints.iter().map(|endpoint| &*endpoint.name).collect())
    }

    fn progress(&mut self, id: RequestId, progress: Progress) {
        self.engine.apply(self.now, Input::Progress { id, progress });
    }

    fn answered(&mut self, id: RequestId, by: Option<char>, how: Answered) {
        let by = by.map(socket);
        self.progress(id, Progress::Answered { by, how });
    }

    fn ends(&mut self, id: RequestId, outcome: Outcome) {
        self.progress(id, Progress::Ended(outcome, Used::default()));
    }

    fn served(&mut self, id: RequestId) {
        self.progress(id, Progress::AnswerBegan);
        self.ends(id, Outcome::Completed);
    }

    fn fails(&mut self, id: RequestId) {
        self.answered(id, None, Answered::Failed(RequestFailure::Connect));
        self.ends(id, Outcome::UpstreamError);
    }

    fn state(&self, name: char) -> EndpointState {
        let pool = self.engine.pool();
        pool[pool.slot(&id_of(name)).unwrap()].health.state()
    }

    fn in_flight(&self, name: char) -> u32 {
        let pool = self.engine.pool();
        pool[pool.slot(&id_of(name)).unwrap()].in_flight.requests
    }

    /// Where twenty requests go.
    fn picks(&mut self, request: &Request) -> BTreeSet<char> {
        let pick = |_| {
            let (id, name) = self.ask(request);
            self.served(id);
            name
        };
        (0..20).map(pick).collect()
    }
}

fn set(names: &str) -> BTreeSet<char> {
    names.chars().collect()
}

#[test]
fn an_endpoint_that_cannot_be_reached_gets_nothing_however_idle_it_last_was() {
    let mut world = World::new("", "abc");
    world.cannot_be_scraped('a', ScrapeFailure::Refused);

    assert!(!world.picks(&prompt("hello")).contains(&'a'));
    // What was sent there does not count any more once a report shows that it is over.
    "bc".chars().for_each(|name| world.reports(name));
    assert_eq!(world.picks(&Request::unknown(Kind::Bodiless)), set("bc"));
    world.reports('a');
    assert_eq!(world.picks(&Request::unknown(Kind::Bodiless)), set("abc"));
}

#[test]
fn if_no_endpoint_can_be_reached_each_is_as_good_as_another() {
    let mut world = World::new("", "ab");
    world.cannot_be_scraped('a', ScrapeFailure::Refused);
    world.cannot_be_scraped('b', ScrapeFailure::Refused);

    assert_eq!(world.picks(&Request::unknown(Kind::Bodiless)), set("ab"));
}

#[test]
fn a_gateway_that_allows_only_what_cannot_be_reached_gets_that() {
    let mut world = World::new("", "ab");
    world.cannot_be_scraped('a', ScrapeFailure::Refused);
    let only_a = Request {
        subset: super::super::super::request::Subset::Only(vec![super::super::super::request::SubsetEntry::Socket(
            socket('a'),
        )]),
        ..prompt("hello")
    };

    assert_eq!(world.picks(&only_a), set("a"));
}

#[test]
fn a_newcomer_is_used_once_its_metrics_were_read_and_at_once_where_nobodys_were() {
    let mut world = World::new("", "ab");
    world.change(vec![joins('c')]);
    assert_eq!(world.picks(&Request::unknown(Kind::Bodiless)), set("ab"));
    world.reports('c');
    assert_eq!(world.picks(&Request::unknown(Kind::Bodiless)), set("abc"));

    let mut unscraped = World::new("", "");
    unscraped.change(vec![joins('a'), joins('b')]);
    unscraped.cannot_be_scraped('a', ScrapeFailure::Timeout);
    let picks = unscraped.picks(&Request::unknown(Kind::Bodiless));
    assert_eq!(
        picks,
        set("ab"),
        "one that answered is not preferred to one that was not asked"
    );
}

#[test]
fn the_list_names_endpoints_that_can_be_used() {
    let mut world = World::new(LIST, "abcd");
    world.cannot_be_scraped('b', ScrapeFailure::Refused);

    assert_eq!(world.ask_for_all(&prompt("hello")).1, "acd");
}

#[test]
fn full_endpoints_do_not_make_one_usable_that_cannot_be_reached() {
    let config = "plugins: [{type: concurrency-detector, parameters: {maxConcurrency: 1}}, {type: queue-scorer}]\n\
                  schedulingProfiles: [{name: p, plugins: [{pluginRef: concurrency-detector}, {pluginRef: queue-scorer}]}]";
    let mut world = World::new(config, "ab");
    world.cannot_be_scraped('a', ScrapeFailure::Refused);
    assert_eq!(world.ask(&prompt("one")).1, 'b');

    world.submit(&prompt("two"));

    match world.engine.poll(world.now) {
        Some(Effect::Refuse { refused, .. }) => assert_eq!(refused.refusal, Refusal::FilteredOut),
        other => panic!("{other:?}"),
    }
}

fn with_role(name: char, role: &str) -> PoolChange {
    let PoolChange::Upsert(endpoint) = joins(name) else {
        unreachable!()
    };
    let labels = [(Endpoint::ROLE_LABEL.to_owned(), role.to_owned())].into();
    PoolChange::Upsert(Arc::new(Endpoint {
        labels,
        ..(*endpoint).clone()
    }))
}

#[test]
fn filters_work_once_in_a_decision_whether_or_not_an_endpoint_can_be_used() {
    let config = "plugins: [{type: concurrency-detector, parameters: {maxConcurrency: 9}}, {type: decode-filter}, \
                  {type: queue-scorer}]\n\
                  schedulingProfiles: [{name: p, plugins: [{pluginRef: concurrency-detector}, \
                  {pluginRef: decode-filter}, {pluginRef: queue-scorer}]}]";
    let filters = FilterCount::default();
    let mut world = World::watched(config, "", Box::new(filters.clone()));
    world.change(vec![
        with_role('a', "decode"),
        with_role('b', "prefill"),
        with_role('c', "decode"),
    ]);
    "abc".chars().for_each(|name| world.reports(name));
    let shown = |world: &mut World| {
        let id = world.submit(&prompt("hello"));
        let (_, decision) = world.routed().expect("there is room");
        world.ends(id, Outcome::Completed);
        let kept = decision.why.filters.iter().map(|(_, kept)| *kept);
        kept.collect::<Vec<_>>()
    };

    assert_eq!((shown(&mut world), filters.take()), (vec![3, 2], 2));
    world.cannot_be_scraped('c', ScrapeFailure::Refused);
    assert_eq!((shown(&mut world), filters.take()), (vec![2, 1], 2));
    world.cannot_be_scraped('a', ScrapeFailure::Refused);
    // Whoever can decode cannot be reached, so it is among these that the choice is, and `b` is no worse than they are.
    assert_eq!((shown(&mut world), filters.take()), (vec![3, 2], 2));
}

/// Counts how often filters work.
#[derive(Clone, Debug, Default)]
struct FilterCount(Arc<AtomicUsize>);

impl FilterCount {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Probe for FilterCount {
    fn enqueue_begins(&mut self) {}
    fn enqueue_ended(&mut self, _: &Arc<str>, _: i32, _: Option<Refusal>) {}
    fn revocation_confirmed(&mut self, _: Duration) {}
    fn dispatch_begins(&mut self) {}
    fn dispatch_ended(&mut self) {}
    fn cycle_begins(&mut self) {}
    fn cycle_ended(&mut self) {}
    fn begins(&mut self) {}
    fn ended(&mut self, point: ExtensionPoint, _: &PluginName) {
        self.0
            .fetch_add(usize::from(point == ExtensionPoint::Filter), Ordering::Relaxed);
    }
}

#[test]
fn endpoints_are_compared_with_those_of_their_role() {
    let config = "plugins: [{type: decode-filter}, {type: queue-scorer}]";
    let mut world = World::new(config, "");
    world.change(vec![
        with_role('a', "prefill"),
        with_role('b', "decode"),
        with_role('c', "decode"),
    ]);
    world.reports('a');

    // That `a` can be scraped does not help: it cannot decode.
    assert_eq!(world.picks(&prompt("hello")), set("bc"));
    world.reports('c');
    assert_eq!(world.picks(&prompt("hello")), set("c"));
}

#[test]
fn an_endpoint_whose_requests_fail_is_ejected_though_it_can_be_scraped_and_is_tried_again_later() {
    let mut world = World::new("", "ab");
    let mut failed = 0;
    while world.state('a') != EndpointState::Ejected {
        let (id, name) = world.ask(&Request::unknown(Kind::Bodiless));
        match name {
            'a' => {
                failed += 1;
                world.fails(id);
            }
            _ => world.served(id),
        }
        world.reports('a');
    }
    assert_eq!(failed, 5);
    assert_eq!(world.picks(&Request::unknown(Kind::Bodiless)), set("b"));

    world.passes(30);
    let mut tries = Vec::new();
    for _ in 0..20 {
        let (id, name) = world.ask(&Request::unknown(Kind::Bodiless));
        match name {
            'a' => tries.push(id),
            _ => world.served(id),
        }
    }
    assert_eq!(tries.len(), 1, "one request at a time tries it");
    world.served(tries[0]);

    assert_eq!(world.state('a'), EndpointState::Healthy);
    assert_eq!(world.picks(&Request::unknown(Kind::Bodiless)), set("ab"));
}

#[test]
fn refusals_of_the_server_are_no_failures() {
    let mut world = World::new("", "ab");
    for _ in 0..50 {
        let (id, _) = world.ask(&prompt("hello"));
        world.answered(id, None, Answered::Rejected);
        world.ends(id, Outcome::Completed);
        let (id, _) = world.ask(&prompt("hello"));
        world.answered(id, None, Answered::ByGateway);
        world.ends(id, Outcome::UpstreamError);
        let (id, _) = world.ask(&prompt("hello"));
        world.answered(id, None, Answered::Overloaded);
        world.ends(id, Outcome::UpstreamError);
    }

    assert_eq!(['a', 'b'].map(|name| world.state(name)), [EndpointState::Healthy; 2]);
}

#[test]
fn no_more_than_half_of_the_pool_is_ejected() {
    let mut world = World::new("", "abcd");
    for _ in 0..200 {
        let (id, _) = world.ask(&Request::unknown(Kind::Bodiless));
        world.fails(id);
    }

    let ejected = "abcd"
        .chars()
        .filter(|&name| world.state(name) == EndpointState::Ejected);
    assert_eq!(ejected.count(), 2);
}

#[test]
fn the_prefix_of_a_request_that_failed_is_not_remembered() {
    let mut world = World::new("", "ab");
    let long = prompt(&"x".repeat(4096));
    for how in [Answered::Failed(RequestFailure::Connect), Answered::Rejected] {
        let (id, _) = world.ask(&long);
        assert!(world.engine.prefix_blocks().any(|(_, blocks)| blocks > 0));
        world.answered(id, None, how);
        assert!(world.engine.prefix_blocks().all(|(_, blocks)| blocks == 0), "{how:?}");
        world.ends(id, Outcome::UpstreamError);
    }
    let (id, _) = world.ask(&long);
    world.served(id);
    assert!(world.engine.prefix_blocks().any(|(_, blocks)| blocks > 0));
}

#[test]
fn a_process_that_ended_has_lost_its_cache_and_one_that_hangs_has_not() {
    let mut world = World::new("", "a");
    let long = prompt(&"x".repeat(4096));
    let (id, _) = world.ask(&long);
    world.served(id);

    world.cannot_be_scraped('a', ScrapeFailure::Timeout);
    assert!(world.engine.prefix_blocks().any(|(_, blocks)| blocks > 0));
    world.cannot_be_scraped('a', ScrapeFailure::Refused);

    assert!(world.engine.prefix_blocks().all(|(_, blocks)| blocks == 0));
}

#[test]
fn books_and_prefixes_follow_the_endpoint_that_served() {
    let mut world = World::new(LIST, "abc");
    let long = prompt(&"x".repeat(4096));
    let (id, list) = world.ask_for_all(&long);
    assert_eq!((&*list, world.in_flight('a')), ("abc", 1));

    world.answered(id, Some('b'), Answered::Served);

    assert_eq!((world.in_flight('a'), world.in_flight('b')), (0, 1));
    let (next, list) = world.ask_for_all(&long);
    assert_eq!(list, "bac", "the prompt is cached where it was served");
    world.served(next);
    world.ends(id, Outcome::Completed);
    assert_eq!(world.in_flight('b'), 0);
}

#[test]
fn an_endpoint_that_the_gateway_passes_over_has_failed() {
    let mut world = World::new(LIST, "ab");
    for number in 0..5 {
        let (id, list) = world.ask_for_all(&prompt(&format!("question {number}")));
        assert_eq!(list, "ab");
        world.answered(id, Some('b'), Answered::Served);
        world.ends(id, Outcome::Completed);
    }

    assert_eq!(world.state('a'), EndpointState::Ejected);
    assert_eq!(world.ask_for_all(&prompt("another")).1, "b");
}

#[test]
fn a_request_that_was_served_by_nobody_that_is_known_is_no_load() {
    let mut world = World::new(LIST, "ab");
    let (id, _) = world.ask(&prompt("hello"));

    world.answered(id, Some('z'), Answered::Served);

    assert_eq!((world.in_flight('a'), world.in_flight('b')), (0, 0));
    world.ends(id, Outcome::Completed);
}

#[test]
fn a_request_that_comes_again_goes_elsewhere_and_its_endpoint_has_failed() {
    let mut world = World::new("", "ab");
    let request = Request {
        external_id: Some(7),
        ..prompt(&"x".repeat(4096))
    };
    let (first, before) = world.ask(&request);
    world.ends(first, Outcome::Disconnected);

    let (second, after) = world.ask(&request);

    assert_ne!(before, after);
    let failures = |world: &World| {
        world
            .engine
            .pool()
            .request_failures()
            .find(|(name, _)| *name == "retried")
            .unwrap()
            .1
    };
    assert_eq!(failures(&world), 1);
    world.served(second);
    // Another request of the same prompt goes where it was served.
    let (_, third) = world.ask(&prompt(&"x".repeat(4096)));
    assert_eq!(third, after);
    assert_eq!(failures(&world), 1);
}

#[test]
fn one_that_comes_again_while_the_first_is_under_way_goes_elsewhere_and_nothing_has_failed() {
    let mut world = World::new("", "ab");
    let request = Request {
        external_id: Some(7),
        ..prompt("hello")
    };
    let (_, first) = world.ask(&request);
    let (_, second) = world.ask(&request);

    assert_ne!(first, second);
    assert!(world.engine.pool().request_failures().all(|(_, count)| count == 0));
}

#[test]
fn clients_that_give_up_speak_against_an_endpoint_that_answered_nobody_all_the_while() {
    let mut world = World::new("", "ab");
    let given_up = |world: &mut World, answers: bool| {
        for _ in 0..20 {
            let (id, _) = world.ask(&Request::unknown(Kind::Bodiless));
            world.passes(6);
            if answers {
                for name in ['a', 'b'] {
                    let slot = world.engine.pool().slot(&id_of(name)).unwrap();
                    let now = world.now;
                    world.engine.pool.answered(now, slot, now);
                }
            }
            world.ends(id, Outcome::Disconnected);
        }
        ['a', 'b'].map(|name| world.state(name) == EndpointState::Ejected)
    };

    assert_eq!(given_up(&mut world, true), [false, false]);
    assert_eq!(
        given_up(&mut world, false)
            .into_iter()
            .filter(|ejected| *ejected)
            .count(),
        1
    );
}

#[test]
fn while_no_endpoint_can_be_reached_requests_wait_and_go_as_soon_as_one_can() {
    for config in [FLOW, CONCURRENCY] {
        for failure in [ScrapeFailure::Refused, ScrapeFailure::Timeout] {
            let mut world = World::new(config, "ab");
            world.passes(1);
            world.cannot_be_scraped('a', failure);
            world.cannot_be_scraped('b', failure);

            for _ in 0..100 {
                world.submit(&prompt("hello"));
            }
            assert!(world.routed().is_none(), "{failure:?}");
            world.passes(20);
            assert!(world.routed().is_none(), "{failure:?}");
            world.reports('b');

            let (_, decision) = world.routed().expect("there is room again");
            assert_eq!(&*decision.endpoints[0].name, "b");
        }
    }
}

#[test]
fn an_endpoint_that_gets_nothing_does_not_leave_its_room_to_the_others() {
    let mut world = World::new(CONCURRENCY, "ab");
    world.cannot_be_scraped('a', ScrapeFailure::Refused);
    for _ in 0..10 {
        world.submit(&prompt("hello"));
    }

    let mut routed = Vec::new();
    while let Some((_, decision)) = world.routed() {
        routed.push(decision.endpoints[0].name.to_string());
    }

    assert_eq!(routed, ["b", "b"]);
    assert!((world.engine.saturation(world.now).effective - 1.0).abs() < 1e-9);
}

#[test]
fn a_pool_that_only_scraping_cannot_reach_any_more_is_tried_after_a_while_and_goes_on() {
    let mut world = World::new(FLOW, "a");
    world.passes(1);
    world.cannot_be_scraped('a', ScrapeFailure::Timeout);
    for _ in 0..10 {
        world.submit(&prompt("hello"));
    }
    assert!(world.routed().is_none());
    let due = world.now + Duration::from_secs(30);
    assert_eq!(world.engine.deadline(), Some(due));

    world.now = due;
    let (id, _) = world.routed().expect("one may try");
    assert!(world.routed().is_none(), "one at a time");
    world.served(id);

    let released = std::iter::from_fn(|| world.routed()).count();
    assert_eq!(released, 5, "as many as a pool gets that cannot be scraped");
}

#[test]
fn changes_are_told_once_and_in_order() {
    let mut world = World::new("", "a");
    world.passes(1);
    world.cannot_be_scraped('a', ScrapeFailure::Refused);
    world.cannot_be_scraped('a', ScrapeFailure::Refused);
    world.passes(2);
    world.reports('a');

    let told: Vec<_> = std::iter::from_fn(|| world.engine.next_health_change())
        .map(|change| (change.from.name(), change.to.name(), change.lasted.as_secs()))
        .collect();
    assert_eq!(
        told,
        [
            ("unscraped", "healthy", 0),
            ("healthy", "unreachable", 1),
            ("unreachable", "healthy", 2)
        ]
    );
}

#[test]
fn an_endpoint_with_another_address_is_another_process() {
    let mut world = World::new("", "a");
    let long = prompt(&"x".repeat(4096));
    let (id, _) = world.ask(&long);
    world.served(id);
    world.cannot_be_scraped('a', ScrapeFailure::Timeout);
    let PoolChange::Upsert(endpoint) = joins('a') else {
        unreachable!()
    };

    world.change(vec![PoolChange::Upsert(Arc::new(Endpoint {
        port: 9999,
        ..(*endpoint).clone()
    }))]);

    assert_eq!(world.state('a'), EndpointState::Unscraped);
    assert!(world.engine.prefix_blocks().all(|(_, blocks)| blocks == 0));
}
