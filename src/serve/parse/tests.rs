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
    const PROMPT: &str = "a non-empty string, or an array of strings, of token ids or of arrays of token ids";
    let completions = (
        Api::Completions,
        "invalid completions request: must have prompt field",
        PROMPT,
    );
    let embeddings = (
        Api::Embeddings,
        "invalid embeddings request: must have input field",
        PROMPT,
    );
    let chat = (
        Api::ChatCompletions,
        "invalid chat completions request: must have valid messages field",
        "a non-empty array",
    );
    let responses = (
        Api::Responses,
        "invalid responses request: must have input field",
        "a string or an array",
    );
    let conversations = (
        Api::Conversations,
        "invalid conversations request: must have items field",
        "a non-empty array",
    );
    let images = (
        Api::Images,
        "invalid images generations request: must have prompt field",
        "a non-empty string",
    );
    let generate = (
        Api::Generate,
        "invalid generate request: must have non-empty token_ids field",
        "a non-empty array of token ids",
    );
    let messages = (
        Api::Messages,
        "invalid messages request: must have at least one message",
        "a non-empty array of messages",
    );
    for ((api, rule, expected), body, found) in [
        (completions, "{}", "found no `prompt`"),
        (
            completions,
            r#"{"model":"m", "prompt": 5}"#,
            "found a number at byte 24 as `prompt`",
        ),
        (completions, r#"{"prompt":null}"#, "found null at byte 10 as `prompt`"),
        (
            completions,
            r#"{"prompt":""}"#,
            "found an empty string at byte 10 as `prompt`",
        ),
        (
            completions,
            r#"{"prompt":[ ]}"#,
            "found an empty array at byte 10 as `prompt`",
        ),
        (
            completions,
            r#"{"prompt":{}}"#,
            "found an object at byte 10 as `prompt`",
        ),
        (
            completions,
            r#"{"prompt":null,"prompt_embeds":null}"#,
            "found null at byte 10 as `prompt`",
        ),
        (embeddings, r#"{"input":true}"#, "found a boolean at byte 9 as `input`"),
        (embeddings, r#"{"messages":null}"#, "found no `input`"),
        (
            embeddings,
            r#"{"messages":"hi"}"#,
            "found a string at byte 12 as `messages`",
        ),
        (chat, "{}", "found no `messages`"),
        (
            chat,
            r#"{"messages":[]}"#,
            "found an empty array at byte 12 as `messages`",
        ),
        (chat, r#"{"messages":"hi"}"#, "found a string at byte 12 as `messages`"),
        (responses, "{}", "found no `input`"),
        (responses, r#"{"input":null}"#, "found null at byte 9 as `input`"),
        (responses, r#"{"input":7}"#, "found a number at byte 9 as `input`"),
        (conversations, "{}", "found no `items`"),
        (
            images,
            r#"{"prompt":[]}"#,
            "found an empty array at byte 10 as `prompt`",
        ),
        (generate, "{}", "found no `token_ids`"),
        (
            generate,
            r#"{"token_ids":[]}"#,
            "found an empty array at byte 13 as `token_ids`",
        ),
        (messages, "{}", "found no `messages`"),
        (
            messages,
            r#"{"messages":[]}"#,
            "found an empty array at byte 12 as `messages`",
        ),
    ] {
        let expected = if found.ends_with("`messages`") && rule.contains("embeddings") {
            "a non-empty array"
        } else {
            expected
        };
        assert_eq!(
            refused(api, body),
            format!("{rule} ({found}, expected {expected})"),
            "{body}"
        );
    }
    assert_eq!(
        refused(Api::Messages, r#"{"messages":"hi"}"#),
        "error parsing messages request: found a string at byte 12 as `messages`, expected a non-empty array of messages"
    );
}

#[test]
fn a_refusal_repeats_no_more_than_a_few_characters_of_the_body() {
    let long = "9".repeat(100_000);

    for (api, body) in [
        (Api::Completions, format!("\"{long}\"")),
        (Api::Completions, format!("{{\"prompt\":{long}}}")),
        (Api::Generate, format!("{{\"token_ids\":\"{long}\"}}")),
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
    assert!(refused(Api::Completions, "{\"x\":".repeat(deep)).contains("EOF while parsing"));
    for (api, body) in [
        (Api::Completions, format!(r#"{{"prompt":{nested}}}"#)),
        (
            Api::ChatCompletions,
            format!(r#"{{"messages":[{{"content":{nested}}}]}}"#),
        ),
        (Api::Messages, format!(r#"{{"messages":[{{"content":{nested}}}]}}"#)),
    ] {
        assert!(read(api, &body).hash_prompt(hasher()).0 > 1_000_000 / 4);
    }
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

/// The APIs whose bodies are looked into, each with the field that it requires.
const APIS: [(Api, &str); 8] = [
    (Api::ChatCompletions, r#""messages":[{"role":"user","content":"hi"}]"#),
    (Api::Completions, r#""prompt":"hi""#),
    (Api::Embeddings, r#""input":"hi""#),
    (Api::Responses, r#""input":"hi""#),
    (Api::Conversations, r#""items":[{"type":"message"}]"#),
    (Api::Images, r#""prompt":"hi""#),
    (Api::Messages, r#""messages":[{"role":"user","content":"hi"}]"#),
    (Api::Generate, r#""token_ids":[1]"#),
];

#[test]
fn what_servers_take_for_a_wish_for_a_stream_is_one() {
    for (value, is_stream) in [
        ("true", true),
        (r#""true""#, true),
        (r#"" True ""#, true),
        (r#""on""#, true),
        ("1", true),
        ("1.0", true),
        (r#""1""#, true),
        ("false", false),
        ("0", false),
        ("2", false),
        (r#""false""#, false),
        (r#""""#, false),
        ("null", false),
        ("[true]", false),
        (r#"{"true":true}"#, false),
    ] {
        for (api, required) in APIS {
            let body = format!(r#"{{{required},"stream":{value}}}"#);
            assert_eq!(read(api, &body).stream, is_stream, "{body}");
        }
    }
}

#[test]
fn a_model_that_is_no_name_is_empty_and_its_fault_is_kept() {
    for (api, required) in APIS {
        let body = format!(r#"{{"model":["m"],{required}}}"#);

        let model = read(api, &body).model.unwrap();

        assert_eq!(model.name, "");
        assert_eq!(
            model.fault.unwrap().to_string(),
            "found an array at byte 9 as `model`, expected a string"
        );
    }
}

#[test]
fn a_salt_that_is_no_string_still_tells_prompts_apart() {
    assert_eq!(
        read(Api::Completions, r#"{"prompt":"p","cache_salt":17}"#).cache_salt,
        "17"
    );
}

#[test]
fn fields_that_take_the_place_of_the_prompt_are_enough() {
    for (api, body) in [
        (Api::Completions, r#"{"prompt_embeds":"AAAA"}"#),
        (Api::Completions, r#"{"prompt":null,"prompt_embeds":["AAAA"]}"#),
        (Api::Responses, r#"{"previous_response_id":"r"}"#),
        (Api::Responses, r#"{"prompt":{"id":"p"}}"#),
        (Api::Responses, r#"{"conversation":"c","input":null}"#),
    ] {
        assert_prompt(api, body, &[]);
    }
    assert_prompt(
        Api::Embeddings,
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]}"#,
        &[b"userhi"],
    );
}

#[test]
fn what_is_not_known_in_a_prompt_counts_as_it_is_written() {
    for (api, body, prompt) in [
        (
            Api::ChatCompletions,
            r#"{"messages":[{"role":"user","content":["a","b"]}]}"#,
            "userab",
        ),
        (Api::ChatCompletions, r#"{"messages":["hi",null,7]}"#, "hi7"),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"role":1,"content":{"type":"text","text":"hi"}}]}"#,
            "1hi",
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"content":[{"text":["a"]},{"image_url":{"url":7}},{"input_audio":"x"}]}]}"#,
            r#"["a"]"#,
        ),
        (
            Api::ChatCompletions,
            r#"{"messages":[{"role":"tool","tool_call_id":"t","content":"42"}],"tools":{"a":1}}"#,
            r#"{"a":1}tool42"#,
        ),
        (Api::Completions, r#"{"prompt":{"text":"hi"}}"#, r#"{"text":"hi"}"#),
        (Api::Completions, r#"{"prompt":[1,"a"]}"#, r#"[1,"a"]"#),
        (Api::Completions, r#"{"prompt":[1,4294967296]}"#, "[1,4294967296]"),
        (Api::Completions, r#"{"prompt":[-1, 1.5]}"#, "[-1, 1.5]"),
        (Api::Embeddings, r#"{"input":[{"text":"a"}]}"#, r#"[{"text":"a"}]"#),
        (Api::Conversations, r#"{"items":["a"]}"#, r#"["a"]"#),
        (
            Api::Messages,
            r#"{"messages":["hi",{"role":1,"content":[{"text":5},"x",{"source":"s"}]}],"system":5}"#,
            "5hi15x",
        ),
        (Api::Generate, r#"{"token_ids":[1, -2]}"#, "[1, -2]"),
    ] {
        assert_prompt(api, body, &[prompt.as_bytes()]);
    }
}

#[test]
fn each_of_several_prompts_counts_by_itself() {
    assert_prompt(
        Api::Completions,
        r#"{"prompt":["a",[7],null,5]}"#,
        &[b"a", &7_u32.to_le_bytes(), b"", b"5"],
    );
    for (api, field) in [(Api::Completions, "prompt"), (Api::Embeddings, "input")] {
        let ids = |ids: &[u32]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>();
        assert_prompt(
            api,
            &format!(r#"{{"{field}":[[1,2],[300]]}}"#),
            &[&ids(&[1, 2]), &ids(&[300])],
        );
    }
}

#[test]
fn the_fields_that_scheduling_wants_are_read() {
    let body = r#" {"model":"a\u0062", "prompt" : "p", "stream":true,"max_tokens":16,"cache_salt":"s\n"}"#;

    let parsed = read(Api::Completions, body);

    let model = parsed.model.unwrap();
    assert_eq!(model.name, "ab");
    let place = ModelPlace::Value {
        literal: 10..19,
        superseded: Vec::new(),
    };
    assert_eq!((model.place, model.fault), (place, None));
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
        (Api::ChatCompletions, r#""max_tokens":"100""#, Some(100)),
        (Api::ChatCompletions, r#""max_tokens":" 100.0 ""#, Some(100)),
        (Api::ChatCompletions, r#""max_tokens":"inf""#, None),
        (Api::ChatCompletions, r#""max_tokens":"""#, None),
        (Api::ChatCompletions, r#""max_tokens":[1]"#, None),
        (
            Api::ChatCompletions,
            r#""max_tokens":"9","max_completion_tokens":{}"#,
            Some(9),
        ),
        (Api::Generate, r#""sampling_params":{"max_tokens":"8"}"#, Some(8)),
        (Api::Generate, r#""sampling_params":8"#, None),
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

/// Any JSON, with the words and keys in it that are looked for.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e9..1e9).prop_map(|number: f64| json!(number)),
        prop::sample::select(&["", "true", "1", "100", "-5", "inf", "text", "\\\""][..]).prop_map(Value::from),
        texts().prop_map(Value::from),
    ];
    let key = prop::sample::select(&["text", "content", "url", "data", "max_tokens", "type", "x"][..]);
    leaf.prop_recursive(3, 16, 3, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
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
            ModelPlace::Value { literal, .. } => literal.len(),
            ModelPlace::Absent { .. } => 0,
        };
        prop_assert_eq!(pieces[0].len() + replaced + pieces[2].len(), body.len());
    }

    #[test]
    fn what_only_informs_the_picker_never_refuses(
        values in proptest::collection::vec(any_value(), 12),
        inner in any_value(),
    ) {
        let informing = [
            "model", "stream", "cache_salt", "tools", "max_tokens", "max_completion_tokens", "max_output_tokens",
            "instructions", "system", "sampling_params", "prompt_embeds", "chat_template",
        ];
        let others: Vec<_> = informing.iter().zip(&values).map(|(key, value)| format!("{key:?}:{value}")).collect();
        let others = others.join(",");
        for (api, required) in APIS {
            let body = format!("{{{required},{others}}}");
            let parsed = parse(api, body.as_bytes());
            prop_assert!(parsed.is_ok(), "{}: {:?}", body, parsed);
            let parsed = parsed.unwrap();
            let (tokens, _) = parsed.hash_prompt(hasher());
            prop_assert!(tokens > 0 || api == Api::Images);
            prop_assert_eq!(parsed.model.unwrap().name.is_empty(), values[0].as_str().is_none_or(str::is_empty));
        }
        // The inside of what is required is no reason, either.
        for (api, body) in [
            (Api::ChatCompletions, json!({"messages": [inner]})),
            (Api::ChatCompletions, json!({"messages": [{"role": inner, "content": inner, "tool_calls": inner}]})),
            (Api::ChatCompletions, json!({"messages": [{"content": [inner]}]})),
            (Api::ChatCompletions, json!({"messages": [{"content": [{"type": inner, "text": inner, "image_url": inner,
                "video_url": {"url": inner}, "input_audio": inner}, {"input_audio": {"data": inner, "format": inner}}]}]})),
            (Api::Completions, json!({"prompt": [inner]})),
            (Api::Completions, json!({"prompt": [inner, inner]})),
            (Api::Embeddings, json!({"input": [inner]})),
            (Api::Embeddings, json!({"messages": [inner]})),
            (Api::Responses, json!({"input": [inner]})),
            (Api::Conversations, json!({"items": [inner]})),
            (Api::Images, json!({"prompt": [inner]})),
            (Api::Messages, json!({"messages": [inner], "system": [inner]})),
            (Api::Messages, json!({"messages": [{"role": inner, "content": [{"text": inner, "id": inner, "input": inner,
                "source": inner, "content": inner}, {"source": {"data": inner, "url": inner}}]}]})),
            (Api::Generate, json!({"token_ids": [inner], "sampling_params": {"max_tokens": inner}})),
        ] {
            let body = body.to_string();
            let parsed = parse(api, body.as_bytes());
            prop_assert!(parsed.is_ok(), "{}: {:?}", body, parsed);
            parsed.unwrap().hash_prompt(hasher());
        }
    }

    #[test]
    fn of_all_models_in_a_body_a_splice_leaves_one(
        before in proptest::collection::vec((prop_oneof![Just("model"), Just("mod\\u0065l"), Just("x")], any_value()), 0..6),
        after in proptest::collection::vec(any_value(), 0..3),
        space in prop_oneof![Just(""), Just(" "), Just("\r\n\t ")],
    ) {
        let mut members: Vec<_> = before.iter().map(|(key, value)| format!("\"{key}\"{space}:{space}{value}")).collect();
        members.push(format!("\"model\"{space}:{space}\"last\""));
        members.push("\"prompt\":\"p\"".to_owned());
        members.extend(after.iter().map(|value| format!("\"y\":{value}")));
        let body = format!("{{{space}{}{space}}}", members.join(&format!("{space},{space}")));
        let model = read(Api::Completions, &body).model.unwrap();
        prop_assert_eq!(&model.name, "last");
        let pieces = splice_model(&Bytes::copy_from_slice(body.as_bytes()), &model.place, "new");

        let spliced = pieces.concat();

        let mut models = 0;
        json::for_each_member(std::str::from_utf8(&spliced).unwrap(), |member| {
            models += usize::from(member.key.is("model"));
        })
        .unwrap();
        prop_assert_eq!(models, 1);
        let mut expected: Value = serde_json::from_str(&body).unwrap();
        expected["model"] = "new".into();
        prop_assert_eq!(serde_json::from_slice::<Value>(&spliced).unwrap(), expected);
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

        for (api, _) in APIS {
            if let Ok(parsed) = parse(api, &body) {
                prop_assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok());
                parsed.hash_prompt(hasher());
            }
        }
    }
}
