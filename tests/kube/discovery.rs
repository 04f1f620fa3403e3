//! The pool, its pods, objectives and rewrites.

use std::time::Duration;

use forebay::serve::kube::api::{
    InferenceModelRewrite, InferenceObjective, InferenceObjectiveV1, InferencePool, OldInferenceModelRewrite,
    OldInferenceObjective, OldInferencePool,
};
use forebay::serve::kube::{Pace, PoolGroup, PoolState, Target, parse_selector};
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use serde_json::json;

use super::access::{asked, bind, service_account};
use super::view::{PACE, PATIENCE, View, follow, follow_as, follow_at, follow_pool, target};
use crate::support::happens;
use crate::support::kube::objects::{
    POOL, objective, objective_v1, old_objective, old_pool, old_rewrite, pool, rewrite,
};
use crate::support::kube::{Kube, Small};

#[tokio::test]
async fn pods_come_and_go_and_only_ready_ones_serve() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    kube.start_pod("other", "trainer", "127.0.1.9").await;
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
    view.state(PoolState::Known).await;

    kube.start_pod("b", "vllm", "127.0.1.2").await;
    view.endpoints(&["a-rank-0 127.0.1.1:8000", "b-rank-0 127.0.1.2:8000"])
        .await;
    kube.pod_says("a", "127.0.1.1", false).await;
    view.endpoints(&["b-rank-0 127.0.1.2:8000"]).await;
    kube.pod_says("a", "127.0.1.3", true).await;
    view.endpoints(&["a-rank-0 127.0.1.3:8000", "b-rank-0 127.0.1.2:8000"])
        .await;
    kube.delete::<Pod>("a").await;
    view.endpoints(&["b-rank-0 127.0.1.2:8000"]).await;
}

#[tokio::test]
async fn a_pod_that_is_asked_to_go_leaves_while_it_still_runs() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    kube.start_pod("b", "vllm", "127.0.1.2").await;
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000", "b-rank-0 127.0.1.2:8000"])
        .await;

    kube.ask_to_go("a").await;

    view.endpoints(&["b-rank-0 127.0.1.2:8000"]).await;
    assert!(kube.api::<Pod>().get("a").await.is_ok(), "it runs");
}

#[tokio::test]
async fn a_pod_whose_labels_change_leaves_and_comes_back() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;

    kube.patch::<Pod>("a", json!({ "metadata": { "labels": { "app": "draining" } } }))
        .await;
    view.endpoints(&[]).await;
    kube.patch::<Pod>("a", json!({ "metadata": { "labels": { "app": "vllm" } } }))
        .await;
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
}

#[tokio::test]
async fn selector_and_ports_of_a_pool_change() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    kube.start_pod("b", "sglang", "127.0.1.2").await;
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;

    let ports = json!({ "spec": { "targetPorts": [{ "number": 8000 }, { "number": 8001 }] } });
    kube.patch::<InferencePool>(POOL, ports).await;
    view.endpoints(&["a-rank-0 127.0.1.1:8000", "a-rank-1 127.0.1.1:8001"])
        .await;

    kube.patch::<InferencePool>(
        POOL,
        json!({ "spec": { "selector": { "matchLabels": { "app": "sglang" } } } }),
    )
    .await;
    view.endpoints(&["b-rank-0 127.0.1.2:8000", "b-rank-1 127.0.1.2:8001"])
        .await;
    kube.start_pod("c", "sglang", "127.0.1.3").await;
    kube.pod_says("a", "127.0.1.9", true).await;
    kube.patch::<InferencePool>(POOL, json!({ "spec": { "targetPorts": [{ "number": 8002 }] } }))
        .await;
    view.endpoints(&["b-rank-0 127.0.1.2:8002", "c-rank-0 127.0.1.3:8002"])
        .await;
}

