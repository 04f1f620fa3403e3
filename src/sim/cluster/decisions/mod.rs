//! What was decided, why, and how much better another choice would have been (spec, simulator 12).
//!
//! A decision is written down as the engine explains it, together with the signals that it was made with. The regret of
//! a choice is the best candidate's score less that of the chosen one, or zero.

mod record;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use record::{AdmissionRecord, CandidateRecord, DecisionRecord, RefusalRecord, Regret, RoutingRecord, WaitRecord};

use super::super::record::instance_name;
use super::super::request::SimRequest;
use super::gateway::Gateway;
use crate::engine::Refused;
use crate::engine::journal::Recorder;
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::scheduling::{Decision, Explain};

/// Takes the records of decisions as they are made.
pub trait DecisionSink: fmt::Debug {
    /// Takes one.
    fn take(&mut self, record: &DecisionRecord);
}

/// What is written down of decisions, and where.
#[derive(Debug, Default)]
pub struct TraceOptions<'a> {
    /// Who takes the records. Nothing is explained if there is nobody, and no summary is wanted.
    pub sink: Option<&'a mut dyn DecisionSink>,
    /// Takes everything that the engine is told and answers, as a live service would write it down.
    pub journal: Option<Box<dyn Recorder>>,
    /// Sums the decisions up here.
    pub summary: Option<&'a mut Summary>,
    /// How many of the best candidates are written down. `None`: all of them.
    pub candidates: Option<usize>,
    /// What the regret is measured in.
    pub regret: RegretBasis,
}

/// What candidates are compared by when the regret of a choice is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RegretBasis {
    /// The total of the scorers, from 0 to 1. What has no scorers is compared by load.
    #[default]
    Scores,
    /// Minus the effective load: waiting, running and in flight.
    Load,
}

impl TraceOptions<'_> {
    /// How much the engine has to explain.
    pub(super) fn explain(&self) -> Explain {
        match self.is_on() {
            true => Explain::All,
            false => Explain::Best(0),
        }
    }

    fn is_on(&self) -> bool {
        self.sink.is_some() || self.summary.is_some()
    }
}

/// All decisions in a few numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Decisions on admission.
    pub decisions: u64,
    /// Requests that were let in.
    pub admitted: u64,
    /// Requests that were not.
    pub rejected: u64,
    /// How often each instance was chosen, by index.
    pub targets: BTreeMap<u32, u64>,
    /// The sum of all regrets.
    pub regret_sum: f64,
    /// The largest regret.
    pub regret_max: f64,
}

impl Summary {
    /// The regret of a choice on average, or zero if there was none.
    pub fn mean_regret(&self) -> f64 {
        match self.targets.values().sum::<u64>() {
            0 => 0.0,
            choices => self.regret_sum / choices as f64,
        }
    }
}

/// Writes decisions down while a run is under way.
#[derive(Debug)]
pub(super) struct Decisions<'a> {
    options: TraceOptions<'a>,
    /// By id.
    known: Vec<Known>,
    releases: Vec<Release>,
}

/// What is known of a request that came to the gateway.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    came_us: u64,
    /// It was said whether it was let in.
    told: bool,
    /// Which of the releases is its own.
    release: Option<usize>,
}

/// A request that had waited, or could go at once.
#[derive(Debug)]
struct Release {
    at_us: u64,
    priority: i32,
    flow: Arc<str>,
}

impl<'a> Decisions<'a> {
    pub(super) fn new(options: TraceOptions<'a>) -> Self {
        Self {
            options,
            known: Vec::new(),
            releases: Vec::new(),
        }
    }

    /// A request comes to the gateway.
    pub(super) fn comes(&mut self, id: u32, now_us: u64) {
        if !self.options.is_on() {
            return;
        }
        let places = id as usize + 1;
        if self.known.len() < places {
            self.known.resize(places, Known::default());
        }
        self.known[id as usize].came_us = now_us;
    }

    /// A request was let in, unless it was told before what became of it.
    pub(super) fn let_in(&mut self, id: u32, request: Option<&SimRequest>) {
        if let Some(request) = request {
            self.admission(id, request, None);
        }
    }

    /// A request was refused.
    pub(super) fn refused(&mut self, id: u32, request: &SimRequest, refused: &Refused, now_us: u64) {
        let refusal = refused.refusal;
        if matches!(
            refusal,
            Refusal::NotAdmitted | Refusal::NeverAdmitted | Refusal::Saturated
        ) {
            let reason = refused.reason.as_deref().unwrap_or(refusal.name());
            return self.admission(id, request, Some(reason));
        }
        self.admission(id, request, None);
        if !self.options.is_on() {
            return;
        }
        let end = Release {
            at_us: now_us,
            priority: refused.priority,
            flow: request.client.tenant.clone(),
        };
        let wait = self.wait(id, &end, self.releases.len());
        self.refusal(request, refused.priority, now_us, refusal.name(), None, wait);
    }

    /// A request was cut off on its instance.
    pub(super) fn evicted(&mut self, id: u32, request: &SimRequest, instance: u32, now_us: u64) {
        let known = self.known.get(id as usize);
        let Some(own) = known.and_then(|known| known.release) else {
            return;
        };
        let release = &self.releases[own];
        let (wait, priority) = (self.wait(id, release, own), release.priority);
        let instance = Some(instance_name(instance));
        self.refusal(request, priority, now_us, Outcome::Evicted.name(), instance, wait);
    }

    fn refusal(
        &mut self,
        request: &SimRequest,
        priority: i32,
        at_us: u64,
        reason: &'static str,
        instance: Option<String>,
        wait: WaitRecord,
    ) {
        if let Some(sink) = &mut self.options.sink {
            sink.take(&DecisionRecord::Refusal(RefusalRecord {
                request: request.name.to_string(),
                tenant: request.client.tenant.clone(),
                slo_class: request.client.slo_class.clone(),
                priority,
                at_us,
                reason,
                instance,
                wait,
            }));
        }
    }

