//! Families whose series are few, such as those about the pool, under their older names too.

use std::collections::BTreeMap;

use prometheus::proto::{Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use super::family::{FAMILIES, Family, Old, PREFIX};

/// Adds the older names to what was gathered.
pub(super) fn with_old_names(mut gathered: Vec<MetricFamily>) -> Vec<MetricFamily> {
    let old = |family: &Family| {
        let old = family.old.as_ref()?;
        let values = gathered.iter().find(|gathered| gathered.name() == family.name)?;
        Some(under_old_name(family, old, values))
    };
    let old: Vec<_> = FAMILIES.iter().copied().filter_map(old).collect();
    gathered.extend(old);
    gathered
}

fn under_old_name(family: &Family, old: &Old, values: &MetricFamily) -> MetricFamily {
    let mut series: BTreeMap<Vec<&str>, Metric> = BTreeMap::new();
    for metric in values.get_metric() {
        let value_of = |label: &str| {
            let pair = metric.get_label().iter().find(|pair| pair.name() == label);
            pair.map_or("", LabelPair::value)
        };
        if old.only.is_some_and(|(label, value)| value_of(label) != value) {
            continue;
        }
        let key = old.labels.iter().map(|(_, source)| value_of(source)).collect();
        let sum = series.entry(key).or_insert_with(|| Metric::from_label(Vec::new()));
        add(sum, metric, values.get_field_type());
    }
    let metrics = series.into_iter().map(|(values, mut metric)| {
        let mut labels: Vec<_> = old
            .labels
            .iter()
            .zip(values)
            .map(|((name, _), value)| pair(name, value))
            .collect();
        labels.sort_by(|a, b| a.name().cmp(b.name()));
        metric.set_label(labels);
        metric
    });
    let mut page = MetricFamily::default();
    page.set_name(old.name.to_owned());
    page.set_help(family.older_help());
    page.set_field_type(values.get_field_type());
    page.set_metric(metrics.collect());
    page
}

fn pair(name: &str, value: &str) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

/// Adds one series to the sum of those that the older name does not tell apart.
fn add(sum: &mut Metric, metric: &Metric, kind: MetricType) {
    match kind {
        MetricType::COUNTER => {
            let mut counter = Counter::default();
            counter.set_value(sum.get_counter().get_value() + metric.get_counter().get_value());
            sum.set_counter(counter);
        }
        MetricType::GAUGE => {
            let mut gauge = Gauge::default();
            gauge.set_value(sum.get_gauge().get_value() + metric.get_gauge().get_value());
            sum.set_gauge(gauge);
        }
        MetricType::HISTOGRAM => {
            let (before, more) = (sum.get_histogram(), metric.get_histogram());
            let counts = before.get_bucket().iter().map(Bucket::cumulative_count);
            let buckets = more.get_bucket().iter().zip(counts.chain(std::iter::repeat(0)));
            let mut histogram = Histogram::default();
            histogram.set_sample_count(before.get_sample_count() + more.get_sample_count());
            histogram.set_sample_sum(before.get_sample_sum() + more.get_sample_sum());
            histogram.set_bucket(
                buckets
                    .map(|(bucket, count)| {
                        let mut sum = Bucket::default();
                        sum.set_upper_bound(bucket.upper_bound());
                        sum.set_cumulative_count(bucket.cumulative_count() + count);
                        sum
                    })
                    .collect(),
            );
            sum.set_histogram(histogram);
        }
        MetricType::SUMMARY | MetricType::UNTYPED => {
            unreachable!("{PREFIX}families are counters, gauges or histograms")
        }
    }
}
