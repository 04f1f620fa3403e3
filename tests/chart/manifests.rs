//! What every object has to be.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Rendered, containers, example, examples, list, name_of, selects, texts};

/// The namespace that the examples are rendered for.
const NAMESPACE: &str = "inference";

/// Every kind that the chart makes, and whether its objects are within a namespace.
const KINDS: &[(&str, &str, bool)] = &[
    ("apps/v1", "Deployment", true),
    ("gateway.networking.k8s.io/v1", "HTTPRoute", true),
    ("inference.networking.k8s.io/v1", "InferencePool", true),
    ("llm-d.ai/v1alpha2", "InferenceObjective", true),
    ("monitoring.coreos.com/v1", "PodMonitor", true),
    ("monitoring.coreos.com/v1", "PrometheusRule", true),
    ("monitoring.coreos.com/v1", "ServiceMonitor", true),
    ("monitoring.googleapis.com/v1", "PodMonitoring", true),
    ("monitoring.googleapis.com/v1", "Rules", true),
    ("networking.gke.io/v1", "GCPBackendPolicy", true),
    ("networking.gke.io/v1", "HealthCheckPolicy", true),
    ("networking.istio.io/v1", "DestinationRule", true),
    ("networking.k8s.io/v1", "NetworkPolicy", true),
    ("policy/v1", "PodDisruptionBudget", true),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", false),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", false),
    ("rbac.authorization.k8s.io/v1", "Role", true),
    ("rbac.authorization.k8s.io/v1", "RoleBinding", true),
    ("v1", "ConfigMap", true),
    ("v1", "Secret", true),
    ("v1", "Service", true),
    ("v1", "ServiceAccount", true),
];

fn pod_labels(deployment: &Value) -> &Value {
    &deployment["spec"]["template"]["metadata"]["labels"]
}

/// The one Deployment whose pods have these labels; none if they are those of the model servers.
fn selected<'a>(rendered: &'a Rendered, selector: &Value) -> Option<&'a Value> {
    if selector["app"].is_string() {
        return None;
    }
    let mut found = rendered
        .of_kind("Deployment")
        .filter(|deployment| selects(selector, pod_labels(deployment)));
    let deployment = found
        .next()
        .unwrap_or_else(|| panic!("{}: nothing has the labels {selector}", rendered.name));
    assert!(
        found.next().is_none(),
        "{}: {selector} selects two Deployments",
        rendered.name
    );
    Some(deployment)
}

fn port_named<'a>(deployment: &'a Value, name: &str) -> Option<&'a Value> {
    let ports = containers(deployment)
        .iter()
        .flat_map(|container| list(&container["ports"]));
    ports.into_iter().find(|port| port["name"] == name)
}

#[test]
fn objects_are_of_known_kinds_in_the_namespace_of_the_release() {
    let mut seen = BTreeSet::new();
    for rendered in examples() {
        let mut names = BTreeSet::new();
        for object in &rendered.objects {
            let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
            let known = KINDS.iter().find(|known| (known.0, known.1) == (version, kind));
            let known = known.unwrap_or_else(|| panic!("{}: unknown kind {version} {kind}", rendered.name));
            let expected = known.2.then_some(NAMESPACE);
            assert_eq!(
                object["metadata"]["namespace"].as_str(),
                expected,
                "{kind} {}",
                name_of(object)
            );
            assert_eq!(
                object["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm",
                "{kind}"
            );
            assert!(
                names.insert((kind, name_of(object))),
                "{}: {kind} {} twice",
                rendered.name,
                name_of(object)
            );
            seen.insert((known.0, known.1));
        }
    }
    let all: BTreeSet<_> = KINDS.iter().map(|known| (known.0, known.1)).collect();
    assert_eq!(seen, all, "every kind is in some example");
}

#[test]
fn selectors_select_the_pods_of_one_deployment() {
    for rendered in examples() {
        for deployment in rendered.of_kind("Deployment") {
            assert!(selects(
                &deployment["spec"]["selector"]["matchLabels"],
                pod_labels(deployment)
            ));
            for constraint in list(&deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]) {
                assert!(selects(
                    &constraint["labelSelector"]["matchLabels"],
                    pod_labels(deployment)
                ));
            }
        }
        for kind in ["PodDisruptionBudget", "PodMonitor", "PodMonitoring"] {
            for object in rendered.of_kind(kind) {
                assert!(selected(&rendered, &object["spec"]["selector"]["matchLabels"]).is_some());
            }
        }
        for policy in rendered.of_kind("NetworkPolicy") {
            assert!(selected(&rendered, &policy["spec"]["podSelector"]["matchLabels"]).is_some());
        }
    }
}

