//! What holds whatever happens, under every scheduler and preemption policy (spec, simulator 34: INV-2, 4, 8 and 12).

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// What befalls an instance.
#[derive(Clone, Debug)]
enum Happening {
    Arrive(Arrival),
    Cancel(u64),
    /// A step starts, or ends if one is under way.
    Turn,
}

#[derive(Clone, Debug)]
struct Arrival {
    prompt: u8,
    tokens: u32,
    output: u32,
    adapter: u8,
    priority: i32,
    /// How long ago the request reached the cluster.
    age: u64,
}

/// Where a sequence is, as its events tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Running { tokens: u32 },
    Preempted { tokens: u32 },
}

/// An instance, and what is known about it from outside.
struct Watched {
    instance: Instance,
    /// Gets the same calls, and remembers nothing about who is blocked.
    forgetful: Instance,
    now: Timestamp,
    open: BTreeMap<u64, State>,
    remembered: BTreeSet<u64>,
    chains: Vec<Arc<[u64]>>,
    next: u64,
}

impl Watched {
    fn new(config: &InstanceConfig) -> Self {
        let instance = || {
            let mut instance = Instance::new(config.clone(), Box::new(LinearStepTime::default()));
            instance.watch_cache();
            instance
        };
        Self {
            instance: instance(),
            forgetful: instance(),
            now: Timestamp::from_nanos(1000),
            open: BTreeMap::new(),
            remembered: BTreeSet::new(),
            chains: Vec::new(),
            next: 0,
        }
    }

    fn befall(&mut self, happening: &Happening) {
        match happening {
            Happening::Arrive(arrival) => self.arrive(arrival),
            Happening::Cancel(id) => {
                let id = RequestId(*id);
                let cancelled = self.instance.cancel(id);
                assert_eq!(cancelled, self.open.remove(&id.0).is_some());
                assert_eq!(self.forgetful.cancel(id), cancelled);
            }
            Happening::Turn => self.turn(),
        }
        self.check();
    }

    fn arrive(&mut self, arrival: &Arrival) {
        let adapter = ["", "", "one", "two"][usize::from(arrival.adapter)];
        let mut chain = BlockChain::new(adapter, self.instance.config().block_tokens);
        chain.text(&vec![arrival.prompt; arrival.tokens as usize * BYTES_PER_TOKEN]);
        chain.text(&vec![b'.'; arrival.output as usize * BYTES_PER_TOKEN]);
        let chain: Arc<[u64]> = chain.into_hashes().into();
        let request = SequenceRequest {
            adapter: Some(adapter).filter(|adapter| !adapter.is_empty()).map(Arc::from),
            priority: arrival.priority,
            arrival: Timestamp::from_nanos(self.now.as_nanos() - arrival.age),
            chain: chain.clone(),
            ..request(self.next, arrival.tokens, arrival.output)
        };
        self.next += 1;
        let id = request.id.0;
        let answer = self.instance.enqueue(self.now, request.clone());
        assert_eq!(self.forgetful.enqueue(self.now, request), answer);
        if answer.is_ok() {
            self.open.insert(id, State::New);
            self.chains.push(chain);
        }
    }

    fn turn(&mut self) {
        let (mut events, mut others) = (Vec::new(), Vec::new());
        self.forgetful.forget_blocked();
        match self.instance.step_ends() {
            Some(ends) => {
                self.now = ends;
                self.instance.finish_step(ends, |event| events.push(event));
                self.forgetful.finish_step(ends, |event| others.push(event));
            }
            None => {
                let ends = self.instance.start_step(self.now, |event| events.push(event));
                let other = self.forgetful.start_step(self.now, |event| others.push(event));
                assert_eq!(ends, other);
                assert_eq!(ends.is_none(), self.open.is_empty(), "never idle with work");
                self.check_batch();
            }
        }
        assert_eq!(
            events, others,
            "what is remembered about the blocked one changes nothing"
        );
        for event in events {
            self.follow(event);
        }
    }

    /// States only move as they may, tokens come in order, and each sequence ends once.
    fn follow(&mut self, event: Event) {
        use State::{New, Preempted, Running};
        let (Event::Admitted { id, .. }
        | Event::Preempted { id }
        | Event::Resumed { id }
        | Event::Token { id, .. }
        | Event::Finished { id, .. }) = event;
        let state = self.open.remove(&id.0).expect("only open sequences are told of");
        let next = match (state, event) {
            (New, Event::Admitted { .. }) => Running { tokens: 0 },
            (Running { tokens }, Event::Preempted { .. }) => Preempted { tokens },
            (Preempted { tokens }, Event::Resumed { .. }) => Running { tokens },
            (Running { tokens }, Event::Token { index, .. }) if index == tokens => Running { tokens: tokens + 1 },
            (Running { tokens: 1.. }, Event::Finished { .. }) => return,
            _ => panic!("{event:?} of a sequence that is {state:?}"),
        };
        self.open.insert(id.0, next);
    }

