//! The figures as JSON: the blocks and the file that the reference simulator writes, and one document with everything.

mod document;
mod pretty;
mod reference;

pub use document::document;
pub(super) use pretty::{as_map, pretty};
pub use reference::metrics_file;
pub(super) use reference::{cluster_block, instance_block};
