//! The Envoy in front: its bootstrap, made from a few choices.
//!
//! Envoy reads JSON as well as YAML. `examples/envoy/full-duplex.yaml` is the default of this file in a form that is meant
//! for reading, and `examples/envoy/fallback-list.yaml` the same for endpoints that Envoy knows; tests hold them together.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;

use serde_json::{Value, json};

use crate::serve::ext_proc::{DESTINATION, DESTINATION_SERVED, only_for_pickers};

/// Longest wait for an answer of the picker. It must exceed the longest time that a request may wait in a queue.
const MESSAGE_TIMEOUT: &str = "1000s";

/// An Envoy that asks a picker where requests go.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// Where clients connect to.
    pub listen: SocketAddr,
    /// Envoy's own pages.
    pub admin: SocketAddr,
    /// The picker's ext_proc port.
    pub picker: SocketAddr,
    /// How the picker is talked to. Default: in plain text.
    pub security: PickerSecurity,
    /// How bodies of requests go to the picker. Default: full duplex.
    pub request_body: BodyMode,
    /// How bodies of responses go to the picker. Default: full duplex.
    pub response_body: BodyMode,
    /// What happens to requests that the picker does not answer. Default: they fail.
    pub failure: FailureMode,
    /// How the pick becomes a connection. Default: by the destination header.
    pub destination: Destination,
}

/// How the picker is talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PickerSecurity {
    /// HTTP/2 without TLS.
    Plaintext,
    /// HTTP/2 over TLS; the certificate is not verified, since the picker makes it itself unless it is given one.
    Tls,
}

/// How bodies of one direction go to the picker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyMode {
    /// In chunks, answered in any pieces at any time. What the endpoint picker protocol asks for.
    FullDuplexStreamed,
    /// In one piece.
    Buffered,
    /// In chunks, each of which waits for its answer.
    Streamed,
    /// Not at all.
    None,
}

/// What happens to requests that the picker does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMode {
    /// They fail with a status of 500 and above.
    Closed,
    /// They go on without a pick, for which the destination must have a fallback. In full duplex, Envoy goes on only with
    /// requests of which it has sent no part of the body to the picker. So it checks the picker's health every second, and
    /// asks none that does not answer. The picker has to answer health checks on its ext_proc port (`--health-checking`).
    Open,
}

/// How the pick becomes a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Envoy connects to whatever address the destination header names. Endpoints may come and go.
    Header,
    /// Envoy knows the endpoints and connects only to those. It tries the next one of the picker's list when it cannot send to
    /// the one before, and takes them in turn if nothing was picked.
    Known(Vec<SocketAddr>),
}

impl Bootstrap {
    /// The defaults, at these addresses.
    pub fn new(listen: SocketAddr, admin: SocketAddr, picker: SocketAddr) -> Self {
        Self {
            listen,
            admin,
            picker,
            security: PickerSecurity::Plaintext,
            request_body: BodyMode::FullDuplexStreamed,
            response_body: BodyMode::FullDuplexStreamed,
            failure: FailureMode::Closed,
            destination: Destination::Header,
        }
    }

    /// The bootstrap document.
    pub fn document(&self) -> Value {
        json!({
            "node": { "id": "forebay", "cluster": "forebay" },
            "admin": { "address": socket_address(self.admin) },
            "static_resources": {
                "listeners": [self.listener()],
                "clusters": [self.picker_cluster(), self.model_servers_cluster()],
            },
        })
    }

