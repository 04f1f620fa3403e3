//! Limits the rate of prompt tokens.

use std::time::Duration;

use serde::Deserialize;

use super::super::plugin::{Needs, Parameter, Plugin};
use super::super::request::Request;
use super::super::time::Timestamp;
use super::{Admission, AdmissionPolicy, View};

/// A bucket of tokens that starts full and is refilled all the time. A request takes as many as its prompt has, or is
/// rejected and takes none.
///
/// Capacity and rate are whole billionths of a token, and levels whole billionths of those: a nanosecond of refill is
/// `refill_rate` of them, and nothing is ever rounded.
#[derive(Debug)]
pub(super) struct TokenBucket {
    capacity: Level,
    /// Billionths of a token for each second.
    refill_rate: u128,
    level: Level,
    refilled: Option<Timestamp>,
}

/// Billionths of billionths of a token.
type Level = u128;

const BILLION: u128 = 1_000_000_000;

/// A level of so many tokens.
fn level_of(tokens: u32) -> Level {
    u128::from(tokens) * BILLION * BILLION
}

/// Billionths in a finite number above 0, at least one. Exact for whole numbers.
fn billionths(number: f64) -> u128 {
    let fraction = (number.fract() * BILLION as f64).round() as u128;
    ((number.trunc() as u128)
        .saturating_mul(BILLION)
        .saturating_add(fraction))
    .max(1)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Params {
    capacity: f64,
    refill_rate: f64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            capacity: 10_000.0,
            refill_rate: 1000.0,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{name}` must be above 0, found `{value}`")]
pub(super) struct Error {
    name: &'static str,
    value: f64,
}

impl Plugin for TokenBucket {
    const TYPE: &'static str = "token-bucket";
    const SUMMARY: &'static str = "limits the rate of prompt tokens, and lets bursts in as far as the bucket is full";
    const PARAMETERS: &'static [Parameter] = &[
        Parameter {
            name: "capacity",
            default: "10000",
            summary: "tokens in a full bucket; a prompt with more is never admitted (413); above 0, and need not be whole",
        },
        Parameter {
            name: "refillRate",
            default: "1000",
            summary: "tokens that come back each second; above 0, and need not be whole",
        },
    ];
    type Params = Params;
    type Error = Error;

    fn from_params(params: Params, _: &mut Needs) -> Result<Self, Error> {
        let positive = |name, value: f64| match value > 0.0 && value.is_finite() {
            true => Ok(billionths(value)),
            false => Err(Error { name, value }),
        };
        let capacity = positive("capacity", params.capacity)?.saturating_mul(BILLION);
        Ok(Self {
            capacity,
            refill_rate: positive("refillRate", params.refill_rate)?,
            level: capacity,
            refilled: None,
        })
    }
}

impl TokenBucket {
    fn refill(&mut self, now: Timestamp) {
        let elapsed = now.since(self.refilled.unwrap_or(now)).as_nanos();
        let refill = elapsed.saturating_mul(self.refill_rate);
        self.level = self.level.saturating_add(refill).min(self.capacity);
        self.refilled = Some(now);
    }

    /// Time until the bucket, left alone, has `missing` more.
    fn time_for(&self, missing: Level) -> Duration {
        let nanos = missing.div_ceil(self.refill_rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl AdmissionPolicy for TokenBucket {
    fn admit(&mut self, now: Timestamp, request: &Request, _: View<'_>) -> Admission {
        self.refill(now);
        let cost = level_of(request.prompt_tokens);
        match self.level.checked_sub(cost) {
            Some(left) => {
                self.level = left;
                Admission::Admit
            }
            None if cost > self.capacity => {
                let (tokens, capacity) = (request.prompt_tokens, self.capacity as f64 / BILLION.pow(2) as f64);
                Admission::TooLarge {
                    reason: format!(
                        "its prompt has about {tokens} tokens, and the token bucket never holds more than {capacity}"
                    )
                    .into(),
                }
            }
            None => Admission::Reject {
                reason: "insufficient tokens".into(),
                retry_after: Some(self.time_for(cost - self.level)),
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
    use super::super::super::scheduling::testing::Scene;
    use super::*;

    fn bucket(params: &Value) -> TokenBucket {
        instance(Some(params), &mut Needs::default()).unwrap()
    }

    fn admit(bucket: &mut TokenBucket, now: Timestamp, prompt_tokens: u32) -> Admission {
        let request = Request {
            prompt_tokens,
            ..Request::unknown(Kind::Inference)
        };
        Scene::new().now(now).admits(bucket, &request)
    }

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn rejected_for(time: Duration) -> Admission {
        Admission::Reject {
            reason: "insufficient tokens".into(),
            retry_after: Some(time),
        }
    }

    fn too_large(reason: &'static str) -> Admission {
        Admission::TooLarge { reason: reason.into() }
    }

    #[test]
    fn a_full_bucket_lets_a_burst_in_at_whatever_time_it_comes() {
        let mut bucket = bucket(&json!({}));

        let admitted = (0..30).filter(|_| admit(&mut bucket, seconds(77), 512) == Admission::Admit);

        assert_eq!(admitted.count(), 19, "10000 / 512");
    }

    #[test]
    fn the_refill_is_the_elapsed_microseconds_times_the_rate() {
        let mut bucket = bucket(&json!({"capacity": 100, "refillRate": 1000}));
        admit(&mut bucket, Timestamp::ZERO, 100);
        let micros = |micros| Timestamp::ZERO + Duration::from_micros(micros);

        assert_eq!(
            admit(&mut bucket, micros(9_999), 10),
            rejected_for(Duration::from_micros(1))
        );
        assert_eq!(admit(&mut bucket, micros(10_000), 10), Admission::Admit);
    }

    #[test]
    fn many_small_refills_are_one_large_one() {
        let mut bucket = bucket(&json!({"capacity": 100, "refillRate": 1}));
        admit(&mut bucket, Timestamp::ZERO, 100);

        let instants = (1..1_000_000_000).step_by(999_983).map(Timestamp::from_nanos);
        let early = instants.filter(|&now| admit(&mut bucket, now, 1) == Admission::Admit);

        assert_eq!(early.count(), 0);
        assert_eq!(admit(&mut bucket, seconds(1), 1), Admission::Admit);
    }

    #[test]
    fn a_long_pause_does_not_fill_it_above_its_capacity() {
        let mut bucket = bucket(&json!({"capacity": 100}));
        admit(&mut bucket, Timestamp::ZERO, 100);

        assert_eq!(admit(&mut bucket, seconds(3600), 100), Admission::Admit);
        assert_eq!(
            admit(&mut bucket, seconds(3600), 1),
            rejected_for(Duration::from_millis(1))
        );
    }

    #[test]
    fn a_prompt_larger_than_the_bucket_is_never_admitted_and_the_reason_says_why() {
        let mut bucket = bucket(&json!({"capacity": 100}));

        assert_eq!(
            admit(&mut bucket, Timestamp::ZERO, 101),
            too_large("its prompt has about 101 tokens, and the token bucket never holds more than 100")
        );
    }

    #[test]
    fn a_rejected_request_takes_nothing() {
        let mut bucket = bucket(&json!({"capacity": 100}));
        admit(&mut bucket, Timestamp::ZERO, 101);

        assert_eq!(admit(&mut bucket, Timestamp::ZERO, 100), Admission::Admit);
    }

    #[test]
    fn rates_and_capacities_need_not_be_whole() {
        let mut bucket = bucket(&json!({"capacity": 1.5, "refillRate": 0.5}));

        assert_eq!(admit(&mut bucket, seconds(0), 1), Admission::Admit);
        assert_eq!(admit(&mut bucket, seconds(0), 1), rejected_for(Duration::from_secs(1)));
        assert_eq!(admit(&mut bucket, seconds(1), 1), Admission::Admit);
        assert_eq!(
            admit(&mut bucket, seconds(1), 2),
            too_large("its prompt has about 2 tokens, and the token bucket never holds more than 1.5")
        );
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let mut bucket = bucket(&json!({"capacity": f64::MAX, "refillRate": f64::MAX}));
        let end = Timestamp::from_nanos(u64::MAX);

        assert_eq!(admit(&mut bucket, seconds(0), u32::MAX), Admission::Admit);
        assert_eq!(admit(&mut bucket, end, u32::MAX), Admission::Admit);
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
                if admit(&mut bucket, now, tokens) == Admission::Admit {
                    admitted.push((now, u128::from(tokens)));
                }
            }

            for (first, &(from, _)) in admitted.iter().enumerate() {
                let mut sum = 0;
                for &(to, tokens) in &admitted[first..] {
                    sum += tokens;
                    let refill = (to - from).as_nanos() * u128::from(rate);
                    prop_assert!(sum * BILLION <= u128::from(capacity) * BILLION + refill);
                }
            }
        }
    }
}
