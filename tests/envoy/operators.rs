//! What operators see, and set.

use std::time::Duration;

use forebay::serve::demo::envoy::PickerSecurity;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::cluster::{Cluster, MODEL, Plan, document, logged, sum};
use crate::support::http::Ask;
use crate::support::{happens, promtool};

const PATIENCE: Duration = Duration::from_secs(20);

/// The metrics page, once it counts so many requests as ended.
async fn metrics(cluster: &Cluster, ended: f64) -> String {
    let mut page = String::new();
    happens("all requests are counted", PATIENCE, async || {
        page = cluster.page("/metrics").await.text();
        let counted = sum(&page, "llm_d_epp_request_duration_seconds_count");
        if counted == ended {
            Ok(())
        } else {
            Err(format!("{counted} are"))
        }
    })
    .await;
    page
}

#[tokio::test]
async fn the_metrics_page_counts_requests_under_both_names() {
    let cluster = Plan::new().start().await;
    for number in 0..3 {
        assert_eq!(cluster.complete(&format!("Question {number}")).await.status, 200);
    }

    let page = metrics(&cluster, 3.0).await;

    for family in [
        "llm_d_epp_request_total",
        "inference_objective_request_total",
        "llm_d_epp_request_output_tokens_count",
        "inference_objective_output_tokens_count",
    ] {
        assert_eq!(sum(&page, family), 3.0, "{family} in:\n{page}");
    }
    assert_eq!(sum(&page, "llm_d_epp_request_output_tokens_sum"), 12.0);
    assert_eq!(sum(&page, "llm_d_epp_ready_endpoints"), 2.0);
    assert_eq!(sum(&page, "inference_pool_ready_pods"), 2.0);
}

#[tokio::test]
async fn the_tokens_of_a_stream_without_usage_are_estimated_and_said_to_be() {
    let cluster = Plan::new().start().await;
    let chat = json!({
        "model": MODEL,
        "messages": [{ "role": "user", "content": "Hello" }],
        "max_tokens": 50,
        "stream": true,
    });

    let reply = cluster
        .client
        .send(Ask::post(&cluster.url("/v1/chat/completions"), chat.to_string()))
        .await;

    assert!(!reply.text().contains("usage"), "{}", reply.text());
    let page = metrics(&cluster, 1.0).await;
    assert_eq!(sum(&page, "llm_d_epp_request_output_tokens_sum"), 50.0);
    assert_eq!(sum(&page, "llm_d_epp_request_streaming_tpot_seconds_count"), 1.0);
    let estimated = "forebay_request_estimated_tokens_total";
    let output: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with(estimated) && line.contains(r#"direction="output""#))
        .collect();
    assert!(output.len() == 1 && output[0].ends_with(" 50"), "{output:?}");
}

#[tokio::test]
async fn the_log_says_what_runs_and_what_goes_wrong_without_a_line_for_each_request() {
    let cluster = Plan::new().start().await;

    cluster.tell_endpoints(&[]);
    cluster.picker.says("the pool has no endpoints").await;
    for _ in 0..3 {
        assert_eq!(cluster.complete("Hello").await.status, 503);
    }
    assert_eq!(cluster.client.send(cluster.completion("{")).await.status, 400);
    cluster.picker.says("requests were shed or failed").await;

    let lines = logged(&cluster.picker.child);
    let of = |message: &str| {
        let said = |line: &&Value| line["message"] == message;
        lines.iter().filter(said).collect::<Vec<_>>()
    };
    let start = of("listening")[0];
    assert_eq!(start["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(start["pool"], "epp");
    assert!(start["commit"].is_string(), "{start}");
    assert!(
        start["plugins"].as_str().unwrap().contains("max-score-picker"),
        "{start}"
    );
    assert!(!start["configuration"].as_str().unwrap().is_empty(), "{start}");
    // The four may fall into two windows.
    let sum = |field: &str| -> u64 {
        let summaries = ["requests were shed or failed", "requests were rejected"];
        let lines = summaries.into_iter().flat_map(of);
        lines.filter_map(|line| line[field].as_u64()).sum()
    };
    assert!((1..=3).contains(&sum("failed")), "{lines:?}");
    assert!(of("request ended").is_empty());
}

#[tokio::test]
async fn every_request_ends_in_exactly_one_outcome() {
    let cluster = Plan::new().flag("--max-request-body=64Ki").start().await;

    let answers = join_all((0..100).map(|number| {
        let body = match number % 4 {
            0 => "{".to_owned(),
            1 => document(&"word".repeat(1 << 15), 4).to_string(),
            _ => document(&format!("Question {number}"), 4).to_string(),
        };
        cluster.client.send(cluster.completion(body))
    }))
    .await;

    let of = |status| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((of(200), of(400), of(413)), (50, 25, 25));
    let outcomes = [("completed", 50.0), ("malformed", 25.0), ("too-large", 25.0)];
    happens("all have ended", PATIENCE, async || {
        let page = cluster.page("/metrics").await.text();
        let ended = |outcome| sum(&page, &format!("forebay_requests_ended_total{{outcome=\"{outcome}\"}}"));
        let found = outcomes.map(|(outcome, _)| (outcome, ended(outcome)));
        if found == outcomes && sum(&page, "forebay_requests_ended_total") == 100.0 {
            return Ok(());
        }
        Err(format!("{found:?}"))
    })
    .await;
    assert_eq!(cluster.running().await, Ok(0.0));
}

#[tokio::test]
async fn prometheus_finds_nothing_wrong_with_the_metrics_page() {
    let cluster = Plan::new().start().await;
    assert_eq!(cluster.complete("Hello").await.status, 200);
    assert_eq!(cluster.client.send(cluster.completion("{")).await.status, 400);
    let page = metrics(&cluster, 1.0).await;

    promtool::check(&page);
}

#[tokio::test]
async fn an_explanation_has_the_scores_and_what_was_cached() {
    let cluster = Plan::new().start().await;
    let prompt = "The same words. ".repeat(100);
    assert_eq!(cluster.complete(&prompt).await.status, 200);
    let ask = cluster
        .completion(document(&prompt, 4).to_string())
        .header("x-request-id", "again");

    let reply = cluster.client.send(ask).await;

    let explanation = cluster.explanation("again").await;
    assert_eq!(explanation["endpoint"], reply.served_by());
    assert_eq!(explanation["candidates"], 2);
    assert!(explanation["prefix"][0]["matchedBlocks"].as_u64().unwrap() > 0);
    let scored = explanation["scored"].as_array().unwrap();
    assert_eq!(scored[0]["endpoint"], reply.served_by());
    let total: f64 = scored[0]["by"]
        .as_array()
        .unwrap()
        .iter()
        .map(|opinion| opinion["score"].as_f64().unwrap() * opinion["weight"].as_f64().unwrap())
        .sum();
    assert!((total - scored[0]["total"].as_f64().unwrap()).abs() < 1e-9);
}

#[tokio::test]
async fn a_picker_with_its_own_certificate_serves_an_envoy_that_speaks_tls() {
    let cluster = Plan::new()
        .tls()
        .envoy(|bootstrap, _| bootstrap.security = PickerSecurity::Tls)
        .start()
        .await;

    let reply = cluster.complete("Hello").await;

    assert!(["a", "b"].contains(&reply.served_by()));
}
