//! What ServiceAccounts may do.

use std::collections::BTreeSet;

use super::{Rendered, example, examples, list, name_of, table, text_of, texts};

/// Role, API group, resource, verb. A resource of which only named objects are meant has ` (…)` after it.
type Permission = (String, String, String, String);

/// Everything that the roles of an example allow, to those whom they are bound to.
fn permissions(rendered: &Rendered) -> BTreeSet<Permission> {
    let mut all = BTreeSet::new();
    for kind in ["Role", "ClusterRole"] {
        for role in rendered.of_kind(kind) {
            let label = format!("{kind}{}", holder(rendered, kind, name_of(role)));
            for rule in list(&role["rules"]) {
                let named = if rule["resourceNames"].is_array() { " (…)" } else { "" };
                for verb in texts(&rule["verbs"]) {
                    for url in texts(&rule["nonResourceURLs"]) {
                        all.insert((label.clone(), String::new(), url.to_owned(), verb.to_owned()));
                    }
                    for group in texts(&rule["apiGroups"]) {
                        for resource in texts(&rule["resources"]) {
                            let resource = format!("{resource}{named}");
                            all.insert((label.clone(), group.to_owned(), resource, verb.to_owned()));
                        }
                    }
                }
            }
        }
    }
    all
}

/// Whom a role is bound to, as the documentation says it: nothing for Forebay itself.
fn holder(rendered: &Rendered, kind: &str, role: &str) -> &'static str {
    let binding = rendered.named(&format!("{kind}Binding"), role);
    assert_eq!(binding["roleRef"]["kind"], kind);
    assert_eq!(binding["roleRef"]["name"], role);
    let subjects = list(&binding["subjects"]);
    assert_eq!(subjects.len(), 1);
    match subjects[0]["name"].as_str().unwrap() {
        "collector" => " (collector)",
        account => {
            rendered.named("ServiceAccount", account);
            if account.ends_with("-metrics-reader") {
                " (reader)"
            } else {
                ""
            }
        }
    }
}

fn documented() -> BTreeSet<Permission> {
    let page = text_of("docs/kubernetes.md");
    let split = |cell: &str| -> Vec<String> {
        let parts = cell.split(',').map(|part| part.trim().trim_matches('`'));
        parts
            .map(|part| if part == "core" { "" } else { part }.to_owned())
            .collect()
    };
    let mut all = BTreeSet::new();
    for row in table(&page, "| Role | Group | Resource |") {
        for group in split(&row[1]) {
            for resource in split(&row[2]) {
                let resource = match resource.split_once(" (") {
                    Some((resource, _)) => format!("{resource} (…)"),
                    None => resource,
                };
                for verb in split(&row[3]) {
                    all.insert((row[0].clone(), group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    all
}

#[test]
fn what_roles_allow_is_what_the_documentation_lists() {
    let rendered: BTreeSet<_> = examples().iter().flat_map(permissions).collect();

    assert_eq!(rendered, documented());
}

#[test]
fn nothing_is_allowed_by_wildcard() {
    for (_, group, resource, verb) in examples().iter().flat_map(permissions) {
        assert!(![group, resource, verb].iter().any(|word| word.contains('*')));
    }
}

#[test]
fn without_authentication_nothing_is_cluster_wide() {
    let rendered = example("gateway-active-active");

    assert!(rendered.picker_has("--metrics-endpoint-auth=false"));
    assert_eq!(rendered.of_kind("ClusterRole").count(), 0);
}

#[test]
fn without_a_pool_and_a_leader_only_pods_are_watched() {
    let allowed = permissions(&example("standalone"));
    let of_role: BTreeSet<_> = allowed.iter().filter(|permission| permission.0 == "Role").collect();

    let resources: BTreeSet<_> = of_role.iter().map(|permission| permission.2.as_str()).collect();

    assert_eq!(resources, BTreeSet::from(["pods"]));
}

#[test]
fn the_lease_is_named_for_the_namespace_and_the_pool() {
    let rendered = example("gateway-high-availability");
    let role = rendered.named("Role", "vllm-qwen3-32b-epp");

    let of_leases = list(&role["rules"])
        .iter()
        .filter(|rule| texts(&rule["resources"]) == ["leases"]);
    let names: Vec<_> = of_leases.flat_map(|rule| texts(&rule["resourceNames"])).collect();

    assert_eq!(names, ["epp-inference-vllm-qwen3-32b.llm-d.ai"]);
}

#[test]
fn pods_that_do_not_talk_to_the_api_server_have_no_token() {
    for rendered in examples() {
        for account in rendered.of_kind("ServiceAccount") {
            assert_eq!(account["automountServiceAccountToken"], false);
        }
        for deployment in rendered.of_kind("Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            let is_forebay = pod["serviceAccountName"].is_string();
            assert_eq!(
                pod["automountServiceAccountToken"],
                is_forebay,
                "{}",
                name_of(deployment)
            );
        }
    }
}
