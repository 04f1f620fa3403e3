//! What the flags of the service say together.

use clap::Parser as _;
use forebay::serve::ext_proc::{DEFAULT_BODY_TIMEOUT, DEFAULT_MAX_BODY_BYTES};

use super::*;
use crate::Forebay;

fn parsed(flags: &[&str]) -> Result<ServeArgs, clap::Error> {
    let words = std::iter::once("forebay").chain(flags.iter().copied());
    Forebay::try_parse_from(words).map(|forebay| forebay.serve)
}

#[test]
fn the_flags_of_a_pod_of_the_reference_are_taken() {
    let args = parsed(&[
        "--pool-name=pool",
        "--pool-namespace",
        "default",
        "--zap-encoder=json",
        "--v=4",
        "--tracing=false",
        "--kv-cache-usage-percentage-metric=x",
        "--drain-timeout=1m30s",
        "--secure-serving=false",
        "--grpc-max-recv-msg-size=10MiB",
    ])
    .unwrap();

    assert_eq!(args.cluster.pool_label(&Surroundings::default()), "pool");
    assert_eq!(args.logging.verbosity, 4);
    assert_eq!(args.drain_timeout, Duration::from_secs(90));
    assert_eq!(args.grpc_max_recv_msg_size, Some(10 << 20));
    assert!(!args.secure_serving);
    assert!(args.without_effect.given().is_empty());
    assert!(args.replaced.refuse().is_err());
}

#[test]
fn a_version_or_a_suite_that_is_none_is_an_error_that_names_the_flag() {
    let refusal = |flag| parsed(&[flag]).unwrap().tls().unwrap_err().to_string();

    for flag in ["--tls-min-version=1.3", "--tls-cipher-suites=AES"] {
        assert!(refusal(flag).contains("`--tls-min-version`"), "{flag}");
    }
    assert!(parsed(&["--tls-min-version=VersionTLS13"]).unwrap().tls().is_ok());
}

