//! What the service tells of itself.

pub mod metrics;
pub mod record;
