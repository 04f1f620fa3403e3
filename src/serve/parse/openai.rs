//! The prompts of OpenAI's APIs.

use super::Api;
use super::error::{Fault, ParseError, Place};
use super::fields::Fields;
use super::json::{Kind, Value};
use super::prompt::{Piece, Prompt};

const NON_EMPTY_ARRAY: &str = "a non-empty array of objects";
const PROMPT: &str = "a non-empty string, an array of strings or an array of token ids (0 to 4294967295)";
const TEXT_OR_ARRAY: &str = "a string or an array";

/// Finds the prompt of a body of `api`.
pub(super) fn prompt<'a>(api: Api, fields: &Fields<'a>) -> Result<Prompt<'a>, ParseError> {
    match api {
        Api::ChatCompletions => chat(fields),
        Api::Completions => completions(fields),
        Api::Embeddings => embeddings(fields),
        Api::Responses => responses(fields),
        Api::Conversations => conversations(fields),
        Api::Images => images(fields),
        Api::Messages | Api::CountTokens | Api::Generate | Api::Opaque => Ok(Prompt::none()),
    }
    .map_err(|fault| api.refuse(fault))
}

/// Checks that a value is of a kind, unless it is absent.
pub(super) fn check(
    value: Option<Value<'_>>,
    kind: Kind,
    place: Place<'_>,
    expected: &'static str,
) -> Result<(), Fault> {
    match value {
        Some(value) if value.kind() != kind => Err(Fault::found(value, place, expected)),
        _ => Ok(()),
    }
}

/// The tools as they stand, then role and text of each message.
fn chat<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    let mut pieces = Vec::new();
    let tools = fields.value("tools").filter(|tools| !tools.is_empty());
    pieces.extend(tools.map(|tools| Piece::Raw(tools.text())));
    non_empty_array(fields, "messages")?.try_for_each_element(|index, message| {
        chat_message(Place::Field("messages").element(index), message, &mut pieces)
    })?;
    Ok(Prompt::pieces(pieces))
}

fn chat_message<'a>(place: Place<'_>, message: Value<'a>, out: &mut Vec<Piece<'a>>) -> Result<(), Fault> {
    check(Some(message), Kind::Object, place, "a message, which is an object")?;
    let [role, content, tool_calls] = message.members(["role", "content", "tool_calls"]);
    check(role, Kind::String, place.member("role"), "a string")?;
    check(tool_calls, Kind::Array, place.member("tool_calls"), "an array")?;
    out.extend(Piece::text(role));
    let Some(content) = content else { return Ok(()) };
    let place = place.member("content");
    match content.kind() {
        Kind::String => out.extend(Piece::text(Some(content))),
        Kind::Array => {
            content.try_for_each_element(|index, part| content_part(place.element(index), part, out))?;
        }
        _ => return Err(Fault::found(content, place, "a string, an array of parts or null")),
    }
    Ok(())
}

fn content_part<'a>(place: Place<'_>, part: Value<'a>, out: &mut Vec<Piece<'a>>) -> Result<(), Fault> {
    check(Some(part), Kind::Object, place, "a part, which is an object")?;
    let [kind, text, image, audio, video] = part.members(["type", "text", "image_url", "input_audio", "video_url"]);
    check(kind, Kind::String, place.member("type"), "a string")?;
    check(text, Kind::String, place.member("text"), "a string")?;
    out.extend(Piece::text(text));
    let image = linked(place.member("image_url"), image)?;
    out.extend(image.and_then(Value::as_string).map(Piece::Image));
    let video = linked(place.member("video_url"), video)?;
    out.extend(video.and_then(Value::as_string).map(Piece::Video));
    if let Some(audio) = audio {
        let place = place.member("input_audio");
        check(Some(audio), Kind::Object, place, "an object with `data` and `format`")?;
        let [data, format] = audio.members(["data", "format"]);
        check(data, Kind::String, place.member("data"), "a string")?;
        check(format, Kind::String, place.member("format"), "a string")?;
        out.extend(data.and_then(Value::as_string).map(|data| {
            let format = format.and_then(Value::as_string);
            Piece::Audio { data, format }
        }));
    }
    Ok(())
}

