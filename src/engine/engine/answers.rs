//! What the engine learns of endpoints from the requests that it sent there.
//!
//! A request waits for an answer from the moment that it is booked until the head of an answer is seen, or something that
//! comes after one. Until then the engine remembers what it recorded for it, so that it can be taken back:
//!
//! - **Failed, or turned away by the server**: the endpoint does not have the prompt, so its blocks are withdrawn. If it
//!   failed, that counts against the endpoint.
//! - **Answered by another endpoint** of the list: the load and the prompt move there, and those that were passed over have
//!   failed.
//! - **Ended without an answer**: that says little, for clients leave. Should the same request come again, it has failed
//!   (`attempts`). If the endpoint answered nothing at all for a long time, that counts against it too.

use std::net::SocketAddr;
use std::time::Duration;

use smallvec::SmallVec;

use super::super::attempts::{Attempt, Attempts, Fate, Key};
use super::super::outcome::Outcome;
use super::super::pool::health::RequestFailure;
use super::super::pool::{Pool, Slot};
use super::super::prefix::PromptBlocks;
use super::super::request::{Request, RequestId};
use super::super::router::{Known, Router};
use super::super::time::Timestamp;
use super::loads::Loads;
use super::{Answered, Booking, Engine};

/// A client that gives up sooner says nothing of the endpoint, even if that has answered nothing meanwhile: it may have been
/// busy with a long prompt.
const LONG_WAIT: Duration = Duration::from_secs(5);

/// What is kept of a request until it is answered.
#[derive(Debug)]
pub(super) struct Awaited {
    /// The endpoints that the gateway may go to after the first one.
    pub(super) fallbacks: SmallVec<[(Slot, u64); 1]>,
    pub(super) prompt: PromptBlocks,
    /// What the endpoint had of the prompt before.
    pub(super) known: Known,
    /// By what the request is recognised should it come again.
    pub(super) key: Option<Key>,
}

impl Engine {
    /// A request comes, and perhaps it was here before. Then the gateway has seen its last attempt fail.
    pub(super) fn notice_a_retry(&mut self, now: Timestamp, request: &Request) {
        let Some(key) = Key::of(request) else { return };
        let Self {
            attempts, pool, router, ..
        } = self;
        attempts.comes_again(key, |attempt: &Attempt| {
            if is_there(pool, attempt.slot, attempt.joined) {
                pool.failed(now, attempt.slot, attempt.sent, RequestFailure::Retried);
                router.withdraw(attempt.slot, &request.prompt_blocks, &attempt.known);
            }
        });
    }

    /// The head of an answer came, or something that comes after one. Nothing happens if that was seen before.
    pub(super) fn answered(&mut self, now: Timestamp, id: RequestId, by: Option<SocketAddr>, how: Answered) {
        let Self {
            in_flight,
            pool,
            router,
            attempts,
            loads,
            ..
        } = self;
        let Some(booking) = in_flight.get_mut(&id) else { return };
        let Some(mut awaited) = booking.awaited.take() else {
            return;
        };
        if let Some(by) = by {
            follow(now, booking, &mut awaited, by, (pool, router, loads));
        }
        let slot = booking.slot;
        let is_there = is_there(pool, slot, booking.joined);
        if let Some(key) = awaited.key {
            match how {
                Answered::Failed(_) | Answered::Overloaded => attempts.ended(now, key, id, Fate::Failed),
                Answered::Served | Answered::Rejected | Answered::ByGateway => attempts.forget(key, id),
            }
        }
        if !is_there {
            return;
        }
        match how {
            Answered::Served | Answered::Rejected => pool.answered(now, slot, booking.sent),
            Answered::Failed(failure) => pool.failed(now, slot, booking.sent, failure),
            Answered::Overloaded | Answered::ByGateway => {}
        }
        if how != Answered::Served {
            router.withdraw(slot, &awaited.prompt, &awaited.known);
        }
        self.health_may_have_changed(now);
    }