#[test]
fn services_lead_to_ports_that_their_pods_have() {
    for rendered in examples() {
        for service in rendered.of_kind("Service") {
            let Some(deployment) = selected(&rendered, &service["spec"]["selector"]) else {
                continue;
            };
            for port in list(&service["spec"]["ports"]) {
                let target = port["targetPort"].as_str().unwrap();
                let open = port_named(deployment, target)
                    .unwrap_or_else(|| panic!("{}: {} has no port {target}", rendered.name, name_of(deployment)));
                assert_eq!(open["containerPort"], port["port"]);
            }
        }
    }
}

#[test]
fn prometheus_is_led_to_ports_that_are_there() {
    for rendered in examples() {
        for monitor in rendered.of_kind("ServiceMonitor") {
            let selector = &monitor["spec"]["selector"]["matchLabels"];
            let mut services = rendered
                .of_kind("Service")
                .filter(|service| selects(selector, &service["metadata"]["labels"]));
            let service = services.next().unwrap();
            assert!(services.next().is_none(), "each pod is scraped once");
            let port = &monitor["spec"]["endpoints"][0]["port"];
            assert!(list(&service["spec"]["ports"]).iter().any(|open| &open["name"] == port));
        }
        for (kind, endpoints) in [("PodMonitor", "podMetricsEndpoints"), ("PodMonitoring", "endpoints")] {
            for monitor in rendered.of_kind(kind) {
                let deployment = selected(&rendered, &monitor["spec"]["selector"]["matchLabels"]).unwrap();
                let port = monitor["spec"][endpoints][0]["port"].as_str().unwrap();
                assert!(port_named(deployment, port).is_some());
            }
        }
    }
}

#[test]
fn the_pods_of_envoy_are_placed_as_those_of_forebay() {
    let rendered = example("standalone-service");
    let template = |name| &rendered.named("Deployment", name)["spec"]["template"];
    let (forebay, envoy) = (template("vllm-qwen3-32b-epp"), template("vllm-qwen3-32b-proxy"));

    for field in ["imagePullSecrets", "priorityClassName", "affinity"] {
        assert!(!forebay["spec"][field].is_null(), "{field}");
        assert_eq!(envoy["spec"][field], forebay["spec"][field], "{field}");
    }
    assert_eq!(envoy["metadata"]["annotations"]["example.com/team"], "inference");
}

#[test]
fn the_envoys_of_a_service_are_scraped() {
    let rendered = example("standalone-service");

    let monitor = rendered.named("PodMonitor", "vllm-qwen3-32b-proxy");

    let deployment = selected(&rendered, &monitor["spec"]["selector"]["matchLabels"]).unwrap();
    assert_eq!(name_of(deployment), "vllm-qwen3-32b-proxy");
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["path"], "/stats/prometheus");
}

#[test]
fn pods_are_as_the_restricted_standard_wants_them() {
    for rendered in examples() {
        for deployment in rendered.of_kind("Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
            assert!(pod["securityContext"]["runAsUser"].as_u64().unwrap() > 0);
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            for field in ["hostNetwork", "hostPID", "hostIPC"] {
                assert!(pod[field].is_null(), "{field}");
            }
            for container in containers(deployment) {
                let security = &container["securityContext"];
                assert_eq!(security["allowPrivilegeEscalation"], false);
                assert_eq!(security["readOnlyRootFilesystem"], true);
                assert_eq!(texts(&security["capabilities"]["drop"]), ["ALL"]);
                assert!(list(&container["ports"]).iter().all(|port| port["hostPort"].is_null()));
            }
        }
    }
}

