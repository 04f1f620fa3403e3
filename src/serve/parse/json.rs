//! A lazy view of JSON text: values are slices of it, strings stay escaped until somebody wants their text.
//!
//! `serde_json` reads a document, and finds what is wrong with it. What lies in a value of a document that was read is
//! JSON, and is found by its brackets and quotes alone. Neither recurses, so no depth of nesting costs stack.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The longest string that is read as a number or as a yes, in bytes.
const MAX_DIGITS: usize = 64;

/// The strings that pydantic, with which model servers read their requests, takes for `true`.
const YES: [&str; 6] = ["true", "1", "yes", "on", "y", "t"];

/// A value of a document that is known to be JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value<'a> {
    text: &'a str,
    at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

/// The inside of a string literal, still escaped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Literal<'a>(&'a str);

/// A member of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub(super) key: Literal<'a>,
    pub(super) value: Value<'a>,
    /// The byte of the document at which the key begins, with its quote.
    pub(super) at: usize,
}

/// Calls `each` with the members of the object that `text` is, in order, as long as it is well-formed.
///
/// # Errors
///
/// `text` is no JSON object. The members before the fault were seen nevertheless.
pub(super) fn for_each_member<'a>(text: &'a str, each: impl FnMut(Member<'a>)) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(Members { text, each })?;
    json.end()
}

// === impl Value ===

impl<'a> Value<'a> {
    fn within(document: &str, raw: &'a RawValue) -> Self {
        let text = raw.get();
        let at = text.as_ptr() as usize - document.as_ptr() as usize;
        Self { text, at }
    }

    /// The text of the value as it stands in the document.
    pub(super) fn text(self) -> &'a str {
        self.text
    }

    /// The byte of the document at which the value begins.
    pub(super) fn at(self) -> usize {
        self.at
    }

    pub(super) fn kind(self) -> Kind {
        match self.text.as_bytes()[0] {
            b'n' => Kind::Null,
            b't' | b'f' => Kind::Bool,
            b'"' => Kind::String,
            b'[' => Kind::Array,
            b'{' => Kind::Object,
            _ => Kind::Number,
        }
    }

    pub(super) fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    pub(super) fn is_true(self) -> bool {
        self.text == "true"
    }

    /// An array or object without content, or the empty string.
    pub(super) fn is_empty(self) -> bool {
        match self.kind() {
            Kind::String | Kind::Array | Kind::Object => self.inside().trim_ascii().is_empty(),
            Kind::Null | Kind::Bool | Kind::Number => false,
        }
    }

    pub(super) fn as_string(self) -> Option<Literal<'a>> {
        (self.kind() == Kind::String).then(|| Literal(self.inside()))
    }

    /// The value of a number that is whole and not negative, however it is written. What is too large becomes the
    /// largest.
    pub(super) fn as_whole_number(self) -> Option<u64> {
        if self.kind() != Kind::Number {
            return None;
        }
        whole_number(self.text)
    }

    /// As [`Value::as_whole_number`], and also a number that is written as a string, as many clients do.
    pub(super) fn as_lenient_whole_number(self) -> Option<u64> {
        let Some(digits) = self.as_string() else {
            return self.as_whole_number();
        };
        if digits.len() > MAX_DIGITS {
            return None;
        }
        let digits = digits.unescape();
        let digits = digits.trim();
        // Rust would also read "inf" and "nan".
        whole_number(digits).filter(|_| digits.starts_with(|first: char| first.is_ascii_digit()))
    }

    /// Whether this says yes: `true`, 1, or a word that model servers take for it.
    pub(super) fn is_lenient_true(self) -> bool {
        match self.as_string() {
            Some(word) if word.len() <= MAX_DIGITS => {
                let word = word.unescape();
                YES.iter().any(|yes| word.trim().eq_ignore_ascii_case(yes))
            }
            Some(_) => false,
            None => self.is_true() || self.as_whole_number() == Some(1),
        }
    }

    /// The first element of an array.
    pub(super) fn first_element(self) -> Option<Value<'a>> {
        (self.kind() == Kind::Array).then(|| Walk::into(self).next())?
    }

    /// The numbers of an array of token ids. `None` if there is anything else in it.
    pub(super) fn as_token_ids(self) -> Option<Vec<u32>> {
        if self.kind() != Kind::Array {
            return None;
        }
        plain_integers(self.inside()).or_else(|| {
            let mut ids = Vec::new();
            let mut all_are_tokens = true;
            self.for_each_element(|_, element| match element.as_token_id() {
                Some(id) => ids.push(id),
                None => all_are_tokens = false,
            });
            all_are_tokens.then_some(ids)
        })
    }

    fn as_token_id(self) -> Option<u32> {
        self.as_whole_number().and_then(|id| u32::try_from(id).ok())
    }

    /// Calls `each` with the elements of an array; not at all for anything else.
    pub(super) fn for_each_element(self, mut each: impl FnMut(usize, Value<'a>)) {
        if self.kind() != Kind::Array {
            return;
        }
        for (index, element) in Walk::into(self).enumerate() {
            each(index, element);
        }
    }

    /// The members of an object that have one of `keys`, in the order of `keys`. Those that are missing or null are
    /// `None`, as are all of anything that is no object.
    pub(super) fn members<const N: usize>(self, keys: [&str; N]) -> [Option<Value<'a>>; N] {
        let mut found = [None; N];
        if self.kind() != Kind::Object {
            return found;
        }
        let mut walk = Walk::into(self);
        while let (Some(key), Some(value)) = (walk.next(), walk.next()) {
            let key = Literal(key.inside());
            if let Some(slot) = keys.iter().position(|k| key.is(k)) {
                found[slot] = Some(value).filter(|value| !value.is_null());
            }
        }
        found
    }

    /// What the value is, in words for a person.
    pub(super) fn describe(self) -> &'static str {
        match self.kind() {
            Kind::Null => "null",
            Kind::Bool => "a boolean",
            Kind::Number => "a number",
            Kind::String if self.is_empty() => "an empty string",
            Kind::String => "a string",
            Kind::Array if self.is_empty() => "an empty array",
            Kind::Array => "an array",
            Kind::Object => "an object",
        }
    }

    /// The text between the quotes, brackets or braces.
    fn inside(self) -> &'a str {
        &self.text[1..self.text.len() - 1]
    }
}

