//! What a gateway says in one exchange, and hears.

use std::time::Duration;

use bytes::Bytes;
use forebay::serve::ext_proc::wire::body_mutation::Mutation;
use forebay::serve::ext_proc::wire::external_processor_client::ExternalProcessorClient;
use forebay::serve::ext_proc::wire::processing_request::Request as Part;
use forebay::serve::ext_proc::wire::processing_response::Response as Reply;
use forebay::serve::ext_proc::wire::{
    BodyResponse, BodySendMode, HeaderMap, HeaderValue, HttpBody, HttpHeaders, ProcessingRequest, ProcessingResponse,
    ProtocolConfiguration,
};
use futures_util::stream;
use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::transport::Channel;

/// An exchange that takes longer has gone wrong.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The chunks in which Envoy passes a large body on.
const CHUNK_BYTES: usize = 64 * 1024;

/// Prompts that are told apart. The first half of the text is the same in all of them.
const CONVERSATIONS: usize = 64;

/// What is exchanged.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The request's messages, for each conversation.
    requests: Vec<Vec<ProcessingRequest>>,
    response: Vec<ProcessingRequest>,
    pace: Pace,
}

/// How the chunks of the response come.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Each when the one before has been passed on.
    OneByOne,
    /// As fast as they can be sent.
    AtOnce,
}

impl Scenario {
    /// A body of so many bytes, and a small response that is not streamed.
    pub(crate) fn plain(name: &'static str, body_bytes: usize) -> Self {
        let body = br#"{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"llama","choices":[{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}],"usage":{"prompt_tokens":250,"completion_tokens":3,"total_tokens":253}}"#;
        Self {
            name,
            requests: requests(body_bytes, false),
            response: vec![
                response_headers("application/json"),
                message(Part::ResponseBody(http_body(Bytes::from_static(body), true))),
            ],
            pace: Pace::OneByOne,
        }
    }

