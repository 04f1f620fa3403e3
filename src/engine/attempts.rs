//! Requests that come again: a gateway that asks anew on a retry must not be sent to the endpoint that has just failed.
//!
//! Gateways that are not Envoy retry by asking the picker once more, with the same `x-request-id`. What they do not say is
//! that the first attempt failed; that follows from the second one coming before the first was answered.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use rustc_hash::FxHasher;
use smallvec::SmallVec;

use super::pool::{Pool, Slot};
use super::request::{Request, RequestId};
use super::router::Known;
use super::time::Timestamp;

/// How long an attempt is remembered that ended without an answer. Gateways retry within a second.
const KEPT: Duration = Duration::from_secs(10);

/// Ended attempts that are remembered. Of more the oldest are forgotten.
const MAX_ENDED: usize = 4096;

/// Attempts of one request that are remembered.
const MAX_EACH: usize = 8;

/// Tells a request from others, and not from its own retry: the id that the gateway gave it, and what it asks. The id alone
/// would not do, for there are clients that send the same with each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key(u64);

impl Key {
    /// `None` if the request came without an id.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let mut hasher = FxHasher::default();
        request.external_id?.hash(&mut hasher);
        request.size_bytes.hash(&mut hasher);
        request.prompt_blocks.hashes().last().hash(&mut hasher);
        Some(Self(hasher.finish()))
    }
}

/// Requests that were sent and have not been answered, by what they are recognised by.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    by_key: BTreeMap<Key, SmallVec<[Attempt; 1]>>,
    /// Keys of attempts that ended, and when they are forgotten.
    ended: VecDeque<(Timestamp, Key)>,
}

/// A request on its way to an endpoint, or that was.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) id: RequestId,
    pub(super) slot: Slot,
    pub(super) joined: u64,
    pub(super) sent: Timestamp,
    /// What the endpoint had of the prompt before.
    pub(super) known: Known,
    pub(super) fate: Fate,
}

/// What became of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It may still be answered.
    Open,
    /// It ended without an answer, for whatever reason. If it comes again, it has failed.
    Unanswered,
    /// It failed, and that was counted.
    Failed,
}

impl Attempts {
    /// Notes an attempt.
    pub(super) fn sent(&mut self, key: Key, attempt: Attempt) {
        let attempts = self.by_key.entry(key).or_default();
        if attempts.len() == MAX_EACH {
            attempts.remove(0);
        }
        attempts.push(attempt);
    }

    /// The request comes again. Calls `failed` for each attempt that thereby turns out to have failed.
    pub(super) fn comes_again(&mut self, key: Key, mut failed: impl FnMut(&Attempt)) {
        let attempts = self.by_key.get_mut(&key).into_iter().flatten();
        for attempt in attempts.filter(|attempt| attempt.fate == Fate::Unanswered) {
            attempt.fate = Fate::Failed;
            failed(attempt);
        }
    }

    /// Puts the endpoints that the request was sent to before into `slots`, as far as they are still there.
    pub(super) fn tried(&self, key: Key, pool: &Pool, slots: &mut Vec<Slot>) {
        let attempts = self.by_key.get(&key).into_iter().flatten();
        let is_there = |attempt: &&Attempt| pool.get(attempt.slot).is_some_and(|m| m.joined == attempt.joined);
        slots.extend(attempts.filter(is_there).map(|attempt| attempt.slot));
    }

