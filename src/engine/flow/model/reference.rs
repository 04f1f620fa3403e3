//! Flow control as one would explain it: a list of what waits, and rules that look through the whole of it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::super::super::invariant::{Displacement, Held};
use super::super::super::outcome::Refusal;
use super::super::super::request::RequestId;
use super::super::super::time::Timestamp;
use super::super::Load;
use super::super::active::Place;
use super::rules::{BandRules, Fairness, MIN_CEILING, Ordering, Rules, Usage};

#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub(super) rules: Rules,
    pub(super) objectives: BTreeMap<Arc<str>, i32>,
    pub(super) now: Timestamp,
    /// In the order of arrival.
    pub(super) waits: Vec<Waits>,
    pub(super) runs: Vec<Runs>,
    pub(super) endpoints: BTreeSet<String>,
    /// When the pool got its first endpoint or lost its last one.
    changed: Timestamp,
    last_served: BTreeMap<i32, Arc<str>>,
}

#[derive(Clone, Debug)]
pub(super) struct Waits {
    pub(super) id: RequestId,
    /// The number of its arrival.
    pub(super) arrival: u64,
    pub(super) tenant: Arc<str>,
    pub(super) model: Arc<str>,
    /// The priority of its objective.
    pub(super) priority: i32,
    /// The priority of its band.
    pub(super) band: i32,
    pub(super) size: u64,
    pub(super) enqueued: Timestamp,
    pub(super) ttl: Option<Duration>,
    pub(super) ttft: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(super) struct Runs {
    pub(super) id: RequestId,
    /// `None` if it has left since.
    pub(super) endpoint: Option<String>,
}

impl Waits {
    fn flow(&self) -> (i32, Arc<str>) {
        (self.band, self.tenant.clone())
    }
}

/// A request that is to give way.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivesWay {
    pub(super) id: RequestId,
    /// What is to be seen of it, if it is displaced.
    pub(super) seen: Option<Displacement>,
}

/// How many requests or bytes may wait, in one band or in all.
#[derive(Clone, Copy, Debug)]
struct Limit {
    band: Option<i32>,
    bytes: bool,
    most: u64,
}

impl Limit {
    fn counts(self, waits: &Waits) -> bool {
        self.band.is_none_or(|band| band == waits.band)
    }

    fn weight(self, waits: &Waits) -> u64 {
        if self.bytes { waits.size } else { 1 }
    }

    fn sum<'a>(self, requests: impl Iterator<Item = &'a Waits>) -> u64 {
        requests.map(|waits| self.weight(waits)).sum()
    }

    fn has_room(self, kept: &[&Waits], newcomer: &Waits) -> bool {
        let counted = kept.iter().copied().filter(|waits| self.counts(waits));
        self.sum(counted.chain([newcomer])) <= self.most
    }
}

fn span(millis: u64) -> Option<Duration> {
    (millis > 0).then(|| Duration::from_millis(millis))
}

