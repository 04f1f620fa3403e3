//! A page of metrics, read for the few series that matter.
//!
//! A page in the Prometheus text format comes in pieces of any size. Each line is looked at once. Lines of other
//! metrics, which are nearly all of them, are passed over after a few bytes and cost no memory. Types are not looked
//! at: a series counts whatever its `TYPE` line says, and without one.

use std::sync::Arc;

use memchr::{memchr, memchr_iter};

use super::names::Names;
use super::series::Series;
use crate::engine::config::engine_metrics::{EngineMetrics, MetricSpec};
use crate::engine::pool::{Lora, SignalUpdate};

/// The memory for a line that is kept from one page to the next.
const KEPT_LINE_BYTES: usize = 16 * 1024;

/// Reads the pages of one endpoint, one after the other.
#[derive(Debug)]
pub struct PageReader {
    names: Names,
    fields: Vec<Field>,
    wanted: [bool; QUANTITIES.len()],
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
    malformed: u32,
}

/// What a page said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// What is known from it. Its date is for the caller to set.
    pub signals: SignalUpdate,
    /// What should have been there and was not, or not as a usable number. LoRA adapters need not be there.
    pub missing: Vec<&'static str>,
    /// Lines of wanted metrics that are not series with a finite value. They are passed over.
    pub malformed: u32,
}

