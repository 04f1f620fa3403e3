//! The prompt of Anthropic's messages API.

use super::Api;
use super::error::{Fault, ParseError};
use super::fields::Fields;
use super::json::{Kind, Value};
use super::prompt::{Piece, Prompt};

/// A client that puts its bill into the system prompt puts it there anew with every request. No model gets to see it.
const BILLING: &str = "x-anthropic-billing-header";

const MESSAGES: &str = "a non-empty array of messages";

/// Where blocks are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    System,
    Message,
    /// The content of a tool's result, whose blocks hold no further ones.
    ToolResult,
}

/// Finds the prompt: tools, system text, then role and blocks of each message. Whatever is not known here counts as it
/// is written.
pub(super) fn prompt<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, ParseError> {
    let messages = fields
        .required("messages", &[], MESSAGES, |messages| {
            messages.kind() != Kind::Null && !(messages.kind() == Kind::Array && messages.is_empty())
        })
        .and_then(|messages| messages.ok_or_else(|| Fault::missing("messages", MESSAGES)))
        .map_err(|fault| Api::Messages.refuse(fault))?;
    if messages.kind() != Kind::Array {
        let fault = Fault::found(messages, "messages", MESSAGES);
        return Err(ParseError::malformed("error parsing messages request", &fault));
    }
    let mut pieces = Vec::new();
    let tools = fields.value("tools").filter(|tools| !tools.is_empty());
    pieces.extend(tools.map(|tools| Piece::Raw(tools.text())));
    if let Some(system) = fields.value("system") {
        content(system, Within::System, &mut pieces);
    }
    messages.for_each_element(|_, message| {
        if message.kind() != Kind::Object {
            return pieces.extend(Piece::of(message));
        }
        let [role, blocks] = message.members(["role", "content"]);
        pieces.extend(role.and_then(Piece::of));
        if let Some(blocks) = blocks {
            content(blocks, Within::Message, &mut pieces);
        }
    });
    Ok(Prompt::pieces(pieces))
}

fn content<'a>(content: Value<'a>, within: Within, out: &mut Vec<Piece<'a>>) {
    if content.kind() == Kind::Array {
        content.for_each_element(|_, element| block(element, within, out));
    } else {
        block(content, within, out);
    }
}

fn block<'a>(block: Value<'a>, within: Within, out: &mut Vec<Piece<'a>>) {
    if block.kind() != Kind::Object {
        return out.extend(Piece::of(block));
    }
    let [text, thinking, id, name, input, source, inner] =
        block.members(["text", "thinking", "id", "name", "input", "source", "content"]);
    let is_bill = |text: &Value<'_>| text.as_string().is_some_and(|text| text.starts_with(BILLING));
    let text = text.filter(|text| within != Within::System || !is_bill(text));
    out.extend([text, thinking, id, name].into_iter().flatten().filter_map(Piece::of));
    out.extend(input.map(|input| Piece::Raw(input.text())));
    if let Some(source) = source {
        let [data, url] = source.members(["data", "url"]);
        let image = url.or(data).and_then(Value::as_string);
        out.extend(image.map(Piece::Image));
    }
    if let Some(inner) = inner
        && within == Within::Message
    {
        content(inner, Within::ToolResult, out);
    }
}
