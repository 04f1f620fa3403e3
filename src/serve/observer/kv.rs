//! What servers say of their prefix caches.

use std::ops::Sub;

use http::StatusCode;

use crate::serve::client::{Client, ClientError};
use crate::serve::datalayer::scrape::total;

/// Names of the counters over the versions of vLLM, the newest first.
const QUERIES: [&str; 4] = [
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_queries",
    "vllm:gpu_prefix_cache_queries_total",
    "vllm:gpu_prefix_cache_queries",
];
const HITS: [&str; 4] = [
    "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_hits",
    "vllm:gpu_prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_hits",
];

/// Counters of prefix caches, in whatever the server counts: blocks or tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KvCounters {
    /// What was looked for.
    pub queries: f64,
    /// What was found.
    pub hits: f64,
}

/// Why nothing is known of the caches.
#[derive(Debug, thiserror::Error)]
pub enum KvError {
    /// There is no page.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The page is none.
    #[error("`{url}` answers {status} instead of 200")]
    Status {
        /// The page.
        url: String,
        /// What the server says.
        status: StatusCode,
    },
    /// The page has no such counters.
    #[error("`{0}` has neither `{q}` and `{h}`, nor these under older names", q = QUERIES[0], h = HITS[0])]
    Missing(String),
}

impl KvCounters {
    /// Share of what was looked for that was found. None if nothing was looked for.
    pub fn hit_rate(&self) -> Option<f64> {
        (self.queries > 0.0).then(|| self.hits / self.queries)
    }

    fn read(page: &str) -> Option<Self> {
        Some(Self {
            queries: total(page.as_bytes(), &QUERIES)?,
            hits: total(page.as_bytes(), &HITS)?,
        })
    }
}

impl Sub for KvCounters {
    type Output = Self;

    /// What was counted in between. A server that began anew in between has counted nothing.
    fn sub(self, earlier: Self) -> Self {
        Self {
            queries: (self.queries - earlier.queries).max(0.0),
            hits: (self.hits - earlier.hits).max(0.0),
        }
    }
}

/// The counters on all of these pages together.
///
/// # Errors
///
/// The first page that has none.
pub async fn kv_counters(client: &Client, urls: &[String]) -> Result<KvCounters, KvError> {
    let mut sum = KvCounters::default();
    for url in urls {
        let (status, page) = client.fetch(url).await?;
        if status != StatusCode::OK {
            return Err(KvError::Status {
                url: url.clone(),
                status,
            });
        }
        let counters = KvCounters::read(&page).ok_or_else(|| KvError::Missing(url.clone()))?;
        sum.queries += counters.queries;
        sum.hits += counters.hits;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_of_what_was_counted_in_between() {
        let before = KvCounters::read(
            "vllm:prefix_cache_queries_total{engine=\"0\"} 100\nvllm:prefix_cache_hits_total{engine=\"0\"} 50\n",
        );
        let after = KvCounters::read(
            "vllm:prefix_cache_queries_total{engine=\"0\"} 200\nvllm:prefix_cache_queries_total{engine=\"1\"} 100\n\
             vllm:prefix_cache_hits_total{engine=\"0\"} 80\n",
        );

        let between = after.unwrap() - before.unwrap();

        assert_eq!(
            (between.queries, between.hits, between.hit_rate()),
            (200.0, 30.0, Some(0.15))
        );
        assert_eq!((before.unwrap() - after.unwrap()).hit_rate(), None);
    }

    #[test]
    fn older_names_are_known_and_a_page_without_counters_says_nothing() {
        let older = "vllm:gpu_prefix_cache_queries 4\nvllm:gpu_prefix_cache_hits 1\n";

        assert_eq!(
            KvCounters::read(older).and_then(|counters| counters.hit_rate()),
            Some(0.25)
        );
        assert_eq!(KvCounters::read("vllm:num_requests_running 1\n"), None);
    }
}
