//! Who served which block.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::super::pool::Slot;
use super::PromptBlocks;

/// Bounds of a [`PrefixIndex`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLimits {
    /// Blocks remembered of all endpoints together. One costs about 60 bytes. When endpoints come and this would be
    /// passed, each keeps an equal share of it: the blocks that it used last.
    pub total_blocks: usize,
}

impl Default for IndexLimits {
    /// Four million blocks, about 240 MB when full.
    fn default() -> Self {
        Self {
            total_blocks: 4_000_000,
        }
    }
}

/// An approximate picture of the prefix caches of all endpoints: for each, the blocks that it served last.
#[derive(Debug)]
pub struct PrefixIndex {
    limits: IndexLimits,
    holders: FxHashMap<u64, Holders>,
    caches: Vec<Option<Recent>>,
    tracked: usize,
    len: usize,
}

impl PrefixIndex {
    /// An index that remembers nothing yet.
    pub fn new(limits: IndexLimits) -> Self {
        Self {
            limits,
            holders: FxHashMap::default(),
            caches: Vec::new(),
            tracked: 0,
            len: 0,
        }
    }

    /// Blocks remembered, counted once for each endpoint that holds them.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Counts, for each slot, the blocks of the prompts that its endpoint holds.
    ///
    /// A chain is followed for as long as any endpoint holds the next block. An endpoint that lacks a block in the
    /// middle still counts for the ones behind it, as in the reference (spec, scheduling 9.2).
    /// `matched` gets a place for each slot below `slots`.
    pub fn matches(&self, blocks: &PromptBlocks, slots: usize, matched: &mut Vec<u32>) {
        matched.clear();
        matched.resize(slots, 0);
        let mut count = |holders: &[u64], times: u32| {
            for (word, &bits) in holders.iter().enumerate() {
                let mut bits = bits;
                while bits != 0 {
                    let slot = word * 64 + bits.trailing_zeros() as usize;
                    if let Some(matched) = matched.get_mut(slot) {
                        *matched += times;
                    }
                    bits &= bits - 1;
                }
            }
        };
        for chain in blocks.chains() {
            // Neighbouring blocks mostly have the same holders: count such a run at once.
            let (mut run, mut length) = (&[] as &[u64], 0);
            for hash in chain {
                let Some(holders) = self.holders.get(hash) else { break };
                if holders.as_slice() != run {
                    count(run, length);
                    (run, length) = (holders, 0);
                }
                length += 1;
            }
            count(run, length);
        }
    }

    /// Notes that the endpoint in `slot` serves these blocks. `capacity` bounds the blocks remembered of it, and counts
    /// only when it is seen for the first time.
    pub fn record(&mut self, slot: Slot, blocks: &PromptBlocks, capacity: usize) {
        self.track(slot, capacity);
        let bound = self.bound(slot);
        let Self {
            holders, caches, len, ..
        } = self;
        let recent = caches[slot.index()].as_mut().expect("the slot is tracked");
        for &hash in blocks.hashes() {
            if recent.touch(hash) {
                continue;
            }
            while recent.len() >= bound {
                drop_oldest(recent, slot, holders);
                *len -= 1;
            }
            recent.insert(hash);
            insert_bit(holders.entry(hash).or_default(), slot);
            *len += 1;
        }
    }

    /// Forgets an endpoint that left the pool.
    pub fn forget(&mut self, slot: Slot) {
        let Some(recent) = self.caches.get_mut(slot.index()).and_then(Option::take) else {
            return;
        };
        self.tracked -= 1;
        self.len -= recent.len();
        for hash in recent.hashes() {
            remove_bit(&mut self.holders, hash, slot);
        }
    }

    fn track(&mut self, slot: Slot, capacity: usize) {
        if self.caches.len() <= slot.index() {
            self.caches.resize_with(slot.index() + 1, || None);
        }
        if self.caches[slot.index()].is_some() {
            return;
        }
        self.caches[slot.index()] = Some(Recent::new(capacity));
        self.tracked += 1;
        for index in 0..self.caches.len() {
            let slot = Slot(u32::try_from(index).expect("slots are counted in u32"));
            if self.caches[index].is_none() {
                continue;
            }
            let bound = self.bound(slot);
            let recent = self.caches[index].as_mut().expect("the slot is tracked");
            while recent.len() > bound {
                drop_oldest(recent, slot, &mut self.holders);
                self.len -= 1;
            }
        }
    }

