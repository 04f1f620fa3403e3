//! The live driver and the simulator are two drivers of one engine: asked the same, they answer the same.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use futures_util::FutureExt;
use proptest::prelude::*;

use super::*;
use crate::engine::config::{LoadOptions, SourceName, load};
use crate::engine::journal::{self, Entry, Event, FORMAT, Header, Recorder, Verdict as Said};
use crate::engine::scheduling::{Explain, NoProbe};
use crate::engine::seed::Seed;
use crate::serve::driver::Verdict;
use crate::sim::classes::Classes;
use crate::sim::cluster::{Scenario, TraceOptions, run};
use crate::sim::instance::InstanceConfig;
use crate::sim::latency::Linear;
use crate::sim::policy::{Admission, Detector, DispatchOrder, Fairness, Flow, PolicySettings, Routing};
use crate::sim::request::{Arrivals, Client, Ended, SimRequest};
use crate::sim::workload::flags::{FlagWorkload, Load};
use crate::sim::workload::spec::ProcessName;
use crate::sim::workload::{PlanOptions, Workload, plan};

const SEED: u64 = 7;

/// What a request was told, and when.
type Answers = BTreeMap<u64, (Timestamp, Said)>;

#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<Entry>>>);

impl Recorder for Kept {
    fn note(&mut self, entry: Entry) {
        self.0.lock().push(entry);
    }
}

/// Requests of a workload, of several tenants and classes.
#[derive(Debug)]
struct Mixed(Workload, u64);

impl Arrivals for Mixed {
    fn next_arrival(&self) -> Option<u64> {
        self.0.next_arrival()
    }

    fn take(&mut self) -> Option<SimRequest> {
        let request = self.0.take()?;
        self.1 += 1;
        let class = ["critical", "standard", "batch", "background"][self.1 as usize % 4];
        let tenant = ["a", "b", "c"][self.1 as usize % 3];
        Some(SimRequest {
            client: Arc::new(Client {
                tenant: tenant.into(),
                slo_class: class.into(),
                ..(*request.client).clone()
            }),
            deadline_us: (self.1 % 11 == 5).then_some(request.arrival_us + 60_000),
            ..request
        })
    }

    fn ended(&mut self, request: &SimRequest, at_us: u64, how: Ended) {
        self.0.ended(request, at_us, how);
    }
}

fn engine(config: &str) -> Engine {
    let options = LoadOptions {
        allow_experimental_plugins: true,
        ..LoadOptions::default()
    };
    let loaded = load(config, &SourceName::Flag, &options).unwrap_or_else(|errors| panic!("{errors}"));
    Engine::new(loaded.plan.engine, Seed(SEED), Box::new(NoProbe), Explain::Best(0))
}

/// What the engine is told in a simulated run.
fn simulated(config: &str, requests: u64, rate: f64, refresh_us: u64) -> Vec<Entry> {
    let instance = InstanceConfig::default();
    let scenario = Scenario {
        instances: 3,
        labels: Vec::new(),
        latency: Arc::new(Linear::new(None, Some(&[4000.0, 20.0, 100.0])).unwrap()),
        model: "".into(),
        classes: Classes::default(),
        slo_targets_us: BTreeMap::new(),
        one_queue: false,
        seed: SEED,
        admission_latency_us: 30,
        routing_latency_us: 70,
        snapshot_refresh_us: refresh_us,
        cache_signal_delay_us: 0,
        faults: Vec::new(),
        horizon_us: None,
        instance,
    };
    let flags = FlagWorkload {
        load: Load::Rate {
            per_second: rate,
            arrival: ProcessName::Poisson,
        },
        prefix_tokens: 48,
        num_requests: Some(requests),
        ..FlagWorkload::default()
    };
    let options = PlanOptions::new(scenario.instance.block_tokens);
    let mut arrivals = Mixed(plan(&flags.spec(), &options).unwrap(), 0);
    let loaded = load(
        config,
        &SourceName::Flag,
        &LoadOptions {
            allow_experimental_plugins: true,
            ..LoadOptions::default()
        },
    );
    let kept = Kept::default();
    let trace = TraceOptions {
        journal: Some(Box::new(kept.clone())),
        ..TraceOptions::default()
    };
    run(&scenario, loaded.unwrap().plan.engine, &mut arrivals, trace);
    Arc::into_inner(kept.0).expect("the engine is gone").into_inner()
}

/// What a journal says that requests were told.
fn told(entries: &[Entry]) -> Answers {
    let mut answers = Answers::new();
    for entry in entries {
        if let Event::Poll(Some(answer)) = &entry.event
            && answer.verdict != Said::Evict
        {
            answers.insert(answer.id.0, (entry.at, answer.verdict.clone()));
        }
    }
    answers
}

/// The entries, with news of endpoints before whatever else the engine is told in between two polls.
///
/// The simulator tells all that happens in one moment and polls once. The live driver polls after each input, and would
/// release requests by reports that are old when a completion comes before the reports of the same moment.
fn news_first(entries: &[Entry]) -> Vec<Entry> {
    let is_poll = |entry: &Entry| !matches!(entry.event, Event::Input(_));
    let mut entries = entries.to_vec();
    for moment in entries.chunk_by_mut(|a, b| a.at == b.at && !is_poll(a) && !is_poll(b)) {
        moment.sort_by_key(|entry| match &entry.event {
            Event::Input(Input::PoolChanged { .. }) => 0,
            Event::Input(Input::Reported { .. }) => 1,
            _ => 2,
        });
    }
    entries
}

