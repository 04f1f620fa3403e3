//! Which endpoint has cached which block, as the endpoints themselves tell.

use rustc_hash::FxHashSet;

use super::super::pool::Slot;
use super::holders::{HeldBlocks, Matching};
use super::{IndexLimits, PromptBlocks};

/// The caches of all endpoints, as far as they told of them. One block more or less costs the same however many there
/// are.
///
/// Beyond the bound nothing more is taken in: a block that is stored then counts as not cached, until it is stored again
/// after others were removed.
#[derive(Debug, Default)]
pub struct CacheIndex {
    limits: IndexLimits,
    blocks: HeldBlocks,
    /// What each endpoint has cached, by slot.
    cached: Vec<FxHashSet<u64>>,
    len: usize,
}

impl CacheIndex {
    /// An index of caches that are all empty.
    pub fn new(limits: IndexLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Cached blocks that are known, counted once for each endpoint that has them.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if no cached block is known.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The endpoint in `slot` has the block from now on. That it has it already may be told again.
    pub fn stored(&mut self, slot: Slot, hash: u64) {
        if self.len >= self.limits.total_blocks {
            return;
        }
        if self.cached.len() <= slot.index() {
            self.cached.resize_with(slot.index() + 1, FxHashSet::default);
        }
        if self.cached[slot.index()].insert(hash) {
            self.blocks.insert(hash, slot);
            self.len += 1;
        }
    }

    /// The endpoint in `slot` does not have the block any more. Nothing happens if it had not.
    pub fn removed(&mut self, slot: Slot, hash: u64) {
        let cached = self.cached.get_mut(slot.index());
        if cached.is_some_and(|cached| cached.remove(&hash)) {
            self.blocks.remove(hash, slot);
            self.len -= 1;
        }
    }

    /// Forgets an endpoint that left the pool.
    pub fn forget(&mut self, slot: Slot) {
        let Some(cached) = self.cached.get_mut(slot.index()).map(std::mem::take) else {
            return;
        };
        self.len -= cached.len();
        #[expect(clippy::iter_over_hash_type, reason = "what is forgotten first does not show")]
        for hash in cached {
            self.blocks.remove(hash, slot);
        }
    }

    /// Counts, for each slot, the full blocks at the start of the prompts that its endpoint has cached. `matched` gets a
    /// place for each slot below `slots`.
    pub fn matches(&mut self, blocks: &PromptBlocks, slots: usize, matched: &mut Vec<u32>) {
        self.blocks.matches(Matching::Leading, blocks, slots, matched);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(index: &mut CacheIndex, chain: &[u64]) -> [u32; 3] {
        let mut matched = Vec::new();
        index.matches(&PromptBlocks::from_chain(16, chain.to_vec()), 3, &mut matched);
        matched.try_into().unwrap()
    }

    #[test]
    fn blocks_count_from_the_first_to_the_first_that_is_not_cached() {
        let mut index = CacheIndex::default();
        [1, 2, 3].into_iter().for_each(|hash| index.stored(Slot(0), hash));
        [1, 3].into_iter().for_each(|hash| index.stored(Slot(1), hash));
        [2, 3].into_iter().for_each(|hash| index.stored(Slot(2), hash));

        assert_eq!(matches(&mut index, &[1, 2, 3, 4]), [3, 1, 0]);
        index.removed(Slot(0), 2);
        assert_eq!(matches(&mut index, &[1, 2, 3, 4]), [1, 1, 0]);
    }

    #[test]
    fn beyond_the_bound_nothing_is_taken_in_until_there_is_room() {
        let mut index = CacheIndex::new(IndexLimits { total_blocks: 2 });
        [1, 2, 3].into_iter().for_each(|hash| index.stored(Slot(0), hash));

        assert_eq!((index.len(), matches(&mut index, &[1, 2, 3])), (2, [2, 0, 0]));
        index.removed(Slot(0), 1);
        index.stored(Slot(1), 3);
        assert_eq!((index.len(), matches(&mut index, &[3])), (2, [0, 1, 0]));
    }

    #[test]
    fn an_endpoint_that_left_has_nothing_cached() {
        let mut index = CacheIndex::default();
        index.stored(Slot(0), 1);
        index.stored(Slot(1), 1);
        index.forget(Slot(0));
        index.forget(Slot(2));

        assert_eq!((index.len(), matches(&mut index, &[1])), (1, [0, 1, 0]));
    }

    proptest! {
        /// Against a list of pairs.
        #[test]
        fn the_index_agrees_with_a_plain_list(
            steps in proptest::collection::vec((0_u32..3, 0_u64..6, 0_u8..8), 1..80),
        ) {
            let mut index = CacheIndex::default();
            let mut model: Vec<(u32, u64)> = Vec::new();
            for (slot, hash, what) in steps {
                match what {
                    0 => {
                        index.forget(Slot(slot));
                        model.retain(|&(s, _)| s != slot);
                    }
                    1..=2 => {
                        index.removed(Slot(slot), hash);
                        model.retain(|&pair| pair != (slot, hash));
                    }
                    _ => {
                        index.stored(Slot(slot), hash);
                        model.retain(|&pair| pair != (slot, hash));
                        model.push((slot, hash));
                    }
                }
                let expected = [0, 1, 2].map(|s| (0..6).take_while(|&h| model.contains(&(s, h))).count() as u32);

                prop_assert_eq!(matches(&mut index, &[0, 1, 2, 3, 4, 5]), expected);
                prop_assert_eq!(index.len(), model.len());
            }
        }
    }
}
