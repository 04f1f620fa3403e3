//! What the tests of this room share.

#[path = "../../../benches/support/vllm_page.rs"]
mod vllm_page;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

pub(super) use vllm_page::vllm_page;

use super::{Objectives, PoolSink};
use crate::engine::pool::health::Scrape;
use crate::engine::pool::{Endpoint, EndpointId, PoolChange};
use crate::engine::time::Timestamp;

/// How long a test waits to be told. Not so long that a file would be read again unasked.
const IN_TIME: Duration = Duration::from_secs(8);

/// A sink that hands on what it is told.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    start: Instant,
    changes: mpsc::UnboundedSender<PoolChange>,
    objectives: mpsc::UnboundedSender<Objectives>,
}

/// What a [`Recorder`] was told.
#[derive(Debug)]
pub(super) struct Recorded {
    changes: mpsc::UnboundedReceiver<PoolChange>,
    objectives: mpsc::UnboundedReceiver<Objectives>,
}

pub(super) fn recorder() -> (Recorder, Recorded) {
    let (to_changes, changes) = mpsc::unbounded_channel();
    let (to_objectives, objectives) = mpsc::unbounded_channel();
    let recorder = Recorder {
        start: Instant::now(),
        changes: to_changes,
        objectives: to_objectives,
    };
    (recorder, Recorded { changes, objectives })
}

impl PoolSink for Recorder {
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.start.elapsed()
    }

    fn changed(&self, changes: Vec<PoolChange>) {
        for change in changes {
            // A test that has seen enough has dropped the other end.
            let _ = self.changes.send(change);
        }
    }

    fn objectives(&self, objectives: Objectives) {
        let _ = self.objectives.send(objectives);
    }
}

impl Recorded {
    /// Waits for the next change, as text.
    pub(super) async fn next(&mut self) -> String {
        let change = timeout(IN_TIME, self.changes.recv()).await;
        let change = change.expect("a change comes in time").expect("the sink lives");
        match change {
            PoolChange::Upsert(endpoint) => format!("+ {} {}", endpoint.id, endpoint.socket()),
            PoolChange::Remove(id) => format!("- {id}"),
            PoolChange::Report(id, update) => format!(
                "{id} waiting={:?} running={:?} kv={:?}",
                update.waiting, update.running, update.kv_usage
            ),
            PoolChange::Scrape(id, Scrape::Succeeded) => format!("{id} can be scraped"),
            PoolChange::Scrape(id, Scrape::Failed { failure, .. }) => {
                format!("{id} cannot be scraped: {}", failure.name())
            }
        }
    }

    /// What was told already.
    pub(super) fn try_next(&mut self) -> Option<PoolChange> {
        self.changes.try_recv().ok()
    }

    /// Waits for the next objectives, as text.
    pub(super) async fn next_objectives(&mut self) -> String {
        let objectives = timeout(IN_TIME, self.objectives.recv()).await;
        let objectives = objectives.expect("objectives come in time").expect("the sink lives");
        in_words(&objectives)
    }

    /// The objectives that were told already, as text.
    pub(super) fn try_next_objectives(&mut self) -> Option<String> {
        self.objectives.try_recv().ok().map(|objectives| in_words(&objectives))
    }
}

/// Objectives as text, such as `batch=-1 urgent=10`.
pub(super) fn in_words(objectives: &Objectives) -> String {
    let words: Vec<_> = objectives
        .iter()
        .map(|(name, priority)| format!("{name}={priority}"))
        .collect();
    words.join(" ")
}

pub(super) fn endpoint(name: &str, socket: SocketAddr, labels: &[(&str, &str)]) -> Arc<Endpoint> {
    let labels: BTreeMap<_, _> = labels
        .iter()
        .map(|&(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    Arc::new(Endpoint {
        id: EndpointId::new("default", name),
        name: name.into(),
        address: socket.ip(),
        port: socket.port(),
        labels,
        rank: 0,
    })
}
