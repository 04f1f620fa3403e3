//! Values of flags.

use crate::cli::units;

/// Reads microseconds: a whole number of them, or a duration such as `50ms`.
pub(in crate::cli) fn micros(text: &str) -> Result<u64, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let duration = units::duration(text)
        .map_err(|_| format!("`{text}` is neither a whole number of microseconds nor a duration such as `50ms`"))?;
    u64::try_from(duration.as_micros()).map_err(|_| format!("`{text}` is too long"))
}

/// Reads microseconds, and no moment without length.
pub(in crate::cli) fn micros_above_zero(text: &str) -> Result<u64, String> {
    match micros(text)? {
        0 => Err(format!("found `{text}`; it must be a time above 0")),
        time => Ok(time),
    }
}

/// The most requests a second: they are a microsecond apart at least.
const MOST_PER_SECOND: f64 = 1e6;

/// Reads a rate of requests a second.
pub(in crate::cli) fn rate(text: &str) -> Result<f64, String> {
    let rate = positive(text)?;
    match rate <= MOST_PER_SECOND {
        true => Ok(rate),
        false => Err(format!(
            "found `{text}`; it must be at most {MOST_PER_SECOND}, since requests are a microsecond apart at least"
        )),
    }
}

/// Reads a number above 0.
pub(in crate::cli) fn positive(text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|number| *number > 0.0 && f64::is_finite(*number));
    number.ok_or_else(|| format!("found `{text}`; it must be a number above 0"))
}

/// Reads a share: above 0, and at most 1.
pub(in crate::cli) fn share(text: &str) -> Result<f64, String> {
    let number = positive(text).ok().filter(|number| *number <= 1.0);
    number.ok_or_else(|| format!("found `{text}`; it must be above 0 and at most 1"))
}

/// Seeds, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Seeds(pub(in crate::cli) Vec<u64>);

/// Reads `a..b` (both included), `a,b,c`, or both mixed.
pub(in crate::cli) fn seeds(text: &str) -> Result<Seeds, String> {
    let wrong = |part: &str| format!("`{part}` is no seed; write seeds as `1..10` or `1,2,3`");
    let mut seeds = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part.split_once("..") {
            Some((first, last)) => {
                let last = last.trim_start_matches('=');
                let (first, last): (u64, u64) = first
                    .parse()
                    .and_then(|first| Ok((first, last.parse()?)))
                    .map_err(|_| wrong(part))?;
                if first > last || last - first >= MOST_SEEDS {
                    return Err(format!(
                        "`{part}` is no range of seeds; the first must not be above the last, and there may be at \
                         most {MOST_SEEDS}"
                    ));
                }
                seeds.extend(first..=last);
            }
            None => seeds.push(part.parse().map_err(|_| wrong(part))?),
        }
    }
    seeds.sort_unstable();
    seeds.dedup();
    Ok(Seeds(seeds))
}

/// Seeds of one comparison.
const MOST_SEEDS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_may_be_written_as_a_duration() {
        assert_eq!(micros("50000"), Ok(50_000));
        assert_eq!(micros("50ms"), Ok(50_000));
        assert!(micros("soon").unwrap_err().contains("`soon`"));
    }

    #[test]
    fn a_rate_and_a_horizon_have_bounds() {
        assert_eq!((rate("1e6"), micros_above_zero("1")), (Ok(1e6), Ok(1)));
        assert!(["0", "-1", "NaN", "1000001"].iter().all(|text| rate(text).is_err()));
        assert!(["0", "0s", "-1"].iter().all(|text| micros_above_zero(text).is_err()));
    }

    #[test]
    fn seeds_are_ranges_and_lists() {
        assert_eq!(seeds("1..3"), Ok(Seeds(vec![1, 2, 3])));
        assert_eq!(seeds("1..=3,7, 2"), Ok(Seeds(vec![1, 2, 3, 7])));
        assert!(seeds("3..1").is_err() && seeds("x").is_err() && seeds("").is_err());
    }
}