impl Reference {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            objectives: BTreeMap::new(),
            now: Timestamp::ZERO,
            waits: Vec::new(),
            runs: Vec::new(),
            endpoints: BTreeSet::new(),
            changed: Timestamp::ZERO,
            last_served: BTreeMap::new(),
        }
    }

    /// The band of a new request of this priority.
    pub(super) fn band_for(&self, priority: i32) -> i32 {
        if self.priorities().contains(&priority) {
            priority
        } else {
            0
        }
    }

    pub(super) fn rules_of(&self, band: i32) -> BandRules {
        let configured = self.rules.bands.iter().find(|(priority, _)| *priority == band);
        match configured {
            Some((_, rules)) => *rules,
            None if band < 0 => self.rules.negative_template,
            None => self.rules.template,
        }
    }

    pub(super) fn load(&self, of: impl Fn(&Waits) -> bool) -> Load {
        let mut load = Load::default();
        self.waits
            .iter()
            .filter(|waits| of(waits))
            .for_each(|w| load.add(w.size));
        load
    }

    /// The limits within which a new request has to fit, in the order in which room is made: those of its band, then those
    /// of all bands.
    fn limits_for(&self, newcomer: &Waits) -> [Limit; 4] {
        let (band, rules, at) = (self.rules_of(newcomer.band), &self.rules, newcomer.band);
        let limit = |band, bytes, most| Limit { band, bytes, most };
        [
            limit(Some(at), true, band.max_bytes),
            limit(Some(at), false, band.max_requests),
            limit(None, true, rules.max_bytes.unwrap_or(u64::MAX)),
            limit(None, false, rules.max_requests.unwrap_or(u64::MAX)),
        ]
    }

    /// Who gives way to a new request, in this order, and why. Nobody if that would not be enough.
    pub(super) fn give_way(&self, newcomer: &Waits) -> (Refusal, Vec<GivesWay>) {
        let limits = self.limits_for(newcomer);
        let everybody: Vec<&Waits> = self.waits.iter().collect();
        let band_has_room = limits[..2].iter().all(|limit| limit.has_room(&everybody, newcomer));
        let shed = (self.rules.sheds && band_has_room)
            .then(|| self.shed(newcomer))
            .flatten();
        match shed {
            Some(shed) => (Refusal::Shed, shed),
            None if !self.rules.displaces => (Refusal::Displaced, Vec::new()),
            None => (Refusal::Displaced, self.displaced(newcomer).unwrap_or_default()),
        }
    }

    /// Of those below zero and below the new request the lowest, and of those the last to come, until there is room.
    fn shed(&self, newcomer: &Waits) -> Option<Vec<GivesWay>> {
        let mut kept: Vec<&Waits> = self.waits.iter().collect();
        let mut gone = Vec::new();
        let has_room = |kept: &[&Waits]| {
            let limits = self.limits_for(newcomer);
            limits.iter().all(|limit| limit.has_room(kept, newcomer))
        };
        while !has_room(&kept) {
            let sheddable = kept.iter().filter(|waits| waits.band < 0 && waits.band < newcomer.band);
            let next = *sheddable.min_by_key(|waits| (waits.band, Reverse(waits.arrival)))?;
            kept.retain(|waits| waits.id != next.id);
            gone.push(GivesWay {
                id: next.id,
                seen: None,
            });
        }
        Some(gone)
    }

    /// For one limit after the other: the newest request of the longest flow, as long as that flow is longer than the one
    /// of the new request will be, until there is room.
    fn displaced(&self, newcomer: &Waits) -> Option<Vec<GivesWay>> {
        let tells_apart = |band: i32| self.rules_of(band).fairness == Fairness::RoundRobin;
        let mut kept: Vec<&Waits> = self.waits.iter().collect();
        let mut gone = Vec::new();
        for limit in self.limits_for(newcomer) {
            while !limit.has_room(&kept, newcomer) {
                if !tells_apart(newcomer.band) {
                    return None;
                }
                let shares = |waits: &Waits| match limit.band {
                    Some(band) => waits.band == band,
                    None => waits.band <= newcomer.band && tells_apart(waits.band),
                };
                let length = |of: &Waits| limit.sum(kept.iter().copied().filter(|waits| waits.flow() == of.flow()));
                let newcomers = length(newcomer) + limit.weight(newcomer);
                let longer = kept.iter().filter(|waits| shares(waits) && length(waits) > newcomers);
                // Of equally long flows the one with the newest request.
                let next = *longer.max_by_key(|waits| (length(waits), waits.arrival))?;
                let sharing = kept.iter().copied().filter(|waits| shares(waits)).chain([newcomer]);
                let others = kept
                    .iter()
                    .copied()
                    .filter(|waits| limit.counts(waits) && !shares(waits));
                let of_flow = kept.iter().filter(|waits| waits.flow() == next.flow());
                let seen = Displacement {
                    length: length(next),
                    newcomers,
                    room: limit.most.saturating_sub(limit.sum(others)),
                    flows: sharing.map(Waits::flow).collect::<BTreeSet<_>>().len() as u64,
                    is_newest: of_flow.map(|waits| waits.arrival).max() == Some(next.arrival),
                };
                gone.push(GivesWay {
                    id: next.id,
                    seen: Some(seen),
                });
                kept.retain(|waits| waits.id != next.id);
            }
        }
        Some(gone)
    }

    pub(super) fn saturation(&self) -> f64 {
        if self.endpoints.is_empty() {
            return 1.0;
        }
        let served = self.runs.iter().filter(|runs| runs.endpoint.is_some()).count();
        served as f64 / (self.endpoints.len() as u64 * self.rules.concurrency) as f64
    }

    /// The ceiling of the highest band that has requests.
    pub(super) fn ceiling(&self) -> Option<f64> {
        let band = self.waits.iter().map(|waits| waits.band).max()?;
        let priorities = self.priorities();
        let above = priorities.iter().filter(|&&priority| priority > band).count();
        Some(match self.rules.usage {
            Usage::Static => 1.0,
            Usage::Holdback if priorities.len() == 1 => 1.0,
            Usage::Holdback => 1.0 - above as f64 * (1.0 - MIN_CEILING) / (priorities.len() - 1) as f64,
        })
    }

    /// True if this request is larger than what may wait.
    pub(super) fn can_never_wait(&self, newcomer: &Waits) -> bool {
        self.limits_for(newcomer)
            .iter()
            .any(|limit| !limit.has_room(&[], newcomer))
    }

    /// How many requests would be released before this one if it waited, too, and if there were room for all.
    pub(super) fn ahead_of(&self, newcomer: &Waits) -> u64 {
        let mut all = self.clone();
        all.waits.push(newcomer.clone());
        for ahead in 0.. {
            let next = all.first().expect("the new request waits");
            let Waits { id, band, tenant, .. } = all.waits.remove(next);
            if id == newcomer.id {
                return ahead;
            }
            all.last_served.insert(band, tenant);
        }
        unreachable!("the new request is found before numbers end")
    }

    /// The place in the list of the request that goes next, if one may go.
    pub(super) fn next(&self) -> Option<usize> {
        match self.saturation() >= self.ceiling()? {
            true => None,
            false => self.first(),
        }
    }

    /// The place in the list of the request that goes next when there is room.
    fn first(&self) -> Option<usize> {
        let band = self.waits.iter().map(|waits| waits.band).max()?;
        let flows = self.backlogged(band);
        let may_go = |waits: &Waits| match self.rules_of(band).fairness {
            Fairness::Strict => true,
            Fairness::RoundRobin => {
                let last = self.last_served.get(&band);
                let after = flows.iter().find(|flow| last.is_some_and(|last| *flow > last));
                Some(&waits.tenant) == after.or(flows.first())
            }
        };
        let candidates = (0..self.waits.len()).filter(|&at| self.waits[at].band == band && may_go(&self.waits[at]));
        candidates.min_by_key(|&at| self.place(&self.waits[at]))
    }

    /// The flows of a band that have requests.
    pub(super) fn backlogged(&self, band: i32) -> BTreeSet<Arc<str>> {
        let of_band = self.waits.iter().filter(|waits| waits.band == band);
        of_band.map(|waits| waits.tenant.clone()).collect()
    }

    /// When a request will have waited too long, if the pool stays as it is.
    pub(super) fn due(&self, waits: &Waits) -> Option<Timestamp> {
        let budget = match self.endpoints.is_empty() {
            true => span(self.rules.ttl_without_endpoints),
            false => self.budget(waits.band),
        };
        let budget = [budget, waits.ttl].into_iter().flatten().min()?;
        Some(waits.enqueued.max(self.changed) + budget)
    }

    pub(super) fn held(&self, waits: &Waits) -> Held {
        Held {
            id: waits.id,
            band: waits.band,
            flow: waits.tenant.clone(),
            place: self.place(waits),
        }
    }

    /// The bands that there are, the highest first.
    pub(super) fn priorities(&self) -> Vec<i32> {
        let waiting = self.waits.iter().map(|waits| waits.band);
        let all: BTreeSet<i32> = self.lasting().chain(waiting).collect();
        all.into_iter().rev().collect()
    }

    pub(super) fn leaves(&mut self, at: usize) -> Waits {
        let waits = self.waits.remove(at);
        self.forget_bands();
        waits
    }

    pub(super) fn served(&mut self, band: i32, tenant: &Arc<str>) {
        self.last_served.insert(band, tenant.clone());
        self.forget_bands();
    }

    pub(super) fn set_objectives(&mut self, objectives: BTreeMap<Arc<str>, i32>) {
        self.objectives = objectives;
        self.forget_bands();
    }

    pub(super) fn replan(&mut self, rules: Rules) {
        self.rules = rules;
        let lasting: BTreeSet<i32> = self.lasting().collect();
        for waits in &mut self.waits {
            if !lasting.contains(&waits.band) {
                waits.band = 0;
            }
        }
        self.forget_bands();
    }

    pub(super) fn join(&mut self, name: &str) {
        if self.endpoints.is_empty() {
            self.changed = self.now;
        }
        self.endpoints.insert(name.to_owned());
    }

    pub(super) fn leave(&mut self, name: &str) {
        if self.endpoints.remove(name) && self.endpoints.is_empty() {
            self.changed = self.now;
        }
        for runs in &mut self.runs {
            runs.endpoint.take_if(|endpoint| endpoint == name);
        }
    }

    /// The bands that stay when they are empty.
    fn lasting(&self) -> impl Iterator<Item = i32> {
        let configured = self.rules.bands.iter().map(|(priority, _)| *priority);
        configured.chain(self.objectives.values().copied()).chain([0])
    }

    /// A band that goes takes along whose turn it was.
    fn forget_bands(&mut self) {
        let priorities = self.priorities();
        self.last_served.retain(|band, _| priorities.contains(band));
    }

    fn budget(&self, band: i32) -> Option<Duration> {
        span(self.rules_of(band).ttl.unwrap_or(self.rules.ttl))
    }

    fn place(&self, waits: &Waits) -> Place {
        let moment = match self.rules_of(waits.band).ordering {
            Ordering::Fcfs => Some(waits.enqueued),
            Ordering::Edf => {
                let budget = [self.budget(waits.band), waits.ttl].into_iter().flatten().min();
                budget.map(|budget| waits.enqueued + budget)
            }
            // Who is late stands with those who are in no hurry.
            Ordering::Slo => {
                let deadline = waits.ttft.map(|ttft| waits.enqueued + ttft);
                deadline.filter(|&deadline| deadline >= self.now)
            }
        };
        Place {
            key: moment.map_or(u64::MAX, Timestamp::as_nanos),
            arrival: waits.arrival,
        }
    }
}