#[test]
fn containers_say_what_they_need_and_of_which_version_they_are() {
    for rendered in examples() {
        for container in rendered.of_kind("Deployment").flat_map(containers) {
            let image = container["image"].as_str().unwrap();
            let (_, tag) = image.rsplit_once(':').unwrap();
            assert!(!tag.is_empty() && !["latest", "main"].contains(&tag), "{image}");
            for need in ["cpu", "memory"] {
                assert!(container["resources"]["requests"][need].is_string(), "{image}: {need}");
            }
            assert!(container["resources"]["limits"]["memory"].is_string(), "{image}");
            assert!(
                container["resources"]["limits"]["cpu"].is_null(),
                "{image}: it would be throttled"
            );
            for probe in ["livenessProbe", "readinessProbe"] {
                assert!(container[probe].is_object(), "{image}: {probe}");
            }
        }
    }
}

#[test]
fn what_is_mounted_is_there() {
    for rendered in examples() {
        for deployment in rendered.of_kind("Deployment") {
            let volumes = list(&deployment["spec"]["template"]["spec"]["volumes"]);
            for volume in volumes {
                if let Some(name) = volume["configMap"]["name"].as_str() {
                    rendered.named("ConfigMap", name);
                } else {
                    assert!(volume["secret"]["secretName"].is_string(), "{volume}");
                }
            }
            for mount in containers(deployment)
                .iter()
                .flat_map(|container| list(&container["volumeMounts"]))
            {
                assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
                assert_eq!(mount["readOnly"], true, "{mount}");
            }
        }
    }
}

#[test]
fn a_pod_has_time_to_end() {
    for rendered in examples() {
        for deployment in rendered.of_kind("Deployment") {
            let grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
                .as_u64()
                .unwrap();
            for container in containers(deployment) {
                let sleep = &container["lifecycle"]["preStop"]["sleep"]["seconds"];
                assert!(grace > sleep.as_u64().unwrap_or(30), "{}", name_of(deployment));
            }
        }
    }
}

/// Fails unless the program follows the pool that is referred to.
fn is_the_pool(rendered: &Rendered, reference: &Value) {
    let arguments = texts(&rendered.picker()["args"]);
    for (flag, field) in [("--pool-name", "name"), ("--pool-group", "group")] {
        let at = arguments.iter().position(|argument| *argument == flag).unwrap();
        assert_eq!(arguments[at + 1], reference[field], "{}: {reference}", rendered.name);
    }
}

#[test]
fn a_pool_that_is_made_elsewhere_is_followed() {
    let rendered = example("gateway-existing-pool");

    assert_eq!(rendered.of_kind("InferencePool").count(), 0);
    let route = rendered.of_kind("HTTPRoute").next().unwrap();
    let backend = &route["spec"]["rules"][0]["backendRefs"][0];
    assert_eq!(backend["name"], "qwen3");
    assert_eq!(backend["group"], "inference.networking.x-k8s.io");
    is_the_pool(&rendered, backend);
    let role = rendered.named("Role", "vllm-qwen3-32b-epp");
    let rules = list(&role["rules"]).iter();
    let mut of_pools = rules.filter(|rule| texts(&rule["resources"]) == ["inferencepools"]);
    let rule = of_pools.next().unwrap();
    assert_eq!(texts(&rule["apiGroups"]), ["inference.networking.x-k8s.io"]);
    assert_eq!(texts(&rule["resourceNames"]), ["qwen3"]);
    assert!(of_pools.next().is_none());
    let named: Vec<_> = list(&role["rules"])
        .iter()
        .flat_map(|rule| texts(&rule["resourceNames"]))
        .collect();
    assert!(named.contains(&"epp-inference-qwen3.llm-d.ai"), "{named:?}");
}

