//! Real and simulated requests, side by side.

use std::collections::BTreeMap;

use super::{CalibrateOptions, SimResult, TraceInfo, TraceRow};

/// Bits of a token on the wire.
const BITS_PER_TOKEN: f64 = 4.0 * 8.0;

/// The latencies of one request, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Latencies {
    pub(super) ttft_us: f64,
    pub(super) e2e_us: f64,
    /// The mean time between tokens, if there is one.
    pub(super) itl_us: Option<f64>,
}

/// One request, real and simulated. The simulated latencies have the network added.
#[derive(Clone, Debug)]
pub(super) struct Pair<'a> {
    pub(super) slo_class: &'a str,
    pub(super) real: Latencies,
    pub(super) sim: Latencies,
}

/// All pairs, in order of number.
#[derive(Debug)]
pub(super) struct Pairing<'a> {
    pub(super) pairs: Vec<Pair<'a>>,
    pub(super) info: TraceInfo,
    /// From the first request sent to the last token.
    pub(super) seconds: f64,
}

pub(super) fn paired<'a>(trace: &'a [TraceRow], results: &[SimResult], options: &CalibrateOptions) -> Pairing<'a> {
    let simulated: BTreeMap<u64, &SimResult> = results.iter().map(|result| (result.request_id, result)).collect();
    let mut rows: Vec<_> = trace.iter().collect();
    rows.sort_by_key(|row| row.request_id);
    let mut info = TraceInfo {
        num_requests: trace.len() as u64,
        ..TraceInfo::default()
    };
    let mut pairs = Vec::new();
    let mut itl_dropped = 0;
    let mut span: Option<(i64, i64)> = None;
    for row in rows {
        if row.request_id < options.warm_up_requests {
            info.warm_up_excluded += 1;
            continue;
        }
        let (ttft, e2e) = (row.first_chunk_us - row.sent_us, row.last_chunk_us - row.sent_us);
        let Some(result) = simulated.get(&row.request_id) else {
            continue;
        };
        if ttft < 0 || e2e < 0 {
            continue;
        }
        let (first, last) = span.unwrap_or((row.sent_us, row.last_chunk_us));
        span = Some((first.min(row.sent_us), last.max(row.last_chunk_us)));
        let is_same = (result.input_tokens, result.output_tokens) == (row.input_tokens, row.output_tokens);
        info.token_mismatches += u64::from(!is_same);
        let real_itl = row.itl_mean_us.filter(|&us| us >= 0.0);
        itl_dropped += u64::from(row.itl_mean_us.is_some() && real_itl.is_none());
        pairs.push(Pair {
            slo_class: &row.slo_class,
            real: Latencies {
                ttft_us: ttft as f64,
                e2e_us: e2e as f64,
                itl_us: real_itl,
            },
            sim: over_network(result, options),
        });
    }
    info.matched_pairs = pairs.len() as u64;
    info.itl_dropped = (itl_dropped > 0).then_some(itl_dropped);
    let seconds = span.map_or(0.0, |(first, last)| (last - first) as f64 / 1e6);
    info.duration = span.map(|_| format!("{seconds}s"));
    Pairing { pairs, info, seconds }
}

/// What a client would have seen: the request goes up, a round trip passes, the answer comes down.
fn over_network(result: &SimResult, options: &CalibrateOptions) -> Latencies {
    // A megabit per second is a bit per microsecond.
    let transfer = |tokens: u32| match options.network_bandwidth_mbps {
        Some(mbps) if mbps > 0.0 => f64::from(tokens) * BITS_PER_TOKEN / mbps,
        _ => 0.0,
    };
    let before = options.network_rtt_us + transfer(result.input_tokens);
    let gaps = result.output_tokens.saturating_sub(1);
    Latencies {
        ttft_us: result.ttft_us + before,
        e2e_us: result.e2e_us + before + transfer(result.output_tokens),
        itl_us: (gaps > 0).then(|| (result.e2e_us - result.ttft_us) / f64::from(gaps)),
    }
}
