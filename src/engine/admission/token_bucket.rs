//! Limits the rate of prompt tokens.

use std::time::Duration;

use serde::Deserialize;

use super::super::plugin::{Needs, Parameter, Plugin};
use super::super::request::Request;
use super::super::time::Timestamp;
use super::{Admission, AdmissionPolicy};

/// A bucket of tokens that starts full and is refilled all the time. A request takes as many as its prompt has, or is
/// rejected and takes none.
///
/// Levels are whole billionths of a token, so that a nanosecond of refill is `refillRate` of them and nothing is ever
/// rounded.
#[derive(Debug)]
pub(super) struct TokenBucket {
    capacity: u64,
    refill_rate: u64,
    level: u128,
    refilled: Option<Timestamp>,
}

const BILLIONTHS: u128 = 1_000_000_000;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    capacity: i64,
    refill_rate: i64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            capacity: 10_000,
            refill_rate: 1000,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{name}` must be above 0, found `{value}`")]
pub(super) struct Error {
    name: &'static str,
    value: i64,
}

impl Plugin for TokenBucket {
    const TYPE: &'static str = "token-bucket";
    const SUMMARY: &'static str = "limits the rate of prompt tokens, and lets bursts in as far as the bucket is full";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "capacity",
            default: "10000",
            summary: "tokens in a full bucket; a prompt with more is always rejected; above 0",
        },
        Parameter {
            name: "refillRate",
            default: "1000",
            summary: "tokens that come back each second; above 0",
        },
    ];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, _: &mut Needs) -> Result<Self, Error> {
        let positive = |name, value: i64| match u64::try_from(value) {
            Ok(tokens) if tokens > 0 => Ok(tokens),
            _ => Err(Error { name, value }),
        };
        let capacity = positive("capacity", params.capacity)?;
        Ok(Self {
            capacity,
            refill_rate: positive("refillRate", params.refill_rate)?,
            level: u128::from(capacity) * BILLIONTHS,
            refilled: None,
        })
    }
}

impl TokenBucket {
    fn refill(&mut self, now: Timestamp) {
        let elapsed = now.since(self.refilled.unwrap_or(now));
        let full = u128::from(self.capacity) * BILLIONTHS;
        self.level = full.min(self.level + elapsed.as_nanos() * u128::from(self.refill_rate));
        self.refilled = Some(now);
    }

    /// Time until the bucket, left alone, has `missing` billionths more.
    fn time_for(&self, missing: u128) -> Duration {
        let nanos = missing.div_ceil(u128::from(self.refill_rate));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl AdmissionPolicy for TokenBucket {
    fn admit(&mut self, now: Timestamp, request: &Request) -> Admission {
        self.refill(now);
        let cost = u128::from(request.prompt_tokens) * BILLIONTHS;
        match self.level.checked_sub(cost) {
            Some(left) => {
                self.level = left;
                Admission::Admit
            }
            None => Admission::Reject {
                reason: "insufficient tokens",
                retry_after: (u64::from(request.prompt_tokens) <= self.capacity)
                    .then(|| self.time_for(cost - self.level)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::super::plugin::instance;
    use super::super::super::request::Kind;
    use super::*;

    fn bucket(params: &Value) -> TokenBucket {
        instance(Some(params), &mut Needs::default()).unwrap()
    }

    fn prompt(tokens: u32) -> Request {
        Request {
            prompt_tokens: tokens,
            ..Request::unknown(Kind::Inference)
        }
    }

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn rejected(retry_after: Option<Duration>) -> Admission {
        Admission::Reject {
            reason: "insufficient tokens",
            retry_after,
        }
    }

    #[test]
    fn a_full_bucket_lets_a_burst_in_at_whatever_time_it_comes() {
        let mut bucket = bucket(&json!({}));

        let admitted = (0..30).filter(|_| bucket.admit(seconds(77), &prompt(512)) == Admission::Admit);

        assert_eq!(admitted.count(), 19, "10000 / 512");
    }

    #[test]
    fn the_refill_is_the_elapsed_microseconds_times_the_rate() {
        let mut bucket = bucket(&json!({"capacity": 100, "refillRate": 1000}));
        bucket.admit(Timestamp::ZERO, &prompt(100));
        let micros = |micros| Timestamp::ZERO + Duration::from_micros(micros);

        assert_eq!(
            bucket.admit(micros(9_999), &prompt(10)),
            rejected(Some(Duration::from_micros(1)))
        );
        assert_eq!(bucket.admit(micros(10_000), &prompt(10)), Admission::Admit);
    }

    #[test]
    fn many_small_refills_are_one_large_one() {
        let mut bucket = bucket(&json!({"capacity": 100, "refillRate": 1}));
        bucket.admit(Timestamp::ZERO, &prompt(100));

        let instants = (1..1_000_000_000).step_by(999_983).map(Timestamp::from_nanos);
        let early = instants.filter(|&now| bucket.admit(now, &prompt(1)) == Admission::Admit);

        assert_eq!(early.count(), 0);
        assert_eq!(bucket.admit(seconds(1), &prompt(1)), Admission::Admit);
    }

    #[test]
    fn a_long_pause_does_not_fill_it_above_its_capacity() {
        let mut bucket = bucket(&json!({"capacity": 100}));
        bucket.admit(Timestamp::ZERO, &prompt(100));

        assert_eq!(bucket.admit(seconds(3600), &prompt(100)), Admission::Admit);
        assert_eq!(
            bucket.admit(seconds(3600), &prompt(1)),
            rejected(Some(Duration::from_millis(1)))
        );
    }

    #[test]
    fn a_prompt_larger_than_the_bucket_is_rejected_without_hope() {
        let mut bucket = bucket(&json!({"capacity": 100}));

        assert_eq!(bucket.admit(Timestamp::ZERO, &prompt(101)), rejected(None));
    }

    #[test]
    fn a_rejected_request_takes_nothing() {
        let mut bucket = bucket(&json!({"capacity": 100}));
        bucket.admit(Timestamp::ZERO, &prompt(101));

        assert_eq!(bucket.admit(Timestamp::ZERO, &prompt(100)), Admission::Admit);
    }

    #[test]
    fn a_bucket_that_holds_or_gets_nothing_is_refused() {
        let refusal = |params: Value| {
            let refused = instance::<TokenBucket>(Some(&params), &mut Needs::default());
            refused.unwrap_err().message
        };

        assert_eq!(refusal(json!({"capacity": 0})), "`capacity` must be above 0, found `0`");
        assert_eq!(
            refusal(json!({"refillRate": -1})),
            "`refillRate` must be above 0, found `-1`"
        );
    }

    proptest! {
        #[test]
        fn no_stretch_of_time_lets_in_more_than_a_full_bucket_and_its_refill(
            capacity in 1_u32..1000,
            rate in 1_u32..1000,
            arrivals in proptest::collection::vec((0_u64..2_000_000_000, 0_u32..300), 1..40),
        ) {
            let mut bucket = bucket(&json!({"capacity": capacity, "refillRate": rate}));
            let mut now = Timestamp::ZERO;
            let mut admitted = Vec::new();
            for (pause, tokens) in arrivals {
                now = now + Duration::from_nanos(pause);
                if bucket.admit(now, &prompt(tokens)) == Admission::Admit {
                    admitted.push((now, u128::from(tokens)));
                }
            }

            for (first, &(from, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for &(to, tokens) in &admitted[first..] {
                    sum += tokens;
                    let refill = (to - from).as_nanos() * u128::from(rate);
                    prop_assert!(sum * BILLIONTHS <= u128::from(capacity) * BILLIONTHS + refill);
                }
            }
        }
    }
}
