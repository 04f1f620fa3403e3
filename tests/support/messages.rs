//! Messages as Envoy sends them, and a line of text for each reply.

use bytes::Bytes;
use forebay::serve::ext_proc::wire::body_mutation::Mutation;
use forebay::serve::ext_proc::wire::processing_request::Request as Part;
use forebay::serve::ext_proc::wire::processing_response::Response as Reply;
use forebay::serve::ext_proc::wire::{
    BodySendMode, CommonResponse, HeaderMap, HeaderMutation, HeaderValue, HttpBody, HttpHeaders, HttpTrailers,
    LazyStruct, Metadata, ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
};
use prost::Message as _;
use prost_types::value::Kind;
use prost_types::{ListValue, Value};

/// The modes that the endpoint picker protocol asks for.
pub(crate) const FULL_DUPLEX: (BodySendMode, BodySendMode) =
    (BodySendMode::FullDuplexStreamed, BodySendMode::FullDuplexStreamed);

pub(crate) const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;

fn message(part: Part) -> ProcessingRequest {
    ProcessingRequest {
        request: Some(part),
        ..ProcessingRequest::default()
    }
}

fn http_headers(headers: &[(&str, &str)], end_of_stream: bool) -> HttpHeaders {
    let header = |(key, value): &(&str, &str)| HeaderValue {
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::new(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
    };
    HttpHeaders {
        headers: Some(HeaderMap {
            headers: headers.iter().map(header).collect(),
        }),
        end_of_stream,
    }
}

fn http_body(body: impl AsRef<[u8]>, end_of_stream: bool) -> HttpBody {
    HttpBody {
        body: Bytes::copy_from_slice(body.as_ref()),
        end_of_stream,
    }
}

/// The first message of a stream.
pub(crate) fn request_headers(
    (request, response): (BodySendMode, BodySendMode),
    headers: &[(&str, &str)],
    end_of_stream: bool,
) -> ProcessingRequest {
    ProcessingRequest {
        protocol_config: Some(ProtocolConfiguration {
            request_body_mode: request.into(),
            response_body_mode: response.into(),
            send_body_without_waiting_for_header_response: false,
        }),
        ..message(Part::RequestHeaders(http_headers(headers, end_of_stream)))
    }
}

/// The first message of a gateway that announces nothing of bodies, with values where `value` is.
pub(crate) fn unannounced_headers(headers: &[(&str, &str)], end_of_stream: bool) -> ProcessingRequest {
    let mut headers = http_headers(headers, end_of_stream);
    in_value(&mut headers, |_| true);
    message(Part::RequestHeaders(headers))
}

/// Moves the values of headers from `raw_value` to `value`.
fn in_value(headers: &mut HttpHeaders, which: impl Fn(&HeaderValue) -> bool) {
    for header in &mut headers.headers.as_mut().expect("there are headers").headers {
        if which(header) {
            header.value = std::mem::take(&mut header.raw_value);
        }
    }
}

/// The message with its pseudo headers last, and their values where `value` is.
pub(crate) fn pseudo_last(mut message: ProcessingRequest) -> ProcessingRequest {
    let (Some(Part::RequestHeaders(headers)) | Some(Part::ResponseHeaders(headers))) = &mut message.request else {
        panic!("no headers: {message:?}");
    };
    let is_pseudo = |header: &HeaderValue| header.key.starts_with(b":");
    in_value(headers, is_pseudo);
    let list = &mut headers.headers.as_mut().expect("there are headers").headers;
    list.sort_by_key(is_pseudo);
    message
}

/// The message with metadata and attributes in which lists are nested so deep.
pub(crate) fn with_nested_metadata(mut message: ProcessingRequest, levels: usize) -> ProcessingRequest {
    let number = Value {
        kind: Some(Kind::NumberValue(1.0)),
    };
    let nested = (0..levels).fold(number, |inner, _| Value {
        kind: Some(Kind::ListValue(ListValue { values: vec![inner] })),
    });
    let fields = LazyStruct {
        fields: [("x".to_owned(), nested.encode_to_vec().into())].into(),
    };
    message.attributes = [("theirs".to_owned(), fields.clone())].into();
    message.metadata_context = Some(Metadata {
        filter_metadata: [("theirs".to_owned(), fields)].into(),
        ..Metadata::default()
    });
    message
}

/// The headers of a chat request with a body.
pub(crate) fn post() -> ProcessingRequest {
    let headers = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        ("x-request-id", "r-1"),
    ];
    request_headers(FULL_DUPLEX, &headers, false)
}

