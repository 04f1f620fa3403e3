//! Where the text of an answer is, for an estimate of its tokens.
//!
//! Only used at the end of a response, on what was kept of it. In a string of JSON every quote has a backslash before it,
//! so that what a model writes never looks like a key.

use memchr::memmem;

use crate::engine::prefix::hash::BYTES_PER_TOKEN;

/// Keys whose values are what a model wrote, in the APIs that are known here.
const KEYS: [&str; 10] = [
    "\"content\":",
    "\"text\":",
    "\"reasoning_content\":",
    "\"reasoning\":",
    "\"refusal\":",
    "\"arguments\":",
    "\"thinking\":",
    "\"partial_json\":",
    "\"delta\":",
    "\"token_ids\":",
];

/// Keys of documents that hold what a model wrote, and not vectors, images or lists of models.
const TEXT_KEYS: [&str; 3] = ["\"choices\":", "\"output\":", "\"content\":"];

/// Events that carry nothing that a model wrote: the role at the start, the reason of the end, usage, pings, `[DONE]`.
pub(super) fn events_without(stream: &str) -> u64 {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data:"));
    data.filter(|data| !has_content(data)).count() as u64
}

/// About how many tokens a document holds that a model wrote.
pub(super) fn tokens_of(document: &str) -> u64 {
    if !is_text(document) {
        return 0;
    }
    let bytes: usize = contents(document).map(str::len).sum();
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

/// Whether a document, of which this is the start, holds what a model wrote.
pub(super) fn is_text(document: &str) -> bool {
    TEXT_KEYS.iter().any(|key| contains(document, key))
}

fn has_content(data: &str) -> bool {
    // Of the responses API, these alone bring something new; other events repeat it.
    if contains(data, "\"type\":\"response.") || contains(data, "\"type\": \"response.") {
        return contains(data, ".delta\"");
    }
    contents(data).any(|content| !content.is_empty())
}

/// The values of [`KEYS`]: the inside of strings and arrays, as it is written.
fn contents(json: &str) -> impl Iterator<Item = &str> {
    KEYS.iter().flat_map(move |key| {
        memmem::find_iter(json.as_bytes(), key.as_bytes()).map(move |at| content(json[at + key.len()..].trim_start()))
    })
}

/// The inside of a string or of an array of numbers, as far as it is there. Empty for any other value.
fn content(value: &str) -> &str {
    let Some(first) = value.bytes().next() else { return "" };
    let inside = &value[1.min(value.len())..];
    match first {
        b'"' => {
            let mut from = 0;
            while let Some(at) = memchr::memchr2(b'"', b'\\', &inside.as_bytes()[from..]) {
                if inside.as_bytes()[from + at] == b'"' {
                    return &inside[..from + at];
                }
                // What is escaped is one byte, or the first of several that are none of these two.
                from = (from + at + 2).min(inside.len());
            }
            inside
        }
        b'[' if !inside.starts_with('{') => &inside[..inside.find(']').unwrap_or(inside.len())],
        _ => "",
    }
}

fn contains(text: &str, wanted: &str) -> bool {
    memmem::find(text.as_bytes(), wanted.as_bytes()).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_content_if_a_model_wrote_something_in_it() {
        for (data, found) in [
            (r#" {"choices":[{"delta":{"role":"assistant","content":""}}]}"#, false),
            (r#" {"choices":[{"delta":{"content":" word"}}]}"#, true),
            (r#"{"choices":[{"delta":{"content": "\""}}]}"#, true),
            (r#" {"choices":[{"delta":{"reasoning_content":"hm"}}]}"#, true),
            (
                r#" {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}"#,
                true,
            ),
            (r#" {"choices":[{"delta":{},"finish_reason":"stop"}]}"#, false),
            (r#" {"choices":[{"text":"a"}]}"#, true),
            (r#" {"choices":[{"text":""}]}"#, false),
            (r#" {"choices":[{"token_ids":[5,6]}]}"#, true),
            (r#" {"choices":[{"token_ids":[]}]}"#, false),
            (r#" {"choices":[],"usage":{"prompt_tokens":1}}"#, false),
            (r#" {"type":"message_start","message":{"content":[]}}"#, false),
            (
                r#" {"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}"#,
                true,
            ),
            (
                r#" {"type":"content_block_start","content_block":{"type":"text","text":""}}"#,
                false,
            ),
            (r#" {"type":"response.output_text.delta","delta":"a"}"#, true),
            (r#" {"type":"response.output_text.done","text":"all of it"}"#, false),
            (
                r#" {"type": "response.completed","response":{"output":[{"content":[{"text":"x"}]}]}}"#,
                false,
            ),
            (" [DONE]", false),
            ("", false),
        ] {
            assert_eq!(has_content(data), found, "{data}");
        }
    }

    #[test]
    fn a_document_is_estimated_by_the_bytes_that_a_model_wrote() {
        for (document, tokens) in [
            (
                r#"{"id":"x","choices":[{"message":{"role":"assistant","content":"12345678"}}]}"#,
                2,
            ),
            (r#"{"choices":[{"text":"123456789"},{"text":"1234"}]}"#, 4),
            (r#"{"choices":[{"text":"\"\"\"\""}]}"#, 2),
            (r#"{"content":[{"type":"text","text":"1234"}]}"#, 1),
            (r#"{"output":[{"content":[{"text":"1234"}]}]}"#, 1),
            (r#"{"choices":[{"text":"cut o"#, 2),
            (r#"{"object":"list","data":[{"embedding":[0.1,0.2]}]}"#, 0),
            (r#"{"data":[{"text":"not an answer"}]}"#, 0),
            ("", 0),
        ] {
            assert_eq!(tokens_of(document), tokens, "{document}");
        }
    }
}