/// A number that is looked for, and what people call it.
const QUANTITIES: [(Quantity, &str); 5] = [
    (Quantity::Waiting, "waiting requests"),
    (Quantity::Running, "running requests"),
    (Quantity::KvUsage, "kv cache usage"),
    (Quantity::BlockTokens, "cache block size"),
    (Quantity::TotalBlocks, "cache block count"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Waiting,
    Running,
    KvUsage,
    BlockTokens,
    TotalBlocks,
}

/// Numbers by [`Quantity`].
type Values = [Option<f64>; QUANTITIES.len()];

/// A series that is looked for, and what was found of it on this page.
#[derive(Debug)]
struct Field {
    /// Its number among [`PageReader::names`].
    name: usize,
    /// Labels that it must have.
    labels: Vec<(String, String)>,
    found: Found,
}

#[derive(Debug)]
enum Found {
    /// The value is a quantity. Of several series the newest counts, and without dates the first.
    Value {
        quantity: Quantity,
        latest: Option<(Option<i64>, f64)>,
    },
    /// Labels list adapters. Of several series the one with the largest value counts, which is a time.
    Lora { latest: Option<(f64, Lora)> },
    /// Labels are quantities. Of several series the newest counts, and without dates the first.
    Info {
        labels: [(Quantity, String); 2],
        latest: Option<(Option<i64>, [Option<f64>; 2])>,
    },
}

impl PageReader {
    /// A reader for pages of this engine.
    pub fn new(engine: &EngineMetrics) -> Self {
        let value = |quantity| {
            move |spec: &MetricSpec| {
                let found = Found::Value { quantity, latest: None };
                (spec.clone(), found)
            }
        };
        let mut wanted: Vec<(MetricSpec, Found)> = Vec::new();
        wanted.extend(engine.waiting.iter().map(value(Quantity::Waiting)));
        wanted.extend(engine.running.iter().map(value(Quantity::Running)));
        wanted.extend(engine.kv_usage.iter().map(value(Quantity::KvUsage)));
        wanted.extend(engine.block_tokens.iter().map(value(Quantity::BlockTokens)));
        wanted.extend(engine.total_blocks.iter().map(value(Quantity::TotalBlocks)));
        wanted.extend(
            engine
                .lora
                .iter()
                .map(|spec| (spec.clone(), Found::Lora { latest: None })),
        );
        wanted.extend(engine.cache_info.iter().map(|info| {
            let labels = [
                (Quantity::BlockTokens, info.block_tokens_label.clone()),
                (Quantity::TotalBlocks, info.total_blocks_label.clone()),
            ];
            (info.spec.clone(), Found::Info { labels, latest: None })
        }));
        Self::of_fields(wanted)
    }

    fn of_fields(wanted: Vec<(MetricSpec, Found)>) -> Self {
        let names = Names::new(wanted.iter().map(|(spec, _)| spec.name()));
        let field = |(spec, found): (MetricSpec, Found)| Field {
            name: names
                .position(spec.name())
                .expect("every spec's name is among the names"),
            labels: spec.labels().to_vec(),
            found,
        };
        let fields: Vec<Field> = wanted.into_iter().map(field).collect();
        let wanted = QUANTITIES.map(|(quantity, _)| fields.iter().any(|field| field.found.tells(quantity)));
        Self {
            names,
            fields,
            wanted,
            begun: Vec::new(),
            malformed: 0,
        }
    }

    /// Takes the next piece of the page.
    pub fn feed(&mut self, mut piece: &[u8]) {
        if !self.begun.is_empty() {
            let Some(end) = memchr(b'\n', piece) else {
                self.begun.extend_from_slice(piece);
                return;
            };
            self.begun.extend_from_slice(&piece[..end]);
            self.end_begun_line();
            piece = &piece[end + 1..];
        }
        let mut start = 0;
        for end in memchr_iter(b'\n', piece) {
            self.line(&piece[start..end]);
            start = end + 1;
        }
        self.begun.extend_from_slice(&piece[start..]);
    }

    /// Ends the page and tells what it said. What is fed next begins another page.
    pub fn finish(&mut self) -> Page {
        self.end_begun_line();
        let mut values = Values::default();
        let mut lora = None;
        for field in &mut self.fields {
            field.found.tell(&mut values, &mut lora);
        }
        let missing = QUANTITIES.into_iter().filter(|&(quantity, _)| {
            let place = quantity as usize;
            self.wanted[place] && values[place].is_none()
        });
        let page = Page {
            missing: missing.map(|(_, name)| name).collect(),
            signals: signals(&values, lora),
            malformed: self.malformed,
        };
        self.forget();
        page
    }

    /// Drops what was fed since the last page ended.
    pub fn forget(&mut self) {
        self.begun.clear();
        self.begun.shrink_to(KEPT_LINE_BYTES);
        self.malformed = 0;
        for field in &mut self.fields {
            field.found.forget();
        }
    }

    fn end_begun_line(&mut self) {
        let mut line = std::mem::take(&mut self.begun);
        self.line(&line);
        line.clear();
        self.begun = line;
    }

    fn line(&mut self, line: &[u8]) {
        let Some((name, rest)) = self.names.split(line) else {
            return;
        };
        let Some(series) = Series::parse(rest).filter(|series| series.value.is_finite()) else {
            self.malformed = self.malformed.saturating_add(1);
            return;
        };
        for field in &mut self.fields {
            if field.name == name && series.has_labels(&field.labels) {
                field.found.look(&series);
            }
        }
    }
}

impl Found {
    /// True if this can tell the quantity.
    fn tells(&self, wanted: Quantity) -> bool {
        match self {
            Self::Value { quantity, .. } => *quantity == wanted,
            Self::Lora { .. } => false,
            Self::Info { labels, .. } => labels.iter().any(|(quantity, _)| *quantity == wanted),
        }
    }

    /// Takes what `series` says, if it counts more than what was found before.
    fn look(&mut self, series: &Series<'_>) {
        match self {
            Self::Value { latest, .. } => {
                if latest.is_none_or(|(at, _)| series.at > at) {
                    *latest = Some((series.at, series.value));
                }
            }
            Self::Lora { latest } => {
                let counts = latest.as_ref().is_none_or(|(value, _)| series.value > *value);
                if counts && series.value >= 0.0 {
                    *latest = Some((series.value, lora(series)));
                }
            }
            Self::Info { labels, latest } => {
                if latest.is_none_or(|(at, _)| series.at > at) {
                    let number = |label: &str| series.label(label)?.trim().parse::<f64>().ok();
                    let value = |(_, label): &(Quantity, String)| number(label).filter(|value| value.is_finite());
                    *latest = Some((series.at, [value(&labels[0]), value(&labels[1])]));
                }
            }
        }
    }

    /// Hands over what was found. What is there already, from a field before this one, stays.
    fn tell(&mut self, values: &mut Values, lora: &mut Option<Lora>) {
        match self {
            Self::Value { quantity, latest } => {
                let place = &mut values[*quantity as usize];
                *place = place.or(latest.map(|(_, value)| value));
            }
            Self::Lora { latest } => *lora = latest.take().map(|(_, lora)| lora),
            Self::Info { labels, latest } => {
                for ((quantity, _), value) in labels.iter().zip(latest.map_or([None; 2], |(_, values)| values)) {
                    let place = &mut values[*quantity as usize];
                    *place = place.or(value);
                }
            }
        }
    }

    fn forget(&mut self) {
        match self {
            Self::Value { latest, .. } => *latest = None,
            Self::Lora { latest } => *latest = None,
            Self::Info { latest, .. } => *latest = None,
        }
    }
}

fn signals(values: &Values, lora: Option<Lora>) -> SignalUpdate {
    let value = |quantity: Quantity| values[quantity as usize];
    // The cast truncates, and ends at the bounds of the type.
    let count = |quantity| value(quantity).map(|value| value as u32);
    SignalUpdate {
        waiting: count(Quantity::Waiting),
        running: count(Quantity::Running),
        kv_usage: value(Quantity::KvUsage).map(|share| share.clamp(0.0, 1.0)),
        lora,
        block_tokens: count(Quantity::BlockTokens),
        total_blocks: count(Quantity::TotalBlocks),
        ..SignalUpdate::default()
    }
}

fn lora(series: &Series<'_>) -> Lora {
    Lora {
        active: adapters(series, "running_lora_adapters"),
        waiting: adapters(series, "waiting_lora_adapters"),
        max: series
            .label("max_lora")
            .and_then(|max| max.trim().parse().ok())
            .unwrap_or(0),
    }
}

fn adapters(series: &Series<'_>, label: &str) -> Arc<[Box<str>]> {
    let Some(list) = series.label(label) else {
        return Arc::default();
    };
    let names: Vec<Box<str>> = list
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(Box::from)
        .collect();
    if names.is_empty() { Arc::default() } else { names.into() }
}

#[cfg(test)]
mod tests;
