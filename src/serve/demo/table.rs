//! What happened to each request, and why.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table};

use super::load::{Answer, Answered};
use crate::serve::client::{Client, ClientError};
use crate::serve::observe::decisions::{Explanation, PrefixShare, Score};

/// The width of the table, in columns.
const WIDTH: u16 = 120;

/// A request, what came of it, and why it went where it went.
#[derive(Debug)]
pub(super) struct Row {
    answer: Answer,
    explanation: Option<Explanation>,
}

/// The table, and a summary below it.
#[derive(Debug)]
pub(super) struct Report<'a>(pub(super) &'a [Row]);

/// Asks Forebay for the reason of each answer.
pub(super) async fn rows(answers: Vec<Answer>, client: &Client, metrics: SocketAddr) -> Result<Vec<Row>, ClientError> {
    let mut rows = Vec::with_capacity(answers.len());
    for answer in answers {
        let url = format!("http://{metrics}/debug/decisions?request_id={}", answer.ask.id);
        let (_, page) = client.fetch(&url).await?;
        let explanations: Vec<Explanation> =
            serde_json::from_str(&page).map_err(|source| ClientError::Document { url, source })?;
        rows.push(Row {
            answer,
            explanation: explanations.into_iter().next(),
        });
    }
    Ok(rows)
}

impl Row {
    /// Whether the request failed, or was not served by the endpoint that was picked.
    pub(super) fn is_wrong(&self) -> bool {
        self.complaint().is_some()
    }

    /// Its cells, one of them for each of `scorers`.
    fn cells(&self, scorers: &[Scorer]) -> Vec<Cell> {
        let Answer { ask, result } = &self.answer;
        let (endpoint, time) = match result {
            Ok(Answered { served_by, first_word }) => (
                served_by.clone(),
                format!("{:.0} ms", first_word.as_secs_f64() * 1000.0),
            ),
            Err(_) => ("-".to_owned(), "-".to_owned()),
        };
        let (picked, next) = (self.picked(), self.runner_up());
        let opinion = |scorer: &Scorer| picked?.by.iter().find(|opinion| opinion.scorer == scorer.name);
        let cached = self
            .prefix()
            .map(|share| format!("{}/{}", share.matched_blocks, share.total_blocks));

        let mut cells = vec![Cell::new(&ask.id), Cell::new(ask), Cell::new(endpoint)];
        cells.extend(
            scorers
                .iter()
                .map(|scorer| number(opinion(scorer).map(|opinion| format!("{:.2}", opinion.score)))),
        );
        cells.push(number(picked.map(|score| format!("{:.2}", score.total))));
        cells.push(number(
            next.map(|score| format!("{} {:.2}", score.endpoint, score.total)),
        ));
        cells.push(number(cached));
        cells.push(number(Some(time)));
        cells
    }

    /// What is wrong with it, if anything is.
    fn complaint(&self) -> Option<String> {
        let id = &self.answer.ask.id;
        match (&self.answer.result, &self.explanation) {
            (Err(failed), _) => Some(format!("{id} failed: {failed}")),
            (Ok(_), None) => Some(format!("{id} is not known to Forebay")),
            (Ok(answered), Some(explanation)) if answered.served_by != explanation.endpoint => Some(format!(
                "{id} was served by {}, but {} was picked",
                answered.served_by, explanation.endpoint
            )),
            (Ok(_), Some(_)) => None,
        }
    }

    fn picked(&self) -> Option<&Score> {
        let explanation = self.explanation.as_ref()?;
        explanation
            .scored
            .iter()
            .find(|score| score.endpoint == explanation.endpoint)
    }

    /// The best of those that were not picked. It may have the same total.
    fn runner_up(&self) -> Option<&Score> {
        let explanation = self.explanation.as_ref()?;
        explanation
            .scored
            .iter()
            .find(|score| score.endpoint != explanation.endpoint)
    }

    fn prefix(&self) -> Option<&PrefixShare> {
        self.explanation.as_ref()?.prefix.first()
    }
}

/// A scorer of the profile, which has a column.
#[derive(Clone, Debug, PartialEq)]
struct Scorer {
    name: String,
    weight: f64,
}

