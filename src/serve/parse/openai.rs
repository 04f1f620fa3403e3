//! The prompts of OpenAI's APIs.
//!
//! Only the field that an API is about is required. Whatever is in it that is not known here counts as it is written.

use super::Api;
use super::error::{Fault, ParseError};
use super::fields::Fields;
use super::json::{Kind, Literal, Value};
use super::prompt::{Piece, Prompt};

const NON_EMPTY_ARRAY: &str = "a non-empty array";
const PROMPT: &str = "a non-empty string, or an array of strings, of token ids or of arrays of token ids";
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

/// The tools as they stand, then role and text of each message.
fn chat<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    let mut pieces = Vec::new();
    let tools = fields.value("tools").filter(|tools| !tools.is_empty());
    pieces.extend(tools.map(|tools| Piece::Raw(tools.text())));
    non_empty_array(fields, "messages")?.for_each_element(|_, message| chat_message(message, &mut pieces));
    Ok(Prompt::pieces(pieces))
}

fn chat_message<'a>(message: Value<'a>, out: &mut Vec<Piece<'a>>) {
    if message.kind() != Kind::Object {
        return out.extend(Piece::of(message));
    }
    let [role, content] = message.members(["role", "content"]);
    out.extend(role.and_then(Piece::of));
    match content {
        Some(content) if content.kind() == Kind::Array => {
            content.for_each_element(|_, part| content_part(part, out));
        }
        Some(content) => content_part(content, out),
        None => {}
    }
}

fn content_part<'a>(part: Value<'a>, out: &mut Vec<Piece<'a>>) {
    if part.kind() != Kind::Object {
        return out.extend(Piece::of(part));
    }
    let [text, image, audio, video] = part.members(["text", "image_url", "input_audio", "video_url"]);
    out.extend(text.and_then(Piece::of));
    out.extend(image.and_then(linked).map(Piece::Image));
    out.extend(video.and_then(linked).map(Piece::Video));
    if let Some(audio) = audio {
        let [data, format] = audio.members(["data", "format"]);
        out.extend(data.and_then(Value::as_string).map(|data| {
            let format = format.and_then(Value::as_string);
            Piece::Audio { data, format }
        }));
    }
}

/// The URL of `{"url": …}`, or of the bare string that some clients send.
fn linked(link: Value<'_>) -> Option<Literal<'_>> {
    let [url] = link.members(["url"]);
    url.unwrap_or(link).as_string()
}

/// vLLM also takes `prompt_embeds`, of which nothing can be told.
fn completions<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    let prompt = fields.required("prompt", &["prompt_embeds"], PROMPT, is_prompt)?;
    Ok(prompt.map_or_else(Prompt::none, |prompt| match prompt.kind() {
        Kind::String => Prompt::pieces(Piece::of(prompt).into_iter().collect()),
        _ => tokens(prompt).unwrap_or_else(|| match prompt.first_element().map(Value::kind) {
            Some(Kind::String | Kind::Array | Kind::Object) => Prompt::batch(prompt),
            _ => Prompt::written(prompt),
        }),
    }))
}

/// Token ids, or the input's JSON as it stands. Instead of an input there may be a chat.
fn embeddings<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    match fields.required("input", &["messages"], PROMPT, is_prompt)? {
        None => chat(fields),
        Some(input) => Ok(
            tokens(input).unwrap_or_else(|| match input.first_element().map(Value::kind) {
                Some(Kind::Array) => Prompt::batch(input),
                _ => Prompt::written(input),
            }),
        ),
    }
}

fn is_prompt(value: Value<'_>) -> bool {
    matches!(value.kind(), Kind::String | Kind::Array | Kind::Object) && !value.is_empty()
}

/// The prompt that an array of token ids is.
fn tokens(value: Value<'_>) -> Option<Prompt<'_>> {
    let first = value.first_element()?;
    (first.kind() == Kind::Number).then(|| value.as_token_ids().map(Prompt::tokens))?
}

/// The instructions and tools come first, since they are what requests have in common. Without an input, the rest of
/// the prompt is with the server.
fn responses<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    let kept_by_server = ["prompt", "previous_response_id", "conversation"];
    let input = fields.required("input", &kept_by_server, TEXT_OR_ARRAY, |input| {
        matches!(input.kind(), Kind::String | Kind::Array | Kind::Object)
    })?;
    let mut pieces = Vec::new();
    let mut opening = "[{\"";
    for (key, value) in [
        ("instructions", fields.value("instructions")),
        ("tools", fields.value("tools")),
        ("input", input),
    ] {
        if let Some(value) = value {
            pieces.extend([opening, key, "\":", value.text(), "}"].map(Piece::Raw));
            opening = ",{\"";
        }
    }
    if pieces.is_empty() {
        return Ok(Prompt::none());
    }
    pieces.push(Piece::Raw("]"));
    Ok(Prompt::pieces(pieces))
}

fn conversations<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    non_empty_array(fields, "items").map(Prompt::written)
}

/// The prompt must be there, but nothing of it is cached: there are no tokens to count.
fn images<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, Fault> {
    fields.required("prompt", &[], "a non-empty string", is_prompt)?;
    Ok(Prompt::none())
}

fn non_empty_array<'a>(fields: &Fields<'a>, key: &'static str) -> Result<Value<'a>, Fault> {
    let array = fields.required(key, &[], NON_EMPTY_ARRAY, |value| {
        value.kind() == Kind::Array && !value.is_empty()
    })?;
    array.ok_or_else(|| Fault::missing(key, NON_EMPTY_ARRAY))
}
