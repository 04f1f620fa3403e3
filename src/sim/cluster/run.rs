//! The run: what follows from each event.

use std::sync::Arc;
use std::time::Duration;

use super::super::instance::{self, Instance, SequenceRequest};
use super::super::record::{Counts, End, InstanceSample, Judge, RequestRecord, RunRecord, Sample};
use super::super::request::{Arrivals, Ended};
use super::Scenario;
use super::decisions::{Decisions, Routed, TraceOptions};
use super::events::{Agenda, Event};
use super::faults::{Fault, FaultKind, Faults};
use super::gateway::{Gateway, LAST_US, microseconds, timestamp};
use super::sampler::Sampler;
use super::tracked::{Place, Tracked};
use crate::engine::config::plan::EnginePlan;
use crate::engine::flow::fairness::Used;
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::pool::health::RequestFailure;
use crate::engine::pool::{Candidates, Slot};
use crate::engine::request::RequestId;
use crate::engine::saturation::{SaturationDetector, UtilizationDetector};
use crate::engine::scheduling::Decision;
use crate::engine::{Effect, Refused};

/// Runs a workload on a cluster, with the policies of `plan`.
///
/// # Panics
///
/// If a rule of the simulator is broken: that is a defect, and no result of such a run means anything.
pub fn run(scenario: &Scenario, plan: EnginePlan, workload: &mut dyn Arrivals, trace: TraceOptions<'_>) -> RunRecord {
    Run::new(scenario, plan, workload, trace).finish()
}

/// A run under way.
#[derive(Debug)]
struct Run<'a, 't> {
    scenario: &'a Scenario,
    workload: &'a mut dyn Arrivals,
    now_us: u64,
    agenda: Agenda,
    gateway: Gateway,
    /// The earliest time at which the gateway is to be called and that is on the agenda.
    gateway_called_us: Option<u64>,
    refresh_called_us: Option<u64>,
    instances: Vec<Instance>,
    faults: Faults,
    /// When the steps of each instance ended.
    step_ends_us: Vec<Vec<u64>>,
    /// Whether the beginning of a step of an instance is on the agenda.
    step_due: Vec<bool>,
    /// The requests, in order of arrival; their positions are their ids.
    requests: Vec<Tracked>,
    records: Vec<RequestRecord>,
    /// The SLO classes that occur, and the times between tokens of their completed requests, by instance.
    itl: Vec<(Arc<str>, Vec<Counts>)>,
    decisions: Decisions<'t>,
    sampler: Sampler,
    /// Says how full the pool is in samples, if the engine's detector cannot.
    onlooker: Option<UtilizationDetector>,
    /// What instances said in the event at hand.
    finished: Vec<(u32, bool)>,
    began: Vec<u32>,
}

impl<'a, 't> Run<'a, 't> {
    fn new(
        scenario: &'a Scenario,
        plan: EnginePlan,
        workload: &'a mut dyn Arrivals,
        mut trace: TraceOptions<'t>,
    ) -> Self {
        let mut instances: Vec<Instance> = (0..scenario.instances)
            .map(|_| Instance::new(scenario.instance.clone(), Box::new(scenario.latency.clone())))
            .collect();
        let journal = trace.journal.take();
        let gateway = Gateway::new(scenario, plan, trace.explain(), journal, &mut instances);
        let (judge, onlooker) = match gateway.engine().discerns_saturation() {
            true => (Judge::Detector, None),
            false => (Judge::Onlooker, Some(UtilizationDetector::of_reports())),
        };
        let mut agenda = Agenda::default();
        for (
            &Fault {
                instance,
                from_us,
                until_us,
                ..
            },
            fault,
        ) in scenario.faults.iter().zip(0..)
        {
            agenda.add(from_us, Event::FaultBegins { instance, fault });
            if let Some(until_us) = until_us {
                agenda.add(until_us, Event::FaultEnds { instance, fault });
            }
        }
        Self {
            scenario,
            workload,
            now_us: 0,
            agenda,
            gateway,
            faults: Faults::of(scenario),
            gateway_called_us: None,
            refresh_called_us: None,
            step_ends_us: vec![Vec::new(); instances.len()],
            step_due: vec![false; instances.len()],
            instances,
            requests: Vec::new(),
            records: Vec::new(),
            itl: Vec::new(),
            decisions: Decisions::new(trace),
            sampler: Sampler::new(judge),
            onlooker,
            finished: Vec::new(),
            began: Vec::new(),
        }
    }

