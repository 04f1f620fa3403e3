//! What stands in the section `flowControl`, and what comes of it.

use proptest::prelude::*;

use super::super::super::super::scheduling::Named;
use super::super::super::finding::SourceName;
use super::super::super::plan::EnginePlan;
use super::super::{LoadOptions, load};
use super::*;

fn engine(text: &str) -> EnginePlan {
    match load(text, &SourceName::Flag, &LoadOptions::default()) {
        Ok(loaded) => loaded.plan.engine,
        Err(errors) => panic!("{errors}"),
    }
}

/// The plan for these fields of `flowControl`, with the gate on.
fn flow_with(plugins: &str, fields: &str) -> FlowPlan {
    let text = format!("{{featureGates: [flowControl], plugins: [{plugins}], flowControl: {{{fields}}}}}");
    engine(&text).flow.expect("the gate is on")
}

fn flow(fields: &str) -> FlowPlan {
    flow_with("", fields)
}

fn band(plan: &FlowPlan, priority: i32) -> BandPlan {
    let found = plan.bands.iter().find(|band| band.priority == priority);
    *found.expect("the band is there")
}

fn name<T: ?Sized>(list: &[Named<T>], at: InstanceRef) -> &str {
    &list[at.0].name.name
}

fn seconds(seconds: u64) -> Option<Duration> {
    Some(Duration::from_secs(seconds))
}

#[test]
fn the_gate_alone_gives_the_defaults_of_the_reference() {
    let plan = flow("");

    assert_eq!(plan.limits, GlobalLimits::default());
    assert_eq!(plan.without_endpoints, seconds(60));
    assert_eq!(plan.bands.len(), 1);
    for band in [plan.bands[0], plan.template, plan.negative_template] {
        assert_eq!((band.max_bytes, band.max_requests), (1_000_000_000, 5000));
        assert_eq!((band.priority, band.ttl), (0, seconds(60)));
        assert_eq!(name(&plan.fairness, band.fairness), "global-strict-fairness-policy");
        assert_eq!(name(&plan.ordering, band.ordering), "fcfs-ordering-policy");
    }
    assert_eq!(&*plan.usage.name.name, "static-usage-limit-policy");
}

#[test]
fn who_makes_room_when_all_is_full_is_off_unless_it_is_switched_on() {
    assert!(!flow("maxRequests: 5").shed_when_full);
    assert!(flow("maxRequests: 5, shedWhenFull: true").shed_when_full);
}

#[test]
fn tenants_share_the_room_to_wait_unless_that_is_switched_off() {
    assert!(flow("").displace_when_full);
    assert!(!flow("displaceWhenFull: false").displace_when_full);
}

#[test]
fn without_the_gate_nothing_waits_and_the_settings_are_not_judged() {
    let text =
        "{flowControl: {maxBytes: -1, priorityBands: [{fairnessPolicyRef: not-there}, {}], enableEviction: true}}";

    let plan = engine(text);

    assert!(plan.flow.is_none());
    assert_eq!(&*plan.detector.name.name, "utilization-detector");
    assert_eq!(&*plan.admission.name.name, "always-admit");
}

#[test]
fn zero_is_no_limit_for_all_bands_and_the_default_for_one() {
    let plan = flow("maxBytes: 0, maxRequests: 0, priorityBands: [{priority: 7, maxBytes: 0, maxRequests: 0}]");

    assert_eq!(plan.limits, GlobalLimits::default());
    let band = band(&plan, 7);
    assert_eq!((band.max_bytes, band.max_requests), (1_000_000_000, 5000));
}

#[test]
fn limits_are_quantities() {
    let plan =
        flow("maxBytes: 10Gi, maxRequests: 20k, priorityBands: [{priority: 7, maxBytes: 1.5k, maxRequests: '500'}]");

    assert_eq!(
        (plan.limits.bytes, plan.limits.requests),
        (Some(10 << 30), Some(20_000))
    );
    let band = band(&plan, 7);
    assert_eq!((band.max_bytes, band.max_requests), (1500, 500));
}

#[test]
fn bands_stand_from_the_highest_to_the_lowest_with_zero_among_them() {
    let plan =
        flow("defaultPriorityBand: {maxRequests: 9}, priorityBands: [{priority: -10}, {priority: 100}, {priority: 3}]");

    let priorities: Vec<i32> = plan.bands.iter().map(|band| band.priority).collect();
    assert_eq!(priorities, [100, 3, 0, -10]);
    assert_eq!(band(&plan, 0).max_requests, 9, "it is made from the template");
    assert_eq!(
        band(&plan, 3).max_requests,
        5000,
        "a band that is listed owes nothing to the template"
    );
}

