//! What a scalar means: the core schema of YAML 1.2 (section 10.3.2).

use saphyr_parser::{ScalarStyle, Tag};
use serde_json::{Number, Value};

/// The value of a scalar. Only plain ones can be something other than text. An error is a reason.
pub(super) fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let Some(tag) = tag else {
        return if style == ScalarStyle::Plain {
            plain(text)
        } else {
            Ok(text.into())
        };
    };
    let fits: fn(&Value) -> bool = match tag.suffix.as_str() {
        "!" if tag.handle.is_empty() => return Ok(text.into()),
        _ if !tag.is_yaml_core_schema() => return Err(unknown_tag(tag)),
        "str" => return Ok(text.into()),
        "null" => Value::is_null,
        "bool" => Value::is_boolean,
        "int" => |value| value.is_i64() || value.is_u64(),
        "float" => Value::is_number,
        _ => return Err(unknown_tag(tag)),
    };
    let value = plain(text)?;
    if fits(&value) {
        Ok(value)
    } else {
        Err(format!("`{text}` is not what its tag `!!{}` says", tag.suffix))
    }
}

pub(super) fn unknown_tag(tag: &Tag) -> String {
    format!("tag `{tag}` is not known here; leave it out")
}

fn plain(text: &str) -> Result<Value, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "true" | "True" | "TRUE" => return Ok(true.into()),
        "false" | "False" | "FALSE" => return Ok(false.into()),
        _ => {}
    }
    if let Some(number) = integer(text) {
        return Ok(number.into());
    }
    if is_endless(text) {
        return Err(out_of_range(text));
    }
    if !is_decimal(text) {
        return Ok(text.into());
    }
    let number = text.parse().ok().and_then(Number::from_f64);
    number.map(Value::Number).ok_or_else(|| out_of_range(text))
}

fn out_of_range(text: &str) -> String {
    format!("`{text}` is not a finite number; put it in quotes if text is meant")
}

fn integer(text: &str) -> Option<Number> {
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            let sound = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
            return sound
                .then(|| u64::from_str_radix(digits, radix).ok())
                .flatten()
                .map(Number::from);
        }
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse::<i64>()
        .map(Number::from)
        .or_else(|_| text.parse::<u64>().map(Number::from))
        .ok()
}

/// True for infinities and for what is not a number.
fn is_endless(text: &str) -> bool {
    matches!(text, ".nan" | ".NaN" | ".NAN")
        || matches!(text.strip_prefix(['-', '+']).unwrap_or(text), ".inf" | ".Inf" | ".INF")
}

/// True if `text` has the form `[-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`.
fn is_decimal(text: &str) -> bool {
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    all_digits(whole)
        && all_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|digits| !digits.is_empty() && all_digits(digits))
}
