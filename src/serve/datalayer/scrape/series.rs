//! One line of the Prometheus text format, after the name: `{label="value",…} value timestamp`.

use std::borrow::Cow;

/// A series: labels, value, and perhaps a date.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series<'l> {
    /// What stands between the braces. Known to be well-formed.
    labels: &'l [u8],
    pub(super) value: f64,
    /// Milliseconds since 1970, as the page says.
    pub(super) at: Option<i64>,
}

impl<'l> Series<'l> {
    /// Reads what follows the name. `None` if it is malformed.
    pub(super) fn parse(rest: &'l [u8]) -> Option<Self> {
        let rest = rest.trim_ascii_start();
        let (labels, numbers) = match rest.strip_prefix(b"{") {
            Some(rest) => split_labels(rest)?,
            None => (&[][..], rest),
        };
        let mut numbers = std::str::from_utf8(numbers).ok()?.split_ascii_whitespace();
        let value = numbers.next()?.parse().ok()?;
        let at = numbers.next().map(str::parse).transpose().ok()?;
        numbers.next().is_none().then_some(Self { labels, value, at })
    }

    /// True if each of `wanted` is among the labels.
    pub(super) fn has_labels(&self, wanted: &[(String, String)]) -> bool {
        wanted
            .iter()
            .all(|(label, value)| self.label(label).is_some_and(|found| found == value.as_str()))
    }

    /// The value of the label `name`.
    pub(super) fn label(&self, name: &str) -> Option<Cow<'l, str>> {
        let mut rest = self.labels;
        while let Some((label, value, after)) = next_label(rest) {
            if label == name.as_bytes() {
                return Some(unescape(value));
            }
            rest = after.strip_prefix(b",").unwrap_or(after);
        }
        None
    }
}

/// Splits what follows the opening brace into the labels and what follows the closing one.
fn split_labels(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = text.trim_ascii_start();
    while !rest.starts_with(b"}") {
        let (_, _, after) = next_label(rest)?;
        rest = after;
        if !rest.starts_with(b"}") {
            rest = rest.strip_prefix(b",")?.trim_ascii_start();
        }
    }
    Some((&text[..text.len() - rest.len()], &rest[1..]))
}

/// Name and escaped value of the first label, and what follows it.
fn next_label(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let end = text
        .iter()
        .position(|&byte| !(byte.is_ascii_alphanumeric() || byte == b'_'))?;
    let (name, rest) = text.split_at(end);
    if name.first().is_none_or(u8::is_ascii_digit) {
        return None;
    }
    let rest = rest
        .trim_ascii_start()
        .strip_prefix(b"=")?
        .trim_ascii_start()
        .strip_prefix(b"\"")?;
    let end = closing_quote(rest)?;
    Some((name, &rest[..end], rest[end + 1..].trim_ascii_start()))
}

/// Where the quote is that is not escaped. `None` if there is none, or an escape that is not known before it.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let place = from + memchr::memchr2(b'"', b'\\', &text[from..])?;
        if text[place] == b'"' {
            return Some(place);
        }
        if !matches!(text.get(place + 1), Some(b'"' | b'\\' | b'n')) {
            return None;
        }
        from = place + 2;
    }
}

fn unescape(value: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(value);
    if !text.contains('\\') {
        return text;
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let meant = if c == '\\' {
            chars.next().map(|escaped| if escaped == 'n' { '\n' } else { escaped })
        } else {
            Some(c)
        };
        plain.extend(meant);
    }
    plain.into()
}
