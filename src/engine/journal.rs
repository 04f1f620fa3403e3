//! What the engine was told, and what it answered: enough to replay it.
//!
//! The engine is a function of the calls that its driver makes. A [`Recorder`] gets an [`Entry`] for each of them from the
//! engine itself. With these every decision can be made again, by the same plan to check it or by another one to compare
//! ([`replay`]). In files, entries are lines of JSON.

use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::input::Input;
use super::outcome::Refusal;
use super::request::RequestId;
use super::time::Timestamp;
use super::{Effect, Engine};

/// What a journal begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// [`FORMAT`].
    pub format: u32,
    /// The seed of the engine.
    pub seed: u64,
    /// Whether the plan was loaded for a driver that tells what endpoints have cached
    /// ([`LoadOptions::cache_source`](super::config::LoadOptions)).
    pub cache_source: bool,
    /// The text of the configuration.
    pub config: String,
}

/// The version of this format. Version 1 lacked what endpoints told of their caches, and told of polls only roughly.
pub const FORMAT: u32 = 2;

/// One call of the engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// When, in nanoseconds of the driver's clock.
    pub at: Timestamp,
    /// Which call.
    #[serde(flatten)]
    pub event: Event,
}

/// Takes entries as they are made.
pub trait Recorder: fmt::Debug + Send {
    /// Takes the next one.
    fn note(&mut self, entry: Entry);
}

/// The calls that change an engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    clippy::large_enum_variant,
    reason = "most entries are inputs, and each is dropped once it is written"
)]
pub enum Event {
    /// [`Engine::apply`].
    Input(Input),
    /// [`Engine::replan`]. What follows was decided by a plan that the journal does not have.
    Replan,
    /// [`Engine::poll`], and what it answered.
    Poll(Option<Answer>),
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

/// Tells `engine` everything that a journal holds, in order, and compares its answers. Ends where another plan took over.
pub fn replay(engine: &mut Engine, entries: impl IntoIterator<Item = Entry>) -> Agreement {
    let mut agreement = Agreement::default();
    let (mut then, mut now) = (FxHashMap::default(), FxHashMap::default());
    let mut ids = Vec::new();
    for Entry { at, event } in entries {
        match event {
            Event::Input(input) => {
                if let Input::Submit { id, .. } = &input {
                    ids.push(*id);
                }
                engine.apply(at, input);
            }
            Event::Replan => break,
            // As often as then: what comes between two polls may change the answer of the second.
            Event::Poll(Some(answer)) => {
                note(&mut then, answer);
                if let Some(effect) = engine.poll(at) {
                    note(&mut now, Answer::from(&effect));
                }
            }
            // Nothing more came then. Under another plan more may come now.
            Event::Poll(None) => {
                while let Some(effect) = engine.poll(at) {
                    note(&mut now, Answer::from(&effect));
                }
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
