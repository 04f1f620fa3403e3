//! The headers that mean something to Forebay (spec, ext-proc 3).
//!
//! Names are compared without regard to case. Of a header that comes twice the last one counts. A canonical name wins
//! over its older alias, even with an empty value.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::wire::{HeaderMap, HeaderValue};
use crate::engine::request::Slo;

/// Where the request goes: the header, and the key of the dynamic metadata.
pub(crate) const DESTINATION: &str = "x-gateway-destination-endpoint";
/// The endpoint that served the request: the key of the metadata of a response, and the header.
pub(crate) const DESTINATION_SERVED: &str = "x-gateway-destination-endpoint-served";
/// The key of the scores in the dynamic metadata.
pub(super) const DESTINATION_SCORES: &str = "x-gateway-destination-endpoint-scores";
/// The endpoints that the gateway allows: the key of the request's metadata.
pub(super) const SUBSET: &str = "x-gateway-destination-endpoint-subset";
/// Why a request was given no endpoint.
pub(super) const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";
/// Marks responses that went through the picker.
pub(super) const RESPONSE_MARK: &str = "x-went-into-resp-headers";
/// Identifies a request across logs.
pub(super) const REQUEST_ID: &str = "x-request-id";
/// The length of a body.
pub(super) const CONTENT_LENGTH: &str = "content-length";

/// Headers by which clients and gateways steer the picker, and those by which only a picker may steer what is behind it:
/// the sidecars of disaggregated serving connect to whatever address these name. None of them goes on.
const CONTROL: [(&str, Control); 27] = [
    ("x-llm-d-inference-fairness-id", Control::FairnessId),
    ("x-gateway-inference-fairness-id", Control::FairnessIdAlias),
    ("x-llm-d-inference-objective", Control::Objective),
    ("x-gateway-inference-objective", Control::ObjectiveAlias),
    ("x-llm-d-model-name-rewrite", Control::Rewrite),
    ("x-gateway-model-name-rewrite", Control::RewriteAlias),
    ("x-llm-d-slo-ttft-ms", Control::Ttft),
    ("x-slo-ttft-ms", Control::TtftAlias),
    ("x-llm-d-slo-tpot-ms", Control::Tpot),
    ("x-slo-tpot-ms", Control::TpotAlias),
    ("x-llm-d-inference-ttl", Control::Ttl),
    ("x-gateway-inference-ttl", Control::TtlAlias),
    ("x-llm-d-video-fps", Control::Other),
    ("x-llm-d-video-duration-seconds", Control::Other),
    ("x-llm-d-video-resolution", Control::Other),
    (SUBSET, Control::Other),
    (DESTINATION, Control::Destination),
    (DESTINATION_SERVED, Control::Other),
    (DROPPED_REASON, Control::Other),
    ("x-llm-d-prefiller-host-port", Control::Address),
    ("x-prefiller-host-port", Control::Address),
    ("x-prefiller-url", Control::Address),
    ("x-llm-d-encoder-hosts-ports", Control::Address),
    ("x-encoder-hosts-ports", Control::Address),
    ("x-data-parallel-host-port", Control::Address),
    ("x-llm-d-kv-cache-source-host-port", Control::Address),
    ("x-kv-cache-source-host-port", Control::Address),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    FairnessId,
    FairnessIdAlias,
    Objective,
    ObjectiveAlias,
    Rewrite,
    RewriteAlias,
    Ttft,
    TtftAlias,
    Tpot,
    TpotAlias,
    Ttl,
    TtlAlias,
    Destination,
    /// An address that a sidecar of the model server connects to.
    Address,
    Other,
}

/// The headers that name addresses which the gateway or the sidecars of model servers connect to. Only a picker may set
/// them. A gateway that goes on without one has to remove them itself, since nobody else removes what a client put there.
pub fn only_for_pickers() -> impl Iterator<Item = &'static str> {
    let names_an_address = |control| matches!(control, Control::Destination | Control::Address);
    let those = CONTROL.iter().filter(move |(_, control)| names_an_address(*control));
    those.map(|(name, _)| *name)
}

/// What the headers of a request say.
#[derive(Debug, Default)]
pub(super) struct RequestHead {
    /// The values of `:path`, `x-original-path` and `x-forwarded-path`.
    paths: [Bytes; 3],
    pub(super) request_id: Option<Arc<str>>,
    pub(super) content_length: Option<u64>,
    pub(super) fairness_id: Option<Arc<str>>,
    pub(super) objective: Option<Arc<str>>,
    /// The model to be asked for in place of the one in the body.
    pub(super) rewrite: Option<Arc<str>>,
    pub(super) slo: Slo,
    /// The longest that the request may wait.
    pub(super) ttl: Option<Duration>,
    /// `Prefer: if-available`: serve it only where a part of the prompt is cached.
    pub(super) if_available: bool,
    method: Method,
    /// Which headers of an upgrade came.
    upgrade: Upgrade,
    /// Which of `CONTROL` came, a bit for each.
    came: u32,
}

