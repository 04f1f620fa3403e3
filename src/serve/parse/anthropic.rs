//! The prompt of Anthropic's messages API.

use super::Api;
use super::error::{Fault, ParseError, Place};
use super::fields::Fields;
use super::json::{Kind, Value};
use super::openai::check;
use super::prompt::{Piece, Prompt};

/// A client that puts its bill into the system prompt puts it there anew with every request. No model gets to see it.
const BILLING: &str = "x-anthropic-billing-header";

const CONTENT: &str = "a string or an array of blocks";

/// Where blocks are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    System,
    Message,
    /// The content of a tool's result, whose blocks hold no further ones.
    ToolResult,
}

/// Finds the prompt: tools, system text, then role and blocks of each message.
pub(super) fn prompt<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, ParseError> {
    let messages = fields
        .required("messages", "a non-empty array of messages", |messages| {
            messages.kind() != Kind::Null && !(messages.kind() == Kind::Array && messages.is_empty())
        })
        .map_err(|fault| Api::Messages.refuse(fault))?;
    read(fields, messages).map_err(|fault| Api::Messages.wrong_type("messages", fault))
}

fn read<'a>(fields: &Fields<'a>, messages: Value<'a>) -> Result<Prompt<'a>, Fault> {
    check(
        Some(messages),
        Kind::Array,
        Place::Field("messages"),
        "a non-empty array of messages",
    )?;
    let mut pieces = Vec::new();
    let tools = fields.value("tools").filter(|tools| !tools.is_empty());
    pieces.extend(tools.map(|tools| Piece::Raw(tools.text())));
    if let Some(system) = fields.value("system") {
        content(Place::Field("system"), system, Within::System, &mut pieces)?;
    }
    messages.try_for_each_element(|index, message| {
        let place = Place::Field("messages");
        let place = place.element(index);
        check(Some(message), Kind::Object, place, "a message, which is an object")?;
        let [role, blocks] = message.members(["role", "content"]);
        check(role, Kind::String, place.member("role"), "a string")?;
        pieces.extend(Piece::text(role));
        match blocks {
            Some(blocks) => content(place.member("content"), blocks, Within::Message, &mut pieces),
            None => Ok(()),
        }
    })?;
    Ok(Prompt::pieces(pieces))
}

fn content<'a>(place: Place<'_>, content: Value<'a>, within: Within, out: &mut Vec<Piece<'a>>) -> Result<(), Fault> {
    match content.kind() {
        Kind::String => out.extend(Piece::text(Some(content))),
        Kind::Array => {
            content.try_for_each_element(|index, element| block(place.element(index), element, within, out))?;
        }
        _ => return Err(Fault::found(content, place, CONTENT)),
    }
    Ok(())
}

fn block<'a>(place: Place<'_>, block: Value<'a>, within: Within, out: &mut Vec<Piece<'a>>) -> Result<(), Fault> {
    check(Some(block), Kind::Object, place, "a block, which is an object")?;
    let keys = ["type", "text", "thinking", "id", "name", "input", "source", "content"];
    let [kind, text, thinking, id, name, input, source, inner] = block.members(keys);
    for (key, value) in keys.into_iter().zip([kind, text, thinking, id, name]) {
        check(value, Kind::String, place.member(key), "a string")?;
    }
    let is_bill = |text: &Value<'_>| text.as_string().is_some_and(|text| text.starts_with(BILLING));
    let text = text.filter(|text| within != Within::System || !is_bill(text));
    out.extend([text, thinking, id, name].into_iter().flat_map(Piece::text));
    out.extend(input.map(|input| Piece::Raw(input.text())));
    if let Some(source) = source {
        let place = place.member("source");
        check(Some(source), Kind::Object, place, "an object")?;
        let [data, url] = source.members(["data", "url"]);
        check(data, Kind::String, place.member("data"), "a string")?;
        check(url, Kind::String, place.member("url"), "a string")?;
        let image = url.or(data).and_then(Value::as_string);
        out.extend(image.map(Piece::Image));
    }
    match inner {
        Some(inner) if within == Within::Message => content(place.member("content"), inner, Within::ToolResult, out),
        _ => Ok(()),
    }
}
