use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::engine::request::RequestId;
use crate::engine::time::Timestamp;

mod cache;
mod invariants;
mod limits;
mod policies;

#[test]
fn a_sequence_yields_its_tokens_one_step_each_and_finishes_with_the_last() {
    let mut server = Server::new(small());
    server.enqueue(1, b"a prompt", 3).unwrap();

    let steps = server.run();

    let id = RequestId(1);
    assert_eq!(
        steps,
        [
            vec![
                Event::Admitted {
                    id,
                    cached_tokens: 0,
                    waited: Duration::ZERO
                },
                Event::Token { id, index: 0 },
            ],
            vec![Event::Token { id, index: 1 }],
            vec![
                Event::Token { id, index: 2 },
                Event::Finished {
                    id,
                    length_capped: false
                }
            ],
        ]
    );
    assert_eq!(server.instance.load().kv_used_blocks, 0);
}

#[test]
fn the_effects_of_a_step_show_when_it_ends() {
    let mut server = Server::new(small());
    server.enqueue(1, b"a prompt", 1).unwrap();
    let mut events = Vec::new();

    let ends = server
        .instance
        .start_step(server.now, |event| events.push(event))
        .unwrap();

    assert_eq!(ends - server.now, Duration::from_micros(8000 + 2 * 40));
    assert!(matches!(events[..], [Event::Admitted { .. }]));
    assert_eq!(server.instance.load().running, 1);

    server.instance.finish_step(ends, |event| events.push(event));

    assert_eq!(server.instance.load().running, 0);
}

#[test]
fn a_long_prompt_is_computed_in_chunks_while_others_decode() {
    let mut server = Server::new(InstanceConfig {
        max_num_batched_tokens: count(8),
        kv_blocks: count(16),
        ..small()
    });
    server.enqueue(1, b"shrt", 9).unwrap();
    server.step();
    server.enqueue(2, &[b'x'; 4 * 20], 1).unwrap();

    let batches: Vec<Vec<u32>> = (0..3)
        .map(|_| {
            server.step();
            server.instance.batch().iter().map(|part| part.new).collect()
        })
        .collect();

    assert_eq!(batches, [[1, 7], [1, 7], [1, 6]]);
}

#[test]
fn the_threshold_for_long_prompts_leaves_room_in_the_step() {
    let mut server = Server::new(InstanceConfig {
        long_prefill_token_threshold: Some(count(4)),
        kv_blocks: count(16),
        ..small()
    });
    server.enqueue(1, &[b'x'; 4 * 10], 1).unwrap();
    server.enqueue(2, b"shrt", 1).unwrap();

    let finished = server.step();

    assert!(finished.contains(&ended(2)));
    assert!(!finished.contains(&ended(1)));
}

#[test]
fn a_prompt_seen_before_is_computed_but_for_its_end() {
    let mut server = Server::new(small());
    let prompt = [b'p'; 4 * 10];
    server.enqueue(1, &prompt, 1).unwrap();
    server.run();
    server.enqueue(2, &prompt, 1).unwrap();

    server.step();

    // Blocks have four tokens: two of them are full.
    assert_eq!(server.instance.batch()[0].new, 2);
    let stats = server.instance.stats();
    assert_eq!((stats.prefix_queried_tokens, stats.prefix_cached_tokens), (20, 8));
}

#[test]
fn a_prompt_that_is_remembered_as_a_whole_has_its_last_block_computed_again() {
    let mut server = Server::new(small());
    let prompt = [b'p'; 4 * 8];
    server.enqueue(1, &prompt, 1).unwrap();
    server.run();
    server.enqueue(2, &prompt, 1).unwrap();

    let events = server.step();

    assert_eq!(server.instance.batch()[0].new, 4);
    assert!(events.contains(&ended(2)));
}

#[test]
fn the_next_turn_of_a_conversation_finds_the_answer_in_the_cache() {
    let mut server = Server::new(small());
    let (question, answer) = ([b'q'; 4 * 4], [b'a'; 4 * 5]);
    server.enqueue_answered("", 1, &question, &answer).unwrap();
    server.run();
    server
        .enqueue(2, &[&question[..], &answer, b"and then?"].concat(), 1)
        .unwrap();

    let events = server.step();

    assert!(
        matches!(events[0], Event::Admitted { cached_tokens: 8, .. }),
        "{events:?}"
    );
}

