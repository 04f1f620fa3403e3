//! The tokens of a response: as the model server counted them, or else an estimate.
//!
//! The counts are at the end of a response, and Anthropic's streams tell half of them at the start. So the scanner
//! keeps the two ends, however the stream was cut on arrival, and reads them once, when it is over. A response that is
//! longer than both ends together is exact nevertheless: what was cut off at the front of the last part is found out by
//! reading that part as the end of an object.

use std::borrow::Cow;

use memchr::memmem;

use super::json::{self, Kind, Value};
use super::{ResponseFormat, content};
use crate::engine::prefix::hash::BYTES_PER_TOKEN;

/// Bytes at the start of a response that are kept.
const HEAD_BYTES: usize = 4 * 1024;

/// Bytes at the end of a response that are kept.
const TAIL_BYTES: usize = 16 * 1024;

/// Places that look like a count which are tried in a part whose start is missing.
const MAX_CANDIDATES: usize = 16;

/// The tokens of a request, as the model server counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached ones among them as far as the server counts so.
    pub prompt: u64,
    /// Tokens of the answer.
    pub completion: u64,
    /// Tokens of both: what the server says, else the sum.
    pub total: u64,
    /// Tokens of the prompt that were in the cache, if the server tells.
    pub cached: Option<u64>,
}

/// Who counted the tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageSource {
    /// Nobody did.
    #[default]
    Nobody,
    /// The model server.
    Server,
    /// The picker, which estimates where the model server does not tell: a client that streams without
    /// `include_usage` would pay for nothing otherwise.
    Estimate,
}

/// What a response told of tokens by the time it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    /// What the model server counted, if it told.
    pub usage: Option<Usage>,
    /// An estimate of the tokens of the answer.
    pub estimate: u64,
}

impl Tokens {
    /// The tokens of the request, and who counted them. Of a prompt that the server did not count there are
    /// `prompt_estimate`. What a server says before the end of its answer can be too little, and never too much.
    pub fn resolve(self, prompt_estimate: u64, is_complete: bool) -> (Usage, UsageSource) {
        match self.usage {
            Some(usage) if is_complete || usage.completion >= self.estimate => (usage, UsageSource::Server),
            Some(usage) => {
                let usage = Usage {
                    completion: self.estimate,
                    total: usage.prompt.saturating_add(self.estimate),
                    ..usage
                };
                (usage, UsageSource::Estimate)
            }
            None => {
                let usage = Usage {
                    prompt: prompt_estimate,
                    completion: self.estimate,
                    total: prompt_estimate.saturating_add(self.estimate),
                    cached: None,
                };
                (usage, UsageSource::Estimate)
            }
        }
    }
}

/// How a response is framed, which its content type tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON document.
    Json,
    /// Server-sent events.
    Events,
}

impl Framing {
    /// The framing that a `content-type` header tells; JSON without one.
    pub fn of(content_type: Option<&str>) -> Self {
        const EVENTS: &[u8] = b"text/event-stream";
        let is_events = content_type.is_some_and(|value| {
            value
                .as_bytes()
                .windows(EVENTS.len())
                .any(|window| window.eq_ignore_ascii_case(EVENTS))
        });
        if is_events { Self::Events } else { Self::Json }
    }
}

/// Finds the usage in a response that comes in chunks.
#[derive(Debug)]
pub struct UsageScanner {
    format: ResponseFormat,
    framing: Framing,
    head: Vec<u8>,
    /// Ends with the last [`TAIL_BYTES`] of what came after the head; up to as many older ones are before them.
    tail: Vec<u8>,
    /// Bytes of the response so far.
    seen: usize,
    events: EventCounter,
}

impl UsageScanner {
    /// Begins a response.
    pub fn new(format: ResponseFormat, framing: Framing) -> Self {
        Self {
            format,
            framing,
            head: Vec::new(),
            tail: Vec::new(),
            seen: 0,
            events: EventCounter::default(),
        }
    }

