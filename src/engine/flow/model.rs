//! Random operations on an engine and on a reference that is obviously right, with every invariant checked on the way.

mod reference;
mod rules;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::invariant::{
    AT_REST, Answers, Arrived, Books, Expired, Figures, IN_TURN, Idle, Invariant, OF_ANSWERS, OF_BOOKS, ON_ARRIVAL,
    ON_DISPLACEMENT, ON_EXPIRY, ON_REFUSAL, ON_RELEASE, Released, TurnedAway, Turns, WHEN_IDLE, check,
};
use super::super::outcome::{Outcome, Refusal};
use super::super::pool::{Endpoint, EndpointId, PoolChange, SignalUpdate};
use super::super::request::{Kind, Request, RequestId, Slo};
use super::super::scheduling::{Decision, Explain, NoProbe};
use super::super::seed::Seed;
use super::super::time::Timestamp;
use super::super::{Effect, Engine, Input, Progress, Refused};
use super::Load;
use super::fairness::Used;
use super::plan::GlobalLimits;
use reference::{GivesWay, Reference, Runs, Waits};
use rules::{Fairness, PRIORITIES, Rules, rules};

#[derive(Clone, Debug)]
enum Op {
    Arrive(Arrival),
    /// A request in flight ends.
    Finish(Index),
    /// The client of a request that waits or is in flight goes away.
    Cancel(Index),
    /// So many milliseconds pass.
    Pass(u64),
    Join(u8),
    Leave(u8),
    Report(u8),
    Objectives(BTreeMap<u8, i32>),
    Replan(Rules),
}

#[derive(Clone, Debug)]
struct Arrival {
    tenant: u8,
    objective: u8,
    model: u8,
    size: u64,
    ttl: Option<u64>,
    ttft: Option<u64>,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let times = (option::weighted(0.3, 0_u64..40), option::weighted(0.7, 0_u64..40));
    (0_u8..5, 0_u8..6, 0_u8..2, 1_u64..120, times).prop_map(|(tenant, objective, model, size, (ttl, ttft))| Arrival {
        tenant,
        objective,
        model,
        size,
        ttl,
        ttft,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let objectives = proptest::collection::btree_map(0_u8..5, proptest::sample::select(&PRIORITIES[..]), 0..5);
    prop_oneof![
        12 => arrival().prop_map(Op::Arrive),
        5 => any::<Index>().prop_map(Op::Finish),
        2 => any::<Index>().prop_map(Op::Cancel),
        3 => (0_u64..20).prop_map(Op::Pass),
        1 => (0_u8..3).prop_map(Op::Join),
        1 => (0_u8..3).prop_map(Op::Leave),
        1 => (0_u8..3).prop_map(Op::Report),
        1 => objectives.prop_map(Op::Objectives),
        1 => rules().prop_map(Op::Replan),
    ]
}

fn hold<T: Debug>(invariants: &[Invariant<T>], seen: &T) -> Result<(), TestCaseError> {
    check(invariants, seen).map_err(|broken| TestCaseError::fail(format!("{broken}; seen: {seen:#?}")))
}

fn endpoint_name(number: u8) -> String {
    format!("e{number}")
}

fn endpoint_id(number: u8) -> EndpointId {
    EndpointId::new("default", &endpoint_name(number))
}

fn flow_name(number: u8) -> Arc<str> {
    format!("t{number}").into()
}

fn objective_name(number: u8) -> Arc<str> {
    format!("o{number}").into()
}

/// A refusal that was decided when a request came, and is polled later.
#[derive(Debug)]
struct Decided {
    id: RequestId,
    refusal: Refusal,
    waited: Option<Duration>,
    turned_away: Option<TurnedAway>,
}

/// How often the engine is polled before something else happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polls {
    /// Until there is no more to do.
    Until,
    /// So often.
    Times(u8),
}

fn polls() -> impl Strategy<Value = Polls> {
    prop_oneof![2 => Just(Polls::Until), 1 => (0_u8..4).prop_map(Polls::Times)]
}

/// The engine, the reference, and the books of an onlooker.
struct Twins {
    engine: Engine,
    decided: VecDeque<Decided>,
    reference: Reference,
    answers: Answers,
    books: Books,
    turns: BTreeMap<i32, Turns>,
    submitted: u64,
}

impl Twins {
    fn new(rules: Rules) -> Self {
        Self {
            engine: Engine::new(rules.plan(), Seed(1), Box::new(NoProbe), Explain::default()),
            decided: VecDeque::new(),
            reference: Reference::new(rules),
            answers: Answers::default(),
            books: Books::default(),
            turns: BTreeMap::new(),
            submitted: 0,
        }
    }

