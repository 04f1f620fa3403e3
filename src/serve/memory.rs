//! The memory that requests may use together, of which each stream has a share.
//!
//! A stream takes a fixed amount when it opens, and more as its request body comes in. What would go beyond the budget is
//! refused, so that the kernel has no reason to end the process and with it every other request.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What an open stream holds besides a request body, in bytes: its state, and that of HTTP/2 for it.
pub const STREAM_BYTES: usize = 16 * 1024;

/// Bytes for all streams together.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
}

/// The budget does not allow so much more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory for requests is used up ({limit} bytes, a part of --memory-limit)")]
pub struct Exhausted {
    /// Bytes of the budget.
    pub limit: usize,
}

/// The part of one stream, given back when this is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

// === impl Budget ===

impl Budget {
    /// A budget of so many bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
        }
    }

    /// Bytes that may be used.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are used.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Default for Budget {
    /// No bound.
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

// === impl Share ===

impl Share {
    /// A share of nothing yet.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { budget, bytes: 0 }
    }

    /// Uses `bytes` from here on, which may be more or less than before.
    ///
    /// # Errors
    ///
    /// It is more, and the budget does not allow it. The share is as before.
    pub fn set(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let budget = &self.budget;
        if bytes <= self.bytes {
            budget.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else {
            let more = bytes - self.bytes;
            let within = |used: usize| used.checked_add(more).filter(|sum| *sum <= budget.limit);
            let updated = budget.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
            updated.map_err(|_| Exhausted { limit: budget.limit })?;
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Bytes that are used.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_byte_beyond_the_budget_is_refused_and_changes_nothing() {
        let budget = Arc::new(Budget::new(10));
        let [mut one, mut other] = [(); 2].map(|()| Share::new(Arc::clone(&budget)));

        assert_eq!(one.set(6), Ok(()));
        assert_eq!(other.set(4), Ok(()));
        assert_eq!(other.set(5), Err(Exhausted { limit: 10 }));
        assert_eq!((other.bytes(), budget.used()), (4, 10));
        drop(one);
        assert_eq!(other.set(10), Ok(()));
    }

    proptest! {
        #[test]
        fn what_is_used_is_the_sum_of_the_shares_and_never_beyond_the_limit(
            steps in prop::collection::vec((0..4_usize, 0..60_usize, any::<bool>()), 0..60),
        ) {
            let budget = Arc::new(Budget::new(100));
            let mut shares: Vec<_> = (0..4).map(|_| Share::new(Arc::clone(&budget))).collect();

            for (index, bytes, is_dropped) in steps {
                if is_dropped {
                    shares[index] = Share::new(Arc::clone(&budget));
                } else {
                    let _ = shares[index].set(bytes);
                }
                prop_assert_eq!(budget.used(), shares.iter().map(Share::bytes).sum::<usize>());
                prop_assert!(budget.used() <= budget.limit());
            }
        }
    }
}
