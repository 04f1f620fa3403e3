use std::sync::Arc;

use futures_util::FutureExt;

use super::*;
use crate::engine::admission::{Admission, AdmissionPolicy, View};
use crate::engine::config::{LoadOptions, SourceName, load};
use crate::engine::flow::active::ActiveFlows;
use crate::engine::flow::fairness::{FairnessPolicy, FlowOrder, FlowRef, Used};
use crate::engine::outcome::Refusal;
use crate::engine::pool::{Endpoint, EndpointId};
use crate::engine::request::Kind;
use crate::engine::scheduling::{Explain, NoProbe};
use crate::engine::seed::Seed;

pub(super) fn plan_of(config: &str) -> EnginePlan {
    let loaded = load(config, &SourceName::Flag, &LoadOptions::default());
    loaded.unwrap_or_else(|errors| panic!("{errors}")).plan.engine
}

pub(super) fn driver_of(config: &str, endpoints: u16) -> Driver {
    driver_with(plan_of(config), endpoints)
}

fn driver_with(plan: EnginePlan, endpoints: u16) -> Driver {
    let engine = Engine::new(plan, Seed(1), Box::new(NoProbe), Explain::All);
    let driver = Driver::new(engine, Clock::new());
    driver.pool_changed((0..endpoints).map(join).collect());
    driver
}

fn driver(endpoints: u16) -> Driver {
    driver_of("", endpoints)
}

pub(super) fn join(n: u16) -> PoolChange {
    let name = format!("e{n}");
    PoolChange::Upsert(Arc::new(Endpoint {
        id: EndpointId::new("default", &name),
        name: name.into(),
        address: [127, 0, 0, 1].into(),
        port: 8000 + n,
        labels: std::collections::BTreeMap::new(),
        rank: 0,
    }))
}

fn in_flight(driver: &Driver) -> (usize, u32) {
    driver.inspect(|engine| {
        let booked = engine.pool().iter().map(|(_, member)| member.in_flight.requests);
        (engine.in_flight(), booked.sum())
    })
}

pub(super) fn request() -> Request {
    Request::unknown(Kind::Inference)
}

async fn routed(driver: &Driver) -> InFlight {
    routed_for(driver, request()).await
}

async fn routed_for(driver: &Driver, request: Request) -> InFlight {
    match driver.submit(request).await {
        Verdict::Routed(routed) => routed,
        Verdict::Refused(refused) => panic!("refused: {}", refused.refusal.name()),
    }
}

#[tokio::test]
async fn a_routed_request_is_in_flight_until_it_says_that_it_ended() {
    let driver = driver(2);
    let mut routed = routed(&driver).await;
    routed.answer_began();

    assert_eq!(in_flight(&driver), (1, 1));
    routed.end(Outcome::Completed, Used::default());
    assert_eq!(in_flight(&driver), (0, 0));
    assert_eq!(driver.inspect(|engine| engine.tally().ended_in(Outcome::Completed)), 1);
}

#[tokio::test]
async fn a_request_that_is_dropped_in_flight_counts_as_disconnected() {
    let driver = driver(1);
    drop(routed(&driver).await);

    assert_eq!(in_flight(&driver), (0, 0));
    assert_eq!(
        driver.inspect(|engine| engine.tally().ended_in(Outcome::Disconnected)),
        1
    );
}

#[tokio::test]
async fn a_ticket_that_is_dropped_unread_holds_nothing() {
    let driver = driver(1);
    drop(driver.submit(request()));

    assert_eq!(in_flight(&driver), (0, 0));
    assert_eq!(driver.inspect(|engine| engine.tally().ended()), 1);
}

#[tokio::test]
async fn a_refusal_comes_back_as_such() {
    let driver = driver(0);

    let verdict = driver.submit(request()).await;

    let Verdict::Refused(refused) = verdict else {
        panic!("routed")
    };
    assert_eq!(refused.refusal, Refusal::NoEndpoints);
}

/// Panics about some tenants.
#[derive(Debug)]
struct Faulty;

impl AdmissionPolicy for Faulty {
    fn admit(&mut self, _: Timestamp, request: &Request, _: View<'_>) -> Admission {
        assert_ne!(&*request.fairness_id, "fails at admission");
        Admission::Admit
    }
}

