//! The flows of a band that have requests, in the order that the band's fairness policy needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::time::Timestamp;
use super::fairness::{FlowOrder, FlowRef};

/// Where a request stands among those of its flow: by the key of the ordering policy, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The key of the ordering policy.
    pub key: u64,
    /// The number of the arrival, over all flows.
    pub arrival: u64,
}

/// A flow that has requests.
#[derive(Clone, Debug)]
pub struct ActiveFlow {
    /// Its id: the fairness id of its requests.
    pub id: Arc<str>,
    /// The place of its first request.
    pub head: Place,
    /// When its first request began to wait.
    pub head_enqueued: Timestamp,
}

/// The flows of a band that have requests. Every operation takes time in the logarithm of their number.
#[derive(Debug)]
pub struct ActiveFlows {
    flows: Vec<Option<ActiveFlow>>,
    free: Vec<u32>,
    index: Index,
}

#[derive(Debug)]
enum Index {
    ByHead(BTreeSet<(Place, FlowRef)>),
    ById(BTreeMap<SortedId, FlowRef>),
}

/// An id that sorts as its text does. The first bytes are at hand, so that two ids are mostly told apart without a look
/// at their texts, which lie elsewhere in memory: among thousands of flows that is most of the time it takes to find one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SortedId {
    head: u128,
    id: Arc<str>,
}

impl SortedId {
    fn new(id: Arc<str>) -> Self {
        let mut head = [0; size_of::<u128>()];
        let length = id.len().min(head.len());
        head[..length].copy_from_slice(&id.as_bytes()[..length]);
        Self {
            head: u128::from_be_bytes(head),
            id,
        }
    }
}

impl ActiveFlows {
    pub(super) fn new(order: FlowOrder) -> Self {
        Self {
            flows: Vec::new(),
            free: Vec::new(),
            index: match order {
                FlowOrder::ByHead => Index::ByHead(BTreeSet::new()),
                FlowOrder::ById => Index::ById(BTreeMap::new()),
            },
        }
    }