    fn bound(&self, slot: Slot) -> usize {
        let share = self.limits.total_blocks / self.tracked.max(1);
        let capacity = self.caches[slot.index()].as_ref().map_or(0, |recent| recent.capacity);
        capacity.min(share).max(1)
    }
}

/// The slots of the endpoints that hold a block, one bit each.
type Holders = SmallVec<[u64; 2]>;

fn insert_bit(holders: &mut Holders, slot: Slot) {
    let word = slot.index() / 64;
    if holders.len() <= word {
        holders.resize(word + 1, 0);
    }
    holders[word] |= 1 << (slot.0 % 64);
}

fn remove_bit(holders: &mut FxHashMap<u64, Holders>, hash: u64, slot: Slot) {
    let bits = holders.get_mut(&hash).expect("a remembered block has holders");
    bits[slot.index() / 64] &= !(1 << (slot.0 % 64));
    while bits.last() == Some(&0) {
        bits.pop();
    }
    if bits.is_empty() {
        holders.remove(&hash);
    }
}

fn drop_oldest(recent: &mut Recent, slot: Slot, holders: &mut FxHashMap<u64, Holders>) {
    let hash = recent.pop_oldest().expect("a cache over its bound is not empty");
    remove_bit(holders, hash, slot);
}

/// The blocks of one endpoint in order of their last use: a list threaded through an array.
#[derive(Debug)]
struct Recent {
    capacity: usize,
    places: FxHashMap<u64, u32>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    hash: u64,
    newer: u32,
    older: u32,
}

/// The end of the list.
const NONE: u32 = u32::MAX;

