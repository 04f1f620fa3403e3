//! Says in an operator's words why a value does not fit.
//!
//! The decoder speaks of `f64` and of structs; who writes YAML does not.

use super::suggest;

/// Characters of a value that are shown of it.
const LONGEST_SHOWN: usize = 80;

/// A field that is not known where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnknownField<'m> {
    /// Its name.
    pub(super) name: &'m str,
    known: Vec<&'m str>,
}

impl<'m> UnknownField<'m> {
    /// Reads a message of the decoder.
    pub(super) fn of(message: &'m str) -> Option<Self> {
        let (name, expected) = message.strip_prefix("unknown field `")?.split_once('`')?;
        let known = expected.split('`').skip(1).step_by(2).collect();
        Some(Self { name, known })
    }

    /// What would be right.
    pub(super) fn remedy(&self) -> String {
        match self.known.as_slice() {
            [] => "no fields are known here".to_owned(),
            known => suggest::or_known(self.name, "known here", known.iter().copied()),
        }
    }
}

/// A message of the decoder, in an operator's words.
pub(super) fn reworded(message: &str) -> String {
    let parts = || {
        let (kind, rest) = message.split_once(": ")?;
        let (found, expected) = rest.rsplit_once(", expected ")?;
        matches!(kind, "invalid type" | "invalid value").then(|| (self::found(found), wanted(expected)))
    };
    if let Some((found, wanted)) = parts() {
        return format!("expected {wanted}, found {found}");
    }
    match message
        .strip_prefix("unknown variant `")
        .and_then(|rest| rest.split_once('`'))
    {
        Some((name, expected)) => {
            let known = expected.split('`').skip(1).step_by(2);
            format!(
                "`{name}` is not known; {}",
                suggest::or_known(name, "known here", known)
            )
        }
        None => message.to_owned(),
    }
}

fn found(found: &str) -> String {
    let (kind, value) = found.split_once(' ').unwrap_or((found, ""));
    match kind {
        "map" => "a mapping".to_owned(),
        "sequence" => "a list".to_owned(),
        "null" | "unit" => "nothing".to_owned(),
        "string" => format!("the text `{}`", shortened(value.trim_matches('"'))),
        "boolean" => value.to_owned(),
        "integer" => format!("the number {value}"),
        "floating" => format!("the number {}", value.trim_start_matches("point ")),
        _ => found.to_owned(),
    }
}

/// The beginning of a long text.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

fn wanted(expected: &str) -> &str {
    match expected {
        "f64" | "f32" => "a number",
        "a string" | "string" | "a borrowed string" => "text",
        "a sequence" => "a list",
        "a boolean" => "`true` or `false`",
        "a map" => "a mapping",
        "i8" | "i16" | "i32" | "i64" => "a whole number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, not negative",
        struct_or_enum if struct_or_enum.starts_with("struct ") => "a mapping",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_said_in_plain_words() {
        let cases = [
            (
                "invalid type: string \"2\", expected f64",
                "expected a number, found the text `2`",
            ),
            (
                "invalid type: map, expected a sequence",
                "expected a list, found a mapping",
            ),
            (
                "invalid type: floating point `1.5`, expected i32",
                "expected a whole number, found the number `1.5`",
            ),
            (
                "invalid type: string \"a, expected b\", expected struct Plugin",
                "expected a mapping, found the text `a, expected b`",
            ),
            ("something else", "something else"),
        ];

        for (decoder, operator) in cases {
            assert_eq!(reworded(decoder), operator);
        }
    }

    #[test]
    fn of_a_long_text_the_beginning_is_shown() {
        let message = format!("invalid type: string \"{}\", expected f64", "é".repeat(1000));

        let shown = "é".repeat(LONGEST_SHOWN);
        assert_eq!(
            reworded(&message),
            format!("expected a number, found the text `{shown}...`")
        );
    }

    #[test]
    fn an_unknown_field_is_told_what_it_may_have_been() {
        let message = "unknown field `wieght`, expected `pluginRef` or `weight`";

        let unknown = UnknownField::of(message).unwrap();

        assert_eq!(unknown.name, "wieght");
        assert_eq!(
            unknown.remedy(),
            "did you mean `weight`? known here: `pluginRef`, `weight`"
        );
    }
}
