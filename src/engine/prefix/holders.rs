//! The endpoints that hold a block, and who holds how much of a chain of blocks.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::super::pool::Slot;
use super::PromptBlocks;

/// What counts of a prompt, and what of it an endpoint must hold for a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    /// Every block counts, also one that is not full. A chain is followed for as long as any endpoint holds the next
    /// block, and an endpoint that lacks a block in the middle still counts for the ones behind it, as in the reference
    /// (spec, scheduling 9.2).
    Anywhere,
    /// Full blocks count, from the first one to the first that the endpoint lacks (spec, simulator 10.5).
    Leading,
}

impl Matching {
    /// The chains of the blocks that count.
    pub fn chains(self, blocks: &PromptBlocks) -> impl Iterator<Item = &[u64]> {
        blocks.chains_to(match self {
            Self::Anywhere => |chain| chain.end,
            Self::Leading => |chain| chain.full_end,
        })
    }

    /// How many blocks count.
    pub fn total(self, blocks: &PromptBlocks) -> u32 {
        let total: usize = self.chains(blocks).map(<[u64]>::len).sum();
        u32::try_from(total).unwrap_or(u32::MAX)
    }
}

/// Blocks, and for each the slots of the endpoints that hold it.
#[derive(Debug, Default)]
pub(super) struct HeldBlocks {
    holders: FxHashMap<u64, Bits>,
    /// Those who hold the chain at hand so far. Kept for its space.
    still: Vec<u64>,
}

/// Slots, one bit each.
type Bits = SmallVec<[u64; 2]>;

impl HeldBlocks {
    /// Notes that the endpoint in `slot` holds a block.
    pub(super) fn insert(&mut self, hash: u64, slot: Slot) {
        let bits = self.holders.entry(hash).or_default();
        let word = slot.index() / 64;
        if bits.len() <= word {
            bits.resize(word + 1, 0);
        }
        bits[word] |= 1 << (slot.0 % 64);
    }

    /// Notes that the endpoint in `slot`, which held a block, does not any more.
    pub(super) fn remove(&mut self, hash: u64, slot: Slot) {
        let Some(bits) = self.holders.get_mut(&hash) else {
            return;
        };
        if let Some(word) = bits.get_mut(slot.index() / 64) {
            *word &= !(1 << (slot.0 % 64));
        }
        while bits.last() == Some(&0) {
            bits.pop();
        }
        if bits.is_empty() {
            self.holders.remove(&hash);
        }
    }

    /// Counts, for each slot, the blocks of the prompts that its endpoint holds. `matched` gets a place for each slot
    /// below `slots`.
    pub(super) fn matches(&mut self, matching: Matching, blocks: &PromptBlocks, slots: usize, matched: &mut Vec<u32>) {
        matched.clear();
        matched.resize(slots, 0);
        for chain in matching.chains(blocks) {
            match matching {
                Matching::Anywhere => self.anywhere(chain, matched),
                Matching::Leading => self.leading(chain, matched),
            }
        }
    }

    fn anywhere(&self, chain: &[u64], matched: &mut [u32]) {
        // Neighbouring blocks mostly have the same holders: count such a run at once.
        let (mut run, mut length) = (&[] as &[u64], 0);
        for hash in chain {
            let Some(holders) = self.holders.get(hash) else { break };
            if holders.as_slice() != run {
                count(run.iter().copied(), length, matched);
                (run, length) = (holders, 0);
            }
            length += 1;
        }
        count(run.iter().copied(), length, matched);
    }

    fn leading(&mut self, chain: &[u64], matched: &mut [u32]) {
        let Self { holders, still } = self;
        let Some(first) = chain.first().and_then(|hash| holders.get(hash)) else {
            return;
        };
        still.clear();
        still.extend_from_slice(first);
        let mut length = 1;
        for hash in &chain[1..] {
            let next = holders.get(hash).map_or(&[] as &[u64], |bits| bits);
            let next = next.iter().copied().chain(std::iter::repeat(0));
            count(
                still.iter().zip(next.clone()).map(|(still, next)| still & !next),
                length,
                matched,
            );
            still.iter_mut().zip(next).for_each(|(still, next)| *still &= next);
            if still.iter().all(|&word| word == 0) {
                return;
            }
            length += 1;
        }
        count(still.iter().copied(), length, matched);
    }
}

/// Adds `times` for each slot in `holders`.
fn count(holders: impl Iterator<Item = u64>, times: u32, matched: &mut [u32]) {
    for (word, mut bits) in holders.enumerate() {
        while bits != 0 {
            let slot = word * 64 + bits.trailing_zeros() as usize;
            if let Some(matched) = matched.get_mut(slot) {
                *matched += times;
            }
            bits &= bits - 1;
        }
    }
}
