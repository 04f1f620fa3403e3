//! Dynamic metadata that the gateway shows, looked up one value at a time.

use prost::Message as _;
use prost_types::Value;
use prost_types::value::Kind;

use super::wire::{LazyStruct, Metadata};

/// What the type URL of a struct ends with.
const STRUCT: &str = "/google.protobuf.Struct";

/// The value of `key` in `namespace`, whether the gateway forwards the namespace as untyped or as typed metadata. `None`
/// if it is not there or is nested more deeply than the decoder follows (100 levels).
pub(super) fn value(metadata: &Metadata, namespace: &str, key: &str) -> Option<Kind> {
    if let Some(fields) = metadata.filter_metadata.get(namespace) {
        return field(fields, key);
    }
    let typed = metadata.typed_filter_metadata.get(namespace)?;
    if !typed.type_url.ends_with(STRUCT) {
        return None;
    }
    field(&LazyStruct::decode(&*typed.value).ok()?, key)
}

/// The value of a field, on the same terms.
pub(super) fn field(fields: &LazyStruct, key: &str) -> Option<Kind> {
    Value::decode(&**fields.fields.get(key)?).ok()?.kind
}

/// The text that a value is.
pub(super) fn text(value: Kind) -> Option<String> {
    match value {
        Kind::StringValue(text) => Some(text),
        _ => None,
    }
}

/// Metadata with one value, forwarded as untyped.
#[cfg(test)]
pub(super) fn untyped(namespace: &str, key: &str, value: &Value) -> Metadata {
    Metadata {
        filter_metadata: [(namespace.to_owned(), one(key, value))].into(),
        ..Metadata::default()
    }
}

/// A struct with one field.
#[cfg(test)]
pub(super) fn one(key: &str, value: &Value) -> LazyStruct {
    LazyStruct {
        fields: [(key.to_owned(), value.encode_to_vec().into())].into(),
    }
}

#[cfg(test)]
mod tests {
    use prost_types::{Any, ListValue, Struct};

    use super::*;

    fn number(number: f64) -> Value {
        Value {
            kind: Some(Kind::NumberValue(number)),
        }
    }

    /// A list in a list in a list.
    fn nested(levels: usize) -> Value {
        (0..levels).fold(number(1.0), |inner, _| Value {
            kind: Some(Kind::ListValue(ListValue { values: vec![inner] })),
        })
    }

    #[test]
    fn untyped_metadata_is_looked_up_by_namespace_and_key() {
        let metadata = untyped("ours", "key", &number(7.0));

        assert_eq!(value(&metadata, "ours", "key"), Some(Kind::NumberValue(7.0)));
        assert_eq!(value(&metadata, "ours", "other"), None);
        assert_eq!(value(&metadata, "theirs", "key"), None);
    }

    #[test]
    fn typed_metadata_is_looked_up_if_it_is_a_struct() {
        let fields = Struct {
            fields: [("key".to_owned(), number(7.0))].into(),
        };
        let typed = |type_url: &str| Metadata {
            typed_filter_metadata: [(
                "ours".to_owned(),
                Any {
                    type_url: type_url.to_owned(),
                    value: fields.encode_to_vec(),
                },
            )]
            .into(),
            ..Metadata::default()
        };

        let of_struct = typed("type.googleapis.com/google.protobuf.Struct");
        assert_eq!(value(&of_struct, "ours", "key"), Some(Kind::NumberValue(7.0)));
        assert_eq!(value(&typed("type.googleapis.com/acme.Key"), "ours", "key"), None);
    }

    #[test]
    fn what_is_nested_too_deeply_hides_nothing_beside_it() {
        let mut metadata = untyped("ours", "deep", &nested(500));
        let beside = untyped("ours", "flat", &number(7.0));
        let fields = beside.filter_metadata["ours"].fields.clone();
        metadata.filter_metadata.get_mut("ours").unwrap().fields.extend(fields);

        let received = Metadata::decode(&*metadata.encode_to_vec()).unwrap();

        assert_eq!(value(&received, "ours", "deep"), None);
        assert_eq!(value(&received, "ours", "flat"), Some(Kind::NumberValue(7.0)));
    }
}
