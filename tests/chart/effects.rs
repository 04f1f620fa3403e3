//! Each value of the chart has an effect, or the chart says that it has none.
//!
//! These tests run Helm: they render the chart with one value after the other changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::repository;
use super::values::defaults;

/// The Helm that `make` installs, or another one.
fn helm() -> PathBuf {
    std::env::var_os("FOREBAY_HELM").map_or_else(|| repository(".tools/bin/helm"), PathBuf::from)
}

/// What Helm makes of the chart at `chart`, or its error.
fn run(chart: &Path, command: &[&str], settings: &[&str]) -> Result<String, String> {
    let mut helm = Command::new(helm());
    helm.args(command).arg(chart).args(["--namespace", "inference"]);
    for setting in settings {
        helm.args(["--set-json", setting]);
    }
    let output = helm
        .output()
        .expect("this test needs Helm: `make .tools/bin/helm`, or its path in FOREBAY_HELM");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr))
    }
}

fn render(settings: &[&str]) -> Result<String, String> {
    let command = ["template", "vllm", "--kube-version", "1.34.0"];
    run(&repository("charts/forebay"), &command, settings)
}

/// What any installation needs.
const MINIMUM: [&str; 2] = [
    r#"router.modelServers.matchLabels={"app": "vllm"}"#,
    r#"router.epp.image.registry="registry.example.com""#,
];
const SIDECAR: &[&str] = &[r#"mode="standalone""#];
const SERVICE: &[&str] = &[r#"mode="standalone""#, r#"router.proxy.mode="service""#];
const ALL_SERVE: &[&str] = &["router.epp.replicas=2", "router.epp.leaderElection.enabled=false"];
const ISTIO: &[&str] = &[r#"provider.name="istio""#];
const GKE: &[&str] = &[r#"provider.name="gke""#];
const ROUTE: &[&str] = &["httpRoute.create=true"];
const SCRAPED: &[&str] = &["router.monitoring.prometheus.enabled=true"];
const MANAGED: &[&str] = &[
    "router.monitoring.prometheus.enabled=true",
    r#"router.monitoring.provider.name="gmp""#,
];
const RULES: &[&str] = &["router.monitoring.rules.enabled=true"];
const DASHBOARD: &[&str] = &["router.monitoring.dashboard.enabled=true"];
const FENCED: &[&str] = &[
    "router.networkPolicy.enabled=true",
    r#"router.networkPolicy.extProcFrom=[{"podSelector": {}}]"#,
];
const FENCED_SIDECAR: &[&str] = &[r#"mode="standalone""#, "router.networkPolicy.enabled=true"];
const TRACED: &[&str] = &["router.tracing.enabled=true"];
const OBJECTIVES: &[&str] = &[r#"router.inferenceObjectives=[{"name": "gold", "priority": 1}]"#];
const OWN_FILE: &[&str] = &[r#"router.epp.pluginsCustomConfig={"mine.yaml": "plugins: []"}"#];
const PORT: &str = r#"[{"name": "more", "port": 7000}]"#;
const PEER: &str = r#"[{"podSelector": {"matchLabels": {"peer": "yes"}}}]"#;
const LABEL: &str = r#"{"added": "label"}"#;

/// Every value, another one in its place, and where that counts.
const CHANGES: &[(&str, &str, &[&str])] = &[
    ("mode", r#""standalone""#, &[]),
    ("nameOverride", r#""another""#, &[]),
    ("router.clusterDomain", r#""other.local""#, SERVICE),
    ("router.metricsPort", "7000", &[]),
    ("router.extraServicePorts", PORT, &[]),
    ("router.modelServers.type", r#""sglang""#, &[]),
    ("router.modelServers.protocol", r#""grpc""#, &[]),
    ("router.modelServers.targetPorts", r#"[{"number": 7000}]"#, &[]),
    ("router.modelServers.matchLabels", LABEL, &[]),
    ("router.inferencePool.create", "false", &[]),
    ("router.inferencePool.name", r#""another""#, &[]),
    (
        "router.inferencePool.apiVersion",
        r#""inference.networking.x-k8s.io/v1alpha2""#,
        &["router.inferencePool.create=false"],
    ),
    ("router.inferencePool.failureMode", r#""FailClose""#, &[]),
    ("router.inferencePool.annotations", LABEL, &[]),
    (
        "router.inferenceObjectives",
        r#"[{"name": "gold", "priority": 1}]"#,
        &[],
    ),
    (
        "router.inferenceObjectiveGroup",
        r#""inference.networking.x-k8s.io""#,
        OBJECTIVES,
    ),
    ("router.epp.replicas", "2", &[]),
    ("router.epp.leaderElection.enabled", "true", &[]),
    ("router.epp.image.registry", r#""other.example.com""#, &[]),
    ("router.epp.image.repository", r#""other""#, &[]),
    ("router.epp.image.tag", r#""other""#, &[]),
    ("router.epp.image.pullPolicy", r#""Always""#, &[]),
    ("router.epp.imagePullSecrets", r#"[{"name": "secret"}]"#, &[]),
    ("router.epp.extProcPort", "7000", &[]),
    ("router.epp.grpcHealthPort", "7000", &[]),
    ("router.epp.tls.enabled", "false", &[]),
    ("router.epp.tls.secretName", r#""secret""#, &[]),
    ("router.epp.flags", r#"{"v": 4}"#, &[]),
    ("router.epp.env", r#"[{"name": "RUST_LOG", "value": "debug"}]"#, &[]),
    ("router.epp.pluginsConfigFile", r#""mine.yaml""#, OWN_FILE),
    ("router.epp.pluginsCustomConfig", r#"{"mine.yaml": "plugins: []"}"#, &[]),
    ("router.epp.configObject", r#""another""#, &[]),
    ("router.epp.parsers", r#"["openai-parser"]"#, &[]),
    ("router.epp.metricsDataSource.scheme", r#""https""#, &[]),
    ("router.epp.metricsDataSource.path", r#""/other""#, &[]),
    ("router.epp.metricsDataSource.insecureSkipVerify", "false", &[]),
    (
        "router.epp.extraContainerPorts",
        r#"[{"name": "more", "containerPort": 7000}]"#,
        &[],
    ),
    ("router.epp.volumes", r#"[{"name": "more", "emptyDir": {}}]"#, &[]),
    (
        "router.epp.volumeMounts",
        r#"[{"name": "config", "mountPath": "/more"}]"#,
        &[],
    ),
    ("router.epp.resources", r#"{"requests": {"cpu": "7"}}"#, &[]),
    ("router.epp.affinity", r#"{"nodeAffinity": {}}"#, &[]),
    ("router.epp.tolerations", r#"[{"operator": "Exists"}]"#, &[]),
    ("router.epp.nodeSelector", LABEL, &[]),
    (
        "router.epp.topologySpreadConstraints",
        r#"[{"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]"#,
        &[],
    ),
    ("router.epp.priorityClassName", r#""high""#, &[]),
    ("router.epp.podAnnotations", LABEL, &[]),
    ("router.epp.podLabels", LABEL, &[]),
    ("router.epp.podSecurityContext", r#"{"runAsUser": 7}"#, &[]),
    ("router.epp.securityContext", r#"{"privileged": false}"#, &[]),
    ("router.epp.preStopSleepSeconds", "7", &[]),
    ("router.epp.terminationGracePeriodSeconds", "700", &[]),
    ("router.epp.serviceAccount.annotations", LABEL, &[]),
    ("router.epp.podDisruptionBudget.enabled", "false", ALL_SERVE),
    ("router.epp.podDisruptionBudget.maxUnavailable", "2", ALL_SERVE),
    ("router.proxy.mode", r#""service""#, SIDECAR),
    ("router.proxy.replicas", "7", SERVICE),
    ("router.proxy.image", r#""other:1""#, SIDECAR),
    ("router.proxy.imagePullPolicy", r#""Always""#, SIDECAR),
    ("router.proxy.bindAddress", r#""::""#, SIDECAR),
    ("router.proxy.port", "7000", SIDECAR),
    ("router.proxy.readyPort", "7000", SIDECAR),
    ("router.proxy.failOpen", "true", SIDECAR),
    ("router.proxy.fallbackList", "false", SIDECAR),
    ("router.proxy.requestTimeout", r#""7s""#, SIDECAR),
    ("router.proxy.streamIdleTimeout", r#""7s""#, SIDECAR),
    ("router.proxy.messageTimeout", r#""7s""#, SIDECAR),
    ("router.proxy.maxRequests", "7", SIDECAR),
    ("router.proxy.drainSeconds", "7", SIDECAR),
    ("router.proxy.logLevel", r#""debug""#, SIDECAR),
    ("router.proxy.accessLog", "true", SIDECAR),
    ("router.proxy.serviceType", r#""NodePort""#, SERVICE),
    ("router.proxy.serviceAnnotations", LABEL, SERVICE),
    ("router.proxy.resources", r#"{"requests": {"cpu": "7"}}"#, SIDECAR),
    ("router.proxy.podDisruptionBudget.enabled", "false", SERVICE),
    ("router.proxy.podDisruptionBudget.maxUnavailable", "2", SERVICE),
    ("router.monitoring.interval", r#""7s""#, SCRAPED),
    ("router.monitoring.provider.name", r#""gmp""#, SCRAPED),
    ("router.monitoring.provider.gmp.autopilot", "true", MANAGED),
    ("router.monitoring.prometheus.enabled", "true", &[]),
    ("router.monitoring.prometheus.auth.enabled", "false", &[]),
    ("router.monitoring.prometheus.auth.secretName", r#""secret""#, SCRAPED),
    ("router.monitoring.prometheus.extraLabels", LABEL, SCRAPED),
    ("router.monitoring.rules.enabled", "true", &[]),
    ("router.monitoring.rules.extraLabels", LABEL, RULES),
    (
        "router.monitoring.rules.runbookUrl",
        r#""https://example.com/runbooks""#,
        RULES,
    ),
    ("router.monitoring.rules.ttftSeconds", "7", RULES),
    ("router.monitoring.rules.errorRatio", "0.7", RULES),
    ("router.monitoring.rules.unusableEndpointRatio", "0.7", RULES),
    ("router.monitoring.rules.queueSize", "7", RULES),
    ("router.monitoring.dashboard.enabled", "true", &[]),
    ("router.monitoring.dashboard.labels", LABEL, DASHBOARD),
    ("router.monitoring.dashboard.annotations", LABEL, DASHBOARD),
    ("router.tracing.enabled", "true", &[]),
    ("router.tracing.otelExporterEndpoint", r#""http://other:4317""#, TRACED),
    ("router.tracing.sampling.sampler", r#""always_on""#, TRACED),
    ("router.tracing.sampling.samplerArg", r#""0.7""#, TRACED),
    ("router.networkPolicy.enabled", "true", SIDECAR),
    ("router.networkPolicy.extProcFrom", PEER, FENCED),
    ("router.networkPolicy.metricsFrom", PEER, FENCED),
    ("router.networkPolicy.proxyFrom", PEER, FENCED_SIDECAR),
    ("router.networkPolicy.apiServerTo", PEER, FENCED),
    ("router.networkPolicy.apiServerPorts", "[7000]", FENCED),
    (
        "router.networkPolicy.extraEgress",
        r#"[{"ports": [{"port": 7000}]}]"#,
        FENCED,
    ),
    ("provider.name", r#""gke""#, &[]),
    ("provider.istio.destinationRule.host", r#""other""#, ISTIO),
    (
        "provider.istio.destinationRule.trafficPolicy",
        r#"{"connectionPool": {}}"#,
        ISTIO,
    ),
    ("provider.gke.timeoutSeconds", "7", GKE),
    ("provider.gke.logging", "false", GKE),
    ("httpRoute.create", "true", &[]),
    ("httpRoute.inferenceGatewayName", r#""other""#, ROUTE),
    ("httpRoute.inferenceGatewayNamespace", r#""other""#, ROUTE),
    ("httpRoute.requestTimeout", r#""7s""#, ROUTE),
    ("httpRoute.baseModel", r#""other""#, ROUTE),
    ("httpRoute.headerMatches", r#"{"x-team": "a"}"#, ROUTE),
];

#[test]
fn each_value_that_is_changed_changes_what_the_chart_renders() {
    let known: BTreeSet<_> = defaults().into_keys().collect();
    let changed: BTreeSet<_> = CHANGES.iter().map(|(value, ..)| (*value).to_owned()).collect();
    assert_eq!(changed, known, "each value has its line above");

    for (value, other, surroundings) in CHANGES {
        let before = [&MINIMUM[..], surroundings].concat();
        let setting = format!("{value}={other}");
        let after = [&before[..], &[setting.as_str()]].concat();

        let [before, after] = [before, after].map(|settings| {
            let rendered = render(&settings);
            rendered.unwrap_or_else(|error| panic!("{setting}: {error}"))
        });

        assert_ne!(before, after, "{setting} changes nothing");
    }
}

#[test]
fn what_cannot_work_is_refused_with_the_value_that_is_wrong() {
    let unfit: &[(&[&str], &str)] = &[
        (
            &[r#"router.epp.image.registry="""#],
            "value `router.epp.image.registry` is empty",
        ),
        (&[r#"router.epp.flags={"nope": 1}"#], "has no flag `--nope`"),
        (
            &[r#"router.epp.flags={"config-text": "{}"}"#],
            "set `router.epp.pluginsCustomConfig` instead",
        ),
        (
            &[FENCED[0], FENCED[1], SCRAPED[0]],
            "value `router.networkPolicy.metricsFrom` is empty",
        ),
        (&[FENCED[0]], "value `router.networkPolicy.extProcFrom` is empty"),
        (
            &[SERVICE[0], SERVICE[1], "router.proxy.fallbackList=false"],
            "value `router.proxy.fallbackList` is false, and `router.proxy.failOpen` is on",
        ),
        (
            &[
                SIDECAR[0],
                "router.proxy.fallbackList=false",
                r#"router.epp.pluginsConfigFile="own.yaml""#,
                r#"router.epp.pluginsCustomConfig={"own.yaml": "parameters: {maxNumOfEndpoints: 3}"}"#,
            ],
            "`own.yaml` sets `maxNumOfEndpoints` above 1, and `router.proxy.fallbackList` is false",
        ),
        (
            &[r#"router.epp.env=[{"name": "POD_NAME", "value": "x"}]"#],
            "the chart sets `POD_NAME` itself",
        ),
        (
            &[r#"router.epp.podLabels={"app.kubernetes.io/name": "x"}"#],
            "selects pods by it",
        ),
        (
            &[SERVICE[0], SERVICE[1], r#"router.epp.flags={"health-checking": false}"#],
            "value `router.epp.flags.health-checking` is false",
        ),
        (
            &[r#"router.epp.flags={"drain-timeout": "200s"}"#],
            "set it to 200 at least",
        ),
        (
            &[r#"router.modelServers.matchLabels={"app": "my app"}"#],
            "router/modelServers/matchLabels/app",
        ),
        (
            &[r#"provider.name="agentgateway""#, "router.epp.tls.enabled=false"],
            "`agentgateway`, which asks over TLS alone",
        ),
        (
            &[
                r#"provider.name="agentgateway""#,
                r#"router.epp.pluginsConfigFile="mine.yaml""#,
                r#"router.epp.pluginsCustomConfig={"mine.yaml": "parameters: {maxNumOfEndpoints: 2}"}"#,
            ],
            "`mine.yaml` sets `maxNumOfEndpoints` above 1",
        ),
        (
            &[r#"router.epp.replica=2"#],
            "additional properties 'replica' not allowed",
        ),
    ];
    for (settings, part) in unfit {
        let error = render(&[&MINIMUM[..], settings].concat()).unwrap_err();
        assert!(error.contains(part), "{settings:?}: {error}");
    }
    let on_the_nodes = [MINIMUM[0], r#"router.epp.image.pullPolicy="Never""#];
    assert!(render(&on_the_nodes).unwrap().contains("image: forebay:"));
}

/// The notes at the end of an installation.
fn notes(settings: &[&str]) -> String {
    let copy = tempfile::tempdir().unwrap();
    let chart = copy.path().join("forebay");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(repository("charts/forebay"))
        .arg(&chart)
        .status();
    assert!(copied.unwrap().success());
    // Helm shows notes to those alone who have a cluster; so they are made a file like others.
    let templates = chart.join("templates");
    let text = std::fs::read_to_string(templates.join("NOTES.txt")).unwrap();
    let named = format!("{{{{ define \"notes\" }}}}{text}{{{{ end }}}}");
    std::fs::write(templates.join("_notes.tpl"), named).unwrap();
    std::fs::write(
        templates.join("notes.yaml"),
        "notes: {{ include \"notes\" . | toJson }}\n",
    )
    .unwrap();
    let command = [
        "template",
        "vllm",
        "--kube-version",
        "1.34.0",
        "--show-only",
        "templates/notes.yaml",
    ];
    let rendered = run(&chart, &command, settings).unwrap();
    let (_, json) = rendered.split_once("notes: ").unwrap();
    serde_json::from_str(json).unwrap()
}

#[test]
fn what_agentgateway_makes_nothing_of_is_in_the_notes() {
    let notes = notes(&[
        MINIMUM[0],
        MINIMUM[1],
        r#"provider.name="agentgateway""#,
        r#"router.epp.pluginsConfigFile="mine.yaml""#,
        r#"router.epp.pluginsCustomConfig={"mine.yaml": "flowControl: {enableEviction: true}"}"#,
    ]);

    for part in [
        "\n- router.inferencePool.failureMode: ",
        "\n- enableEviction in mine.yaml: ",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
}

#[test]
fn values_without_effect_are_listed_in_the_notes() {
    const WARNING: &str = "no effect here";
    assert!(!notes(&MINIMUM).contains(WARNING));

    let settings = [
        MINIMUM[0],
        MINIMUM[1],
        TRACED[0],
        r#"router.epp.flags={"enable-pprof": true}"#,
        OWN_FILE[0],
        r#"router.epp.pluginsConfigFile="mine.yaml""#,
        r#"router.epp.parsers=["openai-parser"]"#,
        r#"router.modelServers.type="sglang""#,
        "router.epp.tls.enabled=false",
        r#"router.epp.tls.secretName="secret""#,
        "router.proxy.enabled=true",
        r#"router.proxy.serviceAnnotations={"a": "b"}"#,
        "router.monitoring.prometheus.auth.enabled=false",
        r#"router.monitoring.prometheus.auth.secretName="secret""#,
        r#"router.monitoring.prometheus.extraLabels={"a": "b"}"#,
        r#"router.monitoring.rules.extraLabels={"a": "b"}"#,
        r#"router.monitoring.dashboard.annotations={"a": "b"}"#,
        r#"router.networkPolicy.metricsFrom=[{"podSelector": {}}]"#,
        "router.inferencePool.create=false",
        r#"router.inferencePool.annotations={"a": "b"}"#,
        r#"httpRoute.baseModel="x""#,
        r#"provider.istio.destinationRule.host="x""#,
    ];
    let notes = notes(&settings);

    assert!(notes.contains(WARNING), "{notes}");
    for value in [
        "router.tracing",
        "router.epp.flags.enable-pprof",
        "router.epp.parsers",
        "router.modelServers.type",
        "router.epp.tls.secretName",
        "router.proxy.enabled",
        "router.proxy.serviceAnnotations",
        "router.monitoring.prometheus.auth.secretName",
        "router.monitoring.prometheus.extraLabels",
        "router.monitoring.rules.extraLabels",
        "router.monitoring.dashboard.annotations",
        "router.networkPolicy.metricsFrom",
        "router.inferencePool.annotations",
        "httpRoute.baseModel",
        "provider.istio.destinationRule",
    ] {
        assert!(notes.contains(&format!("\n- {value}: ")), "{value}: {notes}");
    }
}
