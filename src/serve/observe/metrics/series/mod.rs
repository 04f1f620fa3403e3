//! The series whose labels come from requests: as many combinations of label values as have room on the page.
//!
//! Clients choose models and tenants, so the number of combinations is theirs, and each one costs tens of kilobytes on the
//! page. [`SeriesTable`] therefore has a budget in bytes of the page, of which each [`Schema`] has its share. What has no
//! room is counted under wider labels ([`Key::wider`]): first under the tenant `other` of the same model, then under the
//! model `other` too. Nothing that is counted gets lost.
//!
//! Two rules keep `rate()` right, which takes a series that falls for one that started anew, and all that a series shows
//! at first sight or later for new:
//!
//! - A row that no page has shown may make room for another at any time: what it counted is added to the wider row.
//! - A row that was shown is never added to another one, for then its counts would be seen twice. It goes only when a page
//!   begins, and only if everything that it counted was on a page before and it has been idle since: for
//!   [`REPLACEABLE_AFTER`] if others want its place, for [`Limits::idle`] if not. It then ends as series of a pod that is
//!   gone do. If it comes back, it starts at zero.
//!
//! Both act on least recently used rows first. A row with running requests stays, so that its gauge gets back to zero.

mod key;
mod measure;
mod page;
mod row;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use crate::engine::time::Timestamp;
use key::Names;
pub(super) use key::{AttemptedEndpoint, Extra, Flow, Key, MAX_VALUE_BYTES, OTHER, Schema, Value};
pub(super) use measure::{Measure, Shown};
pub(super) use page::CopiedRow;
use row::{Amount, Row};
pub(super) use row::{Count, Series};

/// Shown rows may be replaced once they have been idle for so long: whoever reads the page has read their last values.
pub(super) const REPLACEABLE_AFTER: Duration = Duration::from_secs(120);

/// Bytes that are charged for a row besides those of its series.
const ROW_BYTES: usize = 256;

/// The most rows that are looked at for one that can make room, so that no request waits for a long search.
const LOOKED_AT: usize = 64;

/// How much the series may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the page, about, that series with labels from requests may take. Their memory, and that of a page being
    /// read, is about half of that.
    pub bytes: usize,
    /// Series that were idle for so long are dropped.
    pub idle: Duration,
    /// Whether families are shown under their older names too.
    pub older_names: bool,
}

impl Limits {
    /// The bytes that series may take unless it is said.
    pub const DEFAULT_BYTES: usize = 8 << 20;
    /// When idle series are dropped unless it is said.
    pub const DEFAULT_IDLE: Duration = Duration::from_secs(3600);
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: Self::DEFAULT_BYTES,
            idle: Self::DEFAULT_IDLE,
            older_names: true,
        }
    }
}

/// How often the bound made itself felt, by schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pressure {
    /// Rows that were added to a wider one before a page showed them.
    pub(super) folded: u64,
    /// Rows that went for others.
    pub(super) replaced: u64,
    /// Rows that were idle.
    pub(super) expired: u64,
    /// What was counted in a wider row, since there was no room for its own.
    pub(super) overflows: u64,
}

/// All series whose labels come from requests.
#[derive(Debug)]
pub(super) struct SeriesTable {
    limits: Limits,
    shown: Arc<[Shown]>,
    names: Names,
    rows: Slab<Row>,
    places: HashMap<Key, Place>,
    shares: [Share; Schema::ALL.len()],
    /// The row that a [`RowMut`] refers to, which has to stay meanwhile.
    held: Option<usize>,
    /// The pages that were begun.
    pages: u64,
    ids: u64,
}

/// Where what has these labels is counted.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Its row, or a wider one. A wider one only while requests run that are counted there.
    row: usize,
    running: u64,
    is_own: bool,
}

#[derive(Debug, Default)]
struct Share {
    limit: usize,
    used: usize,
    /// Rows that no page has shown, by slot and id, the least recently used first: a row that was used meanwhile gets a
    /// second chance when its turn comes.
    unseen: VecDeque<(usize, u64)>,
    /// Bytes that were wanted in vain since the last page.
    wanted: usize,
    pressure: Pressure,
}

/// A row in which something is counted.
#[derive(Debug)]
pub(super) struct RowMut<'t> {
    table: &'t mut SeriesTable,
    row: usize,
    now: Timestamp,
}

