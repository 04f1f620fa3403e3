//! Who may read the pages, and what Forebay may do in the cluster.

use std::collections::BTreeSet;

use forebay::serve::demo::children::Signal;
use forebay::serve::kube::api::EndpointPickerConfig;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use kube::api::{Api, PostParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::install::{Installation, Wanted};
use super::view::PATIENCE;
use crate::support::happens;
use crate::support::http::Ask;
use crate::support::kube::Kube;
use crate::support::kube::objects::{POOL, config};

fn object<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// A service account of the namespace, and a token of it.
pub(super) async fn service_account(kube: &Kube, name: &str) -> String {
    let account: ServiceAccount = object(json!({ "metadata": { "name": name } }));
    kube.create(&account).await;
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec!["https://kubernetes.test".to_owned()],
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let accounts: Api<ServiceAccount> = kube.api();
    let answer = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await;
    answer.unwrap().status.unwrap().token
}

/// Lets a service account do this in the whole cluster.
async fn grant(kube: &Kube, account: &str, rules: Value) {
    let name = format!("{}-{account}", kube.namespace);
    let role: ClusterRole = object(json!({ "metadata": { "name": name }, "rules": rules }));
    let binding: ClusterRoleBinding = object(json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": kube.namespace }],
    }));
    let params = PostParams::default();
    Api::all(kube.client.clone()).create(&params, &role).await.unwrap();
    Api::all(kube.client.clone()).create(&params, &binding).await.unwrap();
}

/// Lets a service account do this in the namespace of the test, by a role and a binding of this name.
pub(super) async fn bind(kube: &Kube, account: &str, name: &str, rules: Value) {
    let role: Role = object(json!({ "metadata": { "name": name }, "rules": rules }));
    kube.create(&role).await;
    let binding: RoleBinding = object(json!({
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": kube.namespace }],
    }));
    kube.create(&binding).await;
}

#[tokio::test]
async fn the_pages_are_for_those_whom_the_api_server_lets_read_them() {
    let kube = Kube::start().await;
    let (reader, stranger) = match kube.small() {
        Some(small) => {
            small.admit("token-of-reader", "reader", true);
            small.admit("token-of-stranger", "stranger", false);
            ("token-of-reader".to_owned(), "token-of-stranger".to_owned())
        }
        None => {
            let reader = service_account(&kube, "reader").await;
            grant(
                &kube,
                "reader",
                json!([{ "nonResourceURLs": ["/metrics"], "verbs": ["get"] }]),
            )
            .await;
            (reader, service_account(&kube, "stranger").await)
        }
    };
    let installation = Installation::start(kube, Wanted::replicas(1, &["--metrics-endpoint-auth=true"])).await;
    let address = installation.replicas[0].picker.metrics;
    let status = async |page: &str, token: Option<&str>| {
        let ask = Ask::get(&format!("http://{address}{page}"));
        let ask = match token {
            Some(token) => ask.header("authorization", &format!("Bearer {token}")),
            None => ask,
        };
        installation.client.send(ask).await.status
    };

    assert_eq!(status("/metrics", None).await, 401);
    assert_eq!(status("/metrics", Some("bogus")).await, 401);
    assert_eq!(status("/metrics", Some(&stranger)).await, 403);
    assert_eq!(
        status("/debug/decisions", Some(&reader)).await,
        403,
        "another page is another right"
    );
    assert_eq!(status("/metrics", Some(&reader)).await, 200);

    installation.replicas[0].line.cut();
    assert_eq!(
        status("/metrics", Some(&reader)).await,
        200,
        "it was asked a moment ago"
    );
    assert_eq!(status("/metrics", Some("another")).await, 500);
}

/// What the chart lets Forebay do with every option on, as it was rendered for the example, and then renamed for the test:
/// the rules of its roles, in the cluster and in the namespace.
fn chart_rules(kube: &Kube) -> [Vec<PolicyRule>; 2] {
    let lease = format!("epp-{}-{POOL}.llm-d.ai", kube.namespace);
    let rendered = include_str!("../golden/helm/gateway-high-availability.yaml")
        .replace("epp-inference-vllm-qwen3-32b.llm-d.ai", &lease)
        .replace("[vllm-qwen3-32b]", &format!("[{POOL}]"));
    let documents: Vec<&str> = rendered.split("\n---\n").collect();
    ["ClusterRole", "Role"].map(|kind| {
        let kind = format!("\nkind: {kind}\n");
        // The reader of the metrics is another account.
        let ours = documents
            .iter()
            .filter(|document| document.contains(&kind) && !document.contains("metrics-reader"));
        let rules = ours.flat_map(|document| {
            let role: Value = serde_saphyr::from_str(document).unwrap();
            object::<Vec<PolicyRule>>(role["rules"].clone())
        });
        rules.collect()
    })
}