#[tokio::test]
async fn an_annotation_takes_ports_of_a_pod_away() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000, 8001])).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000", "a-rank-1 127.0.1.1:8001"])
        .await;

    let only = |ports| json!({ "metadata": { "annotations": { "llm-d.ai/active-ports": ports } } });
    kube.patch::<Pod>("a", only(json!("8001"))).await;
    view.endpoints(&["a-rank-1 127.0.1.1:8001"]).await;
    kube.patch::<Pod>("a", only(json!(null))).await;
    view.endpoints(&["a-rank-0 127.0.1.1:8000", "a-rank-1 127.0.1.1:8001"])
        .await;
}

/// A pool with a pod, the objective `gold` and the rewrite `r`.
async fn one_of_each(kube: &Kube) {
    kube.create(&pool("vllm", &[8000])).await;
    kube.create(&objective("gold", 7)).await;
    kube.create(&rewrite("r", "base", "tuned")).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
}

#[tokio::test]
async fn a_pool_that_is_deleted_and_made_again_has_all_that_it_had() {
    let kube = Kube::start().await;
    one_of_each(&kube).await;
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
    view.objectives(&[("gold", 7)]).await;

    kube.delete::<InferencePool>(POOL).await;
    view.endpoints(&[]).await;
    view.state(PoolState::Gone).await;
    kube.start_pod("b", "vllm", "127.0.1.2").await;
    kube.create(&pool("vllm", &[8000])).await;

    view.endpoints(&["a-rank-0 127.0.1.1:8000", "b-rank-0 127.0.1.2:8000"])
        .await;
    view.state(PoolState::Known).await;
    let seen = view.seen();
    assert_eq!(seen.objectives.len(), 1, "{seen:?}");
    assert_eq!(&*seen.rewrites.rule("base").unwrap().target(0), "tuned");
}

#[tokio::test]
async fn what_is_made_after_the_start_is_found() {
    let kube = Kube::start().await;
    let (view, _task) = follow_pool(&kube);
    view.state(PoolState::Gone).await;

    kube.start_pod("a", "vllm", "127.0.1.1").await;
    kube.create(&objective("gold", 7)).await;
    kube.create(&pool("vllm", &[8000])).await;

    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
    view.objectives(&[("gold", 7)]).await;
    view.state(PoolState::Known).await;
}

#[tokio::test]
async fn objectives_and_rewrites_change() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.create(&objective("gold", 7)).await;
    let (view, _task) = follow_pool(&kube);
    view.objectives(&[("gold", 7)]).await;

    kube.create(&objective("batch", -1)).await;
    view.objectives(&[("batch", -1), ("gold", 7)]).await;
    kube.patch::<InferenceObjective>("gold", json!({ "spec": { "priority": 9 } }))
        .await;
    view.objectives(&[("batch", -1), ("gold", 9)]).await;
    kube.patch::<InferenceObjective>("batch", json!({ "spec": { "poolRef": { "name": "another" } } }))
        .await;
    view.objectives(&[("gold", 9)]).await;
    kube.delete::<InferenceObjective>("gold").await;
    view.objectives(&[]).await;

    kube.create(&rewrite("r", "base", "tuned")).await;
    view.sees("base is rewritten", |seen| seen.rewrites.rule("base").is_some())
        .await;
    kube.delete::<InferenceModelRewrite>("r").await;
    view.sees("nothing is rewritten", |seen| seen.rewrites.is_empty()).await;
}

#[tokio::test]
async fn objectives_of_both_versions_count_by_names_lists_and_labels_of_pools() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.create(&objective("older", 1)).await;
    let lists = json!({ "poolRefs": [{ "name": "another" }, { "name": POOL }] });
    kube.create(&objective_v1("listed", lists, 2)).await;
    let elsewhere = json!({ "poolRefs": [{ "name": "another" }] });
    kube.create(&objective_v1("elsewhere", elsewhere, 3)).await;
    let selects = json!({ "poolSelector": { "matchLabels": { "tier": "gold" } } });
    kube.create(&objective_v1("selected", selects, 4)).await;
    let (view, _task) = follow_pool(&kube);
    view.objectives(&[("listed", 2), ("older", 1)]).await;

    let labels = json!({ "metadata": { "labels": { "tier": "gold" } } });
    kube.patch::<InferencePool>(POOL, labels).await;
    view.objectives(&[("listed", 2), ("older", 1), ("selected", 4)]).await;
    kube.patch::<InferenceObjectiveV1>("listed", json!({ "spec": { "priority": 5 } }))
        .await;
    view.objectives(&[("listed", 5), ("older", 1), ("selected", 4)]).await;
    kube.delete::<InferenceObjective>("older").await;
    view.objectives(&[("listed", 5), ("selected", 4)]).await;
    let labels = json!({ "metadata": { "labels": { "tier": null } } });
    kube.patch::<InferencePool>(POOL, labels).await;
    view.objectives(&[("listed", 5)]).await;
}

