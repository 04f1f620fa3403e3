//! Quantities as people type them.

use std::time::Duration;

/// Reads a duration such as `8ms`, `50us` or `1.5s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    const WANTED: &str = "a number and one of `ns`, `us`, `ms`, `s` is needed, such as `8ms`";
    let split = text
        .find(|c: char| c.is_ascii_alphabetic() || c == 'µ')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "" if number == "0" => 0.0,
        _ => return Err(format!("`{text}` is not a duration; {WANTED}")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("`{text}` is not a duration; {WANTED}"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| format!("`{text}` is not a duration: {error}"))
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
    fn durations_are_read_as_people_type_them() {
        assert_eq!(duration("8ms"), Ok(Duration::from_millis(8)));
        assert_eq!(duration("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(duration("50µs"), Ok(Duration::from_micros(50)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
    }

    #[test]
    fn what_is_no_duration_is_named() {
        for text in ["", "8", "ms", "8 minutes", "-1ms", "1e400s"] {
            let error = duration(text).unwrap_err();

            assert!(error.starts_with(&format!("`{text}` is not a duration")), "{error}");
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
