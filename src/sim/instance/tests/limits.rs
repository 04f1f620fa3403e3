//! What is refused, and where an answer ends.

use super::*;

#[test]
fn a_prompt_that_leaves_no_room_for_an_answer_is_refused() {
    let mut server = limited(10);

    let refused = Rejected::PromptTooLong {
        prompt_tokens: 10,
        limit: 10,
    };
    assert_eq!(server.instance.enqueue(server.now, request(1, 10, 1)), Err(refused));
    assert_eq!(server.instance.enqueue(server.now, request(2, 9, 1)), Ok(()));
    assert_eq!(
        server.instance.totals().input_tokens,
        9,
        "what is refused is not counted"
    );
}

#[test]
fn the_declared_answer_decides_who_is_refused_and_not_the_true_one() {
    let mut server = limited(10);
    let declared = |id, output_tokens, max_output_tokens| SequenceRequest {
        max_output_tokens,
        ..request(id, 4, output_tokens)
    };

    let refused = Rejected::BudgetTooLong {
        prompt_tokens: 4,
        max_output_tokens: 7,
        limit: 10,
    };
    assert_eq!(
        server.instance.enqueue(server.now, declared(1, 1, Some(7))),
        Err(refused)
    );
    for (id, max_output_tokens) in [(2, Some(6)), (3, Some(0)), (4, None)] {
        let answer = server
            .instance
            .enqueue(server.now, declared(id, 100, max_output_tokens));
        assert_eq!(answer, Ok(()));
    }
}

#[test]
fn an_answer_ends_at_the_limit_of_the_model_and_is_marked_if_it_would_have_gone_on() {
    let mut server = limited(10);
    for (id, output_tokens) in [(1, 7), (2, 6), (3, 5), (4, 0)] {
        server
            .instance
            .enqueue(server.now, request(id, 4, output_tokens))
            .unwrap();
    }

    let events = server.run().concat();

    assert_eq!(ends(&events, 1), (6, true));
    assert_eq!(ends(&events, 2), (6, false));
    assert_eq!(ends(&events, 3), (5, false));
    assert_eq!(ends(&events, 4), (1, false));
}

#[test]
fn an_answer_ends_when_an_empty_cache_would_hold_no_more() {
    // Eight tokens fit, and the last token of an answer needs no place.
    let config = InstanceConfig {
        kv_blocks: count(2),
        ..small()
    };
    let mut server = Server::new(config);
    for (id, prompt_tokens, output_tokens) in [(1, 4, 100), (2, 4, 5), (3, 8, 2), (4, 8, 1)] {
        server
            .instance
            .enqueue(server.now, request(id, prompt_tokens, output_tokens))
            .unwrap();
    }

    let events = server.run().concat();

    assert_eq!(ends(&events, 1), (5, true));
    assert_eq!(ends(&events, 2), (5, false));
    assert_eq!(ends(&events, 3), (1, true));
    assert_eq!(ends(&events, 4), (1, false));
}

#[test]
fn the_longest_sequences_that_can_be_told_do_not_overflow() {
    let config = InstanceConfig {
        block_tokens: count(u32::MAX),
        kv_blocks: count(2),
        max_num_batched_tokens: count(u32::MAX),
        ..small()
    };
    let mut server = Server::new(config);
    server
        .instance
        .enqueue(server.now, request(1, u32::MAX - 1, u32::MAX))
        .unwrap();

    let events = server.run().concat();

    assert_eq!(ends(&events, 1), (1, true));
}

fn limited(max_model_len: u32) -> Server {
    Server::new(InstanceConfig {
        max_model_len: Some(count(max_model_len)),
        ..small()
    })
}

/// The tokens of a sequence's answer, and whether it was cut short.
fn ends(events: &[Event], id: u64) -> (usize, bool) {
    let id = RequestId(id);
    let tokens = events
        .iter()
        .filter(|event| matches!(event, Event::Token { id: of, .. } if *of == id));
    let capped = events.iter().find_map(|event| match event {
        Event::Finished { id: of, length_capped } if *of == id => Some(*length_capped),
        _ => None,
    });
    (tokens.count(), capped.expect("it ends"))
}
