//! The ext_proc server on a port of its own, and what it told its observer.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use forebay::engine::outcome::Outcome;
use forebay::engine::scheduling::Decision;
use forebay::serve::ext_proc::Settings;
use forebay::serve::ext_proc::server::{Drained, Server, ServerError, ServerOptions};
use forebay::serve::ext_proc::service::Front;
use forebay::serve::observe::record::{Observer, RequestRecord};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::picker::{Behaviour, ScriptedPicker};
use super::soon;

pub(crate) struct TestServer {
    pub(crate) address: SocketAddr,
    pub(crate) picker: ScriptedPicker,
    ended: mpsc::UnboundedReceiver<RequestRecord>,
    stop: CancellationToken,
    task: JoinHandle<Result<Drained, ServerError>>,
}

/// Passes on the stories that ended.
struct Listener(mpsc::UnboundedSender<RequestRecord>);

impl Observer for Listener {
    fn request_routed(&self, _: &RequestRecord, _: &Decision) {}

    fn response_chunks(&self, _: &RequestRecord, _: &[Duration]) {}

    fn local_reply(&self, _: &RequestRecord) {}

    fn request_ended(&self, record: &RequestRecord) {
        // A test that has seen enough does not listen.
        let _ = self.0.send(record.clone());
    }
}

impl TestServer {
    /// A server in plain text with default settings.
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        Self::with(behaviour, Settings::default(), ServerOptions::default()).await
    }

    pub(crate) async fn with(behaviour: Behaviour, settings: Settings, options: ServerOptions) -> Self {
        let options = ServerOptions {
            workers: NonZeroUsize::new(2).unwrap(),
            ..options
        };
        let server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)), options)
            .await
            .unwrap();
        let address = server.local_addr().unwrap();
        let picker = ScriptedPicker::new(behaviour);
        let (tell, ended) = mpsc::unbounded_channel();
        let front = Front {
            settings: Arc::new(ArcSwap::from_pointee(settings)),
            picker: picker.clone(),
            observer: Arc::new(Listener(tell)),
            streams: TaskTracker::new(),
            panics: Arc::default(),
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(server.serve(front, stop.clone()));
        Self {
            address,
            picker,
            ended,
            stop,
            task,
        }
    }

    /// The next request that ends.
    pub(crate) async fn ended(&mut self) -> RequestRecord {
        let ended = soon("a request ends", self.ended.recv()).await;
        ended.expect("the server is there")
    }

    /// The outcome of the next request that ends.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        self.ended().await.outcome.expect("what ended has an outcome")
    }

    /// Tells the server to stop; what it is doing goes on.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Stops the server, and says how it ended. No request may have ended that was not asked about.
    pub(crate) async fn finish(mut self) -> Drained {
        self.stop.cancel();
        let drained = soon("the server ends", self.task).await.unwrap().unwrap();
        assert!(
            self.ended.try_recv().is_err(),
            "a request ended that was not expected, or ended twice"
        );
        drained
    }
}
