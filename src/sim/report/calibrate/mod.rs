//! How well simulated requests match real ones (spec, simulator 24).
//!
//! A trace has when requests were sent to a real server and when its tokens came; a run of the same requests in the
//! simulator leaves [`SimResult`]s. [`calibrate`] pairs them by number and tells how far apart they are: of the whole
//! workload, and request by request.

mod accuracy;
mod goodput;
mod pair;
mod sim_result;

use std::collections::BTreeMap;

use serde::Serialize;

use super::goodput::GoodputTargets;
use super::json;

pub use accuracy::{Accuracy, Bias, Quality, RequestLevel, WorkloadLevel};
pub use goodput::{ClassComparison, GoodputComparison};
pub use sim_result::{ResultsError, SimResult, read_results, results_of, write_results};

/// A request that a real server answered, as the trace has it. Times are microseconds of one clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceRow {
    /// Its number.
    pub request_id: u64,
    /// When it was sent.
    pub sent_us: i64,
    /// When its first token came.
    pub first_chunk_us: i64,
    /// When its last token came.
    pub last_chunk_us: i64,
    /// Tokens of its prompt.
    pub input_tokens: u32,
    /// Tokens of its answer.
    pub output_tokens: u32,
    /// The mean time between its tokens, if they were timed. Less than zero if the clock went back.
    pub itl_mean_us: Option<f64>,
    /// Its SLO class, or nothing.
    pub slo_class: String,
}

/// A setting that trace and simulation should agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// What it is called.
    pub name: String,
    /// What the header of the trace says. `None` if it says nothing, and the simulator used its default.
    pub traced: Option<String>,
    /// What was simulated.
    pub simulated: String,
}

/// Shares of prompt tokens that were found in the KV cache.
#[derive(Clone, Debug, PartialEq)]
pub struct HitRates {
    /// On the real server.
    pub real: f64,
    /// In the simulation.
    pub sim: f64,
    /// Where the real one comes from.
    pub source: String,
}

/// What a calibration takes into account.
#[derive(Clone, Debug)]
pub struct CalibrateOptions {
    /// Requests with a number below this are left out: the server was warming up.
    pub warm_up_requests: u64,
    /// A round trip between client and server, which the simulation does not have.
    pub network_rtt_us: f64,
    /// Bandwidth between client and server in megabits per second. `None` for a network that costs no time.
    pub network_bandwidth_mbps: Option<f64>,
    /// The mean error of the time to the first token that is tolerated, as a fraction. Default: 0.15.
    pub ttft_mape_threshold: f64,
    /// The difference of hit rates that is tolerated, in percentage points. Default: 5.
    pub hit_rate_tolerance_pp: f64,
    /// Hit rates, if they were measured.
    pub hit_rates: Option<HitRates>,
    /// When a request counts as good, if that is asked.
    pub goodput: GoodputTargets,
    /// What trace and simulation should agree on.
    pub settings: Vec<Setting>,
    /// What the caller knows to be left out of the simulation.
    pub known_limitations: Vec<String>,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        Self {
            warm_up_requests: 0,
            network_rtt_us: 0.0,
            network_bandwidth_mbps: None,
            ttft_mape_threshold: 0.15,
            hit_rate_tolerance_pp: 5.0,
            hit_rates: None,
            goodput: GoodputTargets::default(),
            settings: Vec::new(),
            known_limitations: Vec::new(),
        }
    }
}

/// How well a simulation matches a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// What was compared.
    pub trace_info: TraceInfo,
    /// How far apart `ttft`, `e2e` and `itl` are, those that can be told.
    pub metrics: BTreeMap<&'static str, Accuracy>,
    /// Which settings agree.
    pub config_match: ConfigMatch,
    /// What a reader should know before believing the rest.
    pub known_limitations: Vec<String>,
    /// How far promises were kept in both, if any were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<GoodputComparison>,
    /// How the hit rates of the KV cache compare, if they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_rate: Option<HitRateComparison>,
    /// Whether the time to the first token is near enough, if any could be compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_tolerance: Option<Tolerance>,
}

/// What was compared.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TraceInfo {
    /// Requests of the trace.
    pub num_requests: u64,
    /// Those that were left out because the server was warming up.
    pub warm_up_excluded: u64,
    /// Requests that are in both, with sound times.
    pub matched_pairs: u64,
    /// Pairs with different numbers of tokens.
    pub token_mismatches: u64,
    /// Pairs whose times between tokens are not sound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itl_dropped: Option<u64>,
    /// From the first request sent to the last token, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
}

