//! Saturation detectors: when a pool counts as full (spec, config 9).

use std::time::Duration;

use serde::Deserialize;

use super::super::super::plugin::{Needs, Parameter, Plugin};
use super::super::duration::{self, DurationError};

/// What a saturation detector is set to.
#[derive(Clone, Debug, PartialEq)]
pub enum Detector {
    /// By what the engines report.
    Utilization(Utilization),
    /// By what is in flight.
    Concurrency(Concurrency),
}

/// A pool is as full as its endpoints are on average: `max(waiting / queue_depth, kv_usage / kv_cache)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Utilization {
    /// Waiting requests at which an endpoint is full. Not zero.
    pub queue_depth: u32,
    /// Share of the KV cache at which an endpoint is full; above 0, at most 1.
    pub kv_cache: f64,
    /// An endpoint whose metrics are older counts as full. Not zero.
    pub staleness: Duration,
    /// By how much a filter lets an endpoint be fuller than full; 0.1 is a tenth.
    pub headroom: f64,
}

/// A pool is as full as what is in flight, as a share of what its endpoints can take.
#[derive(Clone, Debug, PartialEq)]
pub struct Concurrency {
    /// What is counted.
    pub mode: ConcurrencyMode,
    /// Requests that an endpoint can take. Not zero.
    pub max_requests: u64,
    /// Tokens that an endpoint can take. Not zero.
    pub max_tokens: u64,
    /// By how much a filter lets an endpoint be fuller than full; 0.1 is a tenth.
    pub headroom: f64,
}

/// What is counted of the load in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConcurrencyMode {
    /// Requests.
    #[default]
    Requests,
    /// Tokens.
    Tokens,
    /// For each endpoint, whichever is closer to its limit.
    Hybrid,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UtilizationParams {
    queue_depth_threshold: i64,
    kv_cache_util_threshold: f64,
    metrics_staleness_threshold: String,
    headroom: f64,
}

