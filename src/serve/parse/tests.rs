use std::hash::Hasher as _;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use twox_hash::XxHash64;

use super::*;
use crate::engine::prefix::BlockLayout;

fn refused(api: Api, body: impl AsRef<[u8]>) -> String {
    parse(api, body.as_ref()).unwrap_err().to_string()
}

fn read(api: Api, body: &str) -> Parsed<'_> {
    parse(api, body.as_bytes()).unwrap()
}

fn hasher() -> BlockHasher {
    BlockHasher::new("m", "", BlockLayout::default())
}

/// The tokens and blocks of prompts that are these bytes.
fn hash_of(prompts: &[&[u8]]) -> (u32, PromptBlocks) {
    let mut hasher = hasher();
    for prompt in prompts {
        hasher.text(prompt);
        hasher.end_prompt();
    }
    hasher.finish()
}

#[track_caller]
fn assert_prompt(api: Api, body: &str, prompts: &[&[u8]]) {
    assert_eq!(read(api, body).hash_prompt(hasher()), hash_of(prompts), "{body}");
}

fn asset_token(content: &str) -> [u8; 4] {
    let mut hash = XxHash64::with_seed(0);
    hash.write(content.as_bytes());
    (hash.finish() as u32).to_le_bytes()
}

// --- what is refused

#[test]
fn a_body_that_is_no_json_object_is_refused_in_the_words_of_the_reference() {
    for (body, text) in [
        (
            "no healthy upstream",
            "invalid character 'o' in literal null (expecting 'u')",
        ),
        ("trap", "invalid character 'a' in literal true (expecting 'u')"),
        ("<html>", "invalid character '<' looking for beginning of value"),
        ("nul", "unexpected end of JSON input"),
        ("", "unexpected end of JSON input"),
        (" \n", "unexpected end of JSON input"),
        ("null", "expected an object, found null at byte 0"),
        (" [1]", "expected an object, found an array at byte 1"),
        ("5", "expected an object, found a number at byte 0"),
        ("\"text\"", "expected an object, found a string at byte 0"),
        ("{\"prompt\": tru}", "expected ident at line 1 column 15"),
        ("{\"prompt\":\"a\"", "EOF while parsing an object at line 1 column 13"),
        ("{\"prompt\":\"a\"}\n{}", "trailing characters at line 2 column 1"),
        ("{\"prompt\":\"\\x\"}", "invalid escape at line 1 column 13"),
    ] {
        let begin = "error unmarshaling request bodyMap: ";
        assert_eq!(refused(Api::Completions, body), format!("{begin}{text}"));
        assert_eq!(refused(Api::ChatCompletions, body), format!("{begin}{text}"));
        assert_eq!(
            refused(Api::Messages, body),
            format!("error unmarshaling request body: {text}")
        );
        assert_eq!(
            refused(Api::Generate, body),
            format!("error unmarshaling request body: {text}")
        );
    }
}

#[test]
fn bytes_that_are_not_utf8_are_refused() {
    assert_eq!(
        refused(Api::Completions, b"{\"prompt\":\"a\xff\"}"),
        "error unmarshaling request bodyMap: invalid UTF-8 at byte 12"
    );
}

