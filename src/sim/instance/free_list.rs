//! The free KV blocks, the one that was freed longest ago first.

/// Marks the end of the list.
const NONE: u32 = u32::MAX;

/// A list through an array of links, so that a block in its middle can be taken out at once.
#[derive(Debug)]
pub(super) struct FreeList {
    links: Vec<Link>,
    head: u32,
    tail: u32,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

impl FreeList {
    /// All blocks `0..count`, in this order.
    pub(super) fn all(count: u32) -> Self {
        let mut list = Self {
            links: vec![
                Link {
                    before: NONE,
                    after: NONE
                };
                count as usize
            ],
            head: NONE,
            tail: NONE,
            len: 0,
        };
        (0..count).for_each(|block| list.push_back(block));
        list
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// Adds a block that is not in the list.
    pub(super) fn push_back(&mut self, block: u32) {
        self.links[block as usize] = Link {
            before: self.tail,
            after: NONE,
        };
        match self.tail {
            NONE => self.head = block,
            tail => self.links[tail as usize].after = block,
        }
        self.tail = block;
        self.len += 1;
    }

    pub(super) fn pop_front(&mut self) -> Option<u32> {
        let block = (self.head != NONE).then_some(self.head)?;
        self.remove(block);
        Some(block)
    }

    /// Takes out a block that is in the list.
    pub(super) fn remove(&mut self, block: u32) {
        let Link { before, after } = self.links[block as usize];
        match before {
            NONE => self.head = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => self.tail = before,
            after => self.links[after as usize].before = before,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_does_what_a_plain_queue_does(operations in proptest::collection::vec((0_u8..3, 0_usize..16), 0..200)) {
            let mut list = FreeList::all(16);
            let mut plain: VecDeque<u32> = (0..16).collect();
            let mut taken = Vec::new();

            for (kind, at) in operations {
                match kind {
                    0 => {
                        let block = list.pop_front();
                        prop_assert_eq!(block, plain.pop_front());
                        taken.extend(block);
                    }
                    1 if !plain.is_empty() => {
                        let block = plain.remove(at % plain.len()).unwrap();
                        list.remove(block);
                        taken.push(block);
                    }
                    _ if !taken.is_empty() => {
                        let block = taken.swap_remove(at % taken.len());
                        list.push_back(block);
                        plain.push_back(block);
                    }
                    _ => {}
                }
                prop_assert_eq!(list.len() as usize, plain.len());
            }
            let rest: Vec<_> = std::iter::from_fn(|| list.pop_front()).collect();
            prop_assert_eq!(rest, Vec::from(plain));
        }
    }
}
