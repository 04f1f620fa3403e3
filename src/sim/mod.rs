//! A cluster of model servers behind one gateway, in invented time; and the model of a model server, which the stand-in
//! server runs in real time.
//!
//! Everything here is pure: time is an argument, chance has a seed, nothing waits. It imports from the engine only.

pub mod bundle;
pub mod classes;
pub mod cluster;
pub mod instance;
pub mod latency;
pub mod policy;
pub mod record;
pub mod report;
pub mod request;
pub mod trace;
pub mod workload;
mod yaml;
