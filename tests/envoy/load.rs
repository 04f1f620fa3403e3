//! Clients that ask and ask.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::cluster::{Cluster, document};
use crate::support::http::Ask;

/// A few clients, each of which asks again as soon as it has its answer.
pub(super) struct Load {
    served: Arc<Mutex<Vec<Result<String, String>>>>,
    stop: CancellationToken,
    clients: JoinSet<()>,
}

impl Load {
    pub(super) fn start(cluster: &Cluster, clients: usize) -> Self {
        let (served, stop) = (Arc::<Mutex<Vec<_>>>::default(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let (client, url, served, stop) = (
                cluster.client.clone(),
                cluster.url("/v1/completions"),
                served.clone(),
                stop.clone(),
            );
            tasks.spawn(async move {
                let mut question = 0;
                while !stop.is_cancelled() {
                    question += 1;
                    let body = document(&format!("Client {number} asks question {question}."), 4).to_string();
                    let result = client.try_send(Ask::post(&url, body)).await;
                    served.lock().push(result.and_then(|reply| match reply.status {
                        200 => Ok(reply.served_by().to_owned()),
                        status => Err(format!("{status}: {}", reply.text())),
                    }));
                }
            });
        }
        Self {
            served,
            stop,
            clients: tasks,
        }
    }

    /// How many requests have been answered.
    pub(super) fn answered(&self) -> usize {
        self.served.lock().len()
    }

    /// How many of those after the first `skipped` the server `name` has answered.
    pub(super) fn served_by(&self, name: &str, skipped: usize) -> usize {
        let served = self.served.lock();
        let later = served.iter().skip(skipped);
        later
            .filter(|result| result.as_ref().is_ok_and(|by| by == name))
            .count()
    }

    /// Waits for the answers that are under way, and fails if any request failed.
    pub(super) async fn end_without_failures(mut self) {
        self.stop.cancel();
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        let served = self.served.lock();
        let failures: Vec<_> = served.iter().filter_map(|result| result.as_ref().err()).collect();
        assert!(
            failures.is_empty(),
            "{} of {}: {failures:?}",
            failures.len(),
            served.len()
        );
    }
}
