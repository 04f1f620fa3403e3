//! Values of a configuration as types, more strictly than serde has it: a list is no mapping.
//!
//! A derived decoder takes the items of a list for the fields of a struct, one after the other, so that `parameters: [5]`
//! would be the first parameter of a plugin.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

/// A value that is read by its shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strict<'de>(pub(super) &'de Value);

impl<'de> IntoDeserializer<'de, Error> for Strict<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => {
                let mut items = SeqDeserializer::new(items.iter().map(Strict));
                let value = visitor.visit_seq(&mut items)?;
                items.end()?;
                Ok(value)
            }
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.as_str(), Strict(value)));
                let mut fields = MapDeserializer::new(fields);
                let value = visitor.visit_map(&mut fields)?;
                fields.end()?;
                Ok(value)
            }
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Outer {
        number: f64,
        count: Option<u32>,
        inner: Option<Inner>,
        list: Vec<Inner>,
        map: BTreeMap<String, i64>,
        mode: Mode,
        raw: Option<Value>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Inner {
        a: i64,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        #[default]
        One,
        Other,
    }

    fn read(value: &Value) -> Result<Outer, String> {
        Outer::deserialize(Strict(value)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_fits_is_read_as_ever() {
        let value = json!({
            "number": 3, "count": 5, "inner": {"a": -1}, "list": [{"a": 2}], "map": {"x": 1}, "mode": "other",
            "raw": {"anything": [null]},
        });

        let expected = Outer {
            number: 3.0,
            count: Some(5),
            inner: Some(Inner { a: -1 }),
            list: vec![Inner { a: 2 }],
            map: BTreeMap::from([("x".to_owned(), 1)]),
            mode: Mode::Other,
            raw: Some(json!({"anything": [null]})),
        };
        assert_eq!(read(&value), Ok(expected));
        assert_eq!(read(&json!({"inner": null})), Ok(Outer::default()));
    }

    #[test]
    fn a_list_is_no_mapping_however_deep() {
        for value in [json!([1]), json!({"inner": [1]}), json!({"list": [[1]]})] {
            assert!(
                read(&value).is_err_and(|error| error.contains("invalid type: sequence")),
                "{value}"
            );
        }
    }
}
