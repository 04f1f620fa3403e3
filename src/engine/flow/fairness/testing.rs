//! A band to try fairness policies on: flows, their requests, and what was served last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::super::super::time::Timestamp;
use super::super::active::{ActiveFlow, ActiveFlows, Place};
use super::{FairnessPolicy, FlowRef, Used};

/// Time passes by a millisecond with every arrival and release. A released request ends when [`Band::end`] says so.
#[derive(Debug)]
pub(super) struct Band {
    pub(super) policy: Box<dyn FairnessPolicy>,
    pub(super) now: Timestamp,
    waiting: BTreeMap<Arc<str>, BTreeSet<(Place, Timestamp)>>,
    references: BTreeMap<Arc<str>, FlowRef>,
    active: ActiveFlows,
    last: Option<Arc<str>>,
    arrivals: u64,
}

impl Band {
    pub(super) fn new(policy: Box<dyn FairnessPolicy>) -> Self {
        Self {
            active: ActiveFlows::new(policy.order()),
            policy,
            now: Timestamp::ZERO,
            waiting: BTreeMap::new(),
            references: BTreeMap::new(),
            last: None,
            arrivals: 0,
        }
    }

    pub(super) fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    pub(super) fn arrive(&mut self, flow: &str) {
        self.arrive_with_key(flow, self.now.as_nanos());
    }

    pub(super) fn arrive_with_key(&mut self, flow: &str, key: u64) {
        let id: Arc<str> = flow.into();
        let arrival = self.arrivals;
        self.arrivals += 1;
        let requests = self.waiting.entry(id.clone()).or_default();
        requests.insert((Place { key, arrival }, self.now));
        self.refresh(&id);
        self.pass(Duration::from_millis(1));
    }

    /// A request of each flow, all at the same time, in this order.
    pub(super) fn arrive_together(&mut self, flows: &[&str]) {
        let now = self.now;
        for flow in flows {
            self.now = now;
            self.arrive(flow);
        }
    }

    /// The flow that is served. There must be one.
    pub(super) fn release(&mut self) -> String {
        let picked = self.policy.pick(self.now, self.last.as_ref(), &self.active);
        let id = self.active.get(picked).id.clone();
        let requests = self.waiting.get_mut(&id).expect("a flow with requests was picked");
        let (_, enqueued) = requests.pop_first().expect("a flow with requests was picked");
        self.refresh(&id);
        self.policy.released(self.now, &id, self.now - enqueued);
        self.last = Some(id.clone());
        self.pass(Duration::from_millis(1));
        id.to_string()
    }

    pub(super) fn drain(&mut self) -> Vec<String> {
        let mut released = Vec::new();
        while !self.is_empty() {
            released.push(self.release());
        }
        released
    }

    pub(super) fn end(&mut self, flow: &str, prompt_tokens: u64, completion_tokens: u64) {
        let used = Used {
            prompt_tokens,
            completion_tokens,
        };
        self.policy.ended(self.now, &flow.into(), used);
    }

    fn refresh(&mut self, id: &Arc<str>) {
        let head = self.waiting.get(id).and_then(|requests| requests.first().copied());
        match (head, self.references.get(id).copied()) {
            (Some((head, head_enqueued)), None) => {
                let flow = ActiveFlow {
                    id: id.clone(),
                    head,
                    head_enqueued,
                };
                self.references.insert(id.clone(), self.active.insert(flow));
            }
            (Some((head, enqueued)), Some(flow)) => self.active.set_head(flow, head, enqueued),
            (None, Some(flow)) => {
                self.active.remove(flow);
                self.references.remove(id);
            }
            (None, None) => {}
        }
    }
}
