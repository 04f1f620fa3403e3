//! The KV cache: blocks, who holds them, and what they still remember (spec, simulator 15).
//!
//! A block that nobody holds is free, but keeps its contents and its name until it is given out again. Free blocks are
//! given out in the order in which they were freed, and the blocks of a sequence are freed last block first, so that
//! beginnings of prompts are remembered longest. A block has its name from the start of the step that fills it.

use super::config::InstanceConfig;
use super::event::CacheEvent;
use super::free_list::FreeList;
use super::names::BlockNames;

/// All KV blocks of an instance.
#[derive(Debug)]
pub(super) struct KvCache {
    block_tokens: u32,
    /// How many sequences hold each block.
    holders: Vec<u32>,
    free: FreeList,
    names: BlockNames,
    counts: KvCounts,
    /// A name that somebody waits for, until it is stored.
    awaited: Option<u64>,
    /// What changed since it was last asked for; `None` if nobody asks.
    changes: Option<Vec<CacheEvent>>,
}

/// What was asked of the cache so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KvCounts {
    /// Remembered blocks that were claimed.
    pub(super) hits: u64,
    /// Free blocks that were taken.
    pub(super) misses: u64,
    /// Requests for blocks that were refused.
    pub(super) failures: u64,
}

/// The blocks that one sequence holds, in the order of its tokens.
#[derive(Debug, Default)]
pub(super) struct BlockTable {
    blocks: Vec<u32>,
    /// How many of them, from the first on, are full and were offered for reuse.
    named: usize,
}

impl KvCache {
    pub(super) fn new(config: &InstanceConfig) -> Self {
        let count = config.kv_blocks.get();
        Self {
            block_tokens: config.block_tokens.get(),
            holders: vec![0; count as usize],
            free: FreeList::all(count),
            names: BlockNames::new(count),
            counts: KvCounts::default(),
            awaited: None,
            changes: None,
        }
    }

    pub(super) fn total(&self) -> u32 {
        u32::try_from(self.holders.len()).expect("the count of blocks came as a u32")
    }

    pub(super) fn used(&self) -> u32 {
        self.total() - self.free.len()
    }

    pub(super) fn counts(&self) -> KvCounts {
        self.counts
    }

    /// How many blocks at the start of `chain` are remembered.
    pub(super) fn cached_blocks(&self, chain: &[u64]) -> usize {
        chain.iter().take_while(|&&name| self.names.get(name).is_some()).count()
    }

    /// Fills `found` with the blocks at the start of `chain` that are remembered.
    pub(super) fn find(&self, chain: &[u64], found: &mut Vec<u32>) {
        found.clear();
        found.extend(chain.iter().map_while(|&name| self.names.get(name)));
    }

    /// Gives a new sequence the blocks for its first `tokens` tokens, of which those at the start were just
    /// [`found`](Self::find) by `chain`. Returns its table and how many tokens it is good for. `None` if there are too
    /// few free blocks; then nothing has changed.
    pub(super) fn begin(&mut self, chain: &[u64], found: &[u32], tokens: u32) -> Option<(BlockTable, u32)> {
        let revived = found.iter().filter(|&&block| self.holders[block as usize] == 0).count();
        let fresh = (tokens.div_ceil(self.block_tokens) as usize).saturating_sub(found.len());
        if revived + fresh > self.free.len() as usize {
            self.counts.failures += 1;
            return None;
        }
        for &block in found {
            let holders = &mut self.holders[block as usize];
            if *holders == 0 {
                self.free.remove(block);
            }
            *holders += 1;
        }
        self.counts.hits += found.len() as u64;
        let mut table = BlockTable {
            blocks: found.to_vec(),
            named: found.len(),
        };
        let covered = self.grow(&mut table, chain, tokens);
        Some((table, covered.expect("the free blocks were counted before")))
    }

    /// Makes room in `table` for the sequence's first `tokens` tokens, and returns how many tokens it is good for before
    /// the cache has to be asked again. `None` if there are too few free blocks; then nothing has changed.
    pub(super) fn grow(&mut self, table: &mut BlockTable, chain: &[u64], tokens: u32) -> Option<u32> {
        let wanted = tokens.div_ceil(self.block_tokens) as usize;
        let fresh = wanted.saturating_sub(table.blocks.len());
        if fresh > self.free.len() as usize {
            self.counts.failures += 1;
            return None;
        }
        for _ in 0..fresh {
            let block = self.free.pop_front().expect("the free blocks were counted before");
            self.forget(block);
            self.holders[block as usize] = 1;
            table.blocks.push(block);
        }
        self.counts.misses += fresh as u64;
        let full = ((tokens / self.block_tokens) as usize).min(chain.len());
        if table.named < full {
            let newly_full = table.named..full;
            for (&block, &name) in table.blocks[newly_full.clone()].iter().zip(&chain[newly_full]) {
                self.name(block, name);
            }
            table.named = full;
        }
        // The token that fills the last block gives it its name.
        Some(match tokens % self.block_tokens {
            0 => tokens,
            partial => tokens.saturating_add(self.block_tokens - 1 - partial),
        })
    }

