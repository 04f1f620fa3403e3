//! Heat maps: a row for each endpoint, a column for each span of time, the darker the more.

use std::fmt::Write;

use super::axis::Axis;
use super::escape::escaped;
use super::framed;
use super::lines::{WIDTH, x_axis};
use super::number::duration;

const LEFT: f64 = 104.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 50.0;
/// Letters of a name that fit beside its row.
const NAME_LENGTH: usize = 12;
/// Rows of less than this height have no room for a name each.
const NAMED_HEIGHT: f64 = 14.0;

/// A heat map over time.
#[derive(Debug)]
pub(super) struct HeatMap {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) note: String,
    /// What the cells count.
    pub(super) unit: String,
    pub(super) x: Axis,
    /// Where the columns begin, and where the last one ends.
    pub(super) edges: Vec<f64>,
    /// Rows by name; each has a cell for every column.
    pub(super) rows: Vec<(String, Vec<f64>)>,
    pub(super) label: fn(f64) -> String,
}

impl HeatMap {
    pub(super) fn svg(&self) -> String {
        let mut svg = String::new();
        self.draw(&mut svg).expect("a String takes every text");
        let legend = format!(
            "<p class=\"scale\">0 <span class=\"ramp\"></span> {} {}</p>\n",
            (self.label)(self.highest()),
            escaped(&self.unit)
        );
        framed(self.id, self.title, &self.note, &legend, &svg, "")
    }

    fn highest(&self) -> f64 {
        self.rows
            .iter()
            .flat_map(|(_, cells)| cells)
            .copied()
            .fold(0.0, f64::max)
    }

    fn draw(&self, out: &mut String) -> std::fmt::Result {
        let row_height = (240.0 / self.rows.len().max(1) as f64).clamp(4.0, 26.0);
        let right = WIDTH - RIGHT;
        let bottom = TOP + row_height * self.rows.len() as f64;
        let across = |value| LEFT + self.x.position(value) * (right - LEFT);
        let highest = self.highest().max(f64::MIN_POSITIVE);
        writeln!(
            out,
            "<svg class=\"plot heat\" viewBox=\"0 0 {WIDTH} {:.1}\" role=\"img\" aria-label=\"{}: {} by endpoint over time\">",
            bottom + BOTTOM,
            escaped(self.title),
            escaped(&self.unit),
        )?;
        let named = (NAMED_HEIGHT / row_height).ceil() as usize;
        let mut top = TOP;
        for (index, (name, cells)) in self.rows.iter().enumerate() {
            if index % named == 0 {
                row_name(out, name, LEFT - 7.0, top + row_height / 2.0, NAME_LENGTH)?;
            }
            for (span, value) in self.edges.windows(2).zip(cells) {
                let (from, to) = (across(span[0]), across(span[1]));
                writeln!(
                    out,
                    "<rect class=\"cell\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{row_height:.1}\" \
                     fill-opacity=\"{:.3}\"><title>{}, {} to {}: {} {}</title></rect>",
                    to - from,
                    value / highest,
                    escaped(name),
                    duration(span[0]),
                    duration(span[1]),
                    (self.label)(*value),
                    escaped(&self.unit),
                )?;
            }
            top += row_height;
        }
        writeln!(
            out,
            "<rect class=\"frame\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
            right - LEFT,
            bottom - TOP
        )?;
        x_axis(out, &self.x, LEFT, right, bottom)?;
        writeln!(out, "</svg>")
    }
}

/// A name left of its row, cut to what fits. The whole of it is its tooltip.
pub(super) fn row_name(out: &mut String, name: &str, x: f64, y: f64, longest: usize) -> std::fmt::Result {
    let letters = name.chars().count();
    let short: String = match letters > longest {
        true => name.chars().take(longest - 1).chain(['…']).collect(),
        false => name.to_owned(),
    };
    writeln!(
        out,
        "<text class=\"y\" x=\"{x:.1}\" y=\"{y:.1}\">{}<title>{}</title></text>",
        escaped(&short),
        escaped(name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_cell_is_the_darkest_and_an_empty_one_cannot_be_seen() {
        let map = HeatMap {
            id: "some",
            title: "Some",
            note: String::new(),
            unit: "requests".to_owned(),
            x: Axis::time(2_000_000.0),
            edges: vec![0.0, 1_000_000.0, 2_000_000.0],
            rows: vec![("a".to_owned(), vec![4.0, 0.0]), ("b".to_owned(), vec![1.0, 2.0])],
            label: super::super::number::figure,
        };
        let svg = map.svg();
        let shades: Vec<_> = svg.split("fill-opacity=\"").skip(1).map(|rest| &rest[..5]).collect();

        assert_eq!(shades, ["1.000", "0.000", "0.250", "0.500"]);
        assert!(svg.contains("<title>b, 1 s to 2 s: 2 requests</title>"), "{svg}");
    }

    #[test]
    fn a_long_name_is_cut_and_told_in_full_on_demand() {
        let mut out = String::new();
        row_name(&mut out, "a-very-long-endpoint-name", 0.0, 0.0, 13).unwrap();

        assert!(
            out.contains(">a-very-long-…<title>a-very-long-endpoint-name</title>"),
            "{out}"
        );
    }
}