#[test]
fn what_an_api_requires_is_named_with_what_was_found_and_where() {
    const PROMPT: &str = "a non-empty string, an array of strings or an array of token ids (0 to 4294967295)";
    let completions = "invalid completions request: must have prompt field";
    let embeddings = "invalid embeddings request: must have input field";
    let chat = "invalid chat completions request: must have valid messages field";
    let responses = "invalid responses request: must have input field";
    let conversations = "invalid conversations request: must have items field";
    let images = "invalid images generations request: must have prompt field";
    let generate = "invalid generate request: must have non-empty token_ids field";
    let messages = "invalid messages request: must have at least one message";
    let objects = "a non-empty array of objects";
    let ids = "a non-empty array of whole numbers from 0 to 4294967295";
    for (api, body, rule, found, expected) in [
        (Api::Completions, "{}", completions, "found no `prompt`", PROMPT),
        (
            Api::Completions,
            r#"{"model":"m", "prompt": 5}"#,
            completions,
            "found a number at byte 24 as `prompt`",
            PROMPT,
        ),
        (
            Api::Completions,
            r#"{"prompt":null}"#,
            completions,
            "found null at byte 10 as `prompt`",
            PROMPT,
        ),
        (
            Api::Completions,
            r#"{"prompt":""}"#,
            completions,
            "found an empty string at byte 10 as `prompt`",
            PROMPT,
        ),
        (
            Api::Completions,
            r#"{"prompt":[ ]}"#,
            completions,
            "found an empty array at byte 10 as `prompt`",
            PROMPT,
        ),
        (
            Api::Completions,
            r#"{"prompt":{}}"#,
            completions,
            "found an object at byte 10 as `prompt`",
            PROMPT,
        ),
        (
            Api::Completions,
            r#"{"prompt":["a",5]}"#,
            completions,
            "found a number at byte 15 as `prompt[1]`",
            PROMPT,
        ),
        (
            Api::Completions,
            r#"{"prompt":[5,"a"]}"#,
            completions,
            "found a string at byte 13 as `prompt[1]`",
            PROMPT,
        ),
        (
            Api::Completions,
            r#"{"prompt":[[1]]}"#,
            completions,
            "found an array at byte 11 as `prompt[0]`",
            PROMPT,
        ),
        (
            Api::Completions,
            r#"{"prompt":[1,4294967296]}"#,
            completions,
            "found a number at byte 13 as `prompt[1]`",
            PROMPT,
        ),
        (
            Api::Completions,
            r#"{"prompt":[-1]}"#,
            completions,
            "found a number at byte 11 as `prompt[0]`",
            PROMPT,
        ),
        (
            Api::Completions,
            r#"{"prompt":[1.5]}"#,
            completions,
            "found a number at byte 11 as `prompt[0]`",
            PROMPT,
        ),
        (
            Api::Completions,
            r#"{"prompt":"p","cache_salt":1}"#,
            completions,
            "found a number at byte 27 as `cache_salt`",
            "a string",
        ),
        (
            Api::Completions,
            r#"{"prompt":"p","stream":"true"}"#,
            completions,
            "found a string at byte 23 as `stream`",
            "true or false",
        ),
        (
            Api::Completions,
            r#"{"prompt":"p","max_tokens":"9"}"#,
            completions,
            "found a string at byte 27 as `max_tokens`",
            "a whole number",
        ),
        (
            Api::Completions,
            r#"{"prompt":"p","model":["m"]}"#,
            "model not found in request body",
            "found an array at byte 22 as `model`",
            "a string",
        ),
        (
            Api::Embeddings,
            r#"{"input":true}"#,
            embeddings,
            "found a boolean at byte 9 as `input`",
            PROMPT,
        ),
        (Api::ChatCompletions, "{}", chat, "found no `messages`", objects),
        (
            Api::ChatCompletions,
            r#"{"messages":[]}"#,
            chat,
            "found an empty array at byte 12 as `messages`",
            objects,
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":"hi"}"#,
            chat,
            "found a string at byte 12 as `messages`",
            objects,
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":["hi"]}"#,
            chat,
            "found a string at byte 13 as `messages[0]`",
            "a message, which is an object",
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{},{"role":1}]}"#,
            chat,
            "found a number at byte 24 as `messages[1].role`",
            "a string",
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"content":1}]}"#,
            chat,
            "found a number at byte 24 as `messages[0].content`",
            "a string, an array of parts or null",
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"content":[[]]}]}"#,
            chat,
            "found an empty array at byte 25 as `messages[0].content[0]`",
            "a part, which is an object",
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"content":[{"text":[1]}]}]}"#,
            chat,
            "found an array at byte 33 as `messages[0].content[0].text`",
            "a string",
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"content":[{"image_url":{"url":7}}]}]}"#,
            chat,
            "found a number at byte 45 as `messages[0].content[0].image_url.url`",
            "a string",
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"content":[{"input_audio":"x"}]}]}"#,
            chat,
            "found a string at byte 40 as `messages[0].content[0].input_audio`",
            "an object with `data` and `format`",
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"tool_calls":{}}]}"#,
            chat,
            "found an object at byte 27 as `messages[0].tool_calls`",
            "an array",
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{}],"tools":{}}"#,
            chat,
            "found an object at byte 25 as `tools`",
            "an array",
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{}],"chat_template":{}}"#,
            chat,
            "found an object at byte 33 as `chat_template`",
            "a string",
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{}],"max_completion_tokens":[]}"#,
            chat,
            "found an empty array at byte 41 as `max_completion_tokens`",
            "a whole number",
        ),
        (
            Api::Responses,
            "{}",
            responses,
            "found no `input`",
            "a string or an array",
        ),
        (
            Api::Responses,
            r#"{"input":null}"#,
            responses,
            "found null at byte 9 as `input`",
            "a string or an array",
        ),
        (
            Api::Responses,
            r#"{"input":"a","instructions":[]}"#,
            responses,
            "found an empty array at byte 28 as `instructions`",
            "a string",
        ),
        (Api::Conversations, "{}", conversations, "found no `items`", objects),
        (
            Api::Conversations,
            r#"{"items":[{"role":1}]}"#,
            conversations,
            "found a number at byte 18 as `items[0].role`",
            "a string",
        ),
        (
            Api::Images,
            r#"{"prompt":["a"]}"#,
            images,
            "found an array at byte 10 as `prompt`",
            "a non-empty string",
        ),
        (
            Api::Images,
            r#"{"prompt":"a","n":"1"}"#,
            images,
            "found a string at byte 18 as `n`",
            "a whole number",
        ),
        (Api::Generate, "{}", generate, "found no `token_ids`", ids),
        (
            Api::Generate,
            r#"{"token_ids":[]}"#,
            generate,
            "found an empty array at byte 13 as `token_ids`",
            ids,
        ),
        (
            Api::Messages,
            "{}",
            messages,
            "found no `messages`",
            "a non-empty array of messages",
        ),
        (
            Api::Messages,
            r#"{"messages":[]}"#,
            messages,
            "found an empty array at byte 12 as `messages`",
            "a non-empty array of messages",
        ),
    ] {
        assert_eq!(
            refused(api, body),
            format!("{rule} ({found}, expected {expected})"),
            "{body}"
        );
    }
}