impl FairnessPolicy for Faulty {
    fn order(&self) -> FlowOrder {
        FlowOrder::ByHead
    }

    fn pick(&mut self, _: Timestamp, _: Option<&Arc<str>>, flows: &ActiveFlows) -> FlowRef {
        flows.first().unwrap()
    }

    fn released(&mut self, _: Timestamp, flow: &Arc<str>, _: Duration) {
        assert_ne!(&**flow, "fails at release");
    }

    fn ended(&mut self, _: Timestamp, flow: &Arc<str>, _: Used) {
        assert_ne!(&**flow, "fails at the end");
    }
}

#[tokio::test]
async fn a_plugin_that_panics_fails_the_request_at_hand_and_leaves_the_accounts_right() {
    let mut plan = plan_of("featureGates: [flowControl]");
    plan.admission.plugin = Box::new(Faulty);
    let fairness = &mut plan.flow.as_mut().unwrap().fairness;
    fairness.iter_mut().for_each(|named| named.plugin = Box::new(Faulty));
    let driver = driver_with(plan, 1);
    let of = |tenant: &str| Request {
        fairness_id: tenant.into(),
        prompt_tokens: 9,
        ..request()
    };

    let stays = routed_for(&driver, of("good")).await;
    for tenant in ["fails at admission", "fails at release"] {
        match driver.submit(of(tenant)).await {
            Verdict::Refused(refused) => assert_eq!(refused.refusal, Refusal::Internal),
            Verdict::Routed(_) => panic!("{tenant}: routed"),
        }
    }
    routed_for(&driver, of("fails at the end"))
        .await
        .end(Outcome::Completed, Used::default());
    drop(routed_for(&driver, of("fails at the end")).await);
    assert_eq!(in_flight(&driver), (1, 1));
    stays.end(Outcome::Completed, Used::default());

    assert_eq!(driver.panics().caught(), 4);
    assert_eq!(in_flight(&driver), (0, 0));
    let ended = |outcome| driver.inspect(|engine| engine.tally().ended_in(outcome));
    assert_eq!(ended(Outcome::Refused(Refusal::Internal)), 2);
    assert_eq!((ended(Outcome::Completed), ended(Outcome::Disconnected)), (2, 1));
    assert_eq!(driver.inspect(|engine| engine.tally().submitted), 5);
}

#[tokio::test]
async fn a_ticket_that_was_read_has_nothing_more_to_say() {
    let driver = driver(0);
    let mut ticket = driver.submit(request());

    assert!((&mut ticket).now_or_never().is_some());
    assert!(ticket.now_or_never().is_none());
}

#[tokio::test]
async fn the_number_of_endpoints_is_told_when_it_changes() {
    let driver = driver(1);
    let mut endpoints = driver.endpoints();
    endpoints.mark_unchanged();
    driver.pool_changed(vec![join(0)]);
    assert!(!endpoints.has_changed().unwrap());
    driver.pool_changed(vec![join(1)]);

    assert!(endpoints.has_changed().unwrap());
    assert_eq!(*endpoints.borrow(), 2);
}

#[tokio::test]
async fn requests_of_many_threads_are_each_answered_once() {
    let driver = driver(4);
    let asking = |driver: Driver| {
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                for _ in 0..500 {
                    routed(&driver).await.end(Outcome::Completed, Used::default());
                }
            });
        }
    };
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(asking(driver.clone()))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    assert_eq!(in_flight(&driver), (0, 0));
    assert_eq!(
        driver.inspect(|engine| engine.tally().ended_in(Outcome::Completed)),
        2000
    );
}

#[tokio::test]
async fn a_request_that_is_withdrawn_from_the_queue_says_what_it_was() {
    let driver = driver_of("{featureGates: [flowControl]}", 0);
    driver.objectives_changed([("urgent".into(), 7)].into());
    let ticket = driver.submit(Request {
        objective: Some("urgent".into()),
        ..request()
    });
    assert_eq!(driver.inspect(Engine::waiting), 1);

    let withdrawn = driver.withdraw(ticket).unwrap();

    assert_eq!(withdrawn.priority, 7);
    assert_eq!(driver.inspect(Engine::waiting), 0);
}
