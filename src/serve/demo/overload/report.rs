//! What is shown of an overload: a table and a line while it goes on, and what was seen in words at its end.

use std::fmt::Write as _;
use std::time::Duration;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, CellAlignment, Table};

use super::load::Counts;
use super::page::{Page, Row, Waits};
use super::{Band, SOURCE_COUNT, SOURCES, Source, Tenant};

/// All that is known at some moment.
#[derive(Clone, Debug)]
pub(super) struct Report {
    /// Time since the first request.
    pub(super) elapsed: Duration,
    pub(super) counts: [Counts; SOURCE_COUNT],
    pub(super) page: Page,
    /// The page when the last request had been sent, or the newest before that.
    pub(super) under_load: Page,
}

impl Report {
    /// Requests that were sent.
    pub(super) fn sent(&self) -> usize {
        let sent: u64 = self.counts.iter().map(|counts| counts.sent).sum();
        usize::try_from(sent).unwrap_or(usize::MAX)
    }

    /// A row for each tenant at each priority.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(UTF8_BORDERS_ONLY).set_header([
            "band",
            "tenant",
            "sent",
            "waiting",
            "released",
            "429 no room",
            "503 too long",
            "mean wait",
            "p95 wait",
        ]);
        for (Source { band, tenant, .. }, counts, row) in self.rows() {
            let mut cells = vec![
                Cell::new(format!("{} ({})", band.name(), band.priority())),
                Cell::new(tenant.name()),
            ];
            let numbers = [
                counts.sent.to_string(),
                row.waiting.to_string(),
                row.waits.count.to_string(),
                counts.no_room.to_string(),
                counts.expired.to_string(),
                seconds(row.waits.mean()),
                seconds(row.waits.quantile(0.95)),
            ];
            cells.extend(numbers.map(|number| Cell::new(number).set_alignment(CellAlignment::Right)));
            table.add_row(cells);
        }
        format!("{table}\n{}", self.fairness())
    }

    /// The most important of it.
    pub(super) fn line(&self) -> String {
        let mut line = format!("{:>4.0} s  waiting:", self.elapsed.as_secs_f64());
        for band in Band::ALL {
            let waiting: f64 = self.of(band).map(|(_, _, row)| row.waiting).sum();
            write!(line, " {} {waiting},", band.name()).expect("a string takes all text");
        }
        let released: f64 = self.page.rows.iter().map(|row| row.waits.count).sum();
        let (no_room, expired) = self.shed(&Band::ALL);
        write!(
            line,
            " released {released}, shed {} (429: {no_room}, 503: {expired}); {}",
            no_room + expired,
            self.fairness()
        )
        .expect("a string takes all text");
        line
    }

    /// What was seen, in words.
    pub(super) fn summary(&self) -> String {
        let mut text = String::new();
        for band in Band::ALL {
            let waits = together(self.of(band).map(|(_, _, row)| &row.waits));
            let (no_room, expired) = self.shed(&[band]);
            let shed = match (no_room, expired) {
                (0, 0) => "none was shed".to_owned(),
                (0, expired) => format!("{expired} were shed after waiting for too long (503)"),
                (no_room, 0) => format!("{no_room} were shed for want of room (429)"),
                (no_room, expired) => format!(
                    "{} were shed, {no_room} for want of room (429) and {expired} after waiting for too long (503)",
                    no_room + expired
                ),
            };
            let waited = match waits.mean() {
                None => "none was released".to_owned(),
                Some(mean) => format!(
                    "{} were released after {mean:.2} s on average ({} at the 95th percentile)",
                    waits.count,
                    seconds(waits.quantile(0.95))
                ),
            };
            let sent: u64 = self.of(band).map(|(_, counts, _)| counts.sent).sum();
            writeln!(text, "{}: of {sent} requests {waited}; {shed}.", band.name()).expect("a string takes all text");
        }
        let [quiet, noisy] = self.tenants(Band::Standard);
        let asked = |tenant: &Share| percent(tenant.sent, quiet.sent + noisy.sent);
        let got = |tenant: &Share| percent(tenant.released, quiet.released + noisy.released);
        writeln!(
            text,
            "fairness: the noisy tenant sent {} of the standard requests and was given {} of the turns; the quiet one sent \
             {} and was given {}. Jain index {:.3}, where 1 is the same for both.",
            asked(&noisy),
            got(&noisy),
            asked(&quiet),
            got(&quiet),
            jain(&[quiet.released, noisy.released]),
        )
        .expect("a string takes all text");
        let fate = |tenant: &Share| {
            let of = format!("{} of its {}", tenant.released_in_all, tenant.sent);
            format!("{of} were released, after {} on average", seconds(tenant.mean_wait))
        };
        writeln!(text, "quiet: {}; noisy: {}.", fate(&quiet), fate(&noisy)).expect("a string takes all text");
        text
    }

    /// Who got what of the standard band while requests came.
    fn fairness(&self) -> String {
        let [quiet, noisy] = self.tenants(Band::Standard);
        let of = |tenant: &Share| percent(tenant.released, quiet.released + noisy.released);
        format!(
            "standard: {} for quiet, {} for noisy (Jain index {:.2})",
            of(&quiet),
            of(&noisy),
            jain(&[quiet.released, noisy.released])
        )
    }

    fn tenants(&self, band: Band) -> [Share; 2] {
        [Tenant::Quiet, Tenant::Noisy].map(|tenant| {
            let place = SOURCES
                .iter()
                .position(|source| source.band == band && source.tenant == tenant)
                .expect("every tenant asks at every priority");
            Share {
                sent: self.counts[place].sent as f64,
                released: self.under_load.rows[place].waits.count,
                released_in_all: self.page.rows[place].waits.count,
                mean_wait: self.page.rows[place].waits.mean(),
            }
        })
    }

    /// Requests of these bands that were refused for want of room, and those that waited for too long.
    fn shed(&self, bands: &[Band]) -> (u64, u64) {
        let counts = || self.rows().filter(|(source, ..)| bands.contains(&source.band));
        (
            counts().map(|(_, counts, _)| counts.no_room).sum(),
            counts().map(|(_, counts, _)| counts.expired).sum(),
        )
    }

    fn of(&self, band: Band) -> impl Iterator<Item = (&Source, &Counts, &Row)> {
        self.rows().filter(move |(source, ..)| source.band == band)
    }

    fn rows(&self) -> impl Iterator<Item = (&Source, &Counts, &Row)> {
        let rows = SOURCES.iter().zip(&self.counts).zip(&self.page.rows);
        rows.map(|((source, counts), row)| (source, counts, row))
    }
}