    fn now(&self) -> Timestamp {
        self.reference.now
    }

    fn tell(&mut self, input: Input) {
        self.engine.apply(self.reference.now, input);
    }

    fn apply(&mut self, op: Op, polls: Polls) -> Result<(), TestCaseError> {
        match op {
            Op::Arrive(arrival) => self.arrive(&arrival)?,
            Op::Finish(index) => self.finish(index),
            Op::Cancel(index) => self.cancel(index),
            Op::Pass(millis) => self.pass(Duration::from_millis(millis))?,
            Op::Join(number) => {
                let endpoint = Endpoint {
                    id: endpoint_id(number),
                    name: endpoint_name(number).into(),
                    address: [127, 0, 0, 1].into(),
                    port: 8000,
                    labels: BTreeMap::new(),
                    rank: 0,
                };
                self.reference.join(&endpoint.name);
                self.pool_changed(PoolChange::Upsert(Arc::new(endpoint)));
            }
            Op::Leave(number) => {
                self.reference.leave(&endpoint_name(number));
                self.pool_changed(PoolChange::Remove(endpoint_id(number)));
            }
            Op::Report(number) => {
                self.pool_changed(PoolChange::Report(endpoint_id(number), SignalUpdate::default()));
            }
            Op::Objectives(objectives) => {
                let named = |(number, priority)| (objective_name(number), priority);
                let priorities: BTreeMap<_, _> = objectives.into_iter().map(named).collect();
                self.reference.set_objectives(priorities.clone());
                self.tell(Input::ObjectivesChanged { priorities });
            }
            Op::Replan(rules) => {
                self.engine.replan(self.now(), rules.plan());
                self.reference.replan(rules);
            }
        }
        self.settle(polls)
    }

    fn pool_changed(&mut self, change: PoolChange) {
        self.tell(Input::PoolChanged { changes: vec![change] });
    }

    fn arrive(&mut self, arrival: &Arrival) -> Result<(), TestCaseError> {
        self.submitted += 1;
        let reference = &self.reference;
        let objective = objective_name(arrival.objective);
        let priority = reference.objectives.get(&objective).copied().unwrap_or(0);
        let waits = Waits {
            id: RequestId(self.submitted),
            arrival: self.submitted,
            tenant: flow_name(arrival.tenant),
            model: format!("m{}", arrival.model).into(),
            priority,
            band: reference.band_for(priority),
            size: arrival.size,
            enqueued: self.now(),
            ttl: arrival.ttl.map(Duration::from_millis),
            ttft: arrival.ttft.map(Duration::from_millis),
        };
        let band_rules = reference.rules_of(waits.band);
        let (refusal, give_way) = reference.give_way(&waits);
        let request = Request {
            model: waits.model.clone(),
            target_model: waits.model.clone(),
            fairness_id: waits.tenant.clone(),
            objective: Some(objective),
            size_bytes: waits.size,
            slo: Slo {
                ttft: waits.ttft,
                tpot: None,
            },
            received: waits.enqueued,
            ttl: waits.ttl,
            ..Request::unknown(Kind::Inference)
        };
        self.tell(Input::Submit { id: waits.id, request });
        self.answers.counts.insert(waits.id, 0);
        for gives_way in give_way {
            self.gives_way(gives_way, refusal)?;
        }

        let reference = &self.reference;
        let in_band = reference.load(|other| other.band == waits.band);
        let held = reference.load(|_| true);
        let was_held = self.flow_load().requests > held.requests;
        let arrived = Arrived {
            size: waits.size,
            held,
            limits: GlobalLimits {
                bytes: reference.rules.max_bytes,
                requests: reference.rules.max_requests,
            },
            in_band,
            band_limits: Load {
                requests: band_rules.max_requests,
                bytes: band_rules.max_bytes,
            },
            was_held,
        };
        hold(ON_ARRIVAL, &arrived)?;
        if was_held {
            self.answers.waiting.insert(waits.id);
            self.books.bytes_in += waits.size;
            self.reference.waits.push(waits);
            self.note_turns();
            return Ok(());
        }
        let turned_away = TurnedAway {
            position: 0,
            ahead: self.reference.ahead_of(&waits),
        };
        self.decided.push_back(Decided {
            id: waits.id,
            refusal: match self.reference.endpoints.is_empty() {
                _ if self.reference.can_never_wait(&waits) => Refusal::Oversized,
                true => Refusal::QueueFullNoEndpoints,
                false => Refusal::QueueFull,
            },
            waited: None,
            turned_away: Some(turned_away),
        });
        Ok(())
    }