impl Recent {
    fn new(capacity: usize) -> Self {
        Self {
            capacity,
            places: FxHashMap::default(),
            nodes: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    fn len(&self) -> usize {
        self.places.len()
    }

    /// All blocks, the newest first.
    fn hashes(&self) -> impl Iterator<Item = u64> {
        let node = |place: u32| self.nodes.get(place as usize).copied();
        std::iter::successors(node(self.newest), move |n| node(n.older)).map(|n| n.hash)
    }

    /// Makes a known block the newest. False if it is not known.
    fn touch(&mut self, hash: u64) -> bool {
        let Some(&place) = self.places.get(&hash) else {
            return false;
        };
        if place != self.newest {
            self.unlink(place);
            self.link(place);
        }
        true
    }

    fn insert(&mut self, hash: u64) {
        let node = Node {
            hash,
            newer: NONE,
            older: NONE,
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("fewer blocks than u32 can count")
            }
        };
        self.places.insert(hash, place);
        self.link(place);
    }

    fn pop_oldest(&mut self) -> Option<u64> {
        let place = self.oldest;
        let hash = self.nodes.get(place as usize)?.hash;
        self.unlink(place);
        self.places.remove(&hash);
        self.free.push(place);
        Some(hash)
    }

    fn link(&mut self, place: u32) {
        let node = &mut self.nodes[place as usize];
        node.newer = NONE;
        node.older = self.newest;
        match self.nodes.get_mut(self.newest as usize) {
            Some(newest) => newest.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
    }

    fn unlink(&mut self, place: u32) {
        let Node { newer, older, .. } = self.nodes[place as usize];
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.newest = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{BlockHasher, BlockLayout};
    use super::*;

    const MANY: usize = 1000;

    fn prompt(tokens: std::ops::Range<u32>) -> PromptBlocks {
        let mut hasher = BlockHasher::new("m", "", BlockLayout::default());
        tokens.for_each(|token| hasher.token(token));
        hasher.end_prompt();
        hasher.finish().1
    }

    fn matches(index: &PrefixIndex, blocks: &PromptBlocks) -> Vec<u32> {
        let mut matched = Vec::new();
        index.matches(blocks, 3, &mut matched);
        matched
    }

    #[test]
    fn an_endpoint_matches_the_blocks_that_it_served() {
        let mut index = PrefixIndex::new(IndexLimits::default());
        index.record(Slot(0), &prompt(0..640), MANY);
        index.record(Slot(2), &prompt(0..128), MANY);

        assert_eq!(matches(&index, &prompt(0..640)), [10, 0, 2]);
        assert_eq!(matches(&index, &prompt(1..640)), [0, 0, 0]);
    }

    #[test]
    fn the_blocks_used_longest_ago_are_forgotten_first() {
        let mut index = PrefixIndex::new(IndexLimits::default());
        let (a, b, c) = (prompt(0..64), prompt(1000..1064), prompt(2000..2064));
        index.record(Slot(0), &a, 2);
        index.record(Slot(0), &b, 2);
        index.record(Slot(0), &a, 2);
        index.record(Slot(0), &c, 2);

        assert_eq!([&a, &b, &c].map(|p| matches(&index, p)[0]), [1, 0, 1]);
        assert_eq!(index.len(), 2);
    }

    #[test]
    fn an_endpoint_that_left_matches_nothing_and_its_slot_can_be_given_again() {
        let mut index = PrefixIndex::new(IndexLimits::default());
        index.record(Slot(1), &prompt(0..640), MANY);
        index.forget(Slot(1));

        assert!(index.is_empty());
        assert_eq!(matches(&index, &prompt(0..640)), [0, 0, 0]);
        index.record(Slot(1), &prompt(0..64), MANY);
        assert_eq!(matches(&index, &prompt(0..640)), [0, 1, 0]);
    }

    #[test]
    fn an_endpoint_beyond_the_first_word_of_the_bit_set_is_found() {
        let mut index = PrefixIndex::new(IndexLimits::default());
        let mut matched = Vec::new();
        index.record(Slot(700), &prompt(0..64), MANY);
        index.matches(&prompt(0..64), 701, &mut matched);

        assert_eq!(matched[700], 1);
        assert_eq!(matched.iter().sum::<u32>(), 1);
    }

    proptest! {
        /// Against a list of blocks for each endpoint, searched from end to end.
        #[test]
        fn the_index_agrees_with_a_plain_list_and_never_passes_its_bounds(
            steps in proptest::collection::vec((0_u32..3, 0_u32..6, 1_u32..6, any::<bool>()), 1..60),
            total in 3_usize..40,
        ) {
            const CAPACITY: usize = 8;
            let mut index = PrefixIndex::new(IndexLimits { total_blocks: total });
            let mut model: Vec<Option<Vec<u64>>> = vec![None; 3];

            for (slot, start, blocks, forget) in steps {
                let prompt = prompt(start * 1000..start * 1000 + blocks * 64);
                let place = slot as usize;
                if forget && start == 0 {
                    index.forget(Slot(slot));
                    model[place] = None;
                } else {
                    index.record(Slot(slot), &prompt, CAPACITY);
                    model[place].get_or_insert_default();
                    let share = (total / model.iter().flatten().count()).clamp(1, CAPACITY);
                    for hash in prompt.hashes() {
                        let list = model[place].as_mut().unwrap();
                        list.retain(|h| h != hash);
                        list.push(*hash);
                        for list in model.iter_mut().flatten() {
                            list.drain(..list.len().saturating_sub(share));
                        }
                    }
                }

                let expected: Vec<u32> = model
                    .iter()
                    .map(|list| {
                        let any = |h: &&u64| model.iter().flatten().any(|l| l.contains(h));
                        let holds = |h: &&u64| list.as_ref().is_some_and(|l| l.contains(h));
                        prompt.hashes().iter().take_while(any).filter(holds).count() as u32
                    })
                    .collect();
                prop_assert_eq!(matches(&index, &prompt), expected);
                prop_assert_eq!(index.len(), model.iter().flatten().map(Vec::len).sum::<usize>());
                prop_assert!(index.len() <= total.max(model.iter().flatten().count()));
            }
        }
    }
}
