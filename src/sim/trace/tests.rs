use std::num::NonZeroU32;

use proptest::prelude::*;

use super::super::record::{End, RequestRecord};
use super::super::request::SimRequest;
use super::super::request::{Arrivals, Ended};
use super::super::workload::spec::{self, ContextGrowth, WorkloadSpec};
use super::super::workload::think::Think;
use super::super::workload::{Limits, PlanOptions, Workload, plan};
use super::*;
use crate::engine::config::SourceName;

fn block_tokens() -> NonZeroU32 {
    NonZeroU32::new(16).unwrap()
}

fn options() -> ReplayOptions {
    ReplayOptions {
        block_tokens: block_tokens(),
        seed: 42,
        limits: Limits::default(),
        session_mode: SessionMode::Fixed,
        think: Think::Recorded,
    }
}

fn chat(growth: &str, closed_loop: bool) -> WorkloadSpec {
    let text = format!(
        "
version: 2
aggregate_rate: 20
num_requests: 40
clients:
- id: chat
  rate_fraction: 3
  prefix_group: g
  prefix_length: 32
  closed_loop: {closed_loop}
  arrival: {{process: poisson}}
  input_distribution: &lengths {{type: gaussian, params: {{mean: 60, std_dev: 20, min: 20, max: 100}}}}
  output_distribution: *lengths
  reasoning: {{multi_turn: {{max_rounds: 4, think_time_us: 500000, context_growth: \"{growth}\"}}}}
- id: single
  tenant_id: other
  rate_fraction: 1
  slo_target_us: 70
  timeout: 5000
  arrival: {{process: poisson}}
  input_distribution: *lengths
  output_distribution: *lengths
"
    );
    match spec::load(&text, &SourceName::Flag) {
        Ok(loaded) => loaded.spec,
        Err(errors) => panic!("{errors}"),
    }
}

fn run_of(spec: &WorkloadSpec) -> Workload {
    plan(spec, &PlanOptions::new(block_tokens())).unwrap()
}

/// Runs all requests; each is answered in full after as many microseconds as its prompt has tokens.
fn served(mut workload: Workload) -> Vec<SimRequest> {
    let mut requests = Vec::new();
    let mut running: Vec<(u64, SimRequest)> = Vec::new();
    loop {
        running.sort_by_key(|&(ends, _)| std::cmp::Reverse(ends));
        let end = running.last().map(|&(ends, _)| ends);
        match workload.next_arrival() {
            Some(arrival) if end.is_none_or(|end| arrival <= end) => {
                let request = workload.take().unwrap();
                running.push((arrival + u64::from(request.prompt_tokens), request.clone()));
                requests.push(request);
            }
            _ => {
                let Some((ends, request)) = running.pop() else {
                    return requests;
                };
                let output_tokens = request.output_tokens;
                workload.ended(&request, ends, Ended::Completed { output_tokens });
            }
        }
    }
}

fn rows_of(requests: &[SimRequest]) -> Vec<Row> {
    let numbered = requests.iter().zip(0..);
    numbered.map(|(request, number)| Row::sent(number, request)).collect()
}

/// Through the file and back.
fn reread(rows: &[Row]) -> Vec<Row> {
    let mut file = Vec::new();
    write_rows(&mut file, rows).unwrap();
    read_rows(&file[..], "trace.csv").unwrap_or_else(|error| panic!("{error}\n{}", String::from_utf8_lossy(&file)))
}

/// Which requests begin with the same blocks as which, and for how many.
fn shared_blocks(requests: &[SimRequest]) -> Vec<Vec<usize>> {
    let shared =
        |a: &SimRequest, b: &SimRequest| a.chain.iter().zip(b.chain.iter()).take_while(|(a, b)| a == b).count();
    requests
        .iter()
        .map(|a| requests.iter().map(|b| shared(a, b)).collect())
        .collect()
}

#[test]
fn a_run_and_its_replay_send_the_same_requests_at_the_same_times_with_the_same_blocks_in_common() {
    for (growth, closed_loop) in [("accumulate", true), ("accumulate", false), ("", true)] {
        let run = served(run_of(&chat(growth, closed_loop)));
        let rows = reread(&rows_of(&run));

        let replayed = served(replay(&Header::new(Mode::Generated), rows, &options()).unwrap());

        assert_eq!(run.len(), 40);
        assert_eq!(replayed.len(), 40);
        assert!(
            rows_of(&replayed) == rows_of(&run),
            "the trace of the replay is that of the run"
        );
        for (one, other) in run.iter().zip(&replayed) {
            assert_eq!(one.arrival_us, other.arrival_us);
            assert_eq!(one.prompt_tokens, other.prompt_tokens);
            assert_eq!(one.deadline_us, other.deadline_us);
            assert_eq!(one.session, other.session);
            assert_eq!(one.client, other.client);
        }
        assert_eq!(shared_blocks(&run), shared_blocks(&replayed));
    }
}

#[test]
fn in_a_closed_loop_later_turns_wait_for_answers_as_they_did_in_the_run() {
    let run = served(run_of(&chat("accumulate", true)));
    let closed = ReplayOptions {
        session_mode: SessionMode::ClosedLoop,
        ..options()
    };

    let replayed = served(replay(&Header::new(Mode::Generated), reread(&rows_of(&run)), &closed).unwrap());

    let places = |requests: &[SimRequest]| -> Vec<_> {
        requests
            .iter()
            .map(|request| (request.arrival_us, request.prompt_tokens, request.session.clone()))
            .collect()
    };
    assert_eq!(places(&run), places(&replayed));
    assert_eq!(shared_blocks(&run), shared_blocks(&replayed));
}

#[test]
fn a_think_time_that_is_given_goes_before_the_recorded_one() {
    let run = served(run_of(&chat("", true)));
    let closed = ReplayOptions {
        session_mode: SessionMode::ClosedLoop,
        think: Think::Constant(7),
        ..options()
    };

    let replayed = served(replay(&Header::new(Mode::Generated), rows_of(&run), &closed).unwrap());

    let place = |request: &SimRequest| request.session.clone().map(|place| (place.session, place.round));
    let second = replayed
        .iter()
        .find(|request| place(request).is_some_and(|(_, round)| round == 1))
        .unwrap();
    let first = place(second).map(|(session, _)| (session, 0));
    let first = replayed.iter().find(|request| place(request) == first).unwrap();
    assert_eq!(second.arrival_us, first.arrival_us + u64::from(first.prompt_tokens) + 7);
}

#[test]
fn a_trace_of_the_reference_whose_conversations_grow_shares_what_was_said() {
    let mut header = Header::new(Mode::Real);
    header.session_context_growth = ContextGrowth::Accumulate;
    let row = |request_id, round_index, input_tokens| Row {
        request_id,
        round_index,
        input_tokens,
        session_id: "s".into(),
        output_tokens: 32,
        arrival_time_us: request_id,
        ..Row::default()
    };

    let requests = served(replay(&header, vec![row(0, 0, 64), row(1, 1, 112)], &options()).unwrap());

    assert_eq!(requests[1].chain[..6], requests[0].chain[..]);
    assert_eq!(requests[1].prompt_tokens, 112);
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let row = |request_id, session: &str, round_index, prefix_length, context_tokens| Row {
        request_id,
        session_id: session.into(),
        round_index,
        prefix_group: if prefix_length > 0 { "g".into() } else { "".into() },
        prefix_length,
        input_tokens: 100,
        output_tokens: 10,
        context_tokens,
        ..Row::default()
    };
    let closed = ReplayOptions {
        session_mode: SessionMode::ClosedLoop,
        ..options()
    };
    let cases = [
        (
            vec![row(1, "", 0, 5, None), row(2, "", 0, 6, None)],
            options(),
            "`prefix_length` is 6",
        ),
        (
            vec![row(1, "s", 0, 0, None), row(2, "s", 0, 0, None)],
            options(),
            "is request 1 already",
        ),
        (
            vec![row(1, "s", 1, 0, None)],
            closed,
            "round 0 of session `s` is missing",
        ),
        (
            vec![row(1, "s", 1, 0, Some(3))],
            options(),
            "the turn before is not in the trace",
        ),
        (
            vec![row(1, "s", 0, 0, None), row(2, "s", 1, 0, Some(99))],
            options(),
            "it must be from 100 to 100",
        ),
    ];
    for (rows, options, message) in cases {
        let error = replay(&Header::new(Mode::Real), rows, &options)
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn a_row_says_what_became_of_its_request() {
    let requests = served(run_of(&chat("", true)));
    let request = &requests[0];
    let record = RequestRecord {
        name: request.name.clone(),
        client: request.client.clone(),
        session: request.session.clone(),
        arrival_us: request.arrival_us,
        prompt_tokens: request.prompt_tokens,
        output_tokens: request.output_tokens,
        cached_tokens: 0,
        end: End::Completed,
        instance: Some(0),
        gateway_delay_us: None,
        scheduling_delay_us: None,
        ttft_us: Some(30),
        itl_sum_us: 200,
        e2e_us: Some(1000),
        length_capped: true,
    };
    let mut row = Row::sent(0, request);
    assert_eq!(row.status, Status::Incomplete);

    row.end(&record);

    assert_eq!(row.status, Status::Ok);
    assert_eq!(row.first_chunk_time_us, request.arrival_us + 30);
    assert_eq!(row.last_chunk_time_us, request.arrival_us + 230);
    assert_eq!(&*row.finish_reason, "length");
}

// === Files ===

#[test]
fn the_columns_are_those_of_the_reference_and_others_only_if_needed() {
    let mut file = Vec::new();
    let mut rows = vec![Row::default()];
    write_rows(&mut file, &rows).unwrap();
    let plain = String::from_utf8(std::mem::take(&mut file)).unwrap();
    rows[0].slo_target_us = Some(5);
    rows[0].context_tokens = Some(6);
    write_rows(&mut file, &rows).unwrap();
    let more = String::from_utf8(file).unwrap();

    assert_eq!(
        plain,
        "request_id,client_id,tenant_id,slo_class,session_id,round_index,prefix_group,prefix_length,streaming,\
         input_tokens,output_tokens,text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,\
         server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,num_chunks,status,\
         error_message,finish_reason\n0,,,,,0,,0,false,0,0,0,0,0,0,0,,0,0,0,0,0,0,0,incomplete,,\n"
    );
    assert!(more.contains(",deadline_us,slo_target_us,server_input_tokens,"));
    assert!(more.contains(",finish_reason,context_tokens\n"));
}

#[test]
fn what_is_wrong_with_a_line_is_said_with_line_and_column() {
    let mut file = Vec::new();
    write_rows(&mut file, &vec![Row::default(); 3]).unwrap();
    let sound = String::from_utf8(file).unwrap();
    let lines: Vec<&str> = sound.lines().collect();
    let with = |third: &str| {
        let text = [lines[0], lines[1], third, lines[3]].join("\n");
        read_rows(text.as_bytes(), "t.csv").unwrap_err().to_string()
    };

    assert_eq!(
        with(&lines[2].replacen("0,,,,,0", "-1,,,,,0", 1)),
        "t.csv:3: column `request_id` is `-1`; it must be a whole number, not negative"
    );
    assert_eq!(
        with(&lines[2].replace("incomplete", "done")),
        "t.csv:3: column `status` is `done`; it must be `ok`, `timeout`, `error` or `incomplete`"
    );
    for tokens in ["16777217", "99999999999", "-4", ""] {
        assert_eq!(
            with(&lines[2].replacen("false,0,0", &format!("false,{tokens},0"), 1)),
            format!("t.csv:3: column `input_tokens` is `{tokens}`; it must be a whole number from 0 to 16777216")
        );
    }
    assert_eq!(with("1,2"), "t.csv:3: has 2 fields, the lines before it 27");
    let error = read_rows(sound.replacen("model", "modell", 1).as_bytes(), "t.csv").unwrap_err();
    assert_eq!(
        error.to_string(),
        "t.csv:1: column `model` is missing; the first line must name the columns"
    );
}

#[test]
fn a_number_that_two_requests_have_is_refused_with_both_lines() {
    let rows = [7, 8, 7].map(|request_id| Row {
        request_id,
        ..Row::default()
    });
    let mut file = Vec::new();
    write_rows(&mut file, &rows).unwrap();

    assert_eq!(
        read_rows(&file[..], "t.csv").unwrap_err().to_string(),
        "t.csv:4: column `request_id` is `7`; line 2 has that number already"
    );
}

#[test]
fn a_trace_without_requests_is_refused() {
    let mut file = Vec::new();
    write_rows(&mut file, &[]).unwrap();

    assert_eq!(
        read_rows(&file[..], "t.csv").unwrap_err().to_string(),
        "t.csv:1: no request follows the names of the columns"
    );
}

#[test]
fn every_request_of_a_replay_has_the_number_of_its_row() {
    let mut rows = rows_of(&served(run_of(&chat("accumulate", true))));
    rows.iter_mut()
        .for_each(|row| row.request_id = 1000 - 3 * row.request_id);
    let numbers: Vec<u64> = rows.iter().map(|row| row.request_id).collect();

    for session_mode in [SessionMode::Fixed, SessionMode::ClosedLoop] {
        let options = ReplayOptions {
            session_mode,
            ..options()
        };
        let replayed = served(replay(&Header::new(Mode::Generated), rows.clone(), &options).unwrap());

        let again: Vec<u64> = rows_of(&replayed).iter().map(|row| row.request_id).collect();
        assert!(
            replayed
                .iter()
                .any(|request| request.session.as_ref().is_some_and(|place| place.round > 0))
        );
        assert_eq!(again, numbers, "{session_mode}");
        let name = replayed[0].name.to_string();
        assert_eq!(name, format!("request_{}", numbers[0]));
    }
}

fn row() -> impl Strategy<Value = Row> {
    let text = "[ -~\nä]{0,8}";
    let texts = (text, text, text, text, text).prop_map(|texts| texts);
    let numbers = proptest::collection::vec(0..1_000_000_u32, 12);
    (texts, numbers, 0.0..=1.0, 0..4_usize, any::<bool>()).prop_map(|(texts, numbers, ratio, status, flag)| {
        let grouped = !texts.2.is_empty();
        Row {
            request_id: u64::from(numbers[0]),
            client_id: texts.0.into(),
            tenant_id: texts.1.into(),
            vllm_priority: None,
            prefix_group: texts.2.into(),
            prefix_length: if grouped { numbers[1] } else { 0 },
            streaming: flag,
            input_tokens: numbers[2],
            output_tokens: numbers[3],
            image_tokens: numbers[4],
            reason_ratio: ratio,
            model: texts.3.into(),
            arrival_time_us: u64::from(numbers[5]),
            deadline_us: u64::from(numbers[5]) + u64::from(numbers[6]),
            slo_target_us: Some(u64::from(numbers[7]) + 1),
            num_chunks: numbers[8],
            status: Status::ALL[status],
            error_message: texts.4.into(),
            think_time_us: Some(u64::from(numbers[9])),
            context_tokens: Some(numbers[10]),
            ..Row::default()
        }
    })
}

proptest! {
    #[test]
    fn rows_are_read_as_they_were_written(mut rows in proptest::collection::vec(row(), 1..6)) {
        rows.iter_mut().zip(0..).for_each(|(row, place)| row.request_id = 6 * row.request_id + place);
        prop_assert_eq!(reread(&rows), rows);
    }
}

#[test]
fn a_header_is_read_as_it_was_written() {
    let mut header = Header::new(Mode::Replayed);
    header.workload_seed = Some(-3);
    header.created_at = "2026-08-01T00:00:00Z".to_owned();
    header.session_context_growth = ContextGrowth::Accumulate;
    header.server = Some(ServerNote {
        kind: Some("vllm".to_owned()),
        max_model_len: Some(4096),
        ..ServerNote::default()
    });

    let text = header.to_yaml();

    assert_eq!(Header::read(&text, &SourceName::Flag).unwrap(), header);
    assert!(
        text.starts_with("trace_version: 3\ntime_unit: microseconds\ncreated_at: \"2026"),
        "{text}"
    );
}

#[test]
fn a_header_of_another_version_or_with_unknown_fields_is_refused() {
    let error = Header::read("trace_version: 4\ntime_units: s\n", &SourceName::File("h.yaml".into())).unwrap_err();

    let error = error.to_string();
    assert!(
        error.contains("h.yaml:1: error: trace_version: is 4; versions 1 to 3"),
        "{error}"
    );
    assert!(error.contains("h.yaml:2: error: time_units: unknown field"), "{error}");
}

#[test]
fn times_of_pieces_are_read_as_they_were_written() {
    let rows = [(1, 0, 5), (1, 1, 9)].map(|(request_id, chunk_index, timestamp_us)| ItlRow {
        request_id,
        chunk_index,
        timestamp_us,
    });
    let mut file = Vec::new();

    write_itl(&mut file, &rows).unwrap();

    assert!(file.starts_with(b"request_id,chunk_index,timestamp_us\n1,0,5\n"));
    assert_eq!(read_itl(&file[..], "itl.csv").unwrap(), rows);
    let error = read_itl(&b"request_id,chunk_index,timestamp_us\n1,x,5\n"[..], "itl.csv").unwrap_err();
    assert!(error.to_string().starts_with("itl.csv:2: "), "{error}");
}
