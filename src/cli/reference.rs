//! Flags of the reference picker that are taken so that a pod spec goes on to work, and have no meaning here.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::Args;

use super::switch;

/// Flags of the reference that change nothing here.
#[derive(Debug, Args)]
pub(crate) struct WithoutEffect {
    #[arg(long, hide = true)]
    grpc_max_send_msg_size: Option<String>,
    #[arg(long, hide = true)]
    refresh_prometheus_metrics_interval: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_pprof: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_grpc_stream_metrics: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    tracing: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    zap_devel: Option<String>,
    #[arg(long, hide = true)]
    zap_stacktrace_level: Option<String>,
    #[arg(long, hide = true)]
    zap_time_encoding: Option<String>,
}

impl WithoutEffect {
    /// The flags that were given and whose value asks for something that is not done.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        [
            ("grpc-max-send-msg-size", &self.grpc_max_send_msg_size),
            (
                "refresh-prometheus-metrics-interval",
                &self.refresh_prometheus_metrics_interval,
            ),
            ("enable-pprof", &self.enable_pprof),
            ("enable-grpc-stream-metrics", &self.enable_grpc_stream_metrics),
            ("tracing", &self.tracing),
            ("zap-devel", &self.zap_devel),
            ("zap-stacktrace-level", &self.zap_stacktrace_level),
            ("zap-time-encoding", &self.zap_time_encoding),
        ]
        .into_iter()
        .filter_map(|(flag, value)| asks(value.as_deref()).then_some(flag))
        .collect()
    }
}

/// The names of the flags of the reference that change nothing here, in the order of the alphabet.
pub(crate) fn flags_without_effect() -> BTreeSet<String> {
    let command = WithoutEffect::augment_args(clap::Command::new("none"));
    let names = command.get_arguments().filter_map(clap::Arg::get_long);
    names.map(str::to_owned).collect()
}

/// True unless a flag is absent, empty or switched off.
fn asks(value: Option<&str>) -> bool {
    value.is_some_and(|value| !value.is_empty() && switch::value(value) != Ok(false))
}

/// Flags that the configuration has replaced, in the reference too.
#[derive(Debug, Args)]
pub(crate) struct Replaced {
    #[arg(long, hide = true)]
    total_queued_requests_metric: Option<String>,
    #[arg(long, hide = true)]
    total_running_requests_metric: Option<String>,
    #[arg(long, hide = true)]
    kv_cache_usage_percentage_metric: Option<String>,
    #[arg(long, hide = true)]
    lora_info_metric: Option<String>,
    #[arg(long, hide = true)]
    cache_info_metric: Option<String>,
    #[arg(long, hide = true)]
    model_server_metrics_path: Option<String>,
    #[arg(long, hide = true)]
    model_server_metrics_port: Option<String>,
    #[arg(long, hide = true)]
    model_server_metrics_scheme: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    model_server_metrics_https_insecure_skip_verify: Option<String>,
}

impl Replaced {
    /// Fails if one of them is given.
    pub(crate) fn refuse(&self) -> anyhow::Result<()> {
        let flags = [
            ("total-queued-requests-metric", &self.total_queued_requests_metric),
            ("total-running-requests-metric", &self.total_running_requests_metric),
            (
                "kv-cache-usage-percentage-metric",
                &self.kv_cache_usage_percentage_metric,
            ),
            ("lora-info-metric", &self.lora_info_metric),
            ("cache-info-metric", &self.cache_info_metric),
        ];
        for (flag, value) in flags {
            if value.is_some() {
                bail!(
                    "flag \"{flag}\" is deprecated and cannot be used; configure metrics via engineConfigs in \
                     EndpointPickerConfig instead"
                );
            }
        }
        let moved = [
            ("path", "path", &self.model_server_metrics_path, "/metrics"),
            ("port", "port", &self.model_server_metrics_port, "0"),
            ("scheme", "scheme", &self.model_server_metrics_scheme, "http"),
            (
                "https-insecure-skip-verify",
                "insecureSkipVerify",
                &self.model_server_metrics_https_insecure_skip_verify,
                "true",
            ),
        ];
        for (flag, parameter, value, default) in moved {
            if value
                .as_ref()
                .is_some_and(|value| value != default && !value.is_empty())
            {
                bail!(
                    "flag \"model-server-metrics-{flag}\" is deprecated and cannot be used; write `{parameter}` as a \
                     parameter of `metrics-data-source` in EndpointPickerConfig instead"
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        without_effect: WithoutEffect,
        #[command(flatten)]
        replaced: Replaced,
    }

    #[test]
    fn where_metrics_are_is_refused_as_a_flag_unless_it_is_the_default() {
        let refused = |flag| Only::parse_from(["forebay", flag]).replaced.refuse();

        assert!(refused("--model-server-metrics-path=/metrics").is_ok());
        assert!(refused("--model-server-metrics-https-insecure-skip-verify").is_ok());
        let error = refused("--model-server-metrics-path=/m").unwrap_err().to_string();
        assert!(
            error.contains("write `path` as a parameter of `metrics-data-source`"),
            "{error}"
        );
    }

    #[test]
    fn every_flag_that_does_nothing_is_told_of() {
        for flag in flags_without_effect() {
            let given = Only::parse_from(["forebay", &format!("--{flag}=5")])
                .without_effect
                .given();

            assert_eq!(given, [flag]);
        }
    }

    #[test]
    fn a_flag_that_does_nothing_is_told_of_when_it_asks_for_something() {
        let given = |flag| Only::parse_from(["forebay", flag]).without_effect.given();

        assert_eq!(given("--enable-pprof"), ["enable-pprof"]);
        assert!(given("--enable-pprof=F").is_empty());
        assert!(given("--grpc-max-send-msg-size=").is_empty());
    }
}
