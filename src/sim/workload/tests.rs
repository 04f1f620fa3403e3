use std::num::NonZeroU32;

use proptest::prelude::*;

use super::super::instance::BlockChain;
use super::super::request::{Arrivals, Ended, SimRequest};
use super::chance::{Range, Stream};
use super::flags::{FlagWorkload, Load, Preset};
use super::spec::{ArrivalSpec, ClientSpec, DistributionSpec, LifecycleSpec, ProcessName, WindowSpec, WorkloadSpec};
use super::*;
use crate::engine::config::SourceName;

fn block_tokens() -> NonZeroU32 {
    NonZeroU32::new(16).unwrap()
}

fn options() -> PlanOptions {
    PlanOptions::new(block_tokens())
}

fn at_most(requests: u64) -> PlanOptions {
    PlanOptions {
        limits: Limits {
            max_requests: Some(requests),
            ..Limits::default()
        },
        ..options()
    }
}

fn read(text: &str) -> WorkloadSpec {
    match spec::load(text, &SourceName::Flag) {
        Ok(loaded) => loaded.spec,
        Err(errors) => panic!("{errors}"),
    }
}

fn planned(spec: &WorkloadSpec, options: &PlanOptions) -> Workload {
    plan(spec, options).unwrap_or_else(|error| panic!("{error}"))
}

fn all(mut workload: Workload) -> Vec<SimRequest> {
    std::iter::from_fn(|| workload.take()).collect()
}

/// Serves everything at once: each request ends `latency_us` after its arrival.
fn served(mut workload: Workload, latency_us: u64, how: impl Fn(&SimRequest) -> Ended) -> (Vec<SimRequest>, Workload) {
    let mut requests = Vec::new();
    let mut running: Vec<(u64, SimRequest)> = Vec::new();
    loop {
        running.sort_by_key(|&(ends, _)| std::cmp::Reverse(ends));
        let end = running.last().map(|&(ends, _)| ends);
        match (workload.next_arrival(), end) {
            (Some(arrival), end) if end.is_none_or(|end| arrival <= end) => {
                let request = workload.take().unwrap();
                assert_eq!(request.arrival_us, arrival);
                running.push((arrival + latency_us, request.clone()));
                requests.push(request);
            }
            (_, Some(_)) => {
                let (ends, request) = running.pop().unwrap();
                workload.ended(&request, ends, how(&request));
            }
            (None, None) | (Some(_), None) => return (requests, workload),
        }
    }
}

fn in_full(request: &SimRequest) -> Ended {
    Ended::Completed {
        output_tokens: request.output_tokens,
    }
}

// === The reference's numbers ===

#[test]
fn the_default_workload_is_that_of_the_reference() {
    let flags = FlagWorkload {
        load: Load::Rate {
            per_second: 10.0,
            arrival: ProcessName::Constant,
        },
        num_requests: Some(5),
        ..FlagWorkload::default()
    };

    let requests = all(planned(&flags.spec(), &options()));

    let sizes: Vec<_> = requests
        .iter()
        .map(|request| (request.arrival_us, request.prompt_tokens, request.output_tokens))
        .collect();
    assert_eq!(
        sizes,
        [
            (99_999, 185, 1208),
            (199_998, 478, 689),
            (299_997, 321, 251),
            (399_996, 312, 348),
            (499_995, 436, 848)
        ]
    );
    assert_eq!(requests[4].name.to_string(), "request_4");
    assert_eq!(requests[4].deadline_us, Some(300_499_995));
    assert_eq!(requests[0].chain.len(), (185 + 1208) / 16);
}