impl Default for UtilizationParams {
    fn default() -> Self {
        Self {
            queue_depth_threshold: 5,
            kv_cache_util_threshold: 0.8,
            metrics_staleness_threshold: "200ms".to_owned(),
            headroom: 0.0,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConcurrencyParams {
    max_concurrency: i64,
    headroom: f64,
    concurrency_mode: ConcurrencyMode,
    max_token_concurrency: i64,
    #[serde(rename = "inFlightLoadProducerName")]
    _producer: String,
}

impl Default for ConcurrencyParams {
    fn default() -> Self {
        Self {
            max_concurrency: 100,
            headroom: 0.0,
            concurrency_mode: ConcurrencyMode::Requests,
            max_token_concurrency: 1_000_000,
            _producer: String::new(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("`{name}` must be above 0, found `{value}`")]
    NotPositive { name: &'static str, value: i64 },
    #[error("`kvCacheUtilThreshold` must be above 0 and at most 1, found `{0}`")]
    KvCache(f64),
    #[error("`headroom` must not be negative, found `{0}`")]
    Headroom(f64),
    #[error("`metricsStalenessThreshold` must be above 0, found `{0}`")]
    Staleness(String),
    #[error("`metricsStalenessThreshold`: {0}")]
    Duration(#[from] DurationError),
}

fn positive(name: &'static str, value: i64) -> Result<u64, Error> {
    match u64::try_from(value) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(Error::NotPositive { name, value }),
    }
}

fn headroom(value: f64) -> Result<f64, Error> {
    if value >= 0.0 {
        Ok(value)
    } else {
        Err(Error::Headroom(value))
    }
}

const HEADROOM: Parameter = Parameter {
    name: "headroom",
    default: "0.0",
    summary: "by how much a filter lets an endpoint be fuller than full; 0.1 is a tenth; not negative",
};

impl Plugin for Utilization {
    const TYPE: &'static str = "utilization-detector";
    const SUMMARY: &'static str = "finds a pool full by the queues and caches that its endpoints report";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "queueDepthThreshold",
            default: "5",
            summary: "waiting requests at which an endpoint is full; above 0",
        },
        Parameter {
            name: "kvCacheUtilThreshold",
            default: "0.8",
            summary: "share of the KV cache at which an endpoint is full; above 0, at most 1",
        },
        Parameter {
            name: "metricsStalenessThreshold",
            default: "\"200ms\"",
            summary: "an endpoint whose metrics are older counts as full; above 0",
        },
        HEADROOM,
    ];
    type Params = UtilizationParams;
    type Error = Error;

    fn from_params(params: UtilizationParams, _: &mut Needs) -> Result<Self, Error> {
        let queue_depth = positive("queueDepthThreshold", params.queue_depth_threshold)?;
        let kv_cache = params.kv_cache_util_threshold;
        if !(kv_cache > 0.0 && kv_cache <= 1.0) {
            return Err(Error::KvCache(kv_cache));
        }
        let text = params.metrics_staleness_threshold;
        let staleness = match duration::parse(&text) {
            Ok(staleness) if !staleness.is_zero() => staleness,
            Ok(_) | Err(DurationError::Negative(_)) => return Err(Error::Staleness(text)),
            Err(error) => return Err(error.into()),
        };
        Ok(Self {
            queue_depth: u32::try_from(queue_depth).unwrap_or(u32::MAX),
            kv_cache,
            staleness,
            headroom: headroom(params.headroom)?,
        })
    }
}

impl Plugin for Concurrency {
    const TYPE: &'static str = "concurrency-detector";
    const SUMMARY: &'static str = "finds a pool full by the requests and tokens in flight";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "concurrencyMode",
            default: "\"requests\"",
            summary: "what is counted: `requests`, `tokens`, or `hybrid` for whichever is closer to its limit",
        },
        Parameter {
            name: "maxConcurrency",
            default: "100",
            summary: "requests that an endpoint can take; above 0",
        },
        Parameter {
            name: "maxTokenConcurrency",
            default: "1000000",
            summary: "tokens that an endpoint can take; above 0",
        },
        HEADROOM,
        Parameter {
            name: "inFlightLoadProducerName",
            default: "\"inflight-load-producer\"",
            summary: "accepted; what is in flight is known without a producer",
        },
    ];
    type Params = ConcurrencyParams;
    type Error = Error;

    fn from_params(params: ConcurrencyParams, _: &mut Needs) -> Result<Self, Error> {
        Ok(Self {
            mode: params.concurrency_mode,
            max_requests: positive("maxConcurrency", params.max_concurrency)?,
            max_tokens: positive("maxTokenConcurrency", params.max_token_concurrency)?,
            headroom: headroom(params.headroom)?,
        })
    }
}

impl From<Utilization> for Detector {
    fn from(detector: Utilization) -> Self {
        Self::Utilization(detector)
    }
}

impl From<Concurrency> for Detector {
    fn from(detector: Concurrency) -> Self {
        Self::Concurrency(detector)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::super::plugin::instance;
    use super::*;

    #[test]
    fn thresholds_outside_their_ranges_are_refused() {
        let refusal = |params: Value| {
            let refused = instance::<Utilization>(Some(&params), &mut Needs::default());
            refused.unwrap_err().message
        };

        assert_eq!(
            refusal(json!({"queueDepthThreshold": 0})),
            "`queueDepthThreshold` must be above 0, found `0`"
        );
        assert_eq!(
            refusal(json!({"kvCacheUtilThreshold": 1.2})),
            "`kvCacheUtilThreshold` must be above 0 and at most 1, found `1.2`"
        );
        assert_eq!(
            refusal(json!({"headroom": -1})),
            "`headroom` must not be negative, found `-1`"
        );
        assert_eq!(
            refusal(json!({"metricsStalenessThreshold": "0s"})),
            "`metricsStalenessThreshold` must be above 0, found `0s`"
        );
    }

    #[test]
    fn a_concurrency_of_tokens_is_read() {
        let params = json!({"concurrencyMode": "hybrid", "maxConcurrency": 64, "maxTokenConcurrency": 400000});

        let detector: Concurrency = instance(Some(&params), &mut Needs::default()).unwrap();

        assert_eq!(detector.mode, ConcurrencyMode::Hybrid);
        assert_eq!((detector.max_requests, detector.max_tokens), (64, 400_000));
    }
}
