//! What the engine can be told.
//!
//! Whatever a driver tells the engine is an [`Input`]: a plain value. [`Engine::apply`] is the one place where inputs come
//! in, for the live service, for the simulator and for a journal that is replayed, and it is there that they are recorded.
//! So a journal has all of them, and replays all of them.
//!
//! # To add an input
//!
//! 1. Add a variant here, with everything that the engine has to know: it has no other source, and no clock. An input may
//!    come at any time, also about a request or an endpoint that is not there any more; say what happens then.
//! 2. Add its arm to [`Engine::apply`], which the compiler asks for, and a private method beside the others.
//!
//! A journal records and replays it without more. Raise [`journal::FORMAT`](super::journal::FORMAT) when what older journals
//! hold would be read in another sense, not for a variant that they do not have.
//!
//! [`Engine::apply`]: super::Engine::apply

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::flow::fairness::Used;
use super::outcome::Outcome;
use super::pool::health::RequestFailure;
use super::pool::{PoolChange, SignalUpdate, Slot};
use super::request::{Request, RequestId};

/// Something that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// A request came.
    Submit {
        /// Its id, which is new.
        id: RequestId,
        /// What is known of it.
        request: Request,
    },
    /// The client of a request is gone. Whatever the request holds is given back at once, and no effect about it follows,
    /// also if one was decided already. Nothing happens if the request has ended.
    Cancel {
        /// Which one.
        id: RequestId,
    },
    /// A request that was routed got on. Nothing happens if it is not in flight.
    Progress {
        /// Which one.
        id: RequestId,
        /// How.
        progress: Progress,
    },
    /// The engine panicked, and the driver found that it will not answer a request: it ends as [`Refusal::Internal`]. Only
    /// for a request that was submitted, has no answer and has not been cancelled. Nothing happens if it
    /// [will be answered](super::Engine::will_answer).
    ///
    /// [`Refusal::Internal`]: super::outcome::Refusal::Internal
    Lost {
        /// Which one.
        id: RequestId,
    },
    /// The pool, or what is known of it, changed.
    PoolChanged {
        /// The changes, in order.
        changes: Vec<PoolChange>,
    },
    /// The endpoint in a slot reported how it is. The same as [`PoolChange::Report`], for a driver that knows the slots.
    /// Nothing happens if nobody is there.
    Reported {
        /// Where the endpoint is.
        slot: Slot,
        /// What it reported.
        update: SignalUpdate,
    },
    /// The cache of an endpoint changed. Blocks have the names that they have in the prompts of requests. Nothing happens
    /// if no plugin reads it or if nobody is in the slot. All blocks are forgotten when the endpoint leaves.
    ///
    /// Costs the same for each block, however many are known. Beyond
    /// [`IndexLimits::total_blocks`](super::prefix::IndexLimits) of all endpoints nothing more is taken in.
    CacheChanged {
        /// Where the endpoint is.
        slot: Slot,
        /// Blocks that it has from now on.
        stored: SmallVec<[u64; 2]>,
        /// Blocks that it does not have any more, or had before it stored the others.
        removed: SmallVec<[u64; 2]>,
    },
    /// These are all objectives. Requests that wait stay where they are.
    ObjectivesChanged {
        /// Priorities by the names of objectives.
        priorities: BTreeMap<Arc<str>, i32>,
    },
    /// The service ends: all waiting requests are refused, and so is every one that comes. Requests in flight go on.
    Close,
}

/// What became of a request that is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// The head of an answer came. To be told if it says more than that the first endpoint of the decision serves the request,
    /// which is taken for granted when the answer begins.
    Answered {
        /// The endpoint that answered, if the gateway says which.
        by: Option<SocketAddr>,
        /// What it answered.
        how: Answered,
    },
    /// The first bytes of the answer were seen: the prompt has been processed.
    AnswerBegan,
    /// The answer is over, or will not come.
    Ended(Outcome, Used),
}

/// What an answer says of the endpoint that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answered {
    /// It serves the request.
    Served,
    /// It refuses the request, and so has not worked on it: a status from 400 to 499.
    Rejected,
    /// It is there, and says that it has no room: 503 of the server itself. That is not counted as a failure: a server that is
    /// overloaded serves what it has, and were it ejected for that, the others would get its load too.
    Overloaded,
    /// It failed.
    Failed(RequestFailure),
    /// Nothing: the gateway answered, for reasons of its own.
    ByGateway,
}
