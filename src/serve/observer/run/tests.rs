use std::future::pending;
use std::num::NonZeroU32;

use super::super::observed::Lateness;
use super::super::testing::Script;
use super::*;
use crate::engine::config::SourceName;
use crate::sim::report::check;
use crate::sim::trace::Row;
use crate::sim::workload::flags::{FlagWorkload, Load, TokenRange};
use crate::sim::workload::spec::{self, ProcessName, WorkloadSpec};
use crate::sim::workload::{PlanOptions, plan};

const MS: u64 = 1000;

fn options() -> Options {
    Options {
        model: "m".into(),
        max_concurrency: NonZeroUsize::new(256).unwrap(),
        warmup_requests: 0,
        patience: None,
        streaming: true,
        context_grows: false,
        record_itl: false,
        words: Words::new(1),
    }
}

fn lengths(tokens: f64) -> TokenRange {
    TokenRange {
        mean: tokens,
        std_dev: 0.0,
        min: tokens,
        max: tokens,
    }
}

/// So many requests, with answers of one token.
fn flags(load: Load, num_requests: u64) -> WorkloadSpec {
    let flags = FlagWorkload {
        prompt: lengths(32.0),
        output: lengths(1.0),
        load,
        num_requests: Some(num_requests),
        ..FlagWorkload::default()
    };
    flags.spec()
}

fn at_rate(per_second: f64, num_requests: u64) -> WorkloadSpec {
    let arrival = ProcessName::Constant;
    flags(Load::Rate { per_second, arrival }, num_requests)
}

fn file(text: &str) -> WorkloadSpec {
    match spec::load(text, &SourceName::Flag) {
        Ok(loaded) => loaded.spec,
        Err(errors) => panic!("{errors}"),
    }
}

async fn run_until(
    spec: &WorkloadSpec,
    server: &Arc<Script>,
    options: &Options,
    stop: impl Future<Output = ()>,
) -> Observed {
    let workload = plan(spec, &PlanOptions::new(NonZeroU32::new(16).unwrap())).unwrap();
    observe(workload, Arc::clone(server), options, stop, |_| {}).await
}

async fn run(spec: &WorkloadSpec, server: &Arc<Script>, options: &Options) -> Observed {
    run_until(spec, server, options, pending()).await
}

fn server(latency_ms: u64) -> Arc<Script> {
    Arc::new(Script::answering(Duration::from_millis(latency_ms)))
}

// === Pacing ===

