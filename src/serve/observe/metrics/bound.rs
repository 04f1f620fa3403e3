//! A bound on label values that clients can invent.

use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashSet;

/// What values beyond the bound are called.
const OTHER: &str = "other";

/// The first values that came, up to a bound; all later ones are `other`.
#[derive(Debug)]
pub(super) struct Bound {
    limit: usize,
    admitted: RwLock<FxHashSet<Arc<str>>>,
    other: Arc<str>,
}

impl Bound {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            admitted: RwLock::default(),
            other: OTHER.into(),
        }
    }

    /// `value`, if it is one of those that are told apart.
    pub(super) fn admit(&self, value: &Arc<str>) -> Arc<str> {
        if self.admitted.read().contains(value) {
            return value.clone();
        }
        let mut admitted = self.admitted.write();
        if admitted.len() >= self.limit && !admitted.contains(value) {
            return self.other.clone();
        }
        admitted.insert(value.clone());
        value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_bound_are_other_and_those_before_it_stay_themselves() {
        let bound = Bound::new(2);
        let admit = |value: &str| bound.admit(&value.into()).to_string();

        assert_eq!(["a", "b", "c", "a", "d"].map(admit), ["a", "b", "other", "a", "other"]);
    }
}
