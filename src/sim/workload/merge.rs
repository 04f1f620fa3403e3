//! The requests of many clients in the order in which they arrive.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::opening::{Opening, Openings};
use super::stream::{RateStream, Sessions, User};

/// One client, or one user of a client.
#[derive(Debug)]
pub(super) enum Source {
    Rate(Box<RateStream>),
    User(Option<User>),
}

impl Source {
    fn next_at(&self) -> Option<u64> {
        match self {
            Self::Rate(stream) => stream.next_at(),
            Self::User(user) => user.as_ref().map(|user| user.at_us),
        }
    }

    fn take(&mut self, sessions: &mut Sessions) -> Option<Opening> {
        match self {
            Self::Rate(stream) => stream.take(sessions),
            Self::User(user) => user.take().map(|user| user.take(sessions)),
        }
    }
}

/// The requests of many clients. Of two that arrive at once, that of the earlier client comes first, as if the requests
/// of all had been laid one after the other and sorted.
#[derive(Debug)]
pub(super) struct Merge {
    sources: Vec<Source>,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    sessions: Sessions,
}

impl Merge {
    pub(super) fn new(sources: Vec<Source>, sessions: Sessions) -> Self {
        let times = sources.iter().enumerate();
        let next = times
            .filter_map(|(at, source)| Some(Reverse((source.next_at()?, at))))
            .collect();
        Self {
            sources,
            next,
            sessions,
        }
    }
}

impl Openings for Merge {
    fn next_at(&self) -> Option<u64> {
        self.next.peek().map(|Reverse((at_us, _))| *at_us)
    }

    fn take(&mut self) -> Option<Opening> {
        let Reverse((_, at)) = self.next.pop()?;
        let source = &mut self.sources[at];
        let opening = source.take(&mut self.sessions);
        if let Some(next) = source.next_at() {
            self.next.push(Reverse((next, at)));
        }
        opening
    }
}