/// A request without a body.
pub(crate) fn get() -> ProcessingRequest {
    let headers = [(":method", "GET"), (":path", "/v1/models"), ("x-request-id", "r-2")];
    request_headers(FULL_DUPLEX, &headers, true)
}

pub(crate) fn request_body(body: impl AsRef<[u8]>, end_of_stream: bool) -> ProcessingRequest {
    message(Part::RequestBody(http_body(body, end_of_stream)))
}

pub(crate) fn request_trailers() -> ProcessingRequest {
    message(Part::RequestTrailers(HttpTrailers::default()))
}

pub(crate) fn response_headers(headers: &[(&str, &str)], end_of_stream: bool) -> ProcessingRequest {
    message(Part::ResponseHeaders(http_headers(headers, end_of_stream)))
}

pub(crate) fn response_body(body: impl AsRef<[u8]>, end_of_stream: bool) -> ProcessingRequest {
    message(Part::ResponseBody(http_body(body, end_of_stream)))
}

pub(crate) fn response_trailers() -> ProcessingRequest {
    message(Part::ResponseTrailers(HttpTrailers::default()))
}

/// What a reply says: its kind, the headers that it sets (`+`) and removes (`-`), and its body; `end` on the last piece.
pub(crate) fn summary(reply: &ProcessingResponse) -> String {
    match reply.response.as_ref().expect("a reply has a part") {
        Reply::RequestHeaders(headers) => common("request headers", headers.response.as_ref()),
        Reply::ResponseHeaders(headers) => common("response headers", headers.response.as_ref()),
        Reply::RequestBody(body) => common("request body", body.response.as_ref()),
        Reply::ResponseBody(body) => common("response body", body.response.as_ref()),
        Reply::RequestTrailers(_) => "request trailers".to_owned(),
        Reply::ResponseTrailers(_) => "response trailers".to_owned(),
        Reply::ImmediateResponse(response) => {
            let status = response.status.as_ref().map_or(0, |status| status.code);
            let headers = response.headers.as_ref().map(changes).unwrap_or_default();
            format!("immediate {status}{headers} {}", text(&response.body))
        }
    }
}

fn common(kind: &str, response: Option<&CommonResponse>) -> String {
    let Some(response) = response else {
        return kind.to_owned();
    };
    let headers = response.header_mutation.as_ref().map(changes).unwrap_or_default();
    let mutation = response.body_mutation.as_ref().and_then(|body| body.mutation.as_ref());
    let body = match mutation {
        None => String::new(),
        Some(Mutation::Body(body)) => format!(" whole `{}`", text(body)),
        Some(Mutation::ClearBody(_)) => " cleared".to_owned(),
        Some(Mutation::StreamedResponse(piece)) => {
            let end = if piece.end_of_stream { " end" } else { "" };
            format!(" `{}`{end}", text(&piece.body))
        }
    };
    format!("{kind}{headers}{body}")
}

fn changes(mutation: &HeaderMutation) -> String {
    let set = mutation.set_headers.iter().filter_map(|set| set.header.as_ref());
    let set = set.map(|header| format!(" +{}={}", text(&header.key), text(&header.raw_value)));
    let removed = mutation.remove_headers.iter().map(|name| format!(" -{}", text(name)));
    set.chain(removed).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
