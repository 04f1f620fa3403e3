//! The endpoints of the pool, what they last reported, and what is on its way to them.
//!
//! The pool is the one place where these facts are kept. Policies read them through [`Candidates`]; only the engine
//! changes them. Endpoints are held in *slots*: small numbers that stay with an endpoint while it is in the pool, so
//! that indexes and scratch space can be plain arrays. Iteration is in order of endpoint id, in every run.

mod endpoint;
pub mod health;
mod signals;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Index;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use endpoint::{Endpoint, EndpointId, Stages};
pub use signals::{Lora, SignalUpdate, Signals};

use super::request::{Subset, SubsetEntry};
use super::time::Timestamp;
use health::{Health, HealthChange, OutlierDetection, Overview, RequestFailure, Scrape, Tier};

/// Where an endpoint is kept. Given again to another endpoint after this one has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u32);

impl Slot {
    /// The slot as an index into an array with a place for every slot.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An endpoint in the pool and all that is known of it.
#[derive(Debug)]
pub struct Member {
    /// Tells it from an earlier member in the same slot.
    pub(super) joined: u64,
    /// Who it is.
    pub endpoint: Arc<Endpoint>,
    /// What it does, as its labels say.
    pub stages: Stages,
    /// What it last reported.
    pub signals: Signals,
    /// Whether it can serve.
    pub health: Health,
    /// What was sent to it and has not ended.
    pub in_flight: InFlight,
    /// When the requests were sent that no report shows yet, oldest first.
    sent: VecDeque<Timestamp>,
}

/// Requests that are remembered as unreported of one endpoint. More of them say nothing more.
const MAX_UNREPORTED: usize = 4096;

impl Member {
    /// What waits and runs there by its last report, and what is in flight to it (spec, simulator 10.1). A request may
    /// count twice: what is reported and what is in flight overlap.
    pub fn effective_load(&self) -> u64 {
        u64::from(self.signals.waiting) + u64::from(self.signals.running) + u64::from(self.in_flight.requests)
    }

    /// Books a request on it.
    pub(super) fn sent(&mut self, now: Timestamp, requests: u32, tokens: u64) {
        self.in_flight.requests += requests;
        self.in_flight.tokens += tokens;
        if requests > 0 && self.sent.len() < MAX_UNREPORTED {
            self.sent.push_back(now);
        }
        self.count_unreported();
    }

    pub(super) fn report(&mut self, update: SignalUpdate) {
        self.signals.apply(update);
        if let Some(at) = self.signals.at {
            let shown = self.sent.partition_point(|&sent| sent <= at);
            self.sent.drain(..shown);
        }
        self.count_unreported();
    }

    fn count_unreported(&mut self) {
        self.in_flight.unreported = u32::try_from(self.sent.len()).unwrap_or(u32::MAX);
    }
}

/// Work that was sent to an endpoint and has not ended. Exact at every moment, before any scrape shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InFlight {
    /// Requests whose answer has not ended.
    pub requests: u32,
    /// Prompt tokens of requests whose answer has not begun.
    pub tokens: u64,
    /// Requests that were sent after the moment of the endpoint's last report, so that no signal shows them yet.
    pub unreported: u32,
}

/// A change to the pool, as discovery and scraping report it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum PoolChange {
    /// An endpoint is there, perhaps with other labels or another address than before.
    Upsert(Arc<Endpoint>),
    /// An endpoint is gone.
    Remove(EndpointId),
    /// An endpoint reported how it is. Ignored if it has left meanwhile.
    Report(EndpointId, SignalUpdate),
    /// An endpoint could not be scraped, or can be again. Ignored if it has left meanwhile.
    Scrape(EndpointId, Scrape),
}

/// All endpoints.
#[derive(Debug, Default)]
pub struct Pool {
    slots: Vec<Option<Member>>,
    by_id: BTreeMap<EndpointId, Slot>,
    joined: u64,
    overview: Overview,
}