#[test]
fn wrong_types_in_other_apis_are_named_in_their_words() {
    for (api, body, text) in [
        (
            Api::Messages,
            r#"{"messages":"hi"}"#,
            "error parsing messages request: found a string at byte 12 as `messages`, expected a non-empty array of messages",
        ),
        (
            Api::Messages,
            r#"{"messages":[{}],"system":5}"#,
            "error parsing messages request: found a number at byte 26 as `system`, expected a string or an array of blocks",
        ),
        (
            Api::Messages,
            r#"{"messages":[{"content":[{"text":5}]}]}"#,
            "error parsing messages request: found a number at byte 33 as `messages[0].content[0].text`, expected a string",
        ),
        (
            Api::Messages,
            r#"{"messages":[{}],"model":5}"#,
            "error parsing messages request: found a number at byte 25 as `model`, expected a string",
        ),
        (
            Api::Generate,
            r#"{"token_ids":[1, -2]}"#,
            "invalid generate request: token_ids[1]: invalid value -2 (found a number at byte 17 as `token_ids[1]`, expected a whole number from 0 to 4294967295)",
        ),
        (
            Api::Generate,
            r#"{"token_ids":[1],"sampling_params":{"max_tokens":"1"}}"#,
            "invalid generate request: found a string at byte 49 as `sampling_params.max_tokens`, expected a whole number",
        ),
    ] {
        assert_eq!(refused(api, body), text);
    }
}

#[test]
fn a_refusal_repeats_no_more_than_a_few_characters_of_the_body() {
    let long = "9".repeat(100_000);

    for (api, body) in [
        (Api::Completions, format!("\"{long}\"")),
        (Api::Completions, format!("{{\"prompt\":{long}}}")),
        (Api::Generate, format!("{{\"token_ids\":[\"{long}\"]}}")),
    ] {
        assert!(refused(api, body).len() < 300);
    }
}