    /// A body of 1 KiB, and a response that is streamed in so many events.
    pub(crate) fn streamed(name: &'static str, events: usize, pace: Pace) -> Self {
        let event = Bytes::from_static(b"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"llama\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n");
        let end = Bytes::from_static(b"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"llama\",\"choices\":[],\"usage\":{\"prompt_tokens\":250,\"completion_tokens\":999,\"total_tokens\":1249}}\n\ndata: [DONE]\n\n");
        let mut response = vec![response_headers("text/event-stream")];
        let event = message(Part::ResponseBody(http_body(event, false)));
        response.extend(std::iter::repeat_n(event, events - 1));
        response.push(message(Part::ResponseBody(http_body(end, true))));
        Self {
            name,
            requests: requests(1024, true),
            response,
            pace,
        }
    }

    /// Goes through one exchange, from the first message to the end of the stream.
    pub(crate) async fn exchange(&self, number: usize, client: &mut ExternalProcessorClient<Channel>) {
        tokio::time::timeout(TIMEOUT, self.talk(number, client))
            .await
            .expect("the server answers");
    }

    async fn talk(&self, number: usize, client: &mut ExternalProcessorClient<Channel>) {
        let (say, said) = mpsc::unbounded_channel();
        let outbound = stream::unfold(said, |mut said| async move { Some((said.recv().await?, said)) });
        let say = |message: &ProcessingRequest| say.send(message.clone()).expect("the stream is open");
        let request = &self.requests[number % self.requests.len()];
        request.iter().for_each(say);
        let mut replies = client.process(outbound).await.expect("the stream opens").into_inner();
        while !next(&mut replies).await.ends_request() {}
        match self.pace {
            Pace::OneByOne => {
                for message in &self.response {
                    say(message);
                    next(&mut replies).await;
                }
            }
            Pace::AtOnce => {
                self.response.iter().for_each(say);
                for _ in &self.response {
                    next(&mut replies).await;
                }
            }
        }
    }
}

async fn next(replies: &mut Streaming<ProcessingResponse>) -> ProcessingResponse {
    let reply = replies.message().await.expect("the stream is sound");
    reply.expect("the stream goes on")
}

trait EndsRequest {
    /// True of the last piece of the request.
    fn ends_request(&self) -> bool;
}

impl EndsRequest for ProcessingResponse {
    fn ends_request(&self) -> bool {
        let Some(Reply::RequestBody(BodyResponse { response: Some(common) })) = &self.response else {
            return false;
        };
        let mutation = common.body_mutation.as_ref().and_then(|body| body.mutation.as_ref());
        matches!(mutation, Some(Mutation::StreamedResponse(piece)) if piece.end_of_stream)
    }
}

fn requests(body_bytes: usize, stream: bool) -> Vec<Vec<ProcessingRequest>> {
    (0..CONVERSATIONS)
        .map(|conversation| request(&body(conversation, body_bytes, stream)))
        .collect()
}

fn body(conversation: usize, bytes: usize, stream: bool) -> Bytes {
    let system = "Answer in the language of the question, and name the document you took it from.\\n";
    let user = format!("This is line after line of what the user of conversation {conversation:5} has to say.\\n");
    // Half of the rest each, after what surrounds the two texts.
    let text_bytes = (bytes - 150) / 2;
    let system = system.repeat(text_bytes / system.len());
    let user = user.repeat(text_bytes / user.len());
    Bytes::from(format!(
        r#"{{"model":"llama","messages":[{{"role":"system","content":"{system}"}},{{"role":"user","content":"{user}"}}],"stream":{stream},"max_tokens":1000,"temperature":0.2}}"#
    ))
}

fn request(body: &Bytes) -> Vec<ProcessingRequest> {
    let length = body.len().to_string();
    let headers = [
        (":authority", "llm.example.com"),
        (":path", "/v1/chat/completions"),
        (":method", "POST"),
        (":scheme", "https"),
        ("accept", "application/json"),
        ("accept-encoding", "gzip, deflate"),
        ("authorization", "Bearer sk-0123456789abcdef0123456789abcdef"),
        ("content-type", "application/json"),
        ("content-length", &length),
        ("user-agent", "OpenAI/Python 2.8.1"),
        ("x-forwarded-proto", "https"),
        ("x-request-id", "8c8df9fa-cbee-4a62-9a1f-2b9d1f6f2a3e"),
        ("x-stainless-lang", "python"),
        ("x-stainless-runtime", "CPython"),
    ];
    let full_duplex = BodySendMode::FullDuplexStreamed.into();
    let mut messages = vec![ProcessingRequest {
        protocol_config: Some(ProtocolConfiguration {
            request_body_mode: full_duplex,
            response_body_mode: full_duplex,
            send_body_without_waiting_for_header_response: false,
        }),
        ..message(Part::RequestHeaders(http_headers(&headers)))
    }];
    messages.extend((0..body.len()).step_by(CHUNK_BYTES).map(|start| {
        let end = body.len().min(start + CHUNK_BYTES);
        message(Part::RequestBody(http_body(body.slice(start..end), end == body.len())))
    }));
    messages
}

fn response_headers(content_type: &str) -> ProcessingRequest {
    message(Part::ResponseHeaders(http_headers(&[
        (":status", "200"),
        ("date", "Sat, 21 Nov 2026 12:00:00 GMT"),
        ("server", "uvicorn"),
        ("content-type", content_type),
        ("x-envoy-upstream-service-time", "12"),
    ])))
}

fn message(part: Part) -> ProcessingRequest {
    ProcessingRequest {
        request: Some(part),
        ..ProcessingRequest::default()
    }
}

fn http_headers(headers: &[(&str, &str)]) -> HttpHeaders {
    let header = |(key, value): &(&str, &str)| HeaderValue {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    HttpHeaders {
        headers: Some(HeaderMap {
            headers: headers.iter().map(header).collect(),
        }),
        end_of_stream: false,
    }
}

fn http_body(body: Bytes, end_of_stream: bool) -> HttpBody {
    HttpBody { body, end_of_stream }
}
