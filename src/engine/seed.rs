//! Chance that can be repeated.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use twox_hash::XxHash64;

/// The generator that every draw in the engine comes from. Its stream is the same in every version and on every machine.
pub type Chance = ChaCha8Rng;

/// The one number from which all chance in a run follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub u64);

impl Seed {
    /// A generator for one `purpose`, such as `picker`.
    ///
    /// Each purpose has a stream of its own, so that one more draw in one place does not shift the draws of another.
    pub fn stream(self, purpose: &str) -> Chance {
        let mut chance = Chance::seed_from_u64(self.0);
        chance.set_stream(XxHash64::oneshot(0, purpose.as_bytes()));
        chance
    }
}

#[cfg(test)]
mod tests {
    use rand::Rng;

    use super::*;

    #[test]
    fn equal_seeds_and_purposes_give_equal_draws_and_others_do_not() {
        let draw = |seed, purpose| Seed(seed).stream(purpose).next_u64();

        assert_eq!(draw(1, "picker"), draw(1, "picker"));
        assert_ne!(draw(1, "picker"), draw(1, "arrivals"));
        assert_ne!(draw(1, "picker"), draw(2, "picker"));
    }
}
