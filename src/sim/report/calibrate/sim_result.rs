//! What a simulation says of each request: a JSON array, written by a replay and read to calibrate.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::sim::record::{End, RunRecord};
use crate::sim::report::json;

/// One completed request of a simulation. Times are microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimResult {
    /// Its number in the trace.
    pub request_id: u64,
    /// From arrival to the first token.
    pub ttft_us: f64,
    /// From arrival to the last token.
    pub e2e_us: f64,
    /// Tokens of its prompt.
    pub input_tokens: u32,
    /// Tokens of its answer.
    pub output_tokens: u32,
    /// Its SLO class, or nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub slo_class: String,
    /// The model that it asked for, or nothing.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// The mean time between its tokens. Zero if it is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub itl_mean_us: f64,
}

fn is_zero(us: &f64) -> bool {
    *us == 0.0
}

/// Why text is no list of results.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// It is not the JSON that it should be.
    #[error("simulation results at `{at}`")]
    Malformed {
        /// Where.
        at: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Two results are of one request.
    #[error("simulation results have request `{0}` more than once")]
    Repeated(u64),
    /// A time is less than nothing.
    #[error("simulation result of request `{request_id}` has `{field}` of `{value}`; a time is at least 0")]
    Negative {
        /// The request.
        request_id: u64,
        /// The time.
        field: &'static str,
        /// What was found.
        value: f64,
    },
}

/// The results of a run: its completed requests in order of number. The numbers are those that the rows of a trace of the
/// run have.
pub fn results_of(record: &RunRecord) -> Vec<SimResult> {
    let placed = (0..).zip(&record.requests);
    let mut results: Vec<_> = placed
        .filter(|(_, request)| request.end == End::Completed)
        .filter_map(|(place, request)| {
            Some(SimResult {
                request_id: request.name.number_at(place),
                ttft_us: request.ttft_us? as f64,
                e2e_us: request.e2e_us? as f64,
                input_tokens: request.prompt_tokens,
                output_tokens: request.output_tokens,
                slo_class: request.client.slo_class.to_string(),
                model: request.client.model.to_string(),
                itl_mean_us: request.itl_mean_us(),
            })
        })
        .collect();
    results.sort_by_key(|result| result.request_id);
    results
}

/// Results as JSON.
pub fn write_results(results: &[SimResult]) -> String {
    json::pretty(&results)
}

/// Reads what [`write_results`] writes. Keys that are not known are passed over.
///
/// # Errors
///
/// See [`ResultsError`].
pub fn read_results(text: &str) -> Result<Vec<SimResult>, ResultsError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let results: Vec<SimResult> =
        serde_path_to_error::deserialize(&mut reader).map_err(|error| ResultsError::Malformed {
            at: error.path().to_string(),
            source: error.into_inner(),
        })?;
    reader.end().map_err(|source| ResultsError::Malformed {
        at: "the end".to_owned(),
        source,
    })?;
    let mut seen = BTreeSet::new();
    for result in &results {
        if !seen.insert(result.request_id) {
            return Err(ResultsError::Repeated(result.request_id));
        }
        let times = [
            ("ttft_us", result.ttft_us),
            ("e2e_us", result.e2e_us),
            ("itl_mean_us", result.itl_mean_us),
        ];
        if let Some((field, value)) = times.into_iter().find(|&(_, value)| value < 0.0) {
            return Err(ResultsError::Negative {
                request_id: result.request_id,
                field,
                value,
            });
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::report::testing::hand_checkable_run;
    use crate::sim::request::RequestName;

    #[test]
    fn what_is_written_is_read_back() {
        let results = results_of(&hand_checkable_run().0);
        let text = write_results(&results);

        assert_eq!(read_results(&text).unwrap(), results);
        insta::assert_snapshot!(write_results(&results[..1]), @r#"
        [
          {
            "request_id": 0,
            "ttft_us": 27899,
            "e2e_us": 53094,
            "input_tokens": 32,
            "output_tokens": 3,
            "itl_mean_us": 12209
          }
        ]
        "#);
    }

    #[test]
    fn results_have_the_numbers_of_a_trace_whatever_requests_are_called() {
        let (mut record, _) = hand_checkable_run();
        record.requests[0].name = RequestName::Numbered(5);
        record.requests[1].name = RequestName::Named("session_a_round_1_0".into());
        record.requests[2].name = RequestName::Recorded(9);

        let numbers: Vec<u64> = results_of(&record).iter().map(|result| result.request_id).collect();

        assert_eq!(numbers, [0, 1, 9]);
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_place() {
        let one = r#"{"request_id":1,"ttft_us":1,"e2e_us":2,"input_tokens":3,"output_tokens":4}"#;
        let refused = |text: String| {
            let error = read_results(&text).unwrap_err();
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            format!("{error}{}", source.unwrap_or_default())
        };
        insta::assert_snapshot!(
            [
                refused(format!("[{one},{}]", one.replace("\"ttft_us\":1", "\"ttft_us\":\"soon\""))),
                refused(format!("[{one},{one}]")),
                refused(format!("[{}]", one.replace("\"e2e_us\":2", "\"e2e_us\":-2"))),
                refused(format!("[{one}] and more")),
            ]
            .join("\n"),
            @r#"
        simulation results at `[1].ttft_us`: invalid type: string "soon", expected f64 at line 1 column 108
        simulation results have request `1` more than once
        simulation result of request `1` has `e2e_us` of `-2`; a time is at least 0
        simulation results at `the end`: trailing characters at line 1 column 78
        "#
        );
    }
}
