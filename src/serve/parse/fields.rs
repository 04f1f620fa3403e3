//! The fields of each API that matter here.
//!
//! A request needs a model, which decides where it goes, and what its API is about: messages, a prompt, an input.
//! Without these it is refused. Every other field only informs the picker: it is read in each spelling that model
//! servers take (`"100"` for 100, 1 for `true`), and what cannot be read counts as absent. The model server judges it.
//!
//! A field that is null counts as absent, too.

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::Range;

use smallvec::SmallVec;

use super::error::{Fault, ParseError};
use super::json::{self, Literal, Member, Value};
use super::{Api, Model, ModelPlace};

/// The wanted fields at the top level of a body.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    api: Api,
    found: SmallVec<[(&'static str, Value<'a>); 8]>,
    /// Where `model` is, or would be put.
    model_place: ModelPlace,
}

/// The fields that every API has.
const COMMON: [&str; 3] = ["model", "stream", "cache_salt"];

impl<'a> Fields<'a> {
    /// Finds the fields that `api` wants.
    ///
    /// # Errors
    ///
    /// The body is not UTF-8 or no JSON object.
    pub(super) fn read(api: Api, body: &'a [u8]) -> Result<Self, ParseError> {
        let malformed = |reason: &dyn Display| ParseError::malformed(api.reading(), reason);
        let text = std::str::from_utf8(body)
            .map_err(|error| malformed(&format_args!("invalid UTF-8 at byte {}", error.valid_up_to())))?;
        if let Some(reason) = what_is_wrong_at_the_start(text) {
            return Err(malformed(&reason));
        }

        let mut found: SmallVec<[(&str, Value<'a>); 8]> = SmallVec::new();
        let mut models = ModelMembers::default();
        let mut is_empty = true;
        json::for_each_member(text, |member| {
            is_empty = false;
            let Member { key, value, .. } = member;
            let wanted = COMMON.iter().chain(api.fields()).find(|wanted| key.is(wanted));
            if let Some(&key) = wanted {
                found.retain(|&mut (earlier, _)| earlier != key);
                found.push((key, value));
            }
            models.pass(wanted == Some(&"model"), member.at);
        })
        .map_err(|error| malformed(&error))?;

        let model = found.iter().find(|(key, _)| *key == "model").map(|&(_, value)| value);
        let model_place = match model {
            Some(value) => ModelPlace::Value {
                literal: value.at()..value.at() + value.text().len(),
                superseded: models.superseded(),
            },
            None => ModelPlace::Absent {
                // The body is an object, so the first thing in it is a brace.
                front: text.len() - text.trim_ascii_start().len() + 1,
                is_only_member: is_empty,
            },
        };
        Ok(Self {
            api,
            found,
            model_place,
        })
    }

    /// The value of a field, unless it is null.
    pub(super) fn value(&self, key: &str) -> Option<Value<'a>> {
        self.written(key).filter(|value| !value.is_null())
    }

    /// The value of a field that has to be there and good enough. `None` if another field, which the picker does not
    /// look into, takes its place.
    pub(super) fn required(
        &self,
        key: &'static str,
        instead: &[&'static str],
        expected: &'static str,
        is_good: impl FnOnce(Value<'a>) -> bool,
    ) -> Result<Option<Value<'a>>, Fault> {
        match self.written(key) {
            Some(value) if is_good(value) => Ok(Some(value)),
            None if instead.iter().any(|key| self.value(key).is_some()) => Ok(None),
            Some(null) if null.is_null() && instead.iter().any(|key| self.value(key).is_some()) => Ok(None),
            Some(value) => Err(Fault::found(value, key, expected)),
            None => Err(Fault::missing(key, expected)),
        }
    }

    pub(super) fn model(&self) -> Model<'a> {
        let value = self.value("model");
        let name = value.and_then(Value::as_string);
        Model {
            name: name.map_or(Cow::Borrowed(""), Literal::unescape),
            place: self.model_place.clone(),
            fault: match (value, name) {
                (Some(value), None) => Some(Fault::found(value, "model", "a string")),
                _ => None,
            },
        }
    }

    pub(super) fn stream(&self) -> bool {
        self.value("stream").is_some_and(Value::is_lenient_true)
    }

    /// A salt that is no string tells prompts apart by how it is written.
    pub(super) fn cache_salt(&self) -> Cow<'a, str> {
        let Some(value) = self.value("cache_salt") else {
            return Cow::Borrowed("");
        };
        value.as_string().map_or(Cow::Borrowed(value.text()), Literal::unescape)
    }

    /// The first limit of the API that is a whole number.
    pub(super) fn max_output_tokens(&self) -> Option<u32> {
        let limit = match self.api {
            Api::Generate => {
                let params = self.value("sampling_params")?;
                let [limit] = params.members(["max_tokens"]);
                limit?.as_lenient_whole_number()
            }
            api => api
                .limits()
                .iter()
                .find_map(|key| self.value(key).and_then(Value::as_lenient_whole_number)),
        };
        limit.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX))
    }

    /// The value of a field, as it is.
    fn written(&self, key: &str) -> Option<Value<'a>> {
        self.found.iter().find(|(k, _)| *k == key).map(|&(_, value)| value)
    }
}

/// Where the members of an object are whose key is `model`.
#[derive(Debug, Default)]
struct ModelMembers {
    /// Each from its key to the next member's. Of the newest one only the start is known.
    found: SmallVec<[Range<usize>; 1]>,
    last_was_one: bool,
}

impl ModelMembers {
    /// The next member begins at `at`.
    fn pass(&mut self, is_model: bool, at: usize) {
        if self.last_was_one
            && let Some(newest) = self.found.last_mut()
        {
            newest.end = at;
        }
        if is_model {
            self.found.push(at..at);
        }
        self.last_was_one = is_model;
    }

    /// All but the last, which is the one that counts.
    fn superseded(mut self) -> Vec<Range<usize>> {
        self.found.pop();
        self.found.into_vec()
    }
}

impl Api {
    /// The fields that are read beside the common ones.
    fn fields(self) -> &'static [&'static str] {
        match self {
            Self::ChatCompletions => &["messages", "tools", "max_completion_tokens", "max_tokens"],
            Self::Completions => &["prompt", "prompt_embeds", "max_tokens"],
            Self::Embeddings => &["input", "messages"],
            Self::Responses => &[
                "input",
                "instructions",
                "tools",
                "max_output_tokens",
                "prompt",
                "previous_response_id",
                "conversation",
            ],
            Self::Conversations => &["items"],
            Self::Images => &["prompt"],
            Self::Messages => &["messages", "system", "tools", "max_tokens"],
            Self::Generate => &["token_ids", "sampling_params"],
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
