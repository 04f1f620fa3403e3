//! Everything that waits.

pub mod datalayer;