impl SeriesTable {
    pub(super) fn new(limits: Limits) -> Self {
        let shares = Schema::ALL.map(|schema| Share {
            limit: limits.bytes / 100 * schema.percent(),
            ..Share::default()
        });
        Self {
            limits,
            shown: Shown::all(limits.older_names).into(),
            names: Names::default(),
            rows: Slab::new(),
            places: HashMap::new(),
            shares,
            held: None,
            pages: 0,
            ids: 0,
        }
    }

    /// Tells these models, and no others, apart even if there is no room.
    pub(super) fn pin(&mut self, models: impl Iterator<Item = Arc<str>>) {
        self.names.pin(models);
    }

    /// How often the bound made itself felt.
    pub(super) fn pressure(&self) -> impl Iterator<Item = (Schema, Pressure)> {
        Schema::ALL
            .into_iter()
            .zip(self.shares.iter().map(|share| share.pressure))
    }

    /// True if what is shown under older names is counted.
    pub(super) fn has_older_names(&self) -> bool {
        self.limits.older_names
    }

    /// The row in which what has these labels is counted.
    pub(super) fn row(&mut self, now: Timestamp, key: Key) -> RowMut<'_> {
        self.held = None;
        let row = self.place(now, key.bounded(&self.names));
        self.held = Some(row);
        RowMut { table: self, row, now }
    }

    /// A request with these labels runs from now on.
    pub(super) fn started(&mut self, now: Timestamp, key: Key) {
        self.held = None;
        let key = key.bounded(&self.names);
        let at = self.place(now, key.clone());
        let running = &mut self.rows[at].running;
        *running = Some(running.unwrap_or(0) + 1);
        let counted_wider = Place {
            row: at,
            running: 0,
            is_own: false,
        };
        self.places.entry(key).or_insert(counted_wider).running += 1;
    }

    /// One of those that run has ended.
    pub(super) fn ended(&mut self, now: Timestamp, key: Key) {
        let key = key.bounded(&self.names);
        let Some(place) = self.places.get_mut(&key).filter(|place| place.running > 0) else {
            debug_assert!(false, "a request ended that did not run: {key:?}");
            return;
        };
        place.running -= 1;
        let Place { row, running, is_own } = *place;
        if running == 0 && !is_own {
            self.places.remove(&key);
        }
        let row = &mut self.rows[row];
        row.use_at(now);
        row.running = row.running.map(|running| running.saturating_sub(1));
    }

    /// The row of these labels, or of wider ones if there is no room.
    fn place(&mut self, now: Timestamp, key: Key) -> usize {
        if let Some(place) = self.places.get(&key) {
            let row = place.row;
            self.rows[row].use_at(now);
            return row;
        }
        let (schema, bytes) = (key.schema(), ROW_BYTES + key.value_bytes());
        match key.wider(&self.names) {
            Some(wider) if !self.make_room(now, schema, bytes, None) => {
                self.shares[schema as usize].pressure.overflows += 1;
                self.place(now, wider)
            }
            _ => self.insert(now, key),
        }
    }

    fn insert(&mut self, now: Timestamp, key: Key) -> usize {
        self.ids += 1;
        let row = Row {
            id: self.ids,
            series: Vec::new(),
            running: None,
            bytes: ROW_BYTES + key.value_bytes(),
            used: now,
            used_again: false,
            since_page: self.pages,
            was_shown: false,
            is_news: true,
            key: key.clone(),
        };
        let share = &mut self.shares[key.schema() as usize];
        share.used += row.bytes;
        let at = self.rows.insert(row);
        share.unseen.push_back((at, self.ids));
        let place = Place {
            row: at,
            running: 0,
            is_own: true,
        };
        self.places.insert(key, place);
        at
    }

    /// True if there is room for `bytes` more, perhaps because rows were folded that no page has shown. The row `kept` stays.
    fn make_room(&mut self, now: Timestamp, schema: Schema, bytes: usize, kept: Option<usize>) -> bool {
        let mut looks = LOOKED_AT;
        loop {
            let share = &mut self.shares[schema as usize];
            if share.used + bytes <= share.limit {
                return true;
            }
            match self.least_recently_used(schema, kept, &mut looks) {
                Some(row) => self.fold(now, row),
                None => {
                    self.shares[schema as usize].wanted += bytes;
                    return false;
                }
            }
        }
    }

    /// Takes the least recently used row from those that no page has shown and that may go.
    fn least_recently_used(&mut self, schema: Schema, kept: Option<usize>, looks: &mut usize) -> Option<usize> {
        while *looks > 0 {
            *looks -= 1;
            let share = &mut self.shares[schema as usize];
            let (at, id) = share.unseen.pop_front()?;
            let Some(row) = self.rows.get_mut(at).filter(|row| row.id == id && !row.was_shown) else {
                continue;
            };
            let is_kept = kept == Some(at) || self.held == Some(at);
            let stays = is_kept || row.used_again || row.is_running() || row.key.wider(&self.names).is_none();
            row.used_again = false;
            if !stays {
                return Some(at);
            }
            share.unseen.push_back((at, id));
        }
        None
    }

    /// Removes a row that no page has shown, and adds what it counted to the wider one.
    fn fold(&mut self, now: Timestamp, at: usize) {
        let row = self.remove(at);
        let Some(wider) = row.key.wider(&self.names) else {
            return;
        };
        self.shares[row.key.schema() as usize].pressure.folded += 1;
        let to = match self.places.get(&wider) {
            Some(place) => place.row,
            None => self.insert(now, wider),
        };
        let target = &mut self.rows[to];
        // Readers have to see what it got before it may go.
        (target.is_news, target.used) = (true, now);
        if row.running.is_some() {
            target.running.get_or_insert(0);
        }
        for series in &row.series {
            let found = self.rows[to].find(series.measure, series.extra);
            let index = found.unwrap_or_else(|| self.add_series(to, series.measure, series.extra));
            self.rows[to].series[index].take_over(series);
        }
    }

    fn remove(&mut self, at: usize) -> Row {
        let row = self.rows.remove(at);
        debug_assert!(!row.is_running(), "a row with running requests stays");
        self.places.remove(&row.key);
        self.shares[row.key.schema() as usize].used -= row.bytes;
        row
    }

    /// Bytes of a series on the page, under all names under which it is shown.
    fn bytes_of(&self, row: &Row, measure: Measure) -> usize {
        let schema = row.key.schema();
        let value_bytes = row.key.value_bytes() + EXTRA_BYTES;
        let is_it = |shown: &&Shown| shown.measure == measure && shown.schema == schema;
        self.shown
            .iter()
            .filter(is_it)
            .map(|shown| shown.bytes(value_bytes))
            .sum()
    }

    fn add_series(&mut self, at: usize, measure: Measure, extra: Extra) -> usize {
        let bytes = self.bytes_of(&self.rows[at], measure);
        let row = &mut self.rows[at];
        row.bytes += bytes;
        self.shares[row.key.schema() as usize].used += bytes;
        row.series.push(Series::new(measure, extra));
        row.series.len() - 1
    }

    /// Adds to a series of the row, or of a wider one if there is no room for another series.
    fn add(&mut self, now: Timestamp, at: usize, measure: Measure, extra: Extra, amount: Amount) {
        let row = &self.rows[at];
        if let Some(index) = row.find(measure, extra) {
            self.rows[at].series[index].add(amount);
            return;
        }
        let (schema, bytes) = (row.key.schema(), self.bytes_of(row, measure));
        match row.key.wider(&self.names) {
            Some(wider) if !self.make_room(now, schema, bytes, Some(at)) => {
                self.shares[schema as usize].pressure.overflows += 1;
                let wider = self.place(now, wider);
                self.add(now, wider, measure, extra, amount);
            }
            _ => {
                let index = self.add_series(at, measure, extra);
                self.rows[at].series[index].add(amount);
            }
        }
    }
}

/// Bytes of a label that is not among those of the row, such as `error_code`.
const EXTRA_BYTES: usize = 12;

impl RowMut<'_> {
    /// Counts `more`.
    pub(super) fn count(&mut self, measure: Measure, extra: Extra, more: u64) {
        self.table.add(self.now, self.row, measure, extra, Amount::More(more));
    }

    /// Counts an observation.
    pub(super) fn observe(&mut self, measure: Measure, extra: Extra, value: f64) {
        self.table
            .add(self.now, self.row, measure, extra, Amount::Observed(value));
    }
}

#[cfg(test)]
mod tests;
