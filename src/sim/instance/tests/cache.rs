//! What is counted of the KV cache, and what is told of it.

use super::*;

#[test]
fn claimed_blocks_are_hits_and_fresh_ones_misses() {
    let mut server = Server::new(small());
    server.enqueue(1, &[b'p'; 4 * 10], 4).unwrap();
    server.run();
    let first = server.instance.totals();
    server.enqueue(2, &[b'p'; 4 * 10], 1).unwrap();
    server.run();
    let second = server.instance.totals();

    // Thirteen tokens are computed, the last of the answer is not: four blocks. Then two full ones are found again.
    assert_eq!((first.block_hits, first.block_misses), (0, 4));
    assert_eq!((second.block_hits, second.block_misses), (2, 5));
    assert_eq!((first.peak_kv_blocks, second.peak_kv_blocks), (4, 4));
    assert_eq!((second.steps, second.input_tokens), (5, 20));
}

#[test]
fn who_still_waits_when_a_batch_is_formed_is_counted_in_each_step() {
    let mut server = Server::new(InstanceConfig {
        max_num_seqs: count(1),
        ..small()
    });
    for id in 1..=3 {
        server.instance.enqueue(server.now, request(id, 1, 2)).unwrap();
    }

    server.run();

    let totals = server.instance.totals();
    assert_eq!((totals.steps, totals.waiting_sum), (6, 2 + 2 + 1 + 1));
}

#[test]
fn each_refusal_of_blocks_is_counted() {
    // The prompts need two blocks each, and there are three: the second waits for as long as the first runs.
    let mut server = Server::new(InstanceConfig {
        kv_blocks: count(3),
        ..small()
    });
    server.instance.enqueue(server.now, request(1, 8, 4)).unwrap();
    server.instance.enqueue(server.now, request(2, 8, 1)).unwrap();

    let steps = server.run();

    assert_eq!(steps.len(), 5);
    assert_eq!(server.instance.totals().kv_allocations_refused, 4);
    assert_eq!(server.instance.totals().preemptions, 0);
}

#[test]
fn a_prompt_that_waits_for_blocks_is_let_in_as_soon_as_another_has_computed_more_of_it() {
    // Three blocks, of which the first sequence holds two. The second needs two more than are remembered, until the
    // answer of the first fills its second block in the fourth step.
    let mut server = Server::new(InstanceConfig {
        kv_blocks: count(3),
        ..small()
    });
    let (question, answer) = ([b'q'; 4 * 5], [b'a'; 4 * 4]);
    server.enqueue_answered("", 1, &question, &answer).unwrap();
    let longer = [&question[..], &answer[..4 * 3], b"why?"].concat();
    server.enqueue(2, &longer, 1).unwrap();

    let steps = server.run();

    let admitted_in = steps.iter().position(|events| admitted(events).contains(&2));
    assert_eq!(admitted_in, Some(3), "{steps:?}");
    assert_eq!(server.instance.totals().kv_allocations_refused, 3);
}

#[test]
fn what_the_cache_stores_and_forgets_is_told_in_order_to_who_asked_for_it() {
    let mut server = Server::new(InstanceConfig {
        kv_blocks: count(2),
        ..small()
    });
    let mut events = Vec::new();
    server.enqueue(1, &[b'a'; 4 * 5], 1).unwrap();
    server.run();
    server.instance.drain_cache_events(&mut events);
    assert_eq!(events, [], "nobody asked");

    server.instance.watch_cache();
    server.enqueue(2, &[b'b'; 4 * 5], 1).unwrap();
    server.run();
    server.instance.drain_cache_events(&mut events);

    let name = |text: &[u8]| {
        let mut chain = BlockChain::new("", count(4));
        chain.text(text);
        chain.into_hashes()[0]
    };
    let (a, b) = (name(&[b'a'; 16]), name(&[b'b'; 16]));
    assert_eq!(events, [CacheEvent::Removed(a), CacheEvent::Stored(b)]);
    assert_eq!(server.instance.cached_blocks(&[b]), 1);
    assert_eq!(server.instance.cached_blocks(&[a]), 0);
    server.instance.drain_cache_events(&mut events);
    assert_eq!(events.len(), 2, "each change is told once");
}