impl Pool {
    /// Number of endpoints.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// True if there is no endpoint.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The upper bound of slot indexes.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The slot of an endpoint.
    pub fn slot(&self, id: &EndpointId) -> Option<Slot> {
        self.by_id.get(id).copied()
    }

    /// The member in `slot`, if the slot is taken.
    pub fn get(&self, slot: Slot) -> Option<&Member> {
        self.slots.get(slot.index())?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Member> {
        self.slots.get_mut(slot.index())?.as_mut()
    }

    /// The member in `slot`, if it is the one that joined as the one with this number, and not one that came after it.
    pub(super) fn member_since(&mut self, slot: Slot, joined: u64) -> Option<&mut Member> {
        self.get_mut(slot).filter(|member| member.joined == joined)
    }

    /// Members in order of endpoint id.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &Member)> {
        self.by_id.values().map(|&slot| (slot, &self[slot]))
    }

    /// Puts the slots of the endpoints that `subset` allows into `out`, in order of endpoint id.
    pub fn select(&self, subset: &Subset, out: &mut Vec<Slot>) {
        out.clear();
        let Subset::Only(entries) = subset else {
            out.extend(self.by_id.values());
            return;
        };
        // An entry with a port that no endpoint has stands for its host.
        let known_port = |wanted: &SubsetEntry| match wanted {
            SubsetEntry::Host(_) => false,
            SubsetEntry::Socket(socket) => self.iter().any(|(_, m)| m.endpoint.socket() == *socket),
        };
        let entries: Vec<_> = entries.iter().map(|entry| (entry, known_port(entry))).collect();
        let allowed = |endpoint: &Endpoint| {
            entries.iter().any(|(entry, by_port)| match entry {
                SubsetEntry::Host(host) => endpoint.address == *host,
                SubsetEntry::Socket(socket) if *by_port => endpoint.socket() == *socket,
                SubsetEntry::Socket(socket) => endpoint.address == socket.ip(),
            })
        };
        out.extend(self.iter().filter(|(_, m)| allowed(&m.endpoint)).map(|(slot, _)| slot));
    }

    /// Adds an endpoint, or gives a known one another description. Keeps what is known and in flight; of its health, unless
    /// it has another address: there, another process is.
    pub(super) fn upsert(&mut self, now: Timestamp, endpoint: Arc<Endpoint>) -> Slot {
        if let Some(&slot) = self.by_id.get(&endpoint.id) {
            let member = self.slots[slot.index()].as_mut().expect("a known id has a member");
            member.stages = endpoint.stages();
            let has_moved = member.endpoint.socket() != endpoint.socket();
            member.endpoint = endpoint;
            if has_moved {
                self.overview.left(&member.health);
                member.health = Health::new(now);
                self.overview.joined(&member.health);
            }
            return slot;
        }
        let free = self.slots.iter().position(Option::is_none).unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let slot = Slot(u32::try_from(free).expect("fewer endpoints than u32 can count"));
        self.by_id.insert(endpoint.id.clone(), slot);
        self.joined += 1;
        let member = Member {
            joined: self.joined,
            stages: endpoint.stages(),
            endpoint,
            signals: Signals::default(),
            health: Health::new(now),
            in_flight: InFlight::default(),
            sent: VecDeque::new(),
        };
        self.overview.joined(&member.health);
        self.slots[free] = Some(member);
        slot
    }

    /// The slot of `endpoint`, if it is known by another address.
    pub(super) fn moves(&self, endpoint: &Endpoint) -> Option<Slot> {
        let slot = self.slot(&endpoint.id)?;
        (self[slot].endpoint.socket() != endpoint.socket()).then_some(slot)
    }

    /// Takes an endpoint out.
    pub(super) fn remove(&mut self, id: &EndpointId) -> Option<(Slot, Member)> {
        let slot = self.by_id.remove(id)?;
        let member = self.slots[slot.index()].take().expect("a known id has a member");
        self.overview.left(&member.health);
        Some((slot, member))
    }

