//! Flow control: holds requests that the pool cannot take, and releases them in a fair order.
//!
//! A request waits in a *flow*, which is one tenant at one priority; the flows of a priority make a *band*. When the
//! pool has room, the highest band that has requests is served first; within it a fairness policy chooses the flow, and
//! within that an ordering policy the request.

pub mod active;
pub mod fairness;
pub mod ordering;
pub mod plan;
pub mod usage;
