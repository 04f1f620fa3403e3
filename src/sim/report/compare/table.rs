//! A comparison as text: a table for each configuration.

use std::fmt::{self, Write};

use super::{Better, Comparison, Difference, Summary};

impl fmt::Display for Comparison {
    /// A table for each configuration against the first, or one of the only one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.seeds.len();
        let seeds = if count == 1 { "seed" } else { "seeds" };
        if self.others.is_empty() {
            writeln!(f, "=== {} ({count} {seeds}) ===", self.baseline)?;
            let mut rows = vec![["metric", "mean", "min", "max", "95 % interval", ""].map(str::to_owned)];
            rows.extend(self.baseline_figures.iter().map(|figure| row_alone(figure, count)));
            aligned(f, &rows)?;
        }
        for (at, other) in self.others.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            writeln!(f, "=== {} against {} ({count} {seeds}) ===", other.name, self.baseline)?;
            let mut rows =
                vec![["metric", &self.baseline, &other.name, "change", "95 % interval", ""].map(str::to_owned)];
            let figures = self.baseline_figures.iter().zip(&other.differences);
            rows.extend(figures.map(|(base, difference)| row(base, difference, count)));
            aligned(f, &rows)?;
        }
        writeln!(f)?;
        match (count, self.others.is_empty()) {
            (1, true) => writeln!(f, "One seed: no intervals. Run more seeds."),
            (1, false) => writeln!(
                f,
                "One seed: no intervals, and no telling whether a difference is chance. Run more seeds."
            ),
            (_, true) => writeln!(f, "Intervals are of the mean over the seeds (Student's t)."),
            (_, false) => writeln!(
                f,
                "Intervals are of the mean difference in pairs of runs with the same seed (Student's t). `better` and\n\
                 `worse` are differences that are significant at 5 % after Holm's correction over all metrics."
            ),
        }?;
        if self.has_gaps() {
            writeln!(
                f,
                "Runs in which there was nothing to measure, such as a latency where no request was served, are left out."
            )?;
        }
        Ok(())
    }
}

impl Comparison {
    /// True if a run has no figure of something that another one has.
    fn has_gaps(&self) -> bool {
        let of_others = self.others.iter().flat_map(|other| &other.differences);
        let mut summaries = self
            .baseline_figures
            .iter()
            .chain(of_others.map(|difference| &difference.summary));
        summaries.any(|summary| summary.runs < self.seeds.len())
    }
}

fn row_alone(figure: &Summary, seeds: usize) -> [String; 6] {
    let interval = figure.mean_interval;
    [
        figure.metric.clone(),
        told(figure.mean),
        told(figure.min),
        told(figure.max),
        interval.map_or_else(missing, |[low, high]| format!("{low:.3} to {high:.3}")),
        some_of(figure.runs, seeds),
    ]
}

fn row(base: &Summary, difference: &Difference, seeds: usize) -> [String; 6] {
    let verdict = match (difference.is_significant, difference.difference) {
        (Some(true), Some(value)) => {
            if (value < 0.0) == (base.better == Better::Lower) {
                "better".to_owned()
            } else {
                "worse".to_owned()
            }
        }
        _ => String::new(),
    };
    let percent = difference.percent;
    let interval = difference.interval;
    let runs = some_of(difference.pairs, seeds);
    [
        base.metric.clone(),
        told(base.mean),
        told(difference.summary.mean),
        percent.map_or_else(missing, |percent| format!("{percent:+.1} %")),
        interval.map_or_else(missing, |[low, high]| format!("{low:+.3} to {high:+.3}")),
        [verdict, runs].join(" ").trim().to_owned(),
    ]
}

fn told(value: Option<f64>) -> String {
    value.map_or_else(missing, |value| format!("{value:.3}"))
}

/// What stands for a figure that there is none of.
fn missing() -> String {
    "-".to_owned()
}

/// Says so if a figure is of some of the seeds.
fn some_of(runs: usize, seeds: usize) -> String {
    if (1..seeds).contains(&runs) {
        format!("(in {runs} of {seeds})")
    } else {
        String::new()
    }
}

/// Columns with two blanks between them: the first and the last to the left, the others to the right.
fn aligned<const N: usize>(f: &mut fmt::Formatter<'_>, rows: &[[String; N]]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(widths).take(N - 1).skip(1) {
            write!(line, "  {cell:>width$}")?;
        }
        write!(line, "  {}", row[N - 1])?;
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}