    /// Notes what an endpoint reported. False if it is not in the pool.
    pub(super) fn report(&mut self, id: &EndpointId, update: SignalUpdate) -> bool {
        let Some(slot) = self.slot(id) else { return false };
        self.reported(slot, update);
        true
    }

    /// Notes what the endpoint in `slot` reported, if there is one.
    pub(super) fn reported(&mut self, slot: Slot, update: SignalUpdate) {
        let now = update.at;
        let Some(member) = self.get_mut(slot) else { return };
        member.report(update);
        if member.signals.at.is_some() && !member.health.is_scraped() {
            self.observe(now, slot, |health, _| health.reported());
        }
    }

    pub(super) fn member_mut(&mut self, slot: Slot) -> &mut Member {
        self.slots[slot.index()].as_mut().expect("the slot is taken")
    }
}

/// The health of the endpoints.
impl Pool {
    /// Says when endpoints are ejected from now on.
    pub(super) fn detect_outliers(&mut self, settings: OutlierDetection) {
        self.overview.settings = settings;
    }

    /// When endpoints are ejected.
    pub fn outlier_detection(&self) -> &OutlierDetection {
        &self.overview.settings
    }

    /// True if every endpoint is in the best tier, as mostly they are.
    pub fn is_all_usable(&self) -> bool {
        self.overview.counts.usable == self.len()
    }

    /// Endpoints in the best tier; all, if none is.
    pub fn usable(&self) -> usize {
        match self.overview.counts.usable {
            0 => self.len(),
            usable => usable,
        }
    }

    /// True if no endpoint is ejected or gone.
    pub(super) fn has_none_out(&self) -> bool {
        self.overview.counts.out == 0
    }

    /// True if there is no endpoint that a request could reach.
    pub fn is_gone(&self) -> bool {
        self.overview.counts.gone == self.len()
    }

