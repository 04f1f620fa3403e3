use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

/// A table with room for so many rows of one counter each.
fn table(rows: usize) -> SeriesTable {
    let mut table = SeriesTable::new(Limits::default());
    let row = ROW_BYTES + counts("m", "t").value_bytes() + bytes_of_a_counter(&table);
    // The label `other` is longer than those of the tests.
    table.shares[Schema::Counts as usize].limit = rows * (row + 32);
    table
}

fn bytes_of_a_counter(table: &SeriesTable) -> usize {
    let is_it = |shown: &&Shown| shown.measure == Measure::Requests && shown.schema == Schema::Counts;
    let shown = table.shown.iter().find(is_it).unwrap();
    shown.bytes(counts("m", "t").value_bytes() + EXTRA_BYTES)
}

fn flow(model: &str, tenant: &str) -> Flow {
    Flow {
        model: model.into(),
        target_model: model.into(),
        fairness_id: tenant.into(),
        priority: 0,
    }
}

fn counts(model: &str, tenant: &str) -> Key {
    Key::Counts(flow(model, tenant))
}

fn count(table: &mut SeriesTable, now: u64, model: &str, tenant: &str) {
    let mut row = table.row(at(now), counts(model, tenant));
    row.count(Measure::Requests, Extra::None, 1);
}

fn page(table: &mut SeriesTable, now: u64) -> Vec<CopiedRow> {
    let mut rows = Vec::new();
    let mut reading = Some(table.begin_page(at(now)));
    while let Some(next) = reading {
        reading = table.read(next, 3, &mut rows);
    }
    rows
}

/// Requests by model and tenant.
fn requests(rows: &[CopiedRow]) -> BTreeMap<String, u64> {
    let of = |row: &CopiedRow| {
        let Key::Counts(flow) = &row.key else { return None };
        let Count::Counter(count) = row.series.first()?.count else {
            return None;
        };
        Some((format!("{}/{}", flow.model, flow.fairness_id), count))
    };
    rows.iter().filter_map(of).collect()
}

fn shown(table: &mut SeriesTable, now: u64) -> Vec<(String, u64)> {
    requests(&page(table, now)).into_iter().collect()
}

fn is(name: &str, count: u64) -> (String, u64) {
    (name.to_owned(), count)
}

#[test]
fn before_a_page_the_least_recently_used_combination_makes_room_and_its_counts_go_to_other() {
    let mut table = table(3);
    for tenant in ["a", "b", "c", "a"] {
        count(&mut table, 1, "m", tenant);
    }

    count(&mut table, 2, "m", "d");

    // `b` and then `c` went: the row of their model's other tenants takes a place too.
    assert_eq!(shown(&mut table, 3), [is("m/a", 2), is("m/d", 1), is("m/other", 2)]);
}

#[test]
fn what_a_page_has_shown_stays_and_newcomers_are_other_until_it_is_idle() {
    let mut table = table(3);
    for tenant in ["a", "b", "c"] {
        count(&mut table, 1, "m", tenant);
    }
    let at_first = [is("m/a", 1), is("m/b", 1), is("m/c", 1)];
    assert_eq!(shown(&mut table, 2), at_first);

    count(&mut table, 3, "m", "d");
    assert_eq!(
        shown(&mut table, 4),
        [&at_first[..], &[is("other/other", 1)]].concat(),
        "`d` has no room yet"
    );
    // `a` is in use. The places of `b` and `c` go to `other`, which took one too, and `d`: one at each page.
    count(&mut table, 130, "m", "a");
    for now in [140, 141, 142] {
        count(&mut table, now, "m", "d");
        shown(&mut table, now);
    }
    count(&mut table, 143, "m", "d");
    assert_eq!(
        shown(&mut table, 144),
        [is("m/a", 2), is("m/d", 2), is("other/other", 3)]
    );
    assert_eq!(table.shares[Schema::Counts as usize].pressure.replaced, 2);
}

#[test]
fn idle_series_are_dropped_once_their_last_values_were_shown() {
    let mut table = table(9);
    count(&mut table, 1, "m", "a");
    shown(&mut table, 2);
    count(&mut table, 3, "m", "a");

    let hours = 4 * 3600;
    assert_eq!(
        shown(&mut table, hours),
        [is("m/a", 2)],
        "nobody has seen the second one"
    );
    assert_eq!(shown(&mut table, hours + 15), []);
    assert_eq!(table.places.len(), 0);
    assert_eq!(table.shares[Schema::Counts as usize].used, 0);

    count(&mut table, hours + 20, "m", "a");
    assert_eq!(shown(&mut table, hours + 30), [is("m/a", 1)]);
}