    /// Takes the next bytes of the response. Copies them at most, and looks at nothing but the starts of lines.
    pub fn push(&mut self, mut chunk: &[u8]) {
        if matches!(self.format, ResponseFormat::Opaque | ResponseFormat::Ignored) {
            return;
        }
        if self.framing == Framing::Events {
            self.events.push(chunk);
        }
        self.seen += chunk.len();
        let for_head = chunk.len().min(HEAD_BYTES - self.head.len());
        self.head.extend_from_slice(&chunk[..for_head]);
        chunk = &chunk[for_head..];

        if chunk.len() > TAIL_BYTES {
            self.tail.clear();
            chunk = &chunk[chunk.len() - TAIL_BYTES..];
        } else if self.tail.len() + chunk.len() > 2 * TAIL_BYTES {
            let surplus = self.tail.len() - TAIL_BYTES;
            self.tail.copy_within(surplus.., 0);
            self.tail.truncate(TAIL_BYTES);
        }
        self.tail.extend_from_slice(chunk);
    }

    /// What the response told by its end. Usage in a complete one is what counts, and spares the estimate.
    pub fn finish(self, is_complete: bool) -> Tokens {
        let tail = &self.tail[self.tail.len().saturating_sub(TAIL_BYTES)..];
        if self.seen == self.head.len() + tail.len() {
            let whole = match tail {
                [] => Cow::Borrowed(&*self.head),
                tail => Cow::Owned([&self.head, tail].concat()),
            };
            return self.finish_whole(&text_of(&whole), is_complete);
        }
        self.finish_ends(&text_of(&self.head), &text_of(tail), is_complete)
    }

    fn finish_whole(&self, whole: &str, is_complete: bool) -> Tokens {
        let mut counts = Counts::default();
        match self.framing {
            Framing::Json => counts.document(self.format, whole),
            Framing::Events => counts.events(self.format, whole),
        }
        counts.into_tokens(is_complete, || match self.framing {
            Framing::Json => content::tokens_of(whole),
            Framing::Events => self.events.count.saturating_sub(content::events_without(whole)),
        })
    }

    /// Of a response that was too long to be kept whole.
    fn finish_ends(&self, head: &str, tail: &str, is_complete: bool) -> Tokens {
        let mut counts = Counts::default();
        let (cut_event, events) = tail.split_once('\n').unwrap_or((tail, ""));
        match self.framing {
            Framing::Json => {
                counts.document(self.format, head);
                counts.end_of_document(self.format, tail);
            }
            Framing::Events => {
                counts.events(self.format, head);
                counts.end_of_document(self.format, cut_event);
                counts.events(self.format, events);
            }
        }
        counts.into_tokens(is_complete, || match self.framing {
            Framing::Json if content::is_text(head) => (self.seen / BYTES_PER_TOKEN) as u64,
            Framing::Json => 0,
            Framing::Events => {
                // An event that was cut in two is one of the many in the middle, which have content.
                let whole_events = head.rfind('\n').map_or("", |end| &head[..end]);
                let without = content::events_without(whole_events) + content::events_without(events);
                self.events.count.saturating_sub(without)
            }
        })
    }
}

/// Counts the events with data in a stream, however it is cut. Takes about as long as to find the ends of lines.
#[derive(Debug, Default)]
struct EventCounter {
    count: u64,
    /// How many bytes of [`DATA`] the line began with so far. More than it has once nothing more is to be found.
    matched: usize,
}

/// How a line begins that has the data of an event.
const DATA: &[u8] = b"data:";

impl EventCounter {
    fn push(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        loop {
            if self.matched < DATA.len() {
                let wanted = &DATA[self.matched..];
                let length = wanted.len().min(rest.len());
                if rest[..length] != wanted[..length] {
                    self.matched = usize::MAX;
                } else if length < wanted.len() {
                    self.matched += length;
                    return;
                } else {
                    self.count += 1;
                    self.matched = usize::MAX;
                    rest = &rest[length..];
                }
            }
            let Some(end) = memchr::memchr(b'\n', rest) else { return };
            self.matched = 0;
            rest = &rest[end + 1..];
        }
    }
}

/// What was told so far. What is told later adds to it, and overrides it.
#[derive(Debug, Default)]
struct Counts {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    cached: Option<u64>,
}

impl Counts {
    /// Reads all events of which the end is there.
    fn events(&mut self, format: ResponseFormat, text: &str) {
        let usage = memmem::Finder::new("\"usage\"");
        for line in text.lines() {
            let data = line.strip_prefix("data:").unwrap_or_default();
            if usage.find(data.as_bytes()).is_some() {
                self.document(format, data);
            }
        }
    }