/// Which settings agree. Each item is `name=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ConfigMatch {
    /// The trace says what was simulated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matched: Vec<String>,
    /// The trace says nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub defaulted: Vec<String>,
    /// The trace says something else.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mismatched: Vec<String>,
}

impl ConfigMatch {
    fn of(settings: &[Setting]) -> Self {
        let mut found = Self::default();
        for Setting {
            name,
            traced,
            simulated,
        } in settings
        {
            match traced {
                None => found.defaulted.push(format!("{name}={simulated}")),
                Some(traced) if traced == simulated => found.matched.push(format!("{name}={simulated}")),
                Some(traced) => found
                    .mismatched
                    .push(format!("{name}={simulated} (the trace says {traced})")),
            }
        }
        found
    }
}

/// How the hit rates of the KV cache compare.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HitRateComparison {
    /// On the real server.
    pub real_hit_rate: f64,
    /// In the simulation.
    pub sim_hit_rate: f64,
    /// How far apart they are, in percentage points.
    pub abs_error_pp: f64,
    /// How far they may be.
    pub tolerance_pp: f64,
    /// They are not further apart than that.
    pub within: bool,
    /// Where the real one comes from.
    pub source: String,
}

/// Whether an error is small enough.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tolerance {
    /// The mean of the errors, each as a fraction of the real value.
    pub mape: f64,
    /// How large it may be.
    pub threshold: f64,
    /// It is not larger than that.
    pub within: bool,
}

impl Calibration {
    /// The report as JSON.
    pub fn json(&self) -> String {
        json::pretty(self)
    }
}

/// Compares a trace with what was simulated of it. Requests that are in one of them only are left out.
pub fn calibrate(trace: &[TraceRow], results: &[SimResult], options: &CalibrateOptions) -> Calibration {
    let pairing = pair::paired(trace, results, options);
    let pairs = &pairing.pairs;
    let mut metrics = BTreeMap::new();
    let mut measure = |name, values: Vec<(f64, f64)>| {
        if !values.is_empty() {
            metrics.insert(name, Accuracy::of(&values));
        }
    };
    measure(
        "ttft",
        pairs.iter().map(|pair| (pair.real.ttft_us, pair.sim.ttft_us)).collect(),
    );
    measure(
        "e2e",
        pairs.iter().map(|pair| (pair.real.e2e_us, pair.sim.e2e_us)).collect(),
    );
    let itl = pairs.iter().filter_map(|pair| pair.real.itl_us.zip(pair.sim.itl_us));
    measure("itl", itl.collect());
    let config_match = ConfigMatch::of(&options.settings);
    let ttft_tolerance = metrics.get("ttft").map(|ttft: &Accuracy| Tolerance {
        mape: ttft.request_level.mape,
        threshold: options.ttft_mape_threshold,
        within: ttft.request_level.mape <= options.ttft_mape_threshold,
    });
    let hit_rate = options.hit_rates.as_ref().map(|rates| {
        let apart = (rates.sim - rates.real).abs() * 100.0;
        HitRateComparison {
            real_hit_rate: rates.real,
            sim_hit_rate: rates.sim,
            abs_error_pp: apart,
            tolerance_pp: options.hit_rate_tolerance_pp,
            within: apart <= options.hit_rate_tolerance_pp,
            source: rates.source.clone(),
        }
    });
    Calibration {
        known_limitations: limitations(&pairing.info, &config_match, options),
        goodput: GoodputComparison::of(pairs, pairing.seconds, &options.goodput),
        metrics,
        config_match,
        hit_rate,
        ttft_tolerance,
        trace_info: pairing.info,
    }
}

