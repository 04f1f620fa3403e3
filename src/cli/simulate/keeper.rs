//! Requests of a run on their way into the cluster, kept for a trace.

use forebay::sim::record::RunRecord;
use forebay::sim::request::{Arrivals, Ended, SimRequest};
use forebay::sim::trace::Row;
use forebay::sim::workload::Workload;

/// Hands requests on, and keeps a row of a trace for each if that is wanted.
#[derive(Debug)]
pub(in crate::cli) struct Keeper<'w> {
    workload: &'w mut Workload,
    rows: Option<Vec<Row>>,
}

impl<'w> Keeper<'w> {
    pub(in crate::cli) fn new(workload: &'w mut Workload, keeps: bool) -> Self {
        Self {
            workload,
            rows: keeps.then(Vec::new),
        }
    }

    /// The rows, with what became of the requests.
    pub(in crate::cli) fn into_rows(self, record: &RunRecord) -> Option<Vec<Row>> {
        let mut rows = self.rows?;
        for (row, record) in rows.iter_mut().zip(&record.requests) {
            row.end(record);
        }
        Some(rows)
    }
}

impl Arrivals for Keeper<'_> {
    fn next_arrival(&self) -> Option<u64> {
        self.workload.next_arrival()
    }

    fn take(&mut self) -> Option<SimRequest> {
        let request = self.workload.take()?;
        if let Some(rows) = &mut self.rows {
            rows.push(Row::sent(rows.len() as u64, &request));
        }
        Some(request)
    }

    fn ended(&mut self, request: &SimRequest, at_us: u64, how: Ended) {
        self.workload.ended(request, at_us, how);
    }
}
