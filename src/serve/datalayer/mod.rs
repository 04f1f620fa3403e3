//! What is learnt about endpoints from outside: which there are, and how they are.
//!
//! [`discovery`] tells who is in the pool, and which objectives there are; [`scrape`] tells what each endpoint says of
//! itself. Both give what they learn, as [`PoolChange`]s, to a [`PoolSink`]; neither keeps a pool of its own. A scraper is itself a sink, which stands before
//! another one and learns from what passes whom to ask:
//!
//! ```text
//! discovery ──▶ scraper ──▶ pool
//! ```

pub mod discovery;
pub mod scrape;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::pool::PoolChange;
use crate::engine::time::Timestamp;

/// Priorities by the names of objectives.
pub type Objectives = BTreeMap<Arc<str>, i32>;

/// Takes what discovery and scraping learn.
pub trait PoolSink: Clone + Send + Sync + 'static {
    /// The time by the clock that dates signals.
    fn now(&self) -> Timestamp;

    /// Takes changes, in the order in which they came about.
    fn changed(&self, changes: Vec<PoolChange>);

    /// Takes all objectives that there are, in the place of those before.
    fn objectives(&self, objectives: Objectives);
}

#[cfg(test)]
mod testing;
