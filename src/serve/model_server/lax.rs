//! Fields in the spellings that vLLM takes: its API reads them with pydantic in lax mode, so `"5"` is 5 and `"false"` is
//! false. A stand-in that refuses these would fail clients that work with the real server.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, Unexpected, Visitor};

/// A `bool` or a whole number, read leniently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lax<T>(pub(super) T);

const YES: [&str; 6] = ["1", "on", "t", "true", "y", "yes"];
const NO: [&str; 6] = ["0", "off", "f", "false", "n", "no"];

impl<'de> Deserialize<'de> for Lax<bool> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Truth).map(Self)
    }
}

/// The numbers that fields hold. For these alone, since `Lax<bool>` is read otherwise.
pub(super) trait Whole<'de>: Deserialize<'de> {}

impl Whole<'_> for std::num::NonZeroU32 {}
impl Whole<'_> for i32 {}

impl<'de, T: Whole<'de>> Deserialize<'de> for Lax<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = deserializer.deserialize_any(WholeNumber)?;
        // The type itself says which numbers it takes.
        T::deserialize(number.into_deserializer()).map(Self)
    }
}

struct Truth;

impl Visitor<'_> for Truth {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a boolean")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        Ok(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<bool, E> {
        match value {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(E::invalid_value(Unexpected::Unsigned(value), &self)),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<bool, E> {
        match value {
            0.0 => Ok(false),
            1.0 => Ok(true),
            _ => Err(E::invalid_value(Unexpected::Float(value), &self)),
        }
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<bool, E> {
        let is_one_of = |words: [&str; 6]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
        match (is_one_of(YES), is_one_of(NO)) {
            (true, _) => Ok(true),
            (_, true) => Ok(false),
            _ => Err(E::invalid_value(Unexpected::Str(value), &self)),
        }
    }
}

struct WholeNumber;

impl Visitor<'_> for WholeNumber {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<i64, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<i64, E> {
        Ok(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<i64, E> {
        i64::try_from(value).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<i64, E> {
        // Beyond 2^53 a float is no exact number any more.
        const LARGEST: f64 = 9_007_199_254_740_992.0;
        if value.fract() == 0.0 && value.abs() <= LARGEST {
            return Ok(value as i64);
        }
        Err(E::invalid_value(Unexpected::Float(value), &self))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<i64, E> {
        let text = value.trim();
        let whole = match text.split_once('.') {
            Some((whole, zeros)) if zeros.bytes().all(|digit| digit == b'0') => whole,
            _ => text,
        };
        whole
            .parse()
            .map_err(|_| E::invalid_value(Unexpected::Str(value), &self))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn number(json: &str) -> Option<u32> {
        let read: Result<Lax<NonZeroU32>, _> = serde_json::from_str(json);
        read.ok().map(|Lax(number)| number.get())
    }

    fn truth(json: &str) -> Option<bool> {
        let read: Result<Lax<bool>, _> = serde_json::from_str(json);
        read.ok().map(|Lax(truth)| truth)
    }

    #[test]
    fn a_number_may_be_a_text_or_have_an_empty_fraction() {
        for json in ["5", "5.0", "\"5\"", "\" 5 \"", "\"5.0\"", "\"+5\""] {
            assert_eq!(number(json), Some(5), "{json}");
        }
        assert_eq!(number("true"), Some(1));
        for json in [
            "0", "\"0\"", "-5", "5.5", "\"5.5\"", "\"five\"", "\"\"", "1e300", "[5]", "{}",
        ] {
            assert_eq!(number(json), None, "{json}");
        }
    }

    #[test]
    fn a_boolean_may_be_a_word_or_a_number() {
        for json in ["true", "1", "1.0", "\"true\"", "\"True\"", "\"yes\"", "\"on\"", "\"1\""] {
            assert_eq!(truth(json), Some(true), "{json}");
        }
        for json in ["false", "0", "0.0", "\"false\"", "\"OFF\"", "\"n\"", "\"0\""] {
            assert_eq!(truth(json), Some(false), "{json}");
        }
        for json in ["2", "-1", "\"maybe\"", "\" true\"", "\"\"", "[]"] {
            assert_eq!(truth(json), None, "{json}");
        }
    }
}