/// Asks a live driver the same, at the same times by its own clock, and returns what its journal says.
async fn lived(config: &str, entries: &[Entry]) -> Vec<Entry> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal");
    let header = Header {
        format: FORMAT,
        seed: SEED,
        cache_source: false,
        config: config.to_owned(),
    };
    let driver = Driver::new(engine(config), Clock::new());
    driver.write_down(Journal::create(&path, &header).unwrap());

    let mut tickets = BTreeMap::new();
    let mut routed = BTreeMap::new();
    let mut before = Timestamp::ZERO;
    for Entry { at, event } in &news_first(entries) {
        tokio::time::advance(*at - before).await;
        match event.clone() {
            Event::Input(input) => match input {
                Input::PoolChanged { changes } => driver.pool_changed(changes),
                Input::Reported { slot, update } => {
                    let id = driver.inspect(|engine| engine.pool()[slot].endpoint.id.clone());
                    driver.pool_changed(vec![PoolChange::Report(id, update)]);
                }
                Input::ObjectivesChanged { priorities } => driver.objectives_changed(priorities),
                Input::Submit { id, request } => {
                    tickets.insert(id, driver.submit(request));
                }
                Input::Progress { id, progress } => match progress {
                    Progress::Answered { .. } => unreachable!("the simulator tells when an answer begins"),
                    Progress::AnswerBegan => {
                        let in_flight: &mut InFlight = routed.get_mut(&id).expect("it was routed here too");
                        in_flight.answer_began();
                    }
                    Progress::Ended(outcome, used) => {
                        let in_flight: InFlight = routed.remove(&id).expect("it was routed here too");
                        in_flight.end(outcome, used);
                    }
                },
                Input::Cancel { id } => {
                    drop(tickets.remove(&id));
                    drop(routed.remove(&id));
                }
                Input::CacheChanged { .. } | Input::Lost { .. } | Input::Close => {
                    unreachable!("no simulated run of these does that")
                }
            },
            // The simulator's timer went off. The live driver's would by now.
            Event::Poll(_) if *at != before => driver.pool_changed(Vec::new()),
            Event::Poll(_) => {}
            Event::Replan => unreachable!("no simulated run does that"),
        }
        tickets.retain(|id, ticket: &mut Ticket| match ticket.now_or_never() {
            Some(Verdict::Routed(in_flight)) => {
                routed.insert(*id, in_flight);
                false
            }
            Some(Verdict::Refused(_)) => false,
            None => true,
        });
        before = *at;
    }
    drop((tickets, routed, driver));
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().skip(1);
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The ids that a driver gave, in the order of submission, in the place of its own.
fn renumbered(entries: &[Entry], answers: Answers) -> Answers {
    let submitted = entries.iter().filter_map(|entry| match &entry.event {
        Event::Input(Input::Submit { id, .. }) => Some(id.0),
        _ => None,
    });
    let order: BTreeMap<u64, u64> = submitted.zip(0..).collect();
    answers.into_iter().map(|(id, answer)| (order[&id], answer)).collect()
}

fn settings() -> impl Strategy<Value = PolicySettings> {
    let routing = prop_oneof![
        Just(Routing::RoundRobin),
        Just(Routing::LeastLoaded),
        Just(Routing::Weighted(Default::default())),
    ];
    let flow = (1_u32..12, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(max, fair, evicts, sheds)| Flow {
        detector: Detector::Concurrency { max },
        order: DispatchOrder::Priority,
        fairness: if fair {
            Fairness::RoundRobin
        } else {
            Fairness::GlobalStrict
        },
        max_requests: 12,
        max_band_requests: 0,
        ttl_us: 80_000,
        usage_limit: 1.0,
        shedding: sheds,
        eviction: evicts,
        priorities: vec![4, 3, -1, -3],
    });
    (routing, proptest::option::of(flow)).prop_map(|(routing, flow)| PolicySettings {
        admission: Admission::TokenBucket {
            capacity: 8000.0,
            refill_rate: 40_000.0,
        },
        tenant_budgets: BTreeMap::new(),
        routing,
        flow,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn one_script_has_the_same_answers_at_the_same_times_in_both_worlds(
        settings in settings(),
        requests in 1_u64..120,
        rate in prop_oneof![Just(30.0), Just(150.0), Just(900.0)],
        refresh_us in prop_oneof![Just(0_u64), Just(20_000)],
    ) {
        let config = settings.document(16, 256).to_string();
        let entries = simulated(&config, requests, rate, refresh_us);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let live = runtime.block_on(lived(&config, &entries));

        let (simulated, lived) = (told(&entries), told(&live));
        let (simulated, lived) = (renumbered(&entries, simulated), renumbered(&live, lived));
        prop_assert!(!simulated.is_empty());
        let of = |answers: &Answers, id: u64| answers.get(&id).cloned();
        for id in 0..requests {
            prop_assert_eq!(of(&simulated, id), of(&lived, id), "request {}", id);
        }

        let again = journal::replay(&mut engine(&config), live);
        prop_assert_eq!(again.submitted, requests);
        prop_assert_eq!(again.share(), 1.0, "{:?}", again);
    }
}
