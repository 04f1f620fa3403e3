//! The plot of where requests were sent, and when.

use super::MOST_COLUMNS;
use super::axis::Axis;
use super::heat::HeatMap;
use super::number::{counted_of, figure};
use crate::sim::record::{RequestRecord, RunRecord};

/// How many requests were sent to each endpoint, over time.
pub(super) fn map(record: &RunRecord, names: &[String]) -> String {
    let sent_at = |request: &RequestRecord| request.arrival_us + request.gateway_delay_us.unwrap_or(0);
    let sent = || {
        let placed = record.requests.iter();
        placed.filter_map(|request| Some((sent_at(request), request.instance? as usize)))
    };
    let Some(last) = sent().map(|(at, _)| at).max() else {
        return String::new();
    };
    let end_us = record.end_us.max(last).max(1);
    let columns = MOST_COLUMNS as u64;
    let width = end_us.div_ceil(columns).max(1);
    let mut rows: Vec<_> = names
        .iter()
        .map(|name| (name.clone(), vec![0.0; MOST_COLUMNS]))
        .collect();
    for (at, instance) in sent() {
        let column = usize::try_from(at / width).map_or(MOST_COLUMNS - 1, |column| column.min(MOST_COLUMNS - 1));
        if let Some((_, cells)) = rows.get_mut(instance) {
            cells[column] += 1.0;
        }
    }
    let total = sent().count() as u64;
    HeatMap {
        id: "decisions",
        title: "Decision map",
        note: format!(
            "{} by the endpoint that they were sent to, and when.",
            counted_of(total, "request")
        ),
        unit: "requests".to_owned(),
        x: Axis::time((width * columns) as f64),
        edges: (0..=columns).map(|column| (column * width) as f64).collect(),
        rows,
        label: figure,
    }
    .svg()
}