#[test]
fn depth_costs_no_stack() {
    let deep = 1_000_000;
    let nested = format!("{}{}", "[".repeat(deep), "]".repeat(deep));

    assert_eq!(
        read(Api::Completions, &format!(r#"{{"x":{nested},"prompt":"p"}}"#))
            .hash_prompt(hasher())
            .0,
        1
    );
    assert!(refused(Api::Completions, format!(r#"{{"prompt":{nested}}}"#)).contains("found an array at byte 11"));
    assert!(refused(Api::Completions, "{\"x\":".repeat(deep)).contains("EOF while parsing"));
    assert!(
        refused(
            Api::ChatCompletions,
            format!(r#"{{"messages":[{{"content":{nested}}}]}}"#)
        )
        .contains("content[0]")
    );
}

#[test]
fn paths_that_are_not_looked_into_take_any_body() {
    for (api, response) in [
        (Api::Opaque, ResponseFormat::Opaque),
        (Api::CountTokens, ResponseFormat::Ignored),
    ] {
        let parsed = parse(api, b"\xff not json").unwrap();

        assert_eq!((parsed.model.is_none(), parsed.response), (true, response));
        assert_eq!(parsed.hash_prompt(hasher()), hash_of(&[]));
    }
}

// --- what is read

#[test]
fn the_fields_that_scheduling_wants_are_read() {
    let body = r#" {"model":"a\u0062", "prompt" : "p", "stream":true,"max_tokens":16,"cache_salt":"s\n"}"#;

    let parsed = read(Api::Completions, body);

    let model = parsed.model.unwrap();
    assert_eq!(model.name, "ab");
    assert_eq!(model.place, ModelPlace::Value(10..19));
    assert_eq!((parsed.stream, parsed.max_output_tokens), (true, Some(16)));
    assert_eq!(parsed.cache_salt, "s\n");
    assert_eq!(parsed.response, ResponseFormat::OpenAi);
}

#[test]
fn absent_and_null_are_the_same() {
    for body in [
        r#"{"prompt":"p"}"#,
        r#"{"prompt":"p","model":null,"stream":null,"max_tokens":null,"cache_salt":null}"#,
    ] {
        let parsed = read(Api::Completions, body);

        assert_eq!(parsed.model.unwrap().name, "");
        assert_eq!((parsed.stream, parsed.max_output_tokens), (false, None));
        assert_eq!(parsed.cache_salt, "");
    }
}

#[test]
fn of_a_key_that_occurs_twice_the_last_one_counts() {
    let body = r#"{"model":1,"prompt":5,"stream":true,"model":"b","prompt":"p","str\u0065am":false}"#;

    let parsed = read(Api::Completions, body);

    assert_eq!(parsed.model.as_ref().unwrap().name, "b");
    assert!(!parsed.stream);
    assert_eq!(parsed.hash_prompt(hasher()), hash_of(&[b"p"]));
    assert_prompt(
        Api::ChatCompletions,
        r#"{"messages":[{"content":1,"content":"p"}]}"#,
        &[b"p"],
    );
}

#[test]
fn the_first_usable_limit_counts() {
    for (api, fields, limit) in [
        (
            Api::ChatCompletions,
            r#""max_tokens":1,"max_completion_tokens":2"#,
            Some(2),
        ),
        (
            Api::ChatCompletions,
            r#""max_tokens":1,"max_completion_tokens":-2"#,
            Some(1),
        ),
        (
            Api::ChatCompletions,
            r#""max_tokens":1,"max_completion_tokens":null"#,
            Some(1),
        ),
        (Api::ChatCompletions, r#""max_tokens":1.5"#, None),
        (Api::ChatCompletions, r#""max_tokens":16.0"#, Some(16)),
        (Api::ChatCompletions, r#""max_tokens":1e3"#, Some(1000)),
        (Api::ChatCompletions, r#""max_tokens":0"#, Some(0)),
        (
            Api::ChatCompletions,
            r#""max_tokens":99999999999999999999999"#,
            Some(u32::MAX),
        ),
        (Api::ChatCompletions, r#""max_tokens":1e999"#, Some(u32::MAX)),
        (Api::ChatCompletions, r#""max_output_tokens":5"#, None),
        (Api::Responses, r#""max_output_tokens":5"#, Some(5)),
        (Api::Completions, r#""max_completion_tokens":2,"max_tokens":1"#, Some(1)),
        (Api::Messages, r#""max_tokens":7"#, Some(7)),
        (Api::Generate, r#""sampling_params":{"max_tokens":8}"#, Some(8)),
        (Api::Generate, r#""max_tokens":8"#, None),
        (Api::Embeddings, r#""max_tokens":8"#, None),
    ] {
        let body = format!(r#"{{"messages":[{{}}],"prompt":"p","input":"i","token_ids":[1],{fields}}}"#);
        assert_eq!(read(api, &body).max_output_tokens, limit, "{fields}");
    }
}

#[test]
fn prompts_of_completions_are_text_or_token_ids() {
    assert_prompt(
        Api::Completions,
        r#"{"prompt":"one\n\ud83d\ude00\ud800\/"}"#,
        &["one\n😀\u{fffd}/".as_bytes()],
    );
    assert_prompt(
        Api::Completions,
        r#"{"prompt":["one","","t\u0077o"]}"#,
        &[b"one", b"", b"two"],
    );
    assert_prompt(
        Api::Completions,
        r#"{"prompt":[1 , 256,4294967295]}"#,
        &[&[1, 0, 0, 0, 0, 1, 0, 0, 255, 255, 255, 255]],
    );
    assert_prompt(
        Api::Completions,
        r#"{"prompt":[1.0,2e0]}"#,
        &[&[1, 0, 0, 0, 2, 0, 0, 0]],
    );
    assert_prompt(Api::Generate, r#"{"token_ids":[7]}"#, &[&[7, 0, 0, 0]]);
    assert_prompt(Api::Embeddings, r#"{"input":[7]}"#, &[&[7, 0, 0, 0]]);
    assert_prompt(Api::Embeddings, r#"{"input":["a", "b"]}"#, &[br#"["a", "b"]"#]);
    assert_prompt(Api::Images, r#"{"prompt":"a"}"#, &[]);
}

#[test]
fn the_prompt_of_a_chat_is_its_tools_then_role_and_text_of_each_message() {
    assert_prompt(
        Api::ChatCompletions,
        r#"{"messages":[{"content":"be\tkind","role":"system"},{"role":"user","content":[{"type":"text","text":"a"},
            {"type":"text","text":"b"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}],"tools":[{"x": 1}]}"#,
        &[b"[{\"x\": 1}]systembe\tkinduserabassistant"],
    );
    assert_prompt(
        Api::ChatCompletions,
        r#"{"messages":[{"role":"user"}],"tools":[]}"#,
        &[b"user"],
    );
}

#[test]
fn what_is_seen_or_heard_is_a_run_of_one_token_at_a_boundary() {
    let body = r#"{"messages":[{"role":"user","content":[{"text":"a"},{"type":"image_url","image_url":{"url":"http:\/\/x"}},
        {"input_audio":{"data":"0123456","format":"wav"}},{"video_url":{"url":"v"}},{"image_url":"http://x"}]}]}"#;

    let mut prompt = b"usera\0\0\0".to_vec();
    prompt.extend(asset_token("http://x").repeat(225));
    prompt.extend(asset_token("0123456wav").repeat(3));
    prompt.extend(asset_token("v").repeat(4500));
    prompt.extend(asset_token("http://x").repeat(225));
    assert_prompt(Api::ChatCompletions, body, &[&prompt]);
}

#[test]
fn a_small_body_cannot_stand_for_endless_tokens() {
    let videos = vec![r#"{"video_url":"v"}"#; 100_000].join(",");
    let body = format!(r#"{{"messages":[{{"content":[{videos}]}}]}}"#);

    let (tokens, _) = read(Api::ChatCompletions, &body).hash_prompt(hasher());

    let whole = (1 << 20) / 4500;
    assert_eq!(tokens, whole * 4500 + (100_000 - whole));
}

#[test]
fn the_prompt_of_a_response_is_what_requests_have_in_common_first() {
    assert_prompt(
        Api::Responses,
        r#"{"input":[{"role":"user"}],"tools":[1],"instructions":"be \"kind\""}"#,
        &[br#"[{"instructions":"be \"kind\""},{"tools":[1]},{"input":[{"role":"user"}]}]"#],
    );
    assert_prompt(Api::Responses, r#"{"input":"hi"}"#, &[br#"[{"input":"hi"}]"#]);
    assert_prompt(
        Api::Conversations,
        r#"{"items":[{"role": "user"}]}"#,
        &[br#"[{"role": "user"}]"#],
    );
}

#[test]
fn the_prompt_of_messages_is_tools_system_and_blocks() {
    let body = r#"{"max_tokens":1,"messages":[
        {"role":"user","content":"hi"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"tool_use","id":"t1","name":"ls","input":{"d": "/"}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"a b"}]},
            {"type":"tool_result","content":"c"},{"type":"text","text":"x-anthropic-billing-header"}]}],
        "system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"kind"}],"tools":[{"name":"ls"}]}"#;

    assert_prompt(
        Api::Messages,
        body,
        &[br#"[{"name":"ls"}]kinduserhiassistanthmt1ls{"d": "/"}usera bcx-anthropic-billing-header"#],
    );
    assert_eq!(read(Api::Messages, body).response, ResponseFormat::Anthropic);

    let mut image = b"user".to_vec();
    image.extend(asset_token("AAAA").repeat(225));
    assert_prompt(
        Api::Messages,
        r#"{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}"#,
        &[&image],
    );
}

#[test]
fn the_target_model_and_the_salt_tell_prompts_apart() {
    let body = r#"{"prompt":"p","cache_salt":"s"}"#;
    let parsed = read(Api::Completions, body);
    let blocks = |model, salt: &str| {
        parsed
            .hash_prompt(BlockHasher::new(model, salt, BlockLayout::default()))
            .1
    };

    assert_ne!(blocks("a", &parsed.cache_salt), blocks("b", &parsed.cache_salt));
    assert_ne!(blocks("a", &parsed.cache_salt), blocks("a", ""));
}

// --- invariants

/// Writes JSON with the given whitespace between tokens, its members rotated, and some characters escaped.
struct Printer {
    space: &'static str,
    rotate: usize,
    escape_every: usize,
    out: String,
}

impl Printer {
    fn print(&mut self, value: &Value) {
        match value {
            Value::Object(members) => {
                self.out.push('{');
                let mut members: Vec<_> = members.iter().collect();
                let middle = self.rotate % members.len().max(1);
                members.rotate_left(middle);
                for (index, (key, value)) in members.into_iter().enumerate() {
                    self.separate(index);
                    self.string(key);
                    self.out.push_str(self.space);
                    self.out.push(':');
                    self.out.push_str(self.space);
                    self.print(value);
                }
                self.out.push_str(self.space);
                self.out.push('}');
            }
            Value::Array(elements) => {
                self.out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    self.separate(index);
                    self.print(element);
                }
                self.out.push_str(self.space);
                self.out.push(']');
            }
            Value::String(text) => self.string(text),
            plain => self.out.push_str(&plain.to_string()),
        }
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.out.push(',');
        }
        self.out.push_str(self.space);
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for (index, character) in text.chars().enumerate() {
            if index % self.escape_every == 0 {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    self.out.push_str(&format!("\\u{unit:04X}"));
                }
            } else {
                let literal = Value::from(character.to_string()).to_string();
                self.out.push_str(&literal[1..literal.len() - 1]);
            }
        }
        self.out.push('"');
    }
}

fn texts() -> impl Strategy<Value = String> {
    proptest::string::string_regex("([a-c\"\\\\/\n\t{}:,äß水😀]|model){0,40}").unwrap()
}

fn chats() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        texts().prop_map(Value::from),
        Just(Value::Null),
        proptest::collection::vec(texts(), 0..4).prop_map(|texts| {
            let parts = texts.into_iter().map(|text| json!({"type": "text", "text": text}));
            Value::Array(parts.collect())
        }),
    ];
    let message = (texts(), content).prop_map(|(role, content)| json!({"role": role, "content": content}));
    (
        proptest::option::of(texts()),
        proptest::collection::vec(message, 1..5),
        proptest::option::of(any::<bool>()),
        proptest::option::of(any::<u32>()),
        texts(),
        proptest::collection::btree_map(
            texts(),
            prop_oneof![Just(json!(1e300)), Just(json!({"model": "x"}))],
            0..4,
        ),
    )
        .prop_map(|(model, messages, stream, max_tokens, salt, others)| {
            let mut body = json!({"messages": messages, "cache_salt": salt, "max_tokens": max_tokens});
            let members = body.as_object_mut().unwrap();
            members.extend(others.into_iter().map(|(key, value)| (format!("_{key}"), value)));
            members.extend(model.map(|model| ("model".to_owned(), model.into())));
            members.extend(stream.map(|stream| ("stream".to_owned(), stream.into())));
            body
        })
}

fn printed() -> impl Strategy<Value = (Value, String)> {
    let space = prop_oneof![Just(""), Just(" "), Just("\r\n\t ")];
    (chats(), space, 0_usize..8, 1_usize..9).prop_map(|(value, space, rotate, escape_every)| {
        let mut printer = Printer {
            space,
            rotate,
            escape_every,
            out: String::new(),
        };
        printer.print(&value);
        let body = format!("{space}{}{space}", printer.out);
        (value, body)
    })
}

/// The text of a chat, by way of a tree.
fn text_of(chat: &Value) -> String {
    let mut text = String::new();
    for message in chat["messages"].as_array().unwrap() {
        text.push_str(message["role"].as_str().unwrap());
        match &message["content"] {
            Value::String(content) => text.push_str(content),
            Value::Array(parts) => parts
                .iter()
                .for_each(|part| text.push_str(part["text"].as_str().unwrap())),
            _ => {}
        }
    }
    text
}

proptest! {
    #[test]
    fn reading_in_place_finds_what_a_tree_of_the_body_has((chat, body) in printed()) {
        let parsed = read(Api::ChatCompletions, &body);

        prop_assert_eq!(&parsed.model.as_ref().unwrap().name, chat["model"].as_str().unwrap_or_default());
        prop_assert_eq!(parsed.stream, chat["stream"] == true);
        prop_assert_eq!(parsed.max_output_tokens.map(u64::from), chat["max_tokens"].as_u64());
        prop_assert_eq!(&parsed.cache_salt, chat["cache_salt"].as_str().unwrap());
        prop_assert_eq!(parsed.hash_prompt(hasher()), hash_of(&[text_of(&chat).as_bytes()]));
    }

    #[test]
    fn a_splice_changes_the_model_and_keeps_all_other_bytes((mut chat, body) in printed(), name in texts()) {
        let model = read(Api::ChatCompletions, &body).model.unwrap();

        let pieces = splice_model(&Bytes::copy_from_slice(body.as_bytes()), &model.place, &name);

        chat["model"] = name.into();
        prop_assert_eq!(serde_json::from_slice::<Value>(&pieces.concat()).unwrap(), chat);
        prop_assert!(body.as_bytes().starts_with(&pieces[0]));
        prop_assert!(body.as_bytes().ends_with(&pieces[2]));
        let replaced = match model.place {
            ModelPlace::Value(literal) => literal.len(),
            ModelPlace::Absent { .. } => 0,
        };
        prop_assert_eq!(pieces[0].len() + replaced + pieces[2].len(), body.len());
    }

    #[test]
    fn every_body_gets_an_answer(
        (_, body) in printed(),
        hits in proptest::collection::vec((any::<proptest::sample::Index>(), prop_oneof![Just(b'"'), Just(b'{'), Just(b'['), Just(b'\\'), Just(b','), Just(b'0'), any::<u8>()]), 0..4),
        length in any::<proptest::sample::Index>(),
    ) {
        let mut body = body.into_bytes();
        for (at, byte) in hits {
            let at = at.index(body.len());
            body[at] = byte;
        }
        body.truncate(body.len() - length.index(body.len() + 1) / 2);

        for api in [Api::ChatCompletions, Api::Completions, Api::Embeddings, Api::Responses, Api::Conversations, Api::Images, Api::Messages, Api::Generate] {
            if let Ok(parsed) = parse(api, &body) {
                prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok());
                parsed.hash_prompt(hasher());
            }
        }
    }
}