#[test]
fn adapters_do_not_find_what_others_computed() {
    let mut server = Server::new(small());
    let prompt = [b'p'; 4 * 8];
    server.enqueue(1, &prompt, 1).unwrap();
    server.run();
    server.enqueue_as("lora", 2, &prompt, 1).unwrap();

    let events = server.step();

    assert!(
        matches!(events[0], Event::Admitted { cached_tokens: 0, .. }),
        "{events:?}"
    );
}

#[test]
fn the_youngest_sequence_makes_room_and_goes_to_the_front_of_the_queue() {
    // Six blocks of four tokens: two sequences of eight tokens fit, but not until both have sixteen.
    let mut server = Server::new(InstanceConfig {
        kv_blocks: count(6),
        max_num_seqs: count(2),
        ..small()
    });
    for (id, text, output) in [(1, [b'a'; 32], 8), (2, [b'b'; 32], 8), (3, [b'c'; 32], 1)] {
        server.enqueue(id, &text, output).unwrap();
    }

    let events = server.run().concat();

    let position = |wanted: Event| events.iter().position(|&event| event == wanted).unwrap();
    let preempted = position(Event::Preempted { id: RequestId(2) });
    let first_ends = position(ended(1));
    let third_ends = position(ended(3));
    assert!(preempted < first_ends);
    assert!(
        first_ends < third_ends,
        "the third would have had room, but may not pass the second"
    );
    let second: Vec<u32> = (events.iter())
        .filter_map(|event| match event {
            Event::Token {
                id: RequestId(2),
                index,
            } => Some(*index),
            _ => None,
        })
        .collect();
    assert_eq!(second, (0..8).collect::<Vec<_>>(), "no token comes out twice");
    assert_eq!(server.instance.load().preemptions, 1);
}

#[test]
fn nobody_is_admitted_in_a_step_that_preempts() {
    // The second has nothing cached, and the first chunk of its prompt would fit as soon as it is evicted.
    let mut server = Server::new(InstanceConfig {
        max_num_batched_tokens: count(5),
        kv_blocks: count(4),
        ..small()
    });
    server.enqueue(1, &[b'a'; 16], 8).unwrap();
    server.instance.enqueue(server.now, request(2, 8, 8)).unwrap();

    let preempting = (0..10).find(|_| server.step().contains(&Event::Preempted { id: RequestId(2) }));

    assert_eq!(preempting, Some(3));
    assert_eq!(server.instance.batch().len(), 1);
    server.step();
    assert_eq!(server.instance.batch().len(), 2);
}

#[test]
fn more_adapters_than_may_run_wait_and_let_others_pass() {
    let mut server = Server::new(InstanceConfig {
        max_loras: count(1),
        ..small()
    });
    server.enqueue_as("one", 1, b"text", 2).unwrap();
    server.enqueue_as("two", 2, b"text", 1).unwrap();
    server.enqueue_as("one", 3, b"text", 1).unwrap();
    server.enqueue(4, b"text", 1).unwrap();
    server.instance.start_step(server.now, drop);

    let stats = server.instance.stats();

    assert_eq!(stats.running_adapters, BTreeMap::from([(Arc::from("one"), 2)]));
    assert_eq!(stats.waiting_adapters, BTreeMap::from([(Arc::from("two"), 1)]));
    assert_eq!((stats.load.running, stats.load.waiting), (3, 1));
}

#[test]
fn what_can_never_run_and_what_finds_the_queue_full_is_refused() {
    let mut server = Server::new(InstanceConfig {
        max_waiting: count(1),
        kv_blocks: count(2),
        ..small()
    });
    let too_long = Rejected::PromptExceedsCache {
        prompt_tokens: 9,
        capacity: 8,
    };

    assert_eq!(server.enqueue(1, b"", 1), Err(Rejected::EmptyPrompt));
    assert_eq!(server.enqueue(2, &[b'x'; 4 * 9], 1), Err(too_long));
    assert_eq!(server.enqueue(3, b"four", 8), Ok(()));
    assert_eq!(server.enqueue(4, b"four", 1), Err(Rejected::QueueFull { limit: 1 }));
    assert_eq!(finished(&server.run().concat()), [3]);
}