/// What a tenant asked for and got.
#[derive(Debug)]
struct Share {
    sent: f64,
    /// While requests came.
    released: f64,
    /// Also afterwards.
    released_in_all: f64,
    /// In seconds.
    mean_wait: Option<f64>,
}

/// Jain's index of fairness: 1 if all are the same, one over their number if one has everything.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

/// Several histograms with the same bounds as one.
fn together<'a>(several: impl Iterator<Item = &'a Waits>) -> Waits {
    several.fold(Waits::default(), |mut all, waits| {
        all.count += waits.count;
        all.sum += waits.sum;
        if all.buckets.is_empty() {
            all.buckets.clone_from(&waits.buckets);
        } else {
            let more = waits.buckets.iter().map(|(_, count)| count);
            all.buckets
                .iter_mut()
                .zip(more)
                .for_each(|((_, sum), more)| *sum += more);
        }
        all
    })
}

fn percent(part: f64, whole: f64) -> String {
    if whole == 0.0 {
        return "-".to_owned();
    }
    format!("{:.0} %", part / whole * 100.0)
}

fn seconds(time: Option<f64>) -> String {
    time.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(count: f64, seconds: f64) -> Waits {
        Waits {
            count,
            sum: count * seconds,
            buckets: vec![(0.1, 0.0), (1.0, count / 2.0), (10.0, count), (f64::INFINITY, count)],
        }
    }

    fn report() -> Report {
        let mut report = Report {
            elapsed: Duration::from_millis(12_400),
            counts: Default::default(),
            page: Page::default(),
            under_load: Page::default(),
        };
        // Premium, then standard, then best effort; first quiet, then noisy.
        for (place, (sent, released)) in [(10, 10), (10, 10), (60, 60), (240, 90), (30, 0), (30, 0)]
            .into_iter()
            .enumerate()
        {
            report.counts[place].sent = sent;
            if released > 0 {
                report.page.rows[place].waits = waits(f64::from(released), 0.5);
            }
        }
        report.under_load = report.page.clone();
        report.counts[3].expired = 150;
        report.counts[4].no_room = 20;
        report.counts[4].expired = 10;
        report.counts[5].no_room = 30;
        report.page.rows[3].waiting = 4.0;
        report
    }

    #[test]
    fn the_table_has_a_row_for_each_tenant_at_each_priority() {
        insta::assert_snapshot!(report().table());
    }

    #[test]
    fn the_line_sums_up() {
        assert_eq!(
            report().line(),
            "  12 s  waiting: premium 0, standard 4, best-effort 0, released 170, shed 210 (429: 50, 503: 160); standard: \
             40 % for quiet, 60 % for noisy (Jain index 0.96)"
        );
    }

    #[test]
    fn the_summary_says_in_words_what_was_seen() {
        insta::assert_snapshot!(report().summary());
    }

    #[test]
    fn shares_are_compared_as_they_were_when_the_last_request_came() {
        let mut report = report();
        // Later only the noisy tenant has requests left.
        report.page.rows[3].waits = waits(150.0, 0.5);

        assert!(report.fairness().starts_with("standard: 40 % for quiet"));
    }

    #[test]
    fn the_index_is_1_for_equal_shares_and_falls_to_one_over_their_number() {
        assert_eq!(jain(&[5.0, 5.0]), 1.0);
        assert_eq!(jain(&[5.0, 0.0]), 0.5);
        assert_eq!(jain(&[60.0, 90.0]), 150.0 * 150.0 / (2.0 * (3600.0 + 8100.0)));
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
    }

    #[test]
    fn histograms_of_tenants_add_up() {
        let both = together([&waits(4.0, 0.5), &Waits::default(), &waits(2.0, 2.0)].into_iter());

        assert_eq!(both.count, 6.0);
        assert_eq!(both.mean(), Some(1.0));
        assert_eq!(both.buckets[2], (10.0, 6.0));
    }
}
