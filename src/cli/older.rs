//! Flags under the names that the Gateway API Inference Extension had for them up to 0.5: in camel case, and with one dash
//! or two.

use std::ffi::OsString;

/// Old names, and those that they have now.
const RENAMED: [(&str, &str); 20] = [
    ("poolName", "pool-name"),
    ("poolNamespace", "pool-namespace"),
    ("grpcPort", "grpc-port"),
    ("grpcHealthPort", "grpc-health-port"),
    ("metricsPort", "metrics-port"),
    ("configFile", "config-file"),
    ("configText", "config-text"),
    ("certPath", "cert-path"),
    ("secureServing", "secure-serving"),
    ("healthChecking", "health-checking"),
    ("enablePprof", "enable-pprof"),
    ("refreshMetricsInterval", "refresh-metrics-interval"),
    (
        "refreshPrometheusMetricsInterval",
        "refresh-prometheus-metrics-interval",
    ),
    ("totalQueuedRequestsMetric", "total-queued-requests-metric"),
    ("kvCacheUsagePercentageMetric", "kv-cache-usage-percentage-metric"),
    ("loraInfoMetric", "lora-info-metric"),
    ("modelServerMetricsPath", "model-server-metrics-path"),
    ("modelServerMetricsPort", "model-server-metrics-port"),
    ("modelServerMetricsScheme", "model-server-metrics-scheme"),
    (
        "modelServerMetricsHttpsInsecureSkipVerify",
        "model-server-metrics-https-insecure-skip-verify",
    ),
];

/// The words of a command line with the names of today, and what is to be said of those that were others.
pub(crate) fn renamed(words: impl IntoIterator<Item = OsString>) -> (Vec<OsString>, Vec<String>) {
    let mut warnings = Vec::new();
    let words = words.into_iter().map(|word| {
        let Some((old, new, rest)) = word.to_str().and_then(old_name) else {
            return word;
        };
        warnings.push(format!("flag `{old}` is deprecated; write `--{new}`"));
        OsString::from(format!("--{new}{rest}"))
    });
    (words.collect(), warnings)
}

/// A flag as it is written, its name of today, and the value that is written with it.
fn old_name(word: &str) -> Option<(&str, &'static str, &str)> {
    let name = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    let end = name.find('=').unwrap_or(name.len());
    let (_, new) = RENAMED.iter().find(|(old, _)| *old == &name[..end])?;
    let rest = &name[end..];
    Some((&word[..word.len() - rest.len()], new, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_in_camel_case_is_taken_with_a_word_however_many_dashes_it_has() {
        let words = [
            "forebay",
            "-poolName",
            "pool",
            "--grpcPort=9002",
            "-v",
            "4",
            "--pool-namespace=n",
        ];

        let (renamed, warnings) = renamed(words.map(OsString::from));

        assert_eq!(
            renamed,
            [
                "forebay",
                "--pool-name",
                "pool",
                "--grpc-port=9002",
                "-v",
                "4",
                "--pool-namespace=n"
            ]
        );
        assert_eq!(
            warnings,
            [
                "flag `-poolName` is deprecated; write `--pool-name`",
                "flag `--grpcPort` is deprecated; write `--grpc-port`",
            ]
        );
    }
}