#[tokio::test]
async fn objectives_are_found_where_one_of_their_versions_is_served() {
    for version in ["llm-d.ai/v1", "llm-d.ai/v1alpha2"] {
        let kube = Kube::start().await;
        let Some(small) = kube.small() else { return };
        kube.create(&pool("vllm", &[8000])).await;
        let lists = json!({ "poolRefs": [{ "name": POOL }] });
        kube.create(&objective_v1("gold", lists, 7)).await;
        kube.create(&old_objective("silver", "inference.networking.k8s.io", 1))
            .await;
        small.serve(version, "inferenceobjectives", false);

        let (view, _task) = follow_pool(&kube);

        view.objectives(&[("gold", 7)]).await;
    }
}

#[tokio::test]
async fn objectives_of_the_current_group_go_before_those_of_the_older_one() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.create(&old_objective("gold", "inference.networking.k8s.io", 1))
        .await;
    kube.create(&objective("silver", 2)).await;

    let (view, _task) = follow_pool(&kube);

    view.objectives(&[("silver", 2)]).await;
}

#[tokio::test]
async fn without_the_current_kinds_those_of_the_older_group_serve() {
    let kube = Kube::without(&[
        "llm-d.ai_inferenceobjectives.yaml",
        "llm-d.ai_inferencemodelrewrites.yaml",
        "inference.networking.k8s.io_inferencepools.yaml",
    ])
    .await;
    kube.create(&old_pool("vllm", 8000)).await;
    kube.create(&old_objective("gold", "inference.networking.x-k8s.io", 1))
        .await;
    kube.create(&old_rewrite("r", "inference.networking.x-k8s.io", "base", "tuned"))
        .await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;

    let (view, _task) = follow(&kube, target(&kube, PoolGroup::Old));
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
    view.sees("base is rewritten", |seen| {
        let rule = seen.rewrites.rule("base");
        rule.is_some_and(|rule| &*rule.target(0) == "tuned")
    })
    .await;
    view.objectives(&[("gold", 1)]).await;
    view.state(PoolState::Known).await;

    let change = json!({ "spec": { "priority": 5 } });
    kube.patch::<OldInferenceObjective>("gold", change).await;
    view.objectives(&[("gold", 5)]).await;
    kube.patch::<OldInferencePool>(POOL, json!({ "spec": { "targetPortNumber": 9000 } }))
        .await;
    view.endpoints(&["a-rank-0 127.0.1.1:9000"]).await;
    kube.delete::<OldInferenceModelRewrite>("r").await;
    view.sees("nothing is rewritten", |seen| seen.rewrites.is_empty()).await;
}

/// Groups and resources of the pool and of what refers to it.
const KINDS: [(&str, &str); 3] = [
    ("inference.networking.k8s.io", "inferencepools"),
    ("llm-d.ai", "inferenceobjectives"),
    ("llm-d.ai", "inferencemodelrewrites"),
];

/// Cuts the line while a pod starts. Where the API server can be made to forget, every watch begins with a list again.
async fn missed(kube: &Kube, pod: &str) {
    kube.line.cut();
    kube.start_pod(pod, "vllm", "127.0.1.9").await;
    if let Some(small) = kube.small() {
        small.forget();
    }
    kube.line.mend();
}

