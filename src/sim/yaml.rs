//! Writes values as YAML, for people: blocks, the fields in the order in which they are declared, text of several lines
//! line by line, and quotes only where they are needed. What is written is read back by [`crate::engine::config::yaml`] as it was.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};

/// `value` as a YAML document, with a line end after the last line.
pub(super) fn write<T: Serialize>(value: &T) -> String {
    let mut bytes = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut bytes, Block::default()));
    written.expect("plain data can be written to memory");
    let text = String::from_utf8(bytes).expect("what is written is UTF-8");
    // Text within quotes has no line ends, and text in lines neither empty ones nor spaces at their ends: what is cut off
    // is ours.
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.fold(String::new(), |all, line| all + line + "\n")
}

/// Lays out JSON's tokens as YAML blocks.
#[derive(Debug, Default)]
struct Block {
    /// For each open list or mapping: whether nothing was written into it yet.
    open: Vec<bool>,
    /// The next key stands on the line of its list item.
    after_dash: bool,
    /// What is being written is a key.
    in_key: bool,
    /// The text that is being written, escaped.
    text: Vec<u8>,
    /// The same as it is.
    plain: Vec<u8>,
}

impl Block {
    fn begin<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if let Some(empty) = self.open.last_mut() {
            *empty = false;
        }
        if std::mem::take(&mut self.after_dash) {
            return Ok(());
        }
        writeln!(writer)?;
        let depth = self.open.len().saturating_sub(1);
        write!(writer, "{:width$}", "", width = depth * 2)
    }

    fn end<W: ?Sized + Write>(&mut self, writer: &mut W, empty: &[u8]) -> io::Result<()> {
        self.after_dash = false;
        match self.open.pop() {
            Some(true) => writer.write_all(empty),
            _ => Ok(()),
        }
    }
}

impl Formatter for Block {
    fn begin_array<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        // A list within a list begins on a line of its own.
        self.after_dash = false;
        self.open.push(true);
        Ok(())
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"[]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, _: bool) -> io::Result<()> {
        self.begin(writer)?;
        self.after_dash = true;
        writer.write_all(b"- ")
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.after_dash = false;
        Ok(())
    }

    fn begin_object<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.open.push(true);
        Ok(())
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.end(writer, b"{}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, _: bool) -> io::Result<()> {
        self.in_key = true;
        self.begin(writer)
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.in_key = false;
        Ok(())
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn begin_string<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.text.clear();
        self.plain.clear();
        Ok(())
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, _: &mut W, fragment: &str) -> io::Result<()> {
        self.text.extend_from_slice(fragment.as_bytes());
        self.plain.extend_from_slice(fragment.as_bytes());
        Ok(())
    }

    fn write_char_escape<W: ?Sized + Write>(&mut self, _: &mut W, escape: CharEscape) -> io::Result<()> {
        self.plain.push(match escape {
            CharEscape::Quote => b'"',
            CharEscape::ReverseSolidus => b'\\',
            CharEscape::LineFeed => b'\n',
            // None of the others stands in a text of lines.
            _ => 0,
        });
        CompactFormatter.write_char_escape(&mut self.text, escape)
    }

    fn end_string<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if !self.in_key && !self.open.is_empty() && is_lines(&self.plain) {
            writer.write_all(b"|")?;
            for line in self.plain.split_inclusive(|&byte| byte == b'\n') {
                let line = line.strip_suffix(b"\n").unwrap_or(line);
                write!(writer, "\n{:width$}", "", width = self.open.len() * 2)?;
                writer.write_all(line)?;
            }
            return Ok(());
        }
        let quote: &[u8] = if is_word(&self.text) { b"" } else { b"\"" };
        writer.write_all(quote)?;
        writer.write_all(&self.text)?;
        writer.write_all(quote)
    }
}

/// Words that some reader of YAML takes for something other than text.
const NO_WORDS: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Whether a text is one to every reader without quotes, too.
fn is_word(text: &[u8]) -> bool {
    text.first().is_some_and(u8::is_ascii_alphabetic)
        && text
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
        && !NO_WORDS.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether a text is of several lines that a reader finds as they were, if they are written as they are.
fn is_lines(text: &[u8]) -> bool {
    let Some(lines) = text.strip_suffix(b"\n") else {
        return false;
    };
    let mut several = 0;
    let whole = lines.split(|&byte| byte == b'\n').all(|line| {
        several += 1;
        line.iter().all(|byte| matches!(byte, b' '..=b'~')) && line.last().is_some_and(|&byte| byte != b' ')
    });
    whole && several > 1 && !lines.starts_with(b" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::config::yaml;

    #[test]
    fn values_are_laid_out_in_blocks() {
        let value = json!({
            "a": [{"id": "x-1", "m": 1.5}, {}, [1, [2]], "no", ""],
            "b": {"empty": [], "text": "two words\n", "null": null},
        });

        assert_eq!(
            write(&value),
            "a:\n  - id: x-1\n    m: 1.5\n  - {}\n  -\n    - 1\n    -\n      - 2\n  - \"no\"\n  - \"\"\nb:\n  \
             empty: []\n  \"null\": null\n  text: \"two words\\n\"\n"
        );
    }

    #[test]
    fn text_of_several_lines_is_written_line_by_line() {
        let value = json!({
            "a": "x: \"1\"\n- # y\n   \\\n",
            "b": ["one\ntwo\n", "no end\nof a line", "an empty\n\nline\n", " first\nindented\n", "trailing \nspace\n"],
        });

        assert_eq!(
            write(&value),
            "a: |\n  x: \"1\"\n  - # y\n     \\\nb:\n  - |\n    one\n    two\n  - \"no end\\nof a line\"\n  - \"an \
             empty\\n\\nline\\n\"\n  - \" first\\nindented\\n\"\n  - \"trailing \\nspace\\n\"\n"
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9).prop_map(Value::from),
            "[ -~\n\tä]{0,12}".prop_map(Value::from),
            "([ -~]{0,6}\n){2,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map("[ -~]{0,6}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back_as_it_was(value in value()) {
            let text = write(&value);

            let (read, _) = yaml::parse(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(read, value, "{}", text);
        }
    }
}