/// What matters of a method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Method {
    /// The gateway does not tell it.
    #[default]
    Unknown,
    Get,
    Connect,
    Other,
}

/// What the headers say of an upgrade to another protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Upgrade {
    /// `upgrade` names a protocol other than HTTP/2.
    is_named: bool,
    /// `connection` says that this one is to be upgraded.
    is_asked: bool,
}

/// What the headers of a response say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseHead {
    pub(super) status: Option<u16>,
    /// The body is a stream of events.
    pub(super) events: bool,
    /// The body is compressed, and cannot be looked into.
    pub(super) encoded: bool,
    /// The endpoint that served, by the header. The client is not told.
    pub(super) served: Option<SocketAddr>,
}

// === impl RequestHead ===

impl RequestHead {
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let mut head = Self::default();
        let mut steering: [Option<&HeaderValue>; CONTROL.len()] = [None; CONTROL.len()];
        for header in &headers.headers {
            let key = header.key.as_ref();
            match key.first() {
                Some(b':') if key.eq_ignore_ascii_case(b":path") => head.paths[0] = value_of(header).clone(),
                Some(b':') if key.eq_ignore_ascii_case(b":method") => head.method = Method::read(value_of(header)),
                Some(b'c' | b'C') if key.eq_ignore_ascii_case(CONTENT_LENGTH.as_bytes()) => {
                    head.content_length = number(value_of(header));
                }
                Some(b'p' | b'P') if key.eq_ignore_ascii_case(b"prefer") => {
                    head.if_available |= prefers(value_of(header), b"if-available");
                }
                Some(b'c' | b'C') if key.eq_ignore_ascii_case(b"connection") => {
                    head.upgrade.is_asked |= has_token(value_of(header), b"upgrade");
                }
                Some(b'u' | b'U') if key.eq_ignore_ascii_case(b"upgrade") => {
                    // Clients offer HTTP/2 in requests that have a body like any other.
                    head.upgrade.is_named |= !has_token(value_of(header), b"h2c");
                }
                Some(b'x' | b'X') => head.read_x(header, &mut steering),
                _ => {}
            }
        }
        head.steer(&steering);
        head
    }

    fn read_x<'h>(&mut self, header: &'h HeaderValue, steering: &mut [Option<&'h HeaderValue>; CONTROL.len()]) {
        let key = header.key.as_ref();
        let is = |name: &str| key.eq_ignore_ascii_case(name.as_bytes());
        if is(REQUEST_ID) {
            let id = value_of(header);
            self.request_id = (!id.is_empty()).then(|| Arc::from(String::from_utf8_lossy(id)));
        } else if is("x-original-path") {
            self.paths[1] = value_of(header).clone();
        } else if is("x-forwarded-path") {
            self.paths[2] = value_of(header).clone();
        } else if let Some(place) = CONTROL.iter().position(|(name, _)| is(name)) {
            steering[place] = Some(header);
            self.came |= 1 << place;
        }
    }

    fn steer(&mut self, steering: &[Option<&HeaderValue>; CONTROL.len()]) {
        if self.came == 0 {
            return;
        }
        let text = |canonical: Control, alias: Control| {
            let by = |wanted| {
                let place = CONTROL.iter().position(|(_, control)| *control == wanted)?;
                steering[place]
            };
            let value = value_of(by(canonical).or_else(|| by(alias))?);
            (!value.is_empty()).then(|| String::from_utf8_lossy(value))
        };
        let millis = |text: Cow<'_, str>| {
            let millis: f64 = text.trim().parse().ok()?;
            Duration::try_from_secs_f64(millis / 1000.0).ok()
        };
        self.fairness_id = text(Control::FairnessId, Control::FairnessIdAlias).map(Arc::from);
        self.objective = text(Control::Objective, Control::ObjectiveAlias).map(Arc::from);
        self.rewrite = text(Control::Rewrite, Control::RewriteAlias).map(Arc::from);
        self.slo = Slo {
            ttft: text(Control::Ttft, Control::TtftAlias).and_then(millis),
            tpot: text(Control::Tpot, Control::TpotAlias).and_then(millis),
        };
        self.ttl = text(Control::Ttl, Control::TtlAlias).and_then(millis);
    }

    /// The request opens a tunnel, such as a WebSocket: what follows its headers is no body, and goes both ways for as long
    /// as both sides like.
    pub(super) fn is_tunnel(&self) -> bool {
        let may_upgrade = matches!(self.method, Method::Get | Method::Unknown);
        self.method == Method::Connect || (may_upgrade && self.upgrade.is_named && self.upgrade.is_asked)
    }

    /// The value of a header that may hold the path, by its lower-case name.
    pub(super) fn path_header(&self, name: &str) -> Option<&str> {
        let place = [":path", "x-original-path", "x-forwarded-path"]
            .iter()
            .position(|known| *known == name)?;
        std::str::from_utf8(&self.paths[place]).ok()
    }

    /// The headers that must not go on. The destination is not among them: it is overwritten.
    pub(super) fn to_remove(&self) -> impl Iterator<Item = &'static str> {
        let came = self.came;
        CONTROL
            .iter()
            .enumerate()
            .filter(move |(place, (_, control))| came & (1 << place) != 0 && *control != Control::Destination)
            .map(|(_, (name, _))| *name)
    }
}