    fn listener(&self) -> Value {
        json!({
            "name": "ingress",
            "address": socket_address(self.listen),
            "filter_chains": [{
                "filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": {
                        "@type": extension("filters.network.http_connection_manager", "HttpConnectionManager"),
                        "stat_prefix": "ingress",
                        "codec_type": "AUTO",
                        "http_protocol_options": { "enable_trailers": true },
                        "stream_idle_timeout": "0s",
                        "route_config": {
                            "virtual_hosts": [{
                                "name": "all",
                                "domains": ["*"],
                                "routes": [{ "match": { "prefix": "/" }, "route": self.route() }],
                            }],
                        },
                        "http_filters": [
                            // Where Envoy goes on without the picker, nobody else removes these.
                            remove_headers(only_for_pickers()),
                            self.picker_filter(),
                            {
                                "name": "envoy.filters.http.router",
                                "typed_config": { "@type": extension("filters.http.router", "Router") },
                            },
                        ],
                    },
                }],
            }],
        })
    }

    fn route(&self) -> Value {
        let mut route = json!({ "cluster": "model-servers", "timeout": "0s" });
        if let Destination::Known(_) = self.destination {
            // Only what no server has seen a byte of is sent again.
            route["retry_policy"] = json!({
                "retry_on": "connect-failure,refused-stream,reset-before-request",
                "num_retries": 3,
                "retry_back_off": { "base_interval": "0.025s", "max_interval": "0.25s" },
            });
        }
        route
    }

    fn picker_filter(&self) -> Value {
        json!({
            "name": "envoy.filters.http.ext_proc",
            "typed_config": {
                "@type": extension("filters.http.ext_proc", "ExternalProcessor"),
                "grpc_service": {
                    "envoy_grpc": { "cluster_name": "picker" },
                    "retry_policy": {
                        "retry_on": "connect-failure",
                        "num_retries": 5,
                        "retry_back_off": { "base_interval": "0.05s", "max_interval": "1s" },
                        "retry_host_predicate": [{
                            "name": "envoy.retry_host_predicates.previous_hosts",
                            "typed_config": { "@type": extension("retry.host.previous_hosts", "PreviousHostsPredicate") },
                        }],
                        "host_selection_retry_max_attempts": 5,
                    },
                },
                "failure_mode_allow": self.failure == FailureMode::Open,
                "processing_mode": {
                    "request_header_mode": "SEND",
                    "request_body_mode": self.request_body.name(),
                    "request_trailer_mode": "SEND",
                    "response_header_mode": "SEND",
                    "response_body_mode": self.response_body.name(),
                    "response_trailer_mode": "SEND",
                },
                "message_timeout": MESSAGE_TIMEOUT,
                "response_attributes": ["response.code_details"],
                "metadata_options": {
                    "forwarding_namespaces": { "untyped": ["envoy.lb", "envoy.lb.subset_hint"] },
                    "receiving_namespaces": { "untyped": ["envoy.lb"] },
                },
            },
        })
    }

    fn picker_cluster(&self) -> Value {
        let mut cluster = json!({
            "name": "picker",
            "type": "STATIC",
            "connect_timeout": "1s",
            "typed_extension_protocol_options": http_options(&json!({ "http2_protocol_options": {} })),
            "circuit_breakers": no_limits(),
            "load_assignment": load_assignment("picker", [self.picker]),
        });
        if self.security == PickerSecurity::Tls {
            cluster["transport_socket"] = json!({
                "name": "envoy.transport_sockets.tls",
                "typed_config": {
                    "@type": extension("transport_sockets.tls", "UpstreamTlsContext"),
                    "common_tls_context": { "alpn_protocols": ["h2"] },
                },
            });
        }
        if self.failure == FailureMode::Open {
            cluster["health_checks"] = json!([{
                "timeout": "1s",
                "interval": "1s",
                "no_traffic_interval": "1s",
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                // Asked on the ext_proc port, which needs `--health-checking`: a picker that hangs still takes connections.
                "grpc_health_check": {},
            }]);
            // Otherwise Envoy asks the picker even if it is not there, as there is no other, and hears a second late of what its
            // health checks have found.
            cluster["common_lb_config"] =
                json!({ "healthy_panic_threshold": { "value": 0 }, "update_merge_window": "0s" });
        }
        cluster
    }

    fn model_servers_cluster(&self) -> Value {
        let mut cluster = json!({
            "name": "model-servers",
            "connect_timeout": "1s",
            "typed_extension_protocol_options":
                http_options(&json!({ "http_protocol_options": { "enable_trailers": true } })),
            "circuit_breakers": no_limits(),
        });
        match &self.destination {
            Destination::Header => {
                cluster["type"] = json!("ORIGINAL_DST");
                cluster["lb_policy"] = json!("CLUSTER_PROVIDED");
                cluster["original_dst_lb_config"] = json!({
                    "use_http_header": true,
                    "http_header_name": DESTINATION,
                });
            }
            Destination::Known(endpoints) => {
                cluster["type"] = json!("STATIC");
                cluster["load_balancing_policy"] = override_host();
                cluster["load_assignment"] = load_assignment("model-servers", endpoints.iter().copied());
            }
        }
        cluster
    }
}

