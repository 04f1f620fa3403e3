//! The state in which the generator begins.
//!
//! A lagged Fibonacci generator starts badly if its state has little chance in it. The one of the reference was run for
//! 7.8·10¹² draws beforehand, and what it had then is mixed into every seed. These are numbers that one can look up, or
//! reach by one jump, as here. The draws obey
//!
//! ```text
//! x[n] = x[n - 607] + x[n - 273]   (mod 2^64)
//! ```
//!
//! so a draw is a sum of the 607 before any other one, and the factors of `x[n + e]` are the coefficients of `z^e`
//! modulo `z^607 - z^334 - 1`.

use std::sync::LazyLock;

use super::{LAG, LENGTH};

/// Draws that came before.
const DRAWS: u64 = 7_800_000_000_000;

/// The state after [`DRAWS`], in the order of the generator's words.
pub(super) static COOKED: LazyLock<[u64; LENGTH]> = LazyLock::new(cooked);

/// Which of the draws before the first one a word of the state is, from the oldest on. The state is filled from its
/// word 333 downwards, and goes on from its end. It is its own inverse.
pub(super) const fn draw_of(word: usize) -> usize {
    (2 * LENGTH - LAG - 1 - word) % LENGTH
}

fn cooked() -> [u64; LENGTH] {
    let mut lehmer = Lehmer::seeded(1);
    let raw: Vec<u64> = (0..LENGTH).map(|_| lehmer.word([20, 10, 0])).collect();
    // The words at the start, as the draws that they would have been; and as many more draws.
    let mut draws: Vec<u64> = (0..LENGTH).map(|draw| raw[draw_of(draw)]).collect();
    for n in LENGTH..2 * LENGTH {
        draws.push(draws[n - LENGTH].wrapping_add(draws[n - LAG]));
    }

    let factors = power(DRAWS);
    // The state is a ring: after so many draws, the oldest one is no longer where it was.
    let turned = (DRAWS % LENGTH as u64) as usize;
    let mut cooked = [0; LENGTH];
    for n in 0..LENGTH {
        let products = factors.iter().zip(&draws[n..]).map(|(a, b)| a.wrapping_mul(*b));
        cooked[draw_of((turned + n) % LENGTH)] = products.fold(0, u64::wrapping_add);
    }
    cooked
}

/// A polynomial modulo `z^607 - z^334 - 1`, the lowest power first.
type Polynomial = [u64; LENGTH];

/// `z` to the power of `exponent`.
fn power(exponent: u64) -> Polynomial {
    let mut result = [0; LENGTH];
    result[0] = 1;
    for bit in (0..u64::BITS - exponent.leading_zeros()).rev() {
        result = squared(&result);
        if exponent >> bit & 1 == 1 {
            result = times_z(&result);
        }
    }
    result
}

fn squared(factor: &Polynomial) -> Polynomial {
    let mut product = [0_u64; 2 * LENGTH - 1];
    for (at, a) in factor.iter().enumerate() {
        for (sum, b) in product[at..].iter_mut().zip(factor) {
            *sum = sum.wrapping_add(a.wrapping_mul(*b));
        }
    }
    for high in (LENGTH..product.len()).rev() {
        let excess = product[high];
        for low in [high - LENGTH, high - LAG] {
            product[low] = product[low].wrapping_add(excess);
        }
    }
    let mut rest = [0; LENGTH];
    rest.copy_from_slice(&product[..LENGTH]);
    rest
}

fn times_z(factor: &Polynomial) -> Polynomial {
    let mut product = *factor;
    product.rotate_right(1);
    let excess = product[0];
    product[LENGTH - LAG] = product[LENGTH - LAG].wrapping_add(excess);
    product
}

/// The small generator that fills the large one.
#[derive(Debug)]
pub(super) struct Lehmer(u64);

impl Lehmer {
    const MODULUS: i64 = (1 << 31) - 1;
    const MULTIPLIER: u64 = 48271;
    /// Numbers that are thrown away at the start.
    const DISCARDED: usize = 20;

    pub(super) fn seeded(seed: i64) -> Self {
        let start = match seed.rem_euclid(Self::MODULUS) {
            0 => 89_482_311,
            start => start.unsigned_abs(),
        };
        let mut lehmer = Self(start);
        for _ in 0..Self::DISCARDED {
            lehmer.next();
        }
        lehmer
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0 * Self::MULTIPLIER % Self::MODULUS.unsigned_abs();
        self.0
    }

    /// A word of three numbers, each shifted to the left by so many bits.
    pub(super) fn word(&mut self, shifts: [u32; 3]) -> u64 {
        shifts.into_iter().fold(0, |word, shift| word ^ self.next() << shift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_leads_where_single_draws_do() {
        // Powers below 607 are not reduced; above it each is the sum of two others.
        let mut steps = [0; LENGTH];
        steps[0] = 1;
        for _ in 0..5000 {
            steps = times_z(&steps);
        }

        assert_eq!(power(5000), steps);
        assert_eq!(power(606)[606], 1);
        assert_eq!((power(607)[0], power(607)[334]), (1, 1));
    }
}
