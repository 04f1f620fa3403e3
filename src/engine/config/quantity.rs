//! Kubernetes quantities: `10Gi`, `20k`, `1.5`, `1e6`, `100m`.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};

/// A whole number, rounded up from a Kubernetes quantity. May be negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantity {
    /// The number.
    pub value: i64,
    /// What was written is not a whole number, as `10m` is not, which is a hundredth.
    pub is_rounded: bool,
}

/// Text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a quantity; write a number with an optional suffix, such as `500`, `20k`, `10Gi` or `1.5G`")]
pub struct QuantityError(String);

/// The most digits of a number. More than this decides nothing: what is larger than an `i64` is the largest one.
const MAX_DIGITS: usize = 19;

impl Quantity {
    /// Reads a decimal number with a suffix: `n u m` (parts), `k M G T P E` (powers of 1000), `Ki Mi Gi Ti Pi Ei`
    /// (powers of 1024), or an exponent (`e6`). What does not fit is cut off at the ends of an `i64`.
    ///
    /// # Errors
    ///
    /// If it is something else.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let error = || QuantityError(text.to_owned());
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(error());
        }
        let scale = Scale::of_suffix(suffix).ok_or_else(error)?;
        let magnitude = scale.apply(whole, fraction);
        Ok(Self {
            value: match (negative, magnitude) {
                (false, Magnitude { floor, exact }) => clamped(floor + i128::from(!exact)),
                // Up is towards zero.
                (true, Magnitude { floor, .. }) => clamped(-floor),
            },
            // What is cut off is too large, and no fraction.
            is_rounded: !magnitude.exact && magnitude.floor < i128::from(i64::MAX),
        })
    }

    /// This whole number.
    pub const fn whole(value: i64) -> Self {
        Self {
            value,
            is_rounded: false,
        }
    }
}

/// What a number is multiplied with: `factor * 10^exponent`.
#[derive(Clone, Copy)]
struct Scale {
    factor: i128,
    exponent: i32,
}

/// An absolute value, rounded down.
#[derive(Clone, Copy)]
struct Magnitude {
    floor: i128,
    exact: bool,
}

impl Scale {
    fn of_suffix(suffix: &str) -> Option<Self> {
        let decimal = |exponent| Self { factor: 1, exponent };
        let binary = |power: u32| Self {
            factor: 1 << (10 * power),
            exponent: 0,
        };
        Some(match suffix {
            "" => decimal(0),
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(1),
            "Mi" => binary(2),
            "Gi" => binary(3),
            "Ti" => binary(4),
            "Pi" => binary(5),
            "Ei" => binary(6),
            _ => decimal(suffix.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }

    fn apply(self, whole: &str, fraction: &str) -> Magnitude {
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let fraction_digits = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        let exponent = self.exponent.saturating_sub(fraction_digits);

        // Digits that can only say that there is something beyond.
        let (digits, dropped) = digits.split_at(digits.len().min(MAX_DIGITS));
        let exponent = exponent.saturating_add(i32::try_from(dropped.len()).unwrap_or(i32::MAX));
        let exact = dropped.bytes().all(|digit| digit == b'0');
        let value = digits.parse::<i128>().unwrap_or(0) * self.factor.min(1 << 60);
        if value == 0 {
            return Magnitude { floor: 0, exact };
        }
        match u32::try_from(exponent) {
            Ok(power) => Magnitude {
                floor: 10_i128
                    .checked_pow(power)
                    .and_then(|power| value.checked_mul(power))
                    .unwrap_or(i128::MAX - 1),
                exact,
            },
            Err(_) => match 10_i128.checked_pow(exponent.unsigned_abs()) {
                Some(divisor) => Magnitude {
                    floor: value / divisor,
                    exact: exact && value % divisor == 0,
                },
                None => Magnitude { floor: 0, exact: false },
            },
        }
    }
}

fn clamped(value: i128) -> i64 {
    i64::try_from(value.clamp(i64::MIN.into(), i64::MAX.into())).expect("the value is within the range")
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;

        impl Visitor<'_> for NumberOrText {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as `500`, `20k` or `10Gi`")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Quantity, E> {
                Ok(Quantity::whole(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Quantity, E> {
                Ok(Quantity::whole(clamped(value.into())))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Quantity, E> {
                // A cast saturates, which is what the parser of text does.
                Ok(Quantity {
                    value: value.ceil() as i64,
                    is_rounded: value.fract() != 0.0,
                })
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                Quantity::parse(text).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(NumberOrText)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn suffixes_are_those_of_kubernetes() {
        let cases = [
            ("500", 500),
            ("1k", 1000),
            ("20k", 20_000),
            ("2M", 2_000_000),
            ("1G", 1_000_000_000),
            ("3T", 3_000_000_000_000),
            ("1Ki", 1024),
            ("10Gi", 10_737_418_240),
            ("1.5Gi", 1_610_612_736),
            ("1e6", 1_000_000),
            ("1E3", 1000),
            ("2E", 2_000_000_000_000_000_000),
            ("-3k", -3000),
            ("+7", 7),
            (".5k", 500),
            ("1.", 1),
        ];

        for (text, expected) in cases {
            assert_eq!(Quantity::parse(text), Ok(Quantity::whole(expected)), "{text}");
        }
    }

    #[test]
    fn parts_of_one_are_rounded_up() {
        for (text, value, is_rounded) in [
            ("100m", 1, true),
            ("1.5", 2, true),
            ("12e-1", 2, true),
            ("1n", 1, true),
            ("2000m", 2, false),
            ("0m", 0, false),
            ("-1.5", -1, true),
        ] {
            assert_eq!(Quantity::parse(text), Ok(Quantity { value, is_rounded }), "{text}");
        }
    }

    #[test]
    fn what_is_too_large_is_the_largest() {
        for text in [
            "9Ei",
            "99999999999999999999",
            "1e400",
            "9999999999999999999999999999999Ei",
        ] {
            assert_eq!(
                Quantity::parse(text).map(|quantity| quantity.value),
                Ok(i64::MAX),
                "{text}"
            );
        }
        assert_eq!(Quantity::parse("-1e30"), Ok(Quantity::whole(i64::MIN)));
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_the_text_that_was_given() {
        for text in ["", "k", "1K", "1ki", "1 k", "1.2.3", "ten", "1e", "--1", "."] {
            assert_eq!(Quantity::parse(text), Err(QuantityError(text.to_owned())));
        }
    }

    #[test]
    fn numbers_and_text_are_both_quantities() {
        let read = |json: &str| serde_json::from_str::<Quantity>(json).map_err(|e| e.to_string());

        assert_eq!(read("50"), Ok(Quantity::whole(50)));
        assert_eq!(
            read("1.5").map(|quantity| (quantity.value, quantity.is_rounded)),
            Ok((2, true))
        );
        assert_eq!(read("\"20k\""), Ok(Quantity::whole(20_000)));
        assert!(read("true").is_err_and(|e| e.contains("a quantity such as")));
    }

    proptest! {
        #[test]
        fn a_whole_number_is_itself(number: i64) {
            prop_assert_eq!(Quantity::parse(&number.to_string()), Ok(Quantity::whole(number)));
        }

        #[test]
        fn no_text_brings_it_down(text in "[-+]?[0-9.]{0,40}[eEkKMGTPinum]{0,2}[-+0-9]{0,12}") {
            let _ = Quantity::parse(&text);
        }
    }
}
