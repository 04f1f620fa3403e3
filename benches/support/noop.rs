//! An external processor that does nothing: headers go on as they are, bodies are echoed.
//!
//! It is what the wire costs. Types, transport and threads are those of Forebay; it has no state, no task and no
//! channel for a stream.

use std::pin::Pin;

use forebay::serve::ext_proc::server::transport;
use forebay::serve::ext_proc::wire::body_mutation::Mutation;
use forebay::serve::ext_proc::wire::external_processor_server::{ExternalProcessor, ExternalProcessorServer};
use forebay::serve::ext_proc::wire::processing_request::Request as Part;
use forebay::serve::ext_proc::wire::processing_response::Response as Reply;
use forebay::serve::ext_proc::wire::{
    BodyMutation, BodyResponse, CommonResponse, HeadersResponse, HttpBody, ProcessingRequest, ProcessingResponse,
    StreamedBodyResponse, TrailersResponse,
};
use futures_util::{Stream, StreamExt, stream};
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, Streaming};

/// Serves for ever, on the thread that calls.
pub(crate) async fn serve(listener: TcpListener) {
    let connections = stream::unfold(listener, |listener| async move {
        let accepted = listener.accept().await;
        let connection = accepted.and_then(|(connection, _)| {
            connection.set_nodelay(true)?;
            Ok(connection)
        });
        Some((connection, listener))
    });
    let served = transport().serve_with_incoming(ExternalProcessorServer::new(Noop), connections);
    served.await.expect("nothing goes wrong on loopback");
}

struct Noop;

#[tonic::async_trait]
impl ExternalProcessor for Noop {
    type ProcessStream = Pin<Box<dyn Stream<Item = Result<ProcessingResponse, Status>> + Send>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let replies = request.into_inner().map(|message| message.map(echo));
        Ok(Response::new(Box::pin(replies)))
    }
}

fn echo(message: ProcessingRequest) -> ProcessingResponse {
    let headers = HeadersResponse {
        response: Some(CommonResponse::default()),
    };
    let response = message.request.map(|part| match part {
        Part::RequestHeaders(_) => Reply::RequestHeaders(headers),
        Part::ResponseHeaders(_) => Reply::ResponseHeaders(headers),
        Part::RequestBody(body) => Reply::RequestBody(streamed(body)),
        Part::ResponseBody(body) => Reply::ResponseBody(streamed(body)),
        Part::RequestTrailers(_) => Reply::RequestTrailers(TrailersResponse::default()),
        Part::ResponseTrailers(_) => Reply::ResponseTrailers(TrailersResponse::default()),
    });
    ProcessingResponse {
        response,
        ..ProcessingResponse::default()
    }
}

fn streamed(HttpBody { body, end_of_stream }: HttpBody) -> BodyResponse {
    let piece = StreamedBodyResponse { body, end_of_stream };
    BodyResponse {
        response: Some(CommonResponse {
            body_mutation: Some(BodyMutation {
                mutation: Some(Mutation::StreamedResponse(piece)),
            }),
            ..CommonResponse::default()
        }),
    }
}
