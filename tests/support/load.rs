//! Clients that ask and ask.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cluster::{Cluster, document};
use super::http::{Ask, Client};

/// A request, and how it went.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
    /// Who served it, or why nobody did.
    pub(crate) result: Result<String, String>,
}

/// A few clients, each of which asks again as soon as it has its answer.
pub(crate) struct Load {
    served: Arc<Mutex<Vec<Answered>>>,
    stop: CancellationToken,
    clients: JoinSet<()>,
}

impl Load {
    pub(crate) fn start(cluster: &Cluster, clients: usize) -> Self {
        Self::at(&cluster.client, &cluster.url("/v1/completions"), clients, &[])
    }

    /// Asks for completions at `url`, with more headers.
    pub(crate) fn at(client: &Client, url: &str, clients: usize, headers: &[(&'static str, &'static str)]) -> Self {
        let (served, stop) = (Arc::<Mutex<Vec<_>>>::default(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        for number in 0..clients {
            let (client, url, headers) = (client.clone(), url.to_owned(), headers.to_vec());
            let (served, stop) = (served.clone(), stop.clone());
            tasks.spawn(async move {
                let mut question = 0;
                while !stop.is_cancelled() {
                    question += 1;
                    let body = document(&format!("Client {number} asks question {question}."), 4).to_string();
                    let ask = headers
                        .iter()
                        .fold(Ask::post(&url, body), |ask, (name, value)| ask.header(name, value));
                    let asked = Instant::now();
                    let result = client.try_send(ask).await.and_then(|reply| match reply.status {
                        200 => Ok(reply.served_by().to_owned()),
                        status => Err(format!("{status}: {}", reply.text())),
                    });
                    served.lock().push(Answered {
                        asked,
                        answered: Instant::now(),
                        result,
                    });
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
    pub(crate) fn answered(&self) -> usize {
        self.served.lock().len()
    }

    /// True if none of the last `requests` failed.
    pub(crate) fn is_settled(&self, requests: usize) -> bool {
        let served = self.served.lock();
        served.len() >= requests && served.iter().rev().take(requests).all(|it| it.result.is_ok())
    }

    /// How many of those after the first `skipped` the server `name` has answered.
    pub(crate) fn served_by(&self, name: &str, skipped: usize) -> usize {
        let served = self.served.lock();
        let later = served.iter().skip(skipped);
        later.filter(|it| it.result.as_ref().is_ok_and(|by| by == name)).count()
    }

    /// Waits for the answers that are under way, and gives all that there were.
    pub(crate) async fn end(mut self) -> Vec<Answered> {
        self.stop.cancel();
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        self.served.lock().clone()
    }

    /// Waits for the answers that are under way, and fails if any request failed.
    pub(crate) async fn end_without_failures(self) {
        let served = self.end().await;
        let failures: Vec<_> = served.iter().filter_map(|it| it.result.as_ref().err()).collect();
        assert!(
            failures.is_empty(),
            "{} of {}: {failures:?}",
            failures.len(),
            served.len()
        );
    }
}