/// Every right of some rules, such as `list pods`.
fn rights(rules: &[PolicyRule]) -> BTreeSet<String> {
    let mut rights = BTreeSet::new();
    for rule in rules {
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                for verb in &rule.verbs {
                    rights.insert(format!("{verb} {resource} of `{group}`"));
                }
            }
        }
    }
    rights
}

/// What a user asked of the API server and was allowed, and what was denied.
pub(super) fn asked(audit: &str, user: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut allowed, mut denied) = (BTreeSet::new(), BTreeSet::new());
    for line in audit.lines() {
        let Ok(entry) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        if entry["user"]["username"] != user || entry["objectRef"].is_null() {
            continue;
        }
        let of = |field: &str| entry["objectRef"][field].as_str().unwrap_or_default().to_owned();
        let resource = match of("subresource") {
            none if none.is_empty() => of("resource"),
            part => format!("{}/{part}", of("resource")),
        };
        let right = format!("{} {resource} of `{}`", entry["verb"].as_str().unwrap(), of("apiGroup"));
        match entry["annotations"]["authorization.k8s.io/decision"].as_str() {
            Some("allow") => allowed.insert(right),
            _ => denied.insert(right),
        };
    }
    (allowed, denied)
}

/// Only a real API server knows rights: the small one lets everybody do everything, and there is nothing to see.
#[tokio::test]
async fn the_rights_of_the_chart_are_needed_and_enough() {
    let kube = Kube::start().await;
    if !kube.is_real() {
        return;
    }
    let token = service_account(&kube, "forebay").await;
    let [cluster_wide, namespaced] = chart_rules(&kube);
    grant(&kube, "forebay", json!(cluster_wide)).await;
    bind(&kube, "forebay", "forebay", json!(namespaced)).await;
    kube.create(&config(POOL, json!({ "plugins": [{ "type": "queue-scorer" }] })))
        .await;
    let reader = service_account(&kube, "reader").await;

    let mut installation = Installation::start(
        kube,
        Wanted {
            token: Some(token),
            ..Wanted::replicas(
                1,
                &[
                    "--config-object=pool",
                    "--ha-enable-leader-election",
                    "--metrics-endpoint-auth=true",
                ],
            )
        },
    )
    .await;
    let kube = &installation.kube;
    installation.load(2, &[]).await.end_without_failures().await;
    // An event that comes again is counted in the one that is there.
    for plugin in ["bogus", "queue-scorer", "bogus"] {
        kube.patch::<EndpointPickerConfig>(POOL, json!({ "plugins": [{ "type": plugin }] }))
            .await;
        let wanted = if plugin == "bogus" { "False" } else { "True" };
        happens(&format!("{plugin} is judged"), PATIENCE, async || {
            let object = kube
                .api::<EndpointPickerConfig>()
                .get(POOL)
                .await
                .map_err(|error| error.to_string())?;
            let object = serde_json::to_value(&object).unwrap();
            let condition = &object["status"]["conditions"][0];
            let is_judged =
                condition["status"] == wanted && condition["observedGeneration"] == object["metadata"]["generation"];
            is_judged.then_some(()).ok_or_else(|| object["status"].to_string())
        })
        .await;
    }
    let page = Ask::get(&format!("http://{}/metrics", installation.replicas[0].picker.metrics));
    let page = page.header("authorization", &format!("Bearer {reader}"));
    assert_eq!(installation.client.send(page).await.status, 403);
    installation.replicas[0].picker.child.signal(Signal::TERM);
    installation.replicas[0].picker.child.wait().await.unwrap();

    let user = format!("system:serviceaccount:{}:forebay", installation.kube.namespace);
    let (allowed, denied) = asked(&installation.kube.audit(), &user);
    assert_eq!(denied, BTreeSet::new(), "it is enough");
    assert_eq!(
        rights(&chart_rules(&installation.kube).concat()),
        allowed,
        "all of it is needed"
    );
}