fn number(text: Option<String>) -> Cell {
    Cell::new(text.unwrap_or_else(|| "-".to_owned())).set_alignment(CellAlignment::Right)
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scorers = self.scorers();
        let mut header: Vec<_> = ["id", "request", "endpoint"].map(str::to_owned).into();
        header.extend(scorers.iter().map(|Scorer { name, weight }| {
            // In words, so that a long name is broken between them.
            let words = name.strip_suffix("-scorer").unwrap_or(name).replace('-', " ");
            format!("{words} ×{weight}")
        }));
        header.extend(["total", "runner-up", "cached", "TTFT"].map(str::to_owned));
        let mut table = Table::new();
        table
            .load_style(UTF8_BORDERS_ONLY)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(WIDTH)
            .set_header(header)
            .add_rows(self.0.iter().map(|row| row.cells(&scorers)));
        let scores = 3..3 + scorers.len();
        for (place, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 1));
            if !scores.contains(&place) {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        writeln!(f, "{table}")?;
        for complaint in self.0.iter().filter_map(Row::complaint) {
            writeln!(f, "{complaint}")?;
        }
        self.summary(f)
    }
}

impl Report<'_> {
    /// The scorers of the profile that decided.
    fn scorers(&self) -> Vec<Scorer> {
        self.0.iter().find_map(Row::picked).map_or_else(Vec::new, |score| {
            let scorers = score.by.iter().map(|opinion| Scorer {
                name: opinion.scorer.clone(),
                weight: opinion.weight,
            });
            scorers.collect()
        })
    }

    fn summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares: Vec<_> = self.0.iter().filter_map(Row::prefix).collect();
        let hits = shares.iter().filter(|share| share.matched_blocks > 0).count();
        let sum = |blocks: fn(&PrefixShare) -> u32| shares.iter().map(|share| u64::from(blocks(share))).sum::<u64>();
        let (matched, total) = (sum(|share| share.matched_blocks), sum(|share| share.total_blocks));
        writeln!(
            f,
            "A scorer's column shows its score of the endpoint, 0 to 1, and what it is multiplied with; the total decides.\n\
             cached: blocks of the prompt that the endpoint had served before; {hits} of {} requests found some, {matched} \
             of {total} blocks in all.",
            self.0.len()
        )?;
        let mut served = BTreeMap::<&str, usize>::new();
        for row in self.0 {
            if let Ok(answered) = &row.answer.result {
                *served.entry(&answered.served_by).or_default() += 1;
            }
        }
        let served: Vec<_> = served.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(f, "Requests per endpoint: {}", served.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::serve::observe::decisions::Opinion;

    fn score(endpoint: &str, total: f64, prefix: f64) -> Score {
        let opinion = |scorer: &str, weight, score| Opinion {
            scorer: scorer.to_owned(),
            weight,
            score,
        };
        Score {
            endpoint: endpoint.to_owned(),
            total,
            by: vec![
                opinion("prefix-cache-scorer", 3.0, prefix),
                opinion("kv-cache-utilization-scorer", 2.0, 0.994),
                opinion("queue-scorer", 2.0, 1.0),
            ],
        }
    }

    fn row(served_by: &str) -> Row {
        Row {
            answer: Answer {
                ask: super::super::load::asks().remove(0),
                result: Ok(Answered {
                    served_by: served_by.to_owned(),
                    first_word: Duration::from_micros(53_400),
                }),
            },
            explanation: Some(Explanation {
                request_id: "demo-1".to_owned(),
                model: "stand-in".to_owned(),
                target_model: "stand-in".to_owned(),
                fairness_id: "default".to_owned(),
                priority: 0,
                decided_seconds: 0.001,
                endpoints: vec!["127.0.0.1:18085".to_owned()],
                endpoint: "server-1".to_owned(),
                profile: "default".to_owned(),
                candidates: 4,
                passed_over: 0,
                filters: Vec::new(),
                prefix: vec![PrefixShare {
                    producer: "prefix".to_owned(),
                    matched_blocks: 90,
                    total_blocks: 95,
                    block_tokens: 16,
                }],
                scored: vec![score("server-1", 6.84, 0.95), score("server-2", 3.99, 0.0)],
            }),
        }
    }

    #[test]
    fn the_table_says_who_was_picked_and_why_in_120_columns() {
        let report = Report(&[row("server-1")]).to_string();

        insta::assert_snapshot!(report);
        assert!(report.lines().all(|line| line.chars().count() <= usize::from(WIDTH)));
    }

    #[test]
    fn a_request_that_another_endpoint_served_is_wrong() {
        assert!(!row("server-1").is_wrong());
        assert!(row("server-2").is_wrong());
        assert!(
            Report(&[row("server-2")])
                .to_string()
                .contains("demo-1 was served by server-2, but server-1 was picked\n")
        );
    }
}