    fn finish(mut self) -> RunRecord {
        let horizon = self.scenario.horizon_us.unwrap_or(u64::MAX).min(LAST_US);
        loop {
            let arrival = self.workload.next_arrival();
            let (at_us, event) = match (arrival, self.agenda.next_at()) {
                (Some(arrival), next) if next.is_none_or(|next| arrival <= next) => (arrival, None),
                (_, Some(_)) => {
                    let (at_us, event) = self.agenda.take().expect("there is a next event");
                    (at_us, Some(event))
                }
                (_, None) => break,
            };
            match event {
                Some(Event::GatewayTimer) => self.gateway_called_us = None,
                Some(Event::Refresh) => self.refresh_called_us = None,
                _ => {}
            }
            // An event that nothing follows from does not move the clock.
            if event.is_some_and(|event| self.is_void(event)) {
                continue;
            }
            if at_us > horizon {
                self.now_us = horizon;
                break;
            }
            assert!(at_us >= self.now_us, "the clock does not go back");
            self.sample(at_us);
            self.now_us = at_us;
            match event {
                None => self.arrives(),
                Some(event) => self.happens(event),
            }
        }
        self.record()
    }

    fn is_void(&self, event: Event) -> bool {
        match event {
            Event::GivesUp(id) => self.requests[id as usize].place == Place::Ended,
            Event::GatewayTimer => self.gateway.deadline_us().is_none(),
            // Where nothing else is to come, newer signals are the same as before.
            Event::Refresh => self.gateway.refresh_due_us().is_none() || self.nothing_is_to_come(),
            Event::FaultBegins { .. } | Event::FaultEnds { .. } => self.is_over(),
            _ => false,
        }
    }

    fn nothing_is_to_come(&self) -> bool {
        self.agenda.next_at().is_none() && self.workload.next_arrival().is_none()
    }

    /// True if all requests that ever come have ended.
    fn is_over(&self) -> bool {
        let ended = |tracked: &Tracked| tracked.place == Place::Ended;
        self.workload.next_arrival().is_none() && self.requests.iter().all(ended)
    }

    fn arrives(&mut self) {
        let request = self.workload.take().expect("a request has arrived");
        let id = u32::try_from(self.requests.len()).expect("fewer requests than u32 can count");
        self.records.push(RequestRecord {
            name: request.name.clone(),
            client: request.client.clone(),
            session: request.session.clone(),
            arrival_us: request.arrival_us,
            prompt_tokens: request.prompt_tokens,
            output_tokens: 0,
            cached_tokens: 0,
            end: End::StillQueued,
            instance: None,
            gateway_delay_us: None,
            scheduling_delay_us: None,
            ttft_us: None,
            itl_sum_us: 0,
            e2e_us: None,
            length_capped: false,
        });
        if let Some(deadline) = request.deadline_us {
            self.agenda.add(deadline.max(self.now_us), Event::GivesUp(id));
        }
        let class = self.class(&request.client.slo_class);
        self.requests.push(Tracked::new(request, class));
        let decided = self.now_us.saturating_add(self.scenario.admission_latency_us);
        self.agenda.add(decided, Event::Admission(id));
    }

