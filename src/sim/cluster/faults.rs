//! Instances that fail for a time, so that it can be seen what policies make of that.

use super::Scenario;

/// What is wrong with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Its process has ended. What it works on fails, connections are refused, so are scrapes, and its cache is lost.
    Dead,
    /// Its process stands still. Requests and scrapes that reach it wait, and go on with it.
    Hung,
    /// It answers each request that reaches it with an error. Its metrics can be read, and what it works on goes on.
    Failing,
}

impl FaultKind {
    /// Every kind, in the order of this page.
    pub const ALL: [Self; 3] = [Self::Dead, Self::Hung, Self::Failing];

    /// A stable name for flags and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Hung => "hung",
            Self::Failing => "failing",
        }
    }
}

/// A fault of one instance. Times are microseconds from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The instance, by index.
    pub instance: u32,
    /// What is wrong.
    pub kind: FaultKind,
    /// When it begins: after everything else of that moment.
    pub from_us: u64,
    /// When it is over: before everything else of that moment. `None` if it lasts to the end of the run. Above `from_us`.
    pub until_us: Option<u64>,
}

/// The faults of a run, and which of them are there. Those of one instance do not overlap.
#[derive(Debug)]
pub(super) struct Faults {
    all: Vec<Fault>,
    /// The fault that each instance has.
    present: Vec<Option<usize>>,
}

impl Faults {
    /// # Panics
    ///
    /// If a fault is of an instance that is not there.
    pub(super) fn of(scenario: &Scenario) -> Self {
        let instances = scenario.instances;
        assert!(
            scenario.faults.iter().all(|fault| fault.instance < instances),
            "faults are of instances"
        );
        Self {
            all: scenario.faults.clone(),
            present: vec![None; instances as usize],
        }
    }

    pub(super) fn begins(&mut self, fault: u32) -> Fault {
        let found = self.all[fault as usize];
        let before = self.present[found.instance as usize].replace(fault as usize);
        assert_eq!(before, None, "faults of an instance do not overlap");
        found
    }

    pub(super) fn ends(&mut self, fault: u32) {
        self.present[self.all[fault as usize].instance as usize] = None;
    }

    /// What is wrong with an instance.
    pub(super) fn at(&self, instance: u32) -> Option<&Fault> {
        self.present[instance as usize].map(|fault| &self.all[fault])
    }

    pub(super) fn kind_at(&self, instance: u32) -> Option<FaultKind> {
        self.at(instance).map(|fault| fault.kind)
    }
}
