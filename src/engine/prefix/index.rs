//! Who served which block.

use rustc_hash::FxHashMap;

use super::super::pool::Slot;
use super::PromptBlocks;
use super::holders::{HeldBlocks, Matching};

/// Bounds of a [`PrefixIndex`], or of a [`CacheIndex`](super::CacheIndex).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexLimits {
    /// Blocks remembered of all endpoints together. One costs about 60 bytes. When endpoints come and a prefix index
    /// would pass this, each keeps an equal share of it: the blocks that it used last.
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
    matching: Matching,
    limits: IndexLimits,
    blocks: HeldBlocks,
    caches: Vec<Option<Recent>>,
    tracked: usize,
    len: usize,
}

impl PrefixIndex {
    /// An index that remembers nothing yet.
    pub fn new(matching: Matching, limits: IndexLimits) -> Self {
        Self {
            matching,
            limits,
            blocks: HeldBlocks::default(),
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

    /// What counts of a prompt, and as a match.
    pub fn matching(&self) -> Matching {
        self.matching
    }

    /// Counts, for each slot, the blocks of the prompts that its endpoint holds. `matched` gets a place for each slot
    /// below `slots`. Looking does not make a block one that was used.
    pub fn matches(&mut self, blocks: &PromptBlocks, slots: usize, matched: &mut Vec<u32>) {
        self.blocks.matches(self.matching, blocks, slots, matched);
    }

    /// Notes that the endpoint in `slot` serves these blocks. `capacity` bounds the blocks remembered of it, and counts
    /// only when it is seen for the first time. Returns how many of them, from the first on, it held before.
    pub fn record(&mut self, slot: Slot, blocks: &PromptBlocks, capacity: usize) -> usize {
        self.track(slot, capacity);
        let bound = self.bound(slot);
        let Self {
            matching,
            blocks: held,
            caches,
            len,
            ..
        } = self;
        let recent = caches[slot.index()].as_mut().expect("the slot is tracked");
        let mut known = None;
        let mut count = 0;
        for (place, &hash) in matching.chains(blocks).flatten().enumerate() {
            count = place + 1;
            if recent.touch(hash) {
                continue;
            }
            known.get_or_insert(place);
            while recent.len() >= bound {
                drop_oldest(recent, slot, held);
                *len -= 1;
            }
            recent.insert(hash);
            held.insert(hash, slot);
            *len += 1;
        }
        known.unwrap_or(count)
    }

    /// Takes back what was recorded of blocks that the endpoint in `slot` did not serve after all: all but the first
    /// `known`, which it held before.
    pub fn withdraw(&mut self, slot: Slot, blocks: &PromptBlocks, known: usize) {
        let Some(recent) = self.caches.get_mut(slot.index()).and_then(Option::as_mut) else {
            return;
        };
        for &hash in self.matching.chains(blocks).flatten().skip(known) {
            if recent.remove(hash) {
                self.blocks.remove(hash, slot);
                self.len -= 1;
            }
        }
    }

    /// Forgets what an endpoint holds: it left the pool, or lost its cache.
    pub fn forget(&mut self, slot: Slot) {
        let Some(recent) = self.caches.get_mut(slot.index()).and_then(Option::take) else {
            return;
        };
        self.tracked -= 1;
        self.len -= recent.len();
        for hash in recent.hashes() {
            self.blocks.remove(hash, slot);
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
                drop_oldest(recent, slot, &mut self.blocks);
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

fn drop_oldest(recent: &mut Recent, slot: Slot, blocks: &mut HeldBlocks) {
    let hash = recent.pop_oldest().expect("a cache over its bound is not empty");
    blocks.remove(hash, slot);
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
        let hash = self.nodes.get(self.oldest as usize)?.hash;
        self.remove(hash);
        Some(hash)
    }

    /// Drops a block. False if it is not known.
    fn remove(&mut self, hash: u64) -> bool {
        let Some(place) = self.places.remove(&hash) else {
            return false;
        };
        self.unlink(place);
        self.free.push(place);
        true
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

    fn matches(index: &mut PrefixIndex, blocks: &PromptBlocks) -> Vec<u32> {
        let mut matched = Vec::new();
        index.matches(blocks, 3, &mut matched);
        matched
    }

    #[test]
    fn an_endpoint_matches_the_blocks_that_it_served() {
        let mut index = PrefixIndex::new(Matching::Anywhere, IndexLimits::default());
        index.record(Slot(0), &prompt(0..640), MANY);
        index.record(Slot(2), &prompt(0..128), MANY);

        assert_eq!(matches(&mut index, &prompt(0..640)), [10, 0, 2]);
        assert_eq!(matches(&mut index, &prompt(1..640)), [0, 0, 0]);
    }

    #[test]
    fn from_the_start_full_blocks_count_to_the_first_that_is_missing() {
        let mut index = PrefixIndex::new(Matching::Leading, IndexLimits::default());
        let long = prompt(0..640);
        index.record(Slot(0), &prompt(0..200), MANY);
        index.record(Slot(1), &long, 4);
        index.record(Slot(2), &long, MANY);

        assert_eq!(index.len(), 3 + 4 + 10, "the block that was not full is not remembered");
        // The second one remembers the end of the prompt, and so nothing that helps.
        assert_eq!(matches(&mut index, &long), [3, 0, 10]);
        assert_eq!(matches(&mut index, &prompt(0..63)), [0, 0, 0]);
        assert_eq!(Matching::Leading.total(&prompt(0..200)), 3);
        assert_eq!(Matching::Anywhere.total(&prompt(0..200)), 4);
    }

    #[test]
    fn to_be_looked_at_does_not_make_a_block_one_that_was_used() {
        let mut index = PrefixIndex::new(Matching::Leading, IndexLimits::default());
        let (a, b, c) = (prompt(0..64), prompt(1000..1064), prompt(2000..2064));
        index.record(Slot(0), &a, 2);
        index.record(Slot(0), &b, 2);
        matches(&mut index, &a);
        index.record(Slot(0), &c, 2);

        assert_eq!([&a, &b, &c].map(|p| matches(&mut index, p)[0]), [0, 1, 1]);
    }

    #[test]
    fn the_blocks_used_longest_ago_are_forgotten_first() {
        let mut index = PrefixIndex::new(Matching::Anywhere, IndexLimits::default());
        let (a, b, c) = (prompt(0..64), prompt(1000..1064), prompt(2000..2064));
        index.record(Slot(0), &a, 2);
        index.record(Slot(0), &b, 2);
        index.record(Slot(0), &a, 2);
        index.record(Slot(0), &c, 2);

        assert_eq!([&a, &b, &c].map(|p| matches(&mut index, p)[0]), [1, 0, 1]);
        assert_eq!(index.len(), 2);
    }

    #[test]
    fn what_was_not_served_after_all_is_taken_back_and_what_was_held_before_stays() {
        let mut index = PrefixIndex::new(Matching::Anywhere, IndexLimits::default());
        assert_eq!(index.record(Slot(0), &prompt(0..128), MANY), 0);

        let known = index.record(Slot(0), &prompt(0..640), MANY);
        assert_eq!(known, 2);
        assert_eq!(matches(&mut index, &prompt(0..640))[0], 10);
        index.withdraw(Slot(0), &prompt(0..640), known);

        assert_eq!(matches(&mut index, &prompt(0..640))[0], 2);
        assert_eq!(index.len(), 2);
        assert_eq!(index.record(Slot(0), &prompt(0..128), MANY), 2);
        index.withdraw(Slot(1), &prompt(0..128), 0);
        index.withdraw(Slot(0), &prompt(0..128), 2);
        assert_eq!(index.len(), 2, "there was nothing to take back");
    }

    #[test]
    fn an_endpoint_that_left_matches_nothing_and_its_slot_can_be_given_again() {
        let mut index = PrefixIndex::new(Matching::Anywhere, IndexLimits::default());
        index.record(Slot(1), &prompt(0..640), MANY);
        index.forget(Slot(1));

        assert!(index.is_empty());
        assert_eq!(matches(&mut index, &prompt(0..640)), [0, 0, 0]);
        index.record(Slot(1), &prompt(0..64), MANY);
        assert_eq!(matches(&mut index, &prompt(0..640)), [0, 1, 0]);
    }

    #[test]
    fn an_endpoint_beyond_the_first_word_of_the_bit_set_is_found() {
        let mut index = PrefixIndex::new(Matching::Anywhere, IndexLimits::default());
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
            rest in 0_u32..64,
            matching in prop_oneof![Just(Matching::Anywhere), Just(Matching::Leading)],
        ) {
            const CAPACITY: usize = 8;
            let mut index = PrefixIndex::new(matching, IndexLimits { total_blocks: total });
            let mut model: Vec<Option<Vec<u64>>> = vec![None; 3];

            for (slot, start, blocks, forget) in steps {
                let prompt = prompt(start * 1000..start * 1000 + blocks * 64 + rest);
                let counted: Vec<u64> = matching.chains(&prompt).flatten().copied().collect();
                let place = slot as usize;
                if forget && start == 0 {
                    index.forget(Slot(slot));
                    model[place] = None;
                } else if forget && start == 1 {
                    index.withdraw(Slot(slot), &prompt, 1);
                    if let Some(list) = &mut model[place] {
                        list.retain(|hash| !counted.iter().skip(1).any(|counted| counted == hash));
                    }
                } else {
                    index.record(Slot(slot), &prompt, CAPACITY);
                    model[place].get_or_insert_default();
                    let share = (total / model.iter().flatten().count()).clamp(1, CAPACITY);
                    for hash in &counted {
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
                        match matching {
                            Matching::Anywhere => counted.iter().take_while(any).filter(holds).count() as u32,
                            Matching::Leading => counted.iter().take_while(holds).count() as u32,
                        }
                    })
                    .collect();
                prop_assert_eq!(matches(&mut index, &prompt), expected);
                prop_assert_eq!(index.len(), model.iter().flatten().map(Vec::len).sum::<usize>());
                prop_assert!(index.len() <= total.max(model.iter().flatten().count()));
            }
        }
    }
}
