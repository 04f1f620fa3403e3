//! The fields of each API that matter here, and the types they must have.
//!
//! A field that is null counts as absent. A limit of tokens that is a number but no usable one is passed over, and so
//! left to the model server to judge.

use std::borrow::Cow;
use std::fmt::Display;

use smallvec::SmallVec;

use super::error::{Fault, ParseError, Place};
use super::json::{self, Kind, Literal, Value};
use super::{Api, Model, ModelPlace};

/// The wanted fields at the top level of a body, each of the right type.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    api: Api,
    found: SmallVec<[(&'static str, Value<'a>); 16]>,
    /// Where `model` is, or would be put.
    model_place: ModelPlace,
}

/// The type that a field must have.
#[derive(Clone, Copy, Debug)]
enum Type {
    /// Whoever reads the field judges it.
    Any,
    Array,
    Bool,
    Number,
    Object,
    String,
}

const COMMON: [(&str, Type); 3] = [
    ("model", Type::String),
    ("stream", Type::Bool),
    ("cache_salt", Type::String),
];

impl<'a> Fields<'a> {
    /// Finds the fields that `api` wants.
    ///
    /// # Errors
    ///
    /// The body is not UTF-8 or no JSON object, or one of these fields has the wrong type.
    pub(super) fn read(api: Api, body: &'a [u8]) -> Result<Self, ParseError> {
        let malformed = |reason: &dyn Display| ParseError::malformed(api.reading(), reason);
        let text = std::str::from_utf8(body)
            .map_err(|error| malformed(&format_args!("invalid UTF-8 at byte {}", error.valid_up_to())))?;
        if let Some(reason) = what_is_wrong_at_the_start(text) {
            return Err(malformed(&reason));
        }

        let mut found: SmallVec<[(&str, Value<'a>); 16]> = SmallVec::new();
        let mut is_empty = true;
        json::for_each_member(text, |key, value| {
            is_empty = false;
            let wanted = COMMON.iter().chain(api.fields()).find(|(wanted, _)| key.is(wanted));
            if let Some(&(key, _)) = wanted {
                found.retain(|&mut (earlier, _)| earlier != key);
                found.push((key, value));
            }
        })
        .map_err(|error| malformed(&error))?;

        let model = found.iter().find(|(key, _)| *key == "model").map(|&(_, value)| value);
        let model_place = match model {
            Some(value) => ModelPlace::Value(value.at()..value.at() + value.text().len()),
            None => ModelPlace::Absent {
                // The body is an object, so the first thing in it is a brace.
                front: text.len() - text.trim_ascii_start().len() + 1,
                is_only_member: is_empty,
            },
        };
        let fields = Self {
            api,
            found,
            model_place,
        };
        fields.check_types()?;
        Ok(fields)
    }

    /// The value of a field, as it is.
    pub(super) fn written(&self, key: &str) -> Option<Value<'a>> {
        self.found.iter().find(|(k, _)| *k == key).map(|&(_, value)| value)
    }

    /// The value of a field, unless it is null.
    pub(super) fn value(&self, key: &str) -> Option<Value<'a>> {
        self.written(key).filter(|value| !value.is_null())
    }

    /// The value of a field that has to be there and is good enough.
    pub(super) fn required(
        &self,
        key: &'static str,
        expected: &'static str,
        is_good: impl FnOnce(Value<'a>) -> bool,
    ) -> Result<Value<'a>, Fault> {
        match self.written(key) {
            None => Err(Fault::missing(Place::Field(key), expected)),
            Some(value) if is_good(value) => Ok(value),
            Some(value) => Err(Fault::found(value, Place::Field(key), expected)),
        }
    }

    pub(super) fn model(&self) -> Model<'a> {
        Model {
            name: self.string("model"),
            place: self.model_place.clone(),
        }
    }

    /// Only `true` is a wish for a stream.
    pub(super) fn stream(&self) -> bool {
        self.value("stream").is_some_and(Value::is_true)
    }

    pub(super) fn cache_salt(&self) -> Cow<'a, str> {
        self.string("cache_salt")
    }

    /// The first limit of the API that is a whole number.
    pub(super) fn max_output_tokens(&self) -> Option<u32> {
        let limit = match self.api {
            Api::Generate => {
                let params = self.value("sampling_params")?;
                let [limit] = params.members(["max_tokens"]);
                limit?.as_whole_number()
            }
            api => api
                .limits()
                .iter()
                .find_map(|key| self.value(key).and_then(Value::as_whole_number)),
        };
        limit.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX))
    }

    fn string(&self, key: &str) -> Cow<'a, str> {
        let literal = self.value(key).and_then(Value::as_string);
        literal.map_or(Cow::Borrowed(""), Literal::unescape)
    }

    fn check_types(&self) -> Result<(), ParseError> {
        for &(key, wanted) in COMMON.iter().chain(self.api.fields()) {
            let Some(value) = self.value(key) else { continue };
            if !wanted.admits(value.kind()) {
                let fault = Fault::found(value, Place::Field(key), wanted.describe());
                return Err(self.api.wrong_type(key, fault));
            }
        }
        if let Some(params) = self.value("sampling_params")
            && let [Some(limit)] = params.members(["max_tokens"])
            && limit.kind() != Kind::Number
        {
            let place = Place::Field("sampling_params");
            let fault = Fault::found(limit, place.member("max_tokens"), Type::Number.describe());
            return Err(self.api.wrong_type("max_tokens", fault));
        }
        Ok(())
    }
}