/// Cuts the line for a moment, where pod `a` and the objectives `gold` and `silver` are known: they stay, and what comes
/// meanwhile and afterwards is learnt.
async fn a_cut_loses_nothing(kube: &Kube, view: &View) {
    missed(kube, "b").await;
    view.endpoints(&["a-rank-0 127.0.1.1:8000", "b-rank-0 127.0.1.9:8000"])
        .await;
    kube.create(&objective("bronze", 0)).await;
    view.objectives(&[("bronze", 0), ("gold", 7), ("silver", 1)]).await;
    assert_eq!(view.seen().state, PoolState::Known);
}

fn refuse_lists(small: &Small, code: Option<u16>) {
    for (group, resource) in KINDS {
        small.refuse_lists(group, resource, code);
    }
}

#[tokio::test]
async fn rights_that_are_withdrawn_take_nothing_away() {
    let kube = Kube::start().await;
    one_of_each(&kube).await;
    let verbs = json!(["get", "list", "watch"]);
    let groups = [
        "inference.networking.k8s.io",
        "inference.networking.x-k8s.io",
        "llm-d.ai",
    ];
    let kinds = json!([{ "apiGroups": groups, "resources": ["*"], "verbs": verbs }]);
    let token = match kube.small() {
        Some(_) => String::new(),
        None => {
            let token = service_account(&kube, "picker").await;
            let pods = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": verbs }]);
            bind(&kube, "picker", "pods", pods).await;
            bind(&kube, "picker", "kinds", kinds.clone()).await;
            token
        }
    };
    let (view, _task) = follow_as(kube.tested_client_of(&token), target(&kube, PoolGroup::Current));
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
    view.state(PoolState::Known).await;

    kube.line.cut();
    match kube.small() {
        Some(small) => refuse_lists(small, Some(403)),
        None => kube.delete::<RoleBinding>("kinds").await,
    }
    kube.line.mend();
    missed(&kube, "b").await;
    let user = format!("system:serviceaccount:{}:picker", kube.namespace);
    happens("every kind was asked for often, or refused", PATIENCE, async || {
        let Some(small) = kube.small() else {
            let (_, denied) = asked(&kube.audit(), &user);
            let of = |resource: &str| denied.iter().any(|right| right.contains(resource));
            let all = KINDS.iter().all(|(_, resource)| of(resource));
            return all.then_some(()).ok_or_else(|| format!("{denied:?}"));
        };
        let asked = KINDS.map(|(_, resource)| small.asked(&format!("list {resource}")));
        let often = asked.iter().all(|times| *times > 12);
        often.then_some(()).ok_or_else(|| format!("{asked:?}"))
    })
    .await;

    // Pods may still be listed, so it is the pool's word that holds.
    view.endpoints(&["a-rank-0 127.0.1.1:8000", "b-rank-0 127.0.1.9:8000"])
        .await;
    let seen = view.seen();
    assert_eq!(seen.state, PoolState::Known);
    assert_eq!(seen.objectives.len(), 1, "{seen:?}");
    assert!(seen.rewrites.rule("base").is_some(), "{seen:?}");

    match kube.small() {
        Some(small) => refuse_lists(small, None),
        None => bind(&kube, "picker", "kinds-again", kinds).await,
    }
    kube.create(&objective("silver", 1)).await;
    view.objectives(&[("gold", 7), ("silver", 1)]).await;
}

#[tokio::test]
async fn kinds_that_stay_uninstalled_are_gone() {
    let kube = Kube::without(&[]).await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.create(&objective("gold", 7)).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
    view.objectives(&[("gold", 7)]).await;

    kube.line.cut();
    kube.uninstall(&KINDS).await;
    kube.line.mend();

    view.state(PoolState::Gone).await;
    view.endpoints(&[]).await;
    view.objectives(&[]).await;
}

