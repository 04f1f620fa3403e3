//! The LoRA adapters of the running sequences.

use std::sync::Arc;

/// Counts the running sequences of each adapter, of which so many may be different.
#[derive(Debug)]
pub(super) struct Adapters {
    limit: usize,
    /// Few, so that looking through them is quick.
    running: Vec<(Arc<str>, u32)>,
}

impl Adapters {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit: limit as usize,
            running: Vec::new(),
        }
    }

    /// Whether a sequence with this adapter may run beside the others.
    pub(super) fn have_room(&self, adapter: Option<&Arc<str>>) -> bool {
        adapter.is_none_or(|adapter| self.running.len() < self.limit || self.position(adapter).is_some())
    }

    pub(super) fn enter(&mut self, adapter: Option<&Arc<str>>) {
        let Some(adapter) = adapter else { return };
        match self.position(adapter) {
            Some(at) => self.running[at].1 += 1,
            None => self.running.push((adapter.clone(), 1)),
        }
    }

    pub(super) fn leave(&mut self, adapter: Option<&Arc<str>>) {
        let Some(at) = adapter.and_then(|adapter| self.position(adapter)) else {
            return;
        };
        self.running[at].1 -= 1;
        if self.running[at].1 == 0 {
            self.running.swap_remove(at);
        }
    }

    /// How many run of each.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(Arc<str>, u32)> {
        self.running.iter()
    }

    fn position(&self, adapter: &Arc<str>) -> Option<usize> {
        self.running.iter().position(|(running, _)| running == adapter)
    }
}
