//! Ranges by row: how long most, nearly all and all but a hundredth waited.

use std::fmt::Write;

use super::axis::Axis;
use super::escape::escaped;
use super::heat::row_name;
use super::lines::{WIDTH, x_axis};
use super::number::{counted, duration};
use super::{framed, legend};
use crate::sim::report::distribution::Distribution;

const LEFT: f64 = 112.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 50.0;
const RANGE_HEIGHT: f64 = 13.0;
const ROW_GAP: f64 = 10.0;
const NAME_LENGTH: usize = 12;

/// Median and upper percentiles, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    count: u64,
    p50: f64,
    p95: f64,
    p99: f64,
}

impl Range {
    pub(super) fn of(distribution: &Distribution) -> Self {
        Self {
            count: distribution.count,
            p50: distribution.p50.us(),
            p95: distribution.p95.us(),
            p99: distribution.p99.us(),
        }
    }
}

/// The ranges of one tenant, one for each kind.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) ranges: Vec<Range>,
}

/// Rows of ranges.
#[derive(Debug)]
pub(super) struct RangeChart {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) note: String,
    /// What the ranges of each row are, in order.
    pub(super) kinds: Vec<&'static str>,
    pub(super) rows: Vec<Row>,
}

impl RangeChart {
    pub(super) fn svg(&self) -> String {
        let mut svg = String::new();
        self.draw(&mut svg).expect("a String takes every text");
        let legend = legend(self.kinds.iter().copied());
        framed(self.id, self.title, &self.note, &legend, &svg, "")
    }

    fn draw(&self, out: &mut String) -> std::fmt::Result {
        let row_height = self.kinds.len() as f64 * RANGE_HEIGHT;
        let right = WIDTH - RIGHT;
        let bottom = TOP + self.rows.len() as f64 * (row_height + ROW_GAP);
        let ranges = self.rows.iter().flat_map(|row| &row.ranges);
        let axis = Axis::waits(ranges.map(|range| range.p99).fold(0.0, f64::max), "wait");
        let across = |us| LEFT + axis.position(us) * (right - LEFT);
        writeln!(
            out,
            "<svg class=\"plot ranges\" viewBox=\"0 0 {WIDTH} {:.1}\" role=\"img\" aria-label=\"{}\">",
            bottom + BOTTOM,
            escaped(self.title),
        )?;
        for (tick, _) in &axis.ticks {
            writeln!(
                out,
                "<path class=\"grid\" d=\"M{:.1} {TOP}V{bottom:.1}\"/>",
                across(*tick)
            )?;
        }
        let mut top = TOP + ROW_GAP / 2.0;
        for row in &self.rows {
            row_name(out, &row.name, LEFT - 8.0, top + row_height / 2.0, NAME_LENGTH)?;
            for (at, (range, kind)) in row.ranges.iter().zip(&self.kinds).enumerate() {
                let y = top + (at as f64 + 0.5) * RANGE_HEIGHT;
                let [p50, p95, p99] = [range.p50, range.p95, range.p99].map(across);
                writeln!(
                    out,
                    "<g class=\"range c{at}\"><title>{}, {kind}: median {}, 95th percentile {}, 99th {} ({} requests)</title>\
                     <rect class=\"hit\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{RANGE_HEIGHT}\"/>\
                     <rect class=\"bar\" x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"7\"/>\
                     <path d=\"M{p50:.1} {y:.1}H{p95:.1}\"/><circle cx=\"{p99:.1}\" cy=\"{y:.1}\" r=\"3\"/></g>",
                    escaped(&row.name),
                    duration(range.p50),
                    duration(range.p95),
                    duration(range.p99),
                    counted(range.count),
                    y - RANGE_HEIGHT / 2.0,
                    right - LEFT,
                    y - 3.5,
                    (p50 - LEFT).max(1.0),
                )?;
            }
            top += row_height + ROW_GAP;
        }
        x_axis(out, &axis, LEFT, right, bottom)?;
        writeln!(out, "</svg>")
    }
}