#[tokio::test]
async fn objects_that_cannot_be_read_hide_no_others() {
    let kube = Kube::with_loose_kinds().await;
    let bare = |kind: &str, name: &str| json!({ "apiVersion": "llm-d.ai/v1alpha2", "kind": kind, "metadata": { "name": name } });
    let create = async |kind: &str, resource: &str, name: &str| {
        kube.create_as_it_stands("apis/llm-d.ai/v1alpha2", resource, &bare(kind, name))
            .await;
    };
    one_of_each(&kube).await;
    create("InferenceObjective", "inferenceobjectives", "empty").await;
    create("InferenceModelRewrite", "inferencemodelrewrites", "empty").await;

    // In a list,
    let (view, _task) = follow_pool(&kube);
    view.state(PoolState::Known).await;
    view.objectives(&[("gold", 7)]).await;
    assert!(view.seen().rewrites.rule("base").is_some());

    // in an event,
    create("InferenceObjective", "inferenceobjectives", "another").await;
    create("InferenceModelRewrite", "inferencemodelrewrites", "another").await;
    kube.create(&objective("silver", 1)).await;
    view.objectives(&[("gold", 7), ("silver", 1)]).await;

    // and after a cut.
    a_cut_loses_nothing(&kube, &view).await;
}

#[tokio::test]
async fn what_was_known_of_a_pool_an_objective_and_a_pod_holds_when_they_cannot_be_read_any_more() {
    let kube = Kube::with_loose_kinds().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.create(&objective("gold", 7)).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
    view.objectives(&[("gold", 7)]).await;

    let spoil = async |group: &str, resource: &str, name: &str, change: serde_json::Value| {
        kube.patch_as_it_stands(group, resource, name, &change).await;
    };
    let word = json!({ "spec": { "targetPorts": "8000" } });
    spoil("apis/inference.networking.k8s.io/v1", "inferencepools", POOL, word).await;
    let word = json!({ "spec": { "priority": "high" } });
    spoil("apis/llm-d.ai/v1alpha2", "inferenceobjectives", "gold", word).await;
    // A real API server has no pods of another shape.
    if kube.small().is_some() {
        spoil("api/v1", "pods", "a", json!({ "spec": { "containers": "none" } })).await;
    }
    kube.create(&objective("silver", 1)).await;
    view.objectives(&[("gold", 7), ("silver", 1)]).await;

    a_cut_loses_nothing(&kube, &view).await;
}

#[tokio::test]
async fn pods_are_found_by_a_selector_without_any_kind_installed() {
    let kube = Kube::without(&[
        "forebay.dev_endpointpickerconfigs.yaml",
        "llm-d.ai_inferenceobjectives.yaml",
        "llm-d.ai_inferencemodelrewrites.yaml",
        "inference.networking.k8s.io_inferencepools.yaml",
        "inference.networking.x-k8s.io_inferenceobjectives.yaml",
        "inference.networking.x-k8s.io_inferencemodelrewrites.yaml",
        "inference.networking.x-k8s.io_inferencepools.yaml",
    ])
    .await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    kube.start_pod("b", "sglang", "127.0.1.2").await;
    kube.start_pod("c", "trainer", "127.0.1.3").await;

    let (view, _task) = follow(
        &kube,
        Target::Selector {
            namespace: kube.namespace.clone(),
            selector: parse_selector("app in (vllm, sglang),!draft").unwrap(),
            ports: vec![8000, 8001],
        },
    );
    view.endpoints(&[
        "a-rank-0 127.0.1.1:8000",
        "a-rank-1 127.0.1.1:8001",
        "b-rank-0 127.0.1.2:8000",
        "b-rank-1 127.0.1.2:8001",
    ])
    .await;
    view.state(PoolState::Known).await;

    kube.patch::<Pod>("b", json!({ "metadata": { "labels": { "draft": "yes" } } }))
        .await;
    view.endpoints(&["a-rank-0 127.0.1.1:8000", "a-rank-1 127.0.1.1:8001"])
        .await;
}

