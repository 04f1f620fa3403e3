use serde_json::{Value, json};

use super::*;
use crate::serve::kube::source::PoolGroup;

fn target(group: PoolGroup) -> Target {
    Target::Pool {
        namespace: "ns".to_owned(),
        name: "pool".to_owned(),
        group,
    }
}

fn index() -> Index {
    Index::new(target(PoolGroup::Current))
}

/// A list with nothing unreadable in it.
fn all<K>(objects: Vec<K>) -> Change<K> {
    Change::All {
        objects,
        unread: Vec::new(),
    }
}

fn pool(app: &str, ports: &[u16]) -> PoolFacts {
    PoolFacts {
        labels: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        own_labels: BTreeMap::new(),
        ports: ports.to_vec(),
    }
}

/// The same pool with labels of its own.
fn labelled(labels: &[(&str, &str)]) -> PoolFacts {
    let own_labels = labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    PoolFacts {
        own_labels: own_labels.collect(),
        ..pool("vllm", &[8000])
    }
}

fn object_with(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": { "name": name, "labels": { "app": "vllm" } },
        "status": { "podIP": "10.0.0.1", "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn object(name: &str) -> Pod {
    object_with(name, |_| {})
}

fn pod_with(name: &str, change: impl FnOnce(&mut Value)) -> PodFacts {
    PodFacts::of(object_with(name, change)).unwrap()
}

fn pod(name: &str) -> PodFacts {
    pod_with(name, |_| {})
}

fn unready(name: &str) -> PodFacts {
    pod_with(name, |pod| pod["status"]["conditions"][0]["status"] = "False".into())
}

fn objective(name: &str, pool: &str, priority: Option<i32>) -> InferenceObjective {
    objective_for(name, json!({ "poolRef": { "name": pool }, "priority": priority }))
}

fn objective_for(name: &str, spec: Value) -> InferenceObjective {
    InferenceObjective::new(name, serde_json::from_value(spec).unwrap())
}

fn rewrite(name: &str, created: &str, rules: &Value) -> InferenceModelRewrite {
    let object = json!({
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceModelRewrite",
        "metadata": { "name": name, "creationTimestamp": created },
        "spec": { "poolRef": { "name": "pool" }, "rules": rules },
    });
    serde_json::from_value(object).unwrap()
}

/// Changes as text, such as `- p-rank-0` and `+ p-rank-0:8000`.
fn in_words(news: &News) -> Vec<String> {
    let words = news.changes.iter().map(|change| match change {
        PoolChange::Upsert(endpoint) => format!("+ {}:{}", endpoint.id.name(), endpoint.port),
        PoolChange::Remove(id) => format!("- {}", id.name()),
        PoolChange::Report(..) | PoolChange::Scrape(..) => unreachable!("discovery reports nothing"),
    });
    words.collect()
}

/// An index that serves pods `a` and `b`, and has read everything.
fn serving() -> Index {
    let mut index = index();
    for origin in [Origin::V1, Origin::V1Alpha2, Origin::OldGroup] {
        index.objectives_heard(origin, Change::Absent);
        index.rewrites_heard(origin, Change::Absent);
    }
    index.pool_is(Some(pool("vllm", &[8000])));
    index.pods_listed(vec![object("a"), object("b")], &[]);
    index
}

#[test]
fn endpoints_need_the_pool_and_then_its_pods() {
    let mut index = index();
    assert!(index.unlisted().is_none(), "nobody knows by which labels");

    assert_eq!(in_words(&index.pool_is(Some(pool("vllm", &[8000])))), [""; 0]);
    assert_eq!(index.unlisted(), Some(&pool("vllm", &[8000])));
    assert_eq!(
        in_words(&index.pods_listed(vec![object("a")], &[])),
        ["+ a-rank-0:8000"]
    );
    assert!(index.unlisted().is_none());
}

#[test]
fn pods_come_and_go_and_what_did_not_change_is_not_told() {
    let mut index = serving();

    assert_eq!(in_words(&index.pod_is(pod("c"))), ["+ c-rank-0:8000"]);
    assert_eq!(in_words(&index.pod_is(pod("c"))), [""; 0]);
    assert_eq!(in_words(&index.pod_is(unready("c"))), ["- c-rank-0"]);
    assert_eq!(in_words(&index.pod_is(pod("c"))), ["+ c-rank-0:8000"]);
    assert_eq!(in_words(&index.pod_is_gone("c")), ["- c-rank-0"]);
    assert_eq!(in_words(&index.pod_is_gone("c")), [""; 0]);
}

#[test]
fn a_pod_that_is_to_go_leaves_before_it_is_gone() {
    let mut index = serving();
    let going = pod_with("a", |pod| {
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    });

    assert_eq!(in_words(&index.pod_is(going)), ["- a-rank-0"]);
}

#[test]
fn a_new_list_tells_only_what_is_different() {
    let mut index = serving();
    let moved = object_with("b", |pod| pod["status"]["podIP"] = "10.0.0.9".into());

    let news = index.pods_heard(all(vec![moved, object("c")]));

    assert_eq!(in_words(&news), ["- a-rank-0", "+ b-rank-0:8000", "+ c-rank-0:8000"]);
}

#[test]
fn changed_ports_change_the_endpoints_of_all_pods_and_who_leaves_goes_first() {
    let mut index = serving();

    let more = index.pool_is(Some(pool("vllm", &[8000, 8001])));
    assert_eq!(in_words(&more), ["+ a-rank-1:8001", "+ b-rank-1:8001"]);

    let turned = index.pool_is(Some(pool("vllm", &[9000])));
    assert_eq!(
        in_words(&turned),
        ["- a-rank-1", "- b-rank-1", "+ a-rank-0:9000", "+ b-rank-0:9000"]
    );
}

#[test]
fn a_pool_whose_selector_changes_serves_by_the_old_one_until_the_pods_of_the_new_one_are_listed() {
    let mut index = serving();

    let changed = index.pool_is(Some(pool("other", &[9000])));
    assert_eq!(in_words(&changed), [""; 0]);
    assert_eq!(index.state(), PoolState::Known);
    assert_eq!(index.unlisted(), Some(&pool("other", &[9000])));
    // The pods that serve are still watched.
    assert_eq!(in_words(&index.pod_is(pod("c"))), ["+ c-rank-0:8000"]);
    assert_eq!(in_words(&index.pod_is_gone("a")), ["- a-rank-0"]);

    let listed = index.pods_listed(vec![object("c"), object("d")], &[]);
    assert_eq!(in_words(&listed), ["- b-rank-0", "+ c-rank-0:9000", "+ d-rank-0:9000"]);
    assert!(index.unlisted().is_none());
}

#[test]
fn a_selector_that_is_changed_back_before_its_pods_are_listed_changes_the_ports_alone() {
    let mut index = serving();
    index.pool_is(Some(pool("other", &[8000])));

    let back = index.pool_is(Some(pool("vllm", &[9000])));

    assert_eq!(in_words(&back), ["+ a-rank-0:9000", "+ b-rank-0:9000"]);
    assert!(index.unlisted().is_none());
}

#[test]
fn a_pool_that_comes_back_with_another_selector_has_no_pods_of_the_old_one() {
    let mut index = serving();
    index.pool_is(None);

    assert_eq!(in_words(&index.pool_is(Some(pool("other", &[8000])))), [""; 0]);
    // The old watch lists again.
    assert_eq!(in_words(&index.pods_heard(all(vec![object("a")]))), [""; 0]);
    assert_eq!(
        in_words(&index.pods_listed(vec![object("d")], &[])),
        ["+ d-rank-0:8000"]
    );
}

#[test]
fn a_selector_that_matches_nothing_takes_all_endpoints_away_once_that_is_known() {
    let mut index = serving();
    index.pool_is(Some(pool("other", &[8000])));

    assert_eq!(
        in_words(&index.pods_listed(Vec::new(), &[])),
        ["- a-rank-0", "- b-rank-0"]
    );
}

#[test]
fn a_pool_that_makes_no_sense_leaves_what_was_known_of_it() {
    let rejected = || Change::All {
        objects: Vec::new(),
        unread: vec!["pool".to_owned()],
    };
    let mut index = serving();
    assert_eq!(in_words(&index.pool_heard(rejected())), [""; 0]);
    assert_eq!(index.pool(), Some(&pool("vllm", &[8000])));

    let mut fresh = self::index();
    fresh.pool_heard(rejected());
    assert_eq!(
        fresh.state(),
        PoolState::Awaited,
        "it is there, and nobody knows what it says"
    );
}

#[test]
fn a_pool_that_is_made_again_has_all_that_it_had() {
    let mut index = serving();
    index.objectives_heard(Origin::V1Alpha2, all(vec![objective("gold", "pool", Some(7))]));
    index.rewrites_heard(
        Origin::V1Alpha2,
        all(vec![rewrite(
            "r",
            "2026-01-01T00:00:00Z",
            &json!([{ "targets": [{ "modelRewrite": "x" }] }]),
        )]),
    );

    let gone = index.pool_is(None);
    assert_eq!(in_words(&gone), ["- a-rank-0", "- b-rank-0"]);
    assert!(gone.objectives.is_none() && gone.rewrites.is_none(), "{gone:?}");
    assert_eq!(index.state(), PoolState::Gone);
    // What happens meanwhile is not missed.
    assert_eq!(in_words(&index.pod_is(pod("c"))), [""; 0]);
    index.pod_is_gone("a");

    let back = index.pool_is(Some(pool("vllm", &[8000])));

    assert_eq!(in_words(&back), ["+ b-rank-0:8000", "+ c-rank-0:8000"]);
    assert_eq!(index.state(), PoolState::Known);
    assert_eq!(index.told_objectives.len(), 1);
    assert_eq!(index.told_rewrites.len(), 1);
}

#[test]
fn the_pool_is_known_when_everything_was_read() {
    let mut index = index();
    let mut states = vec![index.state()];
    index.pool_is(Some(pool("vllm", &[8000])));
    states.push(index.state());
    index.pods_listed(vec![], &[]);
    states.push(index.state());
    for origin in [Origin::V1Alpha2, Origin::OldGroup] {
        index.objectives_heard(origin, Change::Absent);
        index.rewrites_heard(origin, all(vec![]));
    }
    states.push(index.state());
    index.objectives_heard(Origin::V1, Change::Absent);
    states.push(index.state());

    let awaited = PoolState::Awaited;
    assert_eq!(states, [awaited, awaited, awaited, awaited, PoolState::Known]);
}

#[test]
fn a_selector_needs_its_pods_alone() {
    let mut index = Index::new(Target::Selector {
        namespace: "ns".to_owned(),
        selector: crate::serve::kube::parse_selector("app in (vllm, other)").unwrap(),
        ports: vec![8000, 8001],
    });
    assert_eq!(index.state(), PoolState::Awaited);

    let news = index.pods_listed(vec![object("a")], &[]);

    assert_eq!(in_words(&news), ["+ a-rank-0:8000", "+ a-rank-1:8001"]);
    assert_eq!(index.state(), PoolState::Known);
}

#[test]
fn objectives_of_our_pool_count_and_one_without_a_priority_has_zero() {
    let mut index = index();

    let news = index.objectives_heard(
        Origin::V1Alpha2,
        all(vec![
            objective("gold", "pool", Some(7)),
            objective("plain", "pool", None),
            objective("foreign", "another", Some(9)),
        ]),
    );
    assert_eq!(
        news.objectives.unwrap(),
        BTreeMap::from([("gold".into(), 7), ("plain".into(), 0)])
    );

    let moved = index.objectives_heard(Origin::V1Alpha2, Change::Is(objective("gold", "another", Some(7))));
    assert_eq!(moved.objectives.unwrap(), BTreeMap::from([("plain".into(), 0)]));
    let same = index.objectives_heard(Origin::V1Alpha2, Change::Is(objective("plain", "pool", Some(0))));
    assert!(same.objectives.is_none(), "{same:?}");
    let gone = index.objectives_heard(Origin::V1Alpha2, Change::Gone("plain".to_owned()));
    assert_eq!(gone.objectives.unwrap(), BTreeMap::new());
}

#[test]
fn a_reference_names_the_group_of_the_pool_too() {
    let mut index = Index::new(target(PoolGroup::Old));
    let mut old = objective("old", "pool", Some(1));
    old.spec.pool_ref.as_mut().unwrap().group = "inference.networking.x-k8s.io".to_owned();

    let news = index.objectives_heard(Origin::V1Alpha2, all(vec![old, objective("new", "pool", Some(2))]));

    assert_eq!(news.objectives.unwrap(), BTreeMap::from([("old".into(), 1)]));
}

#[test]
fn a_reference_to_another_kind_or_group_of_the_same_name_is_not_ours_and_is_told_once() {
    let mut index = index();
    let (mut kind, mut group) = (objective("kind", "pool", Some(1)), objective("group", "pool", Some(2)));
    kind.spec.pool_ref.as_mut().unwrap().kind = "Bogus".to_owned();
    group.spec.pool_ref.as_mut().unwrap().group = "inference.networking.x-k8s.io".to_owned();
    let mut elsewhere = objective("elsewhere", "another", Some(3));
    elsewhere.spec.pool_ref.as_mut().unwrap().kind = "Bogus".to_owned();

    index.objectives_heard(
        Origin::V1Alpha2,
        all(vec![kind, group, elsewhere, objective("gold", "pool", Some(7))]),
    );

    assert_eq!(index.told_objectives, BTreeMap::from([("gold".into(), 7)]));
    let told: Vec<_> = index
        .told_astray
        .iter()
        .map(|(_, name, why)| (name.as_str(), why.as_str()))
        .collect();
    let [(first, of_group), (second, of_kind)] = told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((first, second), ("group", "kind"));
    assert!(of_group.contains("`inference.networking.x-k8s.io`"), "{of_group}");
    assert!(
        of_kind.contains("`Bogus`") && of_kind.contains("`InferencePool`"),
        "{of_kind}"
    );

    index.objectives_heard(Origin::V1Alpha2, Change::Is(objective("kind", "pool", Some(1))));
    index.rewrites_heard(Origin::V1Alpha2, all(Vec::new()));
    assert_eq!(
        index.told_astray.len(),
        1,
        "the one that was mended is forgotten, the other is not"
    );
}

#[test]
fn objects_of_the_older_group_count_only_while_the_kind_is_not_installed_in_the_current_one() {
    let mut index = index();
    index.objectives_heard(Origin::V1, Change::Absent);
    let early = index.objectives_heard(Origin::OldGroup, all(vec![objective("gold", "pool", Some(1))]));
    assert!(
        early.objectives.is_none(),
        "the current group was not read yet: {early:?}"
    );

    let old = index.objectives_heard(Origin::V1Alpha2, Change::Absent);
    assert_eq!(old.objectives.unwrap(), BTreeMap::from([("gold".into(), 1)]));

    let new = index.objectives_heard(Origin::V1Alpha2, all(vec![objective("gold", "pool", Some(2))]));
    assert_eq!(new.objectives.unwrap(), BTreeMap::from([("gold".into(), 2)]));

    let ignored = index.objectives_heard(Origin::OldGroup, Change::Is(objective("silver", "pool", Some(3))));
    assert!(ignored.objectives.is_none(), "{ignored:?}");
}

#[test]
fn objects_of_the_older_group_do_not_count_where_the_current_one_has_version_1_alone() {
    let mut index = index();
    index.objectives_heard(Origin::OldGroup, all(vec![objective("old", "pool", Some(1))]));
    index.objectives_heard(Origin::V1Alpha2, Change::Absent);
    let new = objective_for("gold", json!({ "poolRefs": [{ "name": "pool" }], "priority": 7 }));

    let news = index.objectives_heard(Origin::V1, all(vec![new]));

    assert_eq!(news.objectives.unwrap(), BTreeMap::from([("gold".into(), 7)]));
}

#[test]
fn an_objective_is_for_every_pool_that_it_lists() {
    let mut index = index();
    let listed = json!({ "poolRefs": [{ "name": "another" }, { "name": "pool" }], "priority": 7 });
    let elsewhere = json!({ "poolRefs": [{ "name": "another" }], "priority": 8 });
    let astray = json!({ "poolRefs": [{ "name": "pool", "group": "x" }, { "name": "another" }], "priority": 9 });

    let news = index.objectives_heard(
        Origin::V1,
        all(vec![
            objective_for("gold", listed),
            objective_for("foreign", elsewhere),
            objective_for("astray", astray),
            objective_for("nowhere", json!({ "priority": 10 })),
        ]),
    );

    assert_eq!(news.objectives.unwrap(), BTreeMap::from([("gold".into(), 7)]));
    let told: Vec<_> = index
        .told_astray
        .iter()
        .map(|(_, name, why)| (&**name, &**why))
        .collect();
    let [("astray", of_group), ("nowhere", of_none)] = told[..] else {
        panic!("{told:?}")
    };
    assert!(of_group.contains("poolRefs[0].group is `x`"), "{of_group}");
    assert!(of_none.starts_with("it names no pool"), "{of_none}");
}

#[test]
fn an_objective_selects_pools_by_their_labels_whenever_these_change() {
    let mut index = index();
    let selects = |labels: Value| json!({ "poolSelector": labels, "priority": 7 });
    index.objectives_heard(
        Origin::V1,
        all(vec![
            objective_for("gold", selects(json!({ "matchLabels": { "tier": "gold" } }))),
            objective_for(
                "any",
                selects(
                    json!({ "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["gold", "tin"] }] }),
                ),
            ),
        ]),
    );
    assert_eq!(index.told_objectives, BTreeMap::new(), "the pool is not known yet");

    let found = index.pool_is(Some(labelled(&[("tier", "gold")])));
    assert_eq!(
        found.objectives.unwrap(),
        BTreeMap::from([("any".into(), 7), ("gold".into(), 7)])
    );
    let changed = index.pool_is(Some(labelled(&[("tier", "tin")])));
    assert_eq!(changed.objectives.unwrap(), BTreeMap::from([("any".into(), 7)]));
    let gone = index.pool_is(None);
    assert!(gone.objectives.is_none(), "they are kept for the pool that comes back");
    let back = index.pool_is(Some(labelled(&[])));
    assert_eq!(back.objectives.unwrap(), BTreeMap::new());
    assert!(index.told_astray.is_empty(), "{:?}", index.told_astray);
}

#[test]
fn an_objective_that_is_seen_in_two_versions_counts_by_the_one_that_names_the_pool() {
    let mut index = index();
    // As an API server shows one that was written as v1alpha2, whose `poolRef` version 1 does not have.
    index.objectives_heard(
        Origin::V1,
        all(vec![
            objective_for("older", json!({ "priority": 1 })),
            objective_for("newer", json!({ "poolRefs": [{ "name": "pool" }], "priority": 2 })),
        ]),
    );
    index.objectives_heard(
        Origin::V1Alpha2,
        all(vec![
            objective("older", "pool", Some(1)),
            objective_for("newer", json!({ "priority": 2 })),
        ]),
    );

    assert_eq!(
        index.told_objectives,
        BTreeMap::from([("newer".into(), 2), ("older".into(), 1)])
    );
    assert!(index.told_astray.is_empty(), "{:?}", index.told_astray);

    let gone = index.objectives_heard(Origin::V1Alpha2, Change::Gone("older".to_owned()));
    assert_eq!(gone.objectives.unwrap(), BTreeMap::from([("newer".into(), 2)]));
}

#[test]
fn of_two_rules_for_a_model_the_older_objects_counts_then_the_one_whose_name_comes_first_then_the_first() {
    let rules = |target: &str| {
        json!([
            { "matches": [{ "model": { "value": "base" } }], "targets": [{ "modelRewrite": target }] },
            { "matches": [{ "model": { "value": "base" } }], "targets": [{ "modelRewrite": "never" }] },
        ])
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    let target = |objects: Vec<InferenceModelRewrite>| {
        let news = index().rewrites_are_again(objects);
        news.rule("base").unwrap().target(0).to_string()
    };

    assert_eq!(
        target(vec![
            rewrite("a", late, &rules("late")),
            rewrite("b", early, &rules("early"))
        ]),
        "early"
    );
    assert_eq!(
        target(vec![rewrite("b", late, &rules("b")), rewrite("a", late, &rules("a"))]),
        "a"
    );
}

impl Index {
    fn rewrites_are_again(mut self, objects: Vec<InferenceModelRewrite>) -> Rewrites {
        self.rewrites_heard(Origin::V1Alpha2, all(objects)).rewrites.unwrap()
    }
}

#[test]
fn a_rule_without_matches_is_for_every_other_model() {
    let rules = json!([
        { "targets": [{ "modelRewrite": "all" }] },
        { "matches": [{ "model": { "value": "base" } }], "targets": [{ "modelRewrite": "own", "weight": 3 }] },
    ]);

    let rewrites = index().rewrites_are_again(vec![rewrite("r", "2026-01-01T00:00:00Z", &rules)]);

    assert_eq!(&*rewrites.rule("base").unwrap().target(0), "own");
    assert_eq!(&*rewrites.rule("other").unwrap().target(0), "all");
    assert_eq!(rewrites.rule("base").unwrap().targets, [("own".into(), 3)]);
}