#[test]
fn what_a_flag_says_without_an_effect_gets_a_word() {
    let doubts = |flags: &[&str]| parsed(flags).unwrap().doubts().join("; ");

    assert_eq!(doubts(&[]), "");
    for (flags, word) in [
        (vec!["--refresh-metrics-interval=0s"], "counts as 50ms"),
        (
            vec!["--refresh-metrics-interval=2s"],
            "not above `--refresh-metrics-interval`",
        ),
        (
            vec!["--secure-serving=false", "--cert-path=/x"],
            "`--cert-path` has no effect",
        ),
        (
            vec!["--secure-serving=false", "--tls-min-version=VersionTLS13"],
            "nothing is served over TLS",
        ),
        (vec!["--drain-timeout=1s"], "`--drain-quiet` (5s) has no effect"),
        (
            vec![
                "--tls-min-version=VersionTLS13",
                "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            ],
            "`--tls-cipher-suites` has no effect with `--tls-min-version=VersionTLS13`",
        ),
        (
            vec!["--grpc-max-recv-msg-size=1Ki"],
            "messages with the headers of a request",
        ),
        (vec!["-v", "9"], "`-v 9` counts as `-v 5`"),
        (vec!["-v", "-1"], "`-v -1` counts as `-v 0`"),
    ] {
        assert!(doubts(&flags).contains(word), "{flags:?}: {}", doubts(&flags));
    }
    assert!(parsed(&["--max-request-body=10m"]).is_err());
}

#[test]
fn flags_that_are_for_other_endpoints_than_there_are_get_a_word() {
    let doubts = |flags: &[&str]| {
        let mut doubts = Vec::new();
        let args = parsed(&[&["--secure-serving=false"], flags].concat()).unwrap();
        args.into_settings(LeftOut::default(), &mut doubts).unwrap();
        doubts.join("; ")
    };

    let (pool, file, pods) = (
        "--pool-name=p",
        "--endpoints-file=e.yaml",
        ["--endpoint-selector=a=b", "--endpoint-target-ports=8000"],
    );
    for (flags, word) in [
        (vec![pool], ""),
        (vec![file, pool], ""),
        (vec![pods[0], pods[1]], ""),
        (
            vec![pool, pods[1]],
            "`--endpoint-target-ports` has no effect without `--endpoint-selector`",
        ),
        (
            vec![file, pods[1]],
            "`--endpoint-target-ports` has no effect: the endpoints come from a file",
        ),
        (
            vec![file, "--pool-namespace=n"],
            "`--pool-namespace` has no effect: the endpoints come from a file",
        ),
        (
            vec![file, "--pool-group=inference.networking.x-k8s.io"],
            "`--pool-group` has no effect: the endpoints come from a file",
        ),
        (
            vec![pods[0], pods[1], "--pool-group=inference.networking.x-k8s.io"],
            "`--pool-group` has no effect with `--endpoint-selector`",
        ),
        (
            vec![pool, "--ha-lease-duration=20s"],
            "`--ha-lease-duration` has no effect without `--ha-enable-leader-election`",
        ),
        (
            vec![file, "--ha-retry-period=1s"],
            "`--ha-retry-period` has no effect without `--ha-enable-leader-election`",
        ),
    ] {
        assert_eq!(doubts(&flags), word, "{flags:?}");
    }
}

#[test]
fn ports_are_given_once() {
    let refusal = |flags: &[&str]| {
        let args = parsed(&[&["--pool-name=p", "--secure-serving=false"], flags].concat()).unwrap();
        args.into_settings(LeftOut::default(), &mut Vec::new())
            .map(|_| String::new())
            .unwrap_or_else(|error| error.to_string())
    };

    assert_eq!(
        refusal(&["--grpc-port=9090"]),
        "`--grpc-port` and `--metrics-port` are both 9090; each needs a port of its own"
    );
    assert_eq!(
        refusal(&["--grpc-port=0", "--metrics-port=0"]),
        "",
        "any free port is another one each time"
    );
}

#[test]
fn a_path_of_the_reference_that_is_empty_is_as_if_it_were_not_given() {
    let flags = [
        "--pool-name=p",
        "--config-file=",
        "--cert-path=",
        "--metrics-cert-dir=",
        "--metrics-client-ca-file=",
    ];

    let settings = parsed(&flags)
        .unwrap()
        .into_settings(LeftOut::default(), &mut Vec::new())
        .unwrap();

    assert!(settings.config_file.is_none() && settings.tls.is_some() && settings.metrics_tls.is_none());
    assert!(parsed(&["--endpoints-file="]).is_err(), "of our own flags it is a slip");
}

#[test]
fn the_last_of_two_equal_flags_counts() {
    let args = parsed(&["-v", "2", "--grpc-port", "1", "--v=5", "--grpc-port=2"]).unwrap();

    assert_eq!((args.logging.verbosity, args.grpc_port), (5, 2));
}

#[test]
fn a_switch_may_stand_alone_or_have_a_value() {
    let of = |flag| parsed(&[flag]).map(|args| args.health_checking);

    assert!(of("--health-checking").unwrap());
    assert!(of("--health-checking=1").unwrap());
    assert!(!of("--health-checking=False").unwrap());
    assert!(of("--health-checking=perhaps").is_err());
}

#[test]
fn a_configuration_is_given_once() {
    let error = parsed(&["--config-file", "a", "--config-text", "b"]).unwrap_err();

    assert_eq!(error.kind(), clap::error::ErrorKind::ArgumentConflict);
}

#[test]
fn objectives_have_one_file_beside_that_of_the_endpoints() {
    let config = |objectives: &str| {
        format!(
            "{{plugins: [{{type: queue-scorer}}, {{type: file-discovery, parameters: {{path: e.yaml{objectives}}}}}], \
             dataLayer: {{discovery: {{pluginRef: file-discovery}}}}}}"
        )
    };
    let discovery = |flags: &[&str]| {
        parsed(flags)
            .unwrap()
            .into_settings(LeftOut::default(), &mut Vec::new())
            .map(|settings| match settings.discovery {
                Discovery::Files(files) => files,
                Discovery::Kubernetes(cluster) => panic!("no files: {cluster:?}"),
            })
    };

    let by_flags = discovery(&["--endpoints-file=e.yaml", "--objectives-file=o.yaml"]).unwrap();
    assert_eq!(
        (
            by_flags.path.as_str(),
            by_flags.objectives_path.as_str(),
            by_flags.watch_file
        ),
        ("e.yaml", "o.yaml", true)
    );
    let by_flag = discovery(&["--config-text", &config(""), "--objectives-file=o.yaml"]).unwrap();
    let by_config = discovery(&["--config-text", &config(", objectivesPath: o.yaml")]).unwrap();
    assert_eq!(by_flag, by_config);
    let twice = [
        "--config-text",
        &config(", objectivesPath: o.yaml"),
        "--objectives-file=p.yaml",
    ];
    assert!(
        discovery(&twice)
            .unwrap_err()
            .to_string()
            .starts_with("objectives are given twice")
    );
    assert!(
        discovery(&["--objectives-file=o.yaml"]).is_err(),
        "objectives alone are no pool"
    );
}

#[test]
fn the_bounds_of_bodies_are_the_same_whether_they_are_said_or_not() {
    assert_eq!(units::size(DEFAULT_MAX_BODY), Ok(DEFAULT_MAX_BODY_BYTES));
    let args = parsed(&[]).unwrap();
    assert_eq!(args.request_body_timeout, DEFAULT_BODY_TIMEOUT);
    assert_eq!(args.metrics_series_limit, Limits::DEFAULT_BYTES);
    assert_eq!(args.metrics_series_idle, Limits::DEFAULT_IDLE);
}
