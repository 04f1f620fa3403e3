use std::time::Duration;

use super::*;
use crate::engine::Engine;
use crate::engine::scheduling::{Explain, NoProbe};
use crate::engine::seed::Seed;
use crate::serve::clock::Clock;

fn live(text: &str) -> LiveConfiguration {
    let running = Text {
        text: text.to_owned(),
        source: SourceName::Flag,
    };
    let options = LoadOptions::default();
    let plan = load(text, &running.source, &options).unwrap().plan;
    let engine = Engine::new(plan.engine, Seed(1), Box::new(NoProbe), Explain::default());
    let driver = Driver::new(engine, Clock::new());
    let refresh = Duration::from_secs(1);
    let scrapers = Scrapers::new(plan.data_layer.sources, refresh, Arc::default(), driver.clone()).unwrap();
    LiveConfiguration::new(
        Parts {
            options,
            driver,
            front: Arc::new(ArcSwap::from_pointee(Settings::default())),
            scrapers,
            discovery: plan.data_layer.discovery,
        },
        running,
    )
}

fn text(text: &str) -> Text {
    Text {
        text: text.to_owned(),
        source: SourceName::Flag,
    }
}

const PLAIN: &str = "{plugins: [{type: queue-scorer}]}";
const QUEUES: &str = "{plugins: [{type: queue-scorer}], featureGates: [flowControl]}";
const WRONG: &str = "{plugins: [{type: queue-scorrer}]}";

fn has_queues(live: &LiveConfiguration) -> bool {
    live.parts.driver.inspect(|engine| engine.flow().is_some())
}

#[tokio::test]
async fn another_text_takes_over() {
    let live = live(PLAIN);

    let taken = live.base_is(text(QUEUES)).unwrap();

    assert_eq!(taken.effect, Effect::Runs);
    assert!(has_queues(&live));
    assert_eq!(live.base_is(text(QUEUES)).unwrap().effect, Effect::Unchanged);
}

#[tokio::test]
async fn a_text_that_became_empty_changes_nothing() {
    let live = live(QUEUES);

    for empty in ["", " \n"] {
        assert!(matches!(live.base_is(text(empty)), Err(Refused::Empty)));
        assert!(has_queues(&live));
    }
    assert_eq!(live.base_is(text("{}")).unwrap().effect, Effect::Runs);
    assert!(!has_queues(&live));
}

#[tokio::test]
async fn a_text_that_is_wrong_changes_nothing() {
    let live = live(QUEUES);

    let refused = live.base_is(text(WRONG)).unwrap_err().to_string();

    assert!(refused.contains("queue-scorer"), "{refused}");
    assert!(has_queues(&live));
}

#[tokio::test]
async fn a_source_that_cannot_be_used_changes_nothing() {
    let live = live(QUEUES);
    let unusable = "{plugins: [{type: queue-scorer}, {type: metrics-data-source, parameters: {scheme: https, \
                    insecureSkipVerify: false, caCertPath: /nowhere}}, {type: core-metrics-extractor}], dataLayer: {sources: [{pluginRef: \
                    metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}}";

    let refused = live.base_is(text(unusable)).unwrap_err();

    assert!(matches!(refused, Refused::Source(_)), "{refused}");
    assert!(has_queues(&live));
}

#[tokio::test]
async fn the_object_goes_before_the_file_for_as_long_as_it_is_there() {
    let live = live(PLAIN);
    assert_eq!(live.object_is(text(QUEUES)).unwrap().effect, Effect::Runs);

    let other = "{plugins: [{type: kv-cache-utilization-scorer}]}";
    assert_eq!(live.base_is(text(other)).unwrap().effect, Effect::Overruled);
    assert!(has_queues(&live));
    assert!(live.object_is(text(WRONG)).is_err());
    assert!(has_queues(&live), "the last good one runs");

    assert_eq!(live.object_is_gone().unwrap().effect, Effect::Runs);
    assert!(!has_queues(&live));
    assert_eq!(live.texts.lock().running.text, other);
}

#[tokio::test]
async fn parsers_are_those_of_the_new_text_for_new_streams() {
    let live = live(PLAIN);
    let before = live.parts.front.load_full();

    let passthrough = "{plugins: [{type: queue-scorer}, {type: passthrough-parser}], requestHandler: {parsers: \
                       [{pluginRef: passthrough-parser}]}}";
    live.base_is(text(passthrough)).unwrap();

    let after = live.parts.front.load_full();
    let path = "/v1/completions";
    assert_ne!(
        format!("{:?}", before.parsers.resolve(path)),
        format!("{:?}", after.parsers.resolve(path))
    );
}

const DISCOVERY: &str = "{plugins: [{type: queue-scorer}, {type: file-discovery, parameters: {path: e.yaml}}], \
                         dataLayer: {discovery: {pluginRef: file-discovery}}}";

#[tokio::test]
async fn what_needs_another_start_is_told_until_it_is_taken_back() {
    let live = live(PLAIN);

    for effect in [Effect::RunsWithoutDiscovery, Effect::RunsWithoutDiscovery] {
        assert_eq!(live.base_is(text(DISCOVERY)).unwrap().effect, effect);
    }
    assert_eq!(live.base_is(text(PLAIN)).unwrap().effect, Effect::Runs);
}

#[tokio::test]
async fn an_object_does_not_say_where_endpoints_come_from_and_no_restart_would_change_that() {
    let live = live(PLAIN);

    let taken = live.object_is(text(DISCOVERY)).unwrap();
    assert_eq!(taken.effect, Effect::Runs);
    let told: Vec<_> = taken.warnings.iter().map(|warning| warning.path.as_str()).collect();
    assert!(told.contains(&"dataLayer.discovery"), "{told:?}");

    let without = live.object_is(text(PLAIN)).unwrap();
    assert_eq!((without.effect, without.warnings.len()), (Effect::Runs, 0));
}
