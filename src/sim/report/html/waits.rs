//! The plot of how long the requests of each tenant waited.

use std::fmt::Write;

use super::super::metrics::Metrics;
use super::ranges::{Range, RangeChart, Row};

/// Tenants whose waits are drawn; of more, those that waited longest.
const MOST_TENANTS: usize = 16;

/// The waits of each tenant, or of all requests if there are no tenants. Nothing if nobody waited.
pub(super) fn plot(metrics: &Metrics) -> String {
    let cluster = &metrics.cluster;
    let mut rows: Vec<_> = metrics
        .tenants
        .iter()
        .map(|(name, tenant)| (name.as_str(), &tenant.gateway_delay, &tenant.scheduling_delay))
        .collect();
    if rows.is_empty() {
        rows.push(("all requests", &cluster.gateway_delay, &cluster.scheduling_delay));
    }
    let found = rows.len();
    rows.sort_by(|(_, gateway, scheduling), (_, other_gateway, other_scheduling)| {
        let worst = scheduling.p99.us().max(gateway.p99.us());
        other_scheduling.p99.us().max(other_gateway.p99.us()).total_cmp(&worst)
    });
    rows.truncate(MOST_TENANTS);
    let is_queued = rows.iter().any(|(_, gateway, _)| gateway.count > 0);
    if rows
        .iter()
        .all(|(_, gateway, scheduling)| gateway.count + scheduling.count == 0)
    {
        return String::new();
    }
    let mut note = "Bar: median; line: 95th percentile; dot: 99th percentile.".to_owned();
    if found > MOST_TENANTS {
        write!(note, " The {MOST_TENANTS} of {found} tenants that waited longest.").expect("a String takes every text");
    }
    let mut kinds = vec!["from arrival into a batch"];
    if is_queued {
        kinds.insert(0, "at the gateway");
    }
    let rows = rows.into_iter().map(|(name, gateway, scheduling)| {
        let waits = [is_queued.then_some(gateway), Some(scheduling)];
        Row {
            name: name.to_owned(),
            ranges: waits.into_iter().flatten().map(Range::of).collect(),
        }
    });
    RangeChart {
        id: "waits",
        title: "Waits by tenant",
        note,
        kinds,
        rows: rows.collect(),
    }
    .svg()
}
