//! What is in flight to each endpoint, by tenant and priority, for pages. Kept as requests come and go, so that nobody has to
//! look at all of them while decisions wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::pool::Slot;

/// The most combinations of endpoint, tenant and priority that are told apart at a time. Clients choose their tenants, so
/// there could be as many as requests.
const MAX_TOLD_APART: usize = 1024;

/// What a tenant has in flight to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLoadAt<'e> {
    /// The endpoint.
    pub slot: Slot,
    /// The tenant. Without one, this is what tenants have together that are not told apart.
    pub fairness_id: Option<&'e Arc<str>>,
    /// The priority of the band that released the requests.
    pub priority: i32,
    /// Requests.
    pub requests: u64,
    /// Tokens of their prompts, until their answers begin.
    pub tokens: u64,
}

#[derive(Debug, Default)]
pub(super) struct Loads {
    sums: BTreeMap<LoadKey, Sum>,
    told_apart: usize,
}

/// Where a request is counted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LoadKey {
    slot: Slot,
    joined: u64,
    priority: i32,
    fairness_id: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    requests: u64,
    tokens: u64,
}

impl Loads {
    /// A request was sent to the member of `slot` that joined as the one with the number `joined`. What it returns is to be
    /// kept until the request ends.
    pub(super) fn add(&mut self, at: (Slot, u64), fairness_id: &Arc<str>, priority: i32, tokens: u64) -> LoadKey {
        let mut key = LoadKey {
            slot: at.0,
            joined: at.1,
            priority,
            fairness_id: Some(fairness_id.clone()),
        };
        if !self.sums.contains_key(&key) {
            if self.told_apart < MAX_TOLD_APART {
                self.told_apart += 1;
            } else {
                key.fairness_id = None;
            }
        }
        let sum = self.sums.entry(key.clone()).or_default();
        sum.requests += 1;
        sum.tokens += tokens;
        key
    }

    /// So many tokens of a request are no load any more.
    pub(super) fn subtract_tokens(&mut self, key: &LoadKey, tokens: u64) {
        if let Some(sum) = self.sums.get_mut(key) {
            sum.tokens -= tokens;
        }
    }

    /// A request that still counted so many tokens is gone.
    pub(super) fn remove(&mut self, key: &LoadKey, tokens: u64) {
        let Some(sum) = self.sums.get_mut(key) else { return };
        sum.requests -= 1;
        sum.tokens -= tokens;
        if sum.requests == 0 {
            self.sums.remove(key);
            self.told_apart -= usize::from(key.fairness_id.is_some());
        }
    }

    /// What is in flight, to members that `is_there` knows by slot and number.
    pub(super) fn iter(&self, is_there: impl Fn(Slot, u64) -> bool) -> impl Iterator<Item = TenantLoadAt<'_>> {
        let there = self.sums.iter().filter(move |(key, _)| is_there(key.slot, key.joined));
        there.map(|(key, sum)| TenantLoadAt {
            slot: key.slot,
            fairness_id: key.fairness_id.as_ref(),
            priority: key.priority,
            requests: sum.requests,
            tokens: sum.tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: (Slot, u64) = (Slot(0), 1);

    fn seen(loads: &Loads) -> Vec<(Option<String>, u64, u64)> {
        let all = loads.iter(|_, _| true);
        all.map(|load| (load.fairness_id.map(ToString::to_string), load.requests, load.tokens))
            .collect()
    }

    #[test]
    fn tenants_beyond_the_bound_are_counted_together_until_they_end() {
        let mut loads = Loads::default();
        let add = |loads: &mut Loads, n: usize| loads.add(HERE, &format!("t{n:05}").into(), 0, 10);
        let keys: Vec<_> = (0..MAX_TOLD_APART + 7).map(|n| add(&mut loads, n)).collect();

        assert_eq!(seen(&loads).len(), MAX_TOLD_APART + 1);
        assert_eq!(seen(&loads)[0], (None, 7, 70));
        // One that is counted with others stays there, even if there is room by now.
        loads.remove(&keys[0], 10);
        loads.subtract_tokens(&keys[MAX_TOLD_APART], 4);
        let again = add(&mut loads, MAX_TOLD_APART);
        assert_eq!(seen(&loads)[0], (None, 7, 66));
        for (n, key) in keys.iter().enumerate().skip(1) {
            loads.remove(key, if n == MAX_TOLD_APART { 6 } else { 10 });
        }
        assert_eq!(seen(&loads), [(Some(format!("t{MAX_TOLD_APART:05}")), 1, 10)]);
        loads.remove(&again, 10);
        assert!(seen(&loads).is_empty());
        assert_eq!(loads.told_apart, 0);
    }
}
