//! Changes of the health of endpoints, in the log.

use std::time::Duration;

use tracing::{debug, info, warn};

use crate::engine::pool::health::{EndpointState, HealthChange};

/// Says in the log what changed.
pub(super) fn log(change: &HealthChange) {
    let HealthChange {
        endpoint,
        from,
        lasted,
        to,
        reason,
        metrics_age,
        failures,
        ejected_for,
    } = change;
    let (address, endpoint) = (endpoint.socket(), &*endpoint.name);
    let reason = reason.map(|reason| reason.to_string()).unwrap_or_default();
    let metrics = match metrics_age {
        Some(age) => format!("its metrics are {} old", seconds(*age)),
        None => "its metrics were never read".to_owned(),
    };
    match to {
        EndpointState::Healthy => match from {
            EndpointState::Unscraped => debug!(endpoint, %address, "endpoint healthy: its metrics were read"),
            _ => info!(
                endpoint, %address,
                "endpoint healthy again; it was {} for {}", from.name(), seconds(*lasted)
            ),
        },
        EndpointState::Unscraped => debug!(endpoint, %address, reason, "endpoint reachable; {metrics}"),
        EndpointState::Stale => warn!(
            endpoint, %address,
            "endpoint stale: {reason}; {metrics}, and it is the last choice"
        ),
        EndpointState::Unreachable => warn!(
            endpoint, %address,
            "endpoint unreachable: {reason}; {metrics}, and it is the last choice"
        ),
        EndpointState::Ejected => warn!(
            endpoint, %address,
            "endpoint ejected after {failures} consecutive failures ({reason}); back at the earliest in {}",
            seconds(ejected_for.unwrap_or_default())
        ),
    }
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}
