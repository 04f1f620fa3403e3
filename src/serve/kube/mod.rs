//! Kubernetes: the pool, its pods, objectives and rewrites, the configuration, and who leads.
//!
//! ```text
//! API server ──▶ list_watch ──▶ watch ──▶ index (pure) ──▶ sink: endpoints, objectives, rewrites, whether the pool is known
//!            ──▶ config_object ──▶ live configuration ──▶ status and events
//!            ◀─▶ lease ──▶ whether this replica leads
//! ```
//!
//! What was known last holds: a watch that breaks, an API server that is away, an object that makes no sense change
//! nothing but the log. Nothing here decides about requests. [`api`] has the types of the resources, and knows of
//! nothing else in this room.

pub mod api;
pub mod auth;
mod change;
mod checked;
pub mod client;
pub mod config_object;
mod failure;
mod index;
mod kind;
pub mod lease;
mod list_watch;
mod liveness;
mod pods;
mod pool;
mod reader;
mod selector;
mod source;
mod watch;

pub use index::PoolState;
pub use selector::{SelectorError, parse as parse_selector};
pub use source::{ClusterSink, ClusterSource, PoolGroup, Target, Wanted};
pub use watch::Pace;
