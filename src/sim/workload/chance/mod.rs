//! Chance that the reference would have, too: equal seeds give its workloads, number by number (spec, simulator 3).
//!
//! Everything random in a workload comes from an additive lagged Fibonacci generator, which one integer seeds. Runs are
//! repeatable without it; it is this one so that results can be laid beside those of the reference.

mod cook;
mod ziggurat;

use std::fmt;

use cook::{COOKED, Lehmer, draw_of};

/// Words of state, and the longer of the two lags.
const LENGTH: usize = 607;

/// The shorter lag.
const LAG: usize = 273;

/// The largest 63-bit number, and as a mask what makes one.
const MOST_63: u64 = (1 << 63) - 1;

/// A stream of random numbers. About five kilobytes.
#[derive(Clone)]
pub struct Stream {
    /// The last draws, or those to come, in their order.
    draws: Box<[u64; LENGTH]>,
    /// How many of them were taken.
    taken: usize,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// The stream that `seed` stands for.
    pub fn seeded(seed: i64) -> Self {
        let mut lehmer = Lehmer::seeded(seed);
        let mut draws = Box::new([0; LENGTH]);
        for (word, cooked) in COOKED.iter().enumerate() {
            draws[draw_of(word)] = lehmer.word([40, 20, 0]) ^ cooked;
        }
        Self { draws, taken: LENGTH }
    }

    /// The stream for one purpose in a run with this seed. Draws for one purpose never shift those for another.
    pub fn named(seed: u64, name: &str) -> Self {
        Self::seeded(Self::seed_of(seed, name))
    }

    /// The seed of [`Self::named`].
    pub fn seed_of(seed: u64, name: &str) -> i64 {
        let seed = match name {
            "workload" => seed,
            name => seed ^ fnv1a(name),
        };
        seed.cast_signed()
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        if self.taken == LENGTH {
            self.refill();
        }
        let bits = self.draws[self.taken];
        self.taken += 1;
        bits
    }

    /// Each draw is the sum of two earlier ones. All that fit are made at once, which takes a third off the time of a draw.
    #[cold]
    fn refill(&mut self) {
        let (first, last) = self.draws.split_at_mut(LENGTH - LAG);
        add(first, last);
        for start in [LAG, 2 * LAG] {
            let (before, rest) = self.draws.split_at_mut(start);
            add(rest, &before[start - LAG..]);
        }
        self.taken = 0;
    }

    /// 63 random bits.
    #[inline]
    pub fn bits_63(&mut self) -> u64 {
        self.bits() & MOST_63
    }

    /// 63 random bits, as the seed of another stream.
    pub fn seed(&mut self) -> i64 {
        self.bits_63().cast_signed()
    }

    /// 32 random bits.
    pub fn bits_32(&mut self) -> u32 {
        (self.bits_63() >> 31) as u32
    }

    /// 31 random bits.
    #[inline]
    fn bits_31(&mut self) -> u32 {
        (self.bits_63() >> 32) as u32
    }

    /// A number from 0 to 1, without 1.
    pub fn uniform(&mut self) -> f64 {
        loop {
            let share = self.bits_63() as f64 / (1_u64 << 63) as f64;
            if share < 1.0 {
                return share;
            }
        }
    }

    /// A whole number below that of `range`.
    #[inline]
    pub fn below(&mut self, range: Range) -> u32 {
        loop {
            let bits = self.bits_31();
            if bits <= range.largest {
                return bits % range.numbers;
            }
        }
    }
}

/// Adds the second numbers to the first, as far as both go.
fn add(to: &mut [u64], from: &[u64]) {
    for (sum, addend) in to.iter_mut().zip(from) {
        *sum = sum.wrapping_add(*addend);
    }
}

/// The numbers from zero up to, but without, another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    numbers: u32,
    /// Larger draws than this would prefer small numbers.
    largest: u32,
}

impl Range {
    /// The numbers below `numbers`, which is above zero and below 2^31.
    pub const fn below(numbers: u32) -> Self {
        assert!(
            numbers > 0 && numbers < 1 << 31,
            "a range has a number, and fits into 31 bits"
        );
        Self {
            numbers,
            largest: (1 << 31) - 1 - (1 << 31) % numbers,
        }
    }
}

/// 64-bit FNV-1a of a name.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_streams_begin_as_those_of_the_reference() {
        let expected: [(&str, [u64; 3]); 10] = [
            (
                "workload",
                [3440579354231278675, 608747136543856411, 5571782338101878760],
            ),
            (
                "workload-gen",
                [8021973113318348621, 8992864799868832677, 4436493985809465938],
            ),
            (
                "router",
                [2209865534360810960, 8005449091104485856, 4229094246506554210],
            ),
            (
                "prefill-router",
                [8906709647851693348, 9018626376524271794, 6567165078450972775],
            ),
            (
                "decode-router",
                [6999701258368760347, 5121608088504426549, 2808165378574169310],
            ),
            (
                "instance_0",
                [2625784627403609769, 929103044886280383, 1824349030359786245],
            ),
            (
                "autoscaler",
                [9122179000946552911, 4047079908058674666, 3042107955517231774],
            ),
            (
                "kv-offload",
                [6265159159888014515, 3033493735641817116, 3037070907026367873],
            ),
            (
                "node-provisioning",
                [3722293138482516384, 2279102756353161040, 7230432458519658665],
            ),
            (
                "instance-loading",
                [1188076432630202603, 8294171995799054752, 7917032740558038189],
            ),
        ];

        for (name, draws) in expected {
            let mut stream = Stream::named(42, name);
            assert_eq!(draws, [(); 3].map(|()| stream.bits_63()), "{name}");
        }
    }

    #[test]
    fn seed_42_gives_the_numbers_of_the_reference() {
        let stream = || Stream::seeded(42);
        let mut uniform = stream();
        let mut tokens = stream();
        let mut fours = stream();

        assert_eq!(
            [(); 5].map(|()| uniform.uniform()),
            [
                0.373_028_361_046_632_6,
                0.06600049679351791,
                0.604_093_851_558_642,
                0.20881870305465913,
                0.043818458599374305
            ]
        );
        assert_eq!(
            [(); 10].map(|()| tokens.below(Range::below(128_000))),
            [48305, 38987, 1668, 50750, 19423, 117345, 104357, 119176, 54128, 50643]
        );
        assert_eq!(
            [(); 10].map(|()| fours.below(Range::below(4))),
            [1, 3, 0, 2, 3, 1, 1, 0, 0, 3]
        );
    }

    #[test]
    fn every_seed_has_a_stream() {
        let first = |seed| Stream::seeded(seed).bits_63();

        // Drawn with Go 1.26.
        assert_eq!(first(0), 8717895732742165505);
        assert_eq!(first(-5), 1811683815564572222);
        assert_eq!(first(1 << 40), 5470237361722394362);
    }
}
