//! How many requests are in each bucket.

use std::ops::Index;

use crate::sim::record::{End, RequestRecord};

/// How many requests ended in each way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally([u64; End::ALL.len()]);

impl Tally {
    /// Counts requests.
    pub fn of<'a>(requests: impl IntoIterator<Item = &'a RequestRecord>) -> Self {
        let mut tally = Self::default();
        for request in requests {
            tally.0[request.end as usize] += 1;
        }
        tally
    }

    /// Each bucket and its count, in the order of [`End::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (End, u64)> + '_ {
        End::ALL.into_iter().map(|end| (end, self[end]))
    }

    /// All requests.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// What the reference calls injected: requests that are or were on an instance, or timed out on the way.
    pub fn injected(&self) -> u64 {
        let counted = [
            End::Completed,
            End::StillQueued,
            End::StillRunning,
            End::Dropped,
            End::TimedOut,
        ];
        counted.into_iter().map(|end| self[end]).sum()
    }
}

impl Index<End> for Tally {
    type Output = u64;

    fn index(&self, end: End) -> &u64 {
        &self.0[end as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::report::testing::mixed_run;

    #[test]
    fn each_request_is_in_one_bucket() {
        let run = mixed_run();
        let tally = Tally::of(&run.requests);

        assert_eq!(tally.iter().map(|(_, count)| count).sum::<u64>(), 13);
        assert_eq!(tally.total(), 13);
        for (place, end) in End::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, place, "the order of `ALL` is that of the variants");
        }
    }
}
