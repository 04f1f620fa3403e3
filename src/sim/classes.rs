//! SLO classes, and the priorities that they stand for (spec, simulator 6).

use std::collections::BTreeMap;
use std::sync::Arc;

/// The class whose priority a request has that names none, or one that is not known.
pub const STANDARD: &str = "standard";

/// The known classes, the most urgent first, and their priorities. Those below zero may be shed.
const DEFAULTS: [(&str, i32); 5] = [
    ("critical", 4),
    (STANDARD, 3),
    ("batch", -1),
    ("sheddable", -2),
    ("background", -3),
];

/// The largest and the smallest priority that a class may be given.
pub const PRIORITIES: std::ops::RangeInclusive<i32> = -100..=100;

/// The priority of each class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes(BTreeMap<Arc<str>, i32>);

impl Default for Classes {
    fn default() -> Self {
        Self(DEFAULTS.map(|(name, priority)| (name.into(), priority)).into())
    }
}

/// A class cannot have this priority, or does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    /// It does not exist.
    #[error("`{0}` is no SLO class; the classes are {known}", known = Classes::names())]
    Unknown(String),
    /// It lies outside of [`PRIORITIES`].
    #[error("the priority of class `{class}` must be from -100 to 100, found `{priority}`")]
    OutOfRange {
        /// The class.
        class: String,
        /// What was found.
        priority: i64,
    },
}

impl Classes {
    /// The known classes, for a message: in backticks, with commas between them.
    pub fn names() -> String {
        DEFAULTS.map(|(name, _)| format!("`{name}`")).join(", ")
    }

    /// True if `class` is one of the known ones.
    pub fn is_known(class: &str) -> bool {
        DEFAULTS.iter().any(|(name, _)| *name == class)
    }

    /// Gives a class another priority.
    ///
    /// # Errors
    ///
    /// If there is no such class, or the priority is outside of [`PRIORITIES`].
    pub fn set(&mut self, class: &str, priority: i64) -> Result<(), ClassError> {
        let Some(known) = self.0.get_mut(class) else {
            return Err(ClassError::Unknown(class.to_owned()));
        };
        let in_range = i32::try_from(priority)
            .ok()
            .filter(|priority| PRIORITIES.contains(priority));
        *known = in_range.ok_or(ClassError::OutOfRange {
            class: class.to_owned(),
            priority,
        })?;
        Ok(())
    }

    /// The priority of a class, known or not. Larger is more urgent.
    pub fn priority(&self, class: &str) -> i32 {
        let standard = || self.0.get(STANDARD).copied().unwrap_or_default();
        self.0.get(class).copied().unwrap_or_else(standard)
    }

    /// The priority as model servers count it: zero for the most urgent class, larger for others.
    pub fn server_priority(&self, class: &str) -> i32 {
        let highest = self.0.values().copied().max().unwrap_or_default();
        highest - self.priority(class)
    }

    /// The classes as objectives of the engine.
    pub fn objectives(&self) -> BTreeMap<Arc<str>, i32> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_is_not_known_counts_as_standard() {
        let classes = Classes::default();

        let priorities = ["critical", "", "whatever", "background"].map(|class| classes.priority(class));

        assert_eq!(priorities, [4, 3, 3, -3]);
    }

    #[test]
    fn servers_count_from_zero_for_the_most_urgent_class() {
        let classes = Classes::default();
        let counted =
            ["critical", STANDARD, "batch", "sheddable", "background"].map(|class| classes.server_priority(class));

        assert_eq!(counted, [0, 1, 5, 6, 7]);
    }

    #[test]
    fn only_known_classes_get_other_priorities_and_only_within_the_range() {
        let mut classes = Classes::default();

        assert_eq!(classes.set("batch", 7), Ok(()));
        assert_eq!(classes.priority("batch"), 7);
        let error = classes.set("gold", 1).unwrap_err().to_string();
        assert!(error.contains("`gold`") && error.contains("`critical`"), "{error}");
        let error = classes.set("batch", 101).unwrap_err().to_string();
        assert!(error.contains("101") && error.contains("-100 to 100"), "{error}");
    }
}
