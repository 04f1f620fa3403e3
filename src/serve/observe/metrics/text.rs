//! The text of the page, made piece by piece so that neither the page nor a moment's work gets large.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use prometheus::TextEncoder;
use prometheus::proto::MetricFamily;

use super::family::Kind;
use super::series::{CopiedRow, Count, Extra, Measure, Schema, Series, Shown, Value};

/// A page that is read piece by piece, in the text format 0.0.4, in the order of the families' names.
#[derive(Debug)]
pub struct Page {
    sections: VecDeque<Section>,
    /// In the order of their labels.
    rows: BTreeMap<Schema, Vec<CopiedRow>>,
    /// The value of the label `inference_pool`.
    pool: String,
    /// The row of the first section that comes next.
    row: usize,
}

#[derive(Debug)]
enum Section {
    /// Few series, made by the library.
    Small(MetricFamily),
    /// A family of the rows.
    Rows(Shown),
}

/// The size of a piece, about: what is made without a pause.
const PIECE_BYTES: usize = 32 << 10;

impl Page {
    pub(super) fn new(small: Vec<MetricFamily>, shown: &[Shown], copied: Vec<CopiedRow>, pool: String) -> Self {
        let mut rows: BTreeMap<Schema, Vec<CopiedRow>> = BTreeMap::new();
        for row in copied {
            rows.entry(row.key.schema()).or_default().push(row);
        }
        rows.values_mut()
            .for_each(|rows| rows.sort_unstable_by(|a, b| a.key.cmp(&b.key)));
        let small = small.into_iter().filter(|family| !family.get_metric().is_empty());
        let small = small.map(|family| (family.name().to_owned(), Section::Small(family)));
        let shown = shown
            .iter()
            .map(|shown| (shown.name.to_owned(), Section::Rows(shown.clone())));
        let sections: BTreeMap<String, Section> = small.chain(shown).collect();
        Self {
            sections: sections.into_values().collect(),
            rows,
            pool,
            row: 0,
        }
    }

    /// Writes rows of the family until the piece is full. True if none is left.
    fn write_rows(&mut self, shown: &Shown, text: &mut String) -> bool {
        let none = Vec::new();
        let rows = self.rows.get(&shown.schema).unwrap_or(&none);
        if shown.measure == Measure::Running && shown.is_older {
            write_running_by_model(text, shown, rows);
            return true;
        }
        let mut has_header = self.row > 0;
        while let Some(row) = rows.get(self.row) {
            if text.len() >= PIECE_BYTES && has_header {
                return false;
            }
            let running = row
                .running
                .filter(|_| shown.measure == Measure::Running)
                .map(|running| Series {
                    measure: Measure::Running,
                    extra: Extra::None,
                    count: Count::Counter(running),
                });
            let series = row.series.iter().filter(|series| series.measure == shown.measure);
            for series in series.chain(&running) {
                if !has_header {
                    write_header(text, shown);
                    has_header = true;
                }
                write_series(text, shown, row, series, &self.pool);
            }
            self.row += 1;
        }
        true
    }
}

impl Iterator for Page {
    type Item = prometheus::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut text = String::with_capacity(PIECE_BYTES + PIECE_BYTES / 2);
        while text.len() < PIECE_BYTES {
            match self.sections.pop_front() {
                None => break,
                Some(Section::Small(family)) => {
                    if let Err(error) = TextEncoder::new().encode_utf8(&[family], &mut text) {
                        self.sections.clear();
                        return Some(Err(error));
                    }
                }
                Some(Section::Rows(shown)) => {
                    if self.write_rows(&shown, &mut text) {
                        self.row = 0;
                    } else {
                        self.sections.push_front(Section::Rows(shown));
                    }
                }
            }
        }
        (!text.is_empty()).then(|| Ok(text.into_bytes()))
    }
}

/// The media type of the page.
pub fn media_type() -> &'static str {
    prometheus::TEXT_FORMAT
}

fn write_header(text: &mut String, shown: &Shown) {
    let Shown { name, help, kind, .. } = shown;
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
}

fn write_series(text: &mut String, shown: &Shown, row: &CopiedRow, series: &Series, pool: &str) {
    let name = shown.name;
    let mut labels = String::new();
    for (label, source) in &shown.labels {
        if !labels.is_empty() {
            labels.push(',');
        }
        labels.push_str(label);
        labels.push_str("=\"");
        let value = row.key.value(source).unwrap_or(match series.extra {
            _ if *source == "inference_pool" => Value::Text(pool),
            Extra::None => Value::Text(""),
            Extra::Word(word) => Value::Text(word),
            Extra::Number(number) => Value::Number(number.into()),
        });
        match value {
            Value::Text(value) => write_escaped(&mut labels, value),
            Value::Number(number) => {
                let _ = write!(labels, "{number}");
            }
        }
        labels.push('"');
    }
    // Writing to a string cannot fail.
    let _ = match (&series.count, shown.kind) {
        (Count::Histogram { buckets, sum }, Kind::Histogram(bounds)) => {
            let mut count = 0;
            for (bucket, bound) in buckets.iter().zip(bounds) {
                count += bucket;
                let _ = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
            }
            let count: u64 = buckets.iter().sum();
            writeln!(
                text,
                "{name}_bucket{{{labels},le=\"+Inf\"}} {count}\n{name}_sum{{{labels}}} {sum}\n{name}_count{{{labels}}} {count}"
            )
        }
        (Count::Counter(count), _) => writeln!(text, "{name}{{{labels}}} {count}"),
        (Count::Histogram { .. }, _) => Ok(()),
    };
}

/// What runs, by model alone.
fn write_running_by_model(text: &mut String, shown: &Shown, rows: &[CopiedRow]) {
    let mut models: BTreeMap<&str, u64> = BTreeMap::new();
    for row in rows {
        if let (Some(running), Some(Value::Text(model))) = (row.running, row.key.value("model_name")) {
            *models.entry(model).or_default() += running;
        }
    }
    if !models.is_empty() {
        write_header(text, shown);
    }
    for (model, running) in models {
        let _ = write!(text, "{}{{model_name=\"", shown.name);
        write_escaped(text, model);
        let _ = writeln!(text, "\"}} {running}");
    }
}

fn write_escaped(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}
