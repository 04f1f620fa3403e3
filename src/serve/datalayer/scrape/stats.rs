//! Counters of what scraping does.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts looks at endpoints. The counters only grow; they are read when a metrics page is made.
#[derive(Debug, Default)]
pub struct ScrapeStats {
    pages: AtomicU64,
    poll_errors: AtomicU64,
    extract_errors: AtomicU64,
}

impl ScrapeStats {
    /// `source_type` of these counters.
    pub const SOURCE_TYPE: &'static str = "metrics-data-source";

    /// `extractor_type` of these counters.
    pub const EXTRACTOR_TYPE: &'static str = "core-metrics-extractor";

    /// Pages that were fetched.
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// Looks that gave no page: `datalayer_poll_errors_total`.
    pub fn poll_errors(&self) -> u64 {
        self.poll_errors.load(Ordering::Relaxed)
    }

    /// Pages on which something was missing or malformed: `datalayer_extract_errors_total`.
    pub fn extract_errors(&self) -> u64 {
        self.extract_errors.load(Ordering::Relaxed)
    }

    pub(super) fn looked(&self, complete: bool) {
        self.pages.fetch_add(1, Ordering::Relaxed);
        self.extract_errors.fetch_add(u64::from(!complete), Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.poll_errors.fetch_add(1, Ordering::Relaxed);
    }
}
