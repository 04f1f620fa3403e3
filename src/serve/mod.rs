//! Everything that waits.