    fn admission(&mut self, id: u32, request: &SimRequest, reason: Option<&str>) {
        if !self.options.is_on() || std::mem::replace(&mut self.known[id as usize].told, true) {
            return;
        }
        if let Some(summary) = &mut self.options.summary {
            summary.decisions += 1;
            match reason {
                None => summary.admitted += 1,
                Some(_) => summary.rejected += 1,
            }
        }
        if let Some(sink) = &mut self.options.sink {
            sink.take(&DecisionRecord::Admission(AdmissionRecord {
                request: request.name.to_string(),
                at_us: self.known[id as usize].came_us,
                admitted: reason.is_none(),
                reason: reason.map(str::to_owned),
            }));
        }
    }

    /// A request was given an instance, and is booked there.
    pub(super) fn routed(&mut self, routed: &Routed<'_>, gateway: &Gateway) {
        let Routed {
            id,
            request,
            priority,
            decision,
            now_us,
        } = *routed;
        self.admission(id, request, None);
        if !self.options.is_on() {
            return;
        }
        let candidates = self.candidates(decision, gateway);
        let chosen = gateway.instance_of(&decision.endpoints[0]);
        let name = instance_name(chosen);
        let best = candidates.first().map_or(0.0, |best| best.score);
        let own = candidates.iter().find(|candidate| candidate.instance == name);
        let regret = own.map_or(0.0, |own| (best - own.score).max(0.0));
        if let Some(summary) = &mut self.options.summary {
            *summary.targets.entry(chosen).or_default() += 1;
            summary.regret_sum += regret;
            summary.regret_max = summary.regret_max.max(regret);
        }
        let release = Release {
            at_us: now_us,
            priority,
            flow: request.client.tenant.clone(),
        };
        let wait = self.wait(id, &release, self.releases.len());
        self.known[id as usize].release = Some(self.releases.len());
        self.releases.push(release);
        let kept = self.options.candidates.unwrap_or(usize::MAX);
        if let Some(sink) = &mut self.options.sink {
            sink.take(&DecisionRecord::Routing(RoutingRecord {
                request: request.name.to_string(),
                tenant: request.client.tenant.clone(),
                slo_class: request.client.slo_class.clone(),
                priority,
                at_us: now_us,
                instance: name,
                regret,
                wait,
                signal_age_us: gateway.signal_age_us(now_us),
                prefix_blocks: decision
                    .prefix
                    .iter()
                    .map(|hit| (hit.producer.name.clone(), (hit.matched, hit.total)))
                    .collect(),
                candidates: candidates.into_iter().take(kept).collect(),
            }));
        }
    }

    /// The candidates as they were before the request was booked, the best first.
    fn candidates(&self, decision: &Decision, gateway: &Gateway) -> Vec<CandidateRecord> {
        let why = &decision.why;
        let by_load = self.options.regret == RegretBasis::Load || why.scorers.is_empty();
        let chosen = &decision.endpoints[0].id;
        let weights: f64 = why.scorers.iter().map(|(_, weight)| weight).sum();
        let mut candidates: Vec<(u32, CandidateRecord)> = why
            .scored
            .iter()
            .enumerate()
            .map(|(rank, scored)| {
                let index = gateway.instance_of(&scored.endpoint);
                let pool = gateway.engine().pool();
                let member = &pool[gateway.slot(index)];
                let signals = &member.signals;
                let in_flight = member.in_flight.requests - u32::from(scored.endpoint.id == *chosen);
                let load = f64::from(signals.waiting) + f64::from(signals.running) + f64::from(in_flight);
                let free = (1.0 - signals.kv_usage) * f64::from(signals.total_blocks);
                let record = CandidateRecord {
                    instance: instance_name(index),
                    score: if by_load { -load } else { scored.total / weights },
                    scores: why.scores(rank).map(|(name, _, score)| (name.clone(), score)).collect(),
                    queue_depth: signals.waiting,
                    batch_size: signals.running,
                    in_flight,
                    kv_utilization: signals.kv_usage,
                    free_kv_blocks: free.round() as u32,
                };
                (index, record)
            })
            .collect();
        candidates.sort_by(|(a, one), (b, other)| other.score.total_cmp(&one.score).then(a.cmp(b)));
        candidates.into_iter().map(|(_, record)| record).collect()
    }

    /// Shares the time from when a request came to its `end` at the gateway out among the releases that it saw: those of
    /// the first `before`.
    fn wait(&self, id: u32, end: &Release, before: usize) -> WaitRecord {
        let came_us = self.known[id as usize].came_us;
        let mut wait = WaitRecord {
            total_us: end.at_us - came_us,
            ..WaitRecord::default()
        };
        let releases = &self.releases[..before];
        let seen = releases.partition_point(|release| release.at_us <= came_us);
        let mut since = came_us;
        for release in &releases[seen..] {
            let cause = match release.priority.cmp(&end.priority) {
                std::cmp::Ordering::Greater => &mut wait.higher_priority_us,
                std::cmp::Ordering::Less => &mut wait.lower_priority_us,
                std::cmp::Ordering::Equal if release.flow == end.flow => &mut wait.own_flow_us,
                std::cmp::Ordering::Equal => &mut wait.other_flow_us,
            };
            *cause += release.at_us - since;
            since = release.at_us;
        }
        wait.saturation_us = end.at_us - since;
        wait
    }
}

/// A request that was given an instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Routed<'r> {
    pub(super) id: u32,
    pub(super) request: &'r SimRequest,
    pub(super) priority: i32,
    pub(super) decision: &'r Decision,
    pub(super) now_us: u64,
}