#[tokio::test]
async fn while_the_api_server_is_away_what_was_known_holds_and_then_all_that_was_missed_is_learnt() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.create(&objective("gold", 7)).await;
    for (name, ip) in [("a", "127.0.1.1"), ("b", "127.0.1.2")] {
        kube.start_pod(name, "vllm", ip).await;
    }
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000", "b-rank-0 127.0.1.2:8000"])
        .await;
    view.objectives(&[("gold", 7)]).await;

    kube.line.cut();
    kube.delete::<Pod>("a").await;
    kube.start_pod("c", "vllm", "127.0.1.3").await;
    kube.delete::<InferenceObjective>("gold").await;
    if let Some(small) = kube.small() {
        // So long that the changes cannot be told one by one any more.
        small.forget();
    }
    let seen = view.seen();
    assert_eq!((seen.endpoints.len(), seen.objectives.len()), (2, 1), "{seen:?}");
    assert_eq!(seen.state, PoolState::Known);
    kube.line.mend();

    view.endpoints(&["b-rank-0 127.0.1.2:8000", "c-rank-0 127.0.1.3:8000"])
        .await;
    view.objectives(&[]).await;
}

#[tokio::test]
async fn after_a_restore_of_the_store_pods_that_are_gone_leave_and_new_ones_come() {
    let kube = Kube::start().await;
    let Some(small) = kube.small() else {
        return;
    };
    kube.create(&pool("vllm", &[8000])).await;
    kube.create(&objective("gold", 7)).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
    let backup = small.backup();
    kube.delete::<Pod>("a").await;
    kube.start_pod("b", "vllm", "127.0.1.2").await;
    for turn in 0..20 {
        kube.patch::<InferenceObjective>("gold", json!({ "spec": { "priority": turn } }))
            .await;
    }
    view.endpoints(&["b-rank-0 127.0.1.2:8000"]).await;
    view.objectives(&[("gold", 19)]).await;

    // The API server starts again with its store, so every connection breaks.
    kube.line.cut();
    small.restore(backup);
    kube.line.mend();

    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
    view.objectives(&[("gold", 7)]).await;
    kube.start_pod("c", "vllm", "127.0.1.3").await;
    view.endpoints(&["a-rank-0 127.0.1.1:8000", "c-rank-0 127.0.1.3:8000"])
        .await;
    assert_eq!(view.seen().state, PoolState::Known);
}

#[tokio::test]
async fn what_no_watch_has_told_is_found_by_the_next_list() {
    let kube = Kube::start().await;
    let Some(small) = kube.small() else {
        return;
    };
    kube.create(&pool("vllm", &[8000])).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    let often = Pace {
        relist: Duration::from_millis(500),
        ..PACE
    };
    let (view, _task) = follow_at(kube.tested_client(), target(&kube, PoolGroup::Current), often);
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;

    small.mute(true);
    kube.delete::<Pod>("a").await;
    kube.start_pod("b", "vllm", "127.0.1.2").await;

    view.endpoints(&["b-rank-0 127.0.1.2:8000"]).await;
}

#[tokio::test]
async fn a_pool_whose_selector_changes_keeps_its_endpoints_until_the_pods_of_the_new_one_are_listed() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    kube.start_pod("b", "sglang", "127.0.1.2").await;
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
    view.state(PoolState::Known).await;

    if let Some(small) = kube.small() {
        small.refuse_lists("", "pods", Some(500));
    }
    let other = json!({ "spec": { "selector": { "matchLabels": { "app": "sglang" } } } });
    kube.patch::<InferencePool>(POOL, other).await;
    if let Some(small) = kube.small() {
        happens("the new pods were asked for", PATIENCE, async || {
            let asked = small.asked("list pods");
            (asked > 2).then_some(()).ok_or_else(|| format!("{asked} lists"))
        })
        .await;
        view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
        // The old ones are still followed.
        kube.pod_says("a", "127.0.1.7", true).await;
        view.endpoints(&["a-rank-0 127.0.1.7:8000"]).await;
        small.refuse_lists("", "pods", None);
    }

    view.endpoints(&["b-rank-0 127.0.1.2:8000"]).await;
    assert_eq!(view.seen().emptied, 0, "there were endpoints all the time");
}

