//! Configurations and objectives that change while requests are served.

use std::os::unix::fs::symlink;
use std::path::Path;

use forebay::serve::kube::api::{Condition, EndpointPickerConfig, InferenceObjective, Truth};
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use serde_json::json;
use tempfile::TempDir;

use super::install::{Installation, Wanted};
use super::view::PATIENCE;
use crate::support::happens;
use crate::support::kube::Kube;
use crate::support::kube::objects::{config, objective, rewrite};

const OBJECT: &str = "picking";

/// Waits until the status of the configuration says this, and gives its conditions: accepted and programmed.
async fn conditions(kube: &Kube, generation: i64, accepted: Truth, programmed: Truth) -> [Condition; 2] {
    let mut found = None;
    happens(
        &format!("the configuration is accepted: {accepted:?}"),
        PATIENCE,
        async || {
            let object = kube
                .api::<EndpointPickerConfig>()
                .get(OBJECT)
                .await
                .map_err(|error| error.to_string())?;
            let conditions = object.status.unwrap_or_default().conditions;
            let of = |name: &str| conditions.iter().find(|condition| condition.type_name == name).cloned();
            let both = of("Accepted")
                .zip(of("Programmed"))
                .map(|(accepted, programmed)| [accepted, programmed]);
            let is_so = |[first, second]: &[Condition; 2]| {
                first.observed_generation == Some(generation) && first.status == accepted && second.status == programmed
            };
            found = both.filter(is_so);
            found.is_some().then_some(()).ok_or_else(|| format!("{conditions:?}"))
        },
    )
    .await;
    found.unwrap()
}

#[tokio::test]
async fn good_and_bad_edits_of_the_object_under_load_lose_no_request() {
    let kube = Kube::start().await;
    kube.create(&config(OBJECT, json!({ "plugins": [{ "type": "queue-scorer" }] })))
        .await;
    let installation = Installation::start(kube, Wanted::replicas(1, &["--config-object=picking"])).await;
    let kube = &installation.kube;
    let load = installation.load(4, &[]).await;
    conditions(kube, 1, Truth::True, Truth::True).await;

    let queues = json!({ "featureGates": ["flowControl"], "plugins": [{ "type": "queue-scorer" }] });
    kube.patch::<EndpointPickerConfig>(OBJECT, queues).await;
    conditions(kube, 2, Truth::True, Truth::True).await;
    installation
        .shows(0, &["llm_d_epp_flow_control_requests_total{", "Dispatched"])
        .await;

    kube.patch::<EndpointPickerConfig>(OBJECT, json!({ "plugins": [{ "type": "queue-scorrer" }] }))
        .await;
    let [accepted, programmed] = conditions(kube, 3, Truth::False, Truth::False).await;
    assert!(accepted.message.starts_with("error: plugins[0].type: "), "{accepted:?}");
    assert!(
        accepted.message.contains("queue-scorer"),
        "it says what would be right: {accepted:?}"
    );
    assert_eq!(programmed.reason, "LastGoodKept");

    let changed = json!({ "featureGates": null, "plugins": [{ "type": "kv-cache-utilization-scorer" }] });
    kube.patch::<EndpointPickerConfig>(OBJECT, changed).await;
    conditions(kube, 4, Truth::True, Truth::True).await;
    kube.delete::<EndpointPickerConfig>(OBJECT).await;
    installation.replicas[0]
        .picker
        .says("configuration object is gone")
        .await;

    load.end_without_failures().await;
    let events = kube.api::<Event>().list(&ListParams::default()).await.unwrap();
    let of = |reason: &str| {
        events
            .items
            .iter()
            .filter(|event| event.reason.as_deref() == Some(reason))
            .count()
    };
    assert_eq!((of("Programmed"), of("Invalid")), (3, 1), "{events:?}");
}

#[tokio::test]
async fn a_replica_that_starts_with_a_wrong_object_is_not_ready_until_it_is_mended_and_says_so_once() {
    let kube = Kube::start().await;
    kube.create(&config(OBJECT, json!({ "plugins": [{ "type": "queue-scorer" }] })))
        .await;
    let wanted = || Wanted::replicas(1, &["--config-object=picking"]);
    let mut installation = Installation::start(kube, wanted()).await;
    conditions(&installation.kube, 1, Truth::True, Truth::True).await;
    let wrong = json!({ "plugins": [{ "type": "queue-scorrer" }] });
    installation.kube.patch::<EndpointPickerConfig>(OBJECT, wrong).await;
    let [_, programmed] = conditions(&installation.kube, 2, Truth::False, Truth::False).await;
    assert_eq!(programmed.reason, "LastGoodKept");

    installation.join(&wanted()).await;
    happens("the new replica says that it is not ready", PATIENCE, async || {
        let [_, programmed] = conditions(&installation.kube, 2, Truth::False, Truth::False).await;
        let says = programmed.reason == "NotReady" && programmed.message.contains("forebay-7d9f8c-00001");
        says.then_some(()).ok_or_else(|| format!("{programmed:?}"))
    })
    .await;
    // It knows its pool, and nothing but the configuration is missing.
    installation.shows(1, &["llm_d_epp_ready_endpoints{", "} 2"]).await;
    installation.readiness(&[true, false]).await;

    // They disagree; a wrong edit later each has said so of each edit, and no more.
    let wrong = json!({ "plugins": [{ "type": "queue-scorrrer" }] });
    installation.kube.patch::<EndpointPickerConfig>(OBJECT, wrong).await;
    invalid_events(&installation.kube, 4).await;
    let mended = json!({ "plugins": [{ "type": "kv-cache-utilization-scorer" }] });
    installation.kube.patch::<EndpointPickerConfig>(OBJECT, mended).await;
    conditions(&installation.kube, 4, Truth::True, Truth::True).await;
    installation.readiness(&[true, true]).await;
    invalid_events(&installation.kube, 4).await;
}

