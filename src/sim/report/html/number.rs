//! Numbers as people read them.

/// A count with its thousands apart: `1,234,567`.
pub(super) fn counted(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count of things, with the name of one or of several.
pub(super) fn counted_of(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", counted(count))
}

/// A figure with three significant digits, or all of them before the point.
pub(super) fn figure(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 {
        let sign = if value < 0.0 { "-" } else { "" };
        return format!("{sign}{}", counted(size.round() as u64));
    }
    let magnitude = if size > 0.0 { size.log10().floor() } else { 0.0 };
    let decimals = (2.0 - magnitude).clamp(0.0, 12.0) as usize;
    let text = format!("{value:.decimals$}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A share of one, as `42 %`.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", figure(share * 100.0))
}

/// Microseconds in the unit that suits them.
pub(super) fn duration(us: f64) -> String {
    let (unit, name) = match us.abs() {
        0.0 => return "0".to_owned(),
        size if size < 1e3 => (1.0, "µs"),
        size if size < 1e6 => (1e3, "ms"),
        size if size < 120e6 => (1e6, "s"),
        size if size < 7_200e6 => (60e6, "min"),
        _ => (3_600e6, "h"),
    };
    format!("{} {name}", figure(us / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_matter() {
        assert_eq!(
            [0.0, 0.000_782_26, 0.5, 1.0, 12.345, 123.4, 1_234_567.0, -0.0].map(figure),
            ["0", "0.000782", "0.5", "1", "12.3", "123", "1,234,567", "0"]
        );
        assert_eq!([0.0, 0.999, 1.0].map(percent), ["0 %", "99.9 %", "100 %"]);
    }

    #[test]
    fn one_thing_is_not_several() {
        assert_eq!(
            [0, 1, 2_000].map(|count| counted_of(count, "request")),
            ["0 requests", "1 request", "2,000 requests"]
        );
    }

    #[test]
    fn durations_are_told_in_the_unit_that_suits_them() {
        assert_eq!(
            [0.0, 750.0, 12_209.0, 1_500_000.0, 90e6, 600e6, 7_200e6].map(duration),
            ["0", "750 µs", "12.2 ms", "1.5 s", "90 s", "10 min", "2 h"]
        );
    }
}