    /// Their number.
    pub fn len(&self) -> usize {
        match &self.index {
            Index::ByHead(heads) => heads.len(),
            Index::ById(ids) => ids.len(),
        }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The flow that `flow` refers to.
    ///
    /// # Panics
    ///
    /// If it has no requests any more.
    pub fn get(&self, flow: FlowRef) -> &ActiveFlow {
        self.flows[flow.0 as usize].as_ref().expect("the flow has requests")
    }

    /// The first one in the order in which they are kept.
    pub fn first(&self) -> Option<FlowRef> {
        match &self.index {
            Index::ByHead(heads) => heads.first().map(|(_, flow)| *flow),
            Index::ById(ids) => ids.first_key_value().map(|(_, flow)| *flow),
        }
    }

    /// The first one whose id comes after `id`. `None` if there is none, or if they are not kept by id.
    pub fn after(&self, id: &Arc<str>) -> Option<FlowRef> {
        use std::ops::Bound::{Excluded, Unbounded};

        match &self.index {
            Index::ByHead(_) => None,
            Index::ById(ids) => {
                let mut later = ids.range((Excluded(SortedId::new(id.clone())), Unbounded));
                later.next().map(|(_, flow)| *flow)
            }
        }
    }

    /// All of them, in the order in which they are kept.
    pub fn iter(&self) -> impl Iterator<Item = (FlowRef, &ActiveFlow)> {
        let (heads, ids) = match &self.index {
            Index::ByHead(heads) => (Some(heads), None),
            Index::ById(ids) => (None, Some(ids)),
        };
        let by_head = heads.into_iter().flatten().map(|(_, flow)| *flow);
        let by_id = ids.into_iter().flatten().map(|(_, flow)| *flow);
        by_head.chain(by_id).map(|flow| (flow, self.get(flow)))
    }

    pub(super) fn insert(&mut self, flow: ActiveFlow) -> FlowRef {
        let reference = FlowRef(self.free.pop().unwrap_or_else(|| {
            self.flows.push(None);
            u32::try_from(self.flows.len() - 1).expect("fewer flows than u32 can count")
        }));
        match &mut self.index {
            Index::ByHead(heads) => {
                heads.insert((flow.head, reference));
            }
            Index::ById(ids) => {
                ids.insert(SortedId::new(flow.id.clone()), reference);
            }
        }
        self.flows[reference.0 as usize] = Some(flow);
        reference
    }

    /// Notes that another request of the flow is the first one.
    pub(super) fn set_head(&mut self, reference: FlowRef, head: Place, enqueued: Timestamp) {
        let flow = self.flows[reference.0 as usize]
            .as_mut()
            .expect("the flow has requests");
        if let Index::ByHead(heads) = &mut self.index {
            heads.remove(&(flow.head, reference));
            heads.insert((head, reference));
        }
        flow.head = head;
        flow.head_enqueued = enqueued;
    }

    pub(super) fn remove(&mut self, reference: FlowRef) {
        let flow = self.flows[reference.0 as usize].take().expect("the flow had requests");
        match &mut self.index {
            Index::ByHead(heads) => {
                heads.remove(&(flow.head, reference));
            }
            Index::ById(ids) => {
                ids.remove(&SortedId::new(flow.id));
            }
        }
        self.free.push(reference.0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index as Pick;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        /// A flow of this name gets its first request.
        Insert(u8, u64),
        SetHead(Pick, u64),
        Remove(Pick),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (0_u8..12, 0_u64..6).prop_map(|(name, key)| Op::Insert(name, key)),
            2 => (any::<Pick>(), 0_u64..6).prop_map(|(pick, key)| Op::SetHead(pick, key)),
            1 => any::<Pick>().prop_map(Op::Remove),
        ]
    }

    #[test]
    fn ids_sort_as_their_texts_do() {
        let ids = [
            "",
            "a",
            "a\0",
            "a\0b",
            "b",
            "tenant-000000001",
            "tenant-0000000010",
            "tenant-0000000011",
            "ä",
        ];

        let sorted = |ids: &[&str]| ids.iter().map(|&id| SortedId::new(id.into())).is_sorted();

        assert!(ids.is_sorted() && sorted(&ids), "{ids:?}");
    }

    /// What is seen of flows that are kept in one of the two orders.
    type Seen = Vec<(String, Place, Timestamp)>;

    fn seen(flows: &ActiveFlows) -> Seen {
        let flows = flows.iter();
        flows
            .map(|(_, flow)| (flow.id.to_string(), flow.head, flow.head_enqueued))
            .collect()
    }

    proptest! {
        #[test]
        fn flows_are_kept_in_order_whatever_comes_and_goes(ops in proptest::collection::vec(op(), 1..60)) {
            for order in [FlowOrder::ByHead, FlowOrder::ById] {
                let mut flows = ActiveFlows::new(order);
                let mut plain: Vec<(FlowRef, ActiveFlow)> = Vec::new();

                for (arrival, op) in (0..).zip(&ops) {
                    let place = |key| Place { key, arrival };
                    let enqueued = Timestamp::from_nanos(arrival);
                    match op {
                        Op::Insert(name, key) => {
                            let id: Arc<str> = format!("f{name}").into();
                            if plain.iter().all(|(_, flow)| flow.id != id) {
                                let flow = ActiveFlow { id, head: place(*key), head_enqueued: enqueued };
                                plain.push((flows.insert(flow.clone()), flow));
                            }
                        }
                        Op::SetHead(pick, key) if !plain.is_empty() => {
                            let at = pick.index(plain.len());
                            let (reference, flow) = &mut plain[at];
                            flows.set_head(*reference, place(*key), enqueued);
                            (flow.head, flow.head_enqueued) = (place(*key), enqueued);
                        }
                        Op::Remove(pick) if !plain.is_empty() => {
                            let (reference, _) = plain.swap_remove(pick.index(plain.len()));
                            flows.remove(reference);
                        }
                        Op::SetHead(..) | Op::Remove(..) => {}
                    }

                    let mut expected: Seen = plain
                        .iter()
                        .map(|(_, flow)| (flow.id.to_string(), flow.head, flow.head_enqueued))
                        .collect();
                    match order {
                        FlowOrder::ByHead => expected.sort_by_key(|(_, head, _)| *head),
                        FlowOrder::ById => expected.sort(),
                    }
                    prop_assert_eq!(seen(&flows), &expected[..]);
                    prop_assert_eq!((flows.len(), flows.is_empty()), (expected.len(), expected.is_empty()));
                    let name_of = |flow: FlowRef| flows.get(flow).id.to_string();
                    prop_assert_eq!(flows.first().map(name_of), expected.first().map(|(id, ..)| id.clone()));
                    let after = expected.iter().map(|(id, ..)| id).find(|id| id.as_str() > "f4");
                    let after = after.filter(|_| order == FlowOrder::ById);
                    prop_assert_eq!(flows.after(&"f4".into()).map(name_of), after.cloned());
                }
            }
        }
    }
}
