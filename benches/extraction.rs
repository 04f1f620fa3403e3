//! What it costs to learn from a request body what scheduling wants to know: reading it, and hashing its prompt.
#![allow(missing_docs)]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay::engine::prefix::{BlockHasher, BlockLayout};
use forebay::serve::parse::{Api, Framing, ModelRestorer, ResponseFormat, UsageScanner, parse};

const SIZES: [(&str, usize); 3] = [("1KiB", 1 << 10), ("32KiB", 32 << 10), ("400KiB", 400 << 10)];

/// Text of a few lines a paragraph, as JSON has it.
const LINES: &str = "Answer in the language of the question, and name the document you took it from.\\n";
/// Text whose every character is an escape, as clients that send ASCII only write it.
const ESCAPES: &str = "\\u6c34\\u529b\\u767a\\u96fb";

fn chat(text: &str, bytes: usize) -> String {
    let text = text.repeat(bytes / text.len());
    format!(
        r#"{{"model":"llama","messages":[{{"role":"system","content":"{text}"}},{{"role":"user","content":"hi"}}],"stream":true,"max_tokens":64}}"#
    )
}

fn parts(text: &str, bytes: usize) -> String {
    let text = text.repeat(bytes / text.len());
    format!(
        r#"{{"model":"llama","messages":[{{"role":"user","content":[{{"type":"text","text":"{text}"}}]}}],"stream":true}}"#
    )
}

fn tokens(bytes: usize) -> String {
    let mut ids = String::from("1");
    for id in 0..bytes / 6 {
        write!(ids, ",{}", 10000 + id % 80000).expect("a string takes everything");
    }
    format!(r#"{{"model":"llama","prompt":[{ids}],"max_tokens":64}}"#)
}

fn extraction(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("extraction");
    for (size, bytes) in SIZES {
        let bodies = [
            ("chat", Api::ChatCompletions, chat(LINES, bytes)),
            ("chat of parts", Api::ChatCompletions, parts(LINES, bytes)),
            ("chat of escapes", Api::ChatCompletions, chat(ESCAPES, bytes)),
            ("token ids", Api::Completions, tokens(bytes)),
        ];
        for (name, api, body) in &bodies {
            group.throughput(Throughput::Bytes(body.len() as u64));
            group.bench_with_input(
                BenchmarkId::new(format!("{name}, read"), size),
                body,
                |bencher, body| {
                    bencher.iter(|| parse(*api, black_box(body.as_bytes())).expect("the body is good"));
                },
            );
            group.bench_with_input(
                BenchmarkId::new(format!("{name}, read and hashed"), size),
                body,
                |bencher, body| {
                    bencher.iter(|| {
                        let parsed = parse(*api, black_box(body.as_bytes())).expect("the body is good");
                        parsed.hash_prompt(BlockHasher::new("llama", "", BlockLayout::default()))
                    });
                },
            );
        }
    }
    group.finish();
}

fn response(criterion: &mut Criterion) {
    let event = r#"data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"llama-2","choices":[{"index":0,"text":" word"}]}"#;
    let chunk = bytes::Bytes::from(format!("{event}\n\n"));
    let mut group = criterion.benchmark_group("response of 1000 chunks");
    group.bench_function("usage", |bencher| {
        bencher.iter(|| {
            let mut scanner = UsageScanner::new(ResponseFormat::OpenAi, Framing::Events);
            for _ in 0..1000 {
                scanner.push(black_box(&chunk));
            }
            scanner.finish(true)
        });
    });
    group.bench_function("model restored", |bencher| {
        bencher.iter(|| {
            let mut restorer = ModelRestorer::new("llama-2", "llama");
            for _ in 0..1000 {
                black_box(restorer.push(black_box(&chunk).clone()));
            }
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = extraction, response
}
criterion_main!(benches);
