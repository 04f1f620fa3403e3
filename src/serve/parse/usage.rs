//! The token counts that a response ends with.
//!
//! The counts are at the end of a response, and Anthropic's streams tell half of them at the start. So the scanner
//! keeps the two ends, however the stream was cut on arrival, and reads them once, when it is over. A response that is
//! longer than both ends together is exact nevertheless: what was cut off at the front of the last part is found out by
//! reading that part as the end of an object.

use memchr::memmem;

use super::ResponseFormat;
use super::json::{self, Kind, Value};

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
        }
    }

    /// Takes the next bytes of the response. Copies them at most, and never looks at them.
    pub fn push(&mut self, mut chunk: &[u8]) {
        if matches!(self.format, ResponseFormat::Opaque | ResponseFormat::Ignored) {
            return;
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

    /// What the response told by its end, complete or not. `None` if it told nothing.
    pub fn finish(self) -> Option<Usage> {
        let tail = &self.tail[self.tail.len().saturating_sub(TAIL_BYTES)..];
        let mut counts = Counts::default();
        if self.seen == self.head.len() + tail.len() {
            let whole = [&self.head, tail].concat();
            match self.framing {
                Framing::Json => counts.document(self.format, &String::from_utf8_lossy(&whole)),
                Framing::Events => counts.events(self.format, &String::from_utf8_lossy(&whole)),
            }
            return counts.into_usage();
        }
        let head = String::from_utf8_lossy(&self.head);
        let tail = String::from_utf8_lossy(tail);
        match self.framing {
            Framing::Json => {
                counts.document(self.format, &head);
                counts.end_of_document(self.format, &tail);
            }
            Framing::Events => {
                counts.events(self.format, &head);
                let (cut_event, events) = tail.split_once('\n').unwrap_or((&tail, ""));
                counts.end_of_document(self.format, cut_event);
                counts.events(self.format, events);
            }
        }
        counts.into_usage()
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
        for line in text.lines() {
            let data = line.strip_prefix("data:").unwrap_or_default();
            if memmem::find(data.as_bytes(), b"\"usage\"").is_some() {
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
        let _ = json::for_each_member(text, |key, value| {
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
        let [prompt, input, completion, output, total] = usage
            .members([
                "prompt_tokens",
                "input_tokens",
                "completion_tokens",
                "output_tokens",
                "total_tokens",
            ])
            .map(|count| count.and_then(count_of));
        let details = usage.members(["prompt_tokens_details", "input_tokens_details"]);
        let cached = details.into_iter().flatten().find_map(|details| {
            let [cached] = details.members(["cached_tokens"]);
            cached.and_then(count_of)
        });
        let [cache_read] = usage.members(["cache_read_input_tokens"]);

        let (prompt, completion) = (prompt.or(input), completion.or(output));
        let is_whole = prompt.is_some() == completion.is_some();
        self.total = total.filter(|_| is_whole);
        self.prompt = later(self.prompt, prompt);
        self.completion = later(self.completion, completion);
        self.cached = cached.or(cache_read.and_then(count_of)).or(self.cached);
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

/// A later count overrides an earlier one unless it is zero.
fn later(earlier: Option<u64>, later: Option<u64>) -> Option<u64> {
    match (earlier, later) {
        (Some(earlier), Some(0) | None) => Some(earlier),
        (_, later) => later,
    }
}

/// A count, which some servers write as a string.
fn count_of(value: Value<'_>) -> Option<u64> {
    match value.as_string() {
        Some(digits) => json::whole_number(&digits.unescape()),
        None => value.as_whole_number(),
    }
}