/// Waits until it was told so often that the configuration is wrong.
async fn invalid_events(kube: &Kube, wanted: usize) {
    happens(&format!("{wanted} events say `Invalid`"), PATIENCE, async || {
        let events = kube.api::<Event>().list(&ListParams::default()).await.unwrap().items;
        let invalid = events.iter().filter(|event| event.reason.as_deref() == Some("Invalid"));
        let count = invalid.count();
        assert!(count <= wanted, "{events:?}");
        (count == wanted).then_some(()).ok_or_else(|| format!("{events:?}"))
    })
    .await;
}

#[tokio::test]
async fn an_object_that_is_made_later_goes_before_the_file() {
    let installation =
        Installation::start(Kube::start().await, Wanted::replicas(1, &["--config-object=picking"])).await;

    installation
        .kube
        .create(&config(OBJECT, json!({ "plugins": [{ "type": "bogus" }] })))
        .await;
    conditions(&installation.kube, 1, Truth::False, Truth::False).await;
    let mended = json!({ "plugins": [{ "type": "queue-scorer" }] });
    installation.kube.patch::<EndpointPickerConfig>(OBJECT, mended).await;
    conditions(&installation.kube, 2, Truth::True, Truth::True).await;
}

/// Lays a mounted ConfigMap, or the next one in its place.
fn mount(directory: &Path, version: &str, text: &str) {
    let data = directory.join(version);
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("config.yaml"), text).unwrap();
    let fresh = directory.join("..data_tmp");
    symlink(version, &fresh).unwrap();
    std::fs::rename(fresh, directory.join("..data")).unwrap();
    let file = directory.join("config.yaml");
    if !file.exists() {
        symlink("..data/config.yaml", file).unwrap();
    }
}

#[tokio::test]
async fn a_mounted_file_that_changes_under_load_takes_over_and_loses_no_request() {
    let mounted = TempDir::with_prefix("forebay-mount-").unwrap();
    mount(mounted.path(), "..1", "plugins: [{type: queue-scorer}]");
    let flag = format!("--config-file={}", mounted.path().join("config.yaml").display());
    let installation = Installation::start(Kube::start().await, Wanted::replicas(1, &[&flag])).await;
    let picker = &installation.replicas[0].picker;
    let load = installation.load(4, &[]).await;

    mount(mounted.path(), "..2", "plugins: [{type: queue-scorrer}]");
    picker.says("configuration refused").await;
    mount(
        mounted.path(),
        "..3",
        "{featureGates: [flowControl], plugins: [{type: queue-scorer}]}",
    );
    picker.says("configuration reloaded").await;
    installation
        .shows(0, &["llm_d_epp_flow_control_requests_total{", "Dispatched"])
        .await;

    load.end_without_failures().await;
}

#[tokio::test]
async fn an_objective_that_changes_under_load_changes_the_priority_of_its_requests() {
    let kube = Kube::start().await;
    kube.create(&objective("gold", 7)).await;
    let installation = Installation::start(kube, Wanted::replicas(1, &[])).await;
    let load = installation.load(4, &[("x-llm-d-inference-objective", "gold")]).await;
    installation
        .shows(0, &["llm_d_epp_request_total{", "priority=\"7\""])
        .await;

    let change = json!({ "spec": { "priority": 9 } });
    installation.kube.patch::<InferenceObjective>("gold", change).await;
    installation
        .shows(0, &["llm_d_epp_request_total{", "priority=\"9\""])
        .await;
    installation.kube.delete::<InferenceObjective>("gold").await;
    installation
        .shows(0, &["llm_d_epp_request_total{", "priority=\"0\""])
        .await;

    load.end_without_failures().await;
}

#[tokio::test]
async fn a_rewrite_changes_the_model_that_is_asked_for_and_the_client_sees_its_own() {
    use crate::support::cluster::{ADAPTER, MODEL, document};
    use crate::support::http::Ask;

    let installation = Installation::start(Kube::start().await, Wanted::replicas(1, &[])).await;
    installation.load(1, &[]).await.end_without_failures().await;
    installation.kube.create(&rewrite("canary", MODEL, ADAPTER)).await;
    installation.replicas[0].picker.says("model rewrites changed").await;

    let ask = Ask::post(&installation.url(), document("Hello", 2).to_string());
    let reply = installation.client.send(ask).await;

    assert_eq!(
        (reply.status, reply.json()["model"].as_str()),
        (200, Some(MODEL)),
        "{}",
        reply.text()
    );
    let decision = [
        "llm_d_epp_model_rewrite_decisions_total{",
        "model_rewrite_name=\"canary\"",
        &format!("target_model=\"{ADAPTER}\""),
    ];
    installation.shows(0, &decision).await;
}
