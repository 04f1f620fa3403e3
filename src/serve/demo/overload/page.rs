//! What Forebay's metrics page says of flow control.

use super::{SOURCE_COUNT, SOURCES, Source};

const WAITING: &str = "llm_d_epp_flow_control_queue_size";
const WAITED: &str = "llm_d_epp_flow_control_request_queue_duration_seconds";

/// A look at the page: a row for each of [`SOURCES`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Page {
    pub(super) rows: [Row; SOURCE_COUNT],
}

/// What is known of the requests of a tenant at a priority.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    /// Requests that wait now.
    pub(super) waiting: f64,
    /// How long those waited that were released.
    pub(super) waits: Waits,
}

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Waits {
    /// How many there were.
    pub(super) count: f64,
    /// Seconds of all together.
    pub(super) sum: f64,
    /// Upper bounds, and how many were not above them; in the order of the page, which is rising.
    pub(super) buckets: Vec<(f64, f64)>,
}

impl Page {
    /// Reads a page in the text format. What is not about flow control is passed over.
    pub(super) fn read(text: &str) -> Self {
        let mut page = Self::default();
        for (name, labels, value) in text.lines().filter_map(series) {
            let Some(place) = SOURCES.iter().position(|source| is_about(source, labels)) else {
                continue;
            };
            let Row { waiting, waits } = &mut page.rows[place];
            let is_of_released = label(labels, "outcome") == Some("Dispatched");
            match name.strip_prefix(WAITED) {
                None if name == WAITING => *waiting += value,
                Some("_count") if is_of_released => waits.count += value,
                Some("_sum") if is_of_released => waits.sum += value,
                Some("_bucket") if is_of_released => {
                    let bound = label(labels, "le").and_then(|bound| bound.parse().ok());
                    waits.buckets.extend(bound.map(|bound| (bound, value)));
                }
                _ => {}
            }
        }
        page
    }
}

impl Waits {
    /// The mean in seconds, if there were any.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }

    /// The time in seconds that a share of `q` did not exceed, as if those of a bucket were spread evenly over it.
    pub(super) fn quantile(&self, q: f64) -> Option<f64> {
        let rank = q * self.count;
        let mut below = (0.0, 0.0);
        for &(bound, count) in &self.buckets {
            if count >= rank && count > 0.0 {
                let (from, before) = below;
                // Beyond the last bound nothing is known but that.
                let part = if bound.is_finite() { bound - from } else { 0.0 };
                return Some(from + part * (rank - before) / (count - before));
            }
            below = (bound, count);
        }
        None
    }
}

/// Name, labels and value of a line, if it is a series with labels.
fn series(line: &str) -> Option<(&str, &str, f64)> {
    let (name, rest) = line.split_once('{')?;
    let (labels, value) = rest.rsplit_once("} ")?;
    Some((name, labels, value.parse().ok()?))
}

/// The value of a label. Those that are looked for here have neither quotes nor commas.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    Some(value.trim_matches('"'))
}

fn is_about(source: &Source, labels: &str) -> bool {
    label(labels, "fairness_id") == Some(source.tenant.name())
        && label(labels, "priority") == Some(&source.band.priority().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenant_has_a_row_for_each_priority() {
        let page = Page::read(
            r#"# TYPE llm_d_epp_flow_control_queue_size gauge
llm_d_epp_flow_control_queue_size{fairness_id="noisy",inference_pool="epp",model_name="m",priority="0"} 7
llm_d_epp_flow_control_queue_size{fairness_id="noisy",inference_pool="epp",model_name="m",priority="-10"} 2
llm_d_epp_flow_control_request_queue_duration_seconds_bucket{fairness_id="noisy",outcome="Dispatched",priority="0",le="1"} 3
llm_d_epp_flow_control_request_queue_duration_seconds_bucket{fairness_id="noisy",outcome="Dispatched",priority="0",le="+Inf"} 4
llm_d_epp_flow_control_request_queue_duration_seconds_sum{fairness_id="noisy",outcome="Dispatched",priority="0"} 6
llm_d_epp_flow_control_request_queue_duration_seconds_count{fairness_id="noisy",outcome="Dispatched",priority="0"} 4
llm_d_epp_flow_control_request_queue_duration_seconds_count{fairness_id="noisy",outcome="EvictedTTL",priority="0"} 9
process_open_fds 12
"#,
        );

        let expected = Row {
            waiting: 7.0,
            waits: Waits {
                count: 4.0,
                sum: 6.0,
                buckets: vec![(1.0, 3.0), (f64::INFINITY, 4.0)],
            },
        };
        assert_eq!(page.rows[3], expected);
        assert_eq!(page.rows[5].waiting, 2.0);
        assert_eq!(page.rows[0], Row::default());
    }

    #[test]
    fn a_quantile_is_interpolated_within_its_bucket() {
        let waits = Waits {
            count: 10.0,
            sum: 12.0,
            buckets: vec![(0.5, 0.0), (1.0, 8.0), (3.0, 10.0), (f64::INFINITY, 10.0)],
        };

        assert_eq!(waits.quantile(0.5), Some(0.8125));
        assert_eq!(waits.quantile(0.9), Some(2.0));
        assert_eq!(waits.mean(), Some(1.2));
        assert_eq!(Waits::default().quantile(0.5), None);
        assert_eq!(Waits::default().mean(), None);
    }

    #[test]
    fn of_what_is_beyond_all_bounds_only_the_last_is_known() {
        let waits = Waits {
            count: 2.0,
            sum: 200.0,
            buckets: vec![(60.0, 1.0), (f64::INFINITY, 2.0)],
        };

        assert_eq!(waits.quantile(0.95), Some(60.0));
    }
}