    fn class(&mut self, name: &Arc<str>) -> u32 {
        let known = self.itl.iter().position(|(known, _)| known == name);
        let at = known.unwrap_or_else(|| {
            let counts = vec![Counts::default(); self.instances.len()];
            self.itl.push((name.clone(), counts));
            self.itl.len() - 1
        });
        u32::try_from(at).expect("there are fewer classes than requests")
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Admission(id) => self.is_decided(id),
            Event::GatewayTimer | Event::Refresh => self.follow_the_gateway(),
            Event::Reaches { instance, request } => self.reaches(instance, request),
            Event::Queues { instance, request } => self.queues(instance, request),
            Event::StepEnds(instance) => self.step_ends(instance),
            Event::StepBegins(instance) => self.step_begins(instance),
            Event::FaultBegins { instance, fault } => self.fault_begins(instance, fault),
            Event::FaultEnds { fault, .. } => self.fault_ends(fault),
            Event::GivesUp(id) => self.gives_up(id),
        }
    }

    /// The gateway decides whether to let a request in, with the newest signals that are to be had.
    fn is_decided(&mut self, id: u32) {
        if self.requests[id as usize].place == Place::Ended {
            return;
        }
        self.gateway.refresh(self.now_us, &mut self.instances, &self.faults);
        self.follow_the_gateway();
        let tracked = &mut self.requests[id as usize];
        tracked.place = Place::AtGateway;
        let request = tracked.request().expect("a request that has not ended is there");
        self.decisions.comes(id, self.now_us);
        self.gateway.submit(self.now_us, id, request, self.scenario);
        self.follow_the_gateway();
        self.decisions.let_in(id, self.requests[id as usize].request());
    }

    /// Does what the engine wants done, and notes when it wants to be called.
    fn follow_the_gateway(&mut self) {
        if self.gateway.has_waiting() {
            self.gateway.refresh(self.now_us, &mut self.instances, &self.faults);
        }
        while let Some(effect) = self.gateway.next_effect(self.now_us) {
            match effect {
                Effect::Route {
                    id,
                    priority,
                    waited,
                    decision,
                } => self.is_routed(index(id), priority, waited, &decision),
                Effect::Refuse { id, refused } => self.is_refused(index(id), &refused),
                Effect::Evict { id, .. } => self.is_evicted(index(id)),
            }
        }
        self.call_the_gateway_in_time();
    }

    fn is_routed(&mut self, id: u32, priority: i32, waited: Option<Duration>, decision: &Decision) {
        let instance = self.gateway.instance_of(&decision.endpoints[0]);
        let tracked = &mut self.requests[id as usize];
        let routed = Routed {
            id,
            request: tracked.request().expect("a request that is routed has not ended"),
            priority,
            decision,
            now_us: self.now_us,
        };
        self.decisions.routed(&routed, &self.gateway);
        tracked.place = Place::Sent;
        let record = &mut self.records[id as usize];
        record.instance = Some(instance);
        record.gateway_delay_us = waited.map(whole_us);
        let there = self.now_us.saturating_add(self.scenario.routing_latency_us);
        self.agenda.add(there, Event::Reaches { instance, request: id });
    }

    fn is_refused(&mut self, id: u32, refused: &Refused) {
        let request = self.requests[id as usize].request();
        let request = request.expect("a request that is refused has not ended");
        self.decisions.refused(id, request, refused, self.now_us);
        self.records[id as usize].gateway_delay_us = refused.waited.map(whole_us);
        self.end(id, end_of(refused.refusal));
    }

    fn is_evicted(&mut self, id: u32) {
        let request = self.requests[id as usize].request();
        let request = request.expect("a request that is evicted has not ended");
        let instance = self.records[id as usize].instance.expect("it was sent to an instance");
        self.decisions.evicted(id, request, instance, self.now_us);
        self.take_from_its_instance(id);
        self.gateway.ended(self.now_us, id, Outcome::Evicted, Used::default());
        self.end(id, End::GatewayEvicted);
    }

    /// Puts on the agenda when the gateway is to be called though nothing else happens.
    fn call_the_gateway_in_time(&mut self) {
        if let Some(deadline) = self.gateway.deadline_us() {
            let at = deadline.max(self.now_us);
            if self.gateway_called_us.is_none_or(|called| at < called) {
                self.gateway_called_us = Some(at);
                self.agenda.add(at, Event::GatewayTimer);
            }
        }
        if self.refresh_called_us.is_none()
            && let Some(at) = self.gateway.refresh_due_us()
        {
            self.refresh_called_us = Some(at);
            self.agenda.add(at.max(self.now_us), Event::Refresh);
        }
    }

    fn reaches(&mut self, instance: u32, id: u32) {
        let Some(request) = self.requests[id as usize].request() else {
            return;
        };
        if let Some(failure) = self.refusal_of(instance) {
            return self.fails(id, failure);
        }
        let handling = self.scenario.latency.queueing_time(request.prompt_tokens);
        let at = self.now_us.saturating_add(whole_us(handling));
        self.agenda.add(at, Event::Queues { instance, request: id });
    }

    fn queues(&mut self, instance: u32, id: u32) {
        let Some(request) = self.requests[id as usize].request() else {
            return;
        };
        if self.faults.kind_at(instance) == Some(FaultKind::Dead) {
            // The server died while it read the request.
            return self.fails(id, RequestFailure::Reset);
        }
        let client = &request.client;
        let sequence = SequenceRequest {
            id: RequestId(u64::from(id)),
            adapter: (!client.adapter.is_empty()).then(|| client.adapter.clone()),
            prompt_tokens: request.prompt_tokens,
            output_tokens: request.output_tokens,
            max_output_tokens: request.max_output_tokens,
            priority: self.scenario.classes.server_priority(&client.slo_class),
            arrival: timestamp(request.arrival_us),
            chain: request.chain.clone(),
        };
        match self.instances[instance as usize].enqueue(timestamp(self.now_us), sequence) {
            Ok(()) => self.begin_a_step(instance),
            Err(_) => {
                // The server answers with an error, and the gateway passes that on.
                self.gateway.ended(self.now_us, id, Outcome::Completed, Used::default());
                self.end(id, End::Dropped);
                self.follow_the_gateway();
            }
        }
    }

    /// Puts the beginning of a step on the agenda, unless one is under way or about to begin.
    fn begin_a_step(&mut self, instance: u32) {
        let at = instance as usize;
        if !self.step_due[at] && self.instances[at].step_ends().is_none() {
            self.step_due[at] = true;
            self.agenda.add(self.now_us, Event::StepBegins(instance));
        }
    }

    fn step_begins(&mut self, instance: u32) {
        if let Some(hang) = self.hang_of(instance) {
            return self.put_off(hang.until_us, Event::StepBegins(instance));
        }
        let Self {
            instances,
            records,
            agenda,
            step_due,
            now_us,
            ..
        } = self;
        step_due[instance as usize] = false;
        let ends = instances[instance as usize].start_step(timestamp(*now_us), |event| {
            let (id, cached_tokens) = match event {
                instance::Event::Admitted { id, cached_tokens, .. } => (id, Some(cached_tokens)),
                instance::Event::Resumed { id } => (id, None),
                _ => return,
            };
            let record = &mut records[index(id) as usize];
            record.scheduling_delay_us = Some(*now_us - record.arrival_us);
            record.cached_tokens = cached_tokens.unwrap_or(record.cached_tokens);
        });
        if let Some(ends) = ends {
            agenda.add(microseconds(ends), Event::StepEnds(instance));
        }
    }

    fn step_ends(&mut self, instance: u32) {
        if let Some(hang) = self.hang_of(instance) {
            // What was left of the step when the hang began.
            let left_us = self.now_us - hang.from_us;
            let resumes = hang.until_us.map(|until| until.saturating_add(left_us));
            return self.put_off(resumes, Event::StepEnds(instance));
        }
        let ends = self.instances[instance as usize].step_ends();
        if ends.is_none_or(|ends| microseconds(ends) > self.now_us) {
            // The step that was to end now was lost when the server died.
            return;
        }
        let each_token_us = self.each_token_us();
        let Self {
            instances,
            records,
            requests,
            step_ends_us,
            finished,
            began,
            now_us,
            ..
        } = self;
        let ends_us = &mut step_ends_us[instance as usize];
        let step = u32::try_from(ends_us.len()).expect("fewer steps than u32 can count");
        ends_us.push(*now_us);
        instances[instance as usize].finish_step(timestamp(*now_us), |event| match event {
            instance::Event::Token { id, index: nth } => {
                let id = index(id);
                requests[id as usize].token(step);
                if nth == 0 {
                    let record = &mut records[id as usize];
                    record.ttft_us = Some(*now_us - record.arrival_us + each_token_us);
                    began.push(id);
                }
            }
            instance::Event::Finished { id, length_capped } => finished.push((index(id), length_capped)),
            _ => {}
        });
        self.tell_of_answers();
        let load = self.instances[instance as usize].load();
        if load.waiting + load.running > 0 {
            self.begin_a_step(instance);
        }
    }

    /// What is wrong with an instance that stands still.
    fn hang_of(&self, instance: u32) -> Option<Fault> {
        let fault = self.faults.at(instance).copied();
        fault.filter(|fault| fault.kind == FaultKind::Hung)
    }

    /// What was to happen now happens at `at_us`, or never.
    fn put_off(&mut self, at_us: Option<u64>, event: Event) {
        if let Some(at_us) = at_us {
            self.agenda.add(at_us, event);
        }
    }

    /// How a request fails that reaches an instance now. `None` if it does not.
    fn refusal_of(&self, instance: u32) -> Option<RequestFailure> {
        match self.faults.kind_at(instance)? {
            FaultKind::Dead => Some(RequestFailure::Connect),
            FaultKind::Failing => Some(RequestFailure::Status(500)),
            FaultKind::Hung => None,
        }
    }

    fn fault_begins(&mut self, instance: u32, fault: u32) {
        if self.faults.begins(fault).kind == FaultKind::Dead {
            for id in self.instances[instance as usize].crash() {
                self.fails(index(id), RequestFailure::Reset);
            }
        }
    }

    fn fault_ends(&mut self, fault: u32) {
        self.faults.ends(fault);
        self.gateway.refresh(self.now_us, &mut self.instances, &self.faults);
        self.follow_the_gateway();
    }

    /// A request fails at its instance.
    fn fails(&mut self, id: u32, failure: RequestFailure) {
        self.gateway.failed(self.now_us, id, failure);
        self.end(id, End::Failed);
        self.follow_the_gateway();
    }

    /// What each token takes beside its step.
    fn each_token_us(&self) -> u64 {
        whole_us(self.scenario.latency.output_token_time())
    }

    /// Notes the tokens that a request was given, and the times between them.
    fn note_tokens(&mut self, id: u32) {
        let each_token_us = self.each_token_us();
        let tracked = &self.requests[id as usize];
        let record = &mut self.records[id as usize];
        record.output_tokens = tracked.tokens();
        let Some(instance) = record.instance else { return };
        let ends_us = &self.step_ends_us[instance as usize];
        record.itl_sum_us = tracked.gaps(ends_us, each_token_us).sum();
    }

    /// Tells the gateway of the answers that began and ended in the step that ends.
    fn tell_of_answers(&mut self) {
        let (mut began, mut finished) = (std::mem::take(&mut self.began), std::mem::take(&mut self.finished));
        for id in began.drain(..) {
            self.gateway.answer_began(self.now_us, id);
            self.follow_the_gateway();
        }
        // Each answer ends in a stream of its own: what it makes room for goes before the next one is looked at.
        for (id, length_capped) in finished.drain(..) {
            self.complete(id, length_capped);
            self.follow_the_gateway();
        }
        (self.began, self.finished) = (began, finished);
    }

    fn complete(&mut self, id: u32, length_capped: bool) {
        self.note_tokens(id);
        let each_token_us = self.each_token_us();
        let tracked = &self.requests[id as usize];
        let record = &mut self.records[id as usize];
        let instance = record.instance.expect("what is complete was sent to an instance") as usize;
        let (_, counts) = &mut self.itl[tracked.class as usize];
        let counts = &mut counts[instance];
        tracked
            .gaps(&self.step_ends_us[instance], each_token_us)
            .for_each(|gap| counts.add(gap));
        let overhead = self.scenario.latency.completion_time();
        record.length_capped = length_capped;
        let first = record.ttft_us.expect("what is complete has a first token");
        record.e2e_us = Some(first + record.itl_sum_us + whole_us(overhead));
        let used = Used {
            prompt_tokens: u64::from(record.prompt_tokens),
            completion_tokens: u64::from(record.output_tokens),
        };
        self.gateway.ended(self.now_us, id, Outcome::Completed, used);
        self.end(id, End::Completed);
    }

    fn gives_up(&mut self, id: u32) {
        if self.requests[id as usize].place == Place::Sent {
            self.take_from_its_instance(id);
        }
        if self.requests[id as usize].place != Place::Coming {
            self.gateway.cancel(self.now_us, id);
        }
        self.end(id, End::TimedOut);
        self.follow_the_gateway();
    }

    /// Ends the work on a request, wherever it has come on its instance.
    fn take_from_its_instance(&mut self, id: u32) {
        let instance = self.records[id as usize].instance.expect("it was sent to an instance");
        self.instances[instance as usize].cancel(RequestId(u64::from(id)));
    }

    /// A request is over. Its conversation may go on.
    fn end(&mut self, id: u32, end: End) {
        let request = self.requests[id as usize].end();
        if end != End::Completed {
            self.note_tokens(id);
        }
        let record = &mut self.records[id as usize];
        record.end = end;
        let how = match end {
            End::Completed => Ended::Completed {
                output_tokens: record.output_tokens,
            },
            End::TimedOut => Ended::TimedOut,
            _ => Ended::Lost,
        };
        self.workload.ended(&request, self.now_us, how);
    }

    /// Takes samples of how the cluster has been until now.
    fn sample(&mut self, at_us: u64) {
        if !self.sampler.is_due(at_us) {
            return;
        }
        // Signals that are always new are new in the samples too.
        if self.scenario.snapshot_refresh_us == 0 {
            self.gateway.refresh(self.now_us, &mut self.instances, &self.faults);
        }
        let engine = self.gateway.engine();
        let now = timestamp(self.now_us);
        let onlooker = self.onlooker.as_ref();
        let seen = |detector: &UtilizationDetector, slots: &[Slot]| {
            detector.saturation(now, Candidates::new(engine.pool(), slots))
        };
        let instance = |(instance, index): (&Instance, u32)| {
            let load = instance.load();
            let slot = self.gateway.slot(index);
            let member = engine.pool().get(slot);
            InstanceSample {
                waiting: load.waiting,
                running: load.running,
                in_flight: member.map_or(0, |member| member.in_flight.requests),
                kv_usage: f64::from(load.kv_used_blocks) / f64::from(load.kv_total_blocks.max(1)),
                saturation: match onlooker {
                    Some(detector) => seen(detector, &[slot]),
                    None => engine.endpoint_saturation(now, slot),
                },
            }
        };
        let sample = Sample {
            at_us: 0,
            gateway_waiting: engine.waiting(),
            saturation: match onlooker {
                Some(detector) => seen(detector, self.gateway.slots()),
                None => engine.saturation(now).effective,
            },
            instances: self.instances.iter().zip(0..).map(instance).collect(),
        };
        self.sampler.up_to(at_us, &sample);
    }

    fn record(mut self) -> RunRecord {
        for id in 0..u32::try_from(self.requests.len()).expect("ids are positions") {
            let place = self.requests[id as usize].place;
            if place == Place::Ended {
                continue;
            }
            self.note_tokens(id);
            let record = &mut self.records[id as usize];
            record.end = match place {
                Place::AtGateway => End::InGateway,
                Place::Sent if record.scheduling_delay_us.is_some() => End::StillRunning,
                _ => End::StillQueued,
            };
        }
        let mut instance_itl = vec![Counts::default(); self.instances.len()];
        let mut itl = Vec::new();
        for (class, counts) in self.itl {
            let mut of_class = Counts::default();
            for (counts, of_instance) in counts.iter().zip(&mut instance_itl) {
                of_class.merge(counts);
                of_instance.merge(counts);
            }
            itl.push((class, of_class));
        }
        RunRecord {
            requests: self.records,
            instances: self.instances.iter().map(Instance::totals).collect(),
            itl,
            instance_itl,
            end_us: self.now_us,
            series: self.sampler.finish(),
        }
    }
}

/// The position of a request among those that arrived.
fn index(id: RequestId) -> u32 {
    u32::try_from(id.0).expect("ids of a run are positions")
}

/// Microseconds, cut to whole ones.
fn whole_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The bucket of a request that the engine refused.
fn end_of(refusal: Refusal) -> End {
    match refusal {
        Refusal::NotAdmitted
        | Refusal::NeverAdmitted
        | Refusal::Saturated
        | Refusal::Malformed
        | Refusal::TooLarge
        | Refusal::BodyTimeout
        | Refusal::MemoryExhausted => End::Rejected,
        Refusal::QueueFull | Refusal::Oversized | Refusal::QueueFullNoEndpoints => End::GatewayRejected,
        Refusal::Shed | Refusal::Displaced => End::GatewayShed,
        Refusal::Expired | Refusal::ExpiredNoEndpoints => End::GatewayExpired,
        Refusal::NoEndpoints
        | Refusal::FilteredOut
        | Refusal::NotCached
        | Refusal::Unschedulable
        | Refusal::Internal => End::RoutingRejected,
        Refusal::Cancelled => End::TimedOut,
        Refusal::ShuttingDown => End::InGateway,
    }
}