impl Type {
    fn admits(self, kind: Kind) -> bool {
        match self {
            Self::Any => true,
            Self::Array => kind == Kind::Array,
            Self::Bool => kind == Kind::Bool,
            Self::Number => kind == Kind::Number,
            Self::Object => kind == Kind::Object,
            Self::String => kind == Kind::String,
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Any => "a value",
            Self::Array => "an array",
            Self::Bool => "true or false",
            Self::Number => "a whole number",
            Self::Object => "an object",
            Self::String => "a string",
        }
    }
}

impl Api {
    /// The fields that it has beside the common ones.
    fn fields(self) -> &'static [(&'static str, Type)] {
        match self {
            Self::ChatCompletions => &[
                ("messages", Type::Any),
                ("tools", Type::Array),
                ("max_completion_tokens", Type::Number),
                ("max_tokens", Type::Number),
                ("documents", Type::Array),
                ("chat_template", Type::String),
                ("chat_template_kwargs", Type::Object),
                ("return_assistant_tokens_mask", Type::Bool),
                ("continue_final_message", Type::Bool),
                ("add_generation_prompt", Type::Bool),
            ],
            Self::Completions => &[("prompt", Type::Any), ("max_tokens", Type::Number)],
            Self::Embeddings => &[("input", Type::Any)],
            Self::Responses => &[
                ("input", Type::Any),
                ("instructions", Type::String),
                ("tools", Type::Array),
                ("max_output_tokens", Type::Number),
            ],
            Self::Conversations => &[("items", Type::Any), ("metadata", Type::Object)],
            Self::Images => &[
                ("prompt", Type::Any),
                ("n", Type::Number),
                ("size", Type::String),
                ("num_inference_steps", Type::Number),
            ],
            Self::Messages => &[
                ("messages", Type::Any),
                ("system", Type::Any),
                ("tools", Type::Array),
                ("max_tokens", Type::Number),
            ],
            Self::Generate => &[
                ("token_ids", Type::Any),
                ("sampling_params", Type::Object),
                ("features", Type::Object),
            ],
            Self::CountTokens | Self::Opaque => &[],
        }
    }

    /// The fields at the top level that limit the answer, best first.
    fn limits(self) -> &'static [&'static str] {
        match self {
            Self::ChatCompletions => &["max_completion_tokens", "max_tokens"],
            Self::Completions | Self::Messages => &["max_tokens"],
            Self::Responses => &["max_output_tokens"],
            _ => &[],
        }
    }

    /// How the text begins when the body is no JSON object.
    fn reading(self) -> &'static str {
        match self {
            Self::Messages | Self::Generate => "error unmarshaling request body",
            _ => "error unmarshaling request bodyMap",
        }
    }

    /// The answer to a body that breaks the rule of its API.
    pub(super) fn refuse(self, fault: Fault) -> ParseError {
        let rule = match self {
            Self::ChatCompletions => "invalid chat completions request: must have valid messages field",
            Self::Completions => "invalid completions request: must have prompt field",
            Self::Embeddings => "invalid embeddings request: must have input field",
            Self::Responses => "invalid responses request: must have input field",
            Self::Conversations => "invalid conversations request: must have items field",
            Self::Images => "invalid images generations request: must have prompt field",
            Self::Generate => "invalid generate request: must have non-empty token_ids field",
            Self::Messages => "invalid messages request: must have at least one message",
            Self::CountTokens | Self::Opaque => "invalid request",
        };
        ParseError::Refused { rule, fault }
    }

    /// The answer to a field of the wrong type.
    pub(super) fn wrong_type(self, key: &str, fault: Fault) -> ParseError {
        match (self, key) {
            (Self::Messages, _) => ParseError::malformed("error parsing messages request", &fault),
            (_, "model") => ParseError::Refused {
                rule: "model not found in request body",
                fault,
            },
            (Self::Generate, _) => ParseError::malformed("invalid generate request", &fault),
            _ => self.refuse(fault),
        }
    }
}

/// What keeps a text from being a JSON object, if its first characters show it; worded like the reference, whose
/// messages gateways' tests know.
fn what_is_wrong_at_the_start(text: &str) -> Option<String> {
    let json = text.trim_start_matches([' ', '\t', '\n', '\r']);
    let at = text.len() - json.len();
    let Some(first) = json.chars().next() else {
        return Some("unexpected end of JSON input".to_owned());
    };
    let literal = match first {
        '{' => return None,
        '[' => return Some(not_an_object("an array", at)),
        '"' => return Some(not_an_object("a string", at)),
        '-' | '0'..='9' => return Some(not_an_object("a number", at)),
        'n' => "null",
        't' => "true",
        'f' => "false",
        other => return Some(format!("invalid character {other:?} looking for beginning of value")),
    };
    for (found, wanted) in json
        .chars()
        .map(Some)
        .chain(std::iter::repeat(None))
        .zip(literal.chars())
    {
        match found {
            Some(found) if found == wanted => {}
            Some(found) => {
                return Some(format!(
                    "invalid character {found:?} in literal {literal} (expecting {wanted:?})"
                ));
            }
            None => return Some("unexpected end of JSON input".to_owned()),
        }
    }
    Some(not_an_object(literal, at))
}

fn not_an_object(found: &str, at: usize) -> String {
    format!("expected an object, found {found} at byte {at}")
}