#[test]
fn a_combination_with_running_requests_stays() {
    let mut table = table(2);
    table.started(at(1), counts("m", "a"));
    count(&mut table, 1, "m", "a");
    for n in 0..50 {
        let tenant = format!("t{n}");
        table.started(at(2), counts("m", &tenant));
        count(&mut table, 2, "m", &tenant);
    }
    let running = |table: &mut SeriesTable, now| -> BTreeMap<String, u64> {
        let rows = page(table, now);
        let rows = rows.iter().filter_map(|row| {
            let Key::Counts(flow) = &row.key else { return None };
            Some((flow.fairness_id.to_string(), row.running?))
        });
        rows.collect()
    };
    let all = running(&mut table, 10_000);
    assert_eq!((all["a"], all.values().sum::<u64>()), (1, 51));

    for n in 0..50 {
        table.ended(at(3), counts("m", &format!("t{n}")));
    }
    let all = running(&mut table, 20_000);
    assert_eq!((all["a"], all.values().sum::<u64>()), (1, 1));
    table.ended(at(4), counts("m", "a"));
    assert_eq!(running(&mut table, 20_001).values().sum::<u64>(), 0);
    assert_eq!(
        table.places.len(),
        table.rows.len(),
        "no place is left of what has ended"
    );
}

#[test]
fn models_that_the_operator_named_are_told_apart_beyond_the_bound() {
    let mut table = table(0);
    table.pin(["named".into()].into_iter());
    for (model, tenant) in [("named", "a"), ("named", "b"), ("invented", "a"), ("", "a")] {
        count(&mut table, 1, model, tenant);
    }

    assert_eq!(
        shown(&mut table, 2),
        [is("/other", 1), is("named/other", 2), is("other/other", 1)]
    );
}

#[test]
fn a_long_value_is_other() {
    let mut table = table(9);
    let longest = "m".repeat(MAX_VALUE_BYTES);
    count(&mut table, 1, &longest, "a");
    count(&mut table, 1, &format!("{longest}m"), "a");

    assert_eq!(shown(&mut table, 2), [is(&format!("{longest}/a"), 1), is("other/a", 1)]);
}

