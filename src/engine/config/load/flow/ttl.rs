//! How long requests may wait.

use std::fmt;
use std::time::Duration;

use super::super::super::super::flow::plan::BandPlan;
use super::super::super::document::{FlowControl, PriorityBand, Span};
use super::super::super::report::Report;

/// How long requests may wait, unless their band says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ttls {
    /// While the pool has endpoints. Without end if none.
    pub(super) with_endpoints: Option<Duration>,
    /// While it has none. Without end if none.
    pub(super) without_endpoints: Option<Duration>,
    /// How long the proxy waits for an answer, if that is known and has an end.
    route_timeout: Option<Duration>,
}

impl Ttls {
    /// What the section says.
    pub(super) fn read(section: &FlowControl, report: &mut Report) -> Self {
        let route = "flowControl.routeTimeout";
        let route_timeout = section.route_timeout.as_ref();
        let route_timeout = route_timeout.and_then(|span| read(span, route, "RouteTimeout", report)?.0);
        let mut longest = |given: Option<&Span>, field: &str, name: &str| {
            let path = format!("flowControl.{field}");
            let ttl = read(given?, &path, name, report)?;
            ttl.check(route_timeout, &path, field, report);
            Some(ttl)
        };
        let default = longest(
            section.default_request_ttl.as_ref(),
            "defaultRequestTTL",
            "DefaultRequestTTL",
        );
        let no_endpoint = longest(
            section.no_endpoint_request_ttl.as_ref(),
            "noEndpointRequestTTL",
            "NoEndpointRequestTTL",
        );
        let usual = Ttl(Some(BandPlan::DEFAULT_TTL));
        if section.default_request_ttl.is_none() {
            usual.check(route_timeout, route, "defaultRequestTTL, which is not given,", report);
        }
        let default = default.unwrap_or(usual);
        Self {
            with_endpoints: default.0,
            without_endpoints: no_endpoint.unwrap_or(default).0,
            route_timeout,
        }
    }

    /// How long the requests of the band that stands at `path` and is called `label` may wait with endpoints.
    pub(super) fn of_band(
        &self,
        band: &PriorityBand,
        path: &str,
        label: &str,
        report: &mut Report,
    ) -> Option<Duration> {
        let (given, field, name) = match (&band.default_request_ttl, &band.request_ttl) {
            (Some(given), old) => {
                if old.is_some() {
                    let message = "`requestTTL` is deprecated, and has no effect beside `defaultRequestTTL`";
                    report.warning(&format!("{path}.requestTTL"), message);
                }
                (given, "defaultRequestTTL", "DefaultRequestTTL")
            }
            (None, Some(given)) => {
                let message = "`requestTTL` is deprecated; write `defaultRequestTTL`";
                report.warning(&format!("{path}.requestTTL"), message);
                (given, "requestTTL", "RequestTTL")
            }
            (None, None) => return self.with_endpoints,
        };
        let path = format!("{path}.{field}");
        let Some(ttl) = read(given, &path, &format!("{label} {name}"), report) else {
            return self.with_endpoints;
        };
        ttl.check(self.route_timeout, &path, field, report);
        ttl.0
    }
}

/// How long something lasts; without end if none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ttl(Option<Duration>);

fn read(span: &Span, path: &str, name: &str, report: &mut Report) -> Option<Ttl> {
    match span {
        Span::Of(Duration::ZERO) => Some(Ttl(None)),
        Span::Of(span) => Some(Ttl(Some(*span))),
        Span::Negative(text) => {
            report.error(path, format!("{name} cannot be negative, but got {text}"));
            None
        }
    }
}

impl Ttl {
    /// Reports a wait that the proxy does not wait for.
    fn check(self, route_timeout: Option<Duration>, path: &str, what: &str, report: &mut Report) {
        let Some(route_timeout) = route_timeout else { return };
        if self.0.is_none_or(|ttl| ttl > route_timeout) {
            report.error(
                path,
                format!(
                    "{what} is {self}, and the route timeout {route_timeout:?}: the proxy would give up on a request \
                     that still waits; raise the timeout of the route and `message_timeout` of the ext_proc filter, and \
                     `flowControl.routeTimeout` with them, or shorten the TTL"
                ),
            );
        }
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(ttl) => write!(f, "{ttl:?}"),
            None => f.write_str("without end"),
        }
    }
}
