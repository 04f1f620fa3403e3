//! What it costs to hash a prompt of 400 KiB in blocks.
#![allow(missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use forebay::engine::prefix::{BlockHasher, BlockLayout};

const PROMPT_BYTES: usize = 400 << 10;

fn block_hashing(criterion: &mut Criterion) {
    let text: Vec<u8> = (b'a'..=b'z').cycle().take(PROMPT_BYTES).collect();
    let mut group = criterion.benchmark_group("block hashing");
    group.throughput(Throughput::Bytes(PROMPT_BYTES as u64));
    for block_tokens in [64, 256] {
        group.bench_function(format!("400KiB in blocks of {block_tokens} tokens"), |bencher| {
            bencher.iter(|| {
                let layout = BlockLayout {
                    block_tokens,
                    max_blocks: u32::MAX,
                };
                let mut hasher = BlockHasher::new("llama", "", layout);
                hasher.text(black_box(&text));
                hasher.end_prompt();
                hasher.finish()
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2));
    targets = block_hashing
}
criterion_main!(benches);
