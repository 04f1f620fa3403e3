//! Between the streams and the engine.
//!
//! A stream submits what it learnt of a request and gets a [`Picker::Ticket`]: a future of the [`Verdict`]. A request
//! that was routed is held as a [`Routed`], which says how it goes on. Dropping either one gives back everything that
//! the request holds, so a stream that is cut off needs no clean-up of its own.

mod health;
mod live;

use std::future::Future;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

pub use live::{Driver, InFlight, Ticket};

use crate::engine::flow::fairness::Used;
use crate::engine::outcome::Outcome;
use crate::engine::prefix::BlockLayout;
use crate::engine::request::Request;
use crate::engine::scheduling::Decision;
use crate::engine::time::Timestamp;
use crate::engine::{Answered, Refused};

/// Answers requests. The live one is [`Driver`].
pub trait Picker: Clone + Send + Sync + Unpin + 'static {
    /// A request that was submitted. Dropping it before it is ready cancels the request.
    type Ticket: Future<Output = Verdict<Self::Routed>> + Unpin + Send;
    /// A request that was routed.
    type Routed: Routed;

    /// The time, by the clock that the engine is driven with.
    fn now(&self) -> Timestamp;

    /// How prompts are to be cut in blocks. `None` if nobody asks for the blocks.
    fn block_layout(&self) -> Option<BlockLayout>;

    /// Submits a request.
    fn submit(&self, request: Request) -> Self::Ticket;

    /// Cancels a request, and tells of it if it waited.
    fn withdraw(&self, ticket: Self::Ticket) -> Option<Withdrawn>;
}

/// A request that was cancelled while it waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdrawn {
    /// Its priority.
    pub priority: i32,
    /// How long it waited.
    pub waited: Duration,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Verdict<R> {
    /// It may go to the endpoints of the decision.
    Routed(R),
    /// It may not.
    Refused(Refused),
}

/// A request on its way. Dropping it means [`Outcome::Disconnected`].
pub trait Routed: Send {
    /// Where it goes, and why.
    fn decision(&self) -> &Decision;

    /// Its priority.
    fn priority(&self) -> i32;

    /// How long it waited, if requests wait at all.
    fn waited(&self) -> Option<Duration>;

    /// The head of an answer came. To be told if it says more than that the first endpoint of the decision serves the
    /// request.
    fn answered(&mut self, by: Option<SocketAddr>, how: Answered);

    /// The first bytes of the answer were seen.
    fn answer_began(&mut self);

    /// Ready once the request is to be cut off for a more urgent one, with the time after which its client may come again.
    /// Pending for ever for most.
    fn poll_cut_off(&mut self, cx: &mut Context<'_>) -> Poll<Duration>;

    /// The answer is over; `used` is what the model server counted.
    fn end(self, outcome: Outcome, used: Used);
}
