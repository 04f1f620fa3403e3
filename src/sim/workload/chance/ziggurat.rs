//! Normal and exponential numbers, by the ziggurat method of Marsaglia and Tsang (2000).
//!
//! The area below a density is covered with layers of equal area; nearly every draw falls into the part of its layer that
//! lies wholly below the curve and costs one multiplication. The tables are kept in single precision and the last
//! comparison is made in it, as the reference does: otherwise one draw in some millions would differ.

use std::sync::LazyLock;

use super::Stream;

/// The layers below one density.
#[derive(Debug)]
struct Ziggurat<const LAYERS: usize> {
    /// Draws below this lie below the curve for certain.
    certain: [u32; LAYERS],
    /// What a draw is multiplied with.
    width: [f32; LAYERS],
    /// The density at the layer's right edge.
    density: [f32; LAYERS],
}

impl<const LAYERS: usize> Ziggurat<LAYERS> {
    /// Layers of the area `area`, the lowest of which ends at `edge`; draws go up to `draws`.
    fn new(edge: f64, area: f64, draws: f64, density: fn(f64) -> f64, inverse: fn(f64) -> f64) -> Self {
        let last = LAYERS - 1;
        let base = area / density(edge);
        let mut this = Self {
            certain: [0; LAYERS],
            width: [0.0; LAYERS],
            density: [0.0; LAYERS],
        };
        this.certain[0] = (edge / base * draws) as u32;
        this.width[0] = (base / draws) as f32;
        this.width[last] = (edge / draws) as f32;
        this.density[0] = 1.0;
        this.density[last] = density(edge) as f32;
        let mut right = edge;
        for layer in (1..last).rev() {
            let inner = inverse(area / right + density(right));
            this.certain[layer + 1] = (inner / right * draws) as u32;
            this.width[layer] = (inner / draws) as f32;
            this.density[layer] = density(inner) as f32;
            right = inner;
        }
        this
    }

    /// Whether a point at the height `share` of its layer lies below the curve.
    fn is_below(&self, layer: usize, share: f64, density: f64) -> bool {
        let height = self.density[layer - 1] - self.density[layer];
        self.density[layer] + share as f32 * height < density as f32
    }
}

const NORMAL_EDGE: f64 = 3.442_619_855_899;
const NORMAL_AREA: f64 = 9.912_563_035_262_17e-3;

fn normal_density(x: f64) -> f64 {
    libm::exp(-0.5 * x * x)
}

static NORMAL: LazyLock<Ziggurat<128>> = LazyLock::new(|| {
    let inverse = |y| libm::sqrt(-2.0 * libm::log(y));
    Ziggurat::new(NORMAL_EDGE, NORMAL_AREA, (1_u64 << 31) as f64, normal_density, inverse)
});

const EXPONENTIAL_EDGE: f64 = 7.697_117_470_131_05;
const EXPONENTIAL_AREA: f64 = 3.949_659_822_581_572e-3;

fn exponential_density(x: f64) -> f64 {
    libm::exp(-x)
}

static EXPONENTIAL: LazyLock<Ziggurat<256>> = LazyLock::new(|| {
    let inverse = |y| -libm::log(y);
    let draws = (1_u64 << 32) as f64;
    Ziggurat::new(EXPONENTIAL_EDGE, EXPONENTIAL_AREA, draws, exponential_density, inverse)
});

impl Stream {
    /// A normally distributed number of mean 0 and standard deviation 1.
    pub fn normal(&mut self) -> f64 {
        loop {
            let draw = self.bits_32().cast_signed();
            let layer = (draw & 0x7f) as usize;
            let x = f64::from(draw) * f64::from(NORMAL.width[layer]);
            if draw.unsigned_abs() < NORMAL.certain[layer] {
                return x;
            }
            if layer == 0 {
                let tail = NORMAL_EDGE + self.normal_tail();
                return if draw > 0 { tail } else { -tail };
            }
            if NORMAL.is_below(layer, self.uniform(), normal_density(x)) {
                return x;
            }
        }
    }

    /// How far a number beyond the edge lies beyond it.
    fn normal_tail(&mut self) -> f64 {
        loop {
            let x = -libm::log(self.uniform()) * (1.0 / NORMAL_EDGE);
            let y = -libm::log(self.uniform());
            if y + y >= x * x {
                return x;
            }
        }
    }

    /// An exponentially distributed number of mean 1.
    pub fn exponential(&mut self) -> f64 {
        loop {
            let draw = self.bits_32();
            let layer = (draw & 0xff) as usize;
            let x = f64::from(draw) * f64::from(EXPONENTIAL.width[layer]);
            if draw < EXPONENTIAL.certain[layer] {
                return x;
            }
            if layer == 0 {
                return EXPONENTIAL_EDGE - libm::log(self.uniform());
            }
            if EXPONENTIAL.is_below(layer, self.uniform(), exponential_density(x)) {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_42_gives_the_numbers_of_the_reference() {
        let (mut normal, mut exponential) = (Stream::seeded(42), Stream::seeded(42));

        assert_eq!(
            [(); 5].map(|()| normal.normal()),
            [
                1.5536305584564762,
                0.12525608682704692,
                -0.494_374_812_770_482_8,
                1.2440150150762053,
                0.131_978_484_271_070_5
            ]
        );
        assert_eq!(
            [(); 5].map(|()| exponential.exponential()),
            [
                0.49573841490239784,
                0.13054718375896252,
                0.1532334522090758,
                0.3384463626094486,
                0.11596423879404183
            ]
        );
    }

    #[test]
    fn a_million_numbers_take_as_many_draws_as_in_the_reference() {
        // Each uneven case (tail, edge of a layer) costs more draws: one that is decided differently shifts all that
        // follow. Sums and the draw after them are those of Go 1.26.
        for (seed, normals, exponentials, next) in [
            (42, -371.9465115160147, 998378.0737692981, 273637848904516787),
            (7, -772.890395038534, 1001253.2949658373, 7536228834022210437),
        ] {
            let mut stream = Stream::seeded(seed);
            let (mut a, mut b) = (0.0, 0.0);
            for _ in 0..1_000_000 {
                a += stream.normal();
                b += stream.exponential();
            }

            assert!((a - normals).abs() < 1e-6, "{a}");
            assert!((b - exponentials).abs() < 1e-6, "{b}");
            assert_eq!(stream.bits_63(), next);
        }
    }
}
