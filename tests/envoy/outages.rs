//! Model servers that die, hang, or fail requests, behind a real Envoy.
//!
//! What a test does next hangs on what the picker is seen to know (`/debug/endpoints`), not on how long anything takes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use forebay::serve::demo::children::Signal;
use forebay::serve::demo::envoy::{Destination, PickerSecurity};
use futures_util::future::join_all;
use http_body_util::BodyExt;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::cluster::{Cluster, MODEL, Plan, document, sum};
use crate::support::http::Reply;
use crate::support::load::Load;
use crate::support::process::ServerProcess;
use crate::support::{happens, soon};

/// Bound for what a loaded machine may take long for.
const PATIENCE: Duration = Duration::from_secs(30);

/// The picker names up to three endpoints for each request.
const FALLBACK_LIST: &str = include_str!("../../examples/configs/fallback-list.yaml");

/// Requests wait if there is no room for them.
const FLOW_CONTROL: &str = "featureGates: [flowControl]
plugins: [{type: queue-scorer}, {type: prefix-cache-scorer}]";

async fn servers(names: &[&'static str]) -> Vec<ServerProcess> {
    let start = names.iter().map(|name| ServerProcess::start(name, 20.0));
    join_all(start).await
}

/// A plan for these servers, of which each has been scraped when the picker is up.
async fn cluster(plan: Plan, servers: &[ServerProcess]) -> Cluster {
    let endpoints: Vec<_> = servers.iter().map(|server| (server.name, server.address)).collect();
    let cluster = plan.outside(&endpoints).start().await;
    for server in servers {
        known(&cluster, server.name, "healthy").await;
    }
    cluster
}

/// Envoy goes down the picker's list.
fn with_a_list(plan: Plan) -> Plan {
    plan.config(FALLBACK_LIST)
        .envoy(|bootstrap, endpoints| bootstrap.destination = Destination::Known(endpoints))
}

/// Waits until the picker knows an endpoint to be in a state.
async fn known(cluster: &Cluster, name: &str, state: &str) {
    happens(&format!("the picker finds {name} {state}"), PATIENCE, async || {
        let page = cluster.page("/debug/endpoints").await;
        let endpoints = page.json();
        let endpoints = endpoints.as_array().ok_or_else(|| page.text())?;
        let is_so = endpoints
            .iter()
            .any(|it| it["endpoint"] == name && it["state"] == state);
        is_so.then_some(()).ok_or_else(|| page.text())
    })
    .await;
}

/// Sixty requests with one long prefix, sixteen at a time. All have to be served, by one of `by`.
async fn all_are_served(cluster: &Cluster, by: &[&str]) {
    let prefix = "the same words again ".repeat(60);
    for batch in 0..4 {
        let answers = join_all((0..15).map(|number| {
            let prefix = &prefix;
            async move { cluster.complete(&format!("{prefix} {batch} {number}")).await }
        }));
        for answer in answers.await {
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(by.contains(&answer.served_by()), "{}", answer.served_by());
        }
    }
}

/// Has each server serve something, so that Envoy has connections to it and none is without a trace of prompts.
async fn warm_up(cluster: &Cluster, names: &[&str]) {
    let (mut served, mut asked) = (BTreeSet::new(), 0);
    happens("each server has served", PATIENCE, async || {
        for _ in 0..8 {
            // No prompt twice: it would go to where it was before.
            asked += 1;
            let prompt = format!("{asked}: {}", "words ".repeat(100));
            served.insert(cluster.complete(&prompt).await.served_by().to_owned());
        }
        let all = served.len() == names.len();
        all.then_some(()).ok_or_else(|| format!("{served:?}"))
    })
    .await;
}

#[tokio::test]
async fn of_two_servers_one_is_killed_and_nothing_fails_that_the_other_can_serve() {
    let mut servers = servers(&["a", "b"]).await;
    let cluster = cluster(Plan::new(), &servers).await;
    warm_up(&cluster, &["a", "b"]).await;
    let load = Load::start(&cluster, 4);

    servers[0].kill().await;
    known(&cluster, "a", "unreachable").await;
    all_are_served(&cluster, &["b"]).await;
    load.end().await;

    let again = ServerProcess::start_at("a", 20.0, servers[0].address).await;
    // Requests that failed before it was known may have ejected it, and then one has to be answered.
    warm_up(&cluster, &["a", "b"]).await;
    known(&cluster, "a", "healthy").await;
    all_are_served(&cluster, &["a", "b"]).await;
    drop(again);
}

#[tokio::test]
async fn of_two_servers_one_hangs_and_nothing_fails_that_the_other_can_serve() {
    let servers = servers(&["a", "b"]).await;
    let cluster = cluster(Plan::new(), &servers).await;
    warm_up(&cluster, &["a", "b"]).await;

    servers[0].hang();
    known(&cluster, "a", "unreachable").await;
    all_are_served(&cluster, &["b"]).await;

    servers[0].wake();
    known(&cluster, "a", "healthy").await;
    all_are_served(&cluster, &["a", "b"]).await;
}

#[tokio::test]
async fn what_a_server_has_when_it_hangs_waits_for_it_and_what_comes_then_does_not() {
    let servers = servers(&["a", "b"]).await;
    let cluster = cluster(Plan::new(), &servers).await;
    warm_up(&cluster, &["a", "b"]).await;
    let load = Load::start(&cluster, 8);
    // An answer that is under way for as long as the test likes. Each prompt is new, so that none is drawn to where the last
    // one went.
    let mut number = 0;
    let mut endless = loop {
        number += 1;
        let prompt = format!("Tell me more about {number}");
        let ask = json!({ "model": MODEL, "prompt": prompt, "max_tokens": 200_000, "stream": true });
        let response = cluster.client.open(cluster.completion(ask.to_string())).await;
        if response.headers()["x-served-by"] == "a" {
            break response;
        }
    };
    soon("words come", endless.frame()).await.unwrap().unwrap();

    servers[0].hang();
    known(&cluster, "a", "unreachable").await;
    all_are_served(&cluster, &["b"]).await;

    servers[0].wake();
    known(&cluster, "a", "healthy").await;
    // Nothing was lost, neither of this answer nor of those that clients had begun to ask for.
    for _ in 0..100 {
        soon("more words come", endless.frame()).await.unwrap().unwrap();
    }
    load.end_without_failures().await;
}

#[tokio::test]
async fn with_the_fallback_list_nothing_fails_of_which_no_server_had_a_byte() {
    let mut servers = servers(&["a", "b"]).await;
    let cluster = cluster(with_a_list(Plan::new()), &servers).await;
    warm_up(&cluster, &["a", "b"]).await;

    // Nothing is under way, so nothing can be lost with the server; the picker may not know for a moment.
    servers[0].kill().await;
    all_are_served(&cluster, &["b"]).await;

    known(&cluster, "a", "unreachable").await;
    assert_eq!(cluster.running().await, Ok(0.0));
}

#[tokio::test]
async fn what_is_known_of_endpoints_follows_the_one_that_really_served() {
    let servers = servers(&["a", "b"]).await;
    // Envoy does not know `a`, and so goes to the next one of the list.
    let plan = Plan::new()
        .config(FALLBACK_LIST)
        .envoy(|bootstrap, endpoints| bootstrap.destination = Destination::Known(vec![endpoints[1]]));
    let cluster = cluster(plan, &servers).await;

    let mut asked = 0;
    happens("the one that is passed over is ejected", PATIENCE, async || {
        asked += 1;
        assert_eq!(cluster.complete(&format!("{asked} times")).await.served_by(), "b");
        let page = cluster.page("/debug/endpoints").await;
        let a = &page.json()[0];
        (a["state"] == "ejected" && a["reason"] == "passed-over")
            .then_some(())
            .ok_or_else(|| page.text())
    })
    .await;

    all_are_served(&cluster, &["b"]).await;
}

#[tokio::test]
async fn requests_that_a_server_cannot_take_are_counted_as_upstream_errors_and_against_it() {
    let mut servers = servers(&["a"]).await;
    let cluster = cluster(Plan::new(), &servers).await;
    assert_eq!(cluster.complete("hello").await.status, 200);

    servers[0].kill().await;
    known(&cluster, "a", "unreachable").await;
    for _ in 0..3 {
        assert_eq!(cluster.complete("hello").await.status, 503);
    }

    happens("all are counted", PATIENCE, async || {
        let page = cluster.page("/metrics").await.text();
        let of = |family: &str| sum(&page, family);
        let counted = [
            of(r#"forebay_requests_ended_total{outcome="completed"}"#),
            of(r#"forebay_requests_ended_total{outcome="upstream-error"}"#),
            of(r#"forebay_endpoint_failures_total{name="epp",reason="connect-failure"}"#),
            of(r#"forebay_pool_endpoints{name="epp",state="unreachable"}"#),
        ];
        (counted == [1.0, 3.0, 3.0, 1.0]).then_some(()).ok_or(page)
    })
    .await;
    let said = cluster.picker.child.printed();
    assert!(
        said.contains("endpoint unreachable: connection refused; its metrics are"),
        "{said}"
    );
}

/// Asks for so many completions, and waits until all of them are in the queue.
async fn ask_and_wait(cluster: &Cluster, requests: u32) -> Vec<JoinHandle<Result<Reply, String>>> {
    let ask = |number| {
        let ask = cluster.completion(document(&format!("Question {number}"), 4).to_string());
        let client = cluster.client.clone();
        tokio::spawn(async move { client.try_send(ask).await })
    };
    let asked = (0..requests).map(ask).collect();
    happens("all requests wait", PATIENCE, async || {
        let page = cluster.page("/metrics").await.text();
        match sum(&page, "llm_d_epp_flow_control_queue_size") {
            waiting if waiting == f64::from(requests) => Ok(()),
            waiting => Err(format!("{waiting} wait")),
        }
    })
    .await;
    asked
}

/// Envoy closes the picker's stream in the same way when a server breaks an answer off as when a client leaves: it has shown
/// the head of the answer, and shows no end of it. Only Envoy's own statistics tell the two apart.
#[tokio::test]
async fn an_answer_that_breaks_off_counts_as_disconnected_and_only_envoy_knows_who_did_it() {
    let mut servers = servers(&["a"]).await;
    let cluster = cluster(Plan::new(), &servers).await;
    let ask = json!({ "model": MODEL, "prompt": "Tell me more", "max_tokens": 200_000, "stream": true });
    let mut broken_off = cluster.client.open(cluster.completion(ask.to_string())).await;
    soon("words come", broken_off.frame()).await.unwrap().unwrap();

    servers[0].kill().await;

    while let Some(Ok(_)) = soon("the answer ends", broken_off.frame()).await {}
    known(&cluster, "a", "unreachable").await;
    happens("it is counted", PATIENCE, async || {
        let page = cluster.page("/metrics").await.text();
        let of = |outcome: &str| sum(&page, &format!("forebay_requests_ended_total{{outcome=\"{outcome}\"}}"));
        let counted = ["disconnected", "upstream-error", "completed"].map(of);
        (counted == [1.0, 0.0, 0.0]).then_some(()).ok_or(page)
    })
    .await;
    let by_server = "cluster.model-servers.upstream_cx_destroy_remote_with_active_rq";
    assert_eq!(cluster.envoy.stat(by_server).await, Ok(1));
    assert_eq!(cluster.running().await, Ok(0.0));
}

#[tokio::test]
async fn while_all_servers_are_gone_requests_wait_and_none_fails() {
    let mut servers = servers(&["a", "b"]).await;
    let cluster = cluster(Plan::new().config(FLOW_CONTROL), &servers).await;
    for server in &mut servers {
        server.kill().await;
    }
    for name in ["a", "b"] {
        known(&cluster, name, "unreachable").await;
    }

    let waiting = ask_and_wait(&cluster, 40).await;

    let _back = ServerProcess::start_at("b", 20.0, servers[1].address).await;
    for answer in waiting {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.served_by(), "b");
    }
}

#[tokio::test]
async fn while_all_servers_hang_requests_wait_and_none_fails() {
    let servers = servers(&["a", "b"]).await;
    let cluster = cluster(Plan::new().config(FLOW_CONTROL), &servers).await;
    for server in &servers {
        server.hang();
    }
    for name in ["a", "b"] {
        known(&cluster, name, "unreachable").await;
    }

    let waiting = ask_and_wait(&cluster, 20).await;

    for server in &servers {
        server.wake();
    }
    for answer in waiting {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

#[tokio::test]
async fn a_server_that_was_never_there_gets_nothing_beside_others() {
    let servers = servers(&["a", "b"]).await;
    // A port that nobody listens on: it was free a moment ago.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let endpoints = [("a", servers[0].address), ("b", servers[1].address), ("nobody", nobody)];
    let cluster = Plan::new().outside(&endpoints).start().await;
    for (name, state) in [("a", "healthy"), ("b", "healthy"), ("nobody", "unreachable")] {
        known(&cluster, name, state).await;
    }

    all_are_served(&cluster, &["a", "b"]).await;
}

#[tokio::test]
async fn an_endpoint_whose_metrics_can_be_read_and_whose_requests_fail_is_ejected() {
    let (broken, _metrics_fail) = half_broken(StatusCode::INTERNAL_SERVER_ERROR).await;
    let servers = servers(&["a"]).await;
    let endpoints = [("a", servers[0].address), ("broken", broken)];
    let cluster = Plan::new().outside(&endpoints).start().await;
    for name in ["a", "broken"] {
        known(&cluster, name, "healthy").await;
    }

    let (mut asked, mut failed) = (0, 0);
    happens("the broken one is ejected", PATIENCE, async || {
        asked += 1;
        // Each prompt is new, so that none is drawn to where the last one was served.
        let answer = cluster.complete(&format!("{asked} questions")).await;
        failed += u32::from(answer.status != 200);
        let page = cluster.page("/debug/endpoints").await.text();
        page.contains("ejected").then_some(()).ok_or(page)
    })
    .await;

    assert_eq!(failed, 5, "as many as it takes");
    all_are_served(&cluster, &["a"]).await;
}

#[tokio::test]
async fn a_server_whose_metrics_fail_is_the_last_choice_and_serves_alone() {
    let mut servers = servers(&["a"]).await;
    let (silent, metrics_fail) = half_broken(StatusCode::OK).await;
    let endpoints = [("a", servers[0].address), ("silent", silent)];
    let cluster = Plan::new().outside(&endpoints).start().await;
    for name in ["a", "silent"] {
        known(&cluster, name, "healthy").await;
    }

    metrics_fail.store(true, Ordering::Relaxed);
    known(&cluster, "silent", "stale").await;
    all_are_served(&cluster, &["a"]).await;

    servers[0].kill().await;
    known(&cluster, "a", "unreachable").await;
    assert_eq!(cluster.complete("hello").await.text(), "half of it works");
}

#[tokio::test]
async fn when_envoy_ends_what_its_requests_held_is_given_back() {
    let cluster = Plan::new().speed(1.0).start().await;
    let ask = cluster.completion(document("Hello", 100_000).to_string());
    let client = cluster.client.clone();
    let request = tokio::spawn(async move { client.try_send(ask).await });
    running(&cluster, 1.0).await;

    cluster.envoy.child.signal(Signal::KILL);

    assert!(request.await.unwrap().is_err());
    running(&cluster, 0.0).await;
}

/// What Prometheus is for Forebay: somebody who asks for a page, or does not, or asks and is gone.
#[tokio::test]
async fn prometheus_that_is_away_or_stops_reading_holds_nothing_up() {
    let cluster = Plan::new().start().await;
    let mut stuck = Vec::new();
    for _ in 0..20 {
        let mut reader = TcpStream::connect(cluster.picker.metrics).await.unwrap();
        let ask = format!("GET /metrics HTTP/1.1\r\nhost: {}\r\n\r\n", cluster.picker.metrics);
        // As often as the page fits into the buffers on the way, and more.
        for _ in 0..50 {
            reader.write_all(ask.as_bytes()).await.unwrap();
        }
        stuck.push(reader);
    }

    all_are_served(&cluster, &["a", "b"]).await;

    // While others read as many pages as are made at a time, this one is put off.
    happens("the page tells of all", 3 * PATIENCE, async || {
        let page = cluster.page("/metrics").await.text();
        let completed = sum(&page, r#"forebay_requests_ended_total{outcome="completed"}"#);
        (completed == 60.0).then_some(()).ok_or(page)
    })
    .await;
}

#[tokio::test]
async fn a_wrong_certificate_is_not_taken_and_the_one_before_serves_on() {
    let directory = TempDir::with_prefix("forebay-test-").unwrap();
    let write = |certificate: &str, key: &str| {
        std::fs::write(directory.path().join("tls.crt"), certificate).unwrap();
        std::fs::write(directory.path().join("tls.key"), key).unwrap();
    };
    let own = || {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    };
    let (certificate, key) = own();
    write(&certificate, &key);
    let cluster = Plan::new()
        .tls()
        .flag(format!("--cert-path={}", directory.path().display()))
        .envoy(|bootstrap, _| bootstrap.security = PickerSecurity::Tls)
        // Each request has a connection of its own, and so a handshake.
        .document(|document| {
            let picker = &mut document["static_resources"]["clusters"][0];
            let options = &mut picker["typed_extension_protocol_options"];
            options["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"]["common_http_protocol_options"] =
                json!({ "max_requests_per_connection": 1 });
        })
        .start()
        .await;
    all_are_served(&cluster, &["a", "b"]).await;

    write("no certificate", &key);
    cluster
        .picker
        .says("certificate not reloaded; the one before is shown")
        .await;
    all_are_served(&cluster, &["a", "b"]).await;

    let (certificate, key) = own();
    write(&certificate, &key);
    cluster.picker.says("certificate reloaded").await;
    all_are_served(&cluster, &["a", "b"]).await;
}

/// Waits until the picker counts so many requests as running.
async fn running(cluster: &Cluster, wanted: f64) {
    happens(&format!("{wanted} requests run"), PATIENCE, async || {
        match cluster.running().await? {
            found if found == wanted => Ok(()),
            found => Err(format!("{found} run")),
        }
    })
    .await;
}

/// The failure table of the page for operators names the tests that hold it, for each row.
#[test]
fn each_row_of_the_failure_table_names_a_test_that_is_there() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(repository.join("docs/operations.md")).unwrap();
    let table = page
        .split("## Failure modes")
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    let tests: String = ["envoy", "kube"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(repository.join("tests").join(folder)).unwrap())
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();

    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let rows: Vec<Vec<_>> = rows.map(|row| row.trim_matches('|').split('|').collect()).collect();

    assert!(rows.len() > 14, "{rows:?}");
    for row in rows {
        let named: Vec<_> = row[4].split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "nothing holds the row `{}`", row[0]);
        for name in named {
            assert!(tests.contains(&format!("fn {name}(")), "there is no test `{name}`");
        }
    }
}

/// A server that tells its metrics, until it is told not to, and answers each request with `status`.
async fn half_broken(status: StatusCode) -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let metrics_fail = Arc::<AtomicBool>::default();
    let told = Arc::clone(&metrics_fail);
    let metrics = move || {
        let fails = told.load(Ordering::Relaxed);
        async move {
            match fails {
                true => Err(StatusCode::INTERNAL_SERVER_ERROR),
                false => Ok("vllm:num_requests_waiting{} 0\n"),
            }
        }
    };
    let router = Router::new()
        .route("/metrics", get(metrics))
        .fallback(move || async move { (status, "half of it works") });
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, metrics_fail)
}
