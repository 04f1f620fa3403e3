//! What the tests of the whole service share.

pub(crate) mod gateway;
pub(crate) mod messages;
pub(crate) mod picker;
pub(crate) mod server;

use std::future::Future;
use std::time::Duration;

/// Waits for what has to happen. The time is a bound for broken code, not a part of any test.
pub(crate) async fn soon<T>(what: &str, event: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(10), event).await {
        Ok(value) => value,
        Err(_) => panic!("never happened: {what}"),
    }
}
