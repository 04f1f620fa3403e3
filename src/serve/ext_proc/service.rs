//! The gRPC service: opens a session for each stream, and counts the open ones.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::ArcSwap;
use futures_util::Stream;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::codegen::{BoxFuture, Service};
use tonic::{Request, Response, Status, Streaming};

use super::health::Health;
use super::machine::Settings;
use super::session::Session;
use super::wire::external_processor_server::{ExternalProcessor, ExternalProcessorServer};
use super::wire::grpc::health::v1::health_server::HealthServer;
use super::wire::{ProcessingRequest, ProcessingResponse};
use crate::serve::connections::{UnderWay, Use};
use crate::serve::driver::Picker;
use crate::serve::observe::record::Observer;
use crate::serve::panics::{Contained, Panics};

/// Where the health service is found among the services of a port.
const HEALTH_PATHS: &str = "/grpc.health.v1.Health/";

/// What every stream is served with.
#[derive(Clone)]
pub struct Front<P> {
    /// What all streams have in common. A stream keeps what it began with.
    pub settings: Arc<ArcSwap<Settings>>,
    /// Who decides.
    pub picker: P,
    /// Who is told.
    pub observer: Arc<dyn Observer>,
    /// Holds a token for each open stream.
    pub streams: TaskTracker,
    /// Counts panics of streams, so that one ends no other.
    pub panics: Arc<Panics>,
}

/// The external processor, as tonic knows it.
pub(super) struct Processor<P> {
    front: Front<P>,
}

/// A session that is counted while it lives.
pub(super) struct Counted<P: Picker> {
    session: Contained<Session<P, Streaming<ProcessingRequest>>>,
    _token: TaskTrackerToken,
    /// Its connection is not closed for others meanwhile.
    _under_way: Option<UnderWay>,
}

/// The services of the port, told apart by their paths.
pub(super) struct Services<P: Picker> {
    processor: ExternalProcessorServer<Processor<P>>,
    health: Option<HealthServer<Health>>,
}

// === impl Front ===

impl<P> fmt::Debug for Front<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

// === impl Processor ===

#[tonic::async_trait]
impl<P: Picker> ExternalProcessor for Processor<P> {
    type ProcessStream = Counted<P>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let Front {
            settings,
            picker,
            observer,
            streams,
            panics,
        } = &self.front;
        let under_way = request.extensions().get::<Use>().map(Use::begin);
        let session = Session::new(
            settings.load_full(),
            picker.clone(),
            Arc::clone(observer),
            request.into_inner(),
        );
        Ok(Response::new(Counted {
            session: Contained::new(session, Arc::clone(panics)),
            _token: streams.token(),
            _under_way: under_way,
        }))
    }
}

// === impl Counted ===

impl<P: Picker> Stream for Counted<P> {
    type Item = Result<ProcessingResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.session).poll_next(cx)
    }
}

// === impl Services ===

impl<P: Picker> Services<P> {
    pub(super) fn new(front: Front<P>, max_message_bytes: usize, health: Option<Health>) -> Self {
        let processor = ExternalProcessorServer::new(Processor { front })
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(max_message_bytes);
        Self {
            processor,
            health: health.map(HealthServer::new),
        }
    }
}

impl<P: Picker> Clone for Services<P> {
    fn clone(&self) -> Self {
        Self {
            processor: self.processor.clone(),
            health: self.health.clone(),
        }
    }
}

impl<P: Picker> Service<http::Request<Body>> for Services<P> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match &mut self.health {
            Some(health) if request.uri().path().starts_with(HEALTH_PATHS) => health.call(request),
            _ => self.processor.call(request),
        }
    }
}
