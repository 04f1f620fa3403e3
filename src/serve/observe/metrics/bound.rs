//! A bound on the label values of gauges that are made for one page.

use super::series::{MAX_VALUE_BYTES, OTHER};

/// The most combinations of label values that a gauge shows. To be asked for the largest values first.
pub(super) const MAX_COMBINATIONS: usize = 500;

/// Counts the combinations that a page shows. Those beyond the bound, and long values, are `other`.
#[derive(Debug)]
pub(super) struct Bound {
    left: usize,
}

impl Default for Bound {
    fn default() -> Self {
        Self { left: MAX_COMBINATIONS }
    }
}

impl Bound {
    /// The labels that the next combination is shown with. Without a value a label is `other`.
    pub(super) fn label<'v, const N: usize>(&mut self, values: [Option<&'v str>; N]) -> [&'v str; N] {
        let is_told_apart = self.left > 0;
        self.left = self.left.saturating_sub(1);
        values.map(|value| {
            let value = value.filter(|value| is_told_apart && value.len() <= MAX_VALUE_BYTES);
            value.unwrap_or(OTHER)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_beyond_the_bound_and_long_values_are_other() {
        let mut bound = Bound { left: 2 };
        let long = "m".repeat(MAX_VALUE_BYTES + 1);

        assert_eq!(bound.label([Some("a"), Some(&long)]), ["a", "other"]);
        assert_eq!(bound.label([Some("b"), None]), ["b", "other"]);
        assert_eq!(bound.label([Some("a"), Some("c")]), ["other", "other"]);
    }
}