// === impl Method ===

impl Method {
    fn read(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }
}

// === impl ResponseHead ===

impl ResponseHead {
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let mut head = Self::default();
        for header in &headers.headers {
            let key = header.key.as_ref();
            let is = |name: &str| key.eq_ignore_ascii_case(name.as_bytes());
            if is(":status") {
                head.status = number(value_of(header)).and_then(|status| u16::try_from(status).ok());
            } else if is("content-type") {
                let kind = String::from_utf8_lossy(value_of(header));
                head.events = kind.to_ascii_lowercase().contains("text/event-stream");
            } else if is("content-encoding") {
                head.encoded = !value_of(header).eq_ignore_ascii_case(b"identity");
            } else if is(DESTINATION_SERVED) {
                let text = str::from_utf8(value_of(header)).unwrap_or_default();
                head.served = text.trim().parse().ok();
            }
        }
        head
    }

    /// The model server answered with anything but success or the upgrade that was asked for.
    pub(super) fn is_error(self) -> bool {
        self.status
            .is_some_and(|status| status != 101 && !(200..300).contains(&status))
    }
}

/// The bytes of a header: `raw_value`, or `value` from gateways that fill that.
fn value_of(header: &HeaderValue) -> &Bytes {
    if header.raw_value.is_empty() {
        &header.value
    } else {
        &header.raw_value
    }
}

/// Whether a `Prefer` header has this preference, with whatever value and parameters (RFC 7240).
fn prefers(value: &[u8], preference: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|entry| {
        let end = entry
            .iter()
            .position(|byte| matches!(byte, b';' | b'='))
            .unwrap_or(entry.len());
        entry[..end].trim_ascii().eq_ignore_ascii_case(preference)
    })
}

