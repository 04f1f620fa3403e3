//! Everything that waits.

#[cfg(feature = "sim")]
pub mod model_server;
