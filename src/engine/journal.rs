//! What was asked of the engine, and what it answered: enough to ask again.
//!
//! The engine is a function of the calls that its driver makes. A driver that writes them down as [`Entry`]s leaves a
//! journal with which every decision can be made again, by the same plan to check it or by another one to compare
//! ([`replay`]). Entries are lines of JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::flow::fairness::Used;
use super::outcome::{Outcome, Refusal};
use super::pool::PoolChange;
use super::request::{Request, RequestId};
use super::time::Timestamp;
use super::{Effect, Engine, Progress};

/// What a journal begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// The seed of the engine.
    pub seed: u64,
    /// The text of the configuration.
    pub config: String,
}

/// The version of this format.
pub const FORMAT: u32 = 1;

/// One call of the engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// When, in nanoseconds of the driver's clock.
    pub at: Timestamp,
    /// What was asked.
    #[serde(flatten)]
    pub call: Call,
}

/// Takes entries as they are made.
pub trait Recorder: fmt::Debug {
    /// Takes the next one.
    fn note(&mut self, entry: Entry);
}

/// What can be asked of the engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// [`Engine::submit`].
    Submit {
        /// The request.
        id: RequestId,
        /// What is known of it.
        request: Box<Request>,
    },
    /// [`Engine::cancel`].
    Cancel {
        /// The request.
        id: RequestId,
    },
    /// [`Engine::progress`] with [`Progress::AnswerBegan`].
    AnswerBegan {
        /// The request.
        id: RequestId,
    },
    /// [`Engine::progress`] with [`Progress::Ended`].
    Ended {
        /// The request.
        id: RequestId,
        /// How.
        outcome: Outcome,
        /// What it used.
        used: Used,
    },
    /// [`Engine::pool_changed`].
    Pool {
        /// What changed.
        changes: Vec<PoolChange>,
    },
    /// [`Engine::objectives_changed`].
    Objectives {
        /// Priorities by the names of objectives.
        priorities: BTreeMap<Arc<str>, i32>,
    },
    /// [`Engine::close`].
    Close,
    /// [`Engine::replan`]. What follows was decided by a plan that the journal does not have.
    Replan,
    /// [`Engine::poll`], until nothing came, or as often as there are answers.
    Poll {
        /// What was answered. Empty if nothing came.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        answers: Vec<Answer>,
    },
}

/// An [`Effect`], in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The request.
    pub id: RequestId,
    /// What becomes of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It goes to this endpoint.
    Route(Arc<str>),
    /// It gets none.
    Refuse(Refusal),
    /// It is cut off.
    Evict,
}

impl From<&Effect> for Answer {
    fn from(effect: &Effect) -> Self {
        let verdict = match effect {
            Effect::Route { decision, .. } => Verdict::Route(decision.endpoints[0].id.as_str().into()),
            Effect::Refuse { refused, .. } => Verdict::Refuse(refused.refusal),
            Effect::Evict { .. } => Verdict::Evict,
        };
        Self {
            id: effect.id(),
            verdict,
        }
    }
}

/// How decisions that were made again compare to those of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Requests that were submitted.
    pub submitted: u64,
    /// Requests that go to the same endpoint again.
    pub same_endpoint: u64,
    /// Requests that go to another endpoint.
    pub other_endpoint: u64,
    /// Requests that are refused again, for whatever reason.
    pub both_refused: u64,
    /// Requests that had an endpoint, and are refused.
    pub refused_now: u64,
    /// Requests that were refused, and have an endpoint.
    pub routed_now: u64,
    /// Requests of which the journal does not tell how they were answered, or that have no answer now.
    pub unanswered: u64,
}

impl Agreement {
    /// The share of requests with the same answer, of those that were answered both times. One if there is none.
    pub fn share(&self) -> f64 {
        match self.answered() {
            0 => 1.0,
            all => (self.same_endpoint + self.both_refused) as f64 / all as f64,
        }
    }

    /// Requests that were answered both times.
    pub fn answered(&self) -> u64 {
        self.same_endpoint + self.both_refused + self.other_endpoint + self.refused_now + self.routed_now
    }
}

/// Asks `engine` everything that stands in a journal, in order, and compares its answers. Ends where another plan took
/// over.
pub fn replay(engine: &mut Engine, entries: impl IntoIterator<Item = Entry>) -> Agreement {
    let mut agreement = Agreement::default();
    let (mut then, mut now) = (FxHashMap::default(), FxHashMap::default());
    let mut ids = Vec::new();
    for Entry { at, call } in entries {
        match call {
            Call::Submit { id, request } => {
                ids.push(id);
                engine.submit(at, id, *request);
            }
            Call::Cancel { id } => {
                engine.cancel(at, id);
            }
            Call::AnswerBegan { id } => engine.progress(at, id, Progress::AnswerBegan),
            Call::Ended { id, outcome, used } => engine.progress(at, id, Progress::Ended(outcome, used)),
            Call::Pool { changes } => engine.pool_changed(at, changes),
            Call::Objectives { priorities } => engine.objectives_changed(at, priorities),
            Call::Close => engine.close(at),
            Call::Replan => break,
            Call::Poll { answers } => {
                while let Some(effect) = engine.poll(at) {
                    note(&mut now, Answer::from(&effect));
                }
                answers.into_iter().for_each(|answer| note(&mut then, answer));
            }
        }
    }
    for id in ids {
        agreement.submitted += 1;
        let count = match (then.get(&id), now.get(&id)) {
            (Some(Verdict::Route(then)), Some(Verdict::Route(now))) if then == now => &mut agreement.same_endpoint,
            (Some(Verdict::Route(_)), Some(Verdict::Route(_))) => &mut agreement.other_endpoint,
            (Some(Verdict::Route(_)), Some(_)) => &mut agreement.refused_now,
            (Some(_), Some(Verdict::Route(_))) => &mut agreement.routed_now,
            (Some(_), Some(_)) => &mut agreement.both_refused,
            _ => &mut agreement.unanswered,
        };
        *count += 1;
    }
    agreement
}

/// Notes where a request went, or that it was refused. That it was cut off later is another matter.
fn note(verdicts: &mut FxHashMap<RequestId, Verdict>, Answer { id, verdict }: Answer) {
    if verdict != Verdict::Evict {
        verdicts.insert(id, verdict);
    }
}