/// True if `token` is in a list with commas.
fn has_token(list: &[u8], token: &[u8]) -> bool {
    list.split(|&byte| byte == b',')
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers<'a>(list: impl IntoIterator<Item = (&'a str, &'a str)>) -> HeaderMap {
        let header = |(key, value): (&str, &str)| HeaderValue {
            key: Bytes::copy_from_slice(key.as_bytes()),
            raw_value: Bytes::copy_from_slice(value.as_bytes()),
            ..HeaderValue::default()
        };
        HeaderMap {
            headers: list.into_iter().map(header).collect(),
        }
    }

    #[test]
    fn the_canonical_name_wins_over_its_alias_in_any_order() {
        let forth = headers([
            ("x-llm-d-inference-fairness-id", "new"),
            ("x-gateway-inference-fairness-id", "old"),
        ]);
        let back = headers([
            ("x-gateway-inference-fairness-id", "old"),
            ("x-llm-d-inference-fairness-id", "new"),
        ]);

        for map in [forth, back] {
            assert_eq!(RequestHead::read(&map).fairness_id.as_deref(), Some("new"));
        }
    }

    #[test]
    fn an_empty_canonical_header_hides_its_alias() {
        let map = headers([
            ("x-llm-d-inference-objective", ""),
            ("x-gateway-inference-objective", "old"),
        ]);

        assert_eq!(RequestHead::read(&map).objective, None);
    }

    #[test]
    fn names_are_compared_without_regard_to_case() {
        let map = headers([("X-Gateway-Inference-Objective", "urgent"), ("Content-Length", "12")]);

        let head = RequestHead::read(&map);

        assert_eq!(head.objective.as_deref(), Some("urgent"));
        assert_eq!(head.content_length, Some(12));
    }

    #[test]
    fn both_forms_of_a_value_are_read() {
        let mut map = headers([("x-gateway-model-name-rewrite", "")]);
        map.headers[0].value = Bytes::from_static(b"adapter");

        assert_eq!(RequestHead::read(&map).rewrite.as_deref(), Some("adapter"));
    }

    #[test]
    fn latency_objectives_are_milliseconds_and_nonsense_is_none() {
        let map = headers([("x-slo-ttft-ms", "250"), ("x-llm-d-slo-tpot-ms", "-1")]);

        let slo = RequestHead::read(&map).slo;

        assert_eq!(slo.ttft, Some(Duration::from_millis(250)));
        assert_eq!(slo.tpot, None);
    }

    #[test]
    fn a_preference_is_found_among_others_and_with_parameters() {
        let prefers = |value| RequestHead::read(&headers([("Prefer", value)])).if_available;

        for value in [
            "if-available",
            "respond-async, If-Available",
            "wait=10,if-available;foo=\"bar\" , x",
            "if-available=1",
        ] {
            assert!(prefers(value), "{value}");
        }
        for value in ["", "if-available-soon", "x;if-available", "wait=if-available"] {
            assert!(!prefers(value), "{value}");
        }
        let twice = headers([("prefer", "if-available"), ("prefer", "wait=5")]);
        assert!(RequestHead::read(&twice).if_available);
    }

    #[test]
    fn every_control_header_that_came_is_removed_except_the_destination() {
        let all = headers(CONTROL.iter().map(|(name, _)| (*name, "forged")));

        let removed: Vec<_> = RequestHead::read(&all).to_remove().collect();

        assert_eq!(removed.len(), CONTROL.len() - 1);
        assert!(!removed.contains(&DESTINATION));
        assert_eq!(RequestHead::read(&headers([("accept", "*/*")])).to_remove().count(), 0);
    }

    #[test]
    fn the_headers_that_name_addresses_are_for_pickers_only() {
        let names: Vec<_> = only_for_pickers().collect();

        assert_eq!(
            names,
            [
                "x-gateway-destination-endpoint",
                "x-llm-d-prefiller-host-port",
                "x-prefiller-host-port",
                "x-prefiller-url",
                "x-llm-d-encoder-hosts-ports",
                "x-encoder-hosts-ports",
                "x-data-parallel-host-port",
                "x-llm-d-kv-cache-source-host-port",
                "x-kv-cache-source-host-port",
            ]
        );
    }

    #[test]
    fn connect_and_upgrades_open_tunnels_and_offers_of_http_2_do_not() {
        let upgrade = |method, to| {
            let map = headers([
                (":method", method),
                ("connection", "keep-alive, Upgrade"),
                ("upgrade", to),
            ]);
            RequestHead::read(&map).is_tunnel()
        };

        assert!(upgrade("GET", "websocket"));
        assert!(!upgrade("GET", "h2c"));
        assert!(!upgrade("POST", "websocket"));
        assert!(RequestHead::read(&headers([(":method", "CONNECT"), (":authority", "a:1")])).is_tunnel());
        assert!(!RequestHead::read(&headers([(":method", "GET"), ("upgrade", "websocket")])).is_tunnel());
        assert!(!RequestHead::read(&headers([(":method", "POST")])).is_tunnel());
    }

    #[test]
    fn the_path_may_come_in_any_of_three_headers() {
        let head = RequestHead::read(&headers([
            (":path", "/a"),
            ("x-original-path", "/b"),
            ("x-forwarded-path", "/c"),
        ]));

        assert_eq!(head.path_header(":path"), Some("/a"));
        assert_eq!(head.path_header("x-original-path"), Some("/b"));
        assert_eq!(head.path_header("x-forwarded-path"), Some("/c"));
    }

    #[test]
    fn a_response_tells_its_status_and_whether_it_is_a_readable_stream_of_events() {
        let plain = ResponseHead::read(&headers([(":status", "200"), ("content-type", "application/json")]));
        let events = ResponseHead::read(&headers([
            (":status", "503"),
            ("content-type", "text/event-stream; charset=utf-8"),
            ("content-encoding", "gzip"),
            ("x-gateway-destination-endpoint-served", "10.0.0.1:8000"),
        ]));

        assert_eq!(
            plain,
            ResponseHead {
                status: Some(200),
                events: false,
                encoded: false,
                served: None
            }
        );
        assert_eq!(
            events,
            ResponseHead {
                status: Some(503),
                events: true,
                encoded: true,
                served: Some("10.0.0.1:8000".parse().unwrap())
            }
        );
        assert!(!plain.is_error());
        assert!(events.is_error());
    }
}