    /// How often requests failed at endpoints, by the name of the failure.
    pub fn request_failures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.overview.failures()
    }

    /// How often endpoints were ejected, by the name of the failure that did it.
    pub fn ejections(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.overview.ejections()
    }

    /// When the standing of an endpoint may change by the passing of time alone.
    pub(super) fn health_changes_at(&self) -> Option<Timestamp> {
        self.overview.next_change
    }

    /// The next change of an endpoint's state that nobody asked about yet, the oldest first.
    pub(super) fn next_health_change(&mut self) -> Option<HealthChange> {
        self.overview.changes.pop_front()
    }

    /// Time passed. True if that has changed the standing of an endpoint.
    pub(super) fn pass(&mut self, now: Timestamp) -> bool {
        if self.overview.next_change.is_none_or(|at| at > now) {
            return false;
        }
        self.overview.next_change = None;
        let slots: Vec<Slot> = self.by_id.values().copied().collect();
        for slot in slots {
            self.observe(now, slot, |_, _| ());
        }
        true
    }

    /// An endpoint was scraped, or could not be.
    pub(super) fn scraped(&mut self, now: Timestamp, slot: Slot, scrape: Scrape) {
        let age = age_of(self[slot].signals.at, now);
        self.observe(now, slot, |health, settings| health.scraped(now, scrape, age, settings));
    }

    /// An endpoint answered a request that was sent at `sent`.
    pub(super) fn answered(&mut self, now: Timestamp, slot: Slot, sent: Timestamp) {
        let health = &mut self.member_mut(slot).health;
        if health.is_untroubled() {
            // Nothing follows from it, as from nearly all answers.
            return health.answered(now, sent);
        }
        self.observe(now, slot, |health, _| health.answered(now, sent));
    }

    /// A request that was sent at `sent` failed at an endpoint.
    pub(super) fn failed(&mut self, now: Timestamp, slot: Slot, sent: Timestamp, failure: RequestFailure) {
        let may_eject = self.overview.counts.ejections < self.overview.settings.most_ejected(self.len());
        let mut ejects = false;
        self.observe(now, slot, |health, settings| {
            ejects = health.failed(now, sent, failure, settings, may_eject);
        });
        self.overview.failed(failure, ejects);
    }

    /// A request is sent to an endpoint.
    pub(super) fn chosen(&mut self, now: Timestamp, slot: Slot) {
        if self[slot].health.state() != health::EndpointState::Healthy {
            self.observe(now, slot, |health, _| health.chosen(now));
        }
    }

    /// A request that was sent to an endpoint at `sent` is over.
    pub(super) fn ended(&mut self, now: Timestamp, slot: Slot, sent: Timestamp) {
        if self[slot].health.state() != health::EndpointState::Healthy {
            self.observe(now, slot, |health, settings| health.ended(now, sent, settings));
        }
    }

    /// The best tier that any of `slots` is in.
    pub(super) fn best_tier(&self, slots: &[Slot], tried: &[Slot]) -> Tier {
        let tiers = slots.iter().map(|&slot| self.tier(slot, tried));
        tiers.min().unwrap_or(Tier::Unreachable)
    }

    /// The tier of an endpoint for a request that failed at those in `tried`.
    pub(super) fn tier(&self, slot: Slot, tried: &[Slot]) -> Tier {
        let tier = self[slot].health.tier();
        match tried.contains(&slot) {
            true => tier.max(Tier::Failing),
            false => tier,
        }
    }

    /// Keeps of `slots` those in the best tier that any of them is in.
    pub(super) fn keep_best(&self, slots: &mut Vec<Slot>, tried: &[Slot]) {
        if self.is_all_usable() && tried.is_empty() {
            return;
        }
        let best = self.best_tier(slots, tried);
        slots.retain(|&slot| self.tier(slot, tried) == best);
    }

    fn observe(&mut self, now: Timestamp, slot: Slot, event: impl FnOnce(&mut Health, &OutlierDetection)) {
        let Self { slots, overview, .. } = self;
        let Member {
            endpoint,
            signals,
            health,
            ..
        } = slots[slot.index()].as_mut().expect("the slot is taken");
        let (from, since) = (health.state(), health.since());
        overview.left(health);
        event(health, &overview.settings);
        let has_changed = health.settle(now);
        overview.joined(health);
        overview.look_again(health.changes_at(now));
        if has_changed {
            overview.push(HealthChange {
                endpoint: endpoint.clone(),
                from,
                lasted: now.since(since),
                to: health.state(),
                reason: health.reason(),
                metrics_age: signals.at.map(|at| now.since(at)),
                failures: health.consecutive_failures(),
                ejected_for: health.ejected_until().map(|until| until.since(now)),
            });
        }
    }
}

impl Index<Slot> for Pool {
    type Output = Member;

    /// # Panics
    ///
    /// If the slot is not taken.
    fn index(&self, slot: Slot) -> &Member {
        self.get(slot).expect("the slot is taken")
    }
}

/// The endpoints that one decision chooses from, in order of endpoint id.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    pool: &'a Pool,
    slots: &'a [Slot],
}

impl<'a> Candidates<'a> {
    /// The members of `pool` in `slots`.
    pub fn new(pool: &'a Pool, slots: &'a [Slot]) -> Self {
        Self { pool, slots }
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Their slots.
    pub fn slots(&self) -> &'a [Slot] {
        self.slots
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Slot, &'a Member)> + Clone + use<'a> {
        let pool = self.pool;
        self.slots.iter().map(move |&slot| (slot, &pool[slot]))
    }

    /// What each of them last reported.
    pub fn signals(&self) -> impl ExactSizeIterator<Item = &'a Signals> + Clone + use<'a> {
        self.iter().map(|(_, member)| &member.signals)
    }
}

/// The age of a signal that was never seen: older than anything.
pub fn age_of(at: Option<Timestamp>, now: Timestamp) -> std::time::Duration {
    at.map_or(std::time::Duration::MAX, |at| now.since(at))
}

#[cfg(test)]
mod tests;
