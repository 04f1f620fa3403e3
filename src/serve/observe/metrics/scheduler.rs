//! Families about the engine's own time.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{Histogram, HistogramVec, Registry};

use super::series::{Extra, Key, Measure, SeriesTable};
use super::{family, flow};
use crate::engine::outcome::{Outcome, Refusal};
use crate::engine::scheduling::{ExtensionPoint, PluginName, Probe};
use crate::engine::time::Timestamp;
use crate::serve::clock::Clock;

/// Measures decisions and the plugins in them.
#[derive(Debug)]
pub struct SchedulerProbe {
    clock: Clock,
    cycles: Histogram,
    plugins: HistogramVec,
    /// The series of the plugins seen so far: a few, found by comparing pointers.
    known: Vec<(ExtensionPoint, PluginName, Histogram)>,
    cycle_began: Timestamp,
    plugin_began: Timestamp,
    dispatches: Histogram,
    /// Of the pool, if requests may wait.
    confirmations: Option<Histogram>,
    flow_began: Timestamp,
    series: Arc<Mutex<SeriesTable>>,
}

impl SchedulerProbe {
    pub(super) fn register(
        registry: &Registry,
        clock: Clock,
        series: Arc<Mutex<SeriesTable>>,
        flow_control: Option<&str>,
    ) -> prometheus::Result<Self> {
        let no_labels: &[&str] = &[];
        Ok(Self {
            clock,
            cycles: family::SCHEDULER_DURATION
                .histogram(registry)?
                .with_label_values(no_labels),
            plugins: family::PLUGIN_DURATION.histogram(registry)?,
            known: Vec::new(),
            cycle_began: Timestamp::ZERO,
            plugin_began: Timestamp::ZERO,
            dispatches: family::DISPATCH_DURATION
                .histogram(registry)?
                .with_label_values(no_labels),
            confirmations: match flow_control {
                Some(pool) => {
                    let family = family::REVOCATION_CONFIRMATION.histogram(registry)?;
                    Some(family.with_label_values(&[pool]))
                }
                None => None,
            },
            flow_began: Timestamp::ZERO,
            series,
        })
    }

    fn series(&mut self, point: ExtensionPoint, plugin: &PluginName) -> &Histogram {
        let is_known = |(p, name, _): &(ExtensionPoint, PluginName, Histogram)| {
            *p == point && Arc::ptr_eq(&name.name, &plugin.name)
        };
        let at = self.known.iter().position(is_known).unwrap_or_else(|| {
            let labels = [point.name(), plugin.type_name, &*plugin.name];
            let series = self.plugins.with_label_values(&labels);
            // After a change of plan, the plugins of the former one are never met again.
            self.known.retain(|(_, name, _)| Arc::strong_count(&name.name) > 1);
            self.known.push((point, plugin.clone(), series));
            self.known.len() - 1
        });
        &self.known[at].2
    }
}

impl Probe for SchedulerProbe {
    fn enqueue_begins(&mut self) {
        self.flow_began = self.clock.now();
    }

    fn enqueue_ended(&mut self, fairness_id: &Arc<str>, priority: i32, refusal: Option<Refusal>) {
        let now = self.clock.now();
        let outcome = refusal.map_or(Some(flow::WAITING), |refusal| {
            flow::outcome_of(Outcome::Refused(refusal), None)
        });
        let enqueues = Key::Enqueues {
            fairness_id: fairness_id.clone(),
            priority,
        };
        let (outcome, took) = (Extra::Word(outcome.unwrap_or_default()), now.since(self.flow_began));
        let mut series = self.series.lock();
        series
            .row(now, enqueues)
            .observe(Measure::EnqueueDuration, outcome, took.as_secs_f64());
    }

    fn revocation_confirmed(&mut self, took: Duration) {
        if let Some(confirmations) = &self.confirmations {
            confirmations.observe(took.as_secs_f64());
        }
    }

    fn dispatch_begins(&mut self) {
        self.flow_began = self.clock.now();
    }

    fn dispatch_ended(&mut self) {
        let took = self.clock.now().since(self.flow_began);
        self.dispatches.observe(took.as_secs_f64());
    }

    fn cycle_begins(&mut self) {
        self.cycle_began = self.clock.now();
    }

    fn cycle_ended(&mut self) {
        let took = self.clock.now().since(self.cycle_began);
        self.cycles.observe(took.as_secs_f64());
    }

    fn begins(&mut self) {
        self.plugin_began = self.clock.now();
    }

    fn ended(&mut self, point: ExtensionPoint, plugin: &PluginName) {
        let took = self.clock.now().since(self.plugin_began);
        self.series(point, plugin).observe(took.as_secs_f64());
    }
}
