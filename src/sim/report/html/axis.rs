//! Axes: where a value stands, and which values get a tick.

use super::number::{duration, figure, percent};

/// Ticks that an axis has room for.
const MOST_TICKS: f64 = 5.0;
/// A span of at least this ratio is drawn logarithmically.
const WIDE: f64 = 30.0;

/// One axis of a plot.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// What it measures.
    pub(super) title: String,
    /// The value at its start.
    pub(super) min: f64,
    /// The value at its end.
    pub(super) max: f64,
    /// The values that are marked, with their text.
    pub(super) ticks: Vec<(f64, String)>,
    is_logarithmic: bool,
}

impl Axis {
    /// From nothing to at least `max`.
    pub(super) fn amounts(max: f64, title: &str) -> Self {
        let max = if max > 0.0 { max } else { 1.0 };
        Self::linear(max, decimal_step(max / MOST_TICKS), figure, title.to_owned())
    }

    /// From nothing to at least `max`, in whole steps.
    pub(super) fn counts(max: f64, title: &str) -> Self {
        let max = max.max(1.0);
        Self::linear(max, decimal_step(max / MOST_TICKS).max(1.0), figure, title.to_owned())
    }

    /// From nothing to all.
    pub(super) fn shares(title: &str) -> Self {
        Self::linear(1.0, 0.25, percent, title.to_owned())
    }

    /// Simulated time until `end_us`.
    pub(super) fn time(end_us: f64) -> Self {
        let end_us = end_us.max(1.0);
        Self {
            max: end_us,
            ..Self::linear(
                end_us,
                time_step(end_us / MOST_TICKS),
                duration,
                "simulated time".to_owned(),
            )
        }
        .within()
    }

    /// Microseconds from nothing to at least `max`.
    pub(super) fn waits(max: f64, title: &str) -> Self {
        let max = max.max(1.0);
        Self::linear(max, time_step(max / MOST_TICKS), duration, title.to_owned())
    }

    /// Microseconds: logarithmic from `min` to `max` if they are far apart, else from nothing to `max`.
    pub(super) fn durations(min: f64, max: f64, title: String) -> Self {
        let max = max.max(1.0);
        if max < WIDE * min.max(1.0) {
            return Self::linear(max, time_step(max / MOST_TICKS), duration, title);
        }
        let (min, max) = (enclosing(min.max(1.0), false), enclosing(max, true));
        let decades = (max / min).log10();
        let factors: &[f64] = if decades <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let exponents = min.log10().floor() as i32..=max.log10().ceil() as i32;
        let candidates =
            exponents.flat_map(|exponent| factors.iter().map(move |factor| factor * 10_f64.powi(exponent)));
        let ticks = candidates.filter(|&tick| tick >= min * 0.999 && tick <= max * 1.001);
        let ticks: Vec<_> = ticks.map(|tick| (tick, duration(tick))).collect();
        let every = ticks.len().div_ceil(MOST_TICKS as usize + 2);
        Self {
            title: format!("{title} (log scale)"),
            min,
            max,
            ticks: ticks.into_iter().step_by(every).collect(),
            is_logarithmic: true,
        }
    }

    fn linear(max: f64, step: f64, label: fn(f64) -> String, title: String) -> Self {
        let steps = (max / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=steps as u32).map(|at| f64::from(at) * step);
        Self {
            title,
            min: 0.0,
            max: steps * step,
            ticks: ticks.map(|tick| (tick, label(tick))).collect(),
            is_logarithmic: false,
        }
    }

    /// Without the ticks past its end.
    fn within(mut self) -> Self {
        let max = self.max;
        self.ticks.retain(|&(tick, _)| tick <= max * 1.000_001);
        self
    }

    /// Where a value stands between the start, 0, and the end, 1.
    pub(super) fn position(&self, value: f64) -> f64 {
        let position = if self.is_logarithmic {
            (value.max(self.min) / self.min).ln() / (self.max / self.min).ln()
        } else {
            (value - self.min) / (self.max - self.min)
        };
        position.clamp(0.0, 1.0)
    }
}

/// The next of 1, 2, 5 times a power of ten on one side of `value`.
fn enclosing(value: f64, is_above: bool) -> f64 {
    let power = 10_f64.powi(value.log10().floor() as i32);
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let found = if is_above {
        steps.into_iter().find(|&step| step >= value * 0.999_999)
    } else {
        steps.into_iter().rev().find(|&step| step <= value * 1.000_001)
    };
    found.unwrap_or(value)
}

/// The least of 1, 2, 5 times a power of ten that is at least `step`.
fn decimal_step(step: f64) -> f64 {
    enclosing(step, true)
}

/// The same for microseconds; from half a minute on, steps that divide minutes, hours and days.
fn time_step(step: f64) -> f64 {
    const MINUTE: f64 = 60e6;
    const ROUND_MINUTES: [f64; 14] = [
        0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 180.0, 360.0, 720.0, 1_440.0, 2_880.0,
    ];
    if step <= 20e6 {
        return decimal_step(step);
    }
    let round = ROUND_MINUTES.map(|minutes| minutes * MINUTE);
    let found = round.into_iter().find(|&round| round >= step);
    found.unwrap_or_else(|| (step / (1_440.0 * MINUTE)).ceil() * 1_440.0 * MINUTE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(texts(&Axis::amounts(37.0, "")), ["0", "10", "20", "30", "40"]);
        assert_eq!(texts(&Axis::counts(2.0, "")), ["0", "1", "2"]);
        assert_eq!(texts(&Axis::time(352_179.0)), ["0", "100 ms", "200 ms", "300 ms"]);
        assert_eq!(
            texts(&Axis::time(600e6)),
            ["0", "2 min", "4 min", "6 min", "8 min", "10 min"]
        );
        assert_eq!(
            texts(&Axis::durations(8_000.0, 2_500_000.0, String::new())),
            ["10 ms", "100 ms", "1 s"]
        );
    }

    #[test]
    fn a_narrow_span_starts_at_nothing() {
        let axis = Axis::durations(10_000.0, 40_000.0, String::new());

        assert_eq!((axis.min, axis.position(20_000.0)), (0.0, 0.5));
    }

    proptest! {
        #[test]
        fn every_axis_holds_its_values_and_has_few_ticks(low in 1.0..1e9_f64, factor in 1.0..1e6_f64) {
            let high = low * factor;
            for axis in [
                Axis::amounts(high, ""),
                Axis::counts(high, ""),
                Axis::time(high),
                Axis::waits(high, ""),
                Axis::durations(low, high, String::new()),
            ] {
                prop_assert!(axis.max >= high * 0.999_99, "{:?} ends before {}", axis, high);
                prop_assert!((2..=8).contains(&axis.ticks.len()), "{:?}", axis);
                let places: Vec<_> = axis.ticks.iter().map(|&(tick, _)| axis.position(tick)).collect();
                prop_assert!(places.windows(2).all(|pair| pair[0] < pair[1]));
            }
        }
    }
}
