//! What is to happen, in the order in which it happens (spec, simulator 4).

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// Bits of an entry's place for its class, and for its number: enough for two million million events.
const CLASS_BITS: u32 = 3;
const NUMBER_BITS: u32 = 41;
/// The lane after those of the gateway and of all instances.
const LAST_LANE: u32 = u32::MAX >> (CLASS_BITS + NUMBER_BITS - u32::BITS);

/// The most instances that a cluster can have.
pub const MAX_INSTANCES: u32 = LAST_LANE - 1;

/// Something that happens at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The gateway decides whether to let the request in.
    Admission(u32),
    /// The gateway asked to be called.
    GatewayTimer,
    /// Requests wait at the gateway, and newer signals of the instances are to be had.
    Refresh,
    /// A request reaches its instance.
    Reaches {
        /// The instance.
        instance: u32,
        /// The request.
        request: u32,
    },
    /// A request enters the queue of its instance.
    Queues {
        /// The instance.
        instance: u32,
        /// The request.
        request: u32,
    },
    /// The step of an instance ends.
    StepEnds(u32),
    /// An instance may begin a step.
    StepBegins(u32),
    /// A fault of an instance begins.
    FaultBegins {
        /// The instance.
        instance: u32,
        /// The fault, by its place in the scenario.
        fault: u32,
    },
    /// A fault of an instance is over.
    FaultEnds {
        /// The instance.
        instance: u32,
        /// The fault, by its place in the scenario.
        fault: u32,
    },
    /// The client of a request gives up.
    GivesUp(u32),
}

impl Event {
    /// Where it happens: what happens in an earlier lane comes first. The gateway comes before all instances, and these
    /// come by index. Clients give up last: an answer that comes in the same moment is in time.
    fn lane(self) -> u32 {
        match self {
            Self::Admission(_) | Self::GatewayTimer | Self::Refresh => 0,
            Self::Reaches { instance, .. } | Self::Queues { instance, .. } => instance + 1,
            Self::StepEnds(instance) | Self::StepBegins(instance) => instance + 1,
            Self::FaultBegins { instance, .. } | Self::FaultEnds { instance, .. } => instance + 1,
            Self::GivesUp(_) => LAST_LANE,
        }
    }

    /// What comes first of the same moment and lane. A step ends before requests reach the instance, so that those that
    /// its end lets in can be in the next batch. An instance is well again before anything else happens there, and fails
    /// after everything else.
    fn class(self) -> u8 {
        match self {
            Self::FaultEnds { .. } => 0,
            Self::Admission(_) | Self::StepEnds(_) => 1,
            Self::Reaches { .. } | Self::GatewayTimer => 2,
            Self::Queues { .. } | Self::Refresh => 3,
            Self::StepBegins(_) => 4,
            Self::FaultBegins { .. } => 5,
            Self::GivesUp(_) => 6,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    at_us: u64,
    /// Its lane, class and number among all entries, the most significant first.
    place: u64,
    event: Event,
}

impl Entry {
    fn new(at_us: u64, event: Event, number: u64) -> Self {
        let lane = u64::from(event.lane()) << (CLASS_BITS + NUMBER_BITS);
        let class = u64::from(event.class()) << NUMBER_BITS;
        Self {
            at_us,
            place: lane | class | number,
            event,
        }
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_us, self.place).cmp(&(other.at_us, other.place))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Everything that is to happen.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    added: u64,
}

impl Agenda {
    /// Adds something that happens at `at_us`. Of two equals in every other respect, the one added first comes first.
    pub(super) fn add(&mut self, at_us: u64, event: Event) {
        self.heap.push(Reverse(Entry::new(at_us, event, self.added)));
        self.added += 1;
    }

    /// When the next thing happens.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at_us)
    }

    /// Takes out the next thing that happens.
    pub(super) fn take(&mut self) -> Option<(u64, Event)> {
        let Reverse(entry) = self.heap.pop()?;
        Some((entry.at_us, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(events: &[(u64, Event)]) -> Vec<(u64, Event)> {
        let mut agenda = Agenda::default();
        events.iter().for_each(|&(at, event)| agenda.add(at, event));
        std::iter::from_fn(|| agenda.take()).collect()
    }

    #[test]
    fn the_gateway_comes_before_the_instances_and_these_come_by_index() {
        let taken = order(&[
            (5, Event::GivesUp(0)),
            (5, Event::StepEnds(1)),
            (5, Event::StepEnds(0)),
            (5, Event::Admission(7)),
            (4, Event::StepEnds(9)),
        ]);

        let expected = [
            (4, Event::StepEnds(9)),
            (5, Event::Admission(7)),
            (5, Event::StepEnds(0)),
            (5, Event::StepEnds(1)),
            (5, Event::GivesUp(0)),
        ];
        assert_eq!(taken, expected);
    }

    #[test]
    fn whoever_reaches_an_instance_when_its_step_ends_can_be_in_the_next_one() {
        let reaches = Event::Reaches {
            instance: 3,
            request: 1,
        };
        let queues = Event::Queues {
            instance: 3,
            request: 1,
        };
        let taken = order(&[
            (1, Event::StepBegins(3)),
            (1, queues),
            (1, reaches),
            (1, Event::StepEnds(3)),
        ]);

        let expected = [
            (1, Event::StepEnds(3)),
            (1, reaches),
            (1, queues),
            (1, Event::StepBegins(3)),
        ];
        assert_eq!(taken, expected);
    }

    #[test]
    fn a_fault_comes_last_of_its_moment_and_its_end_first() {
        let (instance, fault) = (3, 0);
        let queues = Event::Queues { instance, request: 1 };
        let taken = order(&[
            (1, Event::FaultBegins { instance, fault }),
            (1, Event::StepBegins(instance)),
            (1, queues),
            (1, Event::FaultEnds { instance, fault }),
        ]);

        let expected = [
            (1, Event::FaultEnds { instance, fault }),
            (1, queues),
            (1, Event::StepBegins(instance)),
            (1, Event::FaultBegins { instance, fault }),
        ];
        assert_eq!(taken, expected);
    }

    #[test]
    fn equals_come_in_the_order_in_which_they_were_added() {
        let taken = order(&[(1, Event::Admission(2)), (1, Event::Admission(1))]);

        assert_eq!(taken, [(1, Event::Admission(2)), (1, Event::Admission(1))]);
    }
}
