//! What the tests of the whole service share.

pub(crate) mod chromium;
pub(crate) mod cluster;
pub(crate) mod envoy;
pub(crate) mod gate;
pub(crate) mod gateway;
pub(crate) mod http;
pub(crate) mod kube;
pub(crate) mod load;
pub(crate) mod messages;
pub(crate) mod picker;
pub(crate) mod process;
pub(crate) mod promtool;
pub(crate) mod raw;
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod upstream;

use std::future::Future;
use std::time::Duration;

use forebay::serve::demo::wait::until;

/// Waits for what has to happen. The time is a bound for broken code, not a part of any test.
pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(10), event).await {
        Ok(value) => value,
        Err(_) => panic!("never happened: {what}"),
    }
}

/// Looks again and again until `look` passes, and fails with what it saw if it does not within `limit`.
pub(crate) async fn happens(what: &str, limit: Duration, look: impl AsyncFnMut() -> Result<(), String>) {
    if let Err(error) = until(limit, what, look).await {
        panic!("{error}");
    }
}