    /// The attempt `id` was answered, or never made: it is no reason for anything.
    pub(super) fn forget(&mut self, key: Key, id: RequestId) {
        if let Some(attempts) = self.by_key.get_mut(&key) {
            attempts.retain(|attempt| attempt.id != id);
            if attempts.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }

    /// The attempt `id` will not be answered.
    pub(super) fn ended(&mut self, now: Timestamp, key: Key, id: RequestId, fate: Fate) {
        let attempts = self.by_key.get_mut(&key).into_iter().flatten();
        for attempt in attempts.filter(|attempt| attempt.id == id && attempt.fate == Fate::Open) {
            attempt.fate = fate;
            self.ended.push_back((now + KEPT, key));
        }
        while let Some(&(until, key)) = self.ended.front()
            && (until <= now || self.ended.len() > MAX_ENDED)
        {
            self.ended.pop_front();
            self.expire(key);
        }
    }

    fn expire(&mut self, key: Key) {
        if let Some(attempts) = self.by_key.get_mut(&key) {
            attempts.retain(|attempt| attempt.fate == Fate::Open);
            if attempts.is_empty() {
                self.by_key.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Kind;
    use super::*;

    fn request(external_id: u64, size_bytes: u64) -> Request {
        Request {
            external_id: Some(external_id),
            size_bytes,
            ..Request::unknown(Kind::Inference)
        }
    }

    fn key(external_id: u64) -> Key {
        Key::of(&request(external_id, 10)).unwrap()
    }

    fn attempt(id: u64, slot: u32) -> Attempt {
        Attempt {
            id: RequestId(id),
            slot: Slot(slot),
            joined: 1,
            sent: Timestamp::ZERO,
            known: Known::new(),
            fate: Fate::Open,
        }
    }

    fn failed(attempts: &mut Attempts, key: Key) -> Vec<u32> {
        let mut slots = Vec::new();
        attempts.comes_again(key, |attempt| slots.push(attempt.slot.0));
        slots
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn an_attempt_that_ended_without_an_answer_has_failed_if_the_request_comes_again() {
        let mut attempts = Attempts::default();
        attempts.sent(key(1), attempt(1, 4));
        assert_eq!(failed(&mut attempts, key(1)), [0; 0], "it may still be answered");

        attempts.ended(at(0), key(1), RequestId(1), Fate::Unanswered);

        assert_eq!(failed(&mut attempts, key(2)), [0; 0]);
        assert_eq!(failed(&mut attempts, key(1)), [4]);
        assert_eq!(failed(&mut attempts, key(1)), [0; 0], "it counts once");
    }

    #[test]
    fn an_answered_attempt_is_forgotten() {
        let mut attempts = Attempts::default();
        attempts.sent(key(1), attempt(1, 4));

        attempts.forget(key(1), RequestId(1));
        attempts.ended(at(0), key(1), RequestId(1), Fate::Unanswered);

        assert_eq!(failed(&mut attempts, key(1)), [0; 0]);
        assert!(attempts.by_key.is_empty() && attempts.ended.is_empty());
    }

    #[test]
    fn the_same_id_with_another_body_is_another_request() {
        assert_ne!(Key::of(&request(1, 10)), Key::of(&request(1, 11)));
        assert_eq!(Key::of(&Request::unknown(Kind::Inference)), None);
    }

    #[test]
    fn what_ended_is_forgotten_after_a_while_and_what_is_open_is_not() {
        let mut attempts = Attempts::default();
        for (id, slot) in [(1, 4), (2, 5)] {
            attempts.sent(key(1), attempt(id, slot));
        }
        attempts.ended(at(0), key(1), RequestId(1), Fate::Unanswered);

        attempts.ended(at(10), key(9), RequestId(9), Fate::Unanswered);

        let left: Vec<_> = attempts.by_key[&key(1)].iter().map(|attempt| attempt.id.0).collect();
        assert_eq!(left, [2]);
    }

    #[test]
    fn no_more_is_remembered_than_the_bounds_say() {
        let mut attempts = Attempts::default();
        for id in 0..2 * MAX_ENDED as u64 {
            attempts.sent(key(id), attempt(id, 0));
            attempts.ended(at(0), key(id), RequestId(id), Fate::Unanswered);
        }
        for id in 0..100 {
            attempts.sent(key(7_000_000), attempt(id, 0));
        }

        assert_eq!(attempts.by_key.len(), MAX_ENDED + 1);
        assert_eq!(attempts.by_key[&key(7_000_000)].len(), MAX_EACH);
    }
}