/// What the reference does, word for word (spec, simulator 18.5), with everything in memory.
fn materialised(spec: &WorkloadSpec, seed: u64, horizon_us: u64, most: usize) -> Vec<(u64, u32, u32, Vec<u64>)> {
    let tokens = |chance: &mut Stream, count: u32| -> Vec<u32> {
        (0..count).map(|_| chance.below(Range::below(128_000))).collect()
    };
    let mut chance = Stream::named(seed, "workload-gen");
    let mut prefixes: Vec<(String, Vec<u32>)> = Vec::new();
    for client in &spec.clients {
        if !client.prefix_group.is_empty() && !prefixes.iter().any(|(group, _)| *group == client.prefix_group) {
            let prefix = tokens(&mut chance, client.prefix_length.unwrap());
            prefixes.push((client.prefix_group.clone(), prefix));
        }
    }
    let fractions: f64 = spec.clients.iter().filter_map(|client| client.rate_fraction).sum();
    let mut requests = Vec::new();
    for client in &spec.clients {
        let mut own = Stream::seeded(chance.seed());
        let rate = spec.aggregate_rate * client.rate_fraction.unwrap() / fractions / 1e6;
        let gaps = client.arrival.as_ref().unwrap().process().unwrap().at(rate);
        let input = client.input_distribution.as_ref().unwrap().lengths().unwrap();
        let output = client.output_distribution.as_ref().unwrap().lengths().unwrap();
        let prefix = prefixes.iter().find(|(group, _)| *group == client.prefix_group);
        let mut now = 0;
        for _ in 0..2 * most {
            now += gaps.sample(&mut own);
            if now >= horizon_us {
                break;
            }
            let (input, output) = (input.sample(&mut own), output.sample(&mut own));
            let mut chain = BlockChain::new("", block_tokens());
            prefix
                .into_iter()
                .flat_map(|(_, tokens)| tokens)
                .for_each(|&token| chain.token(token));
            tokens(&mut own, input).into_iter().for_each(|token| chain.token(token));
            let prompt = chain.tokens();
            tokens(&mut own, output)
                .into_iter()
                .for_each(|token| chain.token(token));
            requests.push((now, prompt, output, chain.into_hashes()));
        }
    }
    requests.sort_by_key(|request| request.0);
    requests.truncate(most);
    requests
}