#[tokio::test]
async fn a_pool_with_labels_that_no_pod_can_have_is_rejected_and_the_last_good_one_serves() {
    let kube = Kube::with_loose_kinds().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    let (view, _task) = follow_pool(&kube);
    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;

    for wrong in ["my app", "a,b", "vllm)"] {
        let labels = json!({ "spec": { "selector": { "matchLabels": { "app": wrong } } } });
        kube.patch::<InferencePool>(POOL, labels).await;
    }
    // All of that has been read when this has: each watch tells in order.
    missed(&kube, "b").await;
    view.endpoints(&["a-rank-0 127.0.1.1:8000", "b-rank-0 127.0.1.9:8000"])
        .await;
    let right =
        json!({ "spec": { "selector": { "matchLabels": { "app": "vllm" } }, "targetPorts": [{ "number": 9000 }] } });
    kube.patch::<InferencePool>(POOL, right).await;

    view.endpoints(&["a-rank-0 127.0.1.1:9000", "b-rank-0 127.0.1.9:9000"])
        .await;
    assert_eq!(view.seen().emptied, 0, "there were endpoints all the time");
}

#[tokio::test]
async fn connections_that_break_again_and_again_lose_nothing() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    let (view, _task) = follow_pool(&kube);
    kube.line.slow(Duration::from_millis(30));

    for number in 1..=9 {
        kube.start_pod(&format!("pod-{number}"), "vllm", &format!("127.0.1.{number}"))
            .await;
        kube.line.interrupt();
    }

    view.sees("all pods serve", |seen| seen.endpoints.len() == 9).await;
}

#[tokio::test]
async fn an_api_server_that_is_not_there_at_the_start_is_waited_for() {
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    kube.start_pod("a", "vllm", "127.0.1.1").await;
    kube.line.cut();

    let (view, _task) = follow_pool(&kube);
    assert_eq!(view.seen().state, PoolState::Awaited);
    kube.line.mend();

    view.endpoints(&["a-rank-0 127.0.1.1:8000"]).await;
}

#[tokio::test]
async fn a_thousand_pods_are_listed_once_and_then_each_change_costs_a_few_lines() {
    const PODS: usize = 1000;
    const REPLACED: usize = 50;
    let kube = Kube::start().await;
    kube.create(&pool("vllm", &[8000])).await;
    let ip = |number: usize| format!("127.2.{}.{}", number / 250, number % 250 + 1);
    let start = async |number: usize| kube.start_pod(&format!("pod-{number}"), "vllm", &ip(number)).await;
    stream::iter(0..PODS).for_each_concurrent(16, start).await;
    // Others in the namespace are none of ours, and cost nothing.
    for number in 0..10 {
        kube.start_pod(&format!("other-{number}"), "trainer", "127.2.9.9").await;
    }
    let (view, _task) = follow_pool(&kube);
    view.sees("all pods serve", |seen| seen.endpoints.len() == PODS).await;
    let (listed, told) = (kube.line.received(), view.seen().changes);

    for number in 0..REPLACED {
        kube.delete::<Pod>(&format!("pod-{number}")).await;
        start(PODS + number).await;
        kube.patch::<Pod>(
            "other-0",
            json!({ "metadata": { "annotations": { "turn": number.to_string() } } }),
        )
        .await;
    }
    let last = format!("pod-{}-rank-0", PODS + REPLACED - 1);
    view.sees("the last pod serves", |seen| seen.endpoints.contains_key(&last))
        .await;

    let seen = view.seen();
    assert_eq!(seen.endpoints.len(), PODS);
    assert_eq!(
        seen.changes - told,
        2 * REPLACED,
        "one leaves and one comes, each told once"
    );
    let per_change = (kube.line.received() - listed) / REPLACED as u64;
    eprintln!("list: {listed} bytes; each replaced pod: {per_change} bytes");
    assert!(per_change < 16 * 1024, "{per_change}");
    if let Some(small) = kube.small() {
        assert_eq!((small.asked("list pods"), small.asked("watch pods")), (1, 1));
    }
}