#[test]
fn forebay_does_not_end_before_the_envoy_in_its_pod() {
    let rendered = example("standalone");
    let deployment = rendered.of_kind("Deployment").next().unwrap();

    let waits: Vec<_> = containers(deployment)
        .iter()
        .map(|container| container["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64())
        .collect();

    // Forebay, and Envoy, which ends at once when it is told to.
    assert_eq!(waits, [Some(30), Some(30)]);
}

#[test]
fn names_lead_to_objects() {
    for rendered in examples() {
        for pool in rendered.of_kind("InferencePool") {
            let reference = &pool["spec"]["endpointPickerRef"];
            let service = rendered.named("Service", reference["name"].as_str().unwrap());
            let ports = list(&service["spec"]["ports"]);
            assert!(ports.iter().any(|port| port["port"] == reference["port"]["number"]));
            let group = pool["apiVersion"].as_str().unwrap().split('/').next().unwrap();
            is_the_pool(&rendered, &json!({"name": name_of(pool), "group": group}));
        }
        for route in rendered.of_kind("HTTPRoute") {
            is_the_pool(&rendered, &route["spec"]["rules"][0]["backendRefs"][0]);
        }
        for objective in rendered.of_kind("InferenceObjective") {
            is_the_pool(&rendered, &objective["spec"]["poolRef"]);
        }
        for policy in ["GCPBackendPolicy", "HealthCheckPolicy"]
            .iter()
            .flat_map(|kind| rendered.of_kind(kind))
        {
            let target = &policy["spec"]["targetRef"];
            if target["kind"] == "InferencePool" {
                is_the_pool(&rendered, target);
            } else {
                rendered.named(target["kind"].as_str().unwrap(), target["name"].as_str().unwrap());
            }
        }
        for monitor in rendered.of_kind("ServiceMonitor") {
            let credentials = &monitor["spec"]["endpoints"][0]["authorization"]["credentials"];
            let secret = rendered.named("Secret", credentials["name"].as_str().unwrap());
            let owner = &secret["metadata"]["annotations"]["kubernetes.io/service-account.name"];
            rendered.named("ServiceAccount", owner.as_str().unwrap());
        }
    }
}

/// GKE's definition of the kind refuses a port of any other specification.
#[test]
fn a_health_check_of_gke_that_names_a_port_says_that_it_is_a_fixed_one() {
    let rendered = example("gateway-gke");

    let policy = rendered.named("HealthCheckPolicy", "vllm-qwen3-32b");

    let check = &policy["spec"]["default"]["config"]["httpHealthCheck"];
    assert_eq!(check["port"], 8000);
    assert_eq!(check["portSpecification"], "USE_FIXED_PORT");
}

#[test]
fn a_leader_can_be_evicted_and_replaced() {
    let rendered = example("gateway-high-availability");
    let deployment = rendered.named("Deployment", "vllm-qwen3-32b-epp");

    assert!(rendered.picker_has("--ha-enable-leader-election"));
    // Standbys are not ready, so a budget would never let the leader go, and an update would never find new pods ready.
    assert_eq!(rendered.of_kind("PodDisruptionBudget").count(), 0);
    assert_eq!(
        deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"],
        "100%"
    );
}

#[test]
fn replicas_that_all_serve_go_one_at_a_time() {
    let rendered = example("gateway-active-active");
    let deployment = rendered.named("Deployment", "vllm-qwen3-32b-epp");

    assert!(!rendered.picker_has("--ha-enable-leader-election"));
    let budget = rendered.named("PodDisruptionBudget", "vllm-qwen3-32b-epp");
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
    assert_eq!(deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
}

#[test]
fn a_gateway_in_a_policy_is_the_only_one_to_ask() {
    let rendered = example("gateway-high-availability");
    let policy = rendered.named("NetworkPolicy", "vllm-qwen3-32b-epp");

    for rule in list(&policy["spec"]["ingress"]) {
        assert!(!list(&rule["from"]).is_empty(), "open to everybody: {rule}");
    }
    assert_eq!(texts(&policy["spec"]["policyTypes"]), ["Ingress", "Egress"]);
}
