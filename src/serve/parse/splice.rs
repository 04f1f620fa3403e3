//! Another model name in a request body, and all other bytes as they are.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

/// Where the name of the model is in a body, or would be put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelPlace {
    /// The body has a `model`.
    Value {
        /// The bytes of the value: a string literal with its quotes, or whatever else the client sent.
        literal: Range<usize>,
        /// Earlier members with the same key, in order, each up to the next member. Model servers do not read them.
        superseded: Vec<Range<usize>>,
    },
    /// The body names no model.
    Absent {
        /// The byte after the outermost brace.
        front: usize,
        /// The body is an empty object.
        is_only_member: bool,
    },
}

impl ModelPlace {
    /// True if the body has several members with the key `model`.
    pub fn is_repeated(&self) -> bool {
        matches!(self, Self::Value { superseded, .. } if !superseded.is_empty())
    }
}

/// The body with `name` for its only model, in pieces that borrow what is unchanged. `place` must be of this body.
pub fn splice_model(body: &Bytes, place: &ModelPlace, name: &str) -> SmallVec<[Bytes; 3]> {
    let literal = string_literal(name);
    let (cuts, range, inserted) = match place {
        ModelPlace::Value {
            literal: old,
            superseded,
        } => (&superseded[..], old.clone(), literal),
        &ModelPlace::Absent { front, is_only_member } => {
            let separator = if is_only_member { "" } else { "," };
            (&[][..], front..front, format!("\"model\":{literal}{separator}"))
        }
    };
    let mut pieces = SmallVec::new();
    let mut kept = 0;
    for cut in cuts {
        pieces.push(body.slice(kept..cut.start));
        kept = cut.end;
    }
    pieces.push(body.slice(kept..range.start));
    pieces.push(Bytes::from(inserted));
    pieces.push(body.slice(range.end..));
    pieces
}

/// `text` as JSON, with its quotes.
pub(super) fn string_literal(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::{Api, parse};
    use super::*;

    fn spliced(body: &'static str, name: &str) -> String {
        let model = parse(Api::Completions, body.as_bytes()).unwrap().model.unwrap();
        let pieces = splice_model(&Bytes::from_static(body.as_bytes()), &model.place, name);
        String::from_utf8(pieces.concat()).unwrap()
    }

    #[test]
    fn only_the_value_of_the_model_changes() {
        assert_eq!(
            spliced(
                r#" {"x": 10000000000000000000001, "model" : "a\u0062", "prompt":"model"} "#,
                "n"
            ),
            r#" {"x": 10000000000000000000001, "model" : "n", "prompt":"model"} "#
        );
    }

    #[test]
    fn a_name_is_escaped() {
        assert_eq!(
            spliced(r#"{"model":"a","prompt":"p"}"#, "q\"\\\n"),
            r#"{"model":"q\"\\\n","prompt":"p"}"#
        );
    }

    #[test]
    fn of_several_models_one_remains() {
        for (body, spliced_body) in [
            (
                r#"{"model":"a","prompt":"p","model":"b"}"#,
                r#"{"prompt":"p","model":"n"}"#,
            ),
            (
                r#"{ "model" : {"x":[","]} , "mod\u0065l":1, "prompt":"p" ,"model" : "b" , "x":1}"#,
                r#"{ "prompt":"p" ,"model" : "n" , "x":1}"#,
            ),
            (
                r#"{"x":{"model":"inner"},"model":null,"prompt":"p","model":"b"}"#,
                r#"{"x":{"model":"inner"},"prompt":"p","model":"n"}"#,
            ),
        ] {
            assert_eq!(spliced(body, "n"), spliced_body, "{body}");
        }
    }

    #[test]
    fn a_body_without_a_model_gets_one_in_front() {
        assert_eq!(spliced(r#" { "prompt":"p"}"#, "n"), r#" {"model":"n", "prompt":"p"}"#);
        assert_eq!(
            spliced(r#"{"prompt":"p","model":null}"#, "n"),
            r#"{"prompt":"p","model":"n"}"#
        );
    }

    #[test]
    fn the_only_member_gets_no_comma() {
        let place = ModelPlace::Absent {
            front: 1,
            is_only_member: true,
        };

        let pieces = splice_model(&Bytes::from_static(b"{ }"), &place, "n");

        assert_eq!(pieces.concat(), br#"{"model":"n" }"#);
    }
}