fn clients() -> impl Strategy<Value = Vec<ClientSpec>> {
    let client = (0..4_usize, 0.1..3.0, 0..3_u32, 1..60_u32).prop_map(|(process, fraction, group, input)| ClientSpec {
        rate_fraction: Some(fraction),
        arrival: Some(ArrivalSpec::of(ProcessName::ALL[process])),
        input_distribution: Some(DistributionSpec::constant(input)),
        output_distribution: FlagWorkload::of(Preset::Chatbot).spec().clients[0]
            .output_distribution
            .clone(),
        prefix_group: if group > 0 {
            format!("group-{group}")
        } else {
            String::new()
        },
        prefix_length: (group > 0).then_some(input),
        ..ClientSpec::default()
    });
    proptest::collection::vec(client, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn requests_made_one_by_one_are_those_that_would_be_laid_out_and_sorted(
        clients in clients(),
        // Fast enough for requests of several clients to arrive in the same microsecond.
        rate in prop_oneof![Just(5.0), Just(2_000_000.0)],
        seed: u32,
        most in 1..40_usize,
        horizon_us in prop_oneof![Just(20_u64), Just(3_000_000), Just(u64::MAX / 4)],
    ) {
        let spec = WorkloadSpec { version: "2".to_owned(), aggregate_rate: rate, clients, ..WorkloadSpec::default() };
        let options = PlanOptions {
            seed: Some(u64::from(seed)),
            limits: Limits { horizon_us: Some(horizon_us), max_requests: Some(most as u64) },
            ..options()
        };

        let requests = all(planned(&spec, &options));

        let expected = materialised(&spec, u64::from(seed), horizon_us, most);
        prop_assert_eq!(requests.len(), expected.len());
        for (at, (request, expected)) in requests.iter().zip(expected).enumerate() {
            let (arrival_us, prompt, output, chain) = expected;
            prop_assert_eq!(request.arrival_us, arrival_us);
            prop_assert_eq!((request.prompt_tokens, request.output_tokens), (prompt, output));
            prop_assert_eq!(&request.chain[..], &chain[..]);
            prop_assert_eq!(request.name.to_string(), format!("request_{at}"));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_requests_and_another_one_does_not() {
    let spec = FlagWorkload::of(Preset::Summarization).spec();
    let chains = |seed| {
        let options = PlanOptions {
            seed: Some(seed),
            ..at_most(3)
        };
        let requests = all(planned(&spec, &options));
        requests.into_iter().map(|request| request.chain).collect::<Vec<_>>()
    };

    assert_eq!(chains(1), chains(1));
    assert_ne!(chains(1), chains(2));
}

#[test]
fn a_group_shares_its_prefix_and_adapters_do_not_share_blocks() {
    let spec = read(
        "
version: 2
aggregate_rate: 30
clients:
- {id: a, rate_fraction: 1, prefix_group: g, prefix_length: 64, arrival: {process: constant},
   input_distribution: &one {type: constant, params: {value: 16}}, output_distribution: *one}
- {id: b, rate_fraction: 1, prefix_group: g, prefix_length: 9, arrival: {process: constant},
   input_distribution: *one, output_distribution: *one}
- {id: c, rate_fraction: 1, prefix_group: g, adapter: lora, arrival: {process: constant},
   input_distribution: *one, output_distribution: *one}
",
    );

    let requests = all(planned(&spec, &at_most(3)));

    let [a, b, c] = &requests[..] else {
        panic!("{requests:?}")
    };
    assert_eq!(
        (a.prompt_tokens, b.prompt_tokens),
        (80, 80),
        "the first client of a group decides"
    );
    assert_eq!(a.chain[..4], b.chain[..4]);
    assert_ne!(a.chain[4], b.chain[4]);
    assert_ne!(a.chain[0], c.chain[0]);
}

// === Limits ===

#[test]
fn requests_without_end_are_refused() {
    let spec = WorkloadSpec {
        num_requests: None,
        ..FlagWorkload::default().spec()
    };

    let error = plan(&spec, &options()).unwrap_err();

    assert!(
        error.to_string().contains("`distribution` sends requests without end"),
        "{error}"
    );
    assert!(error.to_string().contains("--num-requests"), "{error}");
}

#[test]
fn what_is_given_for_the_run_goes_before_what_the_description_says() {
    let spec = WorkloadSpec {
        horizon: Some(1_500_000),
        seed: Some(7),
        ..FlagWorkload::default().spec()
    };
    let longer = PlanOptions {
        limits: Limits {
            horizon_us: Some(3_500_000),
            max_requests: Some(2),
        },
        ..options()
    };

    assert_eq!(options().seed_for(&spec), 7);
    assert_eq!(all(planned(&spec, &options())).len(), 1);
    assert_eq!(all(planned(&spec, &longer)).len(), 2);
}

#[test]
fn a_window_that_would_never_be_filled_is_refused() {
    let mut spec = FlagWorkload::default().spec();
    spec.clients[0].lifecycle = Some(LifecycleSpec {
        windows: vec![WindowSpec {
            start_us: 0,
            end_us: u64::MAX,
            trace_rate: Some(1.0),
            ..WindowSpec::default()
        }],
    });

    let error = plan(&spec, &options()).unwrap_err();

    assert!(matches!(error, PlanError::TooMany { .. }), "{error}");
}

// === Windows ===

#[test]
fn requests_of_a_window_keep_prefix_and_timeout_and_have_its_lengths() {
    let spec = read(
        "
version: 2
aggregate_rate: 0
clients:
- rate_fraction: 1
  timeout: 5000000
  prefix_group: g
  prefix_length: 32
  arrival: {process: poisson}
  input_distribution: {type: constant, params: {value: 10}}
  output_distribution: {type: constant, params: {value: 3}}
  lifecycle:
    windows:
    - {start_us: 2000000, end_us: 3000000, trace_rate: 4, input_distribution: {type: constant, params: {value: 7}}}
    - {start_us: 0, end_us: 1000000, trace_rate: 2.5, output_distribution: {type: constant, params: {value: 9}}}
",
    );

    let requests = all(planned(&spec, &options()));

    let sizes: Vec<_> = requests
        .iter()
        .map(|request| (request.prompt_tokens, request.output_tokens))
        .collect();
    assert_eq!(sizes, [[(42, 9); 3].as_slice(), &[(39, 3); 4]].concat());
    assert_eq!(requests[2].arrival_us, 1_000_000);
    assert_eq!(requests[6].arrival_us, 3_000_000);
    for request in &requests {
        assert_eq!(request.deadline_us, Some(request.arrival_us + 5_000_000));
        assert_eq!(request.chain[..2], requests[0].chain[..2]);
    }
}

#[test]
fn inference_perf_sends_exactly_rate_times_duration() {
    let spec = read(
        "
version: 2
inference_perf:
  stages: [{rate: 8, duration: 10}, {rate: 20, duration: 5}]
  shared_prefix: {num_unique_system_prompts: 3, num_users_per_system_prompt: 2, system_prompt_len: 100,
    question_len: 20, output_len: 30}
",
    );

    let requests = all(planned(&spec, &options()));

    let first = requests
        .iter()
        .filter(|request| request.arrival_us <= 10_000_000)
        .count();
    assert_eq!((first, requests.len()), (80, 180));
    assert!(requests.iter().all(|request| request.prompt_tokens == 120));
    assert!(requests.is_sorted_by_key(|request| request.arrival_us));
}

/// The load of one of the reference's golden experiments, with its sums: 5100 requests, 2,789,700 tokens of prompts and
/// 1,264,800 of answers.
#[test]
fn no_turn_of_an_inference_perf_chat_repeats_what_was_said_before() {
    let spec = read(
        "
version: 2
num_requests: 5100
inference_perf:
  stages: [{rate: 2.5, duration: 600}, {rate: 6, duration: 600}]
  shared_prefix: {num_unique_system_prompts: 9, num_users_per_system_prompt: 5, system_prompt_len: 100,
    question_len: 447, output_len: 248, enable_multi_turn_chat: true}
",
    );

    let (requests, workload) = served(planned(&spec, &options()), 6_000_000, in_full);

    assert_eq!(requests.len(), 5100);
    assert!(requests.iter().all(|request| request.prompt_tokens == 547));
    assert!(requests.iter().all(|request| request.output_tokens == 248));
    assert_eq!(workload.sessions().completed, 90);
    let context = |request: &SimRequest| request.session.as_ref().unwrap().context_tokens;
    assert!(requests.iter().all(|request| context(request) == 0));
}

/// Arrivals that the reference's own code makes of this file.
#[test]
fn seed_42_begins_the_chats_of_inference_perf_when_the_reference_does() {
    let starts = |stages: &str| {
        let spec = read(&format!(
            "
version: 2
inference_perf:
  stages: [{stages}]
  shared_prefix: {{num_unique_system_prompts: 2, num_users_per_system_prompt: 2, system_prompt_len: 10,
    question_len: 5, output_len: 6, enable_multi_turn_chat: true}}
"
        ));
        let mut workload = planned(&spec, &options());
        let opening = std::iter::from_fn(|| workload.take());
        opening.map(|request| request.arrival_us).collect::<Vec<u64>>()
    };

    assert_eq!(
        starts("{rate: 2, duration: 30}"),
        [288_205, 416_471, 980_881, 2_959_704]
    );
    assert_eq!(
        starts("{rate: 2, duration: 30}, {rate: 4, duration: 20}"),
        [
            412_712, 554_534, 956_273, 2_495_330, 30_037_695, 30_698_577, 30_925_655, 31_092_269
        ]
    );
}

#[test]
fn a_prompt_of_several_media_is_as_long_as_all_of_them() {
    let spec = read(
        "
version: 2
aggregate_rate: 1
clients:
- rate_fraction: 1
  arrival: {process: constant}
  output_distribution: {type: constant, params: {value: 3}}
  multimodal:
    text_distribution: {type: constant, params: {value: 10}}
    image_distribution: {type: constant, params: {value: 100}}
    image_count_distribution: {type: constant, params: {value: 3}}
    audio_distribution: {type: constant, params: {value: 7}}
    video_distribution: {type: constant, params: {value: 5}}
    video_count_distribution: {type: constant, params: {value: 0}}
  reasoning:
    reason_ratio_distribution: {type: constant, params: {value: 40}}
",
    );

    let requests = all(planned(&spec, &at_most(1)));

    let media = requests[0].media;
    assert_eq!((media.text, media.image, media.audio, media.video), (10, 300, 7, 0));
    assert_eq!((requests[0].prompt_tokens, requests[0].reason_ratio), (317, 0.4));
}

// === Conversations and users ===

fn chat(extra: &str) -> WorkloadSpec {
    read(&format!(
        "
version: 2
aggregate_rate: 20
clients:
- id: chat
  rate_fraction: 1
  prefix_group: g
  prefix_length: 32
  arrival: {{process: poisson}}
  input_distribution: {{type: gaussian, params: {{mean: 60, std_dev: 20, min: 20, max: 100}}}}
  output_distribution: {{type: gaussian, params: {{mean: 60, std_dev: 20, min: 20, max: 100}}}}
  reasoning: {{multi_turn: {{max_rounds: 4, think_time_us: 500000, context_growth: accumulate}}}}
  {extra}
"
    ))
}

#[test]
fn a_request_cap_counts_the_turns_of_conversations_too() {
    let (requests, workload) = served(planned(&chat(""), &at_most(22)), 70_000, in_full);

    assert_eq!(requests.len(), 22);
    let tally = workload.sessions();
    assert_eq!((tally.started, tally.completed, tally.budget_exhausted), (6, 5, 1));
}

#[test]
fn a_turn_goes_on_from_what_was_really_said_before() {
    let short = |request: &SimRequest| Ended::Completed {
        output_tokens: request.output_tokens - 17,
    };

    let (requests, _) = served(planned(&chat(""), &at_most(8)), 1000, short);

    for request in &requests {
        let place = request.session.as_ref().unwrap();
        let before = requests.iter().find(|other| {
            let other = other.session.as_ref().unwrap();
            other.session == place.session && other.round + 1 == place.round
        });
        let Some(before) = before else {
            assert_eq!((place.round, place.context_tokens), (0, 0));
            continue;
        };
        let context = before.prompt_tokens + before.output_tokens - 17;
        assert_eq!(place.context_tokens, context);
        let shared = context as usize / 16;
        assert_eq!(request.chain[..shared], before.chain[..shared]);
        assert_ne!(request.chain[shared], before.chain[shared]);
    }
}

#[test]
fn a_later_turn_has_a_name_of_its_own_and_a_deadline() {
    let (requests, _) = served(planned(&chat(""), &at_most(4)), 1000, in_full);

    assert_eq!(requests[0].name.to_string(), "request_0");
    assert_eq!(requests[1].name.to_string(), "session_chat-0_round_1_0");
    assert_eq!(requests[1].arrival_us, requests[0].arrival_us + 501_000);
    assert_eq!(requests[1].deadline_us, Some(requests[1].arrival_us + 300_000_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_conversation_ends_once_and_no_turn_comes_before_its_time(
        latency_us in 1..3_000_000_u64,
        horizon_us in 1_000_000..20_000_000_u64,
        most in proptest::option::of(1..80_u64),
        unlucky in 1..9_u32,
    ) {
        let options = PlanOptions {
            limits: Limits { horizon_us: Some(horizon_us), max_requests: most },
            ..options()
        };
        let how = |request: &SimRequest| match request.output_tokens % unlucky {
            7 => Ended::TimedOut,
            5 => Ended::Lost,
            _ => in_full(request),
        };

        let (requests, workload) = served(planned(&chat(""), &options), latency_us, how);

        let tally = workload.sessions();
        prop_assert_eq!(tally.open(), 0);
        prop_assert_eq!(tally.started, requests.iter().filter(|r| r.session.as_ref().unwrap().round == 0).count() as u64);
        prop_assert!(most.is_none_or(|most| requests.len() as u64 <= most));
        prop_assert!(requests.is_sorted_by_key(|request| request.arrival_us));
        for request in &requests {
            let place = request.session.as_ref().unwrap();
            let before = requests.iter().find(|other| {
                let other = other.session.as_ref().unwrap();
                other.session == place.session && other.round + 1 == place.round
            });
            prop_assert_eq!(before.is_some(), place.round > 0);
            prop_assert!(before.is_none_or(|before| request.arrival_us == before.arrival_us + latency_us + 500_000));
        }
    }
}

#[test]
fn in_an_open_loop_turns_do_not_wait_for_answers() {
    let requests = all(planned(&chat("closed_loop: false"), &at_most(200)));

    assert!(requests.is_sorted_by_key(|request| request.arrival_us));
    let place = |request: &SimRequest| request.session.clone().unwrap();
    let session = place(&requests[0]).session;
    let turns: Vec<_> = requests
        .iter()
        .filter(|request| place(request).session == session)
        .collect();
    assert_eq!(turns.len(), 4);
    for pair in turns.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        let spoken = u64::from(before.output_tokens);
        assert_eq!(after.arrival_us, before.arrival_us + 500_000 + spoken);
        let context = before.prompt_tokens + before.output_tokens;
        assert_eq!(place(after).context_tokens, context);
        assert_eq!(after.chain[..context as usize / 16], before.chain[..]);
    }
}

#[test]
fn users_start_one_after_the_other_and_go_on_until_the_cap() {
    let flags = FlagWorkload {
        load: Load::Users {
            users: NonZeroU32::new(4).unwrap(),
            think_time_us: 1000,
        },
        num_requests: Some(11),
        ..FlagWorkload::default()
    };

    let (requests, workload) = served(planned(&flags.spec(), &options()), 10_000, in_full);

    let arrivals: Vec<u64> = requests.iter().map(|request| request.arrival_us).collect();
    assert_eq!(
        arrivals,
        [0, 250, 500, 750, 11_000, 11_250, 11_500, 11_750, 22_000, 22_250, 22_500]
    );
    assert_eq!(workload.sessions().budget_exhausted, 4);
    assert!(
        requests
            .iter()
            .all(|request| request.session.as_ref().unwrap().context_tokens == 0)
    );
}
