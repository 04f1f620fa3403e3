//! Lines over an axis.

use std::fmt::Write;

use serde::Serialize;

use super::axis::Axis;
use super::escape::{escaped, json_in_script};
use super::{MOST_LINES, framed, legend};

/// The size of a plot, in units that are pixels on a wide screen.
pub(super) const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 264.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 50.0;

/// Room that a line of text takes.
const LINE_HEIGHT: f64 = 16.0;

/// Steps that can be seen along an axis.
const RESOLUTION: f64 = 200.0;

/// A line with a name.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// Lines that share their axes. At most [`MOST_LINES`].
#[derive(Debug)]
pub(super) struct LineChart {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) note: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) lines: Vec<Line>,
    /// A level worth a dashed line, and what it is.
    pub(super) mark: Option<(f64, &'static str)>,
    pub(super) x_label: fn(f64) -> String,
    pub(super) y_label: fn(f64) -> String,
    /// The points of one line stand at other places than those of the next.
    pub(super) own_x: bool,
}

/// What the script shows at the pointer.
#[derive(Serialize)]
struct Data<'a> {
    own_x: bool,
    lines: Vec<DataLine<'a>>,
}

#[derive(Serialize)]
struct DataLine<'a> {
    name: &'a str,
    x: Vec<String>,
    y: Vec<String>,
}

/// Of points with growing coordinates, those that can be told apart. The first and the last stay.
pub(super) fn thinned(points: impl Iterator<Item = (f64, f64)>, x: &Axis, y: &Axis) -> Vec<(f64, f64)> {
    let place = |&(at, value): &(f64, f64)| (x.position(at) * RESOLUTION, y.position(value) * RESOLUTION);
    let mut kept: Vec<(f64, f64)> = Vec::new();
    let mut left_out = None;
    for point in points {
        let is_apart = kept.last().is_none_or(|last| {
            let (here, there) = (place(&point), place(last));
            (here.0 - there.0).abs() >= 1.0 || (here.1 - there.1).abs() >= 1.0
        });
        if is_apart {
            kept.push(point);
            left_out = None;
        } else {
            left_out = Some(point);
        }
    }
    kept.extend(left_out);
    kept
}

impl LineChart {
    pub(super) fn svg(&self) -> String {
        debug_assert!(self.lines.len() <= MOST_LINES, "every line has a colour of its own");
        let mut svg = String::new();
        self.draw(&mut svg).expect("a String takes every text");
        let names = self.lines.iter().map(|line| line.name.as_str());
        let legend = if self.lines.len() > 1 {
            legend(names)
        } else {
            String::new()
        };
        let data = json_in_script(&Data {
            own_x: self.own_x,
            lines: self
                .lines
                .iter()
                .map(|line| DataLine {
                    name: &line.name,
                    x: line.points.iter().map(|&(x, _)| (self.x_label)(x)).collect(),
                    y: line.points.iter().map(|&(_, y)| (self.y_label)(y)).collect(),
                })
                .collect(),
        });
        let data = format!("<script type=\"application/json\">{data}</script>\n");
        framed(self.id, self.title, &self.note, &legend, &svg, &data)
    }

    fn draw(&self, out: &mut String) -> std::fmt::Result {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let across = |value| LEFT + self.x.position(value) * (right - LEFT);
        let up = |value| bottom - self.y.position(value) * (bottom - TOP);
        writeln!(
            out,
            "<svg class=\"plot lines\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}: {} over {}\">",
            escaped(self.title),
            escaped(&self.y.title),
            escaped(&self.x.title),
        )?;
        for (value, text) in &self.y.ticks {
            let y = up(*value);
            writeln!(
                out,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{right}\"/><text class=\"y\" x=\"{:.1}\" y=\"{y:.1}\">{text}</text>",
                LEFT - 7.0
            )?;
        }
        x_axis(out, &self.x, LEFT, right, bottom)?;
        writeln!(
            out,
            "<text class=\"title\" transform=\"translate(13 {:.1}) rotate(-90)\">{}</text>",
            (TOP + bottom) / 2.0,
            escaped(&self.y.title)
        )?;
        if let Some((level, name)) = self.mark {
            let y = up(level);
            // Below the line where there is no room above it.
            let text_y = if y < TOP + LINE_HEIGHT {
                y + LINE_HEIGHT
            } else {
                y - 5.0
            };
            writeln!(
                out,
                "<path class=\"mark\" d=\"M{LEFT} {y:.1}H{right}\"/><text class=\"mark\" x=\"{right}\" y=\"{text_y:.1}\">{}</text>",
                escaped(name)
            )?;
        }
        // The first line is drawn last, above the others.
        for (at, line) in self.lines.iter().enumerate().rev() {
            write!(out, "<polyline class=\"c{at}\" data-line=\"{at}\" points=\"")?;
            for (index, &(x, y)) in line.points.iter().enumerate() {
                let gap = if index == 0 { "" } else { " " };
                write!(out, "{gap}{:.1},{:.1}", across(x), up(y))?;
            }
            writeln!(out, "\"/>")?;
        }
        writeln!(
            out,
            "<path class=\"cursor\" d=\"M0 {TOP}V{bottom}\" visibility=\"hidden\"/>"
        )?;
        writeln!(out, "</svg>")
    }
}

/// Ticks, their texts and the title below a plot.
pub(super) fn x_axis(out: &mut String, axis: &Axis, left: f64, right: f64, bottom: f64) -> std::fmt::Result {
    for (value, text) in &axis.ticks {
        let x = left + axis.position(*value) * (right - left);
        writeln!(
            out,
            "<path class=\"tick\" d=\"M{x:.1} {bottom}v5\"/><text class=\"x\" x=\"{x:.1}\" y=\"{:.1}\">{text}</text>",
            bottom + 23.0
        )?;
    }
    writeln!(out, "<path class=\"base\" d=\"M{left} {bottom}H{right}\"/>")?;
    writeln!(
        out,
        "<text class=\"title\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
        (left + right) / 2.0,
        bottom + 43.0,
        escaped(&axis.title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_cannot_be_told_apart_are_left_out_and_the_ends_stay() {
        let x = Axis::amounts(10_000.0, "");
        let y = Axis::shares("");
        let points = (0..=10_000_u32).map(|at| (f64::from(at), f64::from(at) / 10_000.0));
        let thinned = thinned(points, &x, &y);

        assert!(
            (150..=RESOLUTION as usize + 2).contains(&thinned.len()),
            "{}",
            thinned.len()
        );
        assert_eq!((thinned[0], thinned[thinned.len() - 1]), ((0.0, 0.0), (10_000.0, 1.0)));
    }

    #[test]
    fn every_point_of_a_line_is_drawn_and_has_its_text() {
        let chart = LineChart {
            id: "some",
            title: "Some",
            note: String::new(),
            x: Axis::time(2_000_000.0),
            y: Axis::amounts(4.0, "requests"),
            lines: vec![Line {
                name: "a".to_owned(),
                points: vec![(0.0, 0.0), (1_000_000.0, 4.0), (2_000_000.0, 2.0)],
            }],
            mark: None,
            x_label: super::super::number::duration,
            y_label: super::super::number::figure,
            own_x: false,
        };
        let svg = chart.svg();

        assert!(svg.contains("points=\"62.0,214.0 257.0,10.0 452.0,112.0\""), "{svg}");
        assert!(
            svg.contains(r#"{"name":"a","x":["0","1 s","2 s"],"y":["0","4","2"]}"#),
            "{svg}"
        );
    }
}
