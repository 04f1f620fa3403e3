//! What a response tells of the endpoint that it comes from.
//!
//! Three things may tell: the status; the endpoint that served, which gateways that go down the list name in the metadata
//! of the response, or in a header; and Envoy's own word of why it answered as it did (`response.code_details`), which tells
//! an answer of the server from one that Envoy gave because it could not reach it. Envoy sends that one, and the endpoint as
//! `upstream.address` too, if `response_attributes` asks for it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::headers::{DESTINATION_SERVED, ResponseHead};
use super::metadata;
use super::reply::LB_NAMESPACE;
use super::wire::{LazyStruct, Metadata};
use crate::engine::Answered;
use crate::engine::pool::health::RequestFailure;

/// What a response tells of its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Upstream {
    /// The endpoint that served, if the gateway says which.
    pub(super) by: Option<SocketAddr>,
    /// What its answer means.
    pub(super) how: Answered,
}

impl Upstream {
    pub(super) fn read(head: &ResponseHead, metadata: Option<&Metadata>, attributes: &Attributes) -> Self {
        let address = || attribute(attributes, "upstream.address")?.parse().ok();
        Self {
            by: served(metadata).or_else(address).or(head.served),
            how: meaning(head.status, attribute(attributes, "response.code_details").as_deref()),
        }
    }
}

/// What Envoy was asked to tell of a response, by the name of the filter, of which there is one.
pub(super) type Attributes = BTreeMap<String, LazyStruct>;

/// The endpoint that the metadata names.
fn served(metadata: Option<&Metadata>) -> Option<SocketAddr> {
    let value = metadata::value(metadata?, LB_NAMESPACE, DESTINATION_SERVED)?;
    metadata::text(value)?.trim().parse().ok()
}

fn attribute(attributes: &Attributes, name: &str) -> Option<String> {
    metadata::text(attributes.values().find_map(|of| metadata::field(of, name))?)
}

/// What Envoy says of an answer that is the server's.
const OF_THE_SERVER: &str = "via_upstream";

/// The answers with these statuses are about the request, and not about the server.
const NOT_IMPLEMENTED: u16 = 501;
const VERSION_NOT_SUPPORTED: u16 = 505;

fn meaning(status: Option<u16>, details: Option<&str>) -> Answered {
    let by_status = match status {
        Some(NOT_IMPLEMENTED | VERSION_NOT_SUPPORTED) | Some(400..=499) => Answered::Rejected,
        Some(status @ 500..) => Answered::Failed(RequestFailure::Status(status)),
        Some(_) | None => Answered::Served,
    };
    match details {
        Some(OF_THE_SERVER) if status == Some(503) => Answered::Overloaded,
        None | Some(OF_THE_SERVER) => by_status,
        Some(details) => by_details(details),
    }
}

/// What Envoy means by what it says of an answer of its own.
fn by_details(details: &str) -> Answered {
    let reset = details.strip_prefix("upstream_reset_before_response_started{");
    if let Some(reset) = reset {
        return match reset.split(['|', '}']).next().unwrap_or_default() {
            // A limit of Envoy's, and not the server's.
            "overflow" => Answered::ByGateway,
            reason if reason.contains("connection_failure") || reason == "connection_timeout" => {
                Answered::Failed(RequestFailure::Connect)
            }
            _ => Answered::Failed(RequestFailure::Reset),
        };
    }
    match details {
        "upstream_response_timeout"
        | "response_timeout"
        | "upstream_per_try_timeout"
        | "upstream_per_try_idle_timeout"
        | "upstream_max_stream_duration_reached" => Answered::Failed(RequestFailure::Timeout),
        _ => Answered::ByGateway,
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Value;
    use prost_types::value::Kind;

    use super::*;

    fn text(text: &str) -> Value {
        Value {
            kind: Some(Kind::StringValue(text.to_owned())),
        }
    }

    fn one(key: &str, value: &str) -> LazyStruct {
        metadata::one(key, &text(value))
    }

    fn read(status: u16, details: Option<&str>) -> Answered {
        let attributes = details.map(|details| {
            let filter = "envoy.filters.http.ext_proc".to_owned();
            (filter, one("response.code_details", details))
        });
        let head = ResponseHead {
            status: Some(status),
            ..ResponseHead::default()
        };
        Upstream::read(&head, None, &attributes.into_iter().collect()).how
    }

    #[test]
    fn without_details_the_status_tells() {
        assert_eq!([200, 302].map(|status| read(status, None)), [Answered::Served; 2]);
        assert_eq!(
            [400, 429, 501, 505].map(|status| read(status, None)),
            [Answered::Rejected; 4]
        );
        for status in [500, 502, 503, 504, 599] {
            let failed = Answered::Failed(RequestFailure::Status(status));
            assert_eq!(read(status, None), failed);
        }
    }

    #[test]
    fn with_details_what_the_gateway_could_not_do_is_told_from_what_the_server_said() {
        let failed = |details: &str| match read(503, Some(details)) {
            Answered::Failed(failure) => Some(failure.name()),
            _ => None,
        };

        let reset = |reason| failed(&format!("upstream_reset_before_response_started{{{reason}}}"));
        let refused = "remote_connection_failure|delayed_connect_error:_Connection_refused";
        assert_eq!(reset(refused), Some("connect-failure"));
        assert_eq!(reset("connection_timeout"), Some("connect-failure"));
        assert_eq!(reset("connection_termination"), Some("reset"));
        assert_eq!(reset("remote_reset"), Some("reset"));
        assert_eq!(failed("upstream_per_try_timeout"), Some("timeout"));
        assert_eq!(reset("overflow"), None);
        assert_eq!(failed("no_healthy_upstream"), None);
        assert_eq!(
            read(403, Some("rbac_access_denied_matched_policy[x]")),
            Answered::ByGateway
        );
        let failed = Answered::Failed(RequestFailure::Status(500));
        assert_eq!(read(500, Some("via_upstream")), failed);
        assert_eq!(read(503, Some("via_upstream")), Answered::Overloaded);
    }

    #[test]
    fn the_endpoint_that_served_is_in_the_metadata_or_in_an_attribute_or_in_a_header() {
        let named = |address: &str| metadata::untyped("envoy.lb", DESTINATION_SERVED, &text(address));
        let by = |metadata: Option<Metadata>, address: Option<&str>, header: Option<&str>| {
            let attributes = address.map(|address| ("filter".to_owned(), one("upstream.address", address)));
            let attributes: Attributes = attributes.into_iter().collect();
            let head = ResponseHead {
                served: header.map(|text| text.parse().unwrap()),
                ..ResponseHead::default()
            };
            let by = Upstream::read(&head, metadata.as_ref(), &attributes).by;
            by.map(|socket| socket.to_string())
        };

        let (one, two, three) = ("[fd00::1]:80", Some("10.0.0.2:80"), Some("10.0.0.3:80"));
        assert_eq!(by(Some(named(one)), two, three).as_deref(), Some(one));
        assert_eq!(by(None, two, three).as_deref(), two);
        assert_eq!(by(None, None, three).as_deref(), three);
        assert_eq!(by(Some(named("elsewhere")), None, None), None);
        assert_eq!(by(None, None, None), None);
    }
}