#[test]
fn a_cancelled_sequence_frees_its_blocks_at_once() {
    let mut server = Server::new(small());
    server.enqueue(1, b"running", 5).unwrap();
    server.instance.start_step(server.now, drop);
    server.enqueue(2, b"waiting", 5).unwrap();

    assert!(server.instance.cancel(RequestId(1)));
    assert!(server.instance.cancel(RequestId(2)));
    assert!(!server.instance.cancel(RequestId(1)));

    let load = server.instance.load();
    assert_eq!((load.running, load.waiting, load.kv_used_blocks), (0, 0, 0));
    let mut events = Vec::new();
    let ends = server.instance.step_ends().unwrap();
    server.instance.finish_step(ends, |event| events.push(event));
    assert_eq!(events, []);
    assert_eq!(server.instance.start_step(ends, |event| events.push(event)), None);
}

/// An instance and its clock, with every invariant looked at after each step.
struct Server {
    instance: Instance,
    now: Timestamp,
}

impl Server {
    fn new(config: InstanceConfig) -> Self {
        Self {
            instance: Instance::new(config, Box::new(LinearStepTime::default())),
            now: Timestamp::ZERO,
        }
    }

    fn enqueue(&mut self, id: u64, prompt: &[u8], output: u32) -> Result<(), Rejected> {
        self.enqueue_as("", id, prompt, output)
    }

    fn enqueue_as(&mut self, adapter: &str, id: u64, prompt: &[u8], output: u32) -> Result<(), Rejected> {
        self.enqueue_answered(adapter, id, prompt, &vec![b'.'; output as usize * BYTES_PER_TOKEN])
    }

    /// A sequence of which the text of the answer matters.
    fn enqueue_answered(&mut self, adapter: &str, id: u64, prompt: &[u8], answer: &[u8]) -> Result<(), Rejected> {
        let mut chain = BlockChain::new(adapter, self.instance.config().block_tokens);
        chain.text(prompt);
        let prompt_tokens = chain.tokens();
        chain.text(answer);
        let request = SequenceRequest {
            adapter: Some(adapter).filter(|adapter| !adapter.is_empty()).map(Arc::from),
            chain: chain.clone().into_hashes().into(),
            ..request(id, prompt_tokens, chain.tokens() - prompt_tokens)
        };
        self.instance.enqueue(self.now, request)
    }

    fn step(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let ends = self.instance.start_step(self.now, |event| events.push(event));
        let config = self.instance.config();
        let stats = self.instance.stats();
        let tokens: u32 = self.instance.batch().iter().map(|part| part.new).sum();
        assert!(tokens <= config.max_num_batched_tokens.get());
        assert!(stats.load.running <= config.max_num_seqs.get());
        assert!(stats.running_adapters.len() <= config.max_loras.get() as usize);
        self.instance.assert_conserved();
        if let Some(ends) = ends {
            self.now = ends;
            self.instance.finish_step(ends, |event| events.push(event));
            self.instance.assert_conserved();
        }
        events
    }

    /// Steps until there is nothing left to do.
    fn run(&mut self) -> Vec<Vec<Event>> {
        std::iter::from_fn(|| {
            let events = self.step();
            (!self.instance.batch().is_empty()).then_some(events)
        })
        .collect()
    }
}

fn small() -> InstanceConfig {
    InstanceConfig {
        max_num_seqs: count(8),
        max_num_batched_tokens: count(64),
        block_tokens: count(4),
        kv_blocks: count(32),
        ..InstanceConfig::default()
    }
}

/// A sequence of which the text does not matter: its blocks have no names.
fn request(id: u64, prompt_tokens: u32, output_tokens: u32) -> SequenceRequest {
    SequenceRequest {
        id: RequestId(id),
        arrival: Timestamp::ZERO,
        priority: 0,
        adapter: None,
        prompt_tokens,
        output_tokens,
        max_output_tokens: None,
        chain: Arc::new([]),
    }
}

fn count(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).unwrap()
}

fn finished(events: &[Event]) -> Vec<u64> {
    let ids = events.iter().filter_map(|event| match event {
        Event::Finished { id, .. } => Some(id.0),
        _ => None,
    });
    ids.collect()
}

fn ended(id: u64) -> Event {
    Event::Finished {
        id: RequestId(id),
        length_capped: false,
    }
}

/// Who entered the batch for the first time, in order.
fn admitted(events: &[Event]) -> Vec<u64> {
    let ids = events.iter().filter_map(|event| match event {
        Event::Admitted { id, .. } => Some(id.0),
        _ => None,
    });
    ids.collect()
}