    /// Takes back all blocks of a sequence.
    pub(super) fn release(&mut self, table: &mut BlockTable) {
        for block in std::mem::take(table).blocks.into_iter().rev() {
            let holders = &mut self.holders[block as usize];
            *holders -= 1;
            if *holders == 0 {
                self.free.push_back(block);
            }
        }
    }

    /// Whether so many fresh blocks would be refused, whatever else is needed beside them.
    pub(super) fn lacks(&self, fresh: u32) -> bool {
        fresh > self.free.len()
    }

    /// Counts a refusal that was known without asking.
    pub(super) fn count_failure(&mut self) {
        self.counts.failures += 1;
    }

    /// Watches for a block of this name, and for no other.
    pub(super) fn await_name(&mut self, name: Option<u64>) {
        self.awaited = name;
    }

    /// The name that is watched for, unless it was stored.
    pub(super) fn awaited(&self) -> Option<u64> {
        self.awaited
    }

    /// Records changes from now on.
    pub(super) fn watch(&mut self) {
        self.changes.get_or_insert_default();
    }

    /// Adds what changed since the last call to `events`.
    pub(super) fn drain_changes(&mut self, events: &mut Vec<CacheEvent>) {
        if let Some(changes) = &mut self.changes {
            events.append(changes);
        }
    }

    /// Offers a full block for reuse, unless another block has the same contents already.
    fn name(&mut self, block: u32, name: u64) {
        if self.names.insert(block, name) {
            if self.awaited == Some(name) {
                self.awaited = None;
            }
            if let Some(changes) = &mut self.changes {
                changes.push(CacheEvent::Stored(name));
            }
        }
    }

    fn forget(&mut self, block: u32) {
        if let (Some(name), Some(changes)) = (self.names.remove(block), &mut self.changes) {
            changes.push(CacheEvent::Removed(name));
        }
    }

    /// Forgets the contents of all blocks, which nobody holds any more.
    pub(super) fn forget_all(&mut self) {
        (0..self.total()).for_each(|block| self.forget(block));
        self.awaited = None;
    }

    /// Panics unless the blocks in `tables` and the free ones account for all blocks.
    #[cfg(test)]
    pub(super) fn assert_conserved<'a>(&self, tables: impl Iterator<Item = &'a BlockTable>) {
        let mut holders = vec![0; self.holders.len()];
        for &block in tables.flat_map(|table| &table.blocks) {
            holders[block as usize] += 1;
        }
        assert_eq!(self.holders, holders);
        for (block, name) in self.names.iter() {
            assert_eq!(self.names.get(name), Some(block));
        }
        let held = holders.iter().filter(|&&holders| holders > 0).count();
        assert_eq!(held + self.free.len() as usize, self.holders.len());
        assert_eq!(held, self.used() as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn cache(blocks: u32) -> KvCache {
        KvCache::new(&InstanceConfig {
            block_tokens: NonZeroU32::new(4).unwrap(),
            kv_blocks: NonZeroU32::new(blocks).unwrap(),
            ..InstanceConfig::default()
        })
    }

    fn begin(kv: &mut KvCache, chain: &[u64], tokens: u32) -> Option<BlockTable> {
        let mut found = Vec::new();
        kv.find(chain, &mut found);
        kv.begin(chain, &found, tokens).map(|(table, _)| table)
    }

    #[test]
    fn a_released_prefix_is_remembered_and_held_once_by_each_who_shares_it() {
        let mut kv = cache(8);
        let chain = [1, 2, 3];
        let mut first = begin(&mut kv, &chain, 12).unwrap();
        kv.release(&mut first);

        let cached = kv.cached_blocks(&chain);
        let second = begin(&mut kv, &chain, 12).unwrap();
        let third = begin(&mut kv, &chain, 13).unwrap();

        assert_eq!(cached, 3);
        assert_eq!(kv.used(), 4);
        kv.assert_conserved([&second, &third].into_iter());
    }

    #[test]
    fn the_end_of_a_prefix_is_forgotten_before_its_beginning() {
        let mut kv = cache(4);
        let mut first = begin(&mut kv, &[1, 2, 3, 4], 16).unwrap();
        kv.release(&mut first);

        let other = begin(&mut kv, &[9], 4).unwrap();

        assert_eq!(kv.cached_blocks(&[1, 2, 3, 4]), 3);
        kv.assert_conserved([&other].into_iter());
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut kv = cache(4);
        let mut first = begin(&mut kv, &[1, 2], 8).unwrap();

        assert!(begin(&mut kv, &[7, 8, 9], 12).is_none());
        assert!(kv.grow(&mut first, &[1, 2], 17).is_none());

        assert_eq!(kv.used(), 2);
        kv.assert_conserved([&first].into_iter());
    }

    #[test]
    fn remembered_blocks_that_nobody_holds_count_against_the_free_ones() {
        let mut kv = cache(4);
        let mut first = begin(&mut kv, &[1, 2], 8).unwrap();
        kv.release(&mut first);
        let held = begin(&mut kv, &[5], 4).unwrap();

        let refused = begin(&mut kv, &[1, 2], 16);

        assert!(
            refused.is_none(),
            "two remembered and two fresh blocks do not fit into three free ones"
        );
        kv.assert_conserved([&held].into_iter());
    }
}
