//! JSON as the reference simulator writes it.

use std::io;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::ser::{Formatter, PrettyFormatter};

/// Text of a value, indented by two spaces, with each number in its shortest form that reads back as the same.
pub(in crate::sim::report) fn pretty(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Shortest::default());
    value
        .serialize(&mut serializer)
        .expect("the keys of reports are texts, and memory takes every byte");
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// Pretty, with numbers as the reference writes them: `1` and not `1.0`, an exponent only below `1e-6` and from `1e21`.
#[derive(Debug, Default)]
struct Shortest(PrettyFormatter<'static>);

impl Formatter for Shortest {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let size = value.abs();
        if size == 0.0 || (1e-6..1e21).contains(&size) {
            return write!(writer, "{value}");
        }
        let text = format!("{value:e}");
        writer.write_all(if size < 1.0 { text } else { text.replace('e', "e+") }.as_bytes())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
}

/// Pairs, in their order, as an object.
pub(in crate::sim::report) fn as_map<S: Serializer>(
    pairs: &[(String, impl Serialize)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (key, value) in pairs {
        map.serialize_entry(key, value)?;
    }
    map.end()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_written_as_the_reference_writes_them() {
        let numbers = [0.0, 1.0, 0.1, 8.518395475028322, 1e-6, 2.5e-7, 1e20, 1e21, -3.0];

        assert_eq!(
            pretty(&numbers).split_whitespace().collect::<String>(),
            "[0,1,0.1,8.518395475028322,0.000001,2.5e-7,100000000000000000000,1e+21,-3]"
        );
    }

    proptest! {
        #[test]
        fn every_number_reads_back_as_itself(value in prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL) {
            let read: f64 = pretty(&value).parse().unwrap();

            prop_assert_eq!(read, value);
        }
    }
}
