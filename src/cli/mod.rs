//! The commands, one file each.

pub(crate) mod model_server;
mod units;
