//! Everything that waits.

pub mod parse;
