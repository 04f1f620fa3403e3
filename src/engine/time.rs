//! Points in time, as the driver tells them.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: nanoseconds since an epoch that the driver chose.
///
/// The engine never reads a clock; every call that needs the time is given one of these. It never goes back: a driver
/// passes values that do not decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The driver's epoch.
    pub const ZERO: Self = Self(0);

    /// A point `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`, or zero if `earlier` is the later one.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the end of time, some 584 years after the epoch.
    fn add(self, span: Duration) -> Self {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(nanos))
    }
}

impl Sub for Timestamp {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_that_would_run_backwards_is_zero() {
        let (early, late) = (Timestamp::from_nanos(5), Timestamp::from_nanos(8));

        assert_eq!(late - early, Duration::from_nanos(3));
        assert_eq!(early - late, Duration::ZERO);
    }

    #[test]
    fn the_end_of_time_is_not_passed() {
        let end = Timestamp::from_nanos(u64::MAX);

        assert_eq!(end + Duration::from_secs(1), end);
        assert_eq!(Timestamp::ZERO + Duration::MAX, end);
    }
}
