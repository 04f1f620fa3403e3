//! The model of a model server, driven by invented time (and, in the stand-in server, by real time).
//!
//! Everything here is pure: time is an argument, chance has a seed, nothing waits. It imports from the engine only.

pub mod instance;
