//! Which KV block has which name.

/// Marks the end of a bucket.
const END: u32 = u32::MAX;
/// Marks a block without a name.
const UNNAMED: u32 = u32::MAX - 1;

/// A hash table of which the blocks themselves are the entries. A server has very many blocks, and a simulated cluster
/// many servers, so that most of what is touched here is not in the CPU's caches: to forget a name only writes beside the
/// block itself, to give one reads one word of `heads` and, if the bucket is not empty, its entries.
#[derive(Debug)]
pub(super) struct BlockNames {
    /// The first block of each bucket. Their number is a power of two, and at least twice that of the blocks.
    heads: Vec<u32>,
    blocks: Vec<Named>,
}

#[derive(Clone, Copy, Debug)]
struct Named {
    name: u64,
    /// The block before it in the same bucket, [`END`] if it is the first, or [`UNNAMED`].
    before: u32,
    /// The block after it in the same bucket, or [`END`].
    after: u32,
}

impl BlockNames {
    /// For the blocks `0..count`, none of which has a name.
    ///
    /// # Panics
    ///
    /// If there are 2³² - 2 blocks or more.
    pub(super) fn new(count: u32) -> Self {
        assert!(count < UNNAMED, "blocks are numbered below the marks");
        let unnamed = Named {
            name: 0,
            before: UNNAMED,
            after: END,
        };
        Self {
            heads: vec![END; (2 * count as usize).next_power_of_two().max(2)],
            blocks: vec![unnamed; count as usize],
        }
    }

    /// The block of this name.
    pub(super) fn get(&self, name: u64) -> Option<u32> {
        let mut at = self.heads[self.bucket(name)];
        while at != END {
            let block = &self.blocks[at as usize];
            if block.name == name {
                return Some(at);
            }
            at = block.after;
        }
        None
    }

    /// Gives a block that has no name this one, unless another block has it. Returns whether it did.
    pub(super) fn insert(&mut self, block: u32, name: u64) -> bool {
        if self.get(name).is_some() {
            return false;
        }
        let bucket = self.bucket(name);
        let after = std::mem::replace(&mut self.heads[bucket], block);
        self.blocks[block as usize] = Named {
            name,
            before: END,
            after,
        };
        if after != END {
            self.blocks[after as usize].before = block;
        }
        true
    }

    /// Takes the name from a block, if it has one.
    pub(super) fn remove(&mut self, block: u32) -> Option<u64> {
        let Named { name, before, after } = self.blocks[block as usize];
        match before {
            UNNAMED => return None,
            END => {
                let bucket = self.bucket(name);
                self.heads[bucket] = after;
            }
            before => self.blocks[before as usize].after = after,
        }
        if after != END {
            self.blocks[after as usize].before = before;
        }
        self.blocks[block as usize].before = UNNAMED;
        Some(name)
    }

    /// Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4), for names of which only some bits differ.
    fn bucket(&self, name: u64) -> usize {
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        (name.wrapping_mul(GOLDEN) >> (u64::BITS - self.heads.len().trailing_zeros())) as usize
    }

    /// Every block that has a name.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        let named = self.blocks.iter().zip(0..);
        named.filter_map(|(block, at)| (block.before != UNNAMED).then_some((at, block.name)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Change {
        Insert(u32, u64),
        Remove(u32),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            (0..9_u32, 0..12_u64).prop_map(|(block, name)| Change::Insert(block, name << 40)),
            (0..9_u32).prop_map(Change::Remove),
        ]
    }

    proptest! {
        #[test]
        fn names_are_those_of_a_map(changes in proptest::collection::vec(change(), 0..200)) {
            let mut names = BlockNames::new(9);
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            for change in changes {
                match change {
                    Change::Insert(block, _) if model.contains_key(&block) => {}
                    Change::Insert(block, name) => {
                        let is_new = model.values().all(|&taken| taken != name);
                        prop_assert_eq!(names.insert(block, name), is_new);
                        if is_new {
                            model.insert(block, name);
                        }
                    }
                    Change::Remove(block) => prop_assert_eq!(names.remove(block), model.remove(&block)),
                }
                prop_assert_eq!(names.iter().collect::<BTreeMap<_, _>>(), model.clone());
                for name in 0..12 {
                    let expected = model.iter().find(|(_, taken)| **taken == name << 40);
                    prop_assert_eq!(names.get(name << 40), expected.map(|(&block, _)| block));
                }
            }
        }
    }
}
