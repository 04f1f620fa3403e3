//! The flows of a band by length, the longest first.

use super::fairness::FlowRef;

/// How much waits in a flow, in requests or in bytes. Of two flows with the same amount, the one whose newest request is
/// newer counts as longer. No two flows of a band have equal lengths, because arrival numbers are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Length {
    pub(super) amount: u64,
    /// The arrival number of the flow's newest request.
    pub(super) newest: u64,
}

/// A binary max-heap of flows in which lengths can change.
///
/// An indexed heap rather than a `BTreeSet`: the length of a flow changes with each arrival and each release, mostly by
/// one request, and then it mostly stays where it is in the heap.
#[derive(Debug, Default)]
pub(super) struct Longest {
    heap: Vec<(Length, FlowRef)>,
    /// Where each flow is in the heap, by reference. Meaningless for flows that are not in it.
    nodes: Vec<usize>,
}

impl Longest {
    /// The length of `flow`, which must not be in the heap, is `length`.
    pub(super) fn insert(&mut self, flow: FlowRef, length: Length) {
        let reference = flow.0 as usize;
        if self.nodes.len() <= reference {
            self.nodes.resize(reference + 1, 0);
        }
        self.nodes[reference] = self.heap.len();
        self.heap.push((length, flow));
        self.settle(self.heap.len() - 1);
    }

    /// The length of `flow`, which must be in the heap, is now `length`.
    pub(super) fn update(&mut self, flow: FlowRef, length: Length) {
        let node = self.nodes[flow.0 as usize];
        self.heap[node].0 = length;
        self.settle(node);
    }

    /// Takes out `flow`, which must be in the heap.
    pub(super) fn remove(&mut self, flow: FlowRef) {
        let node = self.nodes[flow.0 as usize];
        self.heap.swap_remove(node);
        if let Some(&(_, moved)) = self.heap.get(node) {
            self.nodes[moved.0 as usize] = node;
            self.settle(node);
        }
    }

    /// The flow at a node of the heap. Node 0 has the longest flow, and no flow is longer than that at the node above.
    pub(super) fn at(&self, node: usize) -> Option<(Length, FlowRef)> {
        self.heap.get(node).copied()
    }

    /// The two nodes below a node. They may be empty.
    pub(super) fn below(node: usize) -> [usize; 2] {
        [2 * node + 1, 2 * node + 2]
    }

    /// Moves what is at `node` up or down to where it belongs.
    fn settle(&mut self, mut node: usize) {
        while node > 0 && self.heap[(node - 1) / 2].0 < self.heap[node].0 {
            self.swap(node, (node - 1) / 2);
            node = (node - 1) / 2;
        }
        loop {
            let length = |node: &usize| self.at(*node).map(|(length, _)| length);
            let [left, right] = Self::below(node);
            let longer = if length(&right) > length(&left) { right } else { left };
            if length(&longer) <= length(&node) {
                return;
            }
            self.swap(node, longer);
            node = longer;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for node in [one, other] {
            let (_, flow) = self.heap[node];
            self.nodes[flow.0 as usize] = node;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_the_longest_and_nothing_below_is_longer(
            changes in proptest::collection::vec((0_u32..8, 0_u64..6), 1..100),
        ) {
            let mut longest = Longest::default();
            let mut plain = BTreeMap::new();
            for (newest, (flow, amount)) in (0..).zip(changes) {
                let flow = FlowRef(flow);
                let length = Length { amount, newest };
                match (amount, plain.contains_key(&flow)) {
                    (0, true) => {
                        plain.remove(&flow);
                        longest.remove(flow);
                    }
                    (0, false) => {}
                    (_, true) => longest.update(flow, length),
                    (_, false) => longest.insert(flow, length),
                }
                if amount > 0 {
                    plain.insert(flow, length);
                }

                prop_assert_eq!(longest.at(0).map(|(length, _)| length), plain.values().max().copied());
                let in_heap: BTreeMap<_, _> =
                    (0..).map_while(|node| longest.at(node)).map(|(length, flow)| (flow, length)).collect();
                prop_assert_eq!(&in_heap, &plain);
                for node in 0..plain.len() {
                    let (length, _) = longest.at(node).unwrap();
                    for below in Longest::below(node) {
                        prop_assert!(longest.at(below).is_none_or(|(shorter, _)| shorter < length));
                    }
                }
            }
        }
    }
}