    /// Reads a document from its start. Should the end be missing, what came before counts.
    fn document(&mut self, format: ResponseFormat, text: &str) {
        let carrier = match format {
            ResponseFormat::Anthropic => "message",
            _ => "response",
        };
        let mut usage = None;
        let mut carried = None;
        // Where a document ends early, the members before that were seen, which is all there is to have.
        let _ = json::for_each_member(text, |json::Member { key, value, .. }| {
            if key.is("usage") {
                usage = Some(value);
            } else if key.is(carrier) {
                carried = Some(value);
            }
        });
        let in_carrier = carried.and_then(|carrier| {
            let [usage] = carrier.members(["usage"]);
            usage
        });
        if let Some(usage) = usage.filter(|usage| usage.kind() == Kind::Object).or(in_carrier) {
            self.merge(usage);
        }
    }

    /// Reads a document, or the data of an event, of which the start is missing. It ends where the object ends to
    /// which the usage belongs, or where the one ends that holds that object.
    fn end_of_document(&mut self, format: ResponseFormat, text: &str) {
        let places = memmem::rfind_iter(text.as_bytes(), b"\"usage\"");
        for at in places.take(MAX_CANDIDATES) {
            // In a text, a quote has a backslash before it.
            if text[..at].ends_with('\\') {
                continue;
            }
            for opening in ["{", "{\"response\":{"] {
                let document = [opening, &text[at..]].concat();
                if serde_json::from_str::<serde::de::IgnoredAny>(&document).is_ok() {
                    return self.document(format, &document);
                }
            }
        }
    }

    fn merge(&mut self, usage: Value<'_>) {
        let [prompt, input, completion, output, total, cache_read, details @ ..] = usage.members([
            "prompt_tokens",
            "input_tokens",
            "completion_tokens",
            "output_tokens",
            "total_tokens",
            "cache_read_input_tokens",
            "prompt_tokens_details",
            "input_tokens_details",
        ]);
        let [prompt, input, completion, output, total, cache_read] =
            [prompt, input, completion, output, total, cache_read]
                .map(|count| count.and_then(Value::as_lenient_whole_number));
        let cached = details.into_iter().flatten().find_map(|details| {
            let [cached] = details.members(["cached_tokens"]);
            cached.and_then(Value::as_lenient_whole_number)
        });

        let (prompt, completion) = (prompt.or(input), completion.or(output));
        let is_whole = prompt.is_some() == completion.is_some();
        self.total = total.filter(|_| is_whole);
        self.prompt = later(self.prompt, prompt);
        self.completion = later(self.completion, completion);
        self.cached = cached.or(cache_read).or(self.cached);
    }

    fn into_tokens(self, is_complete: bool, estimate: impl FnOnce() -> u64) -> Tokens {
        let usage = self.into_usage();
        let estimate = if usage.is_some() && is_complete { 0 } else { estimate() };
        Tokens { usage, estimate }
    }

    fn into_usage(self) -> Option<Usage> {
        self.prompt.or(self.completion).or(self.total)?;
        let (prompt, completion) = (self.prompt.unwrap_or(0), self.completion.unwrap_or(0));
        Some(Usage {
            prompt,
            completion,
            total: self.total.unwrap_or(prompt.saturating_add(completion)),
            cached: self.cached,
        })
    }
}

/// The bytes as text. What is no UTF-8 becomes U+FFFD.
fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    // A check of the whole is several times as quick as a search for what is wrong.
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
}

