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

use super::PoolSink;
use crate::engine::pool::{Endpoint, EndpointId, PoolChange};
use crate::engine::time::Timestamp;

/// A sink that hands on what it is told.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    start: Instant,
    changes: mpsc::UnboundedSender<PoolChange>,
}

/// What a [`Recorder`] was told.
#[derive(Debug)]
pub(super) struct Recorded(mpsc::UnboundedReceiver<PoolChange>);

pub(super) fn recorder() -> (Recorder, Recorded) {
    let (changes, receiver) = mpsc::unbounded_channel();
    let start = Instant::now();
    (Recorder { start, changes }, Recorded(receiver))
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
}

impl Recorded {
    /// Waits for the next change, as text. Not so long that a file would be read again unasked.
    pub(super) async fn next(&mut self) -> String {
        let change = timeout(Duration::from_secs(8), self.0.recv()).await;
        let change = change.expect("a change comes in time").expect("the sink lives");
        match change {
            PoolChange::Upsert(endpoint) => format!("+ {} {}", endpoint.id, endpoint.socket()),
            PoolChange::Remove(id) => format!("- {id}"),
            PoolChange::Report(id, update) => format!(
                "{id} waiting={:?} running={:?} kv={:?}",
                update.waiting, update.running, update.kv_usage
            ),
        }
    }

    /// What was told already.
    pub(super) fn try_next(&mut self) -> Option<PoolChange> {
        self.0.try_recv().ok()
    }
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
