//! The sequences that wait for a place in the batch.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use super::sequence::Sequence;
use crate::engine::request::RequestId;

/// First come, first served; with a bound.
#[derive(Debug)]
pub(super) struct WaitQueue {
    limit: usize,
    waiting: VecDeque<Sequence>,
}

impl WaitQueue {
    pub(super) fn new(limit: NonZeroU32) -> Self {
        Self {
            limit: limit.get() as usize,
            waiting: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < self.limit
    }

    pub(super) fn push_back(&mut self, sequence: Sequence) {
        self.waiting.push_back(sequence);
    }

    /// Takes back a preempted sequence, ahead of all others. The bound is for those that arrive; these were let in.
    pub(super) fn push_front(&mut self, sequence: Sequence) {
        self.waiting.push_front(sequence);
    }

    /// The sequence at position `at`, the head being 0.
    pub(super) fn peek(&self, at: usize) -> Option<&Sequence> {
        self.waiting.get(at)
    }

    pub(super) fn take(&mut self, at: usize) -> Option<Sequence> {
        self.waiting.remove(at)
    }

    pub(super) fn take_id(&mut self, id: RequestId) -> Option<Sequence> {
        let at = self.waiting.iter().position(|sequence| sequence.request.id == id)?;
        self.take(at)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.waiting.iter()
    }
}
