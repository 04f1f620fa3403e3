//! A bound on label values that clients can invent.

use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashSet;

/// What values beyond the bound are called.
const OTHER: &str = "other";

/// The longest value, in bytes, that is shown as it is.
pub(super) const MAX_BYTES: usize = 256;

/// The first values that came, up to a bound; all later ones, and long ones, are `other`.
#[derive(Debug)]
pub(super) struct Bound {
    limit: usize,
    admitted: RwLock<FxHashSet<Arc<str>>>,
    other: Arc<str>,
}

/// The bounds of all label values that clients can invent.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    /// Of models and target models together.
    pub(super) models: Arc<Bound>,
    /// Of fairness ids.
    pub(super) fairness_ids: Arc<Bound>,
}

/// Distinct model names, and distinct fairness ids, that are told apart.
pub(super) const MAX_VALUES: usize = 1000;

impl Default for Bounds {
    fn default() -> Self {
        Self {
            models: Arc::new(Bound::new(MAX_VALUES)),
            fairness_ids: Arc::new(Bound::new(MAX_VALUES)),
        }
    }
}

impl Bound {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            admitted: RwLock::default(),
            other: OTHER.into(),
        }
    }

    /// Tells `value` apart from now on, whatever the limit: the operator named it.
    pub(super) fn pin(&self, value: &Arc<str>) {
        if value.len() <= MAX_BYTES {
            self.admitted.write().insert(value.clone());
        }
    }

    /// `value`, if it is one of those that are told apart.
    pub(super) fn admit(&self, value: &Arc<str>) -> Arc<str> {
        if value.len() > MAX_BYTES {
            return self.other.clone();
        }
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

    #[test]
    fn a_value_that_is_pinned_stays_itself_beyond_the_bound() {
        let bound = Bound::new(1);
        bound.admit(&"a".into());

        bound.pin(&"b".into());

        assert_eq!(&*bound.admit(&"b".into()), "b");
        assert_eq!(&*bound.admit(&"c".into()), "other");
    }

    #[test]
    fn a_long_value_is_other_and_takes_no_place() {
        let bound = Bound::new(1);
        let admit = |value: &str| bound.admit(&value.into()).to_string();
        let longest = "m".repeat(MAX_BYTES);

        assert_eq!(admit(&format!("{longest}m")), "other");
        assert_eq!(admit(&longest), longest);
    }
}