// === impl BodyMode ===

impl BodyMode {
    fn name(self) -> &'static str {
        match self {
            Self::FullDuplexStreamed => "FULL_DUPLEX_STREAMED",
            Self::Buffered => "BUFFERED",
            Self::Streamed => "STREAMED",
            Self::None => "NONE",
        }
    }
}

/// The arguments of an Envoy that runs the bootstrap at `config` with `threads`. Many can run on one machine.
pub fn arguments(config: &Path, threads: NonZeroUsize) -> Vec<String> {
    vec![
        "--config-path".to_owned(),
        config.to_string_lossy().into_owned(),
        "--concurrency".to_owned(),
        threads.to_string(),
        "--disable-hot-restart".to_owned(),
        "--log-level".to_owned(),
        "warning".to_owned(),
    ]
}

fn remove_headers(names: impl Iterator<Item = &'static str>) -> Value {
    let removals: Vec<_> = names.map(|name| json!({ "remove": name })).collect();
    json!({
        "name": "envoy.filters.http.header_mutation",
        "typed_config": {
            "@type": extension("filters.http.header_mutation", "HeaderMutation"),
            "mutations": { "request_mutations": removals },
        },
    })
}

/// Sends to the picked endpoint, and to the next in turn if none was picked or it is not known.
fn override_host() -> Value {
    json!({
        "policies": [policy(
            "override_host",
            "OverrideHost",
            &json!({
                "override_host_sources": [
                    { "metadata": { "key": "envoy.lb", "path": [{ "key": DESTINATION }] } },
                ],
                "selected_host_key": { "key": "envoy.lb", "path": [{ "key": DESTINATION_SERVED }] },
                "fallback_policy": { "policies": [policy("round_robin", "RoundRobin", &json!({}))] },
            }),
        )],
    })
}

fn policy(name: &str, message: &str, fields: &Value) -> Value {
    let mut config = fields.clone();
    config["@type"] = extension(&format!("load_balancing_policies.{name}"), message);
    json!({
        "typed_extension_config": {
            "name": format!("envoy.load_balancing_policies.{name}"),
            "typed_config": config,
        },
    })
}

fn http_options(explicit: &Value) -> Value {
    json!({
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": extension("upstreams.http", "HttpProtocolOptions"),
            "explicit_http_config": explicit,
        },
    })
}

/// Envoy stops at 1024 requests to a cluster otherwise, and requests that wait in the picker count.
fn no_limits() -> Value {
    const LIMIT: u32 = 100_000;
    json!({
        "thresholds": [{
            "max_connections": LIMIT,
            "max_pending_requests": LIMIT,
            "max_requests": LIMIT,
            "max_retries": LIMIT,
        }],
    })
}

fn load_assignment(cluster: &str, endpoints: impl IntoIterator<Item = SocketAddr>) -> Value {
    let endpoints: Vec<_> = endpoints
        .into_iter()
        .map(|address| json!({ "endpoint": { "address": socket_address(address) } }))
        .collect();
    json!({ "cluster_name": cluster, "endpoints": [{ "lb_endpoints": endpoints }] })
}

fn socket_address(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}

fn extension(package: &str, message: &str) -> Value {
    json!(format!("type.googleapis.com/envoy.extensions.{package}.v3.{message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn the_example_says_what_the_defaults_say() {
        let example = include_str!("../../../examples/envoy/full-duplex.yaml");

        let (written, _) = crate::engine::config::yaml::parse(example).unwrap();

        assert_eq!(written, Bootstrap::new(at(10080), at(19001), at(9002)).document());
    }

    #[test]
    fn the_example_with_a_fallback_list_says_what_is_said_for_endpoints_that_are_known() {
        let example = include_str!("../../../examples/envoy/fallback-list.yaml");

        let (written, _) = crate::engine::config::yaml::parse(example).unwrap();

        let known = Bootstrap {
            destination: Destination::Known(vec![at(8000), at(8001)]),
            ..Bootstrap::new(at(10080), at(19001), at(9002))
        };
        assert_eq!(written, known.document());
    }
}