#[test]
fn the_page_bytes_that_are_charged_are_no_less_than_those_that_are_taken() {
    for measure in Measure::ALL {
        for shown in Shown::all(true).iter().filter(|shown| shown.measure == measure) {
            let names: usize = shown.labels.iter().map(|(label, _)| label.len() + 4).sum();
            let lines = measure.buckets().map_or(1, |bounds| bounds.len() + 3);
            // Name, labels, braces, a space, a value of one digit and the end of the line.
            assert!(
                shown.bytes(0) >= lines * (shown.name.len() + names + 3),
                "{}",
                shown.name
            );
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Count {
        model: u8,
        tenant: u8,
        measure: u8,
        value: u8,
    },
    Start {
        model: u8,
        tenant: u8,
    },
    End,
    Wait {
        seconds: u16,
    },
    /// Reads a part of a page. If none is being read, begins one.
    Read {
        rows: u8,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4_u8, 0..12_u8, 0..3_u8, 1..9_u8)
            .prop_map(|(model, tenant, measure, value)| Step::Count { model, tenant, measure, value }),
        1 => (0..4_u8, 0..12_u8).prop_map(|(model, tenant)| Step::Start { model, tenant }),
        1 => Just(Step::End),
        1 => (0..400_u16).prop_map(|seconds| Step::Wait { seconds }),
        2 => (1..5_u8).prop_map(|rows| Step::Read { rows }),
    ]
}

const MEASURES: [Measure; 3] = [Measure::Requests, Measure::EstimatedTokens, Measure::Duration];

/// Somebody who reads all pages, and adds up how much series grow from one to the next, as `increase()` does. A series
/// that was not on the page before counts from zero.
#[derive(Default)]
struct Reader {
    last: BTreeMap<String, u64>,
    grown: BTreeMap<Measure, u64>,
}

impl Reader {
    fn read(&mut self, rows: &[CopiedRow]) {
        let mut page = BTreeMap::new();
        for row in rows {
            for series in &row.series {
                let value = match &series.count {
                    Count::Counter(count) => *count,
                    Count::Histogram { buckets, .. } => buckets.iter().sum(),
                };
                let name = format!("{:?} {:?} {:?}", row.key, series.measure, series.extra);
                let before = self.last.get(&name).copied().unwrap_or(0);
                assert!(value >= before, "{name} fell from {before} to {value}");
                *self.grown.entry(series.measure).or_default() += value - before;
                let twice = page.insert(name, value);
                assert_eq!(twice, None, "a series is on the page twice");
            }
        }
        self.last = page;
    }
}

proptest! {
    #[test]
    fn whatever_happens_all_that_is_counted_is_seen_once_and_no_bound_is_passed(
        steps in proptest::collection::vec(step(), 1..300),
        rooms in 1_usize..12,
        pins in any::<bool>(),
    ) {
        let mut table = table(rooms);
        for share in &mut table.shares {
            share.limit = table.limits.bytes.min(rooms * 4000);
        }
        if pins {
            table.pin(["m0".into()].into_iter());
        }
        let mut now = 0;
        let mut reader = Reader::default();
        let mut counted: BTreeMap<Measure, u64> = BTreeMap::new();
        let mut running: Vec<Key> = Vec::new();
        let mut reading = None;
        let mut rows = Vec::new();
        for step in steps {
            match step {
                Step::Count { model, tenant, measure, value } => {
                    let flow = flow(&format!("m{model}"), &format!("t{tenant}"));
                    let measure = MEASURES[usize::from(measure)];
                    let amount = u64::from(value);
                    if measure == Measure::Duration {
                        let mut row = table.row(at(now), Key::Distributions(flow));
                        (0..amount).for_each(|_| row.observe(measure, Extra::None, f64::from(value)));
                    } else {
                        table.row(at(now), Key::Counts(flow)).count(measure, Extra::None, amount);
                    }
                    *counted.entry(measure).or_default() += amount;
                }
                Step::Start { model, tenant } => {
                    let key = counts(&format!("m{model}"), &format!("t{tenant}"));
                    table.started(at(now), key.clone());
                    running.push(key);
                }
                Step::End => {
                    if let Some(key) = running.pop() {
                        table.ended(at(now), key);
                    }
                }
                Step::Wait { seconds } => now += u64::from(seconds),
                Step::Read { rows: some } => {
                    let next = reading.take().unwrap_or_else(|| table.begin_page(at(now)));
                    reading = table.read(next, usize::from(some), &mut rows);
                    if reading.is_none() {
                        reader.read(&std::mem::take(&mut rows));
                    }
                }
            }
            check_bounds(&table);
        }
        if let Some(next) = reading {
            let rest = table.read(next, usize::MAX, &mut rows);
            prop_assert!(rest.is_none());
            reader.read(&std::mem::take(&mut rows));
        }
        let last = page(&mut table, now);
        reader.read(&last);
        prop_assert_eq!(&reader.grown, &counted);
        let shown: u64 = last.iter().filter_map(|row| row.running).sum();
        prop_assert_eq!(shown, running.len() as u64);
    }
}

/// The table takes no more than its bound, but for rows that are always there; and its books are right.
fn check_bounds(table: &SeriesTable) {
    let mut used = [0; Schema::ALL.len()];
    let mut beyond = [0; Schema::ALL.len()];
    for (_, row) in &table.rows {
        let schema = row.key.schema() as usize;
        used[schema] += row.bytes;
        if row.key.wider(&table.names).is_none() {
            beyond[schema] += row.bytes;
        }
    }
    // A row that is folded is replaced by one of its model's other tenants, whose label may be longer.
    let slack = 256 * table.rows.len();
    for (schema, share) in table.shares.iter().enumerate() {
        assert_eq!(share.used, used[schema], "of {:?}", Schema::ALL[schema]);
        assert!(
            share.used <= share.limit + beyond[schema] + slack,
            "{:?}: {} of {}",
            Schema::ALL[schema],
            share.used,
            share.limit
        );
    }
    let own: BTreeSet<usize> = table.rows.iter().map(|(at, _)| at).collect();
    assert!(table.rows.iter().all(|(_, row)| table.places[&row.key].is_own));
    assert_eq!(own.len(), table.rows.len());
}