#[test]
fn the_template_is_for_negative_priorities_too_unless_they_have_their_own() {
    let one = flow("defaultPriorityBand: {maxRequests: 9}");
    let two = flow("defaultPriorityBand: {maxRequests: 9}, defaultNegativePriorityBand: {maxBytes: 5}");

    assert_eq!(one.negative_template, one.template);
    assert_eq!(
        (two.negative_template.max_requests, two.negative_template.max_bytes),
        (5000, 5)
    );
    assert_eq!(two.template.max_requests, 9);
}

#[test]
fn a_pool_without_endpoints_is_waited_for_as_long_as_any_unless_said_otherwise() {
    let ttls = |fields: &str| {
        let plan = flow(fields);
        (plan.bands[0].ttl, plan.without_endpoints)
    };

    assert_eq!(ttls("defaultRequestTTL: 5s"), (seconds(5), seconds(5)));
    assert_eq!(ttls("noEndpointRequestTTL: 5m"), (seconds(60), seconds(300)));
    assert_eq!(ttls("defaultRequestTTL: 0s"), (None, None));
    assert_eq!(ttls("noEndpointRequestTTL: 0s"), (seconds(60), None));
    assert_eq!(
        ttls("defaultRequestTTL: 0s, noEndpointRequestTTL: 1s"),
        (None, seconds(1))
    );
}

#[test]
fn a_band_may_have_a_ttl_of_its_own_with_or_without_an_end() {
    let plan = flow(
        "defaultRequestTTL: 5s, priorityBands: [{priority: 2, defaultRequestTTL: 1s}, {priority: 1, defaultRequestTTL: 0s}, {}]",
    );

    let ttls: Vec<_> = plan.bands.iter().map(|band| band.ttl).collect();
    assert_eq!(ttls, [seconds(1), None, seconds(5)]);
}

#[test]
fn what_is_no_longer_than_the_route_timeout_is_accepted() {
    let equal = flow("routeTimeout: 60s, priorityBands: [{defaultRequestTTL: 60s}]");
    let endless = flow("routeTimeout: 0s, defaultRequestTTL: 0s");

    assert_eq!(equal.bands[0].ttl, seconds(60));
    assert_eq!(endless.bands[0].ttl, None, "a route timeout of 0 never ends");
}

#[test]
fn bands_share_the_policies_that_they_name() {
    let plugins = "{name: turns, type: round-robin-fairness-policy}, {name: other, type: round-robin-fairness-policy}";
    let fields = "priorityBands: [{priority: 3, fairnessPolicyRef: turns}, {priority: 2, fairnessPolicyRef: turns}, \
                  {priority: 1, fairnessPolicyRef: other}]";

    let plan = flow_with(plugins, fields);

    let [three, two, one, ..] = plan.bands[..] else {
        panic!("{:?}", plan.bands)
    };
    assert_eq!(three.fairness, two.fairness);
    assert_ne!(two.fairness, one.fairness);
    assert_eq!(name(&plan.fairness, three.fairness), "turns");
    assert_eq!(name(&plan.fairness, one.fairness), "other");
}

#[test]
fn the_plan_has_the_instances_that_are_named() {
    let plugins = "{name: strict, type: static-usage-limit-policy, parameters: {threshold: 0.9}}, \
                   {name: busy, type: concurrency-detector}, {name: door, type: reject-all}, {type: always-admit}";
    let text = format!(
        "{{featureGates: [flowControl], plugins: [{plugins}], admission: {{pluginRef: door}}, flowControl: \
         {{usageLimitPolicyPluginRef: strict, saturationDetector: {{pluginRef: busy}}}}}}"
    );

    let plan = engine(&text);

    assert_eq!(&*plan.admission.name.name, "door");
    assert_eq!(&*plan.detector.name.name, "busy");
    let usage = plan.flow.expect("the gate is on").usage;
    assert_eq!(
        (&*usage.name.name, usage.name.type_name),
        ("strict", "static-usage-limit-policy")
    );
}

proptest! {
    #[test]
    fn there_is_one_band_for_each_priority_and_for_zero(priorities: std::collections::BTreeSet<i32>) {
        let bands: Vec<String> = priorities.iter().map(|priority| format!("{{priority: {priority}}}")).collect();

        let plan = flow(&format!("priorityBands: [{}]", bands.join(", ")));

        let mut expected = priorities;
        expected.insert(0);
        let found: Vec<i32> = plan.bands.iter().rev().map(|band| band.priority).collect();
        prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }
}
