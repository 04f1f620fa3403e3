//! The order of the wait queue, and who loses its place when KV blocks run out (spec, simulator 14).

use std::fmt;
use std::str::FromStr;

use slab::Slab;

use super::sequence::{Member, Sequence, SequenceRequest};

/// The order in which sequences leave the wait queue. Those that are alike in it go by arrival, then by id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheduler {
    /// First come, first served. A preempted sequence comes before all others.
    #[default]
    Fcfs,
    /// The most urgent first.
    PriorityFcfs,
    /// The shortest prompt first.
    Sjf,
    /// The least urgent first. Nobody wants this; it shows what a wrong order costs.
    ReversePriority,
}

/// Who is evicted when a running sequence finds no free KV block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreemptionPolicy {
    /// The one that was admitted last.
    #[default]
    Fcfs,
    /// The least urgent, of those the one that arrived last, and of those the one that was admitted last.
    Priority,
}

/// There is no policy of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{found}`; known: {known}")]
pub struct UnknownPolicy {
    what: &'static str,
    found: String,
    known: String,
}

// === impl Scheduler ===

impl Scheduler {
    /// Every scheduler, the default first.
    pub const ALL: [Self; 4] = [Self::Fcfs, Self::PriorityFcfs, Self::Sjf, Self::ReversePriority];

    /// Its name in flags.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::PriorityFcfs => "priority-fcfs",
            Self::Sjf => "sjf",
            Self::ReversePriority => "reverse-priority",
        }
    }

    /// What decides before arrival and id do; smaller is earlier. `None` if the order is that of coming.
    pub(super) fn rank(self, request: &SequenceRequest) -> Option<i64> {
        match self {
            Self::Fcfs => None,
            Self::PriorityFcfs => Some(request.priority.into()),
            Self::Sjf => Some(request.prompt_tokens.into()),
            Self::ReversePriority => Some(-i64::from(request.priority)),
        }
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scheduler {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        named("scheduler", &Self::ALL, Self::name, text)
    }
}

// === impl PreemptionPolicy ===

impl PreemptionPolicy {
    /// Every policy, the default first.
    pub const ALL: [Self; 2] = [Self::Fcfs, Self::Priority];

    /// Its name in flags.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fcfs => "fcfs",
            Self::Priority => "priority",
        }
    }

    /// The position of the victim in `running`, which is in the order of admission and not empty.
    pub(super) fn victim(self, running: &[Member], sequences: &Slab<Sequence>) -> usize {
        let last = running.len() - 1;
        match self {
            Self::Fcfs => last,
            Self::Priority => {
                let precedence = |at: &usize| {
                    let request = &sequences[running[*at].slot].request;
                    (request.priority, request.arrival)
                };
                // Of equal ones the later position is taken.
                (0..running.len()).max_by_key(precedence).unwrap_or(last)
            }
        }
    }
}

impl fmt::Display for PreemptionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PreemptionPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        named("preemption policy", &Self::ALL, Self::name, text)
    }
}

fn named<P: Copy>(what: &'static str, all: &[P], name: fn(P) -> &'static str, text: &str) -> Result<P, UnknownPolicy> {
    let found = all.iter().copied().find(|&policy| name(policy) == text);
    found.ok_or_else(|| UnknownPolicy {
        what,
        found: text.to_owned(),
        known: all.iter().map(|&policy| name(policy)).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_its_name_and_unknown_ones_are_told_the_known() {
        for scheduler in Scheduler::ALL {
            assert_eq!(scheduler.to_string().parse(), Ok(scheduler));
        }
        for policy in PreemptionPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }

        let error = "lifo".parse::<PreemptionPolicy>().unwrap_err();

        assert_eq!(
            error.to_string(),
            "unknown preemption policy `lifo`; known: fcfs, priority"
        );
    }
}
