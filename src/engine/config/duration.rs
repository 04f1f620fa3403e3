//! Durations as operators write them: `300ms`, `1m30s`, `1.5h`, `0`.

use std::time::Duration;

/// Why text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// It is less than nothing.
    #[error("duration `{0}` is negative")]
    Negative(String),
    /// It is not written as durations are.
    #[error("`{0}` is not a duration; write a number with a unit, such as `300ms`, `10s` or `1m30s`")]
    Malformed(String),
    /// It is longer than some 292 years.
    #[error("duration `{0}` is too long")]
    TooLong(String),
}

/// Reads the duration syntax of Go: numbers with a unit (`ns`, `us`, `ms`, `s`, `m`, `h`), one after the other, or `0`.
///
/// # Errors
///
/// See [`DurationError`].
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let malformed = || DurationError::Malformed(text.to_owned());
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let mut nanos: u128 = 0;
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(malformed());
    }
    while !rest.is_empty() {
        let (number, after) = split(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split(after, |c| !c.is_ascii_digit() && c != '.');
        let part = scaled(number, nanos_of(unit).ok_or_else(malformed)?).ok_or_else(malformed)?;
        nanos = nanos.saturating_add(part);
        rest = after;
    }
    if text.starts_with('-') && nanos > 0 {
        return Err(DurationError::Negative(text.to_owned()));
    }
    match i64::try_from(nanos) {
        Ok(nanos) => Ok(Duration::from_nanos(nanos.unsigned_abs())),
        Err(_) => Err(DurationError::TooLong(text.to_owned())),
    }
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

fn nanos_of(unit: &str) -> Option<u128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// `number` times `unit`, rounded down. Saturates.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let sound = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !sound(whole) || !sound(fraction) {
        return None;
    }
    let value = |digits: &str| match digits {
        "" => 0,
        digits => digits.parse::<u128>().unwrap_or(u128::MAX),
    };
    // Nanoseconds of an hour have 13 digits: what comes after that many cannot matter.
    let fraction = &fraction[..fraction.len().min(15)];
    let scale = 10_u128.pow(u32::try_from(fraction.len()).expect("at most 15 digits"));
    Some(
        value(whole)
            .saturating_mul(unit)
            .saturating_add(value(fraction) * unit / scale),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_numbers_with_units() {
        let cases = [
            ("300ms", Duration::from_millis(300)),
            ("1m30s", Duration::from_secs(90)),
            ("2h", Duration::from_secs(7200)),
            ("1.5s", Duration::from_millis(1500)),
            (".5ms", Duration::from_micros(500)),
            ("1.s", Duration::from_secs(1)),
            ("+7us", Duration::from_micros(7)),
            ("3µs", Duration::from_micros(3)),
            ("0", Duration::ZERO),
            ("-0s", Duration::ZERO),
            ("0.3333333333333333333333h", Duration::from_nanos(1_199_999_999_999)),
        ];

        for (text, expected) in cases {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused_with_the_text_that_was_given() {
        for text in ["", "5", "s", "1 s", "1x", ".s", "1.2.3s", "-", "1s1", "é"] {
            assert_eq!(parse(text), Err(DurationError::Malformed(text.to_owned())));
        }
        assert_eq!(parse("-1s").unwrap_err().to_string(), "duration `-1s` is negative");
        assert!(matches!(
            parse("9999999999999999999999999999999999999999h"),
            Err(DurationError::TooLong(_))
        ));
        assert!(matches!(parse("3000000h"), Err(DurationError::TooLong(_))));
    }
}