/// A later count overrides an earlier one unless it is zero.
fn later(earlier: Option<u64>, later: Option<u64>) -> Option<u64> {
    match (earlier, later) {
        (Some(earlier), Some(0) | None) => Some(earlier),
        (_, later) => later,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OPENAI: ResponseFormat = ResponseFormat::OpenAi;
    const ANTHROPIC: ResponseFormat = ResponseFormat::Anthropic;

    fn scanned<'a>(
        format: ResponseFormat,
        framing: Framing,
        chunks: impl IntoIterator<Item = &'a [u8]>,
    ) -> Option<Usage> {
        all_of(format, framing, chunks, true).usage
    }

    fn all_of<'a>(
        format: ResponseFormat,
        framing: Framing,
        chunks: impl IntoIterator<Item = &'a [u8]>,
        is_complete: bool,
    ) -> Tokens {
        let mut scanner = UsageScanner::new(format, framing);
        chunks.into_iter().for_each(|chunk| scanner.push(chunk));
        scanner.finish(is_complete)
    }

    fn json(format: ResponseFormat, response: &str) -> Option<Usage> {
        scanned(format, Framing::Json, [response.as_bytes()])
    }

    fn events(format: ResponseFormat, response: &str) -> Option<Usage> {
        scanned(format, Framing::Events, [response.as_bytes()])
    }

    fn usage(prompt: u64, completion: u64, cached: impl Into<Option<u64>>) -> Option<Usage> {
        Some(Usage {
            prompt,
            completion,
            total: prompt + completion,
            cached: cached.into(),
        })
    }

    #[test]
    fn a_json_response_tells_its_usage_under_either_name() {
        for (response, found) in [
            (
                r#"{"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":2}}}"#,
                usage(3, 4, 2),
            ),
            (
                r#"{"usage":{"input_tokens":3,"output_tokens":4,"input_tokens_details":{"cached_tokens":0}}}"#,
                usage(3, 4, 0),
            ),
            (
                r#"{"usage":{"prompt_tokens":"3","completion_tokens":"4"}}"#,
                usage(3, 4, None),
            ),
            (
                r#"{"usage":{"prompt_tokens":3,"total_tokens":3,"prompt_tokens_details":null}}"#,
                usage(3, 0, None),
            ),
            (r#"{"usage":null}"#, None),
            (r#"{"usage":{}}"#, None),
            (r#"{"usage":5}"#, None),
            (r#"{"error":"none"}"#, None),
            ("not json", None),
            ("", None),
        ] {
            assert_eq!(json(OPENAI, response), found, "{response}");
        }
    }

    /// A stream of chat chunks with a role, `words` words, and a reason of the end.
    fn chat_stream(words: usize, usage: &str) -> String {
        let chunk = |delta: &str| format!("data: {{\"id\":\"c\",\"choices\":[{{\"delta\":{delta}}}]}}\n\n");
        let role = chunk(r#"{"role":"assistant","content":""}"#);
        let words = chunk(r#"{"content":" wörd"}"#).repeat(words);
        let end = chunk("{}");
        format!("{role}{words}{end}{usage}data: [DONE]\n\n")
    }

    fn tokens(framing: Framing, response: &str, is_complete: bool) -> Tokens {
        let mut scanner = UsageScanner::new(OPENAI, framing);
        scanner.push(response.as_bytes());
        scanner.finish(is_complete)
    }

    #[test]
    fn without_usage_the_chunks_with_content_are_counted_however_many_there_are() {
        for words in [0, 1, 7, 60, 400, 5000] {
            let found = tokens(Framing::Events, &chat_stream(words, ""), true);

            assert_eq!((found.usage, found.estimate), (None, words as u64));
            assert_eq!(
                found.resolve(12, true),
                (usage(12, words as u64, None).unwrap(), UsageSource::Estimate)
            );
        }
    }

    #[test]
    fn usage_corrects_the_estimate_and_spares_it() {
        let last = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":250}}\n\n";

        for words in [7, 400] {
            let found = tokens(Framing::Events, &chat_stream(words, last), true);

            assert_eq!(found.estimate, 0);
            assert_eq!(
                found.resolve(12, true),
                (usage(3, 250, None).unwrap(), UsageSource::Server)
            );
        }
    }

    #[test]
    fn a_stream_that_is_cut_off_counts_as_far_as_it_came() {
        let stream = chat_stream(500, "");
        let cut = tokens(Framing::Events, &stream[..stream.len() / 2], false);
        assert!((240..=260).contains(&cut.estimate), "{cut:?}");

        // What Anthropic says at the start is too little by then.
        let start = r#"{"type":"message_start","message":{"usage":{"input_tokens":9,"output_tokens":1}}}"#;
        let word = "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n";
        let mut scanner = UsageScanner::new(ANTHROPIC, Framing::Events);
        scanner.push(format!("data: {start}\n\n{}", word.repeat(30)).as_bytes());
        let (found, source) = scanner.finish(false).resolve(12, false);
        assert_eq!((found.prompt, found.completion, source), (9, 30, UsageSource::Estimate));
    }

    #[test]
    fn a_document_without_usage_is_estimated_by_its_bytes() {
        let answer = |bytes| format!(r#"{{"choices":[{{"message":{{"content":"{}"}}}}]}}"#, "x".repeat(bytes));

        assert_eq!(tokens(Framing::Json, &answer(400), true).estimate, 100);
        assert_eq!(
            tokens(Framing::Json, r#"{"data":[{"embedding":[1,2]}]}"#, true).estimate,
            0
        );
        let long = tokens(Framing::Json, &answer(400_000), true).estimate;
        assert!((100_000..100_100).contains(&long), "{long}");
        let vectors = format!(r#"{{"data":[{{"embedding":[{}1]}}]}}"#, "0.5,".repeat(50_000));
        assert_eq!(tokens(Framing::Json, &vectors, true).estimate, 0);
    }

    #[test]
    fn what_the_server_says_of_the_total_counts() {
        let found = json(
            OPENAI,
            r#"{"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":9}}"#,
        );

        assert_eq!(found.unwrap().total, 9);
    }

    #[test]
    fn in_a_stream_the_last_usage_counts() {
        let stream = "data: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1,\"total_tokens\":4}}\r\n\r\n\
            data: {\"usage\":null}\n\ndata:{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2,\"total_tokens\":5}}\n\n\
            : \"usage\"\nevent: usage\ndata: {\"choices\":[],\"usage\":null}\n\ndata: [DONE]\r\n\n";

        assert_eq!(events(OPENAI, stream), usage(3, 2, None));
        assert_eq!(events(OPENAI, "data: {\"usage\":null}\n\ndata: [DONE]\n\n"), None);
    }

    #[test]
    fn a_completed_response_carries_its_usage_within() {
        let stream = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n\
            event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"text\":\"x\"}],\
            \"usage\":{\"input_tokens\":5,\"output_tokens\":6,\"total_tokens\":11}}}\n\n";

        assert_eq!(events(OPENAI, stream), usage(5, 6, None));
    }

    #[test]
    fn anthropic_tells_its_usage_in_halves() {
        let stream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9,\
            \"cache_read_input_tokens\":4,\"output_tokens\":1}}}\n\n\
            event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\n";
        let whole = r#"{"content":[],"usage":{"input_tokens":9,"output_tokens":20,"cache_read_input_tokens":4}}"#;

        assert_eq!(events(ANTHROPIC, stream), usage(9, 20, 4));
        assert_eq!(json(ANTHROPIC, whole), usage(9, 20, 4));
    }

    #[test]
    fn anthropic_streams_of_any_length_keep_both_halves() {
        let mut stream =
            String::from("data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":9}}}\n\n");
        stream.push_str(&"data: {\"delta\":{\"text\":\"word\"}}\n\n".repeat(5000));
        stream.push_str("data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\n");

        assert_eq!(events(ANTHROPIC, &stream), usage(9, 20, None));
    }

    #[test]
    fn what_the_model_wrote_is_no_usage() {
        let pad = "x".repeat(HEAD_BYTES + 2 * TAIL_BYTES);
        let text = r#"\"usage\":{\"prompt_tokens\":1} \\\"usage"#;
        let input = r#"{"usage":{"input_tokens":1,"output_tokens":1}}"#;
        for pad in ["", &pad] {
            assert_eq!(json(OPENAI, &format!(r#"{{"a":"{pad}","text":"{text}"}}"#)), None);
            assert_eq!(
                json(
                    ANTHROPIC,
                    &format!(r#"{{"a":"{pad}","content":[{{"input":{input}}}]}}"#)
                ),
                None
            );
            assert_eq!(
                json(
                    ANTHROPIC,
                    &format!(
                        r#"{{"a":"{pad}","usage":{{"input_tokens":3,"output_tokens":4}},"content":[{{"input":{input}}}]}}"#
                    )
                ),
                usage(3, 4, None)
            );
            assert_eq!(json(OPENAI, &format!(r#"{{"a":"{pad}","kind":"usage","b":1}}"#)), None);
        }
    }

    #[test]
    fn usage_is_found_at_either_end_of_a_long_response() {
        let pad = "x".repeat(300_000);
        let counts = r#""usage":{"prompt_tokens":3,"completion_tokens":4}"#;

        assert_eq!(
            json(OPENAI, &format!(r#"{{"text":"{pad}",{counts},"x":null}}"#)),
            usage(3, 4, None)
        );
        assert_eq!(
            json(OPENAI, &format!(r#"{{{counts},"text":"{pad}"}}"#)),
            usage(3, 4, None)
        );
        assert_eq!(
            events(
                OPENAI,
                &format!("data: {{\"response\":{{\"text\":\"{pad}\",{counts}}}}}\n\n")
            ),
            usage(3, 4, None)
        );
        assert_eq!(json(OPENAI, &format!(r#"{{"a":"{pad}",{counts},"b":"{pad}"}}"#)), None);
    }

    #[test]
    fn a_response_that_broke_off_tells_nothing_it_did_not_finish() {
        assert_eq!(json(OPENAI, r#"{"usage":{"prompt_tokens":3"#), None);
        assert_eq!(events(OPENAI, "data: {\"usage\":{\"prompt_tokens\":3,\"comp"), None);
        assert_eq!(
            json(
                OPENAI,
                r#"{"usage":{"prompt_tokens":3,"completion_tokens":4},"text":"ab"#
            ),
            usage(3, 4, None)
        );
    }

    #[test]
    fn responses_without_usage_are_not_kept() {
        let mut scanner = UsageScanner::new(ResponseFormat::Opaque, Framing::Json);

        scanner.push(br#"{"usage":{"prompt_tokens":3}}"#);

        assert!(scanner.head.is_empty());
        assert_eq!(scanner.finish(false), Tokens::default());
    }

    #[test]
    fn no_more_than_the_ends_of_a_response_is_kept() {
        let mut scanner = UsageScanner::new(OPENAI, Framing::Json);

        for size in (0..3000).chain([1 << 20, 100, TAIL_BYTES, TAIL_BYTES + 1]) {
            scanner.push(&vec![b'x'; size]);
            assert!(scanner.head.len() <= HEAD_BYTES && scanner.tail.len() <= 2 * TAIL_BYTES);
        }
    }

    #[test]
    fn the_content_type_tells_the_framing() {
        assert_eq!(Framing::of(Some("Text/Event-Stream; charset=utf-8")), Framing::Events);
        assert_eq!(Framing::of(Some("application/json")), Framing::Json);
        assert_eq!(Framing::of(None), Framing::Json);
    }

    fn responses() -> impl Strategy<Value = (ResponseFormat, Framing, String)> {
        let line = prop_oneof![
            4 => "[a-z水]{0,60}".prop_map(|text| format!("data: {{\"text\":\"{text}\",\"usage\":null}}\n\n")),
            1 => (0_u32..9, 0_u32..9).prop_map(|(a, b)| {
                format!("data: {{\"usage\":{{\"prompt_tokens\":{a},\"output_tokens\":\"{b}\"}}}}\n\n")
            }),
            1 => (0_u32..9).prop_map(|a| format!("data: {{\"message\":{{\"usage\":{{\"input_tokens\":{a}}}}}}}\n\n")),
            1 => (0_usize..30_000, 0_u32..9).prop_map(|(pad, a)| {
                let pad = "\\\"usage\\\":".repeat(pad / 10);
                format!("data: {{\"response\":{{\"x\":\"{pad}\",\"usage\":{{\"input_tokens\":{a}}}}}}}\n\n")
            }),
        ];
        let format = prop_oneof![Just(OPENAI), Just(ANTHROPIC)];
        let stream = (format, proptest::collection::vec(line, 0..60))
            .prop_map(|(format, lines)| (format, Framing::Events, lines.concat()));
        let document = (0_usize..30_000, 0_usize..30_000, 0_u32..9).prop_map(|(before, after, a)| {
            let (before, after) = ("x".repeat(before), "y".repeat(after));
            let document = format!(r#"{{"a":"{before}","usage":{{"prompt_tokens":{a}}},"b":"{after}"}}"#);
            (OPENAI, Framing::Json, document)
        });
        prop_oneof![stream, document]
    }

    proptest! {
        #[test]
        fn where_a_response_is_cut_does_not_show(
            (format, framing, response) in responses(),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..200),
        ) {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(response.len() + 1)).collect();
            cuts.extend([0, response.len()]);
            cuts.sort_unstable();

            let chunks = cuts.windows(2).map(|pair| &response.as_bytes()[pair[0]..pair[1]]);

            let whole = all_of(format, framing, [response.as_bytes()], false);
            prop_assert_eq!(all_of(format, framing, chunks, false), whole);
            let bytes = response.as_bytes().chunks(1);
            prop_assert_eq!(all_of(format, framing, bytes, false), whole);
        }
    }
}