/// The URL of `{"url": …}`, or of the bare string that some clients send.
fn linked<'a>(place: Place<'_>, link: Option<Value<'a>>) -> Result<Option<Value<'a>>, Fault> {
    match link {
        Some(link) if link.kind() == Kind::Object => {
            let [url] = link.members(["url"]);
            check(url, Kind::String, place.member("url"), "a string")?;
            Ok(url)
        }
        link => {
            check(link, Kind::String, place, "an object with `url`")?;
            Ok(link)
        }
    }
}

fn completions<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    let prompt = fields.required("prompt", PROMPT, |prompt| !prompt.is_empty())?;
    match text_or_tokens(prompt, "prompt")? {
        Input::Text => Ok(Prompt::pieces(Piece::text(Some(prompt)).into_iter().collect())),
        Input::Texts => Ok(Prompt::texts(prompt)),
        Input::Tokens(ids) => Ok(Prompt::tokens(ids)),
    }
}

/// Token ids, or the input's JSON as it stands.
fn embeddings<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    let input = fields.required("input", PROMPT, |input| !input.is_empty())?;
    match text_or_tokens(input, "input")? {
        Input::Text | Input::Texts => Ok(Prompt::pieces(vec![Piece::Raw(input.text())])),
        Input::Tokens(ids) => Ok(Prompt::tokens(ids)),
    }
}

enum Input {
    Text,
    Texts,
    Tokens(Vec<u32>),
}

fn text_or_tokens(value: Value<'_>, field: &'static str) -> Result<Input, Fault> {
    match value.kind() {
        Kind::String => return Ok(Input::Text),
        Kind::Array => {}
        _ => return Err(Fault::found(value, Place::Field(field), PROMPT)),
    }
    if let Some(ids) = value.as_token_ids() {
        return Ok(Input::Tokens(ids));
    }
    let mut first_is_text = false;
    value.try_for_each_element(|index, element| {
        first_is_text |= index == 0 && element.kind() == Kind::String;
        let is_good = if first_is_text {
            element.kind() == Kind::String
        } else {
            element.as_token_id().is_some()
        };
        let place = Place::Field(field);
        is_good
            .then_some(())
            .ok_or_else(|| Fault::found(element, place.element(index), PROMPT))
    })?;
    Ok(Input::Texts)
}

/// The instructions and tools come first, since they are what requests have in common.
fn responses<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    let input = fields.required("input", TEXT_OR_ARRAY, |input| {
        matches!(input.kind(), Kind::String | Kind::Array)
    })?;
    let mut pieces = Vec::new();
    let mut opening = "[{\"";
    for (key, value) in [
        ("instructions", fields.value("instructions")),
        ("tools", fields.value("tools")),
        ("input", Some(input)),
    ] {
        if let Some(value) = value {
            pieces.extend([opening, key, "\":", value.text(), "}"].map(Piece::Raw));
            opening = ",{\"";
        }
    }
    pieces.push(Piece::Raw("]"));
    Ok(Prompt::pieces(pieces))
}

fn conversations<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    let items = non_empty_array(fields, "items")?;
    items.try_for_each_element(|index, item| {
        let place = Place::Field("items");
        let place = place.element(index);
        check(Some(item), Kind::Object, place, "an object")?;
        let [kind, role] = item.members(["type", "role"]);
        check(kind, Kind::String, place.member("type"), "a string")?;
        check(role, Kind::String, place.member("role"), "a string")
    })?;
    Ok(Prompt::pieces(vec![Piece::Raw(items.text())]))
}

/// The prompt must be there, but nothing of it is cached: there are no tokens to count.
fn images<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    fields.required("prompt", "a non-empty string", |prompt| {
        prompt.kind() == Kind::String && !prompt.is_empty()
    })?;
    Ok(Prompt::none())
}

fn non_empty_array<'a>(fields: &Fields<'a>, key: &'static str) -> Result<Value<'a>, Fault> {
    fields.required(key, NON_EMPTY_ARRAY, |value| {
        value.kind() == Kind::Array && !value.is_empty()
    })
}