    /// A request is over that was booked so. What is known of its endpoint may be more now.
    pub(super) fn learn_from_the_end(&mut self, now: Timestamp, id: RequestId, booking: Booking, outcome: Outcome) {
        let Booking {
            slot,
            joined,
            sent,
            awaited,
            ..
        } = booking;
        let Self {
            pool, router, attempts, ..
        } = self;
        let is_there = is_there(pool, slot, joined);
        if let Some(Awaited { prompt, known, key, .. }) = awaited {
            let gave_up = matches!(outcome, Outcome::Disconnected | Outcome::Broken);
            match key {
                Some(key) if gave_up => attempts.ended(now, key, id, Fate::Unanswered),
                Some(key) => attempts.forget(key, id),
                None => {}
            }
            let was_silent = |pool: &Pool| pool[slot].health.answered_at().is_none_or(|at| at < sent);
            let counts = pool.outlier_detection().consecutive_failures > 0;
            if is_there && counts && gave_up && now.since(sent) >= LONG_WAIT && was_silent(pool) {
                pool.failed(now, slot, sent, RequestFailure::NoAnswer);
                router.withdraw(slot, &prompt, &known);
            }
            if is_there && matches!(outcome, Outcome::Refused(_)) {
                // It was never sent.
                router.withdraw(slot, &prompt, &known);
            }
        }
        if is_there {
            pool.ended(now, slot, sent);
        }
        self.health_may_have_changed(now);
    }

    /// To be called after whatever may change whether there is an endpoint that a request could reach.
    pub(super) fn health_may_have_changed(&mut self, now: Timestamp) {
        self.stirred = true;
        self.tell_emptiness(now);
    }

    /// Puts the endpoints into `tried` at which `request` failed before.
    pub(super) fn find_tried(attempts: &Attempts, pool: &Pool, request: &Request, tried: &mut Vec<Slot>) {
        tried.clear();
        if let Some(key) = Key::of(request) {
            attempts.tried(key, pool, tried);
        }
    }
}

pub(super) fn is_there(pool: &Pool, slot: Slot, joined: u64) -> bool {
    pool.get(slot).is_some_and(|member| member.joined == joined)
}

/// Moves a booking to the endpoint that has answered, if that is not the one that was picked first.
fn follow(
    now: Timestamp,
    booking: &mut Booking,
    awaited: &mut Awaited,
    by: SocketAddr,
    (pool, router, loads): (&mut Pool, &mut Router, &mut Loads),
) {
    let is_at = |pool: &Pool, slot| pool[slot].endpoint.socket() == by;
    let listed = std::iter::once((booking.slot, booking.joined)).chain(awaited.fallbacks.drain(..));
    let listed: SmallVec<[_; 2]> = listed.filter(|&(slot, joined)| is_there(pool, slot, joined)).collect();
    let place = listed.iter().position(|&(slot, _)| is_at(pool, slot));
    let first = (booking.slot, booking.joined);
    if place.is_some_and(|place| listed[place] == first) {
        return;
    }
    for &(slot, _) in &listed[..place.unwrap_or(listed.len())] {
        pool.failed(now, slot, booking.sent, RequestFailure::PassedOver);
    }
    if let Some(load) = booking.load.take() {
        loads.remove(&load, booking.tokens);
    }
    if is_there(pool, booking.slot, booking.joined) {
        router.withdraw(booking.slot, &awaited.prompt, &awaited.known);
        let member = pool.member_mut(booking.slot);
        member.in_flight.requests -= booking.requests;
        member.in_flight.tokens -= booking.tokens;
        pool.ended(now, booking.slot, booking.sent);
    }
    let served = place.map(|place| listed[place].0);
    let served = served.or_else(|| pool.iter().map(|(slot, _)| slot).find(|&slot| is_at(pool, slot)));
    let Some(slot) = served else {
        // Nobody that we know: from here on it is no load.
        booking.joined = NOBODY;
        return;
    };
    let member = pool.member_mut(slot);
    member.sent(now, booking.requests, booking.tokens);
    (booking.slot, booking.joined) = (slot, member.joined);
    if booking.requests > 0 {
        let load = loads.add(
            (slot, booking.joined),
            &booking.fairness_id,
            booking.band,
            booking.tokens,
        );
        booking.load = Some(load);
    }
    awaited.known = router.record(slot, pool, &awaited.prompt);
}

/// What no member has joined as.
const NOBODY: u64 = 0;

#[cfg(test)]
mod tests;
