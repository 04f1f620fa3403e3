//! Reading the rows for a page, in short steps, so that nobody who counts something waits for long.

use std::mem;

use super::row::Series;
use super::{Key, REPLACEABLE_AFTER, Schema, SeriesTable};
use crate::engine::time::Timestamp;

/// A row as it was when it was read.
#[derive(Clone, Debug)]
pub(in super::super) struct CopiedRow {
    pub(in super::super) key: Key,
    pub(in super::super) series: Vec<Series>,
    pub(in super::super) running: Option<u64>,
}

/// Where the reading of a page has got to.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Reading {
    page: u64,
    at: usize,
}

/// The share of a schema that is freed for others at one page, at most: a fraction of it.
const REPLACED_AT_ONCE: usize = 4;

impl SeriesTable {
    /// Begins a page: drops rows that were idle for long, and those whose place others want. What comes after this is not
    /// on this page, so that no row is dropped and comes back on one page.
    pub(in super::super) fn begin_page(&mut self, now: Timestamp) -> Reading {
        let mut idle: Vec<(Timestamp, usize)> = Vec::new();
        for (at, row) in &self.rows {
            let may_go = row.was_shown && !row.is_news && !row.is_running();
            if may_go && now.since(row.used) >= REPLACEABLE_AFTER.min(self.limits.idle) {
                idle.push((row.used, at));
            }
        }
        idle.sort_unstable();
        let mut wanted = Schema::ALL.map(|schema| {
            let share = &mut self.shares[schema as usize];
            mem::take(&mut share.wanted).min(share.limit / REPLACED_AT_ONCE)
        });
        for (used, at) in idle {
            let schema = self.rows[at].key.schema() as usize;
            let is_expired = now.since(used) >= self.limits.idle;
            if !is_expired && wanted[schema] == 0 {
                continue;
            }
            let row = self.remove(at);
            wanted[schema] = wanted[schema].saturating_sub(row.bytes);
            let pressure = &mut self.shares[schema].pressure;
            *(if is_expired {
                &mut pressure.expired
            } else {
                &mut pressure.replaced
            }) += 1;
        }
        self.pages += 1;
        Reading {
            page: self.pages,
            at: 0,
        }
    }

    /// Reads the next `count` slots to `rows`. The rest is to be read from what it returns, if there is a rest.
    pub(in super::super) fn read(
        &mut self,
        reading: Reading,
        count: usize,
        rows: &mut Vec<CopiedRow>,
    ) -> Option<Reading> {
        let end = self.rows.capacity().min(reading.at.saturating_add(count));
        for at in reading.at..end {
            let Some(row) = self.rows.get_mut(at).filter(|row| row.since_page < reading.page) else {
                continue;
            };
            row.was_shown = true;
            row.is_news = false;
            rows.push(CopiedRow {
                key: row.key.clone(),
                series: row.series.clone(),
                running: row.running,
            });
        }
        if end < self.rows.capacity() {
            return Some(Reading { at: end, ..reading });
        }
        // What was shown is no longer among those that may be folded.
        let Self { shares, rows, .. } = self;
        for share in shares {
            share
                .unseen
                .retain(|&(at, id)| rows.get(at).is_some_and(|row| row.id == id && !row.was_shown));
        }
        None
    }
}
