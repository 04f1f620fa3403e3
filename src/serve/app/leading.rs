//! This replica's part in the election, from the start until another one is to lead.

use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::running::Running;
use crate::serve::kube::lease::{Candidate, Role};

/// A candidate that runs.
#[derive(Debug)]
pub(super) struct Candidacy {
    candidate: Candidate,
    stop: CancellationToken,
    /// Resolves when the lease was given back.
    given_back: oneshot::Receiver<()>,
}

impl Candidacy {
    /// Has `candidate` run, which tells its role. `is_fit` says whether this replica could serve if it led.
    pub(super) fn begin(
        candidate: Candidate,
        tell: watch::Sender<Role>,
        is_fit: watch::Receiver<bool>,
        running: &mut Running,
    ) -> Self {
        let stop = CancellationToken::new();
        let (over, given_back) = oneshot::channel();
        let run = candidate.clone().run(tell, is_fit, stop.clone());
        running.add("the election", async move {
            run.await;
            // The service goes on without it.
            let _ = over.send(());
            std::future::pending::<()>().await;
        });
        Self {
            candidate,
            stop,
            given_back,
        }
    }

    /// Gives the lease back, so that another replica can lead. Gives the candidate, who can tell whether one does.
    pub(super) async fn end(self) -> Candidate {
        self.stop.cancel();
        // A candidate that breaks down ends the service by itself.
        let _ = self.given_back.await;
        self.candidate
    }
}
