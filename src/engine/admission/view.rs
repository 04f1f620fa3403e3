//! What an admission policy may look at, besides the request.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::pool::{Candidates, Pool, Slot};
use super::super::request::Request;

/// The pool, and whose requests are in flight to it.
#[derive(Debug)]
pub struct View<'a> {
    pool: &'a Pool,
    tenants: &'a TenantLoad,
    /// Space for the candidates, which are looked up only for policies that ask.
    slots: &'a mut Vec<Slot>,
}

impl<'a> View<'a> {
    /// A view of `pool` with `tenants` at work. `slots` is space.
    pub fn new(pool: &'a Pool, tenants: &'a TenantLoad, slots: &'a mut Vec<Slot>) -> Self {
        Self { pool, tenants, slots }
    }

    /// The endpoints that the request may go to, of those that can be used: what others last reported is not so any more.
    pub fn candidates(&mut self, request: &Request) -> Candidates<'_> {
        self.pool.select(&request.subset, self.slots);
        self.pool.keep_best(self.slots, &[]);
        Candidates::new(self.pool, self.slots)
    }

    /// Endpoints of the pool that can be used, whether or not the request may go there.
    pub fn endpoints(&self) -> usize {
        self.pool.usable()
    }

    /// Requests of the tenant that are in flight.
    pub fn in_flight_of(&self, fairness_id: &str) -> u32 {
        self.tenants.of(fairness_id)
    }
}

/// Requests in flight, by fairness id. Knows no more tenants than there are requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantLoad {
    requests: BTreeMap<Arc<str>, u32>,
}

impl TenantLoad {
    /// Requests of the tenant that are in flight.
    pub fn of(&self, fairness_id: &str) -> u32 {
        self.requests.get(fairness_id).copied().unwrap_or(0)
    }

    /// Tenants that have requests in flight.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// True if no tenant has requests in flight.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Requests in flight of all tenants.
    pub fn total(&self) -> u64 {
        self.requests.values().map(|&requests| u64::from(requests)).sum()
    }

    /// A request of the tenant was sent.
    pub fn sent(&mut self, fairness_id: &Arc<str>) {
        match self.requests.get_mut(fairness_id) {
            Some(requests) => *requests += 1,
            None => {
                self.requests.insert(fairness_id.clone(), 1);
            }
        }
    }

    /// A request of the tenant that was sent has ended.
    pub fn ended(&mut self, fairness_id: &str) {
        if let Some(requests) = self.requests.get_mut(fairness_id) {
            *requests -= 1;
            if *requests == 0 {
                self.requests.remove(fairness_id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_without_requests_is_not_remembered() {
        let mut load = TenantLoad::default();
        let tenant: Arc<str> = "a".into();
        load.sent(&tenant);
        load.sent(&tenant);

        assert_eq!((load.of("a"), load.of("b"), load.total()), (2, 0, 2));
        load.ended("a");
        load.ended("a");
        load.ended("a");
        assert!(load.is_empty());
    }
}
