//! Metrics of endpoints: fetched, read, and told as signals.

mod names;
mod page;
mod series;

pub use page::{Page, PageReader};