    /// A request gives its place to a new one, and is told so next.
    fn gives_way(&mut self, GivesWay { id, seen }: GivesWay, refusal: Refusal) -> Result<(), TestCaseError> {
        if let Some(seen) = seen {
            hold(ON_DISPLACEMENT, &seen)?;
        }
        let at = self.reference.waits.iter().position(|waits| waits.id == id);
        let waits = self.leaves(at.expect("it waits"));
        self.decided.push_back(Decided {
            id,
            refusal,
            waited: Some(self.now() - waits.enqueued),
            turned_away: None,
        });
        Ok(())
    }

    /// What was decided before is handed out before anything else.
    fn decided(&mut self, decided: &Decided, effect: Effect) -> Result<(), TestCaseError> {
        let Effect::Refuse { id, refused } = effect else {
            return Err(TestCaseError::fail(format!("{effect:?} in the place of {decided:?}")));
        };
        prop_assert_eq!(
            (id, refused.refusal, refused.waited),
            (decided.id, decided.refusal, decided.waited)
        );
        prop_assert_eq!(refused.retry_after.is_some(), refused.refusal.may_retry());
        self.count_answer(id);
        let turned_away = decided.turned_away.filter(|_| refused.refusal != Refusal::Oversized);
        let Some(turned_away) = turned_away else {
            return Ok(());
        };
        let position = refused.position.unwrap_or(0);
        hold(
            ON_REFUSAL,
            &TurnedAway {
                position,
                ..turned_away
            },
        )
    }

    fn finish(&mut self, index: Index) {
        if self.reference.runs.is_empty() {
            return;
        }
        let at = index.index(self.reference.runs.len());
        let Runs { id, .. } = self.reference.runs.swap_remove(at);
        let progress = Progress::Ended(Outcome::Completed, Used::default());
        self.tell(Input::Progress { id, progress });
        self.books.finished += 1;
    }

    fn cancel(&mut self, index: Index) {
        let (waiting, running) = (self.reference.waits.len(), self.reference.runs.len());
        let all = waiting + running + self.decided.len();
        if all == 0 {
            return;
        }
        let at = index.index(all);
        let id = if at < waiting {
            let id = self.leaves(at).id;
            self.count_answer(id);
            id
        } else if at < waiting + running {
            self.books.finished += 1;
            self.reference.runs.swap_remove(at - waiting).id
        } else {
            let decided = self.decided.remove(at - waiting - running);
            let id = decided.expect("the position is below the length").id;
            self.count_answer(id);
            id
        };
        self.tell(Input::Cancel { id });
    }

    /// Time passes, and the engine is polled whenever it asked for that.
    fn pass(&mut self, span: Duration) -> Result<(), TestCaseError> {
        let until = self.now() + span;
        while let Some(deadline) = self.engine.deadline().filter(|&deadline| deadline < until) {
            // It may have been due before, if the engine was not polled to the end.
            self.reference.now = deadline.max(self.now());
            self.settle(Polls::Until)?;
        }
        self.reference.now = until;
        Ok(())
    }

