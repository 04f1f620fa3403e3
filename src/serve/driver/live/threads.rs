//! The driver under many threads at once: whatever is cancelled in between, each request has one outcome, and nothing
//! is left behind.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use futures_util::FutureExt;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::tests::{driver_of, join, plan_of, request};
use super::*;
use crate::engine::outcome::Outcome;
use crate::engine::pool::EndpointId;

const THREADS: usize = 4;

/// Flow control with little room, in which requests do not wait for long, whether or not there are endpoints.
const IMPATIENT: &str = "
featureGates: [flowControl]
plugins:
- {type: concurrency-detector, parameters: {maxConcurrency: 2}}
- {type: round-robin-fairness-policy}
flowControl:
  saturationDetector: {pluginRef: concurrency-detector}
  defaultRequestTTL: 3ms
  noEndpointRequestTTL: 2ms
  maxRequests: 300
  shedWhenFull: true
  defaultNegativePriorityBand: {fairnessPolicyRef: round-robin-fairness-policy}
";

/// Flow control in which requests wait for ever.
const PATIENT: &str = "
featureGates: [flowControl]
flowControl: {defaultRequestTTL: 0s, noEndpointRequestTTL: 0s}
";

/// As [`PATIENT`], but nobody waits longer than a millisecond for the first endpoint.
const BRIEF: &str = "
featureGates: [flowControl]
flowControl: {defaultRequestTTL: 0s, noEndpointRequestTTL: 1ms}
";

fn leave(n: u16) -> PoolChange {
    PoolChange::Remove(EndpointId::new("default", &format!("e{n}")))
}

fn shuffle<T>(items: &mut [T], chance: &mut ChaCha8Rng) {
    for at in (1..items.len()).rev() {
        items.swap(at, chance.random_range(0..=at));
    }
}

/// Each request that was submitted has ended, once, and nothing is held for any of them.
fn is_conserved(driver: &Driver, submitted: u64) {
    driver.inspect(|engine| {
        let ended: u64 = Outcome::all().map(|outcome| engine.tally().ended_in(outcome)).sum();
        assert_eq!((engine.tally().submitted, ended), (submitted, submitted));
        assert_eq!((engine.waiting(), engine.in_flight()), (0, 0));
        assert_eq!(engine.tenants().total(), 0);
        for (_, member) in engine.pool().iter() {
            assert_eq!((member.in_flight.requests, member.in_flight.tokens), (0, 0));
        }
    });
    let state = driver.shared.state.lock();
    assert_eq!((state.waiting.len(), state.cuts.len()), (0, 0));
}

/// Thousands wait, `end` ends all of their waits at once, and the clients leave in random order while that is told.
fn clients_leave_while(config: &str, seed: u64, end: impl FnOnce(&Driver)) {
    const EACH: usize = 1000;
    let driver = driver_of(config, 0);
    let barrier = Arc::new(Barrier::new(THREADS + 1));
    let client = |n: u64| {
        let (driver, barrier) = (driver.clone(), Arc::clone(&barrier));
        move || {
            let mut chance = ChaCha8Rng::seed_from_u64(seed * 1000 + n);
            let mut tickets: Vec<Ticket> = (0..EACH).map(|_| driver.submit(request())).collect();
            tickets.iter_mut().for_each(|ticket| drop(ticket.now_or_never()));
            shuffle(&mut tickets, &mut chance);
            barrier.wait();
            tickets.into_iter().for_each(drop);
        }
    };
    let clients: Vec<_> = (0..THREADS as u64).map(|n| thread::spawn(client(n))).collect();

    barrier.wait();
    end(&driver);
    clients.into_iter().for_each(|client| client.join().unwrap());

    is_conserved(&driver, (THREADS * EACH) as u64);
}

#[test]
fn clients_may_leave_while_a_service_that_ends_answers_thousands() {
    (0..2).for_each(|seed| clients_leave_while(PATIENT, seed, Driver::close));
}

#[test]
fn clients_may_leave_while_thousands_have_waited_too_long_for_an_endpoint() {
    (0..2).for_each(|seed| {
        clients_leave_while(BRIEF, seed, |driver| {
            while driver.inspect(Engine::waiting) > 0 {
                driver.pool_changed(Vec::new());
            }
        });
    });
}

#[test]
fn clients_may_leave_while_a_plan_without_queues_routes_thousands() {
    (0..2).for_each(|seed| {
        clients_leave_while(PATIENT, seed, |driver| {
            driver.pool_changed((0..2).map(join).collect());
            driver.replan(plan_of(""));
        });
    });
}

/// What one client of many does at random, with the requests that it has.
fn some_client(driver: &Driver, seed: u64, steps: u32) -> u64 {
    let mut chance = ChaCha8Rng::seed_from_u64(seed);
    let (mut tickets, mut routed) = (Vec::<Ticket>::new(), Vec::<InFlight>::new());
    let mut submitted = 0;
    for _ in 0..steps {
        match chance.random_range(0..10) {
            0..5 => {
                submitted += 1;
                tickets.push(driver.submit(Request {
                    objective: Some(["low", "mid", "high"][chance.random_range(0..3)].into()),
                    fairness_id: ["a", "b", "c"][chance.random_range(0..3)].into(),
                    prompt_tokens: 7,
                    ..request()
                }));
            }
            5..8 if !tickets.is_empty() => {
                let at = chance.random_range(0..tickets.len());
                match (&mut tickets[at]).now_or_never() {
                    None => {}
                    Some(Verdict::Refused(_)) => drop(tickets.swap_remove(at)),
                    Some(Verdict::Routed(in_flight)) => {
                        drop(tickets.swap_remove(at));
                        routed.push(in_flight);
                    }
                }
            }
            8 if !tickets.is_empty() => drop(tickets.swap_remove(chance.random_range(0..tickets.len()))),
            _ if !routed.is_empty() => {
                let mut in_flight = routed.swap_remove(chance.random_range(0..routed.len()));
                in_flight.answer_began();
                if chance.random_bool(0.7) {
                    in_flight.end(Outcome::Completed, Used::default());
                }
            }
            _ => {}
        }
    }
    submitted
}

#[test]
fn whatever_many_threads_do_each_request_has_one_outcome_and_leaves_nothing_behind() {
    for seed in 0..2 {
        let driver = driver_of(IMPATIENT, 2);
        driver.objectives_changed([("low".into(), -2), ("mid".into(), 0), ("high".into(), 5)].into());
        let over = Arc::new(AtomicBool::new(false));
        let operator = {
            let (driver, over) = (driver.clone(), Arc::clone(&over));
            move || {
                let mut chance = ChaCha8Rng::seed_from_u64(seed);
                while !over.load(Ordering::Relaxed) {
                    match chance.random_range(0..6) {
                        0 => driver.pool_changed(vec![leave(0), leave(1)]),
                        1..4 => driver.pool_changed(vec![join(chance.random_range(0..2))]),
                        4 => driver.replan(plan_of(if chance.random_bool(0.2) { "" } else { IMPATIENT })),
                        _ => thread::yield_now(),
                    }
                }
            }
        };
        let operator = thread::spawn(operator);
        let client = |n: u64| {
            let driver = driver.clone();
            move || some_client(&driver, seed * 100 + n, 1500)
        };
        let clients: Vec<_> = (0..THREADS as u64).map(|n| thread::spawn(client(n))).collect();
        let submitted = clients.into_iter().map(|client| client.join().unwrap()).sum();
        over.store(true, Ordering::Relaxed);
        operator.join().unwrap();

        is_conserved(&driver, submitted);
    }
}
