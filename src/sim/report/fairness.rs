//! How evenly something is shared.

/// Jain's index `(Σx)² / (n Σx²)`: 1 if all have the same, `1/n` if one has everything. 0 for nobody, 1 if nobody has
/// anything (spec, simulator 29).
pub fn jain(shares: &[u64]) -> f64 {
    if shares.is_empty() {
        return 0.0;
    }
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn jain_of_hand_made_shares() {
        assert_eq!(jain(&[]), 0.0);
        assert_eq!(jain(&[0, 0]), 1.0);
        assert_eq!(jain(&[5, 5, 5]), 1.0);
        assert_eq!(jain(&[8, 0, 0, 0]), 0.25);
        assert_eq!(jain(&[1, 3]), 0.8);
    }

    proptest! {
        #[test]
        fn jain_is_between_an_nth_and_one(shares in prop::collection::vec(0..1_000_000_u64, 1..40)) {
            let index = jain(&shares);

            prop_assert!(index >= 1.0 / shares.len() as f64 - 1e-12);
            prop_assert!(index <= 1.0 + 1e-12);
        }
    }
}
