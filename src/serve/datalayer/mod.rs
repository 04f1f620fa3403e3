//! What is learnt about endpoints from outside: which there are, and how they are.
//!
//! [`discovery`] tells who is in the pool, [`scrape`] what each says of itself. Both give what they learn, as
//! [`PoolChange`]s, to a [`PoolSink`]; neither keeps a pool of its own. A scraper is itself a sink, which stands before
//! another one and learns from what passes whom to ask:
//!
//! ```text
//! discovery ──▶ scraper ──▶ pool
//! ```

pub mod discovery;
pub mod scrape;

use crate::engine::pool::PoolChange;
use crate::engine::time::Timestamp;

/// Takes what discovery and scraping learn.
pub trait PoolSink: Clone + Send + Sync + 'static {
    /// The time by the clock that dates signals.
    fn now(&self) -> Timestamp;

    /// Takes changes, in the order in which they came about.
    fn changed(&self, changes: Vec<PoolChange>);
}

#[cfg(test)]
mod testing;