fn limitations(info: &TraceInfo, config: &ConfigMatch, options: &CalibrateOptions) -> Vec<String> {
    let mut limitations = options.known_limitations.clone();
    if options.network_rtt_us > 0.0 || options.network_bandwidth_mbps.is_some() {
        limitations.push("the network costs every request the same, whatever else is under way".to_owned());
    }
    let unmatched = info.num_requests - info.warm_up_excluded - info.matched_pairs;
    if unmatched > 0 {
        limitations.push(format!(
            "requests without a simulated counterpart, or with unsound times, are left out: {unmatched} of the trace"
        ));
    }
    if info.token_mismatches > 0 {
        limitations.push(format!(
            "some requests have other numbers of tokens in the simulation than in the trace: {}",
            info.token_mismatches
        ));
    }
    limitations.extend(
        config
            .mismatched
            .iter()
            .map(|setting| format!("simulated with other settings: {setting}")),
    );
    limitations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::report::goodput::Dimension;

    fn row(request_id: u64, ttft_us: i64, e2e_us: i64) -> TraceRow {
        let sent_us = 1_000_000 * i64::try_from(request_id).unwrap();
        TraceRow {
            request_id,
            sent_us,
            first_chunk_us: sent_us + ttft_us,
            last_chunk_us: sent_us + e2e_us,
            input_tokens: 100,
            output_tokens: 11,
            itl_mean_us: Some((e2e_us - ttft_us) as f64 / 10.0),
            slo_class: String::new(),
        }
    }

    fn result(request_id: u64, ttft_us: f64, e2e_us: f64) -> SimResult {
        SimResult {
            request_id,
            ttft_us,
            e2e_us,
            input_tokens: 100,
            output_tokens: 11,
            slo_class: String::new(),
            model: String::new(),
            itl_mean_us: 0.0,
        }
    }

    #[test]
    fn the_report_of_a_small_trace() {
        let trace = [
            row(0, 9_000, 90_000),
            row(1, 10_000, 110_000),
            row(2, 20_000, 120_000),
            row(3, 30_000, 180_000),
            row(4, 40_000, 190_000),
        ];
        let results = [
            result(1, 11_000.0, 111_000.0),
            result(2, 19_000.0, 125_000.0),
            result(3, 33_000.0, 170_000.0),
            result(9, 1.0, 2.0),
        ];
        let mut goodput = GoodputTargets::default();
        goodput.set("", Dimension::Ttft, 30_000.0);
        let options = CalibrateOptions {
            warm_up_requests: 1,
            hit_rates: Some(HitRates {
                real: 0.5,
                sim: 0.53,
                source: "scrape".to_owned(),
            }),
            goodput,
            settings: vec![
                Setting {
                    name: "model".to_owned(),
                    traced: Some("qwen/qwen3-14b".to_owned()),
                    simulated: "qwen/qwen3-14b".to_owned(),
                },
                Setting {
                    name: "tp".to_owned(),
                    traced: Some("2".to_owned()),
                    simulated: "1".to_owned(),
                },
                Setting {
                    name: "max-num-seqs".to_owned(),
                    traced: None,
                    simulated: "256".to_owned(),
                },
            ],
            ..CalibrateOptions::default()
        };

        insta::assert_snapshot!(calibrate(&trace, &results, &options).json());
    }

    #[test]
    fn the_network_is_added_to_what_was_simulated() {
        let options = CalibrateOptions {
            network_rtt_us: 500.0,
            network_bandwidth_mbps: Some(8.0),
            ..CalibrateOptions::default()
        };
        // 100 tokens of 32 bits at 8 bits a microsecond are 400 µs up, and 11 tokens 44 µs down.
        let calibration = calibrate(&[row(0, 10_900, 100_944)], &[result(0, 10_000.0, 100_000.0)], &options);

        assert_eq!(calibration.metrics["ttft"].workload_level.mean_error, 0.0);
        assert_eq!(calibration.metrics["e2e"].workload_level.mean_error, 0.0);
    }

    #[test]
    fn a_trace_against_itself_has_no_error() {
        let trace: Vec<_> = (0..10)
            .map(|id| row(id, 10_000 + 700 * i64::try_from(id * id % 7).unwrap(), 99_000))
            .collect();
        let itself: Vec<_> = trace
            .iter()
            .map(|row| result(row.request_id, (row.first_chunk_us - row.sent_us) as f64, 99_000.0))
            .collect();
        let calibration = calibrate(&trace, &itself, &CalibrateOptions::default());
        let ttft = &calibration.metrics["ttft"];

        assert_eq!(
            (ttft.request_level.mape, ttft.request_level.bias_direction),
            (0.0, Bias::Neutral)
        );
        assert!((ttft.request_level.pearson_r - 1.0).abs() < 1e-12);
        assert_eq!(ttft.request_level.quality, Quality::Excellent);
        assert_eq!(calibration.trace_info.token_mismatches, 0);
        assert!(calibration.known_limitations.is_empty());
    }

    #[test]
    fn nothing_in_common_is_told_and_not_measured() {
        let calibration = calibrate(
            &[row(1, 1_000, 2_000)],
            &[result(2, 1.0, 2.0)],
            &CalibrateOptions::default(),
        );

        assert_eq!(calibration.trace_info.matched_pairs, 0);
        assert!(calibration.metrics.is_empty());
        assert_eq!(calibration.ttft_tolerance, None);
    }
}
