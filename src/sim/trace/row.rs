//! One request of a trace.

use std::fmt;

/// One request of a trace. Times are microseconds; those that are zero are not known. Empty texts are for what was not
/// said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Its number.
    pub request_id: u64,
    /// Who sent it.
    pub client_id: Box<str>,
    /// Whose share of the pool it counted against.
    pub tenant_id: Box<str>,
    /// Its SLO class.
    pub slo_class: Box<str>,
    /// The priority that was sent to the server; smaller is more urgent.
    pub vllm_priority: Option<i64>,
    /// The conversation that it is a part of.
    pub session_id: Box<str>,
    /// The turn, from zero.
    pub round_index: u32,
    /// The group with which it shares the start of its prompt.
    pub prefix_group: Box<str>,
    /// Tokens of that start.
    pub prefix_length: u32,
    /// It asked for a stream of events.
    pub streaming: bool,
    /// Tokens of its prompt, the shared start left out.
    pub input_tokens: u32,
    /// Tokens of its answer: in a trace of the simulator those that it had to give, even if it was cut short.
    pub output_tokens: u32,
    /// New tokens of text.
    pub text_tokens: u32,
    /// New tokens of images.
    pub image_tokens: u32,
    /// New tokens of audio.
    pub audio_tokens: u32,
    /// New tokens of video.
    pub video_tokens: u32,
    /// The share of the answer that is reasoning, 0 to 1.
    pub reason_ratio: f64,
    /// The model that it asked for.
    pub model: Box<str>,
    /// When its client would give up.
    pub deadline_us: u64,
    /// Latency that its client hoped for.
    pub slo_target_us: Option<u64>,
    /// Tokens of the prompt, as the server counted them.
    pub server_input_tokens: u32,
    /// When it was to be sent.
    pub arrival_time_us: u64,
    /// When it was sent.
    pub send_time_us: u64,
    /// When the first piece of the answer came.
    pub first_chunk_time_us: u64,
    /// When the last piece of the answer came.
    pub last_chunk_time_us: u64,
    /// Pieces of the answer. Zero in a trace of the simulator.
    pub num_chunks: u32,
    /// What became of it.
    pub status: Status,
    /// What the server said was wrong.
    pub error_message: Box<str>,
    /// Why the answer ended, as the server says it.
    pub finish_reason: Box<str>,
    /// What it was called on the way.
    pub x_request_id: Box<str>,
    /// The LoRA adapter that it asked for.
    pub adapter: Box<str>,
    /// How long it was from the answer of the turn before to this one.
    pub think_time_us: Option<u64>,
    /// Tokens at the start of the prompt that are the conversation so far, the shared start included. Not known to the
    /// reference.
    pub context_tokens: Option<u32>,
}

impl Row {
    /// Tokens of the whole prompt.
    pub fn prompt_tokens(&self) -> u32 {
        match (self.server_input_tokens, &*self.prefix_group) {
            (0, _) => self.input_tokens.saturating_add(self.prefix_length),
            (counted, "") => counted,
            _ => self.input_tokens.saturating_add(self.prefix_length),
        }
    }

    /// When it is sent in a replay.
    pub fn sent_us(&self) -> u64 {
        if self.send_time_us > 0 {
            self.send_time_us
        } else {
            self.arrival_time_us
        }
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// It was answered.
    Ok,
    /// Its client gave up.
    Timeout,
    /// The server refused it, or failed.
    Error,
    /// None of these.
    #[default]
    Incomplete,
}

impl Status {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Timeout, Self::Error, Self::Incomplete];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Timeout => "timeout",
            Self::Error => "error",
            Self::Incomplete => "incomplete",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