// === impl Literal ===

impl<'a> Literal<'a> {
    /// Bytes of the text as it is written.
    pub(super) fn len(self) -> usize {
        self.0.len()
    }

    /// Whether the text begins so. Only sees text that is written without escapes.
    pub(super) fn starts_with(self, prefix: &str) -> bool {
        self.0.starts_with(prefix)
    }

    /// Whether this is how `text` is written.
    pub(super) fn is(self, text: &str) -> bool {
        // Every escape sequence is longer than what it stands for.
        self.0 == text || (self.0.len() > text.len() && self.0.contains('\\') && self.unescape() == text)
    }

    /// The text. A lone surrogate becomes U+FFFD.
    pub(super) fn unescape(self) -> Cow<'a, str> {
        if memchr::memchr(b'\\', self.0.as_bytes()).is_none() {
            return Cow::Borrowed(self.0);
        }
        let mut text = String::with_capacity(self.0.len());
        self.for_each_run(|run| text.push_str(run));
        Cow::Owned(text)
    }

    /// Calls `each` with the pieces of the text.
    pub(super) fn for_each_run(self, mut each: impl FnMut(&str)) {
        let mut rest = self.0;
        while let Some(at) = next_escape(rest.as_bytes()) {
            if at > 0 {
                each(&rest[..at]);
            }
            let (character, length) = unescape_one(&rest.as_bytes()[at..]);
            each(character.encode_utf8(&mut [0; 4]));
            rest = &rest[at + length..];
        }
        if !rest.is_empty() {
            each(rest);
        }
    }
}

/// Where the next escape sequence is. Often it follows the last one at once, and then no search is made.
fn next_escape(bytes: &[u8]) -> Option<usize> {
    if bytes.first() == Some(&b'\\') {
        Some(0)
    } else {
        memchr::memchr(b'\\', bytes)
    }
}

/// The character that the escape sequence at the start of `bytes` stands for, and the length of the sequence.
fn unescape_one(bytes: &[u8]) -> (char, usize) {
    match bytes[1] {
        b'b' => ('\u{8}', 2),
        b'f' => ('\u{c}', 2),
        b'n' => ('\n', 2),
        b'r' => ('\r', 2),
        b't' => ('\t', 2),
        b'u' => {
            let first = code_unit(bytes);
            if let Some(character) = char::from_u32(first.into()) {
                return (character, 6);
            }
            let second = bytes.get(6..).filter(|rest| rest.starts_with(b"\\u")).map(code_unit);
            match char::decode_utf16([first].into_iter().chain(second)).next() {
                Some(Ok(character)) => (character, 12),
                _ => (char::REPLACEMENT_CHARACTER, 6),
            }
        }
        itself => (itself.into(), 2),
    }
}

/// The UTF-16 code unit of the `\uXXXX` at the start of `bytes`.
fn code_unit(bytes: &[u8]) -> u16 {
    // In ASCII, the low half of a digit is its value, and that of a letter is nine less than its value.
    let value = |digit: u8| u16::from((digit & 0xf) + 9 * (digit >> 6));
    bytes[2..6].iter().fold(0, |unit, &digit| unit << 4 | value(digit))
}

/// The value of a number that is whole and not negative, in any notation of JSON.
pub(super) fn whole_number(text: &str) -> Option<u64> {
    text.parse().ok().or_else(|| {
        let number: f64 = text.parse().ok()?;
        // The cast saturates, and infinity has no fraction that equals zero.
        (number >= 0.0 && (number.fract() == 0.0 || number.is_infinite())).then_some(number as u64)
    })
}

