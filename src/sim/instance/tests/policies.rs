//! Who is next, and who has to go.

use super::*;

#[test]
fn each_scheduler_has_its_order() {
    let expected = [
        (Scheduler::Fcfs, [1, 2, 3, 4, 5]),
        (Scheduler::PriorityFcfs, [4, 3, 2, 5, 1]),
        (Scheduler::Sjf, [2, 5, 4, 3, 1]),
        (Scheduler::ReversePriority, [1, 2, 5, 4, 3]),
    ];
    for (scheduler, order) in expected {
        let mut server = Server::new(InstanceConfig {
            scheduler,
            max_num_seqs: count(1),
            ..small()
        });
        // Two and five are alike but for their ids; four arrived before three.
        for (id, priority, arrival, prompt_tokens) in
            [(1, 7, 0, 9), (2, 3, 5, 2), (3, -1, 6, 8), (4, -1, 4, 8), (5, 3, 5, 2)]
        {
            server
                .instance
                .enqueue(server.now, ranked(id, priority, arrival, prompt_tokens, 1))
                .unwrap();
        }

        let events = server.run().concat();

        assert_eq!(admitted(&events), order, "{scheduler}");
    }
}

#[test]
fn who_arrives_later_may_pass_who_waits() {
    let mut server = Server::new(InstanceConfig {
        scheduler: Scheduler::PriorityFcfs,
        max_num_seqs: count(1),
        ..small()
    });
    server.instance.enqueue(server.now, ranked(1, 5, 0, 4, 3)).unwrap();
    server.step();
    server.instance.enqueue(server.now, ranked(2, 5, 1, 4, 1)).unwrap();
    server.step();
    server.instance.enqueue(server.now, ranked(3, 0, 2, 4, 1)).unwrap();

    let events = server.run().concat();

    assert_eq!(admitted(&events), [3, 2]);
}

#[test]
fn a_preempted_sequence_goes_back_to_its_rank() {
    // Six blocks of four tokens: two sequences of eight tokens fit, but not until both have sixteen.
    let resumed_before = |scheduler| {
        let mut server = Server::new(InstanceConfig {
            scheduler,
            kv_blocks: count(6),
            max_num_seqs: count(2),
            ..small()
        });
        for (id, arrival) in [(1, 0), (2, 1)] {
            server
                .instance
                .enqueue(server.now, ranked(id, 5, arrival, 8, 8))
                .unwrap();
        }
        server.step();
        server.instance.enqueue(server.now, ranked(3, 0, 2, 8, 1)).unwrap();
        let events = server.run().concat();
        let position = |wanted: u64, of: fn(&Event) -> Option<RequestId>| {
            let found = events.iter().position(|event| of(event) == Some(RequestId(wanted)));
            found.expect("it happens")
        };
        let resumed = position(2, |event| match event {
            Event::Resumed { id } => Some(*id),
            _ => None,
        });
        let admitted = position(3, |event| match event {
            Event::Admitted { id, .. } => Some(*id),
            _ => None,
        });
        resumed < admitted
    };

    assert!(resumed_before(Scheduler::Fcfs));
    assert!(!resumed_before(Scheduler::PriorityFcfs));
}

#[test]
fn the_least_urgent_makes_room_even_if_it_has_its_tokens_already() {
    // The first computes its tenth token in the blocks that it has; then the second needs a fourth block.
    let batch_of = |preemption_policy| {
        let mut server = Server::new(InstanceConfig {
            preemption_policy,
            kv_blocks: count(6),
            ..small()
        });
        server.instance.enqueue(server.now, ranked(1, 9, 0, 9, 8)).unwrap();
        server.instance.enqueue(server.now, ranked(2, 0, 1, 12, 8)).unwrap();
        server.step();
        let events = server.step();
        let preempted = events.iter().find_map(|event| match event {
            Event::Preempted { id } => Some(id.0),
            _ => None,
        });
        let prompts: Vec<u32> = server.instance.batch().iter().map(|part| part.prompt).collect();
        (preempted, prompts)
    };

    assert_eq!(batch_of(PreemptionPolicy::Fcfs), (Some(2), vec![9]));
    assert_eq!(batch_of(PreemptionPolicy::Priority), (Some(1), vec![12]));
}

#[test]
fn the_tokens_of_a_victim_are_given_to_others_in_the_same_step() {
    // The third needs blocks for its prompt, of which eight tokens fit into a step beside what the others compute. The
    // first, which has its token already, gives up two blocks and the token.
    let mut server = Server::new(InstanceConfig {
        preemption_policy: PreemptionPolicy::Priority,
        max_num_batched_tokens: count(8),
        kv_blocks: count(6),
        ..small()
    });
    for (id, priority, prompt_tokens) in [(1, 9, 5), (2, 0, 3), (3, 0, 20)] {
        server
            .instance
            .enqueue(server.now, ranked(id, priority, id, prompt_tokens, 8))
            .unwrap();
    }

    let steps: Vec<Vec<(u32, u32)>> = (0..3)
        .map(|_| {
            server.step();
            let batch = server.instance.batch().iter();
            batch.map(|part| (part.prompt, part.new)).collect()
        })
        .collect();

    assert_eq!(
        steps,
        [
            vec![(5, 5), (3, 3)],
            vec![(5, 1), (3, 1), (20, 6)],
            vec![(3, 1), (20, 7)],
        ]
    );
}

#[test]
fn of_the_least_urgent_the_latest_goes_and_of_those_the_last_that_was_admitted() {
    let first_victim = |arrivals: [u64; 3]| {
        let mut server = Server::new(InstanceConfig {
            preemption_policy: PreemptionPolicy::Priority,
            kv_blocks: count(7),
            ..small()
        });
        for ((id, priority), arrival) in [(1, 0), (2, 4), (3, 4)].into_iter().zip(arrivals) {
            server
                .instance
                .enqueue(server.now, ranked(id, priority, arrival, 8, 9))
                .unwrap();
        }
        server.run().concat().into_iter().find_map(|event| match event {
            Event::Preempted { id } => Some(id.0),
            _ => None,
        })
    };

    assert_eq!(first_victim([9, 1, 2]), Some(3));
    assert_eq!(first_victim([9, 2, 1]), Some(2));
    assert_eq!(first_victim([9, 1, 1]), Some(3));
}

#[test]
fn those_behind_one_that_gave_itself_up_are_still_served() {
    // Both need a block, and there is none: the first is the least urgent, and gives up its own.
    let mut server = Server::new(InstanceConfig {
        preemption_policy: PreemptionPolicy::Priority,
        kv_blocks: count(4),
        ..small()
    });
    server.instance.enqueue(server.now, ranked(1, 9, 0, 8, 8)).unwrap();
    server.instance.enqueue(server.now, ranked(2, 0, 1, 8, 8)).unwrap();
    server.step();

    let events = server.step();

    let (first, second) = (RequestId(1), RequestId(2));
    assert_eq!(
        events,
        [Event::Preempted { id: first }, Event::Token { id: second, index: 1 }]
    );
}

fn ranked(id: u64, priority: i32, arrival: u64, prompt_tokens: u32, output_tokens: u32) -> SequenceRequest {
    SequenceRequest {
        priority,
        arrival: Timestamp::from_nanos(arrival),
        ..request(id, prompt_tokens, output_tokens)
    }
}
