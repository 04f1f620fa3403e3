//! A request of a simulated run: what the workload yields, and what the cluster serves.

use std::fmt;
use std::sync::Arc;

/// One request, on its way into the cluster. Times are microseconds since the start of the run.
///
/// Policies never see it: the gateway makes a [`crate::engine::request::Request`] of it, in which the true length of the
/// answer does not appear.
#[derive(Clone, Debug)]
pub struct SimRequest {
    /// What it is called in reports and traces.
    pub name: RequestName,
    /// Who sends it.
    pub client: Arc<Client>,
    /// When it reaches the gateway.
    pub arrival_us: u64,
    /// Tokens of the prompt, the shared prefix and earlier rounds included.
    pub prompt_tokens: u32,
    /// Tokens that the answer would have if nothing cut it short. Known to the instance alone.
    pub output_tokens: u32,
    /// The client's limit on the tokens of the answer; `None` if it set none.
    pub max_output_tokens: Option<u32>,
    /// When the client gives up.
    pub deadline_us: Option<u64>,
    /// Latency that the client hopes for, for policies that order by deadline.
    pub slo_target_us: Option<u64>,
    /// The conversation that it is a part of.
    pub session: Option<SessionRound>,
    /// What the prompt is made of.
    pub media: Media,
    /// The share of the answer that is reasoning, 0 to 1.
    pub reason_ratio: f64,
    /// The names of the full KV blocks of prompt and answer, from [`super::instance::BlockChain`].
    pub chain: Arc<[u64]>,
}

/// Where the requests of a run come from.
pub trait Arrivals: fmt::Debug {
    /// When the earliest request arrives that was not taken yet. Never earlier than before.
    fn next_arrival(&self) -> Option<u64>;

    /// Takes that request.
    fn take(&mut self) -> Option<SimRequest>;

    /// A request that was taken is over. Its conversation may go on: what follows arrives at `at_us` or later.
    fn ended(&mut self, request: &SimRequest, at_us: u64, how: Ended);
}

/// How a request was over, for its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The answer is complete.
    Completed {
        /// Its tokens. Fewer than were to come, if the context length cut it short.
        output_tokens: u32,
    },
    /// The client gave up.
    TimedOut,
    /// It was refused, dropped or cut off.
    Lost,
}

/// What all requests of one client have in common. Empty texts are for what was not said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Client {
    /// The client.
    pub id: Box<str>,
    /// Whose share of the pool its requests count against.
    pub tenant: Arc<str>,
    /// The SLO class, which decides the priority.
    pub slo_class: Arc<str>,
    /// The model that it asks for.
    pub model: Arc<str>,
    /// The LoRA adapter that it asks for.
    pub adapter: Arc<str>,
    /// The group with which it shares the start of its prompts.
    pub prefix_group: Box<str>,
    /// Tokens of that start.
    pub prefix_tokens: u32,
    /// It asks for a stream of events.
    pub streaming: bool,
}

/// A place in a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRound {
    /// The conversation.
    pub session: Arc<str>,
    /// The turn, from zero.
    pub round: u32,
    /// Tokens at the start of the prompt that are the conversation so far, any shared prefix included. Zero if earlier
    /// turns are not a part of the prompt.
    pub context_tokens: u32,
    /// How long it was from the answer of the turn before to this one, in microseconds. Zero for the first turn.
    pub think_us: u64,
}

/// Tokens of a prompt by what they stand for, the shared prefix and earlier rounds left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Media {
    /// Text.
    pub text: u32,
    /// Images.
    pub image: u32,
    /// Audio.
    pub audio: u32,
    /// Video.
    pub video: u32,
}

/// What a request is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestName {
    /// `request_<n>`: the n-th of those that were known beforehand.
    Numbered(u64),
    /// `request_<n>`, too: the one with this number in the trace that is replayed.
    Recorded(u64),
    /// Any other, such as a later turn of a conversation.
    Named(Box<str>),
}

impl RequestName {
    /// Its number in traces and results: the one that it had in the trace that is replayed, else its place in order of
    /// arrival.
    pub const fn number_at(&self, place: u64) -> u64 {
        match self {
            Self::Recorded(number) => *number,
            Self::Numbered(_) | Self::Named(_) => place,
        }
    }
}

impl fmt::Display for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numbered(number) | Self::Recorded(number) => write!(f, "request_{number}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}