    fn check_batch(&self) {
        let config = self.instance.config();
        let batch = self.instance.batch();
        let stats = self.instance.stats();
        let tokens: u32 = batch.iter().map(|part| part.new).sum();
        assert!(tokens <= config.max_num_batched_tokens.get());
        assert!(stats.load.running <= config.max_num_seqs.get());
        assert!(stats.running_adapters.len() <= config.max_loras.get() as usize);
        if tokens < config.max_num_batched_tokens.get() {
            assert_eq!(
                batch.len(),
                stats.load.running as usize,
                "while there are tokens, all get some"
            );
        }
    }

    fn check(&mut self) {
        self.instance.assert_conserved();
        let load = self.instance.load();
        assert_eq!((load.running + load.waiting) as usize, self.open.len());

        let mut changes = Vec::new();
        self.instance.drain_cache_events(&mut changes);
        for change in changes {
            match change {
                CacheEvent::Stored(name) => assert!(self.remembered.insert(name)),
                CacheEvent::Removed(name) => assert!(self.remembered.remove(&name)),
            }
        }
        for chain in &self.chains {
            let told = chain.iter().take_while(|name| self.remembered.contains(name)).count();
            assert_eq!(self.instance.cached_blocks(chain), told);
        }
    }
}

fn happening() -> impl Strategy<Value = Happening> {
    let arrival = (0_u8..3, 1_u32..40, 0_u32..40, 0_u8..4, -2_i32..3, 0_u64..3);
    prop_oneof![
        3 => arrival.prop_map(|(prompt, tokens, output, adapter, priority, age)| {
            Happening::Arrive(Arrival { prompt, tokens, output, adapter, priority, age })
        }),
        1 => (0_u64..60).prop_map(Happening::Cancel),
        8 => Just(Happening::Turn),
    ]
}

fn config() -> impl Strategy<Value = InstanceConfig> {
    let policies = (
        proptest::sample::select(&Scheduler::ALL[..]),
        proptest::sample::select(&PreemptionPolicy::ALL[..]),
    );
    let limits = (
        1_u32..6,
        1_u32..30,
        4_u32..30,
        proptest::option::of(1_u32..8),
        proptest::option::of(20_u32..60),
    );
    (policies, limits).prop_map(
        |((scheduler, preemption_policy), (seqs, tokens, kv_blocks, threshold, length))| InstanceConfig {
            scheduler,
            preemption_policy,
            max_num_seqs: count(seqs),
            max_num_batched_tokens: count(tokens),
            kv_blocks: count(kv_blocks),
            long_prefill_token_threshold: threshold.map(count),
            max_model_len: length.map(count),
            max_waiting: count(5),
            max_loras: count(2),
            ..small()
        },
    )
}

proptest! {
    #[test]
    fn every_sequence_ends_exactly_once_and_no_limit_or_block_is_lost_on_the_way(
        config in config(),
        happenings in proptest::collection::vec(happening(), 1..160),
    ) {
        let mut watched = Watched::new(&config);
        for happening in &happenings {
            watched.befall(happening);
        }
        // Far more steps than the longest sequences need one after the other, with every preemption.
        let mut turns = 0;
        while watched.instance.step_ends().is_some() || !watched.open.is_empty() {
            watched.befall(&Happening::Turn);
            turns += 1;
            prop_assert!(turns < 20_000, "never ended: {:?}", watched.open);
        }
        prop_assert_eq!(watched.instance.load().kv_used_blocks, 0);
    }

    #[test]
    fn sequences_are_admitted_in_the_order_of_the_scheduler_whoever_is_preempted(
        arrivals in proptest::collection::vec((1_u32..40, 1_u32..20, -2_i32..3, 0_u64..4), 1..40),
        scheduler in proptest::sample::select(&Scheduler::ALL[..]),
        preemption_policy in proptest::sample::select(&PreemptionPolicy::ALL[..]),
        kv_blocks in 15_u32..40,
    ) {
        let mut server = Server::new(InstanceConfig {
            scheduler,
            preemption_policy,
            kv_blocks: count(kv_blocks),
            max_num_seqs: count(4),
            ..small()
        });
        let mut expected = Vec::new();
        for (id, &(tokens, output, priority, arrival)) in (0_u64..).zip(&arrivals) {
            let sequence = SequenceRequest {
                priority,
                arrival: Timestamp::from_nanos(arrival),
                ..request(id, tokens, output)
            };
            server.instance.enqueue(server.now, sequence).unwrap();
            let rank = match scheduler {
                Scheduler::Fcfs => (0, 0),
                Scheduler::PriorityFcfs => (i64::from(priority), arrival),
                Scheduler::Sjf => (i64::from(tokens), arrival),
                Scheduler::ReversePriority => (-i64::from(priority), arrival),
            };
            expected.push((rank, id));
        }
        expected.sort_unstable();

        let events = server.run().concat();

        prop_assert_eq!(admitted(&events), expected.into_iter().map(|(_, id)| id).collect::<Vec<_>>());
    }
}