/// Reads a list of integers that are written without sign, fraction or exponent and fit; `None` for any other list.
fn plain_integers(list: &str) -> Option<Vec<u32>> {
    let mut integers = Vec::with_capacity(list.len() / 6 + 1);
    let mut pending: Option<u64> = None;
    for &byte in list.as_bytes() {
        match byte {
            b'0'..=b'9' => {
                let integer = pending.unwrap_or(0) * 10 + u64::from(byte - b'0');
                if integer > u64::from(u32::MAX) {
                    return None;
                }
                pending = Some(integer);
            }
            b',' => integers.push(u32::try_from(pending.take()?).ok()?),
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ => return None,
        }
    }
    if let Some(last) = pending {
        integers.push(u32::try_from(last).ok()?);
    }
    Some(integers)
}

struct Members<'a, F> {
    text: &'a str,
    each: F,
}

impl<'a, F: FnMut(Member<'a>)> Visitor<'a> for Members<'a, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry::<&RawValue, &RawValue>()? {
            let key = Value::within(self.text, key);
            (self.each)(Member {
                key: Literal(key.inside()),
                value: Value::within(self.text, value),
                at: key.at,
            });
        }
        Ok(())
    }
}

/// Steps through the inside of an array or object that is known to be JSON: element after element, or key and value in
/// turn.
struct Walk<'a> {
    container: Value<'a>,
    /// What was stepped over, in bytes of the container.
    at: usize,
}

impl<'a> Walk<'a> {
    fn into(container: Value<'a>) -> Self {
        Self { container, at: 1 }
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        let text = self.container.text;
        let bytes = text.as_bytes();
        let between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b',' | b':');
        let start = self.at + bytes[self.at..].iter().position(|byte| !between(byte))?;
        if matches!(bytes[start], b']' | b'}') {
            return None;
        }
        self.at = end_of_value(bytes, start);
        Some(Value {
            text: &text[start..self.at],
            at: self.container.at + start,
        })
    }
}

/// Where the value ends that begins at `start`.
fn end_of_value(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = start;
    loop {
        match bytes[at] {
            b'"' => at = end_of_string(bytes, at),
            b'[' | b'{' => {
                depth += 1;
                at += 1;
            }
            b']' | b'}' => {
                depth -= 1;
                at += 1;
            }
            _ if depth == 0 => {
                let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r');
                return at + bytes[at..].iter().position(ends).unwrap_or(bytes.len() - at);
            }
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
}

/// Where the string ends whose opening quote is at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        match bytes[at] {
            b'"' => return at + 1,
            // Escape sequences often follow one another at once, and then no search is made.
            b'\\' if bytes[at + 1] == b'u' => at += 6,
            b'\\' => at += 2,
            _ => {
                let next = memchr::memchr2(b'"', b'\\', &bytes[at..]);
                at += next.expect("a string of a document that was read ends");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// JSON as text, with all that could be taken for structure in its strings.
    fn any_json() -> impl Strategy<Value = String> {
        const PIECES: &[&str] = &["a", "é", "\\\"", "\\\\", "\\u005c", "\\u0022", "[", "}", ",", ":", " "];
        let string = prop::collection::vec(prop::sample::select(PIECES), 0..6)
            .prop_map(|pieces| format!("\"{}\"", pieces.concat()));
        let scalar = prop::sample::select(&["null", "true", "-1.5e+3", "0"][..]).prop_map(str::to_owned);
        let leaf = prop_oneof![string.clone(), scalar];
        leaf.prop_recursive(4, 32, 5, move |inner| {
            let space = prop::sample::select(&["", " ", "\n\t"][..]);
            let members = prop::collection::vec((string.clone(), inner.clone()), 0..5);
            prop_oneof![
                (prop::collection::vec(inner, 0..5), space.clone()).prop_map(|(elements, space)| format!(
                    "[{space}{}{space}]",
                    elements.join(&format!("{space},{space}"))
                )),
                (members, space).prop_map(|(members, space)| {
                    let members: Vec<_> = members.iter().map(|(k, v)| format!("{k}{space}:{space}{v}")).collect();
                    format!("{{{space}{}{space}}}", members.join(&format!("{space},{space}")))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_walk_finds_what_a_parser_finds(elements in prop::collection::vec(any_json(), 0..4)) {
            let array = format!("[{}]", elements.join(" , "));
            let value = Value { text: &array, at: 7 };

            let found: Vec<_> = Walk::into(value).collect();

            let parsed: Vec<&RawValue> = serde_json::from_str(&array).unwrap();
            prop_assert_eq!(
                found.iter().map(|value| value.text).collect::<Vec<_>>(),
                parsed.iter().map(|raw| raw.get()).collect::<Vec<_>>()
            );
            prop_assert!(found.iter().all(|value| array[value.at - 7..].starts_with(value.text)));
        }

        #[test]
        fn a_walk_through_an_object_finds_its_keys_and_values_in_turn(elements in prop::collection::vec(any_json(), 0..4)) {
            let members: Vec<_> = elements.iter().map(|value| format!("\"\\\"k\" : {value}")).collect();
            let object = format!("{{ {} }}", members.join(","));

            let found: Vec<_> = Walk::into(Value { text: &object, at: 0 }).map(|value| value.text).collect();

            let expected: Vec<_> = elements.iter().flat_map(|value| ["\"\\\"k\"", value]).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
