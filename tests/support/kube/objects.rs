//! Objects that tests make.

use forebay::serve::kube::api::{
    EndpointPickerConfig, InferenceModelRewrite, InferenceObjective, InferenceObjectiveV1, InferencePool,
    OldInferenceModelRewrite, OldInferenceObjective, OldInferencePool,
};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Kube;

/// The pool of all tests.
pub(crate) const POOL: &str = "pool";
/// Who patches.
const TEST: &str = "test";

/// An object of any kind from its fields.
fn object<K: DeserializeOwned>(version: &str, kind: &str, name: &str, fields: &Value) -> K {
    let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
    object
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    serde_json::from_value(object).unwrap()
}

/// A pool of pods with the label `app`.
pub(crate) fn pool(app: &str, ports: &[u16]) -> InferencePool {
    let ports: Vec<_> = ports.iter().map(|port| json!({ "number": port })).collect();
    let spec = json!({ "selector": { "matchLabels": { "app": app } }, "targetPorts": ports });
    object(
        "inference.networking.k8s.io/v1",
        "InferencePool",
        POOL,
        &json!({ "spec": spec }),
    )
}

/// The same of the older group.
pub(crate) fn old_pool(app: &str, port: u16) -> OldInferencePool {
    let spec = json!({ "selector": { "app": app }, "targetPortNumber": port });
    object(
        "inference.networking.x-k8s.io/v1alpha2",
        "InferencePool",
        POOL,
        &json!({ "spec": spec }),
    )
}

pub(crate) fn objective(name: &str, priority: i32) -> InferenceObjective {
    let spec = json!({ "poolRef": { "name": POOL }, "priority": priority });
    object(
        "llm-d.ai/v1alpha2",
        "InferenceObjective",
        name,
        &json!({ "spec": spec }),
    )
}

/// An objective of version 1, with what says which pools it is for.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a literal reads better without a reference"
)]
pub(crate) fn objective_v1(name: &str, pools: Value, priority: i32) -> InferenceObjectiveV1 {
    let mut spec = pools.clone();
    spec["priority"] = priority.into();
    object("llm-d.ai/v1", "InferenceObjective", name, &json!({ "spec": spec }))
}

pub(crate) fn old_objective(name: &str, pool_group: &str, priority: i32) -> OldInferenceObjective {
    let spec = json!({ "poolRef": { "name": POOL, "group": pool_group }, "priority": priority });
    object(
        "inference.networking.x-k8s.io/v1alpha2",
        "InferenceObjective",
        name,
        &json!({ "spec": spec }),
    )
}

fn rewrite_rule(model: &str, target: &str) -> Value {
    json!({ "matches": [{ "model": { "value": model } }], "targets": [{ "modelRewrite": target }] })
}

/// The same as [`rewrite`] of the older group.
pub(crate) fn old_rewrite(name: &str, pool_group: &str, model: &str, target: &str) -> OldInferenceModelRewrite {
    let rule = rewrite_rule(model, target);
    let spec = json!({ "poolRef": { "name": POOL, "group": pool_group }, "rules": [rule] });
    object(
        "inference.networking.x-k8s.io/v1alpha2",
        "InferenceModelRewrite",
        name,
        &json!({ "spec": spec }),
    )
}

/// A rewrite of one model to another.
pub(crate) fn rewrite(name: &str, model: &str, target: &str) -> InferenceModelRewrite {
    let spec = json!({ "poolRef": { "name": POOL }, "rules": [rewrite_rule(model, target)] });
    object(
        "llm-d.ai/v1alpha2",
        "InferenceModelRewrite",
        name,
        &json!({ "spec": spec }),
    )
}

/// A configuration, by its fields.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a literal reads better without a reference"
)]
pub(crate) fn config(name: &str, fields: Value) -> EndpointPickerConfig {
    object("forebay.dev/v1alpha1", "EndpointPickerConfig", name, &fields)
}

fn pod(name: &str, app: &str) -> Pod {
    let fields = json!({ "spec": { "nodeName": "node", "containers": [{ "name": "server", "image": "server" }] } });
    let mut pod: Pod = object("v1", "Pod", name, &fields);
    pod.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
    pod
}

impl Kube {
    pub(crate) async fn create<K>(&self, object: &K) -> K
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
        K::DynamicType: Default,
    {
        self.api::<K>().create(&PostParams::default(), object).await.unwrap()
    }

    /// Writes an object as it stands, whether or not it fits its kind, such as one of `apis/llm-d.ai/v1alpha2`.
    pub(crate) async fn create_as_it_stands(&self, version: &str, resource: &str, object: &Value) {
        let path = format!("/{version}/namespaces/{}/{resource}", self.namespace);
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(object.to_string().into_bytes())
            .unwrap();
        self.client.request::<Value>(request).await.unwrap();
    }

    /// Changes fields of an object, whether or not it fits its kind after that, such as one of `apis/llm-d.ai/v1alpha2`.
    pub(crate) async fn patch_as_it_stands(&self, version: &str, resource: &str, name: &str, change: &Value) {
        let path = format!("/{version}/namespaces/{}/{resource}/{name}", self.namespace);
        let request = http::Request::patch(path)
            .header("content-type", "application/merge-patch+json")
            .body(change.to_string().into_bytes())
            .unwrap();
        self.client.request::<Value>(request).await.unwrap();
    }

    /// Changes fields of an object.
    pub(crate) async fn patch<K>(&self, name: &str, change: Value) -> K
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
        K::DynamicType: Default,
    {
        let patch = Patch::Merge(change);
        self.api::<K>()
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap()
    }

    /// Deletes an object at once.
    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
        K::DynamicType: Default,
    {
        let now = DeleteParams::default().grace_period(0);
        self.api::<K>().delete(name, &now).await.unwrap();
    }

    /// Has the API server ask a pod to go. It stays until it is deleted.
    pub(crate) async fn ask_to_go(&self, pod: &str) {
        let later = DeleteParams::default().grace_period(30);
        self.api::<Pod>().delete(pod, &later).await.unwrap();
    }

    /// A pod that is ready at `ip`.
    pub(crate) async fn start_pod(&self, name: &str, app: &str, ip: &str) {
        self.create(&pod(name, app)).await;
        self.pod_says(name, ip, true).await;
    }

    /// What the kubelet says of a pod.
    pub(crate) async fn pod_says(&self, name: &str, ip: &str, is_ready: bool) {
        let ready = if is_ready { "True" } else { "False" };
        let status = json!({ "status": {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{ "ip": ip }],
            "conditions": [{ "type": "Ready", "status": ready }],
        } });
        let pods: Api<Pod> = self.api();
        let patch = Patch::Merge(status);
        pods.patch_status(name, &PatchParams::apply(TEST), &patch)
            .await
            .unwrap();
    }
}
