//! A gateway that says what a test has it say.

use std::net::SocketAddr;

use forebay::serve::ext_proc::wire::external_processor_client::ExternalProcessorClient;
use forebay::serve::ext_proc::wire::{ProcessingRequest, ProcessingResponse};
use futures_util::stream;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

use super::messages::summary;
use super::soon;

/// A connection to the server, on which any number of streams may be open.
#[derive(Clone)]
pub(crate) struct Gateway {
    client: ExternalProcessorClient<Channel>,
}

/// One stream. Dropping it resets it, as Envoy does when a client leaves.
pub(crate) struct Exchange {
    messages: Option<mpsc::UnboundedSender<ProcessingRequest>>,
    replies: Streaming<ProcessingResponse>,
}

impl Gateway {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = soon("the gateway connects", endpoint.connect()).await.unwrap();
        Self {
            client: ExternalProcessorClient::new(channel).max_decoding_message_size(usize::MAX),
        }
    }

    pub(crate) async fn open(&self) -> Exchange {
        let (messages, sent) = mpsc::unbounded_channel();
        let outbound = stream::unfold(sent, |mut sent| async move { Some((sent.recv().await?, sent)) });
        let mut client = self.client.clone();
        let response = soon("the stream opens", client.process(outbound)).await.unwrap();
        Exchange {
            messages: Some(messages),
            replies: response.into_inner(),
        }
    }

    /// Says all of this on a stream of its own, ends it, and gives what was replied.
    pub(crate) async fn replay(
        &self,
        script: impl IntoIterator<Item = ProcessingRequest>,
    ) -> (Vec<String>, Result<(), Status>) {
        let mut exchange = self.open().await;
        for message in script {
            exchange.send(message);
        }
        exchange.end();
        exchange.rest().await
    }
}

impl Exchange {
    /// Says something. A stream that the server has closed takes it, and nobody hears it.
    pub(crate) fn send(&mut self, message: ProcessingRequest) {
        let messages = self.messages.as_ref().expect("the stream has not ended");
        let _ = messages.send(message);
    }

    /// Says that nothing more comes.
    pub(crate) fn end(&mut self) {
        self.messages = None;
    }

    pub(crate) async fn reply(&mut self) -> ProcessingResponse {
        let reply = soon("the server replies", self.replies.message()).await;
        reply.unwrap().expect("the stream goes on")
    }

    /// The next reply in a line.
    pub(crate) async fn says(&mut self) -> String {
        summary(&self.reply().await)
    }

    /// All that is still replied, and how the stream is closed.
    pub(crate) async fn rest(&mut self) -> (Vec<String>, Result<(), Status>) {
        let mut lines = Vec::new();
        loop {
            match soon("the server closes the stream", self.replies.message()).await {
                Ok(Some(reply)) => lines.push(summary(&reply)),
                Ok(None) => return (lines, Ok(())),
                Err(status) => return (lines, Err(status)),
            }
        }
    }
}