    /// Polls. Each effect must be one that the reference allows, and in the end it must know of nothing more.
    fn settle(&mut self, polls: Polls) -> Result<(), TestCaseError> {
        let mut polled = 0;
        while polls != Polls::Times(polled) {
            polled += 1;
            let Some(effect) = self.engine.poll(self.now()) else {
                prop_assert!(self.decided.is_empty(), "{:?} were not handed out", self.decided);
                return self.at_rest();
            };
            if let Some(decided) = self.decided.pop_front() {
                self.decided(&decided, effect)?;
                continue;
            }
            match effect {
                Effect::Evict { id, .. } => panic!("{id:?} is cut off though nobody asked for that"),
                Effect::Route {
                    id,
                    priority,
                    waited,
                    decision,
                } => self.released(id, priority, waited, &decision)?,
                Effect::Refuse { id, refused } => self.expired(id, &refused)?,
            }
        }
        Ok(())
    }

    fn released(
        &mut self,
        id: RequestId,
        priority: i32,
        waited: Option<Duration>,
        decision: &Decision,
    ) -> Result<(), TestCaseError> {
        let reference = &self.reference;
        let Some(at) = reference.waits.iter().position(|waits| waits.id == id) else {
            return Err(TestCaseError::fail(format!("{id:?} is released and does not wait")));
        };
        let waits = &reference.waits[at];
        let others = reference.waits.iter().filter(|other| other.id != id);
        let seen = Released {
            request: reference.held(waits),
            others: others.map(|other| reference.held(other)).collect(),
            saturation: reference.saturation(),
            ceiling: reference.ceiling().unwrap_or(0.0),
            now: reference.now,
            due: reference.due(waits),
        };
        hold(ON_RELEASE, &seen)?;
        let next = reference.next();
        prop_assert_eq!(
            (priority, waited),
            (waits.priority, Some(reference.now - waits.enqueued))
        );

        let waits = self.leaves(at);
        self.reference.served(waits.band, &waits.tenant);
        self.reference.runs.push(Runs {
            id,
            endpoint: Some(decision.endpoints[0].name.to_string()),
        });
        self.count_answer(id);
        self.books.released += 1;
        if self.reference.rules_of(waits.band).fairness == Fairness::RoundRobin {
            let backlogged = self.reference.backlogged(waits.band);
            let turns = self.turns.entry(waits.band).or_default();
            turns.serve(&waits.tenant, &backlogged);
            hold(IN_TURN, turns)?;
        }
        prop_assert_eq!(Some(at), next, "another request is next: {:#?}", seen);
        Ok(())
    }

    fn expired(&mut self, id: RequestId, refused: &Refused) -> Result<(), TestCaseError> {
        let reference = &self.reference;
        let Some(at) = reference.waits.iter().position(|waits| waits.id == id) else {
            return Err(TestCaseError::fail(format!("{id:?} is refused and does not wait")));
        };
        let waits = &reference.waits[at];
        let refusal = match reference.endpoints.is_empty() {
            true => Refusal::ExpiredNoEndpoints,
            false => Refusal::Expired,
        };
        prop_assert_eq!((refused.refusal, refused.priority), (refusal, waits.priority));
        prop_assert_eq!(refused.waited, Some(reference.now - waits.enqueued));
        let seen = Expired {
            now: reference.now,
            due: reference.due(waits),
            could_go: reference.next() == Some(at),
        };
        hold(ON_EXPIRY, &seen)?;
        self.leaves(at);
        self.count_answer(id);
        Ok(())
    }

    fn at_rest(&mut self) -> Result<(), TestCaseError> {
        hold(AT_REST, &Figures::of(&self.engine))?;
        hold(OF_ANSWERS, &self.answers)?;
        let reference = &self.reference;
        let on_endpoints = self.engine.pool().iter().map(|(_, member)| member.in_flight.requests);
        let books = Books {
            served: reference.runs.iter().filter(|runs| runs.endpoint.is_some()).count() as u64,
            in_flight: self.engine.in_flight() as u64,
            on_endpoints: on_endpoints.map(u64::from).sum(),
            bytes_held: self.flow_load().bytes,
            ..self.books
        };
        hold(OF_BOOKS, &books)?;
        let idle = Idle {
            now: reference.now,
            saturation: reference.saturation(),
            ceiling: reference.ceiling(),
            due: reference.waits.iter().filter_map(|waits| reference.due(waits)).min(),
            wakes: self.engine.deadline(),
        };
        hold(WHEN_IDLE, &idle)?;
        self.loads_agree()
    }