#[tokio::test(start_paused = true)]
async fn requests_are_sent_when_they_arrive_however_long_answers_take() {
    let server = server(10_000);

    let observed = run(&at_rate(10.0, 5), &server, &options()).await;

    assert_eq!(server.asked_at_ms(), [0, 100, 200, 300, 400]);
    assert_eq!(observed.lateness.late, 0);
    for Row {
        arrival_time_us,
        send_time_us,
        last_chunk_time_us,
        ..
    } in observed.rows()
    {
        // Timers count in milliseconds.
        assert!((arrival_time_us..arrival_time_us + MS).contains(&send_time_us));
        assert_eq!(last_chunk_time_us, send_time_us + 10_000 * MS);
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_are_under_way_than_allowed_and_who_has_to_wait_is_late() {
    let server = server(1000);
    let options = Options {
        max_concurrency: NonZeroUsize::new(2).unwrap(),
        ..options()
    };

    let observed = run(&at_rate(10.0, 5), &server, &options).await;

    assert_eq!(server.asked_at_ms(), [0, 100, 1000, 1100, 2000]);
    assert_eq!(server.most_at_once(), 2);
    let Lateness { late, waited, most_us } = observed.lateness;
    assert_eq!((late, waited, most_us / MS), (3, 3, 1600));
    let waited = observed
        .rows()
        .iter()
        .map(|row| row.send_time_us - row.arrival_time_us)
        .max();
    assert_eq!(waited, Some(most_us));
    assert_eq!(observed.run_record().requests[4].ttft_us, Some(1000 * MS));
}

#[tokio::test(start_paused = true)]
async fn users_think_after_each_answer() {
    let server = server(500);
    let load = Load::Users {
        users: NonZeroU32::new(2).unwrap(),
        think_time_us: 200 * MS,
    };

    let observed = run(&flags(load, 6), &server, &options()).await;

    assert_eq!(server.asked_at_ms(), [0, 100, 700, 800, 1400, 1500]);
    assert_eq!(observed.rows()[5].round_index, 2);
    assert_eq!(server.most_at_once(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_warms_up_is_sent_and_not_recorded() {
    let server = server(1);
    let options = Options {
        warmup_requests: 3,
        ..options()
    };

    let observed = run(&at_rate(10.0, 5), &server, &options).await;

    let ids: Vec<_> = observed.rows().iter().map(|row| row.request_id).collect();
    assert_eq!((server.asked().len(), observed.warmed_up, ids), (5, 3, vec![3, 4]));
    let record = observed.run_record();
    assert_eq!((record.requests[0].arrival_us, record.end_us), (0, 101 * MS));
}

// === Ends ===

#[tokio::test(start_paused = true)]
async fn a_client_gives_up_after_its_own_time_or_else_after_everybodys() {
    let slow = server(10_000);
    let mut workload = at_rate(10.0, 2);
    workload.clients[0].timeout = Some(2_000_000);
    let own = run(&workload, &slow, &options()).await;
    workload.clients[0].timeout = None;
    let patience = Some(Duration::from_secs(3));
    let everybodys = run(&workload, &slow, &Options { patience, ..options() }).await;

    assert_eq!((own.count(Status::Timeout), everybodys.count(Status::Timeout)), (2, 2));
    let row = &own.rows()[0];
    assert_eq!(row.deadline_us, row.send_time_us + 2_000_000);
    assert_eq!(own.end_us, 2_200 * MS);
    assert_eq!((everybodys.rows()[0].deadline_us, everybodys.end_us), (0, 3_200 * MS));
    assert_eq!(slow.most_at_once(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_stopped_sends_nothing_more_and_keeps_what_was_seen() {
    let server = server(250);
    let stop = sleep(Duration::from_millis(620));

    let observed = run_until(&at_rate(10.0, 50), &server, &options(), stop).await;

    assert!(observed.cut_short);
    assert_eq!(server.asked().len(), 6);
    assert_eq!((observed.count(Status::Ok), observed.count(Status::Incomplete)), (3, 3));
    assert_eq!(observed.end_us, 620 * MS);
    assert_eq!(observed.errors(), [(3, "the run was stopped")]);
    assert!(check(&observed.run_record(), 6).is_ok());
}

#[tokio::test(start_paused = true)]
async fn errors_are_kept_and_the_books_balance() {
    let server = Arc::new(Script::failing(Trouble::Failed("503: busy".to_owned())));

    let observed = run(&at_rate(10.0, 4), &server, &options()).await;

    assert_eq!(observed.errors(), [(4, "503: busy")]);
    assert!(check(&observed.run_record(), 4).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_user_whose_request_fails_sends_no_more() {
    let server = Arc::new(Script::failing(Trouble::Failed("503: busy".to_owned())));
    let load = Load::Users {
        users: NonZeroU32::new(2).unwrap(),
        think_time_us: 0,
    };

    let observed = run(&flags(load, 100), &server, &options()).await;

    assert_eq!(observed.rows().len(), 2);
}

// === What is sent, and what is recorded ===

const CLASSES: &str = "
version: 2
aggregate_rate: 10
num_requests: 4
clients:
- {id: a, tenant_id: red, slo_class: critical, slo_target_us: 70500, rate_fraction: 1, adapter: lora-a,
   arrival: {process: constant}, input_distribution: &one {type: constant, params: {value: 10}}, output_distribution: *one}
- {id: b, tenant_id: blue, slo_class: background, rate_fraction: 1, arrival: {process: constant},
   input_distribution: *one, output_distribution: *one}
";

#[tokio::test(start_paused = true)]
async fn what_a_client_is_goes_with_its_requests() {
    let server = server(1);

    let observed = run(&file(CLASSES), &server, &options()).await;

    let asked = server.asked();
    let of = |tenant: &str| asked.iter().find(|ask| &*ask.tenant == tenant).unwrap();
    let (red, blue) = (of("red"), of("blue"));
    assert_eq!(
        (&*red.class, red.priority, red.slo_target_us),
        ("critical", Some(0), Some(70_500))
    );
    assert_eq!(
        (&*blue.class, blue.priority, blue.slo_target_us),
        ("background", Some(7), None)
    );
    assert_eq!((&*red.model, &*blue.model), ("lora-a", "m"));
    for row in observed.rows() {
        let ask = asked.iter().find(|ask| ask.id == *row.x_request_id).unwrap();
        assert_eq!(
            (&*row.tenant_id, row.vllm_priority),
            (&*ask.tenant, ask.priority.map(i64::from))
        );
        assert_eq!((&*row.model, row.streaming, row.output_tokens), ("m", true, 10));
    }
}

#[tokio::test(start_paused = true)]
async fn every_piece_can_be_recorded() {
    let server = server(20);
    let options = Options {
        record_itl: true,
        ..options()
    };

    let observed = run(&file(CLASSES), &server, &options).await;

    let pieces = observed.itl_rows();
    assert_eq!(pieces.len(), 40);
    assert_eq!(
        (pieces[0].request_id, pieces[9].chunk_index, pieces[10].request_id),
        (0, 9, 1)
    );
    assert_eq!(pieces[1].timestamp_us - pieces[0].timestamp_us, 20 * MS);
    let record = observed.run_record();
    assert_eq!(record.instance_itl[0].iter().collect::<Vec<_>>(), [(20 * MS, 36)]);
    assert_eq!(record.itl.len(), 2);
    assert!(check(&record, 4).is_ok());
}

fn conversation(closed_loop: bool) -> WorkloadSpec {
    file(&format!(
        "
version: 2
aggregate_rate: 10
num_requests: 3
clients:
- {{id: a, rate_fraction: 1, closed_loop: {closed_loop}, prefix_group: g, prefix_length: 32,
   arrival: {{process: constant}}, input_distribution: &ten {{type: constant, params: {{value: 10}}}}, output_distribution: *ten,
   reasoning: {{multi_turn: {{max_rounds: 3, think_time_us: 1000000, context_growth: accumulate, single_session: true}}}}}}
"
    ))
}

#[tokio::test(start_paused = true)]
async fn turns_repeat_what_was_asked_and_answered() {
    let server = server(50);
    let options = Options {
        context_grows: true,
        ..options()
    };

    let observed = run(&conversation(true), &server, &options).await;

    let asked = server.asked();
    assert_eq!(
        asked.iter().map(|ask| ask.messages.len()).collect::<Vec<_>>(),
        [1, 3, 5]
    );
    for (before, next) in asked.iter().zip(&asked[1..]) {
        let (said, new) = next.messages.split_at(before.messages.len());
        assert_eq!(said, before.messages);
        assert_eq!((&*new[0].text, new[1].text.len()), (&*" sea".repeat(10), 10 * 4));
    }
    let contexts: Vec<_> = observed.rows().iter().map(|row| row.context_tokens).collect();
    assert_eq!(contexts, [None, Some(52), Some(72)]);
    assert_eq!(server.asked_at_ms(), [0, 1500, 3000]);
}

#[tokio::test(start_paused = true)]
async fn turns_that_do_not_wait_for_answers_repeat_the_prompts() {
    let server = server(50);
    let options = Options {
        context_grows: true,
        ..options()
    };

    run(&conversation(false), &server, &options).await;

    let prompts: Vec<_> = server.asked().iter().map(|ask| ask.messages[0].text.clone()).collect();
    assert_eq!(prompts.len(), 3);
    for (before, next) in prompts.iter().zip(&prompts[1..]) {
        assert!(next.starts_with(&**before) && next.len() > before.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_trace_of_conversations_can_be_replayed() {
    use crate::sim::trace::{Header, Mode, ReplayOptions, SessionMode, replay};
    use crate::sim::workload::{Limits, think::Think};

    let server = Arc::new(Script::answering(Duration::from_millis(50)).counting(60));
    let options = Options {
        context_grows: true,
        ..options()
    };
    for closed_loop in [true, false] {
        let rows = run(&conversation(closed_loop), &server, &options).await.rows();
        let replayed = ReplayOptions {
            block_tokens: NonZeroU32::new(16).unwrap(),
            seed: 1,
            limits: Limits::default(),
            session_mode: SessionMode::Fixed,
            think: Think::Recorded,
        };

        let replayed = replay(&Header::new(Mode::Real), rows, &replayed);

        assert!(replayed.is_ok(), "{replayed:?}");
    }
}
