//! How long does it take to read the metrics page of a vLLM server?

#[path = "support/vllm_page.rs"]
mod vllm_page;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use forebay::engine::config::data_layer::CoreMetricsExtractorParams;
use forebay::serve::datalayer::scrape::PageReader;

/// Bytes that one read from a socket gives at most.
const PIECE: usize = 64 * 1024;

fn read_page(c: &mut Criterion) {
    let mapping = CoreMetricsExtractorParams::default()
        .compile()
        .expect("the built-in engines are sound");
    let vllm = mapping.engine("vllm").expect("vllm is built in");
    let mut group = c.benchmark_group("read_page");
    for engines in [1, 4, 16] {
        let page = vllm_page::vllm_page(engines);
        let mut reader = PageReader::new(vllm);
        group.throughput(Throughput::Bytes(page.len() as u64));
        group.bench_function(BenchmarkId::new("engines", engines), |b| {
            b.iter(|| {
                for piece in black_box(page.as_bytes()).chunks(PIECE) {
                    reader.feed(piece);
                }
                reader.finish()
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = read_page
}
criterion_main!(benches);