    /// Bands and flows hold what the reference says that they hold.
    fn loads_agree(&self) -> Result<(), TestCaseError> {
        let (reference, flow) = (&self.reference, self.engine.flow().expect("flow control is on"));
        let expected = reference.priorities().into_iter();
        let expected: Vec<_> = expected
            .map(|band| (band, reference.load(|waits| waits.band == band)))
            .collect();
        let bands: Vec<_> = flow.bands().map(|(plan, load)| (plan.priority, load)).collect();
        prop_assert_eq!(bands, expected);

        let mut expected: BTreeMap<_, Load> = BTreeMap::new();
        for waits in &reference.waits {
            let of_flow = (waits.band, waits.tenant.clone(), waits.model.clone());
            expected.entry(of_flow).or_default().add(waits.size);
        }
        let depths = flow.depths();
        let depths: BTreeMap<_, _> = depths
            .map(|(band, depth)| ((band, depth.flow.clone(), depth.model.clone()), depth.load))
            .collect();
        prop_assert_eq!(depths, expected);

        // Fairness policies go by the first request of each flow, and by how long it has waited.
        for band in &flow.bands {
            for (reference, active) in band.active.iter() {
                let first = &flow.waiting[band.first_of(reference)];
                prop_assert_eq!(
                    (active.head, active.head_enqueued),
                    (first.place, first.patience.enqueued)
                );
            }
        }
        Ok(())
    }

    /// The service ends: everybody is answered, and what is in flight goes on to its end.
    fn close(&mut self) -> Result<(), TestCaseError> {
        self.tell(Input::Close);
        while let Some(effect) = self.engine.poll(self.now()) {
            if let Some(decided) = self.decided.pop_front() {
                self.decided(&decided, effect)?;
                continue;
            }
            let Effect::Refuse { id, refused } = effect else {
                return Err(TestCaseError::fail("a service that ends routes nobody"));
            };
            prop_assert_eq!(refused.refusal, Refusal::ShuttingDown);
            self.answers.waiting.remove(&id);
            self.count_answer(id);
        }
        hold(OF_ANSWERS, &self.answers)?;
        for Runs { id, .. } in std::mem::take(&mut self.reference.runs) {
            let progress = Progress::Ended(Outcome::Completed, Used::default());
            self.tell(Input::Progress { id, progress });
        }
        prop_assert_eq!(self.engine.tally().ended(), self.submitted);
        Ok(())
    }

    fn leaves(&mut self, at: usize) -> Waits {
        let waits = self.reference.leaves(at);
        self.answers.waiting.remove(&waits.id);
        self.books.bytes_out += waits.size;
        self.note_turns();
        waits
    }

    fn count_answer(&mut self, id: RequestId) {
        *self.answers.counts.entry(id).or_default() += 1;
    }

    /// Keeps the turns of bands that serve their flows in turn, and forgets those of others.
    fn note_turns(&mut self) {
        let reference = &self.reference;
        let in_turn = |band: &i32| reference.rules_of(*band).fairness == Fairness::RoundRobin;
        self.turns.retain(|band, _| in_turn(band));
        for band in reference.priorities().into_iter().filter(in_turn) {
            self.turns.entry(band).or_default().keep(&reference.backlogged(band));
        }
    }

    fn flow_load(&self) -> Load {
        self.engine.flow().expect("flow control is on").held()
    }
}

proptest! {
    #[test]
    fn the_engine_does_what_the_reference_does_whatever_happens(
        first_rules in rules(),
        ops in proptest::collection::vec((op(), polls()), 1..120),
    ) {
        let mut twins = Twins::new(first_rules);
        for (op, polls) in [(Op::Join(0), Polls::Until)].into_iter().chain(ops) {
            twins.apply(op, polls)?;
            twins.note_turns();
        }
        twins.close()?;
    }
}
