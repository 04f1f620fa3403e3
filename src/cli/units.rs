//! Values as people type them on a command line.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use forebay::engine::config::duration::{self, DurationError};
use forebay::engine::config::quantity::Quantity;

/// Reads a path that may be empty, which is as if the flag were not given: pods of the reference say so.
pub(super) fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Reads a duration as it is written in configurations, such as `8ms`, `1.5s` or `1m30s`.
pub(super) fn duration(text: &str) -> Result<Duration, DurationError> {
    duration::parse(text)
}

/// Reads a whole number of at least 1.
pub(super) fn count<T: TryFrom<NonZeroU64>>(text: &str) -> Result<T, String> {
    let number = text
        .parse::<NonZeroU64>()
        .ok()
        .and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| format!("found `{text}`; it must be a whole number, 1 or more, that is not too large"))
}

/// Reads a number that is not below 0.
pub(super) fn not_negative(text: &str) -> Result<f64, String> {
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|number| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| format!("found `{text}`; it must be a number, 0 or more"))
}

/// Reads a number.
pub(super) fn finite(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("found `{text}`; it must be a number"))
}

/// Reads a fraction, 0 to 1, where people may think of percent.
pub(super) fn fraction(text: &str) -> Result<f64, String> {
    let number = not_negative(text).ok().filter(|number| *number <= 1.0);
    number.ok_or_else(|| format!("found `{text}`; it must be a fraction from 0 to 1: 0.15 stands for 15 %"))
}

/// Reads seconds, whole or not, or a duration such as `1m30s`: anything above 0.
pub(super) fn seconds_above_zero(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().map(Duration::try_from_secs_f64);
    let time = match seconds {
        Ok(seconds) => seconds.ok(),
        Err(_) => duration(text).ok(),
    };
    time.filter(|time| !time.is_zero()).ok_or_else(|| {
        format!("`{text}` is not a time above 0; write a duration such as `10s` or `1m30s`, or a number of seconds")
    })
}

/// The largest size. Nothing that has one fits into memory beyond it, so it is a slip.
const MOST_BYTES: usize = 1 << 50;

/// Reads a size in bytes such as `64Mi`, `10MiB` or `25MB`.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let quantity = text.strip_suffix(['B', 'b']).unwrap_or(text);
    let Quantity { value, is_rounded } = Quantity::parse(quantity).map_err(|error| error.to_string())?;
    if is_rounded {
        return Err(format!(
            "`{text}` is not a whole number of bytes: `m` is a thousandth; write `M` for megabytes, `Mi` for mebibytes"
        ));
    }
    usize::try_from(value)
        .ok()
        .filter(|bytes| (1..=MOST_BYTES).contains(bytes))
        .ok_or_else(|| format!("`{text}` is not a size; a number of bytes from 1 to `1Pi` is needed, such as `64Mi`"))
}

/// Reads a factor above zero.
pub(super) fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => Err(format!(
            "`{text}` is not a factor; a number above 0 is needed, such as `2.5`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_may_have_more_than_one_unit() {
        assert_eq!(duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert!(duration("8").is_err());
    }

    #[test]
    fn numbers_that_are_out_of_range_are_told_what_would_be_right() {
        use std::num::NonZeroU32;

        assert_eq!(count::<NonZeroU32>("7").map(NonZeroU32::get), Ok(7));
        for text in ["0", "-1", "1.5", "4294967296", "x"] {
            assert!(
                count::<NonZeroU32>(text).is_err_and(|error| error.contains("1 or more")),
                "{text}"
            );
        }
        assert_eq!((not_negative("0"), fraction("0.15")), (Ok(0.0), Ok(0.15)));
        for text in ["-0.1", "NaN", "inf", "x"] {
            assert!(not_negative(text).is_err() && fraction(text).is_err(), "{text}");
        }
        assert!(fraction("15").is_err_and(|error| error.contains("0.15 stands for 15 %")));
    }

    #[test]
    fn seconds_may_be_a_number_or_a_duration_above_zero() {
        assert_eq!(seconds_above_zero("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(seconds_above_zero("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "0s", "-1", "NaN", "inf", "soon", ""] {
            assert!(
                seconds_above_zero(text).is_err_and(|error| error.contains("above 0")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_size_is_a_quantity_that_may_end_in_bytes() {
        for text in ["1Mi", "1MiB", "1048576", "1024Ki"] {
            assert_eq!(size(text), Ok(1 << 20), "{text}");
        }
        assert_eq!(size("25MB"), Ok(25_000_000));
    }

    #[test]
    fn what_is_no_size_is_named() {
        for text in ["", "B", "0", "-1", "10x", "10m", "1.5", "2Pi", "1e30"] {
            assert!(size(text).is_err_and(|error| error.contains('`')), "{text}");
        }
    }

    #[test]
    fn a_factor_is_above_zero() {
        assert_eq!(factor("2.5"), Ok(2.5));
        assert!(
            ["0", "-1", "inf", "NaN", "fast"]
                .iter()
                .all(|text| factor(text).is_err())
        );
    }
}
